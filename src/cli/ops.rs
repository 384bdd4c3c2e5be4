//! `readback ops`: operations, their evidence, and commands on them. Reads committed records; writes commands only.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::admin::views::{Operations, Seen, applications};
use crate::admin::{evidence, orders};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, OperationId, OperationKey, Tenant};
use crate::intents::{Command, Decision, Resolution, Status, Via};
use crate::kafka::Cluster;
use crate::outbox::commands::{self, Order};
use crate::time::{Clock, SystemClock, WallTime, parse_duration, show_duration};

use super::output::{tone_of, toned};
use super::{Connection, Format, bulk, pause, timeline, watch};

/// Look at operations and decide what nobody else can.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback ops list --status parked                       what waits for a person
  readback ops show op-0137                               what was sent, answered and read back
  readback ops resolve op-0137 --applied --reason \"order 8812 is in the console\" --seen 7
  readback ops approve op-0140 --reason \"checked with the buyer\" --seen 4
Reading needs a broker only; a command is answered by the member that owns the operation.
Exit codes: 0 done · 1 refused · 2 usage · 3 nobody answers · 4 it has changed since you looked")]
pub struct OpsArgs {
    #[command(flatten)]
    connection: Connection,
    /// The application; may be left out where the cluster has one only.
    #[arg(long, env = "READBACK_APP", global = true)]
    app: Option<String>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List operations, the oldest change first.
    List {
        /// Only this status.
        #[arg(long, value_parser = status_words())]
        status: Option<String>,
        /// Only this tenant.
        #[arg(long)]
        tenant: Option<String>,
        /// Only those that have stood so for longer.
        #[arg(long, value_parser = span)]
        longer_than: Option<Duration>,
        /// At most so many.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show one operation: what was sent, what the target said, what was read back.
    Show {
        /// The operation ID, root or derived.
        operation: String,
        /// Its tenant, where the ID is not unique.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Follow operations as they change, until the one that is named has ended.
    #[command(after_help = "Examples:
  readback ops watch op-0137                one operation, to its end
  readback ops watch --status unknown       whatever becomes unknown, until interrupted
Exit codes: 0 the operation has ended, or the time is up without one named · 1 it has not ended within --for")]
    Watch {
        /// The operation ID; without it all of them.
        operation: Option<String>,
        /// Its tenant.
        #[arg(long)]
        tenant: Option<String>,
        /// Only changes to this status.
        #[arg(long, value_parser = status_words(), conflicts_with = "operation")]
        status: Option<String>,
        /// At most for so long.
        #[arg(long = "for", value_parser = span)]
        limit: Option<Duration>,
    },
    /// Say what happened: you have looked at the target.
    #[command(after_help = "Example:
  readback ops resolve op-0137 --not-applied --reason \"no order under this reference\" --seen 7 --second approver@acme
Before settle, `--not-applied` needs a second person: what has left may still arrive.")]
    Resolve {
        #[command(flatten)]
        order: OrderArgs,
        /// The effect exists.
        #[arg(long, conflicts_with = "not_applied", required_unless_present = "not_applied")]
        applied: bool,
        /// It does not.
        #[arg(long)]
        not_applied: bool,
        /// The version that you saw (`ops show` prints it).
        #[arg(long)]
        seen: i64,
    },
    /// Order one more send of a parked operation.
    #[command(after_help = "Example:
  readback ops force op-0137 --reason \"the target was restored from a backup\" --seen 7 --second approver@acme
Before settle it needs a second person: what has left may still arrive, and then there are two effects.
Deadline, approval, target version and policy are asked once more; what they forbid is not sent.")]
    Force {
        #[command(flatten)]
        order: OrderArgs,
        /// The version that you saw (`ops show` prints it).
        #[arg(long)]
        seen: i64,
    },
    /// Approve the plan that you saw.
    #[command(after_help = "Example:
  readback ops approve op-0137 --reason \"checked with the buyer\" --seen 4
The approval is bound to the plan's hash, used once, and yours: whoever asked for the effect can't give it. After the hand-over it
renews an approval that has run out or was taken back.")]
    Approve {
        #[command(flatten)]
        order: OrderArgs,
        /// The version that you saw (`ops show` prints it).
        #[arg(long)]
        seen: i64,
        /// How long it may be used; a gate may allow less.
        #[arg(long, default_value = "30m", value_parser = span)]
        expires: Duration,
    },
    /// Forbid further sends. What has happened stays happened.
    #[command(after_help = "Example:
  readback ops cancel op-0137 --reason \"the customer withdrew\"
A cancel may come before its request: it is held for an hour.")]
    Cancel {
        #[command(flatten)]
        order: OrderArgs,
    },
    /// Take an approval back: for good, even if it is delivered again.
    #[command(after_help = "Example:
  readback ops revoke op-0137 --reason \"the buyer has left\"
Before the hand-over it is void at once. After it the owner answers whether it was in time: what has left has left.")]
    Revoke {
        #[command(flatten)]
        order: OrderArgs,
        /// Which approval; without it the one that is held or in use.
        #[arg(long)]
        approval: Option<String>,
    },
    /// Say of all operations of an incident what happened: you have looked at the target.
    #[command(after_help = "Example:
  readback ops resolve-all --status parked --code RB0235 --call mail#send --applied --expect 17 --reason \"INC-42: all are in the outbox\"
Each is resolved on the version that is shown now; --expect is how many you saw (`--dry-run` lists them). Before settle,
`--not-applied` needs a second person for each.")]
    ResolveAll(bulk::BulkArgs),
    /// Send nothing for now: to a target, of a tenant, by a step, or at all.
    #[command(after_help = "Examples:
  readback ops pause --target mail#send --reason \"INC-42: the gateway repeats\"
  readback ops pause --everything --reason \"INC-42\"
Nothing new is sent in its scope until `resume`; what has left is read back as always, deadlines and cancels go on.
It survives restarts, and is in force once every partition has taken it. Exit code 3 where some have not.")]
    Pause(pause::PauseArgs),
    /// Send again what was paused.
    #[command(after_help = "Example:
  readback ops resume --target mail#send --reason \"INC-42 is over\"")]
    Resume(pause::PauseArgs),
    /// List what is paused.
    Paused,
    /// Let the operations behind a parked one go on.
    #[command(after_help = "Example:
  readback ops release-lane op-0137 --reason \"later orders of this resource do not depend on it\"")]
    ReleaseLane {
        #[command(flatten)]
        order: OrderArgs,
    },
}

