//! `readback reset T`: an application begins anew. Shows what it would do, and does it only with `--execute`.

mod act;
mod look;
mod plan;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::console::audit::{Came, Entry};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::ApplicationId;
use crate::kafka::Cluster;
use crate::time::{Clock, SystemClock, WallTime};

use self::look::To;
use self::plan::Plan;
use super::scribe::Scribe;
use super::{Connection, Format, load};

/// Begin an application anew: positions of its sources, its internal topics and groups, and its state on this machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback reset topology/orders                                  shows what would be done; changes nothing
  readback reset topology/orders --to-latest --execute            forgets all state, reads what comes from now on
  readback reset topology/orders --to-datetime 2026-11-20T00:00:00Z --execute
Sources, results and dead letters keep their records. All members must be stopped. An open operation, or one that could be sent
again, forbids it: the ledger is all that knows what was sent. --forget-operations --reason overrules that, and is recorded.
State directories on other machines and volumes must be deleted by hand before a member starts there.
Exit codes: 0 done, or it could be · 1 refused · 2 errors in files · 3 unreachable")]
pub struct ResetArgs {
    #[command(flatten)]
    connection: Connection,
    /// The topology: its directory or its `topology.yaml`.
    topology: PathBuf,
    /// Read the sources from their beginning; the default.
    #[arg(long, group = "to")]
    to_earliest: bool,
    /// Read what comes from now on.
    #[arg(long, group = "to")]
    to_latest: bool,
    /// Read from the first record of this time, in RFC 3339.
    #[arg(long, group = "to", value_name = "TIME", value_parser = time)]
    to_datetime: Option<WallTime>,
    /// Do it.
    #[arg(long)]
    execute: bool,
    /// Give up what the ledger knows of operations that are open or could be sent again.
    #[arg(long, requires = "reason")]
    forget_operations: bool,
    /// Why; kept in the topic <app>-deployed.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: Option<String>,
    /// Who does it.
    #[arg(long, env = "USER", default_value = "unknown")]
    by: String,
    /// The state directory.
    #[arg(long)]
    state_dir: Option<PathBuf>,
}

fn time(text: &str) -> std::result::Result<WallTime, String> {
    let read = chrono::DateTime::parse_from_rfc3339(text);
    read.map(|t| WallTime(t.timestamp_millis())).map_err(|_| format!("`{text}` is no time; write 2026-11-20T14:00:00Z"))
}

/// Looks, tells, and where told to, acts.
pub fn run(args: &ResetArgs, format: Format) -> Result<ExitCode> {
    let application = load::offline(&args.topology)?.application;
    let mut config = args.connection.load()?;
    if let Some(dir) = &args.state_dir {
        config.state.dir.clone_from(dir);
    }
    let cluster = crate::kafka::RdCluster::new(crate::app::kafka_config(&config))?;
    let to = match (args.to_datetime, args.to_latest) {
        (Some(at), _) => To::At(at),
        (None, true) => To::Latest,
        (None, false) => To::Earliest,
    };
    let now = SystemClock.now().wall;
    let plan = look::look(&cluster, &application, &config, to, now)?;
    let refusals = plan.refusals(args.forget_operations);
    let done = args.execute && refusals.is_empty();
    let note = json!({
        "by": args.by, "reason": args.reason, "at": now.to_string(), "forgotten": plan.operations,
        "version": application.version, "program": env!("CARGO_PKG_VERSION"),
    });
    let order = Order { by: &args.by, reason: args.reason.as_deref().unwrap_or_default(), note: &note };
    if done {
        carry_out(&cluster, &application.id, &plan, &order)?;
    }
    match format {
        Format::Table => print!("{}", table(&plan, done)),
        Format::Json => println!("{}", as_json(&plan, &refusals, done)),
    }
    if refusals.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let e = Error::new(codes::SILENT_RESET, Fault::Verdict, format!("resetting {}", plan.application))
        .because(refusals.join("\n  and: "))
        .next("nothing was changed");
    // What only shows what it would do is no action.
    if args.execute { refuse(&cluster, &application.id, &plan, &order, e) } else { Err(e) }
}

