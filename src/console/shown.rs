//! One operation as the API shows it: all the evidence that there is, without payloads of requests; of wire keys their beginning only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::evidence::timeline::{self, Step};
use crate::admin::evidence::{self, Around, Compensation, Decision, ModelCall};
use crate::admin::views::{Seen, refusal};
use crate::effects::{Attempt, AttemptState, LedgerRecord};
use crate::error::Code;
use crate::ids::OperationKey;
use crate::intents::PlanCall;
use crate::time::WallTime;

use super::index::{Listed, flag_word};

/// A moment: milliseconds since 1970 in UTC.
type Ms = i64;

/// One operation in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Its ID, root or derived.
    pub operation: String,
    /// Whose.
    pub tenant: String,
    /// At which effect step.
    pub step: String,
    /// `orders#create`; empty before the hand-over.
    pub target: String,
    /// What it acts on.
    pub resource: String,
    /// Where it stands.
    pub status: String,
    /// The version to name in an order.
    pub version: i64,
    /// Why it stands there.
    pub code: Option<String>,
    /// In words; for operations that have ended only in their evidence.
    pub detail: Option<String>,
    /// What must not pass silently.
    #[serde(default)]
    pub flags: Vec<String>,
    /// When it last changed.
    pub changed_at: Ms,
    /// Whether it is a model's call for a proposal: no work of its own, but on the way to another's plan.
    pub proposal: bool,
}

impl From<&Listed> for Row {
    fn from(l: &Listed) -> Self {
        Self {
            operation: l.key.operation.to_string(),
            tenant: l.key.tenant.to_string(),
            step: l.key.step.to_string(),
            target: l.target.clone(),
            resource: l.resource.clone(),
            status: l.word().to_owned(),
            version: l.version,
            code: l.code.clone(),
            detail: l.detail.clone(),
            flags: l.flags.iter().map(|f| flag_word(*f).to_owned()).collect(),
            changed_at: l.changed_at.0,
            proposal: l.key.operation.is_plan(),
        }
    }
}

/// One operation with its evidence.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Operation {
    /// `readback.operation/1`, as `readback ops show --output json` prints it, and more.
    pub schema: String,
    /// Its ID, root or derived.
    pub operation: String,
    /// Whose.
    pub tenant: String,
    /// At which effect step.
    pub step: String,
    /// Where it stands.
    pub status: String,
    /// The version to name in an order.
    pub version: i64,
    /// What it acts on.
    pub resource: String,
    /// The version of that which the requester saw.
    pub resource_version: Option<String>,
    /// Why it stands there.
    pub code: Option<String>,
    /// In words.
    pub detail: Option<String>,
    /// Where the target shows the effect.
    pub look_at: Option<String>,
    /// What happened, in order.
    pub timeline: Vec<Step>,
    /// What people have decided about it, in order.
    pub decisions: Vec<Decision>,
    /// The model call that its plan comes of.
    pub model_call: Option<ModelCall>,
    /// What undoes it, where that was ordered.
    pub undone_by: Option<Compensation>,
    /// What undoes the calls of its plan, as far as that was ordered.
    pub undoing: Vec<Compensation>,
    /// Who asked.
    pub requester: Option<String>,
    /// What is to be done.
    pub action: Option<String>,
    /// After this no first send.
    pub deadline: Option<Ms>,
    /// `orders#create`.
    pub target: Option<String>,
    /// Hash of the envelope.
    pub identity_hash: Option<String>,
    /// The plan, as an approver must see it.
    pub proposal: Option<String>,
    /// Its hash: what a decision binds to.
    pub plan_hash: Option<String>,
    /// Hash of the exact request.
    pub request_sha256: Option<String>,
    /// The approval that was spent.
    pub approval: Option<Spent>,
    /// All attempts.
    pub attempts: Vec<Tried>,
    /// The latest readbacks.
    pub readbacks: Vec<ReadBack>,
    /// How many readbacks were started.
    pub readbacks_started: i32,
    /// When absence may be believed, as journalled; the members add twice their clock error.
    pub settles_at: Option<Ms>,
    /// Since when it is unknown.
    pub unknown_since: Option<Ms>,
    /// The next readback.
    pub read_at: Option<Ms>,
    /// When it ended.
    pub closed_at: Option<Ms>,
    /// The target's own reference.
    pub reference: Option<String>,
    /// Digest of the evidence that the status rests on, or what a person named.
    pub evidence: Option<String>,
    /// What must not pass silently.
    pub flags: Vec<String>,
    /// Commands that were answered.
    pub commands: Vec<Answer>,
    /// The calls of its plan, where it has several: each an operation of its own.
    pub calls: Vec<Called>,
}

