//! What is known of one operation, and by what: where it stands, why, who decided, and its [timeline](timeline). Pure.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::effects::Phase;
use crate::error::{Code, codes};
use crate::ids::OperationKey;
use crate::intents::{CallState, CallUndo, Decided, Deed, PlanCall, PolicyWord, Status, UndoState, Via};
use crate::outbox::OperationRecord;
use crate::time::WallTime;

use super::views::Seen;

mod around;
pub mod timeline;

pub use around::{Around, Compensation, ModelCall, Stands};

/// When the operation last changed its status, as far as the records tell.
pub fn changed_at(seen: &Seen) -> WallTime {
    let ledger = seen.ledger.as_ref().and_then(|l| {
        let attempts = l.attempts.iter().map(|a| a.ended_at.unwrap_or(a.journalled_at));
        l.closed_at.or(l.unknown_since).or_else(|| attempts.max())
    });
    ledger.or_else(|| seen.record.as_ref().map(|r| r.changed_at)).unwrap_or_default()
}

/// Code and words of why it stands where it stands. After the hand-over the ledger speaks; what stood before was about another status.
pub fn why(seen: &Seen) -> (Option<String>, Option<String>) {
    match (&seen.ledger, &seen.record) {
        (Some(l), _) if l.code.is_some() || l.detail.is_some() => (l.code.map(code_text), l.detail.clone()),
        (Some(l), Some(r)) if l.phase != Phase::Held && r.code.is_none() => (None, None),
        (_, Some(r)) => (r.code.clone(), r.detail.clone()),
        _ => (None, None),
    }
}

/// A code as it is written: `RB0231`.
pub fn code_text(code: i32) -> String {
    Code(u16::try_from(code).unwrap_or_default()).to_string()
}

/// What it acts on, and the version of it that the requester saw.
pub fn resource(seen: &Seen) -> (String, Option<String>) {
    let record = seen.record.as_ref().map(|r| (r.request.resource.to_string(), r.request.resource_version.clone()));
    record.or_else(|| seen.ledger.as_ref().map(|l| (l.resource.to_string(), l.resource_version.clone()))).unwrap_or_default()
}

/// As `readback ops show --output json` has it; the API shows the same and more.
pub fn as_json(key: &OperationKey, seen: &Seen, around: &Around) -> serde_json::Value {
    let (code, detail) = why(seen);
    let (resource, resource_version) = resource(seen);
    json!({
        "schema": "readback.operation/1", "operation": key.operation, "tenant": key.tenant, "step": key.step,
        "status": seen.status().map_or("held", Status::word), "version": seen.version(), "resource": resource,
        "resource_version": resource_version, "code": code, "detail": detail, "look_at": look_at(seen),
        "timeline": timeline::steps(seen, around), "decisions": decisions(seen), "model_call": around.model, "calls": calls(seen), "undo": undo(seen),
        "undone_by": around.undone_by, "undoing": around.undoing,
    })
}

/// One decision of a person, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Decision {
    /// When it was taken in.
    #[schemars(with = "i64")]
    pub at: WallTime,
    /// What: `approve`, `deny`, `revoke`, `cancel`, `resolve_applied`, `resolve_not_applied`, `force`, `release_lane`.
    #[schemars(with = "String")]
    pub deed: Deed,
    /// Who.
    pub by: String,
    /// The second person, where there was one.
    pub second: Option<String>,
    /// Whether the names are verified: whoever gave it had signed in at the console.
    pub verified: bool,
    /// By which way it came: `console`, `command_line`, `approvals_topic`; none where that is not recorded.
    #[schemars(with = "Option<String>")]
    pub via: Option<Via>,
    /// Why; at most 500 characters.
    pub reason: String,
    /// What was looked at.
    pub evidence: Option<String>,
}

/// Everything that people have decided about it and that was taken, in the order of time.
pub fn decisions(seen: &Seen) -> Vec<Decision> {
    let shown = |d: &Decided| Decision {
        at: d.at,
        deed: d.deed,
        by: d.by.clone(),
        second: d.second.clone(),
        verified: d.via == Some(Via::Console),
        via: d.via,
        reason: d.reason.clone(),
        evidence: d.evidence.clone(),
    };
    let mut all: Vec<Decision> = decided(seen).filter(|d| !d.by.is_empty()).map(shown).collect();
    all.sort_by_key(|d| d.at);
    all
}

/// What both halves have kept of decisions.
fn decided(seen: &Seen) -> impl DoubleEndedIterator<Item = &Decided> {
    seen.record.iter().flat_map(|r| &r.decisions).chain(seen.ledger.iter().flat_map(|l| &l.decisions))
}