/// What every command needs.
#[derive(Debug, Args)]
struct OrderArgs {
    /// The operation ID, root or derived.
    operation: String,
    /// Its tenant, where the ID is not unique.
    #[arg(long)]
    tenant: Option<String>,
    /// Why; kept beside the decision, its first 500 characters.
    #[arg(long)]
    reason: String,
    /// Who decides.
    #[arg(long, env = "USER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    by: String,
    /// The second person, where one is needed (before settle).
    #[arg(long)]
    second: Option<String>,
    /// What you looked at: a link or reference.
    #[arg(long)]
    evidence: Option<String>,
}

/// Runs `readback ops …` over any cluster.
pub fn run<C: Cluster>(args: &OpsArgs, cluster: &C, format: Format) -> Result<ExitCode> {
    let app = the_app(args.app.as_deref(), cluster)?;
    let mut operations = Operations::open(cluster, &app)?;
    super::progress::catch_up(&mut operations)?;
    let now = SystemClock.now().wall;
    match &args.what {
        What::List { status, tenant, longer_than, limit } => {
            let since = longer_than.map(|age| WallTime(now.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))));
            list(&operations, (status.as_deref(), tenant.as_deref(), since), *limit, now, format);
            Ok(ExitCode::SUCCESS)
        }
        What::Show { operation, tenant } => {
            let (key, seen) = one(&operations, operation, tenant.as_deref())?;
            let of = |key: &OperationKey| operations.seen.get(key).map(|plan| evidence::ModelCall::of(key, plan));
            let model = evidence::model_call(seen, of);
            timeline::show(key, seen, model.as_ref(), now, format)?;
            Ok(ExitCode::SUCCESS)
        }
        What::Watch { operation, tenant, status, limit } => {
            let what = watch::Watch { operation: operation.as_deref(), tenant: tenant.as_deref(), status: status.as_deref() };
            watch::run(&mut operations, &what, *limit, format)
        }
        What::Resolve { order, applied, seen, .. } => {
            let resolution = if *applied { Resolution::Applied } else { Resolution::NotApplied };
            let order = order.build(&operations, Some(*seen), now)?;
            send(cluster, &app, &mut operations, &commands::resolve(order, resolution), format)
        }
        What::Force { order, seen } => {
            let order = order.build(&operations, Some(*seen), now)?;
            send(cluster, &app, &mut operations, &commands::force(order), format)
        }
        What::Approve { order, seen, expires } => {
            let (key, known) = one(&operations, &order.operation, order.tenant.as_deref())?;
            let terms = orders::Terms { by: &order.by, reason: &order.reason, expires_at: now.plus(*expires) };
            let approval = orders::approval(key, known, Decision::Approve, &terms)?;
            let order = order.build(&operations, Some(*seen), now)?;
            send(cluster, &app, &mut operations, &commands::approve(order, approval), format)
        }
        What::Cancel { order } => {
            let order = order.build(&operations, None, now)?;
            send(cluster, &app, &mut operations, &commands::cancel(order), format)
        }
        What::Revoke { order, approval } => {
            let (key, known) = one(&operations, &order.operation, order.tenant.as_deref())?;
            let terms = orders::Terms { by: &order.by, reason: &order.reason, expires_at: now };
            let approval = orders::revocation(key, known, approval.as_deref(), &terms)?;
            let order = order.build(&operations, None, now)?;
            send(cluster, &app, &mut operations, &commands::revoke(order, approval), format)
        }
        What::Pause(args) => pause::run(args, true, cluster, &app, &mut operations, now, format),
        What::Resume(args) => pause::run(args, false, cluster, &app, &mut operations, now, format),
        What::Paused => {
            pause::list(&operations, now, format);
            Ok(ExitCode::SUCCESS)
        }
        What::ResolveAll(all) => bulk::run(all, cluster, &app, &mut operations, now, format),
        What::ReleaseLane { order } => {
            let order = order.build(&operations, None, now)?;
            send(cluster, &app, &mut operations, &commands::release_lane(order), format)
        }
    }
}

