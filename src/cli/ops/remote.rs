//! `readback ops … --api`: the same commands over a console, by whoever's token it is.

use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::console::search::{Cursor, escape};
use crate::console::shown::Row;
use crate::error::{Error, Fault, Result, codes};
use crate::time::{WallTime, show_duration};

use super::What;
use super::api::Api;
use super::desk::{OrderArgs, unanswered};
use super::list::{self, ListArgs};
use crate::cli::Format;
use crate::cli::output::{tone_of, toned};

/// Entries that a console gives at once.
const PAGE: usize = 500;

/// A page of operations.
#[derive(Deserialize)]
struct Page {
    operations: Vec<Row>,
    next: Option<String>,
    reading: Reading,
}

#[derive(Deserialize)]
struct Reading {
    whole: bool,
}

/// Does over the console what can be done there.
///
/// # Errors
/// What the console says; `USAGE` for what only the topics take.
pub(super) fn run(api: &Api, what: &What, now: WallTime, format: Format) -> Result<ExitCode> {
    match what {
        What::List(args) => listed(api, args, now, format),
        What::Show { operation, tenant } => {
            let found: Value = api.get(&at(operation, tenant.as_deref()))?;
            match format {
                Format::Json => println!("{found}"),
                Format::Table => print!("{}", shown(&found, now)),
            }
            Ok(ExitCode::SUCCESS)
        }
        What::Resolve { order, applied, seen, second, .. } => {
            let found = if *applied { "applied" } else { "not_applied" };
            let more = [("resolution", json!(found)), ("ask_second", json!(second.for_api()?))];
            give(api, "resolve", order, Some(*seen), more, format)
        }
        What::Force { order, seen, second } => {
            give(api, "force", order, Some(*seen), [("ask_second", json!(second.for_api()?))], format)
        }
        What::Approve { order, seen, expires } => {
            let expires = format!("{}ms", expires.as_millis());
            decide(api, "approve", order, *seen, Some(expires), format)
        }
        What::Deny { order, seen } => decide(api, "deny", order, *seen, None, format),
        What::Cancel { order } => give(api, "cancel", order, None, [], format),
        What::ReleaseLane { order } => give(api, "release-lane", order, None, [], format),
        What::Waiting => waiting(api, now, format),
        What::Confirm { command, reason } => {
            let answer = api.post("/waiting/confirm", &json!({ "command": command, "reason": reason }), command)?;
            answered(&answer, format)
        }
        What::Watch { .. } | What::Revoke { .. } | What::ResolveAll(_) | What::Pause(_) | What::Resume(_) | What::Paused => {
            Err(Error::new(codes::USAGE, Fault::Configuration, "asking the console: it does not take this command").next(
                "leave out --api (and READBACK_API), and name the brokers; `ops deny` takes an approval back over the console",
            ))
        }
    }
}

fn at(operation: &str, tenant: Option<&str>) -> String {
    let tenant = tenant.map(|t| format!("?tenant={}", escape(t))).unwrap_or_default();
    format!("/operations/{}{tenant}", escape(operation))
}

fn listed(api: &Api, args: &ListArgs, now: WallTime, format: Format) -> Result<ExitCode> {
    let mut search = args.search()?;
    if args.held()? {
        return Err(Error::new(codes::USAGE, Fault::Configuration, "listing operations at the console: it has no status `held`")
            .next("leave out --api to see them"));
    }
    let (mut rows, mut next, mut whole) = (Vec::new(), search.cursor, true);
    while rows.len() < args.limit {
        (search.limit, search.cursor) = ((args.limit - rows.len()).min(PAGE), next);
        let page: Page = api.get(&format!("/operations?{}", search.query()))?;
        rows.extend(page.operations);
        (next, whole) = (page.next.as_deref().and_then(Cursor::parse), whole && page.reading.whole);
        if next.is_none() {
            break;
        }
    }
    list::print(&rows, next.map(|c| c.text()).as_deref(), None, now, format);
    if !whole {
        eprintln!("the console is still reading operations: the list is not whole");
    }
    Ok(ExitCode::SUCCESS)
}

