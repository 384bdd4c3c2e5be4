//! `readback run T`: be a member of the application's consumer groups.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
use crate::webhooks::Listener;

use super::{Connection, load, supervise};

/// How long addresses may be taken after their owner has said that it left.
const LISTENS: Duration = Duration::from_secs(2);

/// Be a member of the consumer groups of an application, until SIGTERM.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback run topology/orders --brokers localhost:9092 --registry http://localhost:8081
  readback run topology/orders --config readback.yaml --ordinal 2
  readback run topology/orders --supervise
  readback run topology/orders --config readback.yaml --ordinal 2 --take-over
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
    /// Take over from the process that has these slots on this host: prepare everything, ask it to leave, go on at once.
    #[arg(long)]
    take_over: bool,
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
    let listeners = Listeners { config: &config, metrics: &metrics, health: &health, stores: &stores, console: console.as_ref() };
    let listen = || runtime.block_on(listeners.open(&application));
    let waiting = |e: &Error| {
        health.waiting("process", e.to_string());
        tracing::warn!(error = %e, "waiting");
    };
    let prepare = || Process::prepare(&application, &config, &metrics, runtime.handle(), &stop, &waiting);
    let (listening, prepared) = match args.take_over {
        // So that who asks hears what is waited for.
        false => (listen()?, prepare()?),
        true => {
            let mut prepared = prepare()?;
            if let Some(prepared) = &mut prepared {
                prepared.take_over()?;
            }
            // The owner had the addresses.
            (patiently(listen)?, prepared)
        }
    };
    let Some(process) = prepared.map_or(Ok(None), |p| p.start(&stop, &waiting))? else {
        return Ok(ExitCode::SUCCESS);
    };
    let door = process.door(runtime.handle(), &stop);
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
    drop((listening, stores));
    if let Some(door) = door {
        door.left();
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        ProcessEnd::Stopped => Ok(ExitCode::SUCCESS),
        ProcessEnd::Failed(e) => Err(e),
    }
}

/// What this process listens on.
struct Listeners<'a> {
    config: &'a ProcessConfig,
    metrics: &'a prometheus::Registry,
    health: &'a Arc<Health>,
    stores: &'a Option<StoresSlot>,
    console: Option<&'a Arc<Console>>,
}

impl Listeners<'_> {
    async fn open(&self, application: &Application) -> Result<(Option<AdminServer>, Option<Listener>)> {
        let server = match self.config.admin.listen.as_str() {
            "" => None,
            listen => {
                let more = self.console.cloned().map(router).unwrap_or_default();
                let (metrics, health, stores) = (self.metrics.clone(), self.health.clone(), self.stores.clone());
                let server = AdminServer::start(listen, metrics, health, stores, more).await?;
                tracing::info!(address = %server.address, "metrics and health");
                Some(server)
            }
        };
        let webhooks = app::webhooks::listen(application, self.config, self.metrics).await?;
        if let Some(webhooks) = &webhooks {
            tracing::info!(listens = %webhooks.address, "webhooks");
        }
        Ok((server, webhooks))
    }
}

/// Listens where somebody may be about to stop listening.
fn patiently<T>(listen: impl Fn() -> Result<T>) -> Result<T> {
    let taken = |e: &Error| {
        let cause = e.source.as_ref().and_then(|s| s.downcast_ref::<std::io::Error>());
        cause.is_some_and(|e| e.kind() == std::io::ErrorKind::AddrInUse)
    };
    let until = Instant::now() + LISTENS;
    loop {
        match listen() {
            Err(e) if taken(&e) && Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            done => return done,
        }
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
