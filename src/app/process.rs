//! A running process: clients, units, metrics and health, until a signal or a failure ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prometheus::Registry as MetricRegistry;

use crate::agent::{self, HttpFetcher};
use crate::config::{GroupProtocol, ProcessConfig};
use crate::dsl::Application;
use crate::effects;
use crate::error::{Error, Fault, Result, codes};
use crate::events::Tenants;
use crate::http::{HttpPort, HyperPort};
use crate::ids::TopicName;
use crate::kafka::{self, Cluster, RdCluster, RdConfig};
use crate::registry::{Ensure, Registry, RegistryAuth, Trust};
use crate::runtime::{
    GlobalReader, GlobalThread, KafkaStreams, Metrics, Pulse, RuntimeOptions, SlotChoice, State, UnitRun, detect_slots,
};
use crate::serdes::AvroCodec;
use crate::state::StateManager;
use crate::task::UnitPlan;
use crate::time::{SharedClock, SystemClock};

use super::compose::{Composed, Edges, Schemas, Weakened, compose, external_counts, external_topics, require_external};
use super::deployed;
use super::handover::{self, Door, Outcome, Place};
use super::places::{directory, freed, named, place};
use super::purge::{Purge, purged};
use super::resting::Resting;
use super::stores::Stores;
use super::traces::Traces;
use super::watch::{Metrics as SettingsMetrics, Watch, Watched};
use super::{check, loss};

/// Longest time for an input that is given by locator.
const FETCH_LIMIT: Duration = Duration::from_secs(10);

/// What a second SIGTERM or SIGINT does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecondSignal {
    /// Ends the process where it is: somebody is in a hurry.
    Exits,
    /// Nothing more: where a supervisor passes signals on, one stop may come twice.
    IsTheSame,
}
/// Least and longest time for the last spans to be sent.
const LAST_SPANS: Duration = Duration::from_millis(500);
const FLUSH: Duration = Duration::from_secs(5);
/// How long a directory may be locked after its owner has said that it left.
const FREED: Duration = Duration::from_secs(5);

/// How a process ended.
#[derive(Debug)]
pub enum ProcessEnd {
    /// By a signal, in order.
    Stopped,
    /// By a failure of its threads.
    Failed(Error),
}

/// A started process.
pub struct Process {
    streams: KafkaStreams,
    globals: Option<GlobalThread>,
    stores: Stores,
    state: StateManager,
    purge: Option<Purge>,
    resting: Option<Resting>,
    traces: Traces,
    watch: Option<Watch>,
    stop_within: Duration,
    place: Option<Place>,
}

/// The client's settings of this configuration.
pub fn kafka_config(config: &ProcessConfig) -> RdConfig {
    let mut rd = RdConfig::new(config.brokers.clone());
    rd.session = config.group.session_timeout.0;
    rd.protocol = config.group.protocol;
    rd.security = config.security.clone();
    rd.settings = config.kafka.clone();
    rd
}

/// The registry of this configuration, where one is named.
pub fn registry(config: &ProcessConfig) -> Result<Option<Registry>> {
    let section = &config.registry;
    if section.url.is_empty() {
        return Ok(None);
    }
    let auth = match (&section.token, &section.username, &section.password) {
        (Some(token), _, _) => RegistryAuth::Bearer(token.clone()),
        (None, Some(user), Some(password)) => RegistryAuth::Basic { user: user.clone(), password: password.clone() },
        _ => RegistryAuth::None,
    };
    let trust = Trust { ca: section.ca.clone(), identity: section.identity.clone() };
    Registry::trusting(&section.url, auth, trust).map(Some)
}

/// Schemas of public topics from a registry, registered or required.
struct Registered<'a> {
    registry: Option<&'a Registry>,
    register: bool,
}

impl Schemas for Registered<'_> {
    fn id_of(&self, subject: &str, avsc: &str) -> Result<Option<u32>> {
        let mode = if self.register { Ensure::Register } else { Ensure::MustExist };
        self.registry.map(|r| r.ensure(subject, avsc, mode)).transpose()
    }
}

/// A process with all that it needs but its place: what a start may be refused for has been looked at, and nothing was joined, fenced
/// or locked.
pub struct Prepared<'a> {
    application: &'a Application,
    config: &'a ProcessConfig,
    cluster: RdCluster,
    composed: Composed,
    avro: Option<Arc<dyn AvroCodec>>,
    clock: SharedClock,
    traces: Traces,
    metrics: &'a MetricRegistry,
    options: RuntimeOptions,
    /// How long the state directory may still be locked: its owner has said that it leaves.
    patience: Duration,
}

