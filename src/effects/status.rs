//! The ledger record: the whole status of one operation, so that compaction loses nothing that `decide()` needs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{
    CallName, CommandId, ContractName, DispatchToken, IdentityHash, OperationId, OperationKey, OrderingKey, PlanHash, Resource,
    StepName, Tenant, WireKey,
};
use crate::intents::{AckLevel, AnswerClass, ApprovalUse, Command, Cost, Flag, Intent, IntentKind, RenderedRequest, Status};
use crate::serdes::internal::Wire;
use crate::time::WallTime;

/// Commands whose answers are remembered, and held ones, per operation.
pub const COMMANDS_KEPT: usize = 32;
/// Readbacks that are remembered in full; their count goes on.
pub const READS_KEPT: usize = 8;
/// Attempts in one record; beyond them the operation is parked whatever its contract allows.
pub const ATTEMPTS_KEPT: usize = 64;

/// Bytes that one record may take; beyond them the operation is parked and nothing is sent. Far below what a broker takes.
pub const RECORD_BYTES: usize = 256 * 1024;
/// Bytes that one command may take; a larger one is refused.
pub const COMMAND_BYTES: usize = 16 * 1024;

/// Where an operation stands in the effect stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Only commands came so far; they overtook the intent.
    Held,
    /// Waits for its lane, a permit, or a time.
    Queued,
    /// An attempt is journalled and has no outcome yet.
    InFlight,
    /// Nobody knows yet whether it happened.
    Unknown,
    /// A person must decide.
    Parked,
    /// It has ended; only flags may follow.
    Ended,
}

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

/// What a readback showed, for the record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Read {
    /// Wall time just before its request was written.
    pub at: WallTime,
    /// `absent`, `present`, `two`, `other_content`, or why it was inconclusive.
    pub found: String,
    /// Digest of the pages.
    pub digest: Option<String>,
}

/// A command that was answered; a repeat gets the same words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answered {
    /// Which.
    pub command_id: CommandId,
    /// The number of the code, where it was refused.
    pub code: Option<i32>,
    /// The answer in words.
    pub detail: String,
}

/// What a complete look at the target proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// Nothing conclusive yet.
    Nothing,
    /// Exactly ours.
    Present,
    /// More than one of ours.
    Twice,
    /// Under our key, but other content.
    OtherContent,
}

/// One operation in the ledger, key `s/<op>`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LedgerRecord {
    /// Whose.
    pub tenant: Tenant,
    /// Which, root or derived.
    pub operation_id: OperationId,
    /// At which effect step.
    pub step: StepName,
    /// Hash of the envelope.
    pub identity_hash: IdentityHash,
    /// What the answer is for.
    pub kind: IntentKind,
    /// The contract.
    pub contract: ContractName,
    /// Its version, kept for bytes, key, match and answers.
    pub contract_version: i64,
    /// The call within it.
    pub call: CallName,
    /// What orders it.
    pub ordering_key: OrderingKey,
    /// Its place in the lane: the outbox offset.
    pub sequence: i64,
    /// The key on the wire.
    pub wire_key: WireKey,
    /// Digest of the exact request; its bytes stand under `b/<op>`.
    pub request_sha256: String,
    /// After this no first send.
    pub deadline: WallTime,
    /// Who asks.
    pub requester: String,
    /// What is to be done.
    pub action: String,
    /// What it acts on.
    pub resource: Resource,
    /// The version that the requester saw.
    pub resource_version: Option<String>,
    /// Permissions that policy is asked for.
    pub required_permissions: Vec<String>,
    /// The plan it came from.
    pub plan_hash: Option<PlanHash>,
    /// The approval it spends.
    pub approval: Option<ApprovalUse>,
    /// Charged cost.
    pub cost: Cost,
    /// W3C trace context.
    pub traceparent: Option<String>,

    /// Where it stands.
    pub phase: Phase,
    /// How it ended, once it has.
    pub end: Option<Status>,
    /// How far it provably got.
    pub ack: AckLevel,
    /// The operation's counter, continued from the intent's.
    pub version: i64,
    /// Why it stands there: the number of a code.
    pub code: Option<i32>,
    /// In words, without payload.
    pub detail: Option<String>,
    /// What must not pass silently.
    pub flags: Vec<Flag>,
    /// All attempts.
    pub attempts: Vec<Attempt>,
    /// How many readbacks were started.
    pub reads: i32,
    /// The latest of them.
    pub last_reads: Vec<Read>,
    /// What they proved.
    pub seen: Seen,
    /// When the latest complete absence was read (the time before its request).
    pub absent_at: Option<WallTime>,
    /// Sends are forbidden by a cancel.
    pub cancelled: bool,
    /// Its approval was taken back.
    pub revoked: bool,
    /// A person opened the lane behind it.
    pub lane_released: bool,
    /// A person ordered one more send: who.
    pub forced_by: Option<String>,
    /// No attempt before this.
    pub retry_at: Option<WallTime>,
    /// The next readback; `None` = none asked for.
    pub read_at: Option<WallTime>,
    /// Since when it is unknown.
    pub unknown_since: Option<WallTime>,
    /// Since when it has ended.
    pub closed_at: Option<WallTime>,
    /// The target's own reference.
    pub reference: Option<String>,
    /// Digest of the evidence that the status rests on.
    pub evidence: Option<String>,
    /// Commands that were answered.
    pub answered: Vec<Answered>,
    /// Commands that overtook the intent.
    pub held: Vec<Command>,
}

