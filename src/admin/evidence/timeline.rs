//! What happened to one operation, step by step, with the evidence for each. A step whose time nobody has recorded has none, and stands
//! where it must have been. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::views::Seen;
use crate::effects::{Attempt, AttemptState, LedgerRecord, Phase, Sends, VersionRead, VersionState};
use crate::intents::{AnswerClass, ApprovalUse, Cost, Decided, Deed, PlanCall, Status, Via};
use crate::outbox::{OperationRecord, Role};
use crate::time::WallTime;

use super::{Around, Compensation, ModelCall, call_stands, calls_and_undo, code_text, short};

/// What kind of step it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Its request was taken.
    Admitted,
    /// A model was asked for the plan.
    Asked,
    /// The plan was made.
    Planned,
    /// It was approved, and for which plan.
    Approved,
    /// One call of its plan.
    Call,
    /// It was handed over to be sent; what policy said then.
    HandedOver,
    /// Which operation it undoes.
    Undoes,
    /// An attempt was journalled: from then on its call may leave.
    Attempt,
    /// What that attempt sends. Belongs to the step before it, as the two after do.
    Request,
    /// Why an earlier attempt allowed it.
    Warrant,
    /// What came of it.
    Outcome,
    /// The version of the resource was read before a send.
    Version,
    /// The target was asked what it shows.
    Readback,
    /// It was parked: a person must decide.
    Parked,
    /// A person decided.
    Order,
    /// It ended.
    End,
    /// Its compensation.
    Compensation,
    /// What must not pass silently.
    Flag,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Step {
    /// When: milliseconds since 1970 in UTC; none where that is not recorded.
    #[schemars(with = "Option<i64>")]
    pub at: Option<WallTime>,
    /// What kind of step.
    pub kind: Kind,
    /// Its name: `attempt 2`, `resolved_applied`; empty where it belongs to the step before it.
    pub label: String,
    /// What is known of it.
    pub text: String,
}

/// All steps in their order.
pub fn steps(seen: &Seen, around: &Around) -> Vec<Step> {
    let first_send = seen.ledger.as_ref().and_then(|l| l.attempts.first()).map(|a| a.journalled_at);
    let mut line = Line { steps: Vec::new(), first_send };
    if let Some(r) = &seen.record {
        let alone = seen.ledger.as_ref().is_none_or(|l| l.phase == Phase::Held);
        of_record(&mut line, r, around, alone);
    }
    if let Some(l) = &seen.ledger {
        of_ledger(&mut line, l, seen.record.as_ref());
        of_undo(&mut line, l, around.undone_by.as_ref());
    }
    let mut steps = line.steps;
    // Those that belong together, or come one after the other within a millisecond, were added in their order.
    steps.sort_by_key(|(place, _)| *place);
    steps.into_iter().map(|(_, step)| step).collect()
}

/// The steps so far, each with its place in time.
struct Line {
    steps: Vec<(WallTime, Step)>,
    first_send: Option<WallTime>,
}

impl Line {
    fn add(&mut self, at: WallTime, kind: Kind, label: impl Into<String>, text: String) {
        self.put(at, Some(at), kind, label, text);
    }
    /// What must have been before the first send, whatever the clocks of two hosts say; `else_at` is its place where its time is not known.
    fn before_send(&mut self, at: Option<WallTime>, else_at: WallTime, kind: Kind, label: &str, text: String) {
        let place = at.unwrap_or(self.first_send.unwrap_or(else_at));
        self.put(self.first_send.map_or(place, |first| place.min(first)), at, kind, label, text);
    }
    fn put(&mut self, place: WallTime, at: Option<WallTime>, kind: Kind, label: impl Into<String>, text: String) {
        self.steps.push((place, Step { at, kind, label: label.into(), text }));
    }
}