impl Process {
    /// Starts `application` on a real cluster. An unreachable broker or registry is waited for, with the reason told by `waiting`;
    /// `None` where `stop` was set meanwhile.
    pub fn start(
        application: &Application,
        config: &ProcessConfig,
        metrics: &MetricRegistry,
        runtime: &tokio::runtime::Handle,
        stop: &AtomicBool,
        waiting: &dyn Fn(&Error),
    ) -> Result<Option<Self>> {
        let prepared = Self::prepare(application, config, metrics, runtime, stop, waiting)?;
        prepared.map_or(Ok(None), |p| p.start(stop, waiting))
    }

    /// As [`start`](Self::start), as far as it goes while somebody else lives in the slots.
    pub fn prepare<'a>(
        application: &'a Application,
        config: &'a ProcessConfig,
        metrics: &'a MetricRegistry,
        runtime: &tokio::runtime::Handle,
        stop: &AtomicBool,
        waiting: &dyn Fn(&Error),
    ) -> Result<Option<Prepared<'a>>> {
        let mut client = kafka_config(config);
        client.metrics = Some(kafka::Metrics::new(metrics)?);
        let cluster = RdCluster::new(client)?;
        let registry = registry(config)?;
        let clock: SharedClock = Arc::new(SystemClock);
        let http: Arc<dyn HttpPort> = Arc::new(HyperPort::new(runtime.clone(), clock.clone(), None)?);
        let traces = Traces::start(&application.id, config, &http, runtime, metrics)?;
        let tenants = Tenants::declared(config.metrics.tenants.iter().cloned());
        let shared = effects::Shared::measured(effects::Metrics::new(metrics, tenants.clone())?).traced(traces.tracer.clone());
        let avro = registry.clone().map(|r| Arc::new(r) as Arc<dyn AvroCodec>);
        let edges = Edges {
            fetcher: Some(Arc::new(HttpFetcher { http: http.clone(), private: false, timeout: FETCH_LIMIT })),
            http,
            avro: avro.clone(),
            incarnation: uuid::Uuid::new_v4().simple().to_string()[..12].to_owned(),
            shared: Arc::new(shared),
            metrics: Some(agent::Metrics::new(metrics, tenants)?),
            tracer: traces.tracer.clone(),
            weakened: Weakened::of_process(),
        };
        let schemas = Registered { registry: registry.as_ref(), register: config.registry.register };
        let options = options(config);
        let composed = patiently(stop, config, waiting, || {
            let admin = cluster.admin().map_err(crate::runtime::error_of)?;
            refuse_settings(config, admin.as_ref())?;
            create_external(application, config, admin.as_ref())?;
            let counts = external_counts(application, admin.as_ref())?;
            require_external(application, config, &counts)?;
            let composed = compose(application, config, &counts, &schemas, &edges)?;
            refuse_protocol(config, &composed)?;
            loss::refuse(&cluster, application, &composed.layout, config.topics.accept_reset.as_deref())?;
            KafkaStreams::check(&cluster, &units(&composed, config), &options)?;
            Ok(composed)
        })?;
        let patience = Duration::ZERO;
        let prepared =
            |composed| Prepared { application, config, cluster, composed, avro, clock, traces, metrics, options, patience };
        Ok(composed.map(prepared))
    }

    /// Lets a successor of the same slots ask this process to leave, by setting `stop`; `None` where state is in memory.
    pub fn door(&self, runtime: &tokio::runtime::Handle, stop: &Arc<AtomicBool>) -> Option<Door> {
        let within = self.stop_within + FLUSH;
        let dir = self.state.dir()?;
        Some(Door::open(runtime, dir, self.place.clone()?, within, stop.clone()))
    }

    /// Its stores, for queries: `process.stores().store("counts")`.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// For a probe that asks whether a thread is stuck.
    pub fn pulse(&self) -> Pulse {
        self.streams.pulse()
    }

    /// What the threads are about.
    pub fn state(&self) -> State {
        self.streams.state()
    }

    /// Waits for a signal or a failure, telling each change of state and of what is waited for; then stops in order within the
    /// configured bound.
    pub fn run(mut self, stop: &AtomicBool, changed: &dyn Fn(State, Option<&str>)) -> ProcessEnd {
        let (mut last, mut broken) = (None, None);
        while !stop.load(Ordering::Acquire) {
            let state = self.streams.wait(Duration::from_millis(200), |s| last.as_ref().is_none_or(|(l, _)| *l != s));
            let now = (state, self.streams.waits_for());
            if last.as_ref() != Some(&now) {
                changed(state, now.1.as_deref());
                last = Some(now);
            }
            let unset = || self.watch.as_ref().and_then(Watch::broken);
            broken = self.globals.as_ref().and_then(GlobalThread::failure).or_else(unset);
            if broken.is_some() || matches!(state, State::Failed | State::Stopped) {
                break;
            }
        }
        let until = Instant::now() + self.stop_within;
        drop((self.purge.take(), self.resting.take(), self.watch.take()));
        let ended = self.streams.stop(self.stop_within).and(broken.map_or(Ok(()), Err));
        drop(self.globals.take());
        let closed = self.state.close();
        // The last spans are those of the last commit. Half a second is theirs in any case.
        self.traces.stop(until.saturating_duration_since(Instant::now()).clamp(LAST_SPANS, FLUSH));
        match ended.and(closed) {
            Ok(()) => ProcessEnd::Stopped,
            Err(e) => ProcessEnd::Failed(e),
        }
    }
}