/// The exact request and the parameters, key `b/<op>`; written once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LedgerBody {
    /// The request, identical on every send.
    pub request: RenderedRequest,
    /// The typed parameters as one JSON object.
    pub parameters: String,
}

impl Wire for LedgerRecord {
    const SCHEMA: &'static str = "ledger-status/1";
    const AVSC: &'static str = include_str!("../../schemas/ledger-status.avsc");
}

impl Wire for LedgerBody {
    const SCHEMA: &'static str = "ledger-body/1";
    const AVSC: &'static str = include_str!("../../schemas/ledger-body.avsc");
}

/// Milliseconds of a record as a duration.
pub(super) fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl LedgerRecord {
    /// A fresh operation, queued.
    pub fn queued(intent: &Intent, sequence: i64) -> Self {
        let mut r = Self::held(intent.key(), intent.deadline);
        r.identity_hash = intent.identity_hash.clone();
        r.kind = intent.kind;
        r.contract = intent.contract.clone();
        r.contract_version = intent.contract_version;
        r.call = intent.call.clone();
        r.ordering_key = intent.ordering_key.clone();
        r.sequence = sequence;
        r.wire_key = intent.wire_key.clone();
        r.request_sha256 = intent.request.sha256();
        r.requester = intent.requester.clone();
        r.action = intent.action.clone();
        r.resource = intent.resource.clone();
        r.resource_version = intent.resource_version.clone();
        r.required_permissions = intent.required_permissions.clone();
        r.plan_hash = intent.plan_hash.clone();
        r.approval = intent.approval.clone();
        r.cost = intent.cost;
        r.traceparent = intent.traceparent.clone();
        r.version = intent.version;
        r.phase = Phase::Queued;
        r
    }

    /// A place for commands that overtook their intent; kept until `deadline` and the audit time have passed.
    pub fn held(key: OperationKey, deadline: WallTime) -> Self {
        Self {
            tenant: key.tenant,
            operation_id: key.operation,
            step: key.step,
            identity_hash: "".into(),
            kind: IntentKind::Effect,
            contract: "".into(),
            contract_version: 0,
            call: "".into(),
            ordering_key: "".into(),
            sequence: 0,
            wire_key: "".into(),
            request_sha256: String::new(),
            deadline,
            requester: String::new(),
            action: String::new(),
            resource: "".into(),
            resource_version: None,
            required_permissions: Vec::new(),
            plan_hash: None,
            approval: None,
            cost: Cost::default(),
            traceparent: None,
            phase: Phase::Held,
            end: None,
            ack: AckLevel::Approved,
            version: 0,
            code: None,
            detail: None,
            flags: Vec::new(),
            attempts: Vec::new(),
            reads: 0,
            last_reads: Vec::new(),
            seen: Seen::Nothing,
            absent_at: None,
            cancelled: false,
            revoked: false,
            lane_released: false,
            forced_by: None,
            retry_at: None,
            read_at: None,
            unknown_since: None,
            closed_at: None,
            reference: None,
            evidence: None,
            answered: Vec::new(),
            held: Vec::new(),
        }
    }

    /// About how many bytes of it can grow: attempts, reads, commands, and what the target gave for a reference.
    pub fn weight(&self) -> usize {
        let text = |t: &Option<String>| t.as_ref().map_or(0, String::len);
        let warrant = |w: &Warrant| 16 + text(&w.by);
        let attempt = |a: &Attempt| 192 + a.warrants.iter().map(warrant).sum::<usize>();
        let answered = |a: &Answered| a.command_id.as_str().len() + a.detail.len();
        self.attempts.iter().map(attempt).sum::<usize>()
            + self.last_reads.iter().map(|r| 64 + r.found.len()).sum::<usize>()
            + self.answered.iter().map(answered).sum::<usize>()
            + self.held.iter().map(Command::weight).sum::<usize>()
            + text(&self.reference)
            + text(&self.detail)
    }

    /// The operation in full.
    pub fn key(&self) -> OperationKey {
        OperationKey { tenant: self.tenant.clone(), operation: self.operation_id.clone(), step: self.step.clone() }
    }

    /// Some attempt is journalled and has no outcome.
    pub fn open(&self) -> bool {
        self.any(AttemptState::Journaled)
    }

    /// Some attempt may have happened.
    pub fn unsure(&self) -> bool {
        self.any(AttemptState::Maybe) || self.any(AttemptState::InProgress)
    }

    /// No attempt can have happened: none, or all proven so.
    pub fn clean(&self) -> bool {
        use AttemptState::{Rejected, RetryLater, SettledAbsent, Unsent};
        self.attempts.iter().all(|a| matches!(a.state, Unsent | Rejected | RetryLater | SettledAbsent))
    }

    /// Whether some attempt is in this state.
    pub fn any(&self, state: AttemptState) -> bool {
        self.attempts.iter().any(|a| a.state == state)
    }

    /// Raises a flag once.
    pub fn raise(&mut self, flag: Flag) {
        if !self.flags.contains(&flag) {
            self.flags.push(flag);
        }
    }

    /// The status as results show it.
    pub fn shown(&self) -> Status {
        match self.phase {
            Phase::Held | Phase::Queued if self.attempts.is_empty() => Status::Approved,
            Phase::Held | Phase::Queued | Phase::InFlight => Status::Dispatched,
            Phase::Unknown => Status::Unknown,
            Phase::Parked => Status::Parked,
            Phase::Ended => self.end.unwrap_or(Status::Unknown),
        }
    }
}