/// Who resets, why, and what is kept of it.
struct Order<'a> {
    by: &'a str,
    reason: &'a str,
    note: &'a Value,
}

/// Resets; on the audit topic it stands before anything is touched.
fn carry_out<C: Cluster>(cluster: &C, app: &ApplicationId, plan: &Plan, order: &Order<'_>) -> Result<()> {
    let scribe = Scribe::new(cluster, app, order.by, order.reason);
    let entry = Entry { scope: Some(scope(plan)), ..scribe.entry("reset") };
    scribe.begin(&entry)?;
    let done = act::act(cluster, app, plan, order.note);
    match &done {
        Ok(()) => scribe.came(entry, Came::Answered, None, "done"),
        Err(e) => {
            // Whoever joined meanwhile forbids it. Else it may have been cut short: what it had done by then stays done.
            let came = if e.code == codes::SILENT_RESET { Came::Refused } else { Came::Unanswered };
            scribe.came(entry, came, Some(e.code.to_string()), &e.to_string());
        }
    }
    done
}

fn refuse<C: Cluster, T>(cluster: &C, app: &ApplicationId, plan: &Plan, order: &Order<'_>, e: Error) -> Result<T> {
    let scribe = Scribe::new(cluster, app, order.by, order.reason);
    scribe.refused(Entry { scope: Some(scope(plan)), ..scribe.entry("reset") }, e)
}

/// What is given up, as the audit topic has it.
fn scope(plan: &Plan) -> String {
    let open: usize = plan.operations.open.values().sum();
    let due = plan.operations.due;
    format!(
        "application {}: {} topics, {open} open operations, {due} ended with a deadline ahead",
        plan.application,
        plan.topics.len()
    )
}

fn as_json(plan: &Plan, refusals: &[String], done: bool) -> serde_json::Value {
    let moved =
        |m: &plan::Move| json!({ "topic": m.tp.topic, "partition": m.tp.partition.0, "from": m.from.map(|f| f.0), "to": m.to.0 });
    json!({
        "schema": "readback.reset/1", "application": plan.application, "done": done, "refused": refusals,
        "state": plan.directories, "positions": plan.moves.iter().map(moved).collect::<Vec<_>>(),
        "topics": plan.topics.iter().map(|(t, _)| t).collect::<Vec<_>>(), "left": plan.left,
        "groups": plan.groups, "operations": plan.operations,
    })
}

fn table(plan: &Plan, done: bool) -> String {
    let head = if done { "done" } else { "nothing is changed; --execute does what follows" };
    let mut text = format!("{} · {head}\n\n", plan.application);
    let mut row = |what: &str, line: String| text += &format!(" {what:<10} {line}\n");
    for dir in &plan.directories {
        row("state", format!("delete {}", dir.display()));
    }
    for m in &plan.moves {
        let from = m.from.map_or_else(|| "not read yet".to_owned(), |f| f.to_string());
        row("position", format!("{}  {from} → {}", m.tp, m.to));
    }
    for (topic, partitions) in &plan.topics {
        row("topic", format!("delete {topic} ({partitions} partitions)"));
    }
    for group in &plan.groups {
        row("group", format!("forget {group}"));
    }
    for topic in &plan.left {
        row("left", format!("{topic}: neither this version nor the deployed one made it"));
    }
    let o = &plan.operations;
    let open: Vec<_> = o.open.iter().map(|(status, n)| format!("{n} {status}")).collect();
    if !open.is_empty() || o.due > 0 {
        let open = if open.is_empty() { "none open".to_owned() } else { format!("{} open", open.join(", ")) };
        row("operations", format!("forgotten with the ledger: {open}, {} ended with a deadline ahead", o.due));
    }
    let app = &plan.application;
    row(
        "elsewhere",
        format!("delete <state.dir>/{app}-NNN on every other machine and volume before a member starts there: it holds"),
    );
    row("", "copies of the old changelogs; a start with them is refused (RB0312), or takes old state for new".to_owned());
    text
}

#[cfg(test)]
mod tests;