impl Prepared<'_> {
    /// Makes the clients and asks the owner of these slots to leave. Where there is none that answers, the start that follows is as any
    /// other.
    ///
    /// # Errors
    /// `BAD_VALUE` where nothing names the slots, `HANDOVER_REFUSED` where the owner stays; what makes clients fail.
    pub fn take_over(&mut self) -> Result<Outcome> {
        let Some(place) = named(self.application, self.config, self.options.slots) else {
            return Err(Error::new(
                codes::BAD_VALUE,
                Fault::Configuration,
                format!("taking over slots of {}", self.application.id),
            )
            .because("nothing names them: this process would take the first that are free")
            .next("give the owner's --ordinal"));
        };
        KafkaStreams::prepare(&self.cluster, &units(&self.composed, self.config), &self.options)?;
        let dir = directory(self.application, self.config, place.first);
        let outcome = handover::ask(&dir, &place);
        match &outcome {
            Outcome::Left(waited) => tracing::info!(waited_ms = waited.as_millis() as u64, "the owner has handed over"),
            Outcome::Gone => tracing::warn!("the owner was to leave and has not said that it has; the lock on its directory tells"),
            Outcome::Nobody => tracing::warn!(dir = %dir.display(), "no owner can be asked to hand over; starting as usual"),
            Outcome::Silent(why) => tracing::warn!(why, "the owner does not answer to a hand-over; starting as usual"),
            Outcome::Refused(why) => {
                return Err(Error::new(codes::HANDOVER_REFUSED, Fault::Configuration, format!("taking over {}", dir.display()))
                    .because(why.clone())
                    .next("nothing has changed: the owner goes on. Start with its ordinal and threads, or stop it first"));
            }
        }
        if matches!(outcome, Outcome::Left(_) | Outcome::Gone) {
            self.patience = FREED;
        }
        Ok(outcome)
    }

    /// Takes the place and starts the threads; `None` where `stop` was set meanwhile.
    pub fn start(self, stop: &AtomicBool, waiting: &dyn Fn(&Error)) -> Result<Option<Process>> {
        let Self { application, config, cluster, composed, avro, clock, traces, metrics, mut options, patience } = self;
        let layout = composed.layout.clone();
        let recorded = Metrics::new(metrics)?;
        let (state, slots) = freed(patience, || place(application, config, options.slots))?;
        options.slots = slots;
        let (plans, globals) = &composed.globals;
        let open = || {
            let mut reader = GlobalReader::open(&cluster, plans, globals, &state)?;
            reader.as_mut().map_or(Ok(()), |r| r.bootstrap(stop))?;
            Ok(reader)
        };
        let Some(reader) = patiently(stop, config, waiting, open)? else { return Ok(None) };
        let stores =
            Stores::new(composed.stream.unit.clone(), composed.stores.clone(), state.views().clone(), globals.clone(), avro);
        let units = units(&composed, config);
        let start = || KafkaStreams::begin(&cluster, units.clone(), &state, &clock, &options, &recorded);
        let Some(streams) = patiently(stop, config, waiting, start)? else { return Ok(None) };
        let behind = units.iter().map(|u| purged(&u.plan)).collect();
        let purge = Some(Purge::start(cluster.clone(), behind));
        let resting = application.dead_letters.clone().map(|t| Resting::start(cluster.clone(), t, recorded.clone()));
        deployed::keep_aside(&cluster, application, &layout, config.topics.replication);
        let globals = reader.map(GlobalThread::start);
        let every = config.topics.watch.0;
        let settings = SettingsMetrics::new(metrics)?;
        let watched = Watched {
            own: check::internal(application, &layout),
            users: external_topics(application),
            brokers: config.brokers.clone(),
        };
        let watch = (!every.is_zero()).then(|| Watch::start(cluster.clone(), watched, every, settings));
        let place = named(application, config, slots);
        let stop_within = config.stop_within.0;
        Ok(Some(Process { streams, globals, stores, state, purge, resting, watch, traces, stop_within, place }))
    }
}

