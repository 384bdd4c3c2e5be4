//! One step of one operation record: what is written goes to `out`, what changes stays in `record`. Pure.

use crate::error::{Code, codes};
use crate::ids::{CommandId, OperationId, OrderingKey, Partition, StepName, partition_of};
use crate::intents::{
    AckLevel, ApprovalUse, CallState, Claim, Command, CommandKind, Control, ControlKind, Cost, Decided, Input, Intake, Intent,
    IntentKind, ResultKind, ResultRecord, Status, WorkRequest, keep,
};
use crate::time::WallTime;

use super::ports::Rendered;
use super::record::{Answered, Derived, OperationRecord, Role, Stage};
use super::rules::{Rule, Settings};

/// What a step writes, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// To the results topic.
    Result(Box<ResultRecord>),
    /// To this outbox partition.
    Intent(Box<Intent>, Partition),
    /// To this control partition.
    Control(Box<Control>, Partition),
    /// To the dead letters.
    DeadLetter(Box<DeadLetter>),
    /// To the keeper of its meaning.
    Claim(Box<Claim>),
    /// To be fetched after the commit: this input, at most so many bytes.
    Fetch(Box<Input>, usize),
}

/// A request that came to nothing, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// The request.
    pub request: WorkRequest,
    /// The effect step whose pipeline refused it.
    pub step: StepName,
    /// Its ordering key, where it was computed from the user's record.
    pub ordering_key: Option<OrderingKey>,
    /// Why.
    pub code: Code,
    /// In words, without payload.
    pub reason: String,
    /// Where it came from.
    pub origin: String,
}

impl DeadLetter {
    /// A request that admission does not take.
    pub fn of(intake: &Intake, why: Why) -> Self {
        let (request, step) = (intake.request.clone(), intake.step.clone());
        let (ordering_key, origin) = (intake.ordering_key.clone(), intake.origin.clone());
        Self { request, step, ordering_key, code: why.code, reason: why.words, origin }
    }
    /// A request that was taken, and came to nothing after all.
    pub fn of_record(record: &OperationRecord, why: Why) -> Self {
        let (mut request, step) = (record.request.clone(), record.step.clone());
        // What was fetched is fetched again: the request stands there as it came.
        if request.input.locator.is_some() {
            request.input.inline = None;
        }
        let (ordering_key, origin) = (record.ordering_key.clone(), record.origin.clone());
        Self { request, step, ordering_key, code: why.code, reason: why.words, origin }
    }
}

/// A reason: code and words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// The code.
    pub code: Code,
    /// In words, without payload.
    pub words: String,
}

impl Why {
    /// Joins the two.
    pub fn new(code: Code, words: impl Into<String>) -> Self {
        Self { code, words: words.into() }
    }
}

/// Which call an intent is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallRef {
    /// What for.
    pub role: Role,
    /// The operation that it is, the root or one derived of it.
    pub operation_id: OperationId,
    /// What is done: the request's action, or the tool.
    pub action: String,
    /// The step that makes it.
    pub step: StepName,
    /// The contract.
    pub contract: crate::ids::ContractName,
    /// The call.
    pub call: crate::ids::CallName,
    /// The ordering key.
    pub ordering_key: crate::ids::OrderingKey,
    /// The typed parameters as JSON.
    pub parameters: String,
    /// Whether the approver must be another than the requester.
    pub other_approver: bool,
}

/// One step at work on one record.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The record as it will be stored.
    pub record: OperationRecord,
    /// What is written.
    pub out: Vec<Output>,
    /// Wall time of the step.
    pub now: WallTime,
    /// Settings.
    pub settings: &'a Settings,
}

impl<'a> Turn<'a> {
    /// Begins a step.
    pub fn new(record: OperationRecord, now: WallTime, settings: &'a Settings) -> Self {
        Self { record, out: Vec::new(), now, settings }
    }

    /// Whether nothing but answers may follow.
    pub fn ended(&self) -> bool {
        self.record.stage == Stage::Ended
    }

    /// Writes a new state: version + 1.
    pub fn state(&mut self, status: Status, ack_level: AckLevel, why: Option<Why>) {
        let (code, words) = why.map(|w| (w.code.to_string(), w.words)).unzip();
        self.told(status, ack_level, code, words);
    }

    /// The same, where words need no code.
    pub fn told(&mut self, status: Status, ack_level: AckLevel, code: Option<String>, detail: Option<String>) {
        let r = &mut self.record;
        r.version += 1;
        (r.status, r.ack_level, r.code, r.detail) = (status, ack_level, code, detail);
        r.changed_at = self.now;
        let result = self.result(ResultKind::State, None);
        self.out.push(Output::Result(Box::new(result)));
    }

