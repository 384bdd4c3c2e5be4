//! `readback ops pause|resume|paused`: what may not be sent for now. Reads go on, and what has left has left.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::admin::orders::publish_switch;
use crate::admin::views::Operations;
use crate::console::audit::Came;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, CommandId, StepName, Tenant};
use crate::intents::{Scope, Switch};
use crate::kafka::Cluster;
use crate::time::{WallTime, show_duration};

use super::Format;
use super::scribe::Scribe;

/// How long partitions are waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is paused, who orders it, and why.
#[derive(Debug, Args)]
pub(super) struct PauseArgs {
    /// A contract, or one of its calls: `mail`, `mail#send`.
    #[arg(long)]
    target: Option<String>,
    /// A tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// An effect step.
    #[arg(long)]
    step: Option<String>,
    /// All sends of the application.
    #[arg(long)]
    everything: bool,
    /// Why; kept while it is paused.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,
    /// Who decides.
    #[arg(long, env = "USER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    by: String,
}

impl PauseArgs {
    fn scope(&self) -> Result<Scope> {
        let all = [
            self.target.clone().map(Scope::Target),
            self.tenant.as_deref().map(|t| Scope::Tenant(Tenant::new(t))),
            self.step.as_deref().map(|s| Scope::Step(StepName::new(s))),
            self.everything.then_some(Scope::Everything),
        ];
        let mut named = all.into_iter().flatten();
        match (named.next(), named.next()) {
            (Some(scope), None) => Ok(scope),
            _ => Err(Error::new(codes::USAGE, Fault::Configuration, "pausing or going on: one scope is needed")
                .next("give --target, --tenant, --step or --everything")),
        }
    }
}

/// Pauses or goes on, and waits until every partition has taken it.
///
/// # Errors
/// Usage; what the cluster says.
pub(super) fn run<C: Cluster>(
    args: &PauseArgs,
    paused: bool,
    cluster: &C,
    app: &ApplicationId,
    operations: &mut Operations,
    now: WallTime,
    format: Format,
) -> Result<ExitCode> {
    let scribe = Scribe::new(cluster, app, &args.by, &args.reason);
    let mut entry = scribe.entry(if paused { "pause" } else { "resume" });
    let command_id = CommandId::from(uuid::Uuid::new_v4().to_string());
    entry.command = Some(command_id.to_string());
    let scope = match args.scope() {
        Ok(scope) => scope,
        Err(e) => return scribe.refused(entry, e),
    };
    entry.scope = Some(crate::outbox::cut(&scope.to_string()));
    let order = Switch { command_id, scope, paused, by: args.by.clone(), reason: args.reason.clone(), at: now };
    scribe.begin(&entry)?;
    let taken = publish_switch(cluster, app, &order).and_then(|()| operations.until_switched(&order, PATIENCE));
    let (taken, all) = match taken {
        Ok(taken) => (taken, operations.partitions()),
        Err(e) => {
            scribe.came(entry, Came::Unanswered, Some(e.code.to_string()), &e.to_string());
            return Err(e);
        }
    };
    let came = if taken < all { Came::Unanswered } else { Came::Answered };
    scribe.came(entry, came, None, &format!("{taken} of {all} partitions have taken it"));
    match format {
        Format::Json => println!(
            "{}",
            json!({ "schema": "readback.switch/1", "scope": order.scope.to_string(), "paused": paused, "taken": taken, "partitions": all })
        ),
        Format::Table => {
            println!("{} {}: {taken} of {all} partitions", order.scope, if paused { "paused" } else { "goes on" });
        }
    }
    if taken < all {
        eprintln!("the others take it once a member runs; `readback ops paused` shows how far it is");
        return Ok(ExitCode::from(Fault::Unreachable.exit_code()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists what is paused.
pub(super) fn list(operations: &Operations, now: WallTime, format: Format) {
    let mut scopes: BTreeMap<&Scope, (usize, &Switch)> = BTreeMap::new();
    for ((scope, _), switch) in &operations.paused {
        scopes.entry(scope).or_insert((0, switch)).0 += 1;
    }
    let all = operations.partitions();
    for (scope, (taken, s)) in scopes {
        match format {
            Format::Json => println!(
                "{}",
                json!({
                    "schema": "readback.switch/1", "scope": scope.to_string(), "paused": true, "taken": taken, "partitions": all,
                    "by": s.by, "reason": s.reason, "at": s.at,
                })
            ),
            Format::Table => {
                let since = show_duration(now.since(s.at));
                println!("{scope} · paused for {since} by {} ({taken} of {all} partitions): {}", s.by, s.reason);
            }
        }
    }
}
