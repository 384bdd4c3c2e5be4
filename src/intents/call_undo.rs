//! How one call of a plan is undone where the plan can't be whole: what the parent's record keeps of it, and what its results tell.

use serde::{Deserialize, Serialize};

use crate::ids::{CallName, OperationId};

/// Where the undoing of a call stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoState {
    /// Nothing was ordered.
    NotOrdered,
    /// Its owner was told to undo it.
    Ordered,
    /// It is undone: its compensation is confirmed, or a person said so.
    Undone,
    /// It was ordered, and the call stays done.
    Stays,
}

/// How a call is undone, `<id>.<n>.undo`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallUndo {
    /// The call, by its name in the proposal.
    pub id: String,
    /// The operation that undoes it.
    pub operation_id: OperationId,
    /// The call of the same contract that undoes it; none where nothing does.
    pub by: Option<CallName>,
    /// Where that stands.
    pub state: UndoState,
    /// Why it stays, in words.
    pub detail: Option<String>,
}

impl CallUndo {
    /// Whether it can still be ordered.
    pub fn is_due(&self) -> bool {
        self.by.is_some() && self.state == UndoState::NotOrdered
    }
}
