//! One operation on the screen: its head, its timeline with evidence for each step, and what to do next.

use serde_json::json;

use crate::admin::views::Seen;
use crate::effects::{Attempt, AttemptState, LedgerRecord, Phase, VersionRead, VersionState};
use crate::error::{Code, Result};
use crate::ids::OperationKey;
use crate::intents::{AnswerClass, Status};
use crate::time::{WallTime, show_duration};

use super::Format;

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

/// Prints one operation.
pub fn show(key: &OperationKey, seen: &Seen, now: WallTime, format: Format) -> Result<()> {
    match format {
        Format::Json => println!("{}", as_json(key, seen)),
        Format::Table => print!("{}", as_text(key, seen, now)),
    }
    Ok(())
}

/// What it acts on, and the version of it that the requester saw.
fn resource(seen: &Seen) -> (String, Option<String>) {
    let record = seen.record.as_ref().map(|r| (r.request.resource.to_string(), r.request.resource_version.clone()));
    record.or_else(|| seen.ledger.as_ref().map(|l| (l.resource.to_string(), l.resource_version.clone()))).unwrap_or_default()
}

fn as_json(key: &OperationKey, seen: &Seen) -> serde_json::Value {
    let (code, detail) = why(seen);
    let (resource, resource_version) = resource(seen);
    let steps: Vec<_> = lines(seen).iter().map(|(at, what)| json!({ "at": at, "what": what })).collect();
    json!({
        "schema": "readback.operation/1", "operation": key.operation, "tenant": key.tenant, "step": key.step,
        "status": seen.status().map_or("held", Status::word), "version": seen.version(), "resource": resource,
        "resource_version": resource_version, "code": code, "detail": detail, "look_at": look_at(seen), "timeline": steps,
    })
}

fn as_text(key: &OperationKey, seen: &Seen, now: WallTime) -> String {
    let call = seen.ledger.as_ref().map(|l| format!("{}#{}", l.contract, l.call));
    let resource = match resource(seen) {
        (resource, Some(version)) => format!("{resource} version {version}"),
        (resource, None) => resource,
    };
    let status = seen.status().map_or("held", Status::word);
    let since = show_duration(now.since(changed_at(seen)));
    let mut head = vec![key.operation.to_string(), key.tenant.to_string()];
    head.extend(call.into_iter().chain([resource]).filter(|part| !part.is_empty()));
    head.push(format!("{status} for {since}"));
    let mut text = head.join(" · ") + "\n";
    let (code, detail) = why(seen);
    if let Some(detail) = detail {
        text += &format!("{detail}   {}\n", code.unwrap_or_default());
    }
    let mut day = String::new();
    for (at, what) in &lines(seen) {
        let stamp = at.to_string();
        let (date, time) = stamp.split_once('T').unwrap_or(("", &stamp));
        if date != day {
            text += &format!("\n {date} (UTC)\n");
            day = date.to_owned();
        }
        text += &format!(" {}  {what}\n", time.trim_end_matches('Z'));
    }
    text + &next_steps(key, seen)
}

/// Where the target shows the effect, as its contract says.
fn look_at(seen: &Seen) -> Option<&str> {
    seen.ledger.as_ref()?.look_at.as_deref()
}

fn lines(seen: &Seen) -> Vec<(WallTime, String)> {
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

fn outcome(a: &Attempt) -> String {
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

/// What a person can do about it now, with the version that was shown.
fn next_steps(key: &OperationKey, seen: &Seen) -> String {
    let mut text = "\n".to_owned();
    let waits = seen.ledger.is_none().then_some(seen.record.as_ref()).flatten().filter(|r| r.status == Status::AwaitingApproval);
    text += &waits.and_then(|r| r.proposal.as_ref()).map(|plan| format!(" plan   {plan}\n")).unwrap_or_default();
    text += &look_at(seen).map(|link| format!(" look   {link}\n")).unwrap_or_default();
    let (op, version) = (&key.operation, seen.version());
    let mut then = |what: &str| {
        let word = if text.contains(" then ") { "     " } else { " then" };
        text += &format!("{word}   readback ops {what} --reason \"…\" --seen {version}\n");
    };
    match &seen.ledger {
        Some(l) if l.phase == Phase::Parked => {
            then(&format!("resolve {op} --applied | --not-applied"));
            then(&format!("force {op}"));
        }
        None if waits.is_some() => then(&format!("approve {op}")),
        _ => text += &format!(" seen   {version}\n"),
    }
    text
}

fn short(hash: &str) -> String {
    match hash.len() {
        0..=12 => hash.to_owned(),
        n => format!("{}…{}", &hash[..4], &hash[n - 2..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::VersionState;

    /// If this broke, the person who must decide would not be told where to look, on what the plan was made, or with which
    /// version to answer.
    #[test]
    fn a_parked_operation_shows_where_to_look_and_what_to_do() {
        let key = OperationKey { tenant: "acme".into(), operation: "op-1".into(), step: "place-order".into() };
        let mut ledger = LedgerRecord::held(key.clone(), WallTime(9_000));
        (ledger.phase, ledger.version) = (Phase::Parked, 7);
        (ledger.contract, ledger.call, ledger.resource) = ("orders".into(), "create".into(), "order/A-1".into());
        (ledger.resource_version, ledger.look_at) = (Some("4".into()), Some("https://orders.internal/console?ref=5be2".into()));
        (ledger.code, ledger.detail) = (Some(235), Some("nothing can prove what happened".into()));
        ledger.version_read =
            Some(VersionRead { attempt: 1, tries: 1, at: WallTime(1_000), state: VersionState::Other, shown: Some("5".into()) });
        let seen = Seen { record: None, ledger: Some(ledger) };
        let text = as_text(&key, &seen, WallTime(61_000));
        for part in [
            "op-1 · acme · orders#create · order/A-1 version 4 · parked",
            "nothing can prove what happened   RB0235",
            "version      stands at 5, made for 4",
            "look   https://orders.internal/console?ref=5be2",
            "then   readback ops resolve op-1 --applied | --not-applied --reason \"…\" --seen 7",
            "readback ops force op-1 --reason \"…\" --seen 7",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        let mut ledger = seen.ledger.clone().expect("one");
        (ledger.phase, ledger.end, ledger.closed_at) = (Phase::Ended, Some(Status::Superseded), Some(WallTime(60_000)));
        let text = as_text(&key, &Seen { record: None, ledger: Some(ledger.clone()) }, WallTime(61_000));
        assert!(text.contains("compensation op-1.undo"), "{text}");
        ledger.operation_id = ledger.operation_id.undo();
        let text = as_text(&key, &Seen { record: None, ledger: Some(ledger) }, WallTime(61_000));
        assert!(text.contains("undoes       op-1\n"), "{text}");
        assert_eq!(as_json(&key, &seen)["look_at"], "https://orders.internal/console?ref=5be2");
    }
}
