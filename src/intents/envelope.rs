//! The request envelope, `schemas/work-request.avsc`.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::{ApprovalId, IdentityHash, MessageId, OperationId, Resource, Tenant};
use crate::time::WallTime;

/// What an operation is estimated to cost, or did cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Model tokens.
    pub tokens: i64,
    /// Bytes moved.
    pub bytes: i64,
    /// Calls of tools or targets.
    pub tool_calls: i64,
}

/// The input: inline, or by locator with its hash.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Input {
    /// Its media type.
    pub media_type: String,
    /// The text itself (JSON or plain text).
    pub inline: Option<String>,
    /// Or where it is.
    pub locator: Option<String>,
    /// Hex SHA-256 of the bytes at the locator.
    pub sha256: Option<String>,
}

/// Versions that the request was written for; not part of its identity.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WrittenFor {
    /// The topology's version.
    pub topology: Option<String>,
    /// The prompt's version.
    pub prompt: Option<String>,
    /// The tools' version.
    pub tools: Option<String>,
}

/// One request for work. The operation ID is kept by every retry of the same intent; message and attempt ID change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkRequest {
    /// The intent's ID; must not hold the reserved separator `.`.
    pub operation_id: OperationId,
    /// The message's ID.
    pub message_id: MessageId,
    /// The requester's own count of tries.
    pub attempt_id: Option<String>,
    /// Whose work.
    pub tenant: Tenant,
    /// Who asks: `agent:buyer`, `service:logistics`.
    pub requester: String,
    /// What it acts on.
    pub resource: Resource,
    /// The version of the resource that the requester saw.
    pub resource_version: Option<String>,
    /// What is to be done: `order.create`.
    pub action: String,
    /// The input.
    pub input: Input,
    /// After this no first send.
    pub deadline: WallTime,
    /// Permissions that the requester claims to need.
    pub required_permissions: Vec<String>,
    /// An approval that was given beforehand.
    pub approval_ref: Option<ApprovalId>,
    /// Estimated cost.
    pub cost_estimate: Cost,
    /// Versions it was written for.
    pub written_for: WrittenFor,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

impl WorkRequest {
    /// SHA-256 over the canonical envelope without message_id, attempt_id, traceparent and version fields. Fields are
    /// length-prefixed, so that no two envelopes share their bytes.
    pub fn identity(&self) -> IdentityHash {
        let mut h = Sha256::new();
        let mut field = |text: Option<&str>| match text {
            Some(t) => {
                h.update((t.len() as u64 + 1).to_be_bytes());
                h.update(t.as_bytes());
            }
            None => h.update(0u64.to_be_bytes()),
        };
        field(Some("work-request/1"));
        for text in [self.operation_id.as_str(), self.tenant.as_str(), &self.requester, self.resource.as_str()] {
            field(Some(text));
        }
        field(self.resource_version.as_deref());
        field(Some(&self.action));
        field(Some(&self.input.media_type));
        field(self.input.inline.as_deref());
        field(self.input.locator.as_deref());
        field(self.input.sha256.as_deref());
        field(Some(&self.deadline.0.to_string()));
        field(Some(&self.required_permissions.len().to_string()));
        for p in &self.required_permissions {
            field(Some(p));
        }
        field(self.approval_ref.as_ref().map(ApprovalId::as_str));
        let c = self.cost_estimate;
        field(Some(&format!("{}/{}/{}", c.tokens, c.bytes, c.tool_calls)));
        IdentityHash::from(hex(&h.finalize()))
    }
}

/// A request on its way to the task that keeps its operation, `schemas/intake.avsc`: what the intake sub-topology writes to the
/// operations repartition topic, partitioned by root ID.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Intake {
    /// The envelope, as read or as mapped from the user's record.
    pub request: WorkRequest,
    /// The effect step whose pipeline takes it.
    pub step: crate::ids::StepName,
    /// The ordering key where it was computed from the user's record; else the pipeline's rule.
    pub ordering_key: Option<crate::ids::OrderingKey>,
    /// `topic/partition/offset` of the record it came from.
    pub origin: String,
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// Bytes of hex digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let pair = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(pair).collect()
}
