//! What a submission takes and answers, and how far an operation provably got. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::views::Seen;
use crate::effects::Phase;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApprovalId, IdentityHash, MessageId, OperationId};
use crate::intents::{AckLevel, Cost, Input, Status, WorkRequest, WrittenFor};
use crate::time::WallTime;

/// A request, as `schemas/work-request.avsc` has it, but for what is not the caller's to say: the requester is whoever has signed in.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitBody {
    /// The intent's ID: sent twice, it is one operation. May stand in the header `Idempotency-Key` instead.
    #[serde(default)]
    pub operation_id: Option<String>,
    /// Whose work.
    pub tenant: String,
    /// What it acts on.
    pub resource: String,
    /// The version of the resource that was seen.
    #[serde(default)]
    pub resource_version: Option<String>,
    /// What is to be done: `order.create`.
    pub action: String,
    /// The input.
    pub input: InputBody,
    /// After this no first send: RFC 3339. A repeat must name the same.
    pub deadline: String,
    /// Permissions that policy is asked for.
    #[serde(default)]
    pub required_permissions: Vec<String>,
    /// An approval that was given beforehand.
    #[serde(default)]
    pub approval_ref: Option<String>,
    /// Estimated cost.
    #[serde(default)]
    pub cost_estimate: CostBody,
    /// The caller's own count of tries.
    #[serde(default)]
    pub attempt_id: Option<String>,
}

/// The input: inline, or by locator with its hash.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputBody {
    /// Its media type.
    pub media_type: String,
    /// The text itself.
    #[serde(default)]
    pub inline: Option<String>,
    /// Or where it is.
    #[serde(default)]
    pub locator: Option<String>,
    /// Hex SHA-256 of the bytes at the locator.
    #[serde(default)]
    pub sha256: Option<String>,
}

/// Estimated cost.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CostBody {
    /// Model tokens.
    pub tokens: i64,
    /// Bytes moved.
    pub bytes: i64,
    /// Calls of tools or targets.
    pub tool_calls: i64,
}

/// How far an operation provably got. Ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The request stands in its topic. Nobody has read it: queued is not done.
    Queued,
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

impl Level {
    const ALL: [(&str, Level); 8] = [
        ("queued", Level::Queued),
        ("received", Level::Received),
        ("accepted", Level::Accepted),
        ("planned", Level::Planned),
        ("approved", Level::Approved),
        ("dispatched", Level::Dispatched),
        ("answered", Level::Answered),
        ("confirmed", Level::Confirmed),
    ];
}

impl From<AckLevel> for Level {
    fn from(ack: AckLevel) -> Self {
        match ack {
            AckLevel::Received => Level::Received,
            AckLevel::Accepted => Level::Accepted,
            AckLevel::Planned => Level::Planned,
            AckLevel::Approved => Level::Approved,
            AckLevel::Dispatched => Level::Dispatched,
            AckLevel::Answered => Level::Answered,
            AckLevel::Confirmed => Level::Confirmed,
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// At least this.
    Level(Level),
    /// That it ends, however.
    Ended,
}

/// Every word of what can be waited for.
pub const WORDS: &str = "queued, received, accepted, planned, approved, dispatched, answered, confirmed, ended";

impl WaitFor {
    /// Reads its word.
    ///
    /// # Errors
    /// `BAD_VALUE`.
    pub fn read(word: &str) -> Result<Self> {
        let level = Level::ALL.iter().find(|(w, _)| *w == word).map(|(_, level)| WaitFor::Level(*level));
        level.or((word == "ended").then_some(WaitFor::Ended)).ok_or_else(|| {
            Error::new(codes::BAD_VALUE, Fault::Configuration, "reading `wait_for` of the query")
                .because(format!("`{}` is none of {WORDS}", crate::outbox::cut(word)))
        })
    }
    /// Whether that is reached.
    pub fn is_reached(self, at: &Standing) -> bool {
        match self {
            WaitFor::Level(level) => at.level >= level,
            WaitFor::Ended => at.ended(),
        }
    }
}

/// Where the operation of a submission stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// How far it got.
    pub level: Level,
    /// Its status; `None`: nobody has read the request yet.
    pub status: Option<Status>,
    /// Its version.
    pub version: i64,
    /// The content that it has.
    pub identity: Option<IdentityHash>,
}

impl Standing {
    /// Written, and not read.
    pub const QUEUED: Standing = Standing { level: Level::Queued, status: None, version: 0, identity: None };

