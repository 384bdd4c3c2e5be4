//! A small world around the shipped `decide()` and `fold()`: one operation, its committed record, a sender that may pause, a
//! network that may delay, a target with books, and a checker that looks only at books, records and what left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::bench::{command, intent, now as start, said};
use crate::contract::Retention;
use crate::effects::fold::burn;
use crate::effects::{
    Action, Denial, Event, Facts, LedgerRecord, Outcome, Phase, Rule, Rules, Stamp, Verdict, WarrantKind, apply, decide, fold,
    journal,
};
use crate::intents::{AnswerClass, CommandKind, Resolution, Status};
use crate::time::WallTime;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Queued,
    Burned,
    /// The window was checked; the write is next.
    Checked,
    Left,
    Over,
}

pub struct World {
    pub rules: Rules,
    pub now: WallTime,
    pub denied: Option<Denial>,
    /// How far the target's clock is behind ours.
    pub behind: Duration,
    /// As committed.
    pub ledger: Option<LedgerRecord>,
    /// As folded and not committed.
    open: Option<LedgerRecord>,
    fresh: Vec<i32>,
    folded: Vec<Event>,
    calls: BTreeMap<i32, Call>,
    arrived: BTreeSet<i32>,
    heard: bool,
    not_before: Option<WallTime>,
    cancelled_at_all: bool,
    /// When each effect was applied.
    pub books: Vec<WallTime>,
    key_since: Option<WallTime>,
    successor: bool,
    excused: bool,
    pub bad: BTreeSet<&'static str>,
}

impl World {
    pub fn empty(rules: Rules) -> Self {
        Self {
            rules,
            now: start().wall,
            denied: None,
            behind: Duration::ZERO,
            ledger: None,
            open: None,
            fresh: Vec::new(),
            folded: Vec::new(),
            calls: BTreeMap::new(),
            arrived: BTreeSet::new(),
            heard: false,
            not_before: None,
            cancelled_at_all: false,
            books: Vec::new(),
            key_since: None,
            successor: false,
            excused: false,
            bad: BTreeSet::new(),
        }
    }

    // ---- the owner ----

    /// The intent arrives, for the first time or again.
    pub fn deliver(&mut self) {
        match &self.ledger {
            None => self.open = Some(LedgerRecord::queued(&intent("op-1"), 1)),
            Some(r) if r.phase == Phase::Held => {
                let mut fresh = LedgerRecord::queued(&intent("op-1"), 1);
                for c in r.held.clone() {
                    fold(&mut fresh, Event::Command { command: Box::new(c), burned: vec![] }, &self.rules, self.now);
                }
                self.open = Some(fresh);
            }
            Some(_) => return,
        }
        self.go_on();
        self.commit();
    }
    fn go_on(&mut self) {
        let Some(mut r) = self.open.take().or_else(|| self.ledger.clone()) else { return };
        for _ in 0..16 {
            let facts = Facts {
                lane_free: true,
                permit: true,
                read_permit: true,
                reading: false,
                drift: self.behind > self.rules.epsilon,
                denied: self.denied.clone(),
            };
            match decide(&r, &facts, &self.rules, self.now) {
                Action::Journal(warrants) => {
                    let n = r.attempts.len() as i32 + 1;
                    let token = format!("t-{n}").into();
                    journal(&mut r, warrants, Stamp { epoch: "e".into(), token, at: self.now }, &self.rules);
                    if !self.rules.hold(Rule::JournalBeforeCall) {
                        self.calls.insert(n, Call::Queued);
                    }
                    self.fresh.push(n);
                }
                Action::Forget => {
                    self.ledger = None;
                    return;
                }
                Action::Wait(_) | Action::WaitForPermit(_) | Action::Read => break,
                action => apply(&mut r, &action, self.now),
            }
        }
        self.open = Some(r);
    }
    pub fn fold(&mut self, event: Event) {
        let Some(mut r) = self.open.take().or_else(|| self.ledger.clone()) else { return };
        self.folded.push(event.clone());
        fold(&mut r, event, &self.rules, self.now);
        self.open = Some(r);
        self.go_on();
    }
    pub fn commit(&mut self) {
        self.folded.clear();
        let Some(r) = self.open.take() else { return };
        for n in std::mem::take(&mut self.fresh) {
            if self.rules.hold(Rule::JournalBeforeCall) {
                self.calls.insert(n, Call::Queued);
            }
        }
        if let Some(before) = &self.ledger
            && before.phase == Phase::Ended
            && before.end != r.end
        {
            self.bad.insert("a terminal status changed");
        }
        self.ledger = Some(r);
        self.check();
    }
    /// The transaction is taken back. What was folded in it is folded again, or lost with the rule.
    pub fn abort(&mut self) {
        self.open = None;
        self.fresh.clear();
        let folded = std::mem::take(&mut self.folded);
        if self.rules.hold(Rule::KeepCompletions) {
            for event in folded {
                self.fold(event);
            }
        } else {
            let held = self.calls.iter().filter(|(_, c)| **c != Call::Over).map(|(n, _)| *n).collect();
            self.fold(Event::TakeOver { burned: vec![], held });
        }
        self.commit();
    }
    /// Folds and commits.
    pub fn event(&mut self, event: Event) {
        self.fold(event);
        self.commit();
    }
    pub fn after(&mut self, seconds: u64) {
        self.now = self.now.plus(Duration::from_secs(seconds));
        self.go_on();
        self.commit();
    }
    /// The owner is gone, and with it what it knew; another takes over.
    pub fn take_over(&mut self) {
        self.open = None;
        self.event(Event::TakeOver { burned: vec![], held: vec![] });
    }

