//! One operation on the screen: its head, its timeline with evidence for each step, and what to do next.

use crate::admin::evidence::{as_json, changed_at, lines, look_at, resource, why};
use crate::admin::views::Seen;
use crate::effects::Phase;
use crate::error::Result;
use crate::ids::OperationKey;
use crate::intents::Status;
use crate::time::{WallTime, show_duration};

use super::Format;
use super::output::{tone_of, toned};

/// Places of the picture.
const WIDTH: u128 = 64;

/// Prints one operation.
pub fn show(key: &OperationKey, seen: &Seen, now: WallTime, format: Format) -> Result<()> {
    match format {
        Format::Json => println!("{}", as_json(key, seen)),
        Format::Table => print!("{}", as_text(key, seen, now)),
    }
    Ok(())
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
    head.push(format!("{} for {since}", toned(status, tone_of(status))));
    let mut text = head.join(" · ") + "\n";
    let (code, detail) = why(seen);
    if let Some(detail) = detail {
        text += &format!("{detail}   {}\n", code.unwrap_or_default());
    }
    let steps = lines(seen);
    text += &picture(&steps, seen.status().is_some_and(|s| s.is_end()), now);
    let mut day = String::new();
    for (at, what) in &steps {
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

/// The timeline as one line to scale: letters for what comes of the record, numbers for attempts, `?` for what is open until now.
fn picture(steps: &[(WallTime, String)], ended: bool, now: WallTime) -> String {
    let (Some((first, _)), Some((last, _))) = (steps.first(), steps.last()) else { return String::new() };
    let until = if ended { *last } else { now.max(*last) };
    let whole = until.since(*first).as_millis();
    if whole == 0 {
        return String::new();
    }
    let marks = steps.iter().filter_map(|(at, what)| Some((at.since(*first).as_millis(), mark(what)?)));
    let end = (!ended).then_some((whole, '?'));
    let (mut line, mut before) = (String::new(), 0);
    for (at, mark) in marks.chain(end) {
        // What is close together stays apart by one place at least.
        let place = usize::try_from(at * WIDTH / whole).unwrap_or_default().max(before + 1);
        let gap = if mark == '?' { '┄' } else { '─' };
        line.extend(std::iter::repeat_n(gap, if line.is_empty() { 0 } else { place - before - 1 }));
        line.push(mark);
        before = place;
    }
    format!("\n {line}  {}\n", show_duration(until.since(*first)))
}

/// One place in the picture; none for what only explains the line before it.
fn mark(what: &str) -> Option<char> {
    let mut words = what.split_whitespace();
    let first = words.next()?;
    match first {
        _ if what.starts_with(' ') => (first != "warrant").then_some('←'),
        "attempt" => words.next()?.chars().next_back(),
        "admitted" | "planned" | "approved" | "version" | "readback" => first.chars().next(),
        "undoes" | "compensation" | "flag" | "call" => None,
        _ => Some('■'),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::{LedgerRecord, VersionRead, VersionState};

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

    /// If this broke, the picture would show another order or another wait than there was.
    #[test]
    fn the_picture_is_to_scale_and_ends_where_it_is_open() {
        let step = |at: i64, what: &str| (WallTime(at), what.to_owned());
        let steps = [
            step(0, "admitted     from x"),
            step(0, "planned      1a"),
            step(500, "attempt 1    journalled"),
            step(500, "             warrant for attempt 0"),
            step(600, "             answered 500"),
            step(1_000, "readback 1   absent"),
        ];
        let drawn = picture(&steps, false, WallTime(2_000));
        let line = drawn.trim();
        assert!(line.starts_with("ap─") && line.ends_with("?  2 s"), "{line}");
        let places: Vec<_> = line.chars().enumerate().filter(|(_, c)| "ap1←r?".contains(*c)).map(|(i, _)| i).collect();
        assert_eq!(places[..6], [0, 1, 15, 18, 31, 63], "{line}");
        let steps = [step(0, "admitted     from x"), step(80, "confirmed    reference n0")];
        assert_eq!(picture(&steps, true, WallTime(9_000)).trim().chars().filter(|c| *c == '■').count(), 1);
        assert!(picture(&steps[..1], true, WallTime(9_000)).is_empty());
    }
}
