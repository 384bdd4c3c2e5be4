//! `readback ops`: operations, their evidence, and commands on them. Reads committed records; writes commands only.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::admin::views::{Operations, Seen, applications};
use crate::admin::{evidence, orders};
use crate::console::act::Action;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, OperationId, OperationKey};
use crate::intents::{Decision, Resolution};
use crate::kafka::Cluster;
use crate::outbox::commands;
use crate::time::{Clock, SystemClock, parse_duration};

use super::{Connection, Format, bulk, pause, timeline, watch};

mod api;
mod desk;
mod list;
mod remote;

use api::ApiArgs;
use desk::{Desk, OrderArgs, SecondArgs, Wanted};
use list::status_words;

pub(super) use list::line_of as line;

/// Look at operations and decide what nobody else can.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback ops list --status parked                       what waits for a person
  readback ops show op-0137                               what was sent, answered and read back
  readback ops resolve op-0137 --applied --reason \"order 8812 is in the console\" --seen 7
  readback ops approve op-0140 --reason \"checked with the buyer\" --seen 4
Reading needs a broker only; a command is answered by the member that owns the operation, and stands on <app>-audit before it is given.
By the topics names are recorded as given. With --api list, show, resolve, force, approve, deny, cancel, release-lane, waiting and confirm go
through a console: by your own token, with its roles and its second person.
Exit codes: 0 done · 1 refused · 2 usage · 3 nobody answers · 4 it has changed since you looked")]
pub struct OpsArgs {
    #[command(flatten)]
    connection: Connection,
    /// The application; may be left out where the cluster has one only.
    #[arg(long, env = "READBACK_APP", global = true)]
    app: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List operations, the oldest change first.
    #[command(after_help = "Examples:
  readback ops list --status unknown,parked --target mail#send      of one call
  readback ops list --search order/8812                             what ID or resource contains
  readback ops list --limit 20 --after 19a2b3c4d5e-1f               the page behind a place that was printed
The filters are those of the console's search. With --output json a last line `readback.page/1` names the next page, where there is one.")]
    List(list::ListArgs),
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
  readback ops resolve op-0137 --not-applied --reason \"no order under this reference\" --seen 7 --ask-second --api https://console
Before settle, `--not-applied` needs a second person: what has left may still arrive. They confirm it by their own token (`ops confirm`).")]
    Resolve {
        #[command(flatten)]
        order: OrderArgs,
        #[command(flatten)]
        second: SecondArgs,
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
  readback ops force op-0137 --reason \"the target was restored from a backup\" --seen 7 --ask-second --api https://console
Before settle it needs a second person, who confirms it by their own token (`ops confirm`): what has left may still arrive, and then there
are two effects.
Deadline, approval, target version and policy are asked once more; what they forbid is not sent.")]
    Force {
        #[command(flatten)]
        order: OrderArgs,
        #[command(flatten)]
        second: SecondArgs,
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
    /// Deny the plan that you saw; after the hand-over, take back the approval that was spent.
    #[command(after_help = "Example:
  readback ops deny op-0137 --reason \"above the budget\" --seen 4
Before the hand-over a denial ends the operation. After it the owner answers whether it was in time: what has left has left.")]
    Deny {
        #[command(flatten)]
        order: OrderArgs,
        /// The version that you saw (`ops show` prints it).
        #[arg(long)]
        seen: i64,
    },
    /// List orders that wait for a second person; needs --api.
    Waiting,
    /// Confirm an order that waits, as the second person; needs --api, and a token of your own.
    #[command(after_help = "Example:
  readback ops confirm 5be2… --reason \"looked myself: no order there\" --api https://console
It becomes the command that the first person gave, on the version that they saw.")]
    Confirm {
        /// Which: the ID that `ops waiting` prints.
        command: String,
        /// Why; kept beside the decision, its first 500 characters.
        #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
        reason: String,
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

/// How long a denial may take to where it is decided.
const DENIAL: Duration = Duration::from_secs(30 * 60);

/// Runs `readback ops …`: over a console where one is named, else by the topics.
///
/// # Errors
/// What the console or the cluster says.
pub fn main(args: &OpsArgs, format: Format) -> Result<ExitCode> {
    match args.api.open()? {
        Some(api) => remote::run(&api, &args.what, SystemClock.now().wall, format),
        None => run(args, &super::on_cluster(&args.connection)?, format),
    }
}

/// Runs `readback ops …` over any cluster.
///
/// # Errors
/// What the cluster says; what an order is refused for.
pub fn run<C: Cluster>(args: &OpsArgs, cluster: &C, format: Format) -> Result<ExitCode> {
    if matches!(args.what, What::Waiting | What::Confirm { .. }) {
        return Err(Error::new(codes::USAGE, Fault::Configuration, "asking for orders that wait: they wait at the console")
            .next("name it with --api, or in READBACK_API"));
    }
    let app = the_app(args.app.as_deref(), cluster)?;
    let mut operations = Operations::open(cluster, &app)?;
    super::progress::catch_up(&mut operations)?;
    let now = SystemClock.now().wall;
    match &args.what {
        What::List(args) => {
            let (rows, next, all) = list::page(&operations.seen, args, now)?;
            list::print(&rows, next.map(|c| c.text()).as_deref(), Some(all), now, format);
            Ok(ExitCode::SUCCESS)
        }
        What::Show { operation, tenant } => {
            let (key, seen) = one(&operations, operation, tenant.as_deref())?;
            let look = |key: &OperationKey| operations.seen.get(key).map(evidence::Stands::of);
            timeline::show(key, seen, &evidence::Around::of(key, seen, look), now, format)?;
            Ok(ExitCode::SUCCESS)
        }
        What::Watch { operation, tenant, status, limit } => {
            let what = watch::Watch { operation: operation.as_deref(), tenant: tenant.as_deref(), status: status.as_deref() };
            watch::run(&mut operations, &what, *limit, format)
        }
        What::Pause(args) => pause::run(args, true, cluster, &app, &mut operations, now, format),
        What::Resume(args) => pause::run(args, false, cluster, &app, &mut operations, now, format),
        What::Paused => {
            pause::list(&operations, now, format);
            Ok(ExitCode::SUCCESS)
        }
        What::ResolveAll(all) => bulk::run(all, cluster, &app, &mut operations, now, format),
        order => ordered(order, &mut Desk { cluster, app: &app, operations: &mut operations, now, format }),
    }
}

/// Orders about one operation.
fn ordered<C: Cluster>(what: &What, desk: &mut Desk<'_, C>) -> Result<ExitCode> {
    let (now, alone) = (desk.now, SecondArgs::default());
    let on = |action: Action, seen, second| Wanted { action: action.word(), seen, second };
    match what {
        What::Resolve { order, second, applied, seen, .. } => {
            let resolution = if *applied { Resolution::Applied } else { Resolution::NotApplied };
            let wanted = on(Action::Resolve(resolution), Some(*seen), second);
            desk.give(order, &wanted, &|order, _| Ok(commands::resolve(order, resolution)))
        }
        What::Force { order, second, seen } => {
            desk.give(order, &on(Action::Force, Some(*seen), second), &|order, _| Ok(commands::force(order)))
        }
        What::Approve { order, seen, expires } => desk.give(order, &on(Action::Approve, Some(*seen), &alone), &|order, known| {
            let (key, seen) = known.ok_or_else(|| nobody_knows(order.operation_id.as_str()))?;
            orders::decision(order, key, seen, Decision::Approve, now.plus(*expires))
        }),
        What::Deny { order, seen } => desk.give(order, &on(Action::Deny, Some(*seen), &alone), &|order, known| {
            let (key, seen) = known.ok_or_else(|| nobody_knows(order.operation_id.as_str()))?;
            orders::decision(order, key, seen, Decision::Deny, now.plus(DENIAL))
        }),
        What::Revoke { order, approval } => {
            let wanted = Wanted { action: "revoke", seen: None, second: &alone };
            desk.give(order, &wanted, &|order, known| {
                let (key, seen) = known.ok_or_else(|| nobody_knows(order.operation_id.as_str()))?;
                let terms = orders::Terms { by: &order.by, reason: &order.reason, expires_at: now };
                let approval = orders::revocation(key, seen, approval.as_deref(), &terms)?;
                Ok(commands::revoke(order, approval))
            })
        }
        What::Cancel { order } => desk.give(order, &on(Action::Cancel, None, &alone), &|order, _| Ok(commands::cancel(order))),
        What::ReleaseLane { order } => {
            desk.give(order, &on(Action::ReleaseLane, None, &alone), &|order, _| Ok(commands::release_lane(order)))
        }
        _ => Err(Error::new(codes::BUG, Fault::Bug, "ordering by a command that only looks")),
    }
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
        [] => Err(nobody_knows(id)),
        several => {
            let tenants: Vec<&str> = several.iter().map(|(k, _)| k.tenant.as_str()).collect();
            Err(Error::new(codes::USAGE, Fault::Configuration, format!("looking for operation {id}: it is not unique"))
                .next(format!("give --tenant: {}", tenants.join(", "))))
        }
    }
}

fn nobody_knows(id: &str) -> Error {
    Error::new(codes::UNKNOWN_OPERATION, Fault::Verdict, format!("looking for operation {id}: nobody knows it"))
        .next("`readback ops list` shows what is known; closed operations are forgotten after their retention")
}

#[cfg(test)]
mod tests;
