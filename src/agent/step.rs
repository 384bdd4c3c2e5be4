//! One event on one operation: admit, plan, gate, authorize, hand over, answer. Pure: no clock, no store, no topic.

use crate::error::codes;
use crate::intents::{AckLevel, Approval, ApprovalUse, Command, CommandKind, Decision, Intake, Return, ReturnKind, Status};
use crate::outbox::{Ask, Closed, DeadLetter, OperationRecord, Output, Rule, Stage, Turn, Why, message};
use crate::time::{WallTime, show_duration};

use super::admit::{Verdict, admit};
use super::desk::{Bench, Desk, Ready, Seen};
use super::gate::{self, Standing};
use super::proposal::plan_hash;
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
            Event::Intake(intake, held) => new(&intake, held, desk, purse, now),
            _ => Advanced { record: None, out: Vec::new() },
        };
    };
    let bench = desk.bench(&record.step);
    let mut step = Step { turn: Turn::new(record, now, &desk.settings), desk, bench };
    let kept = step.on(event, purse);
    step.settle(purse);
    Advanced { record: kept.then_some(step.turn.record), out: step.turn.out }
}

fn new(intake: &Intake, held: Vec<Signal>, desk: &Desk, purse: &mut Purse, now: WallTime) -> Advanced {
    let request = &intake.request;
    let refuse = |status, why: Why| {
        let mut out = vec![message(request, &intake.step, status, &why, now)];
        if status != Status::Throttled {
            let letter = DeadLetter { request: request.clone(), code: why.code, reason: why.words, origin: intake.origin.clone() };
            out.push(Output::DeadLetter(Box::new(letter)));
        }
        Advanced { record: None, out }
    };
    let Some(bench) = desk.bench(&intake.step) else {
        let words = format!("there is no effect step {}", intake.step);
        return refuse(Status::Invalid, Why::new(codes::UNKNOWN_REFERENCE, words));
    };
    let verdict = admit(request, &bench.pipeline, &desk.settings, now);
    if let Verdict::Message(status, why) = verdict {
        return refuse(status, why);
    }
    let mut record =
        OperationRecord::admitted(request.clone(), intake.step.clone(), intake.ordering_key.clone(), intake.origin.clone(), now);
    record.remember_ms = i64::try_from(bench.pipeline.admit.remember.as_millis()).unwrap_or(i64::MAX);
    let mut step = Step { turn: Turn::new(record, now, &desk.settings), desk, bench: Some(bench) };
    if verdict == Verdict::Expired {
        step.expired_on_arrival();
    } else {
        if let Err(words) = step.renders() {
            return refuse(Status::Invalid, Why::new(codes::REQUEST_INVALID, words));
        }
        let cost = request.cost_estimate;
        if let Err(words) = purse.charge(&bench.pipeline.admit.budgets, desk.settings.partitions, cost, now) {
            return refuse(Status::Throttled, Why::new(codes::REQUEST_THROTTLED, words));
        }
        step.turn.record.charged = cost;
    }
    step.begin(held);
    step.settle(purse);
    Advanced { record: Some(step.turn.record), out: step.turn.out }
}

struct Step<'a> {
    turn: Turn<'a>,
    desk: &'a Desk,
    bench: Option<&'a Bench>,
}