/// Whose no a denied operation ended by, as far as it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denier<'a> {
    /// A person's.
    Person(&'a Decided),
    /// Policy's.
    Policy(&'a PolicyWord),
    /// The resource has changed, or the approval has run out: its code and words say it.
    Other,
}

/// Whose no it was; `None` where the operation was not denied.
pub fn denier(seen: &Seen) -> Option<Denier<'_>> {
    if seen.status() != Some(Status::Denied) {
        return None;
    }
    let person = decided(seen).rfind(|d| matches!(d.deed, Deed::Deny | Deed::Revoke));
    let taken_back = seen.ledger.as_ref().is_none_or(|l| l.revoked);
    let policy = policy(seen).filter(|p| !p.allowed);
    let changed = seen.ledger.as_ref().is_some_and(|l| l.code == Some(i32::from(codes::PRECONDITION_FAILED.0)));
    Some(match (person, policy) {
        (Some(person), _) if taken_back && person.at >= policy.map_or(WallTime(0), |p| p.at) => Denier::Person(person),
        (_, Some(policy)) if !changed => Denier::Policy(policy),
        _ => Denier::Other,
    })
}

/// What policy said last: right before a send, or else before the hand-over.
pub fn policy(seen: &Seen) -> Option<&PolicyWord> {
    let before_send = seen.ledger.as_ref().and_then(|l| l.policy.as_ref());
    before_send.or_else(|| seen.record.as_ref()?.policy.as_ref())
}

/// The calls of its plan, where it has several.
pub fn calls(seen: &Seen) -> &[PlanCall] {
    seen.record.as_ref().map_or(&[][..], |r| r.calls.as_slice())
}

/// How its calls are undone if its plan can't be whole; nothing where what was done stays.
pub fn undo(seen: &Seen) -> &[CallUndo] {
    seen.record.as_ref().and_then(|r| r.undo.as_ref()).map_or(&[][..], |u| u.calls.as_slice())
}

/// Each call of its plan, with how it is undone in words.
pub fn calls_and_undo<'a>(r: &'a OperationRecord, around: &'a Around) -> impl Iterator<Item = (&'a PlanCall, Option<String>)> {
    let undoing = r.undo.as_ref().filter(|u| u.stopped || !r.status.is_end());
    let undo = move |i: usize| undoing.and_then(|u| Some((u.stopped, u.calls.get(i)?)));
    r.calls.iter().enumerate().map(move |(i, call)| {
        let words = undo(i).and_then(|(stopped, undo)| match around.undoing(&undo.operation_id) {
            Some(parked) if parked.waits_for_a_person() => Some(parked.words.clone()),
            _ => undo_words(call, undo, stopped),
        });
        (call, words)
    })
}

/// What becomes, or would become, of what a call did, in words; nothing where it did nothing.
fn undo_words(call: &PlanCall, undo: &CallUndo, stopped: bool) -> Option<String> {
    let op = &undo.operation_id;
    let never = call.end.is_some_and(|end| !call.happened() && end != Status::Superseded);
    let words = match (undo.state, &undo.by) {
        (UndoState::Ordered, _) => format!("being undone: {op}"),
        (UndoState::Undone, _) => format!("undone: {op}"),
        (UndoState::Stays, _) => format!("stays done: {}", undo.detail.as_deref().unwrap_or("it was not undone")),
        (UndoState::NotOrdered, _) if never => return None,
        (UndoState::NotOrdered, None) if call.happened() && stopped => "stays done: nothing undoes it".to_owned(),
        (UndoState::NotOrdered, Some(_)) if call.happened() && stopped => "to be undone".to_owned(),
        (UndoState::NotOrdered, None) => "nothing undoes it".to_owned(),
        (UndoState::NotOrdered, Some(by)) => format!("if the plan can't be whole, undone by {}#{by}", call.contract),
    };
    Some(words)
}

/// Where a call of a plan stands, in a word.
pub fn call_stands(call: &PlanCall) -> &'static str {
    match (call.end, call.state) {
        (Some(end), _) => end.word(),
        (None, CallState::Waiting) => "waiting",
        (None, _) => "under way",
    }
}

/// Where the target shows the effect, as its contract says.
pub fn look_at(seen: &Seen) -> Option<&str> {
    seen.ledger.as_ref()?.look_at.as_deref()
}

/// A hash, shortened for people.
pub fn short(hash: &str) -> String {
    match hash.len() {
        0..=12 => hash.to_owned(),
        n => format!("{}…{}", &hash[..4], &hash[n - 2..]),
    }
}

#[cfg(test)]
mod tests;
