//! What happens to the world at its time: requests, people, and what strikes.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::Member;
use crate::ids::{GroupId, SlotName};
use crate::intents::{CommandKind, Decision, topics};
use crate::kafka::Cluster;
use crate::kafka::memory::{HeldMarkers, LostAnswer};
use crate::record::OutRecord;
use crate::testing::target::FakePort;
use crate::time::Clock;

use super::apps::{self, Message};
use super::operator::{Books, People, Said};
use super::schedule::{Afterthought, Again, Strike};
use super::world::{BEGIN, Happening, LOOK, START_AGAIN, World, stores};

impl World<'_> {
    pub(super) fn happen(&mut self, what: Happening) {
        match what {
            Happening::Request { op, nth, again } => self.request(op, nth, again),
            Happening::Cancel(op) => {
                let said = self.people.cancel(&self.schedule.operations[op], self.clock.now());
                self.note(format!("cancel of op-{}", self.schedule.operations[op].number));
                said.into_iter().for_each(|s| self.say(s));
            }
            Happening::Afterthought(op, thought) => self.afterthought(op, thought),
            Happening::Strike(strike) => self.strike(strike),
            Happening::Start(m) => self.start(m),
            Happening::FreeMarkers => self.cluster.hold_markers(HeldMarkers::None),
            Happening::DeliverLate => drop(self.cluster.deliver_late()),
            Happening::BrokerUp => self.cluster.set_down(false),
            Happening::Look => self.look(),
        }
    }

    fn request(&mut self, op: usize, nth: usize, again: Option<Again>) {
        let planned = &self.schedule.operations[op];
        let message = apps::request(self.schedule.app, planned, BEGIN.wall, nth, again == Some(Again::Conflict));
        if self.publish(&message) {
            self.heard.requested(planned.id(), again == Some(Again::Conflict));
            self.note(format!("request for {}{}", planned.id(), again.map_or(String::new(), |a| format!(" again: {a:?}"))));
        } else {
            self.after(START_AGAIN, Happening::Request { op, nth, again });
        }
    }

    fn afterthought(&mut self, op: usize, thought: Afterthought) {
        let planned = &self.schedule.operations[op];
        let results = self.people.results(&self.cluster);
        let Some(said) = self.people.think_again(planned, thought, &results, self.clock.now()) else { return };
        self.note(format!("{thought:?} for {}", planned.id()));
        self.say(said);
    }

    fn publish(&self, m: &Message) -> bool {
        let (key, headers) = (Some(m.key.as_bytes()), Some(&m.headers));
        let out = OutRecord { topic: &m.topic, partition: None, timestamp: None, key, value: Some(&m.value), headers };
        self.cluster.publish(&[out], Duration::ZERO).is_ok()
    }

    fn say(&mut self, said: Said) {
        match said {
            Said::Approval(approval) => {
                let (op, id) = (approval.operation_id.clone(), approval.approval_id.clone());
                if !self.publish(&Message::of("agent.approvals", &op, &*approval)) {
                    return;
                }
                self.note(format!("an approver says {:?} to {op}", approval.decision));
                if approval.decision == Decision::Revoke {
                    self.heard.revoked(id.to_string(), op.clone());
                    self.heard.revoked(format!("revoke/{id}"), op);
                } else {
                    self.people.wrote(&approval);
                }
            }
            Said::Command(command, record) => {
                if self.cluster.publish(&[record.as_record()], Duration::ZERO).is_err() {
                    return;
                }
                self.heard.commanded(&command);
                if command.kind == CommandKind::Revoke {
                    self.heard.revoked(command.command_id.to_string(), command.operation_id);
                }
            }
        }
    }

    fn look(&mut self) {
        let planned = &self.schedule.operations;
        let books = Books { orders: self.target.books(), cancelled: self.target.cancelled() };
        let said = self.people.look(planned, &self.cluster, &books, self.clock.now());
        let quiet = said.is_empty() && self.events.is_empty() && self.target.next_due().is_none();
        said.into_iter().for_each(|s| self.say(s));
        let results = self.people.results(&self.cluster);
        self.rested = quiet && People::settled(planned, &results) && self.heard.all_answered(&results);
        self.after(LOOK, Happening::Look);
    }

    fn strike(&mut self, strike: Strike) {
        self.note(format!("{strike:?}"));
        let word = match strike {
            Strike::Crash { member, down, disk } => {
                self.leave(member, down, |(_, port)| port.kill());
                if !disk {
                    self.seats[member].place.state = stores();
                }
                "crashes"
            }
            Strike::Restart { member, down } => {
                self.leave(member, down, |(member, port)| {
                    drop(member.stop());
                    port.kill();
                });
                "restarts"
            }
            Strike::Pause { member, stands } => {
                self.seats[member].paused = self.clock.now().mono.plus(stands);
                "pauses"
            }
            Strike::LoseCommit { member, unit, what } => {
                self.cluster.lose_commit_answer(Some(&self.slot(member, unit)), what);
                if what == LostAnswer::Late {
                    let late = Duration::from_millis(200 + self.rng.below(9_000));
                    self.after(late, Happening::DeliverLate);
                }
                "lost commits"
            }
            Strike::Fail { call, class } => {
                self.cluster.fail_next(call, None, class);
                "failed calls"
            }
            Strike::HoldMarkers { held } => {
                self.cluster.hold_markers(HeldMarkers::All);
                self.after(held, Happening::FreeMarkers);
                "held markers"
            }
            Strike::ExpireSession { member, unit } => {
                self.cluster.expire_session(&GroupId::from(self.unit(unit)), &self.slot(member, unit));
                "expired sessions"
            }
            Strike::ExpireTransaction { member, unit } => {
                self.cluster.expire_transaction(&self.slot(member, unit));
                "expired transactions"
            }
            Strike::BrokerDown { down } => {
                self.cluster.set_down(true);
                self.after(down, Happening::BrokerUp);
                "brokers down"
            }
        };
        *self.out.struck.entry(word).or_default() += 1;
    }

    fn leave(&mut self, m: usize, down: Duration, how: impl FnOnce((Member, Arc<FakePort>))) {
        if let Some(live) = self.seats[m].live.take() {
            how(live);
            self.after(down, Happening::Start(m));
        }
    }

    fn unit(&self, unit: usize) -> String {
        if unit == 0 { self.application.id.to_string() } else { topics::effects_unit(&self.application.id).to_string() }
    }

    fn slot(&self, member: usize, unit: usize) -> SlotName {
        SlotName::from(format!("{}-{member:03}", self.unit(unit)))
    }
}