impl Step<'_> {
    /// Takes an event on a known operation; answers whether the record lives on.
    fn on(&mut self, event: Event, purse: &mut Purse) -> bool {
        self.timers();
        match event {
            Event::Intake(intake, _) => self.repeated(&intake),
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
        self.turn.again(&intake.request, &intake.origin, longest);
    }

    // ---- admit ----

    /// Whether the first call can be filled in at all: else the request is invalid and uses nothing up.
    fn renders(&self) -> Result<(), String> {
        let (Some(bench), record) = (self.bench, &self.turn.record) else { return Ok(()) };
        if record.request.input.locator.is_some() {
            return Ok(());
        }
        match self.desk.plan_call(bench, record)? {
            Some(_) => Ok(()),
            None => self.desk.effect_call(bench, record, &Seen::of(record)).map(|_| ()),
        }
    }

    fn expired_on_arrival(&mut self) {
        let why = Why::new(codes::REQUEST_EXPIRED, "its deadline was over when it arrived");
        let record = &self.turn.record;
        let letter = DeadLetter {
            request: record.request.clone(),
            code: why.code,
            reason: why.words.clone(),
            origin: record.origin.clone(),
        };
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
                let (request, origin) = (record.request.clone(), record.origin.clone());
                self.turn.out.push(message(&request, &record.step, Status::Invalid, &why, self.turn.now));
                let letter = DeadLetter { request, code: why.code, reason: why.words, origin };
                self.turn.out.push(Output::DeadLetter(Box::new(letter)));
                if let Some(bench) = self.bench {
                    let (rules, n) = (&bench.pipeline.admit.budgets, self.turn.settings.partitions);
                    purse.settle(rules, n, self.turn.record.charged, Default::default(), self.turn.now);
                }
                self.turn.record.settled = true;
                false
            }
        }
    }

    // ---- plan ----

    fn plan(&mut self) {
        let Some(bench) = self.bench else { return self.no_pipeline() };
        match self.desk.plan_call(bench, &self.turn.record) {
            Ok(Some(ready)) => self.turn.intend(ready.call, ready.rendered, None),
            Ok(None) => self.planned(),
            Err(words) => self.turn.end(Status::PlanFailed, Why::new(codes::PLAN_FAILED, words)),
        }
    }

    fn no_pipeline(&mut self) {
        let words = format!("the topology has no effect step {} any more", self.turn.record.step);
        self.turn.end(Status::PlanFailed, Why::new(codes::UNKNOWN_REFERENCE, words));
    }

    fn plan_answer(&mut self, back: &Return) -> bool {
        let waits = self.turn.record.stage == Stage::Planning
            || (self.turn.record.stage == Stage::Waiting && !self.turn.settings.on(Rule::FirstPlanWins));
        if !waits {
            return true;
        }
        let Some((rules, schema)) = self.bench.and_then(|b| Some((b.pipeline.plan.as_ref()?, b.proposal.as_ref()?))) else {
            self.no_pipeline();
            return true;
        };
        match schema.read(back.body.as_deref(), rules.max) {
            Ok(proposal) => {
                self.turn.record.proposal = Some(proposal);
                self.planned();
            }
            Err(why) => {
                self.turn.end(Status::PlanFailed, why);
                return self.turn.settings.on(Rule::PlanFailedUsesId);
            }
        }
        true
    }

    /// Renders the effect, which makes the plan: proposal, bytes and hash.
    fn planned(&mut self) {
        let Some(bench) = self.bench else { return self.no_pipeline() };
        if bench.pipeline.plan.is_none() && bench.pipeline.gate.is_none() {
            return match self.effect() {
                Ok((ready, seen)) => self.authorize(ready, &seen, None),
                Err(words) => self.turn.end(Status::PlanFailed, Why::new(codes::PLAN_FAILED, words)),
            };
        }
        self.gate();
    }

    fn effect(&self) -> Result<(Ready, Seen), String> {
        let bench = self.bench.ok_or("the effect step is gone")?;
        let seen = Seen::of(&self.turn.record);
        Ok((self.desk.effect_call(bench, &self.turn.record, &seen)?, seen))
    }

    // ---- gate ----

    /// Where a plan stands: rendered anew each time, so that a changed tool, contract or target makes another plan, for which
    /// earlier approvals are void.
    fn gate(&mut self) {
        let Some(bench) = self.bench else { return self.no_pipeline() };
        let failed = |words| Why::new(codes::PLAN_FAILED, words);
        let (ready, seen) = match self.effect() {
            Ok(made) => made,
            Err(words) => return self.turn.end(Status::PlanFailed, failed(words)),
        };
        let model = bench.pipeline.plan.as_ref().zip(bench.proposal.as_ref());
        let hash = plan_hash(&self.turn.record, &ready, model);
        let before = self.turn.record.plan_hash.replace(hash.clone());
        if before.as_ref() != Some(&hash) {
            let why = before
                .map(|_| Why::new(codes::DENIED, "rendered again: the call or its contract changed, earlier approvals are void"));
            self.turn.record.stage = Stage::Planning;
            self.turn.state(Status::Planned, AckLevel::Planned, why);
        }
        let required = match &bench.pipeline.gate {
            Some(gate) => match (gate.required)(&seen.view(&self.turn.record)) {
                Ok(required) => required,
                Err(words) => return self.turn.end(Status::PlanFailed, failed(words)),
            },
            None => false,
        };
        match gate::standing(&self.turn, bench.pipeline.gate.as_ref()) {
            Standing::Denied(by) => {
                let why = Why::new(codes::DENIED, format!("denied by {}", crate::outbox::cut(&by)));
                self.turn.end(Status::Denied, why);
            }
            Standing::Granted(approval) if required => self.approved(ready, &seen, Some(approval)),
            _ if !required => self.approved(ready, &seen, None),
            _ => self.wait(),
        }
    }

    fn wait(&mut self) {
        if self.turn.record.stage == Stage::Waiting {
            return;
        }
        let expires = self.bench.and_then(|b| b.pipeline.gate.as_ref()).map(|g| g.expires).unwrap_or_default();
        self.turn.record.stage = Stage::Waiting;
        self.turn.record.waiting_until = Some(self.turn.now.plus(expires));
        self.turn.state(Status::AwaitingApproval, AckLevel::Planned, None);
    }

    fn approved(&mut self, ready: Ready, seen: &Seen, approval: Option<ApprovalUse>) {
        self.turn.state(Status::Approved, AckLevel::Approved, None);
        self.authorize(ready, seen, approval);
    }

    fn approval(&mut self, approval: &Approval) {
        let gate = self.bench.and_then(|b| b.pipeline.gate.as_ref());
        match self.turn.record.stage {
            Stage::Ended => {
                let words = format!("it ended as {}", self.turn.record.status.word());
                self.turn.answer(approval.approval_id.as_str(), Some(Why::new(codes::COMMAND_REFUSED, words)));
            }
            Stage::HandedOver => gate::after_hand_over(&mut self.turn, approval),
            Stage::Fetching | Stage::Planning | Stage::Waiting => {
                gate::take(&mut self.turn, gate, approval);
                if self.turn.record.stage == Stage::Waiting {
                    self.gate();
                } else if let Standing::Denied(by) = gate::standing(&self.turn, gate) {
                    let why = Why::new(codes::DENIED, format!("denied by {}", crate::outbox::cut(&by)));
                    self.turn.end(Status::Denied, why);
                }
            }
        }
    }

    fn command(&mut self, command: &Command) {
        let here = command.operation_id == self.turn.record.request.operation_id
            && !matches!(self.turn.record.stage, Stage::HandedOver | Stage::Ended);
        match (&command.approval, command.kind) {
            (Some(approval), CommandKind::ApproveLate) if here => {
                if self.turn.answer_repeat(&command.command_id) {
                    return;
                }
                match command.seen {
                    Some(seen) if seen != self.turn.record.version => {
                        let why = self.turn.stale(seen);
                        self.turn.answer_command(&command.command_id, Some(why));
                    }
                    _ => {
                        self.approval(approval);
                        self.turn.answer_command(&command.command_id, None);
                    }
                }
            }
            _ => self.turn.command(command),
        }
    }

    // ---- authorize ----

    /// Deadline and policy as of now; then the intent, in the same transaction. The effect unit asks again before every send.
    fn authorize(&mut self, ready: Ready, seen: &Seen, approval: Option<ApprovalUse>) {
        let (record, now) = (&self.turn.record, self.turn.now);
        if now >= record.request.deadline {
            return self.turn.end(Status::Expired, Why::new(codes::EXPIRED, "the deadline passed before it was authorized"));
        }
        let policy = self.bench.and_then(|b| b.pipeline.effect.policy.as_deref());
        if let Some(policy) = policy {
            let ask = Ask { request: &record.request, plan: seen.plan(), parameters: &ready.parameters, now };
            if let Err(words) = self.desk.policy.allows(policy, &ask) {
                return self.turn.end(Status::Denied, Why::new(codes::DENIED, words));
            }
        }
        self.turn.intend(ready.call, ready.rendered, approval);
    }

    // ---- returns and time ----

    fn returned(&mut self, back: &Return) -> bool {
        if !self.turn.concerns(back) {
            return true;
        }
        match back.kind {
            ReturnKind::PlanAnswer => return self.plan_answer(back),
            ReturnKind::Closed => {
                let effect = self.bench.map(|b| &b.pipeline.effect);
                let by_answer = effect.is_some_and(|e| self.desk.renderer.confirms_by_answer(&e.contract, &e.call));
                if let Closed::PlanLost(end) = self.turn.closed(back, by_answer) {
                    let words = format!("the model call ended as {}", end.word());
                    self.turn.end(Status::PlanFailed, Why::new(codes::PLAN_FAILED, words));
                }
            }
            ReturnKind::Gone => self.turn.gone(back),
        }
        true
    }

    /// What the clock ends before anything was handed over.
    fn timers(&mut self) {
        let (record, now) = (&self.turn.record, self.turn.now);
        let live = match record.stage {
            Stage::Fetching | Stage::Planning | Stage::Waiting => true,
            Stage::HandedOver => !self.turn.settings.on(Rule::SilentAfterHandOver),
            Stage::Ended => false,
        };
        if !live {
            return;
        }
        if now >= record.request.deadline {
            let words = match record.stage {
                Stage::Waiting => "the deadline passed while it waited for an approval",
                Stage::Fetching => "the deadline passed while its input was fetched",
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