    /// As the evidence says.
    pub fn of(seen: &Seen) -> Self {
        let ledger = seen.ledger.as_ref().filter(|l| l.phase != Phase::Held);
        let acks = ledger.map(|l| l.ack).into_iter().chain(seen.record.as_ref().map(|r| r.ack_level));
        let record = seen.record.as_ref().map(|r| r.identity_hash.clone());
        Self {
            level: acks.max().map_or(Level::Queued, Level::from),
            status: seen.status(),
            version: seen.version(),
            identity: record.or_else(|| ledger.map(|l| l.identity_hash.clone())),
        }
    }
    /// Whether nothing follows.
    pub fn ended(&self) -> bool {
        self.status.is_some_and(Status::is_end)
    }
}

/// The answer to a submission: the level that was reached, never more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Submitted {
    /// `readback.submitted/1`.
    pub schema: String,
    /// The operation.
    pub operation: String,
    /// Whose.
    pub tenant: String,
    /// Its effect step.
    pub step: String,
    /// How far it provably got. What was asked for is reached where the HTTP status is 200; with 202 it is not.
    pub level: Level,
    /// Its status, once it was read.
    pub status: Option<String>,
    /// Whether it has ended: then nothing more is reached.
    pub ended: bool,
    /// Its version.
    pub version: i64,
    /// Where to look again; also in `Location`.
    pub link: String,
}

impl SubmitBody {
    /// The request that it stands for.
    ///
    /// # Errors
    /// `BAD_VALUE` without an operation ID, with two of them, or with a deadline that is no time.
    pub fn request(self, key: Option<&str>, requester: &str, message: &str, traceparent: Option<&str>) -> Result<WorkRequest> {
        let wrong = |why: &str| Error::new(codes::BAD_VALUE, Fault::Configuration, "reading a request").because(why.to_owned());
        let operation = match (&self.operation_id, key) {
            (Some(id), Some(key)) if id != key => return Err(wrong("`operation_id` and the header Idempotency-Key differ")),
            (Some(id), _) => id.clone(),
            (None, Some(key)) => key.to_owned(),
            (None, None) => {
                return Err(wrong("it has neither `operation_id` nor the header Idempotency-Key")
                    .next("choose one, and keep it on a retry"));
            }
        };
        let deadline = crate::dsl::millis(&self.deadline).map(WallTime);
        let cost = self.cost_estimate;
        Ok(WorkRequest {
            operation_id: OperationId::new(operation),
            message_id: MessageId::new(message),
            attempt_id: self.attempt_id,
            tenant: self.tenant.as_str().into(),
            requester: requester.to_owned(),
            resource: self.resource.as_str().into(),
            resource_version: self.resource_version,
            action: self.action,
            input: Input {
                media_type: self.input.media_type,
                inline: self.input.inline,
                locator: self.input.locator,
                sha256: self.input.sha256,
            },
            deadline: deadline.ok_or_else(|| wrong("`deadline` is no RFC 3339 time"))?,
            required_permissions: self.required_permissions,
            approval_ref: self.approval_ref.as_deref().map(ApprovalId::from),
            cost_estimate: Cost { tokens: cost.tokens, bytes: cost.bytes, tool_calls: cost.tool_calls },
            written_for: WrittenFor::default(),
            traceparent: traceparent.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a caller would be told that something is reached that is not.
    #[test]
    fn a_level_is_reached_when_the_evidence_has_it() {
        let at = |level, status| Standing { level, status, ..Standing::QUEUED };
        let waits = |word: &str| WaitFor::read(word).expect("a word");
        assert!(waits("queued").is_reached(&Standing::QUEUED));
        for word in ["received", "accepted", "confirmed", "ended"] {
            assert!(!waits(word).is_reached(&Standing::QUEUED), "{word}");
        }
        let planned = at(Level::Planned, Some(Status::AwaitingApproval));
        assert!(waits("accepted").is_reached(&planned) && waits("planned").is_reached(&planned));
        assert!(!waits("approved").is_reached(&planned) && !waits("ended").is_reached(&planned));
        let denied = at(Level::Planned, Some(Status::Denied));
        assert!(waits("ended").is_reached(&denied) && !waits("confirmed").is_reached(&denied));
        assert_eq!(WaitFor::read("done").expect_err("no word").code, codes::BAD_VALUE);
        assert_eq!(WORDS.split(", ").filter(|w| WaitFor::read(w).is_ok()).count(), 9);
    }
}
