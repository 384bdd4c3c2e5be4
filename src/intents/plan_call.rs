//! One call of a plan: what the parent's record keeps of it, and what the parent's results tell.

use serde::{Deserialize, Serialize};

use crate::ids::{CallName, ContractName, OperationId};

use super::Status;

/// Where a call of a plan stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Its intent is not written: nothing of it can have left.
    Waiting,
    /// Its intent is written: only the ledger's owner speaks for it now.
    Begun,
    /// It has ended.
    Ended,
}

/// One call of a plan, an operation of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlanCall {
    /// Its name in the proposal.
    pub id: String,
    /// Its operation: `<id>.<n>`.
    pub operation_id: OperationId,
    /// The tool that the topology declares.
    pub tool: String,
    /// The contract behind it.
    pub contract: ContractName,
    /// The call within it.
    pub call: CallName,
    /// The calls that must have happened before it, by their names.
    pub needs: Vec<String>,
    /// Where it stands.
    pub state: CallState,
    /// Its end.
    pub end: Option<Status>,
    /// Why it ended without having begun.
    pub code: Option<String>,
    /// In words.
    pub detail: Option<String>,
}

impl PlanCall {
    /// Whether it has happened, so that what needs it may begin: by answer, by readback, or by a person's word.
    pub fn happened(&self) -> bool {
        matches!(self.end, Some(Status::Confirmed | Status::ResolvedApplied))
    }
    /// Whether it waits.
    pub fn waits(&self) -> bool {
        self.state == CallState::Waiting
    }
}