    /// Ends the operation here: the last state of a clean operation. A model call that is still out is cancelled (rule 10).
    pub fn end(&mut self, status: Status, why: Why) {
        let ack = self.record.ack_level;
        for call in self.record.calls.iter_mut().filter(|c| c.waits()) {
            (call.state, call.end) = (CallState::Ended, Some(status));
        }
        self.state(status, ack, Some(why));
        self.record.stage = Stage::Ended;
        self.shed();
        let open = self.record.derived.iter().find(|d| d.role == Role::Plan && d.end.is_none()).cloned();
        if let Some(plan) = open {
            let id = CommandId::from(format!("{}/end", self.record.request.operation_id));
            let command = self.own(id, CommandKind::Cancel, &plan, format!("its operation ended as {}", status.word()));
            self.forward(&plan, command);
        }
    }

    /// A command of this record to something derived of it, which nobody waits for.
    pub(super) fn own(&self, command_id: CommandId, kind: CommandKind, to: &Derived, reason: String) -> Command {
        Command {
            command_id,
            kind,
            tenant: self.record.request.tenant.clone(),
            operation_id: to.operation_id.clone(),
            step: Some(to.step.clone()),
            seen: None,
            by: String::new(),
            second: None,
            reason,
            evidence: None,
            resolution: None,
            approval: None,
            issued_at: self.now,
            not_after: self.hold_until(),
            via: None,
        }
    }

    /// Keeps what a person has decided, and why.
    pub fn keep(&mut self, decided: Option<Decided>) {
        if let Some(decided) = decided {
            keep(&mut self.record.decisions, decided);
        }
    }

    /// Drops what only the way to the intent needs; the identity hash stays.
    pub fn shed(&mut self) {
        self.record.request.input.inline = None;
        self.shed_gate();
    }
    /// The same of its approval alone: a plan that may be undone keeps its input, which a dead letter would need.
    pub fn shed_gate(&mut self) {
        self.record.approvals.clear();
        self.record.waiting_until = None;
    }

    /// How long a forwarded command may wait for its intent: deadline + audit + 2ε.
    pub fn hold_until(&self) -> WallTime {
        self.record.request.deadline.plus(self.record.remember()).plus(self.settings.clock_error * 2)
    }

    /// Answers a duplicate or a query with the current status; never a state of its own.
    pub fn answer(&mut self, to: &str, why: Option<Why>) {
        let mut result = self.result(ResultKind::Answer, Some(to.to_owned()));
        if let Some(why) = why {
            result.code = Some(why.code.to_string());
            result.detail = Some(why.words);
        }
        self.out.push(Output::Result(Box::new(result)));
    }

    /// Answers a command, and keeps the answer for a repeat (rule 11).
    pub fn answer_command(&mut self, id: &CommandId, why: Option<Why>) {
        let r = &self.record;
        let answer = Answered {
            id: id.clone(),
            status: r.status,
            ack_level: r.ack_level,
            version: r.version,
            code: why.as_ref().map(|w| w.code.to_string()).or_else(|| r.code.clone()),
            detail: why.as_ref().map(|w| w.words.clone()).or_else(|| r.detail.clone()),
        };
        self.record.remember_answer(answer);
        self.answer(id.as_str(), why);
    }

    /// Gives a repeat the answer that the first one got; `false` where there was none.
    pub fn answer_repeat(&mut self, id: &CommandId) -> bool {
        let Some(a) = self.record.answered.iter().find(|a| a.id == *id).cloned() else { return false };
        let mut result = self.result(ResultKind::Answer, Some(id.to_string()));
        (result.status, result.ack_level, result.version) = (a.status, a.ack_level, Some(a.version));
        (result.code, result.detail) = (a.code, a.detail);
        self.out.push(Output::Result(Box::new(result)));
        true
    }

    /// Sends a command on to the owner of a derived operation's ledger record.
    pub fn forward(&mut self, to: &Derived, command: Command) {
        let control = Control { command: Some(command), ..self.control(ControlKind::Command, to) };
        self.out.push(Output::Control(Box::new(control), to.partition));
    }

    /// A control record for the owner of a derived operation's ledger record, yet without what it carries.
    pub(super) fn control(&self, kind: ControlKind, to: &Derived) -> Control {
        Control {
            kind,
            tenant: self.record.request.tenant.clone(),
            operation_id: to.operation_id.clone(),
            step: to.step.clone(),
            deadline: self.record.request.deadline,
            command: None,
            hearsay: None,
            contract: None,
            identity_hash: None,
        }
    }

