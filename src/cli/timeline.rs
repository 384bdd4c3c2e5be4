//! One operation on the screen: its head, its timeline with evidence for each step, and what to do next.

use serde_json::json;

use crate::admin::views::Seen;
use crate::effects::{Attempt, AttemptState, LedgerRecord, Phase};
use crate::error::{Code, Result};
use crate::ids::OperationKey;
use crate::intents::Status;
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
    let status = seen.status().map_or("held", Status::word);
    let (code, detail) = why(seen);
    let lines = lines(seen);
    if format == Format::Json {
        let steps: Vec<_> = lines.iter().map(|(at, what)| json!({ "at": at, "what": what })).collect();
        println!(
            "{}",
            json!({
                "schema": "readback.operation/1", "operation": key.operation, "tenant": key.tenant, "step": key.step, "status": status,
                "version": seen.version(), "code": code, "detail": detail, "timeline": steps,
            })
        );
        return Ok(());
    }
    let call = seen.ledger.as_ref().map(|l| format!("{}#{}", l.contract, l.call)).unwrap_or_default();
    let resource = seen.record.as_ref().map(|r| r.request.resource.to_string());
    let resource = resource.or_else(|| seen.ledger.as_ref().map(|l| l.resource.to_string())).unwrap_or_default();
    let since = show_duration(now.since(changed_at(seen)));
    println!("{} · {} · {call} · {resource} · {status} for {since} · version {}", key.operation, key.tenant, seen.version());
    if let Some(detail) = detail {
        println!("{detail}   {}", code.unwrap_or_default());
    }
    println!();
    let mut day = String::new();
    for (at, what) in &lines {
        let text = at.to_string();
        let (date, time) = text.split_once('T').unwrap_or(("", &text));
        if date != day {
            println!(" {date} (UTC)");
            day = date.to_owned();
        }
        println!(" {}  {what}", time.trim_end_matches('Z'));
    }
    next_steps(key, seen);
    Ok(())
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
    for flag in &l.flags {
        lines.push((l.closed_at.unwrap_or_default(), format!("flag         {flag:?}")));
    }
}

fn outcome(a: &Attempt) -> String {
    let status = a.status.map(|s| format!("answered {s} · ")).unwrap_or_default();
    let state = match a.state {
        AttemptState::Journaled => "no outcome yet",
        AttemptState::Unsent => "provably never left",
        AttemptState::Rejected => "refused by the target",
        AttemptState::RetryLater => "not now, said the target",
        AttemptState::InProgress => "the target is still at it",
        AttemptState::Maybe => "no answer · maybe sent",
        AttemptState::Applied => "applied, said the target",
        AttemptState::SettledAbsent => "maybe sent · absent from a complete readback after settle",
    };
    format!("{status}{state}")
}

fn next_steps(key: &OperationKey, seen: &Seen) {
    if seen.ledger.as_ref().is_some_and(|l| l.phase == Phase::Parked) {
        println!(
            "\n then   readback ops resolve {} --applied | --not-applied  --reason \"…\" --seen {}",
            key.operation,
            seen.version()
        );
    }
}

fn short(hash: &str) -> String {
    match hash.len() {
        0..=12 => hash.to_owned(),
        n => format!("{}…{}", &hash[..4], &hash[n - 2..]),
    }
}
