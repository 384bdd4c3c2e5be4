//! `readback diff T`: what a deploy of T would keep, create, orphan or lose.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::admin::views::{Operations, Seen};
use crate::app::counts_to_be;
use crate::app::deployed::{Deployed, stored};
use crate::app::diff::{Deploy, Fate, Open, against, compare, missing};
use crate::config::ProcessConfig;
use crate::dsl::Application;
use crate::error::{Error, Fault, Result};
use crate::ids::{ApplicationId, TopicName};
use crate::kafka::Cluster;
use crate::outbox::Stage;
use crate::runtime::error_of;
use crate::time::{Clock, SystemClock, WallTime, show_duration};

use super::output::{Tone, toned};
use super::{Connection, Format, load};

/// Say what a deploy would keep, create, orphan or lose: topics, stores, open operations, approvals.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback diff topology/orders --brokers localhost:9092      against what runs on the cluster
  readback diff topology/orders --from ../released/orders     against another folder; needs no cluster
A member stores what it runs when it starts (topic <app>-deployed); where nobody did, only topics and operations are compared.
Exit codes: 0 nothing is lost · 1 something would be lost, or a start would be refused · 2 errors in files · 3 unreachable")]
pub struct DiffArgs {
    #[command(flatten)]
    connection: Connection,
    /// The topology that is to be deployed: its directory or its `topology.yaml`.
    topology: PathBuf,
    /// Compare with the cluster; the default.
    #[arg(long)]
    live: bool,
    /// Compare with this topology instead.
    #[arg(long, conflicts_with = "live", value_name = "TOPOLOGY")]
    from: Option<PathBuf>,
    /// Show what is kept, too.
    #[arg(long)]
    all: bool,
}

/// Compares and tells.
pub fn run(args: &DiffArgs, format: Format) -> Result<ExitCode> {
    let application = load::offline(&args.topology)?.application;
    let now = SystemClock.now().wall;
    let (before, after, deploy) = match &args.from {
        Some(from) => {
            let before = Deployed::of(&load::offline(from)?.application, None, now);
            let after = Deployed::of(&application, None, now);
            let deploy = compare(&before, &after);
            (Some(before), after, deploy)
        }
        None => on_cluster(&application, &args.connection.load()?, &super::on_cluster(&args.connection)?, now)?,
    };
    match format {
        Format::Table => print!("{}", table(before.as_ref(), &after, &deploy, args, now)),
        Format::Json => println!(
            "{}",
            json!({
                "schema": "readback.diff/1", "application": after.application, "version": after.version,
                "from_version": before.as_ref().map(|b| b.version), "from_program": before.as_ref().map(|b| &b.program),
                "same_fingerprint": before.as_ref().map(|b| b.fingerprint == after.fingerprint), "lost": deploy.losses(),
                "changes": deploy.changes, "operations": deploy.operations,
            })
        ),
    }
    Ok(match deploy.losses() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(Fault::Verdict.exit_code()),
    })
}

fn on_cluster<C: Cluster>(
    application: &Application,
    config: &ProcessConfig,
    cluster: &C,
    now: WallTime,
) -> Result<(Option<Deployed>, Deployed, Deploy)> {
    let app = &application.id;
    let before = stored(cluster, app)?;
    let admin = cluster.admin().map_err(error_of)?;
    let (counts, to_come) = counts_to_be(application, config, admin.as_ref())?;
    let layout = application.topology.layout(&counts, None).map_err(Error::from)?;
    let after = Deployed::of(application, Some(&layout), now);
    let mut there: BTreeMap<TopicName, u32> = BTreeMap::new();
    let prefixes = [format!("{app}-"), format!("{app}.effects-")];
    for topic in admin.topics().map_err(error_of)? {
        if prefixes.iter().any(|p| topic.name.as_str().starts_with(p.as_str())) {
            there.insert(topic.name, topic.partitions);
        }
    }
    // Asked whether or not this version has effects: what the one before began stays open.
    let open = open(cluster, app, &there)?;
    let compared = before.as_ref().map(|b| compare(b, &after)).unwrap_or_default();
    let deploy = missing(against(compared, before.as_ref(), &after, &there, &open), &to_come, config.topics.create);
    Ok((before, after, deploy))
}

/// Operations that have not ended; none where the application has not run.
fn open<C: Cluster>(cluster: &C, app: &ApplicationId, there: &BTreeMap<TopicName, u32>) -> Result<Vec<Open>> {
    if !there.contains_key(&crate::intents::topics::ledger_changelog(app)) {
        return Ok(Vec::new());
    }
    let mut operations = Operations::open(cluster, app)?;
    super::progress::catch_up(&mut operations)?;
    Ok(operations.seen.iter().filter_map(|(key, seen)| of(key.step.as_str(), seen)).collect())
}

fn of(step: &str, seen: &Seen) -> Option<Open> {
    let status = seen.status()?;
    let before_intent = |stage: Stage| matches!(stage, Stage::Planning | Stage::Comparing | Stage::Waiting);
    let waits = |r: &crate::outbox::OperationRecord| r.plan_hash.is_some() && before_intent(r.stage);
    (!status.is_end()).then(|| Open {
        step: step.to_owned(),
        status: status.word(),
        call: seen.ledger.as_ref().filter(|l| l.open()).map(|l| (format!("{}#{}", l.contract, l.call), l.contract_version)),
        approval: seen.record.as_ref().is_some_and(waits),
        calls: seen.record.as_ref().map_or(0, |r| r.calls.iter().filter(|c| c.waits() && r.stage == Stage::Executing).count()),
    })
}

fn table(before: Option<&Deployed>, after: &Deployed, deploy: &Deploy, args: &DiffArgs, now: WallTime) -> String {
    let mut text = format!("{} · version {}", after.application, after.version);
    text += &match before {
        Some(b) if args.from.is_some() => format!(", compared with version {} in files", b.version),
        Some(b) => {
            format!(
                ", compared with version {} that readback {} started {} ago",
                b.version,
                b.program,
                show_duration(now.since(b.at))
            )
        }
        None => ", compared with the topics and operations of the cluster: no member has stored what it runs".to_owned(),
    };
    text += "\n\n";
    let shown: Vec<_> = deploy.changes.iter().filter(|c| args.all || c.fate != Fate::Keep).collect();
    let width = |f: &dyn Fn(&crate::app::diff::Change) -> usize| shown.iter().map(|c| f(c)).max().unwrap_or_default();
    let (kinds, names) = (width(&|c| c.kind.chars().count()), width(&|c| c.name.chars().count()));
    for c in &shown {
        let tone = match c.fate {
            Fate::Lost => Tone::Bad,
            Fate::Orphan => Tone::Weak,
            Fate::Change | Fate::Create | Fate::Keep => Tone::Plain,
        };
        let line = format!("{:<kinds$}  {:<names$}  {}", c.kind, c.name, c.text);
        text += &format!(" {}  {}\n", toned(&format!("{:<6}", c.fate.word()), tone), line.trim_end());
    }
    let kept = deploy.changes.iter().filter(|c| c.fate == Fate::Keep).count();
    if kept > 0 && !args.all {
        text += &format!(" keep    {kept} parts; --all shows them\n");
    }
    if !deploy.operations.is_empty() {
        let each: Vec<_> = deploy.operations.iter().map(|(status, n)| format!("{status} {n}")).collect();
        text += &format!("\n open operations: {}\n", each.join(" · "));
    }
    text + &match deploy.losses() {
        0 => "\n nothing is lost\n".to_owned(),
        n => format!("\n {n} would be lost or refused: change the topology, or see to each before you deploy\n"),
    }
}
