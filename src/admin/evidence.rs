//! What is known of one operation, and by what: its timeline with the evidence for each step. Pure.

use serde_json::json;

use crate::effects::{Attempt, AttemptState, LedgerRecord, VersionRead, VersionState};
use crate::error::Code;
use crate::ids::OperationKey;
use crate::intents::{AnswerClass, CallState, PlanCall, Status};
use crate::time::WallTime;

use super::views::Seen;

/// When the operation last changed its status, as far as the records tell.
pub fn changed_at(seen: &Seen) -> WallTime {
    let ledger = seen.ledger.as_ref().and_then(|l| {
        let attempts = l.attempts.iter().map(|a| a.ended_at.unwrap_or(a.journalled_at));
        l.closed_at.or(l.unknown_since).or_else(|| attempts.max())
    });
    ledger.or_else(|| seen.record.as_ref().map(|r| r.changed_at)).unwrap_or_default()
}

/// Code and words of why it stands where it stands.
pub fn why(seen: &Seen) -> (Option<String>, Option<String>) {
    match (&seen.ledger, &seen.record) {
        (Some(l), _) if l.code.is_some() || l.detail.is_some() => (l.code.map(code_text), l.detail.clone()),
        (_, Some(r)) => (r.code.clone(), r.detail.clone()),
        _ => (None, None),
    }
}

fn code_text(code: i32) -> String {
    Code(u16::try_from(code).unwrap_or_default()).to_string()
}

/// What it acts on, and the version of it that the requester saw.
pub fn resource(seen: &Seen) -> (String, Option<String>) {
    let record = seen.record.as_ref().map(|r| (r.request.resource.to_string(), r.request.resource_version.clone()));
    record.or_else(|| seen.ledger.as_ref().map(|l| (l.resource.to_string(), l.resource_version.clone()))).unwrap_or_default()
}

/// As `readback ops show --output json` and the API have it.
pub fn as_json(key: &OperationKey, seen: &Seen) -> serde_json::Value {
    let (code, detail) = why(seen);
    let (resource, resource_version) = resource(seen);
    let steps: Vec<_> = lines(seen).iter().map(|(at, what)| json!({ "at": at, "what": what })).collect();
    json!({
        "schema": "readback.operation/1", "operation": key.operation, "tenant": key.tenant, "step": key.step,
        "status": seen.status().map_or("held", Status::word), "version": seen.version(), "resource": resource,
        "resource_version": resource_version, "code": code, "detail": detail, "look_at": look_at(seen), "timeline": steps,
        "calls": calls(seen),
    })
}

/// The calls of its plan, where it has several.
pub fn calls(seen: &Seen) -> &[PlanCall] {
    seen.record.as_ref().map_or(&[][..], |r| r.calls.as_slice())
}

/// One call of a plan in a line: what it is, what it needs, and how it stands.
fn call_words(call: &PlanCall) -> String {
    let needs = if call.needs.is_empty() { String::new() } else { format!(" · needs {}", call.needs.join(", ")) };
    let why = call.detail.as_ref().map(|d| format!(" · {d}")).unwrap_or_default();
    let stands = call_stands(call);
    format!("{} · {} {}#{}{needs} · {stands}{why}", call.operation_id, call.id, call.contract, call.call)
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

/// What happened, in the order of time.
pub fn lines(seen: &Seen) -> Vec<(WallTime, String)> {
    let mut lines = Vec::new();
    if let Some(r) = &seen.record {
        lines.push((
            r.admitted_at,
            format!("admitted     from {} · envelope {}", r.request.requester, short(r.identity_hash.as_str())),
        ));
        if let Some(hash) = &r.plan_hash {
            lines.push((r.admitted_at, format!("planned      {}", short(hash.as_str()))));
        }
        if let Some(a) = &r.spent {
            lines.push((
                r.changed_at,
                format!("approved     {} · binds {} · until {}", a.approver, short(a.plan_hash.as_str()), a.expires_at),
            ));
        }
        lines.extend(r.calls.iter().map(|c| (r.changed_at, format!("call         {}", call_words(c)))));
    }
    if let Some(l) = &seen.ledger {
        ledger_lines(l, &mut lines);
    }
    lines.sort_by_key(|(at, _)| *at);
    lines
}

fn ledger_lines(l: &LedgerRecord, lines: &mut Vec<(WallTime, String)>) {
    if let Some(original) = l.operation_id.undoes() {
        let at = l.attempts.first().map_or_else(|| l.closed_at.unwrap_or_default(), |a| a.journalled_at);
        lines.push((at, format!("undoes       {original}")));
    }
    for a in &l.attempts {
        lines.push((
            a.journalled_at,
            format!("attempt {}    journalled by {} · may leave until {}", a.n, a.epoch, a.send_not_after),
        ));
        for w in &a.warrants {
            lines.push((a.journalled_at, format!("             warrant for attempt {}: {:?}", w.covers, w.kind)));
        }
        if let Some(at) = a.ended_at {
            lines.push((at, format!("             {}", outcome(a))));
        }
    }
    if let Some(v) = &l.version_read {
        lines.push((v.at, format!("version      {}", version_words(v, l.resource_version.as_deref().unwrap_or_default()))));
    }
    let first = i64::from(l.reads) - l.last_reads.len() as i64;
    for (i, read) in l.last_reads.iter().enumerate() {
        lines.push((read.at, format!("readback {}   {}", first + i as i64 + 1, read.found)));
    }
    if let Some(at) = l.closed_at {
        lines.push((
            at,
            format!("{:<12} {}", l.shown().word(), l.reference.as_deref().map(|r| format!("reference {r}")).unwrap_or_default()),
        ));
    }
    if l.end == Some(Status::Superseded) {
        lines.push((l.closed_at.unwrap_or_default(), format!("compensation {}", l.operation_id.undo())));
    }
    for flag in &l.flags {
        lines.push((l.closed_at.unwrap_or_default(), format!("flag         {flag:?}")));
    }
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

/// A hash, shortened for people.
pub fn short(hash: &str) -> String {
    match hash.len() {
        0..=12 => hash.to_owned(),
        n => format!("{}…{}", &hash[..4], &hash[n - 2..]),
    }
}