fn of_record(line: &mut Line, r: &OperationRecord, around: &Around, alone: bool) {
    let charged = costs(r.charged).map(|c| format!(" · charged {c}")).unwrap_or_default();
    let admitted = format!("from {} · envelope {}{charged}", r.request.requester, short(r.identity_hash.as_str()));
    line.add(r.admitted_at, Kind::Admitted, "admitted", admitted);
    if let Some(model) = &around.model {
        let asked = r.planning.as_ref().map(|p| p.asked_at);
        line.before_send(asked, r.admitted_at, Kind::Asked, "asked", asked_words(r, model));
    }
    if let Some(hash) = &r.plan_hash {
        line.before_send(r.planned_at, r.admitted_at, Kind::Planned, "planned", planned_words(r, hash.as_str()));
    }
    if let Some(a) = &r.spent {
        line.before_send(r.approved_at, r.changed_at, Kind::Approved, "approved", approved_words(a, r.decided(&a.id)));
    } else if let Some(at) = r.approved_at {
        line.before_send(Some(at), at, Kind::Approved, "approved", "nobody has to".to_owned());
    }
    for (call, undo) in calls_and_undo(r, around) {
        let ended =
            r.derived.iter().find(|d| d.role == Role::Call && d.operation_id == call.operation_id).and_then(|d| d.closed_at);
        let place = ended.or(r.approved_at).unwrap_or(r.changed_at);
        line.put(place, ended, Kind::Call, "call", call_words(call, undo));
    }
    for d in
        r.derived.iter().filter(|d| d.role == Role::Undo && d.operation_id.undoes().is_some_and(|of| of.child_number().is_some()))
    {
        let place = d.closed_at.unwrap_or(r.changed_at);
        let parked = around.undoing(&d.operation_id).is_some_and(Compensation::waits_for_a_person);
        let under_way = if parked { "waits for a person" } else { "under way" };
        let stands = d.end.map_or(under_way, Status::word).replace('_', " ");
        line.put(place, d.closed_at, Kind::Compensation, "compensation", joined([Some(d.operation_id.to_string()), Some(stands)]));
    }
    let end = r.status.is_end().then(|| end_deed(r.status, &r.decisions, r.changed_at)).flatten();
    let spent = r.spent.as_ref().map(|s| &s.id);
    for d in r.decisions.iter().filter(|d| Some(*d) != end && !(d.deed == Deed::Approve && d.approval.as_ref() == spent)) {
        line.add(d.at, Kind::Order, d.deed.word(), order_words(d));
    }
    // After the hand-over the ledger tells of the end.
    if alone && r.status.is_end() {
        let why = end.map(order_words).or_else(|| r.detail.clone());
        line.add(r.changed_at, Kind::End, r.status.word(), joined([why, r.code.clone()]));
    }
}

fn of_ledger(line: &mut Line, l: &LedgerRecord, record: Option<&OperationRecord>) {
    if let Some(original) = l.operation_id.undoes() {
        let begun = l.handed_over_at.or(line.first_send);
        line.before_send(l.handed_over_at, begun.or(l.closed_at).unwrap_or_default(), Kind::Undoes, "undoes", original.to_string());
    }
    if let (None, Some(a)) = (record, &l.approval) {
        let renewed = l.decisions.iter().any(|d| d.deed == Deed::Approve && d.approval.as_ref() == Some(&a.id));
        if !renewed {
            line.before_send(None, l.handed_over_at.unwrap_or_default(), Kind::Approved, "approved", approved_words(a, None));
        }
    }
    if let Some(at) = l.handed_over_at {
        line.before_send(Some(at), at, Kind::HandedOver, "handed over", handed_over_words(l, record));
    }
    for a in &l.attempts {
        of_attempt(line, a, l);
    }
    if let Some(v) = &l.version_read {
        line.add(v.at, Kind::Version, "version", version_words(v, l.resource_version.as_deref().unwrap_or_default()));
    }
    let first = i64::from(l.reads) - l.last_reads.len() as i64;
    for (read, n) in l.last_reads.iter().zip(first + 1..) {
        line.add(read.at, Kind::Readback, format!("readback {n}"), read.found.clone());
    }
    for p in &l.parkings {
        line.add(p.at, Kind::Parked, "parked", joined([Some(p.detail.clone()), Some(code_text(p.code))]));
    }
    if l.parkings.is_empty() && l.shown() == Status::Parked {
        let last = line.steps.iter().map(|(place, _)| *place).max().unwrap_or_default();
        line.put(last, None, Kind::Parked, "parked", joined([l.detail.clone(), l.code.map(code_text)]));
    }
    of_end(line, l);
}