/// One call of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Called {
    /// Its name in the proposal.
    pub id: String,
    /// Its operation.
    pub operation: String,
    /// The tool that was named.
    pub tool: String,
    /// `orders#create`.
    pub target: String,
    /// The calls that must have happened before it.
    pub needs: Vec<String>,
    /// `waiting`, `under way`, or its end.
    pub stands: String,
    /// Whether it is an operation that has begun, and so can be looked at.
    pub begun: bool,
    /// Why it ended without having begun.
    pub code: Option<String>,
    /// In words.
    pub detail: Option<String>,
    /// What becomes, or would become, of what it did if its plan can't be whole; none where that is left.
    pub undo: Option<String>,
}

/// The approval that was spent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Spent {
    /// Which.
    pub id: String,
    /// By whom.
    pub approver: String,
    /// For which plan.
    pub plan_hash: String,
    /// Until when.
    pub expires_at: Ms,
    /// Under which policy version it was given.
    pub policy_version: String,
}

/// One attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Tried {
    /// Its number.
    pub n: i32,
    /// Who journalled it.
    pub by: String,
    /// When; no byte left earlier.
    pub journalled_at: Ms,
    /// No first byte after this.
    pub send_not_after: Ms,
    /// When its outcome was seen.
    pub ended_at: Option<Ms>,
    /// What is known of it.
    pub state: String,
    /// In words.
    pub words: String,
    /// The answer's HTTP status.
    pub status: Option<i32>,
    /// Digest of the answer's body.
    pub digest: Option<String>,
    /// Why each earlier attempt allowed it.
    pub warrants: Vec<Warrant>,
}

/// Why an earlier attempt allowed a re-send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Warrant {
    /// Which earlier attempt.
    pub covers: i32,
    /// Why.
    pub kind: String,
    /// The person, where one ordered it.
    pub by: Option<String>,
}

/// One readback.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ReadBack {
    /// Just before its request.
    pub at: Ms,
    /// What it showed.
    pub found: String,
    /// Digest of its pages.
    pub digest: Option<String>,
}

/// A command and its answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Answer {
    /// Which.
    pub command: String,
    /// Why not, where it was refused.
    pub code: Option<String>,
    /// In words.
    pub detail: String,
}

/// The word of a value as records have it.
fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// When absence may be believed, as far as the record says: the last moment at which anything that may have left can become visible.
pub fn settles_at(l: &LedgerRecord) -> Option<WallTime> {
    let span = |ms: i64| std::time::Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let of = |a: &Attempt| Some(a.last_possible_send().plus(span(a.in_flight_ms?) + span(a.lag_ms)));
    let sent: Vec<&Attempt> = l.attempts.iter().filter(|a| a.state != AttemptState::Unsent).collect();
    sent.iter().map(|a| of(a)).collect::<Option<Vec<_>>>()?.into_iter().max()
}

