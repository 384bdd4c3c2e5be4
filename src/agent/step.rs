//! One event on one operation: admit, plan, gate, authorize, hand over, answer. Pure: no clock, no store, no topic.

use crate::error::codes;
use crate::intents::{AckLevel, Approval, Command, CommandKind, Decision, Intake, Return, ReturnKind, Status, WorkRequest};
use crate::outbox::{Closed, DeadLetter, Does, OperationRecord, Output, Rule, Stage, Turn, Why, message};
use crate::time::{WallTime, show_duration};

use super::admit::{Verdict, admit};
use super::desk::{Bench, Desk, Made, Seen};
use super::gate;
use super::purse::Purse;

/// A command or an approval that came before its operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Signal {
    /// A command.
    Command(Command),
    /// An approval.
    Approval(Approval),
}

/// What an input turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fetched {
    /// The text, its hash as named.
    Text(String),
    /// Not what was named, too large, no text, or refused for good.
    Unusable(String),
}

/// What happens to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request, with what was held for its ID.
    Intake(Box<Intake>, Vec<Signal>),
    /// A request from the dead letters for an operation that has ended, under the ID of its replay.
    Replay(Box<Intake>, Vec<Signal>),
    /// An approval, denial or revocation.
    Approval(Approval),
    /// A command.
    Command(Command),
    /// What the effect unit says.
    Return(Return),
    /// Its input was fetched.
    Fetched(Fetched),
    /// Time has passed.
    Due,
}

/// What an event came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advanced {
    /// The record as it stands now; `None` = there is none (any more).
    pub record: Option<OperationRecord>,
    /// What is written, in order.
    pub out: Vec<Output>,
}

/// Folds one event into an operation's record. `purse` holds the tenant's budgets in this partition. Commands and approvals
/// for an unknown operation must be held by the caller: with `record: None` only a request does anything.
pub fn advance(record: Option<OperationRecord>, event: Event, desk: &Desk, purse: &mut Purse, now: WallTime) -> Advanced {
    let Some(record) = record else {
        return match event {
            Event::Intake(intake, held) => new(&intake, &intake.request, held, desk, purse, now),
            Event::Replay(intake, held) => {
                // `.r<k>` is ours: admission looks at the request as it was made.
                let asked = WorkRequest { operation_id: intake.request.operation_id.root(), ..intake.request.clone() };
                new(&intake, &asked, held, desk, purse, now)
            }
            _ => Advanced { record: None, out: Vec::new() },
        };
    };
    let bench = desk.bench(&record.step);
    let mut step = Step { turn: Turn::new(record, now, &desk.settings), desk, bench, rendered: None };
    let kept = step.on(event, purse);
    step.go_through();
    step.settle(purse);
    step.settle_likeness();
    Advanced { record: kept.then_some(step.turn.record), out: step.turn.out }
}

fn new(intake: &Intake, asked: &WorkRequest, held: Vec<Signal>, desk: &Desk, purse: &mut Purse, now: WallTime) -> Advanced {
    let request = &intake.request;
    let refuse = |status, why: Why| {
        let mut out = vec![message(request, &intake.step, status, &why, now)];
        if status != Status::Throttled {
            out.push(Output::DeadLetter(Box::new(DeadLetter::of(intake, why))));
        }
        Advanced { record: None, out }
    };
    let Some(bench) = desk.bench(&intake.step) else {
        let words = format!("there is no effect step {}", intake.step);
        return refuse(Status::Invalid, Why::new(codes::UNKNOWN_REFERENCE, words));
    };
    let verdict = admit(asked, &bench.pipeline, &desk.settings, now);
    if let Verdict::Message(status, why) = verdict {
        return refuse(status, why);
    }
    let mut record =
        OperationRecord::admitted(request.clone(), intake.step.clone(), intake.ordering_key.clone(), intake.origin.clone(), now);
    record.remember_ms = i64::try_from(bench.pipeline.admit.remember.as_millis()).unwrap_or(i64::MAX);
    let mut step = Step { turn: Turn::new(record, now, &desk.settings), desk, bench: Some(bench), rendered: None };
    if verdict == Verdict::Expired {
        step.expired_on_arrival();
    } else {
        match step.renders() {
            Ok(rendered) => step.rendered = rendered,
            Err(words) => return refuse(Status::Invalid, Why::new(codes::REQUEST_INVALID, words)),
        }
        let cost = request.cost_estimate;
        if let Err(words) = purse.charge(&bench.pipeline.admit.budgets, desk.settings.partitions, cost, now) {
            return refuse(Status::Throttled, Why::new(codes::REQUEST_THROTTLED, words));
        }
        step.turn.record.charged = cost;
    }
    step.begin(held);
    step.go_through();
    step.settle(purse);
    step.settle_likeness();
    Advanced { record: Some(step.turn.record), out: step.turn.out }
}