/// What undoes it: ordered by a plan that can't be whole, or written by its owner since it was cancelled too late.
fn of_undo(line: &mut Line, l: &LedgerRecord, undone_by: Option<&Compensation>) {
    match undone_by {
        Some(undo) => {
            let since = undo.since.unwrap_or_default().max(l.closed_at.unwrap_or_default());
            line.add(since, Kind::Compensation, "compensation", undo.words.clone());
        }
        None => {
            if let (Some(Status::Superseded), Some(at)) = (l.end, l.closed_at) {
                line.add(at, Kind::Compensation, "compensation", l.operation_id.undo().to_string());
            }
        }
    }
}

/// What people ordered after the hand-over, the end, and what is to be said of it.
fn of_end(line: &mut Line, l: &LedgerRecord) {
    let end = l.end.zip(l.closed_at).and_then(|(end, at)| end_deed(end, &l.decisions, at));
    for d in l.decisions.iter().filter(|d| Some(*d) != end) {
        line.add(d.at, Kind::Order, d.deed.word(), order_words(d));
    }
    if let Some(at) = l.closed_at {
        let why = end.map(order_words).or_else(|| l.detail.clone());
        let reference = l.reference.as_deref().map(|r| format!("reference {r}"));
        line.add(at, Kind::End, l.shown().word(), joined([reference, why, l.code.map(code_text)]));
    }
    let last = line.steps.iter().map(|(place, _)| *place).max().unwrap_or_default();
    for flag in &l.flags {
        line.put(last, None, Kind::Flag, "flag", format!("{flag:?}"));
    }
}

/// The decision that an end is the taking of: made in the same step.
fn end_deed(end: Status, decisions: &[Decided], at: WallTime) -> Option<&Decided> {
    let is = |d: &&Decided| match end {
        Status::ResolvedApplied => d.deed == Deed::ResolveApplied,
        Status::ResolvedNotApplied => d.deed == Deed::ResolveNotApplied,
        Status::Denied => matches!(d.deed, Deed::Deny | Deed::Revoke),
        Status::Cancelled => d.deed == Deed::Cancel,
        _ => false,
    };
    decisions.iter().rfind(is).filter(|d| d.at == at)
}

fn of_attempt(line: &mut Line, a: &Attempt, l: &LedgerRecord) {
    let text = format!("journalled by {} · may leave until {}", a.epoch, a.send_not_after);
    line.add(a.journalled_at, Kind::Attempt, format!("attempt {}", a.n), text);
    if let Some(sends) = &l.sends {
        line.add(a.journalled_at, Kind::Request, "", request_words(sends, l.wire_key.as_str()));
    }
    for w in &a.warrants {
        let by = w.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        line.add(a.journalled_at, Kind::Warrant, "", format!("warrant for attempt {}: {:?}{by}", w.covers, w.kind));
    }
    if let Some(at) = a.ended_at {
        line.add(at, Kind::Outcome, "", outcome(a));
    }
}

