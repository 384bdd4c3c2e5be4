//! One operation on the screen: its head, its timeline with evidence for each step, and what to do next.

use crate::admin::evidence::timeline::{Kind, Step, steps};
use crate::admin::evidence::{Around, as_json, changed_at, look_at, resource, why};
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

/// The least places of a step's name.
const NAMES: usize = 12;

/// Prints one operation, with what stands around it.
pub fn show(key: &OperationKey, seen: &Seen, around: &Around, now: WallTime, format: Format) -> Result<()> {
    match format {
        Format::Json => println!("{}", as_json(key, seen, around)),
        Format::Table => print!("{}", as_text(key, seen, around, now)),
    }
    Ok(())
}

fn as_text(key: &OperationKey, seen: &Seen, around: &Around, now: WallTime) -> String {
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
    if let Some(undo) = &around.undone_by {
        text += &format!("{}\n", undo.words);
    }
    for undo in around.undoing.iter().filter(|u| u.waits_for_a_person()) {
        text += &format!("{} waits for a person\n", undo.operation);
    }
    if let Some(m) = &around.model {
        let why = [&m.detail, &m.code].into_iter().flatten().map(|w| format!(" · {w}")).collect::<String>();
        text += &format!("its model call {} · {}{why}\n", m.operation, toned(&m.status, tone_of(&m.status)));
    }
    let steps = steps(seen, around);
    text += &picture(&steps, seen.status().is_some_and(|s| s.is_end()), now);
    text + &listed(&steps) + &next_steps(key, seen)
}

/// The steps, one a line, under their days; one whose time is not recorded has none.
fn listed(steps: &[Step]) -> String {
    let names = steps.iter().map(|s| s.label.len()).max().unwrap_or_default().max(NAMES);
    let (mut text, mut day) = (String::new(), String::new());
    for step in steps {
        let stamp = step.at.map(|at| at.to_string()).unwrap_or_default();
        let (date, time) = stamp.split_once('T').unwrap_or((&day, ""));
        let time = time.trim_end_matches('Z').to_owned();
        if date != day {
            text += &format!("\n {date} (UTC)\n");
            day = date.to_owned();
        }
        text += format!(" {time:<12}  {:<names$} {}", step.label, step.text).trim_end();
        text.push('\n');
    }
    text
}

/// The timeline as one line to scale: letters for what comes of the record, numbers for attempts, `?` for what is open until now.
fn picture(steps: &[Step], ended: bool, now: WallTime) -> String {
    let times = || steps.iter().filter_map(|s| s.at);
    let (Some(first), Some(last)) = (times().min(), times().max()) else { return String::new() };
    let until = if ended { last } else { now.max(last) };
    let whole = until.since(first).as_millis();
    if whole == 0 {
        return String::new();
    }
    let marks = steps.iter().filter_map(|s| Some((s.at?.since(first).as_millis(), mark(s)?)));
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
    format!("\n {line}  {}\n", show_duration(until.since(first)))
}

/// One place in the picture; none for what only explains the line before it.
fn mark(step: &Step) -> Option<char> {
    match step.kind {
        Kind::Outcome => Some('←'),
        Kind::Attempt => step.label.chars().next_back(),
        Kind::Admitted | Kind::Planned | Kind::Approved | Kind::Version | Kind::Readback => step.label.chars().next(),
        Kind::Order => Some('!'),
        Kind::Parked | Kind::End => Some('■'),
        Kind::Asked | Kind::HandedOver | Kind::Request | Kind::Warrant => None,
        Kind::Undoes | Kind::Compensation | Kind::Flag | Kind::Call => None,
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
    use crate::admin::evidence::Stands;
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
        let text = as_text(&key, &seen, &Around::default(), WallTime(61_000));
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
        let text = as_text(&key, &Seen { record: None, ledger: Some(ledger.clone()) }, &Around::default(), WallTime(61_000));
        assert!(text.contains("compensation op-1.undo"), "{text}");
        ledger.operation_id = ledger.operation_id.undo();
        let text = as_text(&key, &Seen { record: None, ledger: Some(ledger) }, &Around::default(), WallTime(61_000));
        assert!(text.contains("undoes       op-1\n"), "{text}");
        let look = |key: &OperationKey| {
            (key.operation.as_str() == "op-1.undo").then(|| Stands {
                status: Some(Status::Parked),
                since: WallTime(61_000),
                code: None,
                detail: None,
            })
        };
        let around = Around::of(&key, &seen, look);
        let text = as_text(&key, &seen, &around, WallTime(61_000));
        assert!(text.contains("its undoing waits for a person: op-1.undo is parked\n"), "{text}");
        assert_eq!(as_json(&key, &seen, &around)["undone_by"]["operation"], "op-1.undo");
        assert_eq!(as_json(&key, &seen, &Around::default())["look_at"], "https://orders.internal/console?ref=5be2");
    }

    /// If this broke, the picture would show another order or another wait than there was.
    #[test]
    fn the_picture_is_to_scale_and_ends_where_it_is_open() {
        let step =
            |at: i64, kind: Kind, label: &str| Step { at: Some(WallTime(at)), kind, label: label.to_owned(), text: String::new() };
        let mut steps = vec![
            step(0, Kind::Admitted, "admitted"),
            step(0, Kind::Planned, "planned"),
            step(500, Kind::Attempt, "attempt 1"),
            step(500, Kind::Warrant, ""),
            step(600, Kind::Outcome, ""),
            step(1_000, Kind::Readback, "readback 1"),
        ];
        // A step whose time nobody knows has no place in a picture to scale.
        steps.insert(2, Step { at: None, ..step(0, Kind::Approved, "approved") });
        let drawn = picture(&steps, false, WallTime(2_000));
        let line = drawn.trim();
        assert!(line.starts_with("ap─") && line.ends_with("?  2 s"), "{line}");
        let places: Vec<_> = line.chars().enumerate().filter(|(_, c)| "ap1←r?".contains(*c)).map(|(i, _)| i).collect();
        assert_eq!(places[..6], [0, 1, 15, 18, 31, 63], "{line}");
        let steps = [step(0, Kind::Admitted, "admitted"), step(80, Kind::End, "confirmed")];
        assert_eq!(picture(&steps, true, WallTime(9_000)).trim().chars().filter(|c| *c == '■').count(), 1);
        assert!(picture(&steps[..1], true, WallTime(9_000)).is_empty());
    }
}
