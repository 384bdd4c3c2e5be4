//! What comes back from the effect unit: `closed` and `gone`. Plan answers are the agent's. Pure.

use crate::error::codes;
use crate::intents::{AckLevel, Cost, Return, Status};

use super::record::{Derived, Role, Stage};
use super::rules::Rule;
use super::turn::{Turn, Why};

/// What the closing of a derived operation means for its root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// Nothing more to do.
    Noted,
    /// The model call ended before a usable answer came.
    PlanLost(Status),
}

impl Turn<'_> {
    /// Whether a return speaks of this record's content; of another hash it is ignored.
    pub fn concerns(&self, back: &Return) -> bool {
        back.identity_hash == self.record.identity_hash || !self.settings.on(Rule::PlanHashChecked)
    }

    /// A derived operation has closed. `by_answer`: whether the effect's contract confirms by answer.
    pub fn closed(&mut self, back: &Return, by_answer: bool) -> Closed {
        let end = back.end.unwrap_or(Status::Confirmed);
        self.spend(back.cost);
        let Some(i) = self.record.derived.iter().position(|d| d.operation_id == back.operation_id && d.step == back.step) else {
            return Closed::Noted;
        };
        let closed = &mut self.record.derived[i];
        if closed.end.is_some() {
            return Closed::Noted;
        }
        (closed.end, closed.closed_at) = (Some(end), Some(back.at));
        let closed = closed.clone();
        match closed.role {
            Role::Effect => self.effect_closed(&closed, end, back, by_answer),
            Role::Plan if self.record.stage == Stage::Planning => return Closed::PlanLost(end),
            Role::Call if end == Status::Superseded => self.route_undo(&closed),
            Role::Undo if end == Status::Invalid => self.undo_refused(back),
            Role::Plan | Role::Call | Role::Undo => {}
        }
        Closed::Noted
    }

    fn effect_closed(&mut self, effect: &Derived, end: Status, back: &Return, by_answer: bool) {
        if end == Status::Conflict {
            // The ledger holds an older operation of this ID with other content, so nobody there speaks for ours.
            let why = Why::new(codes::REQUEST_CONFLICT, "the ledger holds another content under this operation ID");
            self.state(Status::Conflict, self.record.ack_level, Some(why));
        } else {
            let r = &mut self.record;
            (r.version, r.status, r.changed_at) = (back.version.max(r.version), end, back.at);
            r.ack_level = ack_of(end, by_answer).max(r.ack_level);
            (r.code, r.detail) = (None, None);
        }
        self.record.stage = Stage::Ended;
        if end == Status::Superseded {
            self.route_undo(effect);
        }
    }

    /// Its owner has ordered its compensation, in its own partition.
    fn route_undo(&mut self, of: &Derived) {
        let operation_id = of.operation_id.undo();
        self.record.derived.push(Derived { role: Role::Undo, operation_id, end: None, closed_at: None, gone: false, ..of.clone() });
    }

    /// A derived operation's ledger record is deleted.
    pub fn gone(&mut self, back: &Return) {
        let of = |d: &&mut Derived| d.operation_id == back.operation_id && d.step == back.step;
        if let Some(d) = self.record.derived.iter_mut().find(of) {
            d.gone = true;
            d.closed_at = d.closed_at.or(Some(back.at));
            d.end = d.end.or(back.end).or(Some(Status::Stale));
        }
    }

    /// Counts what something did cost.
    pub fn spend(&mut self, cost: Cost) {
        let used = &mut self.record.used;
        used.tokens = used.tokens.saturating_add(cost.tokens);
        used.bytes = used.bytes.saturating_add(cost.bytes);
        used.tool_calls = used.tool_calls.saturating_add(cost.tool_calls);
    }
}

/// How far an operation provably got that ended so.
pub(super) fn ack_of(end: Status, by_answer: bool) -> AckLevel {
    match end {
        Status::Confirmed | Status::Superseded if by_answer => AckLevel::Answered,
        Status::Confirmed | Status::Superseded => AckLevel::Confirmed,
        Status::Refused => AckLevel::Answered,
        _ => AckLevel::Received,
    }
}
