//! One attempt as journalled, what is known of it, and the warrants under which it was made.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::DispatchToken;
use crate::intents::AnswerClass;
use crate::time::WallTime;

/// What is known of one attempt. Monotone; `Applied` is the top.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// Its record is committed (or about to be); no outcome.
    Journaled,
    /// Provably never left.
    Unsent,
    /// The target refused this content for good.
    Rejected,
    /// The target did nothing, and says to come again.
    RetryLater,
    /// The target is still at it.
    InProgress,
    /// Bytes may have left, and nothing else is known.
    Maybe,
    /// The target says it did it.
    Applied,
    /// A complete readback after settle showed nothing.
    SettledAbsent,
}

/// Why an earlier attempt can't make a re-send a second effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarrantKind {
    /// It provably never left.
    Unsent,
    /// The target answered that it did nothing, and nothing on the way repeats requests.
    RejectedEarly,
    /// The target drops a second request under this key, still.
    Dedupe,
    /// The target refuses every copy of the request but one.
    TargetFence,
    /// A complete readback at or after settle showed nothing.
    SettledAbsent,
    /// A person ordered it.
    Operator,
    /// The contract accepts duplicates and counts them.
    DuplicatesAccepted,
}

/// The recorded warrant for one earlier attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Warrant {
    /// Which earlier attempt it covers.
    pub covers: i32,
    /// Why.
    pub kind: WarrantKind,
    /// The person, for `operator`.
    pub by: Option<String>,
}

/// One call to the target, as journalled before it was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1.
    pub n: i32,
    /// Process incarnation and assignment that journalled it; compared for equality only.
    pub epoch: String,
    /// By which its own answer is told from hearsay.
    pub token: DispatchToken,
    /// Wall time read before the record was built: no byte left earlier.
    pub journalled_at: WallTime,
    /// No first byte after this.
    pub send_not_after: WallTime,
    /// `cut + P` in milliseconds as they were then.
    pub tail_ms: i64,
    /// `L` in milliseconds as it was then; `None` = unbounded.
    pub in_flight_ms: Option<i64>,
    /// `V` in milliseconds as it was then.
    pub lag_ms: i64,
    /// What is known.
    pub state: AttemptState,
    /// How its answer read.
    pub class: Option<AnswerClass>,
    /// The answer's status.
    pub status: Option<i32>,
    /// Digest of the answer's body.
    pub digest: Option<String>,
    /// When its outcome was seen.
    pub ended_at: Option<WallTime>,
    /// One for every earlier attempt.
    pub warrants: Vec<Warrant>,
}

impl Attempt {
    /// The last moment at which a byte of it may have left a sender.
    pub fn last_possible_send(&self) -> WallTime {
        self.send_not_after.plus(millis(self.tail_ms))
    }
}

/// Milliseconds of a record as a duration.
pub(super) fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