impl Operation {
    /// As it stands, with what stands around it.
    pub fn of(key: &OperationKey, seen: &Seen, around: &Around) -> Self {
        let (code, detail) = evidence::why(seen);
        let (resource, resource_version) = evidence::resource(seen);
        let (record, ledger) = (seen.record.as_ref(), seen.ledger.as_ref());
        let spent = ledger.and_then(|l| l.approval.as_ref()).or_else(|| record.and_then(|r| r.spent.as_ref()));
        let ms = |at: Option<WallTime>| at.map(|t| t.0);
        Self {
            schema: "readback.operation/1".to_owned(),
            operation: key.operation.to_string(),
            tenant: key.tenant.to_string(),
            step: key.step.to_string(),
            status: seen.status().map_or("held", |s| s.word()).to_owned(),
            version: seen.version(),
            resource,
            resource_version,
            code,
            detail,
            look_at: evidence::look_at(seen).map(str::to_owned),
            timeline: timeline::steps(seen, around),
            decisions: evidence::decisions(seen),
            model_call: around.model.clone(),
            undone_by: around.undone_by.clone(),
            undoing: around.undoing.clone(),
            requester: record.map(|r| r.request.requester.clone()).or_else(|| ledger.map(|l| l.requester.clone())),
            action: record.map(|r| r.request.action.clone()).or_else(|| ledger.map(|l| l.action.clone())),
            deadline: record.map(|r| r.request.deadline.0).or_else(|| ledger.map(|l| l.deadline.0)),
            target: ledger.filter(|l| !l.contract.is_empty()).map(|l| format!("{}#{}", l.contract, l.call)),
            identity_hash: record.map(|r| r.identity_hash.to_string()).or_else(|| ledger.map(|l| l.identity_hash.to_string())),
            proposal: record.and_then(|r| r.proposal.clone()),
            plan_hash: crate::admin::orders::plan_hash(seen).map(|h| h.to_string()),
            request_sha256: ledger.map(|l| l.request_sha256.clone()),
            approval: spent.map(|a| Spent {
                id: a.id.to_string(),
                approver: a.approver.clone(),
                plan_hash: a.plan_hash.to_string(),
                expires_at: a.expires_at.0,
                policy_version: a.policy_version.clone(),
            }),
            attempts: ledger.map(|l| l.attempts.iter().map(tried).collect()).unwrap_or_default(),
            readbacks: ledger.map(readbacks).unwrap_or_default(),
            readbacks_started: ledger.map_or(0, |l| l.reads),
            settles_at: ms(ledger.and_then(settles_at)),
            unknown_since: ms(ledger.and_then(|l| l.unknown_since)),
            read_at: ms(ledger.and_then(|l| l.read_at)),
            closed_at: ms(ledger.and_then(|l| l.closed_at)),
            reference: ledger.and_then(|l| l.reference.clone()),
            evidence: ledger.and_then(|l| l.evidence.clone()),
            flags: ledger.map(|l| l.flags.iter().map(word).collect()).unwrap_or_default(),
            commands: commands(seen),
            calls: record.map(|r| evidence::calls_and_undo(r, around).map(called).collect()).unwrap_or_default(),
        }
    }
}

fn called((call, undo): (&PlanCall, Option<String>)) -> Called {
    Called {
        id: call.id.clone(),
        operation: call.operation_id.to_string(),
        tool: call.tool.clone(),
        target: format!("{}#{}", call.contract, call.call),
        needs: call.needs.clone(),
        stands: evidence::call_stands(call).to_owned(),
        begun: !call.waits() && call.code.is_none(),
        code: call.code.clone(),
        detail: call.detail.clone(),
        undo,
    }
}

fn tried(a: &Attempt) -> Tried {
    Tried {
        n: a.n,
        by: a.epoch.clone(),
        journalled_at: a.journalled_at.0,
        send_not_after: a.send_not_after.0,
        ended_at: a.ended_at.map(|t| t.0),
        state: word(a.state),
        words: timeline::outcome(a),
        status: a.status,
        digest: a.digest.clone(),
        warrants: a.warrants.iter().map(|w| Warrant { covers: w.covers, kind: word(w.kind), by: w.by.clone() }).collect(),
    }
}

fn readbacks(l: &LedgerRecord) -> Vec<ReadBack> {
    l.last_reads.iter().map(|r| ReadBack { at: r.at.0, found: r.found.clone(), digest: r.digest.clone() }).collect()
}

fn commands(seen: &Seen) -> Vec<Answer> {
    let code = |c: i32| Code(u16::try_from(c).unwrap_or_default()).to_string();
    let ledger = seen.ledger.iter().flat_map(|l| &l.answered);
    let ledger = ledger.map(|a| Answer { command: a.command_id.to_string(), code: a.code.map(code), detail: a.detail.clone() });
    let record = seen.record.iter().flat_map(|r| &r.answered).map(|a| Answer {
        command: a.id.to_string(),
        code: refusal(a),
        detail: a.detail.clone().unwrap_or_else(|| a.status.word().to_owned()),
    });
    record.chain(ledger).collect()
}