/// One operation for people: as it stands, and what happened.
fn shown(found: &Value, now: WallTime) -> String {
    let text = |name: &str| found[name].as_str().unwrap_or_default();
    let status = text("status");
    let head = [text("operation"), text("tenant"), text("target"), text("resource")];
    let mut head: Vec<String> = head.into_iter().filter(|part| !part.is_empty()).map(str::to_owned).collect();
    head.push(toned(status, tone_of(status)));
    let mut out = head.join(" · ") + "\n";
    if !text("detail").is_empty() {
        out += &format!("{}   {}\n", text("detail"), text("code"));
    }
    out += "\n";
    for step in found["timeline"].as_array().into_iter().flatten() {
        let at = WallTime(step["at"].as_i64().unwrap_or_default());
        out += &format!(" {at}  {}\n", step["what"].as_str().unwrap_or_default());
    }
    out += "\n";
    for (word, name) in [("plan", "proposal"), ("look", "look_at")] {
        if !text(name).is_empty() {
            out += &format!(" {word}   {}\n", text(name));
        }
    }
    if let Some(at) = found["settles_at"].as_i64().map(WallTime).filter(|at| *at > now) {
        out += &format!(" settles in {}: before that a second person is asked\n", show_duration(at.since(now)));
    }
    out + &format!(" seen   {}\n", found["version"])
}

/// Gives an order under an ID of its own.
fn give<const N: usize>(
    api: &Api,
    call: &str,
    order: &OrderArgs,
    seen: Option<i64>,
    more: [(&str, Value); N],
    format: Format,
) -> Result<ExitCode> {
    let command = uuid::Uuid::new_v4().to_string();
    let all = [
        ("tenant", json!(order.tenant)),
        ("seen", json!(seen)),
        ("reason", json!(order.reason)),
        ("evidence", json!(order.evidence)),
        ("command", json!(command)),
    ];
    let body: Map<String, Value> = all.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect();
    let answer = api.post(&format!("/operations/{}/{call}", escape(&order.operation)), &Value::Object(body), &command)?;
    answered(&answer, format)
}

/// Decides about the plan that stands at the version that was seen.
fn decide(api: &Api, call: &str, order: &OrderArgs, seen: i64, expires: Option<String>, format: Format) -> Result<ExitCode> {
    let found: Value = api.get(&at(&order.operation, order.tenant.as_deref()))?;
    let plan = found["plan_hash"].as_str().ok_or_else(|| {
        Error::new(codes::COMMAND_REFUSED, Fault::Verdict, format!("deciding about {}: there is no plan", order.operation))
            .next("`readback ops show` says where it stands")
    })?;
    let more = [("plan_hash", json!(plan)), ("step", found["step"].clone())];
    match expires {
        Some(expires) => {
            give(api, call, order, Some(seen), [more[0].clone(), more[1].clone(), ("expires", json!(expires))], format)
        }
        None => give(api, call, order, Some(seen), more, format),
    }
}

/// Prints what the console answered. What waits for a second person is not ordered, and what nobody answered is not done.
fn answered(answer: &Value, format: Format) -> Result<ExitCode> {
    let command = answer["command"].as_str().unwrap_or_default();
    let waits = answer["waits_until"].as_i64().map(WallTime);
    if answer["answered"] != true && waits.is_none() {
        return Err(unanswered(command));
    }
    match (format, waits) {
        (Format::Json, _) => println!("{answer}"),
        (Format::Table, None) => println!("{}", answer["detail"].as_str().unwrap_or_default()),
        (Format::Table, Some(until)) => {
            println!("waits for a second person until {until}; nothing is ordered yet");
            println!("they confirm it by their own token: readback ops confirm {command} --reason \"…\"");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Orders that wait for a second person.
#[derive(Deserialize)]
struct Waits {
    orders: Vec<Value>,
    next: Option<String>,
}

fn waiting(api: &Api, now: WallTime, format: Format) -> Result<ExitCode> {
    let mut after = String::new();
    loop {
        let page: Waits = api.get(&format!("/waiting?limit={PAGE}&cursor={}", escape(&after)))?;
        for order in &page.orders {
            tell(order, now, format);
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn tell(order: &Value, now: WallTime, format: Format) {
    let text = |name: &str| order[name].as_str().unwrap_or_default();
    match format {
        Format::Json => {
            let mut line = json!({ "schema": "readback.waiting-order/1" });
            if let (Value::Object(to), Value::Object(members)) = (&mut line, order) {
                to.extend(members.clone());
            }
            println!("{line}");
        }
        Format::Table => {
            let left = WallTime(order["until"].as_i64().unwrap_or_default()).since(now).max(Duration::ZERO);
            let (command, action, operation, by) = (text("command"), text("action"), text("operation"), text("by"));
            println!(
                "{command}  {action} {operation} at version {} · by {by}: {} · for {}",
                order["seen"],
                text("reason"),
                show_duration(left)
            );
        }
    }
}
