//! The ledger record: the whole status of one operation, so that compaction loses nothing that `decide()` needs.

use serde::{Deserialize, Serialize};

use crate::ids::{
    CallName, CommandId, ContractName, IdentityHash, OperationId, OperationKey, OrderingKey, PlanHash, Resource, StepName, Tenant,
    WireKey,
};
use crate::intents::{
    AckLevel, ApprovalUse, Command, Cost, Decided, Deed, Flag, Intent, IntentKind, PolicyWord, RenderedRequest, Status, hex,
};
use crate::serdes::internal::Wire;
use crate::time::WallTime;

use super::attempt::{Attempt, AttemptState, Warrant};

/// Commands whose answers are remembered, and held ones, per operation.
pub const COMMANDS_KEPT: usize = 32;
/// How often a record tells when it was parked; then the oldest go.
const PARKINGS_KEPT: usize = 8;
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

/// When an operation was parked, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parking {
    /// When.
    pub at: WallTime,
    /// The number of the code.
    pub code: i32,
    /// In words.
    pub detail: String,
}

/// What every attempt sends, without its payload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sends {
    /// `POST`.
    pub method: String,
    /// The path as the contract has it, with the names of its parameters; empty where that is not loaded.
    pub path: String,
    /// Bytes of the body.
    pub body_bytes: i64,
    /// Hex SHA-256 of the body.
    pub body_sha256: String,
}

impl Sends {
    /// What is shown of a request.
    fn of(request: &RenderedRequest) -> Self {
        use sha2::{Digest, Sha256};
        let body = request.body.as_deref().unwrap_or_default();
        Self {
            method: request.method.clone(),
            path: String::new(),
            body_bytes: i64::try_from(body.len()).unwrap_or(i64::MAX),
            body_sha256: hex(&Sha256::digest(body)),
        }
    }
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

/// What a read of the resource's version came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionState {
    /// Nothing yet.
    Asked,
    /// The version that the requester saw.
    Same,
    /// Another one, or the resource is not there.
    Other,
    /// No version was shown.
    Unclear,
}

/// A read of the resource's version before a send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VersionRead {
    /// Before which attempt.
    pub attempt: i32,
    /// How often it was asked for that attempt.
    pub tries: i32,
    /// When: the wall time just before the request was written.
    pub at: WallTime,
    /// What it came to.
    pub state: VersionState,
    /// The version that was shown, or why none was.
    pub shown: Option<String>,
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
    /// Whether its approver must be another than its requester.
    pub other_approver: bool,
    /// Charged cost.
    pub cost: Cost,
    /// Where a person sees the effect at the target.
    pub look_at: Option<String>,
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
    /// The latest read of the resource's version before a send.
    pub version_read: Option<VersionRead>,
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

    /// What people have decided about it, the newest last.
    #[serde(default)]
    pub decisions: Vec<Decided>,
    /// When it was parked and why, the newest last.
    #[serde(default)]
    pub parkings: Vec<Parking>,
    /// What policy said at the latest look before a send, where it was asked.
    pub policy: Option<PolicyWord>,
    /// What every attempt sends, without its payload.
    pub sends: Option<Sends>,
    /// When the intent was written.
    pub handed_over_at: Option<WallTime>,
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
    const SCHEMA: &'static str = "ledger-status/2";
    const AVSC: &'static str = include_str!("../../schemas/ledger-status.avsc");
    const EARLIER: &'static [(&'static str, &'static str)] =
        &[("ledger-status/1", include_str!("../../schemas/earlier/ledger-status-1.avsc"))];
}

impl Wire for LedgerBody {
    const SCHEMA: &'static str = "ledger-body/1";
    const AVSC: &'static str = include_str!("../../schemas/ledger-body.avsc");
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
        r.other_approver = intent.other_approver;
        r.cost = intent.cost;
        r.look_at = intent.look_at.clone();
        r.traceparent = intent.traceparent.clone();
        r.version = intent.version;
        r.sends = Some(Sends::of(&intent.request));
        r.handed_over_at = Some(intent.created_at);
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
            other_approver: true,
            cost: Cost::default(),
            look_at: None,
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
            version_read: None,
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
            decisions: Vec::new(),
            parkings: Vec::new(),
            policy: None,
            sends: None,
            handed_over_at: None,
        }
    }

    /// About how many bytes of it can grow: attempts, reads, commands, decisions, and what the target gave for a reference.
    pub fn weight(&self) -> usize {
        let text = |t: &Option<String>| t.as_ref().map_or(0, String::len);
        let warrant = |w: &Warrant| 16 + text(&w.by);
        let attempt = |a: &Attempt| 192 + a.warrants.iter().map(warrant).sum::<usize>();
        let answered = |a: &Answered| a.command_id.as_str().len() + a.detail.len();
        self.attempts.iter().map(attempt).sum::<usize>()
            + self.last_reads.iter().map(|r| 64 + r.found.len()).sum::<usize>()
            + self.answered.iter().map(answered).sum::<usize>()
            + self.held.iter().map(Command::weight).sum::<usize>()
            + self.decisions.iter().map(Decided::weight).sum::<usize>()
            + self.parkings.iter().map(|p| 32 + p.detail.len()).sum::<usize>()
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

    /// No attempt can have happened: none, or all proven so.
    pub fn clean(&self) -> bool {
        use AttemptState::{Rejected, RetryLater, SettledAbsent, Unsent};
        self.attempts.iter().all(|a| matches!(a.state, Unsent | Rejected | RetryLater | SettledAbsent))
    }

    /// Whether some attempt is in this state.
    pub fn any(&self, state: AttemptState) -> bool {
        self.attempts.iter().any(|a| a.state == state)
    }

    /// The latest decision of this kind, in words: by whom and why.
    pub fn said(&self, deed: Deed) -> Option<String> {
        self.decisions.iter().rfind(|d| d.deed == deed).map(Decided::words)
    }

    /// Notes that it is parked, and why.
    pub fn note_parking(&mut self, at: WallTime, code: i32, detail: &str) {
        if self.parkings.len() >= PARKINGS_KEPT {
            self.parkings.remove(0);
        }
        self.parkings.push(Parking { at, code, detail: detail.to_owned() });
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
