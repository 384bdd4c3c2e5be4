//! `readback run T`: be a member of the application's consumer groups.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use crate::admin::{AdminServer, Health, StoresSlot};
use crate::app::{self, Process, ProcessEnd, SecondSignal};
use crate::config::ProcessConfig;
use crate::config::yaml::Diagnostics;
use crate::console::books::Subject;
use crate::console::follow::{Follow, RESTS_AFTER};
use crate::console::server::router;
use crate::console::submit::Doors;
use crate::console::{Console, Settings};
use crate::dsl::Application;
use crate::error::{Error, Fault, Result, codes};
use crate::events;
use crate::ids::ApplicationId;
use crate::kafka::RdCluster;
use crate::runtime::State;
use crate::time::SystemClock;

use super::{Connection, load, supervise};

/// Be a member of the consumer groups of an application, until SIGTERM.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback run topology/orders --brokers localhost:9092 --registry http://localhost:8081
  readback run topology/orders --config readback.yaml --ordinal 2
  readback run topology/orders --supervise
SIGTERM finishes or takes back the open transaction, gives partitions back and exits 0 within `stop_within`.\n\
A process takes the slot of its pod's or host's ordinal, or `--ordinal`; a slot that a live member holds is exit code 5.")]
pub struct RunArgs {
    #[command(flatten)]
    connection: Connection,
    /// The topology: its directory or its `topology.yaml`.
    topology: PathBuf,
    /// This process's ordinal: slot = ordinal × threads + thread.
    #[arg(long)]
    ordinal: Option<u32>,
    /// The state directory; each process takes a directory in it, named by its first slot.
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// Where metrics and health listen; port 0 takes a free one, `""` none.
    #[arg(long)]
    listen: Option<String>,
    /// Accept the loss of state that a refused start named by this word (RB0413).
    #[arg(long, value_name = "WORD")]
    accept_reset: Option<String>,
    /// Start the member as a child, and again at once when it crashes, in the same slot.
    #[arg(long)]
    supervise: bool,
    /// The supervisor that started this member.
    #[arg(long, hide = true, conflicts_with = "supervise")]
    supervised_by: Option<u32>,
}

impl RunArgs {
    fn second_signal(&self) -> SecondSignal {
        if self.supervised_by.is_some() { SecondSignal::IsTheSame } else { SecondSignal::Exits }
    }
}

/// Runs a member.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    if args.supervise {
        return supervise::supervise();
    }
    if let Some(parent) = args.supervised_by {
        supervise::follow(parent)?;
    }
    let declared = load::told(&args.topology)?;
    let application = Arc::new(declared.application);
    let mut config = args.connection.load()?;
    if let Some(n) = args.ordinal {
        config.slots.ordinal = Some(n);
    }
    if let Some(dir) = &args.state_dir {
        config.state.dir.clone_from(dir);
    }
    if let Some(listen) = &args.listen {
        config.admin.listen.clone_from(listen);
    }
    if let Some(word) = &args.accept_reset {
        config.topics.accept_reset = Some(word.clone());
    }
    let runtime = super::http_runtime()?;
    let stop = app::interrupted(runtime.handle(), args.second_signal())?;
    let health = Arc::new(Health::default());
    health.waiting("process", "starting");
    let metrics = registry(&application.id)?;
    let stores = config.admin.stores.then(StoresSlot::default);
    let console = console(&application, declared.warnings, &config, &metrics, args)?;
    let server = match config.admin.listen.as_str() {
        "" => None,
        listen => {
            let more = console.clone().map(router).unwrap_or_default();
            let server = runtime.block_on(AdminServer::start(listen, metrics.clone(), health.clone(), stores.clone(), more))?;
            tracing::info!(address = %server.address, "metrics and health");
            Some(server)
        }
    };
    let webhooks = runtime.block_on(app::webhooks::listen(&application, &config, &metrics))?;
    if let Some(webhooks) = &webhooks {
        tracing::info!(listens = %webhooks.address, "webhooks");
    }
    let waiting = |e: &Error| {
        health.waiting("process", e.to_string());
        tracing::warn!(error = %e, "waiting");
    };
    let Some(process) = Process::start(&application, &config, &metrics, runtime.handle(), &stop, &waiting)? else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(slot) = &stores {
        let _ = slot.set(process.stores().clone());
    }
    let pulse = process.pulse();
    health.watch(move |limit| pulse.silent(limit));
    let last = std::cell::Cell::new(None);
    let ended = process.run(&stop, &|state, waits_for| {
        if last.replace(Some(state)) != Some(state) {
            tracing::info!(?state, waits_for, "state");
        }
        match (state, waits_for) {
            (State::Running, _) => health.ready("process"),
            (other, None) => health.waiting("process", format!("{other:?}").to_lowercase()),
            (other, Some(what)) => health.waiting("process", format!("{}: {what}", format!("{other:?}").to_lowercase())),
        }
    });
    drop((server, webhooks));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match ended {
        ProcessEnd::Stopped => Ok(ExitCode::SUCCESS),
        ProcessEnd::Failed(e) => Err(e),
    }
}

/// Where all metrics are registered: each has the application as a label, since one Prometheus watches many.
fn registry(application: &ApplicationId) -> Result<prometheus::Registry> {
    let labels = [(events::APPLICATION.to_owned(), application.to_string())].into();
    prometheus::Registry::new_custom(None, Some(labels))
        .map_err(|e| Error::new(codes::BUG, Fault::Bug, "making the registry of metrics").because(e))
}

/// The console of this member, where it is wanted.
fn console(
    application: &Arc<Application>,
    warnings: Diagnostics,
    config: &ProcessConfig,
    metrics: &prometheus::Registry,
    args: &RunArgs,
) -> Result<Option<Arc<Console>>> {
    if !config.admin.console || config.admin.listen.is_empty() {
        return Ok(None);
    }
    let cluster = RdCluster::new(app::kafka_config(config))?;
    // A member has work to do: it pays for its console while somebody looks.
    let settings = Settings { follow: Follow::WhileLookedAt(RESTS_AFTER), ..Settings::of(config, &config.admin.listen) };
    let console = Console::start(&cluster, &application.id, &settings, Arc::new(SystemClock))?;
    let avro = app::registry(config)?.map(|r| Arc::new(r) as _);
    let doors = Doors::of(application, avro, config.effects.clock_error.0);
    let subject = Subject { application: application.clone(), config: config.clone(), warnings };
    let console = console.measured(metrics.clone()).taking(doors).of(subject).configured(args.connection.explain()?);
    Ok(Some(Arc::new(console)))
}
