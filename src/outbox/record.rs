//! The operation record: all that one operation is before its intent, and what answers for it after. One record in one task.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::codes;
use crate::ids::{ApprovalId, CommandId, IdentityHash, OperationId, OperationKey, OrderingKey, Partition, PlanHash, StepName};
use crate::intents::{AckLevel, ApprovalUse, Cost, Decided, PlanCall, PolicyWord, Status, WorkRequest};
use crate::serdes::internal::Wire;
use crate::time::WallTime;

use super::rules::{Rule, Settings};
use super::undoing::Undoing;

/// Where the operation stands in this unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Its input is being fetched.
    Fetching,
    /// Its model call is out.
    Planning,
    /// It asks whether an earlier operation means the same.
    Comparing,
    /// A person must approve the plan.
    Waiting,
    /// Calls of its plan are under way: each has an owner of its own, the record tells of the whole.
    Executing,
    /// The intent is written: only the ledger's owner writes its states now.
    HandedOver,
    /// It has ended, here or there.
    Ended,
}

/// What a derived operation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The model call, `<id>.plan`.
    Plan,
    /// The effect itself, under the root's ID.
    Effect,
    /// One call of its plan, `<id>.<n>`.
    Call,
    /// A compensation, `<id>.undo`, created by the owner.
    Undo,
}

/// An operation of the effect unit that this record routes for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Derived {
    /// What for.
    pub role: Role,
    /// Its ID.
    pub operation_id: OperationId,
    /// Its step.
    pub step: StepName,
    /// Its outbox and control partition.
    pub partition: Partition,
    /// Its end, once it has closed.
    pub end: Option<Status>,
    /// When it closed.
    pub closed_at: Option<WallTime>,
    /// Whether its ledger record is deleted.
    pub gone: bool,
}

/// An approval that waits for its plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldApproval {
    /// Which.
    pub id: ApprovalId,
    /// By whom.
    pub approver: String,
    /// For which plan.
    pub plan_hash: PlanHash,
    /// Until when, as the approver set it.
    pub expires_at: WallTime,
    /// The policy version that the approver saw.
    pub policy_version: String,
    /// Whether it is a denial.
    pub deny: bool,
}

/// A command and the answer it got, so that a repeat gets the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answered {
    /// Which command.
    pub id: CommandId,
    /// The status then.
    pub status: Status,
    /// The ack level then.
    pub ack_level: AckLevel,
    /// The version then.
    pub version: i64,
    /// Why not, where not.
    pub code: Option<String>,
    /// In words.
    pub detail: Option<String>,
}

/// What an operation means, and which earlier one means the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Likeness {
    /// Hex digest of what it means.
    pub meaning: String,
    /// How long after its end it counts as an earlier one, in milliseconds.
    pub within_ms: i64,
    /// The earlier operation that means the same.
    pub earlier: Option<OperationId>,
    /// Whether the keeper of the meaning knows how it ended.
    pub settled: bool,
}

/// The model call that a plan comes of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Planning {
    /// When its intent was written.
    pub asked_at: WallTime,
    /// The model, as the request names it.
    pub model: Option<String>,
    /// The version of the prompt.
    pub prompt: String,
    /// What the answer did cost, once it has come.
    pub cost: Option<Cost>,
}

/// One operation, `schemas/operation.avsc`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperationRecord {
    /// The envelope; its inline input is dropped at the end, its hash stays.
    pub request: WorkRequest,
    /// The effect step.
    pub step: StepName,
    /// The envelope's hash.
    pub identity_hash: IdentityHash,
    /// The ordering key that came with the intake.
    pub ordering_key: Option<OrderingKey>,
    /// `topic/partition/offset` of the request.
    pub origin: String,
    /// The one counter: every state result raises it, the intent carries it, the ledger goes on from it.
    pub version: i64,
    /// Where it stands here.
    pub stage: Stage,
    /// The status that was last written.
    pub status: Status,
    /// The ack level that was last written.
    pub ack_level: AckLevel,
    /// Why, where there is a reason.
    pub code: Option<String>,
    /// The reason in words.
    pub detail: Option<String>,
    /// The canonical proposal.
    pub proposal: Option<String>,
    /// The plan's hash.
    pub plan_hash: Option<PlanHash>,
    /// Approvals and denials that wait for their plan.
    pub approvals: Vec<HeldApproval>,
    /// The approval that the hand-over spent.
    pub spent: Option<ApprovalUse>,
    /// Approval IDs that were taken back; they stay so.
    pub revoked: Vec<ApprovalId>,
    /// Commands answered here, the newest last.
    pub answered: Vec<Answered>,
    /// Operations of the effect unit that came of it.
    pub derived: Vec<Derived>,
    /// The calls of its plan, where it has several.
    pub calls: Vec<PlanCall>,
    /// Commands that are answered at its end.
    pub unanswered: Vec<CommandId>,
    /// What it means, where its step compares meanings.
    pub likeness: Option<Likeness>,
    /// The latest deadline of a conflicting request: prolongs the record's life.
    pub conflict_deadline: Option<WallTime>,
    /// How many conflicting requests came.
    pub conflicts: i32,
    /// What was charged to the tenant's budgets at admission.
    pub charged: Cost,
    /// What it did cost so far.
    pub used: Cost,
    /// Whether the budgets were settled.
    pub settled: bool,
    /// When it was admitted.
    pub admitted_at: WallTime,
    /// When it last changed its status.
    pub changed_at: WallTime,
    /// Until when an approval is waited for.
    pub waiting_until: Option<WallTime>,
    /// `audit`: how long beyond close or deadline the ID is recognised.
    pub remember_ms: i64,
    /// Where its entry in the timer index stands.
    pub due_entry: Option<WallTime>,
    /// The model call that its plan comes of.
    pub planning: Option<Planning>,
    /// When the plan was made that stands.
    pub planned_at: Option<WallTime>,
    /// When it was approved: by a person, or because nobody has to.
    pub approved_at: Option<WallTime>,
    /// What people have decided about it, the newest last.
    #[serde(default)]
    pub decisions: Vec<Decided>,
    /// What policy said before the hand-over, where it was asked.
    pub policy: Option<PolicyWord>,
    /// How it is undone where its plan can't be whole; none where what was done stays.
    pub undo: Option<Undoing>,
}