impl OpsArgs {
    /// Where the cluster is.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl OrderArgs {
    fn build(&self, operations: &Operations, seen: Option<i64>, now: WallTime) -> Result<Order> {
        let known = one(operations, &self.operation, self.tenant.as_deref());
        let key = match known {
            Ok((key, _)) => Some(key.clone()),
            // A cancel may come before its operation is known: it is held.
            Err(e) if e.code == codes::UNKNOWN_OPERATION && seen.is_none() => None,
            Err(e) => return Err(e),
        };
        Ok(Order {
            tenant: key.as_ref().map(|k| k.tenant.clone()).or_else(|| self.tenant.as_deref().map(Tenant::new)),
            operation_id: OperationId::new(&self.operation),
            step: key.map(|k| k.step),
            seen,
            by: self.by.clone(),
            second: self.second.clone(),
            via: Some(Via::CommandLine),
            reason: self.reason.clone(),
            evidence: self.evidence.clone(),
            at: now,
            hold: Duration::from_secs(3_600),
        })
    }
}

/// What `--status` takes: the words of results, and `held` for commands that came before their operation.
fn status_words() -> clap::builder::PossibleValuesParser {
    let words = Status::ALL.iter().filter(|s| !s.of_a_message()).map(|s| s.word());
    clap::builder::PossibleValuesParser::new(words.chain(["held"]).map(clap::builder::PossibleValue::new))
}

pub(super) fn span(text: &str) -> std::result::Result<Duration, String> {
    parse_duration(text).ok_or_else(|| format!("`{text}` is no duration; write 5s, 30m, 2h or 7d"))
}

pub(super) fn the_app<C: Cluster>(given: Option<&str>, cluster: &C) -> Result<ApplicationId> {
    if let Some(name) = given {
        super::new::well_named(name)?;
        return Ok(ApplicationId::new(name));
    }
    let all = applications(cluster)?;
    match all.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Error::new(codes::TOPIC_MISSING, Fault::Unreachable, "looking for an application: no topic ends in -outbox")
            .next("check --brokers; an application has operations once it has run")),
        several => {
            let names: Vec<&str> = several.iter().map(ApplicationId::as_str).collect();
            Err(Error::new(codes::USAGE, Fault::Configuration, "choosing the application: the cluster has several")
                .next(format!("give --app: {}", names.join(", "))))
        }
    }
}