    // ---- people ----

    pub fn cancel(&mut self) {
        self.cancelled_at_all = true;
        if self.ledger.is_none() {
            let mut r = LedgerRecord::held(intent("op-1").key(), intent("op-1").deadline);
            let c = Box::new(command(CommandKind::Cancel, "op-1", "c-1"));
            fold(&mut r, Event::Command { command: c, burned: vec![] }, &self.rules, self.now);
            self.ledger = (!r.held.is_empty()).then_some(r);
            return;
        }
        let burned = self.burn();
        self.event(Event::Command { command: Box::new(command(CommandKind::Cancel, "op-1", "c-1")), burned });
    }
    pub fn resolve(&mut self, second: bool) {
        let Some(r) = &self.ledger else { return };
        let mut c = command(CommandKind::Resolve, "op-1", "r-1");
        (c.seen, c.resolution, c.second) = (Some(r.version), Some(Resolution::NotApplied), second.then(|| "second".into()));
        let burned = if self.rules.hold(Rule::CloseBurns) { self.burn() } else { vec![] };
        self.event(Event::Command { command: Box::new(c), burned });
    }
    fn burn(&mut self) -> Vec<i32> {
        let queued: Vec<i32> = self.calls.iter().filter(|(_, c)| **c == Call::Queued).map(|(n, _)| *n).collect();
        for n in &queued {
            self.calls.insert(*n, Call::Burned);
        }
        if let Some(r) = self.open.as_mut() {
            burn(r, &queued, self.now);
        }
        queued
    }

    // ---- the sender and the network ----