fn joined(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// Whose word it was, and how their name is known.
fn named(who: &str, via: Option<Via>) -> String {
    format!("{who} ({})", Via::beside(via))
}

fn order_words(d: &Decided) -> String {
    if d.by.is_empty() {
        return d.reason.clone();
    }
    let not_applied = (d.deed == Deed::ResolveNotApplied).then(|| "not applied".to_owned());
    let applied = (d.deed == Deed::ResolveApplied).then(|| "applied".to_owned());
    let why = if d.reason.is_empty() { String::new() } else { format!(": {}", d.reason) };
    let looked = d.evidence.as_ref().map(|at| format!("looked at {at}"));
    joined([applied, not_applied, Some(format!("by {}{why}", named(&d.who(), d.via))), looked])
}

fn asked_words(r: &OperationRecord, call: &ModelCall) -> String {
    let (model, prompt) = r.planning.as_ref().map(|p| (p.model.clone(), p.prompt.clone())).unzip();
    let stands = format!("{} {}", call.operation, call.status.replace('_', " "));
    let model = model.flatten().map(|m| format!("model {m}"));
    joined([model, prompt.map(|p| format!("prompt {p}")), Some(stands), call.detail.clone(), call.code.clone()])
}

fn planned_words(r: &OperationRecord, hash: &str) -> String {
    let planning = r.planning.as_ref();
    let model = planning.and_then(|p| p.model.as_ref()).map(|m| format!("model {m}"));
    let prompt = planning.map(|p| format!("prompt {}", p.prompt));
    let cost = planning.and_then(|p| costs(p.cost?)).map(|c| format!("cost {c}"));
    joined([model, prompt, Some(format!("plan {}", short(hash))), cost])
}

fn approved_words(a: &ApprovalUse, decided: Option<&Decided>) -> String {
    let who = named(&a.approver, decided.and_then(|d| d.via));
    let why = decided.filter(|d| !d.reason.is_empty()).map(|d| format!(": {}", d.reason)).unwrap_or_default();
    format!("by {who}{why} · binds {} · until {}", short(a.plan_hash.as_str()), a.expires_at)
}

fn handed_over_words(l: &LedgerRecord, record: Option<&OperationRecord>) -> String {
    let policy = record.and_then(|r| r.policy.as_ref()).map(|p| {
        let version = p.version.as_deref().map(|v| format!(" version {v}")).unwrap_or_default();
        format!("policy{version} {}", if p.allowed { "allowed it" } else { "said no" })
    });
    joined([Some(format!("to {}#{} version {}", l.contract, l.call, l.contract_version)), policy])
}

fn call_words(call: &PlanCall, undo: Option<String>) -> String {
    let needs = (!call.needs.is_empty()).then(|| format!("needs {}", call.needs.join(", ")));
    let what = format!("{} {}#{}", call.id, call.contract, call.call);
    joined([Some(call.operation_id.to_string()), Some(what), needs, Some(call_stands(call).to_owned()), call.detail.clone(), undo])
}

/// What is sent, never its content; of the key as much as finds it in the target's books.
fn request_words(sends: &Sends, key: &str) -> String {
    let what = format!("{} {}", sends.method, sends.path);
    let begins: String = key.chars().take(4).collect();
    let body = (sends.body_bytes > 0).then(|| format!("{} bytes {}", sends.body_bytes, short(&sends.body_sha256)));
    joined([Some(what.trim().to_owned()), body, (!begins.is_empty()).then(|| format!("key {begins}…"))])
}

fn version_words(v: &VersionRead, seen: &str) -> String {
    let shown = v.shown.as_deref();
    match v.state {
        VersionState::Asked => "asked for at the target".to_owned(),
        VersionState::Same => format!("stands at {}, as was seen", shown.unwrap_or_default()),
        VersionState::Other => format!("stands at {}, made for {seen}", shown.unwrap_or("nothing")),
        VersionState::Unclear => format!("not shown: {}", shown.unwrap_or_default()),
    }
}

/// What is known of an attempt, in words.
pub fn outcome(a: &Attempt) -> String {
    let status = a.status.map(|s| format!("answered {s} · ")).unwrap_or_default();
    let state = match a.state {
        AttemptState::Journaled => "no outcome yet",
        AttemptState::Unsent => "provably never left",
        AttemptState::Rejected if a.class == Some(AnswerClass::PreconditionFailed) => "its resource has changed, said the target",
        AttemptState::Rejected => "refused by the target",
        AttemptState::RetryLater => "not now, said the target",
        AttemptState::InProgress => "the target is still at it",
        AttemptState::Maybe => "no answer · maybe sent",
        AttemptState::Applied => "applied, said the target",
        AttemptState::SettledAbsent => "maybe sent · absent from a complete readback after settle",
    };
    format!("{status}{state}")
}

/// A cost in words, what it has of; `None`: nothing.
pub fn costs(c: Cost) -> Option<String> {
    let one = |n: i64, word: &str| (n != 0).then(|| format!("{n} {word}{}", if n == 1 { "" } else { "s" }));
    let all = [one(c.tokens, "token"), one(c.bytes, "byte"), one(c.tool_calls, "call")];
    let words: Vec<String> = all.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests;
