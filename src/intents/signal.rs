//! What moves an operation besides its request: approvals, commands, control messages and returns.

use serde::{Deserialize, Serialize};

use crate::ids::{
    ApprovalId, CommandId, ContractName, DispatchToken, IdentityHash, OperationId, OperationKey, PlanHash, StepName, Tenant,
};
use crate::time::WallTime;

use super::{Cost, Status, Via};

/// What an approver decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes, for this plan hash, once, until it expires.
    Approve,
    /// No.
    Deny,
    /// Takes an earlier approval back.
    Revoke,
}

/// An approval, `schemas/approval.avsc`: binds to the plan's hash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Approval {
    /// Its own ID; a revoked one stays revoked.
    pub approval_id: ApprovalId,
    /// Whose operation.
    pub tenant: Tenant,
    /// Which operation.
    pub operation_id: OperationId,
    /// Which plan. A denial may leave it empty.
    pub plan_hash: PlanHash,
    /// Who decided.
    pub approver: String,
    /// What.
    pub decision: Decision,
    /// Until when it may be used.
    pub expires_at: WallTime,
    /// The policy version that the approver saw.
    pub policy_version: String,
    /// Why.
    pub reason: Option<String>,
}

/// What a command orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Forbids further sends; carries no version.
    Cancel,
    /// A person says what happened.
    Resolve,
    /// A person orders another send.
    Force,
    /// Opens the lane behind a parked operation.
    ReleaseLane,
    /// An approval after the hand-over, for the intent's plan hash.
    ApproveLate,
    /// Takes an approval back.
    Revoke,
    /// Asks for the current status; written by members for duplicates.
    Query,
}

/// What a person found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The effect exists.
    Applied,
    /// It does not.
    NotApplied,
}

/// A command, `schemas/command.avsc`. A repeat of a command ID gets the same answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Its own ID.
    pub command_id: CommandId,
    /// What.
    pub kind: CommandKind,
    /// Whose operation; may be empty where the operation ID is unique.
    pub tenant: Tenant,
    /// Which operation, root or derived.
    pub operation_id: OperationId,
    /// The effect step; `None` where there is one only.
    pub step: Option<StepName>,
    /// The version that was seen; compare-and-set for resolve, force, approve.
    pub seen: Option<i64>,
    /// Who; empty = a member's own, which nobody waits for.
    pub by: String,
    /// The second person, where one is needed.
    pub second: Option<String>,
    /// Why.
    pub reason: String,
    /// What was looked at.
    pub evidence: Option<String>,
    /// For resolve.
    pub resolution: Option<Resolution>,
    /// For approve late and revoke.
    pub approval: Option<Approval>,
    /// When it was given.
    pub issued_at: WallTime,
    /// How long it is held for an operation that is not known yet.
    pub not_after: WallTime,
    /// By which way it came, and so whether the names are verified; none: they are not.
    pub via: Option<Via>,
}

impl Command {
    /// About how many bytes it takes where it is kept.
    pub fn weight(&self) -> usize {
        let texts = [self.command_id.as_str(), self.tenant.as_str(), self.operation_id.as_str(), &self.by, &self.reason];
        let more = [&self.second, &self.evidence].into_iter().flatten().map(String::len);
        let approval = self.approval.as_ref().map_or(0, |a| a.reason.as_ref().map_or(0, String::len) + 256);
        texts.iter().map(|t| t.len()).chain(more).sum::<usize>() + approval + 64
    }
    /// Whether a member gave it by itself: its answer would tell nobody anything.
    pub fn is_members_own(&self) -> bool {
        self.by.is_empty()
    }
}

/// How a completion reads, whoever saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerClass {
    /// The target says it did it.
    Applied,
    /// The target says it did nothing, and will not.
    NotApplied,
    /// Accepted, still at it (202, or 409 while running).
    InProgress,
    /// Same key, other content.
    KeyConflict,
    /// The resource no longer stands at the version that the requester saw.
    PreconditionFailed,
    /// The target refuses this content for good.
    Rejected,
    /// Not now.
    RetryLater,
    /// An answer that proves nothing.
    Unknown,
    /// Provably never left.
    NotSent,
    /// No answer, and bytes may have left.
    MaybeSent,
}

/// What a former owner saw of an attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hearsay {
    /// Which attempt.
    pub attempt: i32,
    /// The secret of that attempt's dispatch.
    pub token: DispatchToken,
    /// How it read.
    pub class: AnswerClass,
    /// The status, where one came.
    pub status: Option<i32>,
    /// Digest of the answer's body.
    pub digest: Option<String>,
    /// The target's reference in the answer: `evidence:` of the contract.
    pub reference: Option<String>,
    /// When it was seen.
    pub seen_at: WallTime,
}

/// What a control record carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlKind {
    /// A command that the identity step forwarded.
    Command,
    /// What a former owner saw.
    Hearsay,
    /// What the target told by itself: hearsay whose token is the operation's key.
    Webhook,
    /// A plan that can't be whole has its call undone.
    Undo,
}

/// A record of `<app>-control`, `schemas/control.avsc`; written by members only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Control {
    /// What it carries.
    pub kind: ControlKind,
    /// Whose operation.
    pub tenant: Tenant,
    /// Which.
    pub operation_id: OperationId,
    /// At which step.
    pub step: StepName,
    /// The intent's deadline: how long an early one is held.
    pub deadline: WallTime,
    /// A forwarded command.
    pub command: Option<Command>,
    /// Or hearsay.
    pub hearsay: Option<Hearsay>,
    /// For a webhook: under which contract. Whose operation it is, its owner knows by the key.
    pub contract: Option<ContractName>,
    /// For undo: the hash of the envelope whose call is meant.
    pub identity_hash: Option<IdentityHash>,
}

impl Control {
    /// The operation in full.
    pub fn key(&self) -> OperationKey {
        OperationKey { tenant: self.tenant.clone(), operation: self.operation_id.clone(), step: self.step.clone() }
    }
}

/// What a return says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnKind {
    /// The body of a proposal.
    PlanAnswer,
    /// The operation has ended.
    Closed,
    /// Its ledger record is deleted.
    Gone,
    /// Whether an earlier operation means the same; from the keeper of its meaning.
    Compared,
}

/// A record of `<app>-plans`, `schemas/return.avsc`; written by the owner of the ledger record, or by the keeper of a meaning.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Return {
    /// What it says.
    pub kind: ReturnKind,
    /// Whose operation.
    pub tenant: Tenant,
    /// Which, root or derived.
    pub operation_id: OperationId,
    /// At which step.
    pub step: StepName,
    /// The envelope's hash; a plan answer under another hash is ignored.
    pub identity_hash: IdentityHash,
    /// The end, for `closed`.
    pub end: Option<Status>,
    /// The ledger's version at that time.
    pub version: i64,
    /// The proposal as text, for a plan answer; for `compared` the earlier operation's ID, where there is one; for a compensation that
    /// came to nothing the reason.
    pub body: Option<String>,
    /// What it did cost.
    pub cost: Cost,
    /// When.
    pub at: WallTime,
}