    /// The sender looks at its clock; then it may pause before the write.
    pub fn look(&mut self, n: i32) {
        let window = self.attempt(n).map(|a| a.send_not_after);
        if self.calls.get(&n) == Some(&Call::Queued) && window.is_none_or(|w| self.now <= w) {
            self.calls.insert(n, Call::Checked);
        }
    }
    /// The first byte leaves.
    pub fn write(&mut self, n: i32) {
        if self.calls.get(&n) != Some(&Call::Checked) {
            return;
        }
        self.calls.insert(n, Call::Left);
        self.arrived.remove(&n);
        let Some(a) = self.attempt(n) else {
            self.bad.insert("it left without a committed record");
            return;
        };
        if self.not_before.is_some_and(|t| self.now < t) {
            self.bad.insert("it left earlier than the target allowed");
        }
        let earlier: BTreeSet<i32> = a.warrants.iter().map(|w| w.covers).collect();
        if earlier.len() as i32 != n - 1 {
            self.bad.insert("it left without a warrant for each earlier attempt");
        }
        if a.warrants.iter().any(|w| w.kind == WarrantKind::DuplicatesAccepted) && !self.rules.duplicates {
            self.bad.insert("it rests on duplicates that nobody accepted");
        }
        if a.warrants.iter().any(|w| matches!(w.kind, WarrantKind::Operator | WarrantKind::DuplicatesAccepted)) {
            self.excused = true;
        }
        if self.ledger.as_ref().is_some_and(|r| r.phase == Phase::Ended) {
            self.bad.insert("it left after the end");
        }
    }
    /// Both at once.
    pub fn leave(&mut self, n: i32) {
        self.look(n);
        self.write(n);
    }
    fn attempt(&self, n: i32) -> Option<crate::effects::Attempt> {
        self.ledger.as_ref()?.attempts.iter().find(|a| a.n == n).cloned()
    }
    /// The request of an attempt reaches the target, which applies it unless it still knows the key.
    pub fn arrive(&mut self, n: i32) {
        if !matches!(self.calls.get(&n), Some(Call::Left | Call::Over)) {
            return;
        }
        if !self.arrived.insert(n) {
            return;
        }
        let memory = match self.rules.dedupe {
            Some(Retention::Forever) => Duration::MAX,
            Some(Retention::For(d)) => d,
            None => Duration::ZERO,
        };
        if self.key_since.is_some_and(|t| self.now < t.plus(memory)) && self.rules.dedupe.is_some() {
            return;
        }
        let stamp = self.attempt(n).map(|a| a.journalled_at);
        if self.rules.max_age.zip(stamp).is_some_and(|(age, stamp)| self.now > stamp.plus(age + self.behind)) {
            return;
        }
        if self.rules.creates_once && !self.books.is_empty() {
            return;
        }
        self.key_since = Some(self.now);
        self.books.push(self.now);
        if self.successor {
            self.bad.insert("an old copy undid its successor");
        }
        self.check();
    }
    /// Attempt `n` comes out at its owner.
    pub fn answer(&mut self, n: i32, class: AnswerClass) {
        self.fold_answer(n, class);
        self.commit();
    }
    /// Attempt `n` is answered: not now, come again in so many seconds.
    pub fn come_again(&mut self, n: i32, seconds: u64) {
        self.calls.insert(n, Call::Over);
        self.not_before = Some(self.now.plus(Duration::from_secs(seconds)));
        let said = said(n, &format!("t-{n}"), AnswerClass::RetryLater);
        self.event(Event::Finished(Outcome { said, retry_at: self.not_before }));
    }
    pub fn fold_answer(&mut self, n: i32, class: AnswerClass) {
        match self.calls.get(&n) {
            Some(Call::Left) => {}
            Some(_) if class == AnswerClass::NotSent => {}
            _ => return,
        }
        self.calls.insert(n, Call::Over);
        self.heard |= !matches!(class, AnswerClass::MaybeSent | AnswerClass::Unknown);
        self.fold(Event::Finished(Outcome { said: said(n, &format!("t-{n}"), class), retry_at: None }));
    }
    pub fn hearsay(&mut self, n: i32, token: &str, class: AnswerClass) {
        self.event(Event::Hearsay(said(n, token, class)));
    }
    /// A readback that was asked just now.
    pub fn read(&mut self, verdict: Verdict) {
        self.event(Event::Read { at: self.now, verdict, digest: None });
    }
    /// The next operation of the lane, if the lane is open.
    pub fn next_in_lane(&mut self) {
        let Some(r) = &self.ledger else { return };
        if r.phase == Phase::Ended && self.rules.lane_opens_at(r).is_some_and(|t| t <= self.now) {
            self.successor = true;
        }
    }

    // ---- the checker ----

    fn check(&mut self) {
        if self.books.len() > 1 && !self.excused {
            self.bad.insert("two effects");
        }
        if !self.books.is_empty() && self.cancelled_at_all && !self.ledger.as_ref().is_some_and(|r| r.cancelled) {
            self.bad.insert("a cancel was lost");
        }
        let Some(r) = &self.ledger else { return };
        let unknown = r.phase == Phase::Unknown && !r.open();
        if unknown && r.unknown_since.is_some_and(|t| t.plus(self.rules.unknown_max_age) < self.now) {
            self.bad.insert("it stays unknown, and nobody is told");
        }
        let done = !self.books.is_empty();
        let flagged = !r.flags.is_empty();
        match r.end {
            Some(Status::Confirmed) if !done => self.bad.insert("confirmed without an effect"),
            Some(Status::Superseded) if !done => self.bad.insert("superseded without an effect"),
            Some(Status::Refused | Status::Expired | Status::Denied | Status::Cancelled | Status::ResolvedNotApplied)
                if done && !flagged =>
            {
                self.bad.insert("ended as not applied, but applied")
            }
            None if r.phase == Phase::Parked && self.heard && !r.clean() && r.seen == crate::effects::Seen::Nothing => {
                self.bad.insert("parked although the answer was heard")
            }
            _ => false,
        };
    }
}
