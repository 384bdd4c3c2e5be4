//! What users read: every change of an operation with its ack level. `schemas/result.avsc`.

use serde::{Deserialize, Serialize};

use crate::ids::{IdentityHash, OperationId, PlanHash, Resource, StepName, Tenant};
use crate::time::WallTime;

use super::{CallUndo, PlanCall};

/// How far an operation provably got. Ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckLevel {
    /// It was read.
    Received,
    /// Admission took it.
    Accepted,
    /// A plan exists.
    Planned,
    /// The plan may be executed.
    Approved,
    /// The call may leave, or has left.
    Dispatched,
    /// The target's own word on the call.
    Answered,
    /// Read back at the target.
    Confirmed,
}

/// The status of an operation as results show it. None of its ends is called "failed".
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Live: admission took it.
    Accepted,
    /// Live: a plan exists.
    Planned,
    /// Live: waits for a person.
    AwaitingApproval,
    /// Live: the plan may be executed.
    Approved,
    /// Live: a call may leave.
    Dispatched,
    /// Live: nobody knows yet whether it happened.
    Unknown,
    /// Live: a person must decide.
    Parked,
    /// End: it happened, by answer or by readback; the ack level says which.
    Confirmed,
    /// End: the target said no.
    Refused,
    /// End: policy or approver said no.
    Denied,
    /// End: the deadline passed before the first send.
    Expired,
    /// End: cancelled before it happened.
    Cancelled,
    /// End: it happened, and its compensation was ordered.
    Superseded,
    /// End: the effects of one plan ended differently.
    Partial,
    /// End: no plan came of it.
    PlanFailed,
    /// End of a message: it breaks the envelope's rules.
    Invalid,
    /// End of a message: known ID, other content.
    Conflict,
    /// End of a message: budget.
    Throttled,
    /// End: older than its record's life.
    Stale,
    /// End: a person said that it happened.
    ResolvedApplied,
    /// End: a person said that it did not.
    ResolvedNotApplied,
}

impl Status {
    /// All of them, live ones first.
    pub const ALL: &[Status] = &[
        Status::Accepted,
        Status::Planned,
        Status::AwaitingApproval,
        Status::Approved,
        Status::Dispatched,
        Status::Unknown,
        Status::Parked,
        Status::Confirmed,
        Status::Refused,
        Status::Denied,
        Status::Expired,
        Status::Cancelled,
        Status::Superseded,
        Status::Partial,
        Status::PlanFailed,
        Status::Invalid,
        Status::Conflict,
        Status::Throttled,
        Status::Stale,
        Status::ResolvedApplied,
        Status::ResolvedNotApplied,
    ];

    /// Whether it is the end of a message, which no operation has.
    pub fn of_a_message(self) -> bool {
        matches!(self, Status::Invalid | Status::Conflict | Status::Throttled | Status::Stale)
    }
    /// Whether nothing but flags may follow.
    pub fn is_end(self) -> bool {
        !matches!(
            self,
            Status::Accepted
                | Status::Planned
                | Status::AwaitingApproval
                | Status::Approved
                | Status::Dispatched
                | Status::Unknown
                | Status::Parked
        )
    }
    /// The word on topics, screens and metric labels.
    pub fn word(self) -> &'static str {
        match self {
            Status::Accepted => "accepted",
            Status::Planned => "planned",
            Status::AwaitingApproval => "awaiting_approval",
            Status::Approved => "approved",
            Status::Dispatched => "dispatched",
            Status::Unknown => "unknown",
            Status::Parked => "parked",
            Status::Confirmed => "confirmed",
            Status::Refused => "refused",
            Status::Denied => "denied",
            Status::Expired => "expired",
            Status::Cancelled => "cancelled",
            Status::Superseded => "superseded",
            Status::Partial => "partial",
            Status::PlanFailed => "plan_failed",
            Status::Invalid => "invalid",
            Status::Conflict => "conflict",
            Status::Throttled => "throttled",
            Status::Stale => "stale",
            Status::ResolvedApplied => "resolved_applied",
            Status::ResolvedNotApplied => "resolved_not_applied",
        }
    }
}

/// What kind of record this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultKind {
    /// A change of state: carries a version, `ce_id = <op>/<identity hash prefix>/<version>`.
    State,
    /// The answer to a duplicate, a query or a command; never a state of its own.
    Answer,
    /// The answer to one message that is no operation: invalid, conflict, throttled, stale.
    Message,
    /// Evidence for a record that is gone.
    OrphanHearsay,
}

/// What must not pass silently; the state stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// More than one effect may exist.
    DuplicateSuspected,
    /// Evidence disagrees with the recorded end.
    Contradiction,
    /// The cancel came after the effect.
    CancelTooLate,
}

/// One record of the results topic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename = "Result")]
pub struct ResultRecord {
    /// What kind.
    pub kind: ResultKind,
    /// Whose.
    pub tenant: Tenant,
    /// Which operation, root or derived.
    pub operation_id: OperationId,
    /// At which effect step; `None` before there is one.
    pub step: Option<StepName>,
    /// What it acts on, where known.
    pub resource: Option<Resource>,
    /// Its status.
    pub status: Status,
    /// How far it provably got.
    pub ack_level: AckLevel,
    /// The operation's counter; none on messages and orphans.
    pub version: Option<i64>,
    /// The envelope's hash.
    pub identity_hash: Option<IdentityHash>,
    /// Why: `RB0231`.
    pub code: Option<String>,
    /// In words, without payload.
    pub detail: Option<String>,
    /// What must not pass silently.
    pub flags: Vec<Flag>,
    /// How many attempts were journalled.
    pub attempts: i32,
    /// Digest of the evidence that the status rests on.
    pub evidence: Option<String>,
    /// The target's own reference: an order number.
    pub reference: Option<String>,
    /// The plan.
    pub plan_hash: Option<PlanHash>,
    /// The calls of the plan and their outcomes, where it has several.
    pub calls: Option<Vec<PlanCall>>,
    /// The message or command that this answers.
    pub answers: Option<String>,
    /// When it was decided.
    pub at: WallTime,
    /// How the calls of the plan are undone if it can't be whole, where its step chose that.
    pub undo: Option<Vec<CallUndo>>,
}