/// One event at work on one record.
pub(super) struct Step<'a> {
    pub(super) turn: Turn<'a>,
    pub(super) desk: &'a Desk,
    pub(super) bench: Option<&'a Bench>,
    /// The effect as admission rendered it, for the plan that is made of the same record at once.
    pub(super) rendered: Option<(Made, Seen)>,
}

impl Step<'_> {
    /// Takes an event on a known operation; answers whether the record lives on.
    fn on(&mut self, event: Event, purse: &mut Purse) -> bool {
        self.timers();
        match event {
            Event::Intake(intake, _) | Event::Replay(intake, _) => self.repeated(&intake),
            Event::Approval(approval) => self.approval(&approval),
            Event::Command(command) => self.command(&command),
            Event::Return(back) => return self.returned(&back),
            Event::Fetched(what) => return self.fetched(what, purse),
            Event::Due => return !self.over(),
        }
        true
    }

    fn repeated(&mut self, intake: &Intake) {
        let longest = self.turn.now.plus(self.bench.map_or(self.turn.record.remember(), |b| b.pipeline.admit.max_deadline));
        if !self.turn.settings.on(Rule::IdentityFirst) && self.bench.is_some_and(|b| !b.pipeline.admit.budgets.is_empty()) {
            let why = Why::new(codes::REQUEST_THROTTLED, "budget asked before identity");
            return self.turn.state(Status::Throttled, AckLevel::Received, Some(why));
        }
        self.turn.again(intake, longest);
    }

    // ---- admit ----

    /// Whether the first call can be filled in at all: else the request is invalid and uses nothing up. Answers it, where it is
    /// the effect.
    fn renders(&self) -> Result<Option<(Made, Seen)>, String> {
        let (Some(bench), record) = (self.bench, &self.turn.record) else { return Ok(None) };
        if record.request.input.locator.is_some() || self.desk.plan_call(bench, record)?.is_some() {
            return Ok(None);
        }
        let seen = Seen::of(record);
        Ok(Some((self.desk.effect(bench, record, &seen)?, seen)))
    }

    fn expired_on_arrival(&mut self) {
        let why = Why::new(codes::REQUEST_EXPIRED, "its deadline was over when it arrived");
        let letter = DeadLetter::of_record(&self.turn.record, why.clone());
        self.turn.end(Status::Expired, why);
        self.turn.out.push(Output::DeadLetter(Box::new(letter)));
    }

    /// First what was held for this ID: revocations, then approvals, then commands in their order. Then the work.
    fn begin(&mut self, held: Vec<Signal>) {
        if !self.turn.ended() {
            if self.turn.record.request.input.locator.is_some() {
                self.turn.record.stage = Stage::Fetching;
                let (input, max) = (self.turn.record.request.input.clone(), self.bench.map_or(0, |b| b.pipeline.admit.max_input));
                self.turn.out.push(Output::Fetch(Box::new(input), max));
            } else {
                self.turn.state(Status::Accepted, AckLevel::Accepted, None);
            }
        }
        let first = |s: &Signal| match s {
            Signal::Approval(a) if a.decision == Decision::Revoke => 0,
            Signal::Command(c) if c.kind == CommandKind::Revoke => 0,
            Signal::Approval(_) => 1,
            Signal::Command(_) => 2,
        };
        let mut held = held;
        held.sort_by_key(first);
        for signal in held {
            match signal {
                Signal::Command(c) => self.command(&c),
                Signal::Approval(a) => self.approval(&a),
            }
        }
        if self.turn.record.stage == Stage::Planning {
            self.plan();
        }
    }

    fn fetched(&mut self, what: Fetched, purse: &mut Purse) -> bool {
        if self.turn.record.stage != Stage::Fetching {
            return true;
        }
        match what {
            Fetched::Text(text) => {
                self.turn.record.request.input.inline = Some(text);
                self.turn.record.stage = Stage::Planning;
                self.turn.state(Status::Accepted, AckLevel::Accepted, None);
                self.plan();
                true
            }
            Fetched::Unusable(words) => {
                let record = &self.turn.record;
                let why = Why::new(codes::INPUT_MISMATCH, words);
                let told = message(&record.request, &record.step, Status::Invalid, &why, self.turn.now);
                let letter = DeadLetter::of_record(record, why);
                self.turn.out.extend([told, Output::DeadLetter(Box::new(letter))]);
                if let Some(bench) = self.bench {
                    let (rules, n) = (&bench.pipeline.admit.budgets, self.turn.settings.partitions);
                    purse.settle(rules, n, self.turn.record.charged, Default::default(), self.turn.now);
                }
                self.turn.record.settled = true;
                false
            }
        }
    }

    // ---- returns and time ----

    fn returned(&mut self, back: &Return) -> bool {
        if !self.turn.concerns(back) {
            return true;
        }
        match back.kind {
            ReturnKind::PlanAnswer => return self.plan_answer(back),
            ReturnKind::Closed => {
                let by_answer = match self.bench.map(|b| &b.pipeline.effect.does) {
                    Some(Does::One(one)) => self.desk.renderer.confirms_by_answer(&one.contract, &one.call),
                    _ => false,
                };
                if let Closed::PlanLost(end) = self.turn.closed(back, by_answer) {
                    let words = format!("the model call ended as {}", end.word());
                    self.turn.end(Status::PlanFailed, Why::new(codes::PLAN_FAILED, words));
                }
            }
            ReturnKind::Gone => self.turn.gone(back),
            ReturnKind::Compared => self.compared(back),
        }
        true
    }

    /// What the clock ends before anything was handed over.
    fn timers(&mut self) {
        let (record, now) = (&self.turn.record, self.turn.now);
        let live = match record.stage {
            Stage::Fetching | Stage::Planning | Stage::Comparing | Stage::Waiting => true,
            Stage::HandedOver => !self.turn.settings.on(Rule::SilentAfterHandOver),
            Stage::Executing if now >= record.request.deadline => return self.deadline_of_calls(),
            Stage::Executing | Stage::Ended => false,
        };
        if !live {
            return;
        }
        if now >= record.request.deadline {
            let words = match record.stage {
                Stage::Waiting => "the deadline passed while it waited for an approval",
                Stage::Fetching => "the deadline passed while its input was fetched",
                Stage::Comparing => "the deadline passed while it was compared with earlier ones",
                _ => "the deadline passed while it waited for its plan",
            };
            self.turn.end(Status::Expired, Why::new(codes::EXPIRED, words));
        } else if gate::waited_out(&self.turn) {
            let waited = record.waiting_until.map(|w| w.since(record.changed_at)).unwrap_or_default();
            let words = format!("nobody approved it within {}", show_duration(waited));
            self.turn.end(Status::Expired, Why::new(codes::EXPIRED, words));
        }
    }

    /// Whether the record's own life is over.
    fn over(&self) -> bool {
        let record = &self.turn.record;
        record.stage == Stage::Ended && record.due(self.turn.settings).is_some_and(|due| self.turn.now >= due)
    }

    /// Once all that came of the operation has closed: budgets get back what was not used. An unknown keeps its reservation,
    /// and so does an operation whose calls reported no cost.
    fn settle(&mut self, purse: &mut Purse) {
        let record = &self.turn.record;
        let closed = record.derived.iter().all(|d| d.end.is_some());
        if record.stage != Stage::Ended || record.settled || !closed {
            return;
        }
        let known = record.derived.is_empty() || record.used != Default::default();
        if let (Some(bench), true) = (self.bench, known) {
            let (rules, n) = (&bench.pipeline.admit.budgets, self.turn.settings.partitions);
            purse.settle(rules, n, record.charged, record.used, self.turn.now);
        }
        self.turn.record.settled = true;
    }
}