/// The units of a process, with their threads.
fn units(composed: &Composed, config: &ProcessConfig) -> Vec<UnitRun> {
    let stream = UnitRun { plan: composed.stream.clone(), threads: config.threads.stream };
    let effects = composed.effects.iter().map(|plan| UnitRun { plan: plan.clone(), threads: config.threads.effects });
    std::iter::once(stream).chain(effects).collect()
}

/// Tries again while something can't be reached, once a second; `None` once `stop` is set.
fn patiently<T>(
    stop: &AtomicBool,
    config: &ProcessConfig,
    waiting: &dyn Fn(&Error),
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<Option<T>> {
    loop {
        match attempt() {
            Err(e) if e.fault == Fault::Unreachable && stop.load(Ordering::Acquire) => return Ok(None),
            Err(e) if e.code == codes::BROKER_UNREACHABLE => {
                waiting(&e.next(format!("check that {} answers; it is tried again until it does", config.brokers)));
            }
            Err(e) if e.fault == Fault::Unreachable => waiting(&e),
            other => return other.map(Some),
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// C052: times and a protocol that the broker does not take are refused with both sides of it. A process that may not ask for them
/// finds out by the client's own error.
fn refuse_settings(config: &ProcessConfig, admin: &dyn crate::kafka::Admin) -> Result<()> {
    let found = match admin.broker_config() {
        Err(fault) if fault.class == crate::kafka::Class::Config => return Ok(()),
        found => found.map_err(crate::runtime::error_of)?,
    };
    let timeouts = check::timeouts(config, &found).into_iter().map(|finding| (codes::RESERVED_SETTING, finding));
    let protocol = check::protocol(config, &found).into_iter().map(|finding| (codes::PROTOCOL_REFUSED, finding));
    match timeouts.chain(protocol).next() {
        Some((code, finding)) => Err(Error::new(code, Fault::Configuration, finding.text).next(finding.hint)),
        None => Ok(()),
    }
}

/// KIP-848 gives no slots: refused where a unit rests on its slot.
fn refuse_protocol(config: &ProcessConfig, composed: &Composed) -> Result<()> {
    let mut units = std::iter::once(&composed.stream).chain(&composed.effects);
    match units.find_map(UnitPlan::needs_slots).filter(|_| config.group.protocol == GroupProtocol::Consumer) {
        Some(why) => {
            let what = format!("joining {} by group.protocol: consumer", composed.stream.group);
            Err(Error::new(codes::PROTOCOL_REFUSED, Fault::Configuration, what)
                .because(why)
                .next("leave group.protocol out, or run the steps without stores as an application of their own"))
        }
        None => Ok(()),
    }
}

/// Creates the user's topics where the configuration says so.
fn create_external(application: &Application, config: &ProcessConfig, admin: &dyn crate::kafka::Admin) -> Result<()> {
    if !config.topics.create {
        return Ok(());
    }
    let new: Vec<crate::kafka::NewTopic> = external_topics(application)
        .into_iter()
        .map(|name| crate::kafka::NewTopic {
            name,
            partitions: config.topics.partitions,
            replication: config.topics.replication,
            config: Default::default(),
        })
        .collect();
    admin.create(&new).map_err(crate::runtime::error_of)?;
    new.iter().try_for_each(|t| crate::runtime::wait_for_topic(admin, &t.name))
}

fn options(config: &ProcessConfig) -> RuntimeOptions {
    let slots = match config.slots.ordinal {
        Some(n) => SlotChoice::Ordinal(n),
        None => detect_slots(&host_name()),
    };
    RuntimeOptions {
        slots,
        commit_interval: config.group.commit_interval.0,
        transaction_timeout: config.group.transaction_timeout.0,
        session_timeout: config.group.session_timeout.0,
        lists_slots: config.group.protocol == GroupProtocol::Classic,
        create_topics: config.topics.create,
        finish_within: config.stop_within.0 / 2,
        accept_loss: config.topics.accept_loss.iter().map(TopicName::new).collect(),
        replication: config.topics.replication,
        standby: config.state.standby,
        ..RuntimeOptions::default()
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A flag that SIGTERM and SIGINT set, and what a second one does.
pub fn interrupted(runtime: &tokio::runtime::Handle, second: SecondSignal) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let _inside = runtime.enter();
    let refused = |e: std::io::Error| Error::new(codes::BUG, Fault::Bug, "listening for signals").because(e);
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(refused)?;
    let mut int = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).map_err(refused)?;
    runtime.spawn(async move {
        // Not the flag itself: a hand-over sets it too, and is no signal.
        let mut told = false;
        loop {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            if told && second == SecondSignal::Exits {
                std::process::exit(130);
            }
            told = true;
            flag.store(true, Ordering::Release);
        }
    });
    Ok(stop)
}