fn one<'a>(operations: &'a Operations, id: &str, tenant: Option<&str>) -> Result<(&'a OperationKey, &'a Seen)> {
    let mut found = operations.find(&OperationId::new(id));
    found.retain(|(k, _)| tenant.is_none_or(|t| k.tenant.as_str() == t));
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(Error::new(codes::UNKNOWN_OPERATION, Fault::Verdict, format!("looking for operation {id}: nobody knows it"))
            .next("`readback ops list` shows what is known; closed operations are forgotten after their retention")),
        several => {
            let tenants: Vec<&str> = several.iter().map(|(k, _)| k.tenant.as_str()).collect();
            Err(Error::new(codes::USAGE, Fault::Configuration, format!("looking for operation {id}: it is not unique"))
                .next(format!("give --tenant: {}", tenants.join(", "))))
        }
    }
}

/// Those of a status, of a tenant, and that have stood so since a time.
type Wanted<'a> = (Option<&'a str>, Option<&'a str>, Option<WallTime>);

fn list(operations: &Operations, (status, tenant, since): Wanted<'_>, limit: usize, now: WallTime, format: Format) {
    let mut rows: Vec<(&OperationKey, &Seen)> = operations
        .seen
        .iter()
        .filter(|(_, s)| status.is_none_or(|w| s.status().is_some_and(|s| s.word() == w)))
        .filter(|(k, _)| tenant.is_none_or(|t| k.tenant.as_str() == t))
        .filter(|(_, s)| since.is_none_or(|since| evidence::changed_at(s) < since))
        .collect();
    rows.sort_by_key(|(_, s)| evidence::changed_at(s));
    let total = rows.len();
    rows.truncate(limit);
    if format == Format::Table {
        println!("{:<28} {:<12} {:<20} {:>4} {:>12}  why", "operation", "tenant", "status", "ver", "since");
    }
    for (key, seen) in rows {
        let word = seen.status().map_or("held", |s| s.word());
        let (code, detail) = evidence::why(seen);
        let since = show_duration(now.since(evidence::changed_at(seen)));
        match format {
            Format::Table => println!(
                "{:<28} {:<12} {} {:>4} {since:>12}  {}{}",
                key.operation.as_str(),
                key.tenant.as_str(),
                toned(&format!("{word:<20}"), tone_of(word)),
                seen.version(),
                code.map(|c| format!("{c} ")).unwrap_or_default(),
                detail.unwrap_or_default()
            ),
            Format::Json => println!("{}", line(key, seen)),
        }
    }
    if format == Format::Table && total > limit {
        eprintln!("{limit} of {total} shown; --limit shows more");
    }
}

/// One operation as a line of a list.
pub(super) fn line(key: &OperationKey, seen: &Seen) -> serde_json::Value {
    let (code, detail) = evidence::why(seen);
    json!({
        "schema": "readback.operation/1", "operation": key.operation, "tenant": key.tenant, "step": key.step,
        "status": seen.status().map_or("held", |s| s.word()), "version": seen.version(), "code": code, "detail": detail,
        "changed_at": evidence::changed_at(seen),
    })
}

fn send<C: Cluster>(
    cluster: &C,
    app: &ApplicationId,
    operations: &mut Operations,
    command: &Command,
    format: Format,
) -> Result<ExitCode> {
    orders::publish(cluster, app, command)?;
    if command.step.is_none() {
        let held = "nobody knows this operation yet; the command is held for an hour and answered on the results topic";
        match format {
            Format::Json => {
                println!("{}", json!({ "schema": "readback.command/1", "command": command.command_id, "detail": held }))
            }
            Format::Table => println!("{held}"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(answer) = operations.answer(&command.command_id, Duration::from_secs(20))? else {
        return Err(Error::new(codes::UNKNOWN_OPERATION, Fault::Unreachable, "waiting for the answer to the command")
            .because("no member answered within 20 s")
            .next(format!(
                "the command {} stays in the topic and is answered once a member runs; look again with `ops show`",
                command.command_id
            )));
    };
    match format {
        Format::Json => println!(
            "{}",
            json!({ "schema": "readback.command/1", "command": command.command_id, "code": answer.code, "detail": answer.detail })
        ),
        Format::Table => println!("{}", answer.detail),
    }
    Ok(match answer.code.as_deref() {
        None => ExitCode::SUCCESS,
        Some("RB0709") => ExitCode::from(Fault::Stale.exit_code()),
        Some(code) => {
            eprintln!("refused: {code}; `readback explain {code}` tells more");
            ExitCode::from(Fault::Verdict.exit_code())
        }
    })
}
