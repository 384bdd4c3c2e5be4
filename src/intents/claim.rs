//! How operations that mean the same meet: each tells the keeper of its meaning that it is there, and how it ended.

use serde::{Deserialize, Serialize};

use crate::ids::{IdentityHash, OperationId, StepName, Tenant};

/// What an operation tells the keeper of its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimKind {
    /// It is about to be done. Answered by a return of kind `compared`.
    Claim,
    /// Its effect exists: the window begins.
    Happened,
    /// It came to nothing: it is nobody's earlier operation.
    Void,
}

/// A record of the intake topic, `schemas/claim.avsc`; written by members only, to the partition of the meaning.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// What.
    pub kind: ClaimKind,
    /// Whose operation.
    pub tenant: Tenant,
    /// Which, a root or a replay.
    pub operation_id: OperationId,
    /// At which step.
    pub step: StepName,
    /// The envelope's hash, which the answer repeats.
    pub identity_hash: IdentityHash,
    /// Hex digest of what it means: tenant, resource, action, call, normalised arguments.
    pub meaning: String,
    /// How long after its end it counts as an earlier one, in milliseconds.
    pub within_ms: i64,
}