    /// Writes an intent and remembers where it went. The effect's intent is the hand-over: it carries this record's version
    /// and the approval it spends, and from here on the ledger's owner speaks for the operation. A call of a plan carries the
    /// approval that the plan has spent, and a counter of its own.
    pub fn intend(&mut self, call: CallRef, rendered: Rendered, approval: Option<ApprovalUse>) {
        let partition = partition_of(call.ordering_key.as_str().as_bytes(), self.settings.partitions);
        let r = &mut self.record;
        let (hand_over, proposal) = (call.role == Role::Effect, call.role == Role::Plan);
        let operation_id = call.operation_id;
        let intent = Intent {
            tenant: r.request.tenant.clone(),
            operation_id: operation_id.clone(),
            step: call.step.clone(),
            identity_hash: r.identity_hash.clone(),
            version: if hand_over && self.settings.on(Rule::OneCounter) { r.version } else { 0 },
            kind: if proposal { IntentKind::Proposal } else { IntentKind::Effect },
            contract: call.contract,
            contract_version: rendered.contract_version,
            call: call.call,
            ordering_key: call.ordering_key,
            wire_key: rendered.wire_key,
            request: rendered.request,
            parameters: call.parameters,
            deadline: r.request.deadline,
            created_at: self.now,
            requester: r.request.requester.clone(),
            action: call.action,
            resource: r.request.resource.clone(),
            resource_version: r.request.resource_version.clone(),
            required_permissions: r.request.required_permissions.clone(),
            plan_hash: if proposal { None } else { r.plan_hash.clone() },
            approval: approval.clone(),
            other_approver: call.other_approver,
            cost: if proposal { r.request.cost_estimate } else { Cost::default() },
            look_at: rendered.look_at,
            traceparent: r.request.traceparent.clone(),
        };
        let derived =
            Derived { role: call.role, operation_id, step: call.step, partition, end: None, closed_at: None, gone: false };
        r.derived.push(derived);
        if hand_over {
            r.spent = approval;
            r.stage = Stage::HandedOver;
            self.shed();
        }
        self.out.push(Output::Intent(Box::new(intent), partition));
    }

    pub(super) fn result(&self, kind: ResultKind, answers: Option<String>) -> ResultRecord {
        let r = &self.record;
        ResultRecord {
            kind,
            tenant: r.request.tenant.clone(),
            operation_id: r.request.operation_id.clone(),
            step: Some(r.step.clone()),
            resource: Some(r.request.resource.clone()),
            status: r.status,
            ack_level: r.ack_level,
            version: Some(r.version),
            identity_hash: Some(r.identity_hash.clone()),
            code: r.code.clone(),
            detail: r.detail.clone(),
            flags: Vec::new(),
            attempts: 0,
            evidence: None,
            reference: None,
            plan_hash: r.plan_hash.clone(),
            calls: Some(r.calls.clone()).filter(|c| !c.is_empty()),
            answers,
            at: self.now,
            undo: r.undo.as_ref().map(|u| u.calls.clone()),
        }
    }
}

/// The answer to a message that is no operation: `invalid`, `conflict`, `throttled`, `stale`. No record, no version (rule 4).
pub fn message(request: &WorkRequest, step: &StepName, status: Status, why: &Why, now: WallTime) -> Output {
    Output::Result(Box::new(ResultRecord {
        kind: ResultKind::Message,
        tenant: request.tenant.clone(),
        operation_id: request.operation_id.clone(),
        step: Some(step.clone()),
        resource: Some(request.resource.clone()),
        status,
        ack_level: AckLevel::Received,
        version: None,
        identity_hash: Some(request.identity()),
        code: Some(why.code.to_string()),
        detail: Some(why.words.clone()),
        flags: Vec::new(),
        attempts: 0,
        evidence: None,
        reference: None,
        plan_hash: None,
        calls: None,
        answers: Some(request.message_id.to_string()),
        at: now,
        undo: None,
    }))
}

/// The answer to a command or approval for an operation that nobody knows: `unknown_operation` is an answer, never silence.
pub fn unknown_operation(operation: &OperationId, tenant: &crate::ids::Tenant, to: &str, now: WallTime) -> Output {
    Output::Result(Box::new(ResultRecord {
        kind: ResultKind::Message,
        tenant: tenant.clone(),
        operation_id: operation.clone(),
        step: None,
        resource: None,
        status: Status::Invalid,
        ack_level: AckLevel::Received,
        version: None,
        identity_hash: None,
        code: Some(codes::UNKNOWN_OPERATION.to_string()),
        detail: Some("nobody knows this operation".into()),
        flags: Vec::new(),
        attempts: 0,
        evidence: None,
        reference: None,
        plan_hash: None,
        calls: None,
        answers: Some(to.to_owned()),
        at: now,
        undo: None,
    }))
}