impl Wire for OperationRecord {
    const SCHEMA: &'static str = "operation/3";
    const AVSC: &'static str = include_str!("../../schemas/operation.avsc");
    const EARLIER: &'static [(&'static str, &'static str)] = &[
        ("operation/2", include_str!("../../schemas/earlier/operation-2.avsc")),
        ("operation/1", include_str!("../../schemas/earlier/operation-1.avsc")),
    ];
}

/// How many answers to commands are kept.
const ANSWERS: usize = 32;

impl OperationRecord {
    /// Whether its effect, as far as anybody knows, exists. That of a plan that was wholly undone does not.
    pub fn happened(&self) -> bool {
        let undone = self.status == Status::Partial && self.code.as_deref() == Some(codes::PLAN_UNDONE.to_string().as_str());
        !undone && matches!(self.status, Status::Confirmed | Status::Superseded | Status::Partial | Status::ResolvedApplied)
    }
    /// A record for a request that admission takes; nothing is written yet.
    pub fn admitted(
        request: WorkRequest,
        step: StepName,
        ordering_key: Option<OrderingKey>,
        origin: String,
        now: WallTime,
    ) -> Self {
        Self {
            identity_hash: request.identity(),
            charged: Cost::default(),
            request,
            step,
            ordering_key,
            origin,
            version: 0,
            stage: Stage::Planning,
            status: Status::Accepted,
            ack_level: AckLevel::Received,
            code: None,
            detail: None,
            proposal: None,
            plan_hash: None,
            approvals: Vec::new(),
            spent: None,
            revoked: Vec::new(),
            answered: Vec::new(),
            derived: Vec::new(),
            calls: Vec::new(),
            unanswered: Vec::new(),
            likeness: None,
            conflict_deadline: None,
            conflicts: 0,
            used: Cost::default(),
            settled: false,
            admitted_at: now,
            changed_at: now,
            waiting_until: None,
            remember_ms: 0,
            due_entry: None,
            planning: None,
            planned_at: None,
            approved_at: None,
            decisions: Vec::new(),
            policy: None,
            undo: None,
        }
    }

    /// The operation in full.
    pub fn key(&self) -> OperationKey {
        OperationKey { tenant: self.request.tenant.clone(), operation: self.request.operation_id.clone(), step: self.step.clone() }
    }

    /// `audit` as a duration.
    pub fn remember(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.remember_ms).unwrap_or(0))
    }

    /// The derived operation of this role.
    pub fn derived(&self, role: Role) -> Option<&Derived> {
        self.derived.iter().find(|d| d.role == role)
    }

    /// The earlier operation that means the same as this one.
    pub fn earlier(&self) -> Option<&OperationId> {
        self.likeness.as_ref().and_then(|l| l.earlier.as_ref())
    }

    /// What was decided about an approval, or by it: the latest.
    pub fn decided(&self, approval: &ApprovalId) -> Option<&Decided> {
        self.decisions.iter().rfind(|d| d.approval.as_ref() == Some(approval))
    }

    /// Whether this approval was taken back.
    pub fn is_revoked(&self, id: &ApprovalId) -> bool {
        self.revoked.contains(id)
    }

    /// Keeps the answer to a command, so that a repeat gets the same one.
    pub fn remember_answer(&mut self, answer: Answered) {
        if self.answered.len() == ANSWERS {
            self.answered.remove(0);
        }
        self.answered.push(answer);
    }

    /// When its timer has something to do: before the hand-over the deadline or the wait for an approval, after the end the
    /// record's own end of life once nothing of it is left in the ledger (`gone`). Between the two it has none (rule 7), but for calls
    /// of its plan that have not begun: their deadline is kept here.
    pub fn due(&self, settings: &Settings) -> Option<WallTime> {
        match self.stage {
            Stage::Fetching | Stage::Planning | Stage::Comparing => Some(self.request.deadline),
            Stage::Waiting => Some(self.waiting_until.map_or(self.request.deadline, |w| w.min(self.request.deadline))),
            Stage::Executing => self.calls.iter().any(PlanCall::waits).then_some(self.request.deadline),
            Stage::HandedOver => (!settings.on(Rule::SilentAfterHandOver)).then_some(self.request.deadline),
            Stage::Ended if self.derived.iter().all(|d| d.gone) || !settings.on(Rule::GoneFirst) => {
                Some(self.end_of_life(settings.clock_error))
            }
            Stage::Ended => None,
        }
    }

    /// `max(close, deadline, conflicting deadline) + audit + 2ε`.
    pub fn end_of_life(&self, clock_error: Duration) -> WallTime {
        let closed = self.derived.iter().filter_map(|d| d.closed_at).fold(self.changed_at, WallTime::max);
        let last = closed.max(self.request.deadline).max(self.conflict_deadline.unwrap_or_default());
        last.plus(self.remember()).plus(clock_error * 2)
    }
}
