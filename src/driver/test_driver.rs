//! A whole application under test: records in, records out, stores, time by hand. No thread, no network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::app::{Composed, Edges, Schemas, Stores, Weakened, compose, external_counts};
use crate::config::ProcessConfig;
use crate::dsl::Application;
use crate::effects;
use crate::error::{Code, Error, Fault, Result, codes};
use crate::ids::{ApplicationId, TopicName, Tp, UnitName};
use crate::intents::{Approval, RenderedRequest, ResultRecord, WorkRequest, headers, topics};
use crate::kafka::memory::{Call, Limits, MemoryCluster};
use crate::kafka::{Class, Cluster, Isolation};
use crate::record::{Headers, InRecord, OutRecord};
use crate::runtime::{Metrics, RuntimeOptions, ensure_topics, error_of};
use crate::serdes::AvroCodec;
use crate::serdes::internal::{self, Wire};
use crate::state::{StateConfig, StateManager, Stored};
use crate::task::Dropped;
use crate::time::{Clock, ManualClock, MonoTime, Now, WallTime};

use super::member::{Member, Place};
use super::wire::{Scripted, ScriptedPort};

/// Waits up to this long (a commit's gap, say) pass by themselves within a step.
const SHORT: Duration = Duration::from_millis(100);
/// Rounds of one step, after which the application never comes to rest.
const ROUNDS: u32 = 100_000;

/// A record that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// Its headers.
    pub headers: Headers,
    /// Its time.
    pub timestamp: Option<WallTime>,
}

impl Output {
    fn of(r: InRecord) -> Self {
        Self { key: r.key, value: r.value, headers: r.headers, timestamp: r.timestamp }
    }

    /// The value for people: our own records and JSON as objects, text as text, anything else as hex.
    pub fn json(&self) -> Value {
        fn own<T: Wire>(bytes: &[u8]) -> Option<Value> {
            serde_json::to_value(internal::decode::<T>(bytes).ok()?).ok()
        }
        let Some(bytes) = &self.value else { return Value::Null };
        let schema = self.headers.text(headers::SCHEMA);
        let ours = match schema {
            Some(s) if s == ResultRecord::SCHEMA => own::<ResultRecord>(bytes),
            Some(s) if s == WorkRequest::SCHEMA => own::<WorkRequest>(bytes),
            Some(s) if s == Approval::SCHEMA => own::<Approval>(bytes),
            _ => None,
        };
        let plain = || match std::str::from_utf8(bytes) {
            Ok(text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            Err(_) => crate::intents::hex(bytes).into(),
        };
        ours.unwrap_or_else(plain)
    }
}

/// A record that is fed beside others.
#[derive(Clone, Copy, Debug)]
pub struct Piped<'a> {
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its time; none is the driver's.
    pub timestamp: Option<WallTime>,
}

/// Committed entries of a store.
#[derive(Clone, Debug, Default)]
pub struct StoreView(BTreeMap<Vec<u8>, Stored>);

impl StoreView {
    /// The value under a key's bytes.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&Stored> {
        self.0.get(key.as_ref())
    }
    /// All entries, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Stored)> {
        self.0.iter().map(|(k, v)| (k.as_slice(), v))
    }
}

/// Public Avro is plain JSON in the driver: it needs no registry.
pub(super) struct JsonForAvro;

impl AvroCodec for JsonForAvro {
    fn decode(&self, topic: &TopicName, framed: &[u8]) -> Result<Value> {
        serde_json::from_slice(framed)
            .map_err(|e| Error::new(codes::UNDECODABLE, Fault::Data, format!("reading a value of {topic} as JSON")).because(e))
    }
    fn encode(&self, _topic: &TopicName, value: &Value) -> Result<Vec<u8>> {
        Ok(value.to_string().into_bytes())
    }
}

impl Schemas for JsonForAvro {
    fn id_of(&self, _subject: &str, _avsc: &str) -> Result<Option<u32>> {
        Ok(None)
    }
}

/// Runs an application on the in-process log. After each call everything that follows from it has happened.
///
/// ```
/// use readback::driver::TopologyTestDriver;
/// use readback::dsl::{Consumed, Produced, StreamsBuilder};
/// use readback::record::Headers;
/// use readback::serdes::Serdes;
///
/// let builder = StreamsBuilder::new("shouting");
/// builder
///     .stream("said", Consumed::with(Serdes::string(), Serdes::string()))
///     .filter(|_, said| !said.is_empty())
///     .map_values(|_, said| said.to_uppercase())
///     .to("shouted", Produced::with(Serdes::string(), Serdes::string()));
///
/// let mut driver = TopologyTestDriver::new(&builder.build()?)?;
/// driver.pipe("said", Some(b"kim"), Some(b"hello"), Headers::default(), None)?;
/// driver.pipe("said", Some(b"kim"), Some(b""), Headers::default(), None)?;
/// let shouted: Vec<_> = driver.read_output("shouted").iter().map(|r| r.json()).collect();
/// assert_eq!(shouted, ["HELLO"]);
/// # Ok::<(), readback::error::Error>(())
/// ```
pub struct TopologyTestDriver {
    application: ApplicationId,
    clock: Arc<ManualClock>,
    pub(super) cluster: MemoryCluster,
    pub(super) port: Arc<ScriptedPort>,
    member: Member,
    ground: Ground,
    stores: Stores,
    /// How much of each partition was looked at.
    read: BTreeMap<Tp, usize>,
}

/// What a driver starts with, where the defaults do not do.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// The time when it starts; default 2026-01-01T00:00:00Z.
    pub start: WallTime,
    /// Partitions of the topics that are the user's; default one.
    pub partitions: u32,
    /// Settings of the process; `state.record_cache` bounds what steps with caching hold back.
    pub process: ProcessConfig,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self { start: WallTime(1_767_225_600_000), partitions: 1, process: ProcessConfig::default() }
    }
}

/// What a process is started from.
struct Ground {
    composed: Composed,
    place: Place,
    edges: Edges,
}

/// Stores that begin empty.
fn no_state() -> Result<StateManager> {
    StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true })
}

fn stores_of(composed: &Composed, place: &Place, edges: &Edges) -> Stores {
    let (views, globals) = (place.state.views().clone(), composed.globals.1.clone());
    Stores::new(composed.stream.unit.clone(), composed.stores.clone(), views, globals, edges.avro.clone())
}

impl TopologyTestDriver {
    /// Starts `application` at a fixed time: 2026-01-01T00:00:00Z.
    ///
    /// # Errors
    /// What a real start would say of the application.
    pub fn new(application: &Application) -> Result<Self> {
        Self::with(application, &DriverOptions::default())
    }

    /// Starts `application` at this time.
    ///
    /// # Errors
    /// What a real start would say of the application.
    pub fn at(application: &Application, start: WallTime) -> Result<Self> {
        Self::with(application, &DriverOptions { start, ..DriverOptions::default() })
    }

    /// Starts `application` with these options.
    ///
    /// # Errors
    /// What a real start would say of the application.
    pub fn with(application: &Application, how: &DriverOptions) -> Result<Self> {
        let clock = Arc::new(ManualClock::at(Now { wall: how.start, mono: MonoTime(1_000_000_000) }));
        let cluster = MemoryCluster::with(clock.clone(), Limits { expire: false, ..Limits::default() });
        let graph = &application.topology;
        let own = graph.external_sources().into_iter().chain(graph.external_sinks());
        for topic in own.chain(application.results.iter().chain(&application.dead_letters).cloned()) {
            cluster.create(&topic, how.partitions);
        }
        let port = Arc::new(ScriptedPort::new(application.contracts.clone(), clock.clone()));
        let edges = Edges {
            http: port.clone(),
            avro: Some(Arc::new(JsonForAvro)),
            incarnation: "driver".to_owned(),
            shared: Arc::new(effects::Shared::default()),
            fetcher: None,
            metrics: None,
            tracer: Default::default(),
            weakened: Weakened::default(),
        };
        let admin = cluster.admin().map_err(error_of)?;
        let counts = external_counts(application, admin.as_ref())?;
        let composed = compose(application, &how.process, &counts, &JsonForAvro, &edges)?;
        let options = RuntimeOptions::default();
        let plans: Vec<_> = std::iter::once(&composed.stream).chain(&composed.effects).collect();
        ensure_topics(admin.as_ref(), &plans, &options)?;
        let metrics = Metrics::unread()?;
        let place = Place { cluster: cluster.clone(), clock: clock.clone(), state: no_state()?, number: 0, options, metrics };
        let member = Member::start(&composed, &place)?;
        let stores = stores_of(&composed, &place, &edges);
        let application = application.id.clone();
        let ground = Ground { composed, place, edges };
        let mut driver = Self { application, clock, cluster, port, member, ground, stores, read: BTreeMap::new() };
        driver.settle()?;
        Ok(driver)
    }

    /// The log that it runs on.
    pub fn cluster(&self) -> &MemoryCluster {
        &self.cluster
    }

    /// The time.
    pub fn now(&self) -> WallTime {
        self.clock.now().wall
    }

    /// Feeds one record, and lets everything happen that follows from it. Without a timestamp it is as of now; with one in the
    /// future time moves there first.
    ///
    /// # Errors
    /// What would have ended the process; a call to a target without a scripted answer.
    pub fn pipe(
        &mut self,
        topic: &str,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Headers,
        timestamp: Option<WallTime>,
    ) -> Result<()> {
        if let Some(at) = timestamp {
            self.advance(at.since(self.now()))?;
        }
        let (topic, timestamp) = (TopicName::new(topic), timestamp.or(Some(self.now())));
        let out = OutRecord { topic: &topic, partition: None, timestamp, key, value, headers: Some(&headers) };
        self.cluster.publish(&[out], Duration::ZERO).map_err(error_of)?;
        self.settle()
    }

    /// Feeds several records that lie in the topic before any of them is read: they are processed in one transaction. Each is a
    /// key, a value and a time; the time moves to the latest of them first.
    ///
    /// # Errors
    /// As [`pipe`](Self::pipe).
    pub fn pipe_together(&mut self, topic: &str, records: &[Piped<'_>]) -> Result<()> {
        if let Some(latest) = records.iter().filter_map(|r| r.timestamp).max() {
            self.advance(latest.since(self.now()))?;
        }
        let (topic, now) = (TopicName::new(topic), Some(self.now()));
        let out: Vec<_> = records
            .iter()
            .map(|r| {
                let timestamp = r.timestamp.or(now);
                OutRecord { topic: &topic, partition: None, timestamp, key: r.key, value: r.value, headers: None }
            })
            .collect();
        self.cluster.publish(&out, Duration::ZERO).map_err(error_of)?;
        self.settle()
    }

    /// The next commit is refused and its transaction taken back. What was read into it comes again within a second of the
    /// driver's time: see [`advance`](Self::advance).
    ///
    /// # Errors
    /// As [`pipe`](Self::pipe).
    pub fn abort_next_commit(&mut self) -> Result<()> {
        // The commits of a start are none of those that a test means.
        self.until_running()?;
        self.cluster.fail_next(Call::Commit, None, Class::Abort);
        Ok(())
    }

    /// Says what becomes of the next call of this name: `orders#create`, `orders#create/readback`, `orders#create/version`.
    pub fn script(&mut self, call: &str, what: Scripted) {
        self.port.script(call, what);
    }

    /// Answers every call without a script by a simulated target: it sees the call's name and its request.
    pub fn serve(&mut self, target: impl FnMut(&str, &RenderedRequest) -> Scripted + Send + 'static) {
        self.port.serve(Box::new(target));
    }

    /// A call that still has a scripted answer for which it never came.
    pub fn unplayed(&self) -> Option<String> {
        self.port.left()
    }

    /// Lets time pass, with all that comes due on the way.
    ///
    /// # Errors
    /// As [`pipe`](Self::pipe).
    pub fn advance(&mut self, d: Duration) -> Result<()> {
        let end = self.clock.now().mono.plus(d);
        loop {
            self.settle()?;
            let now = self.clock.now().mono;
            if now >= end {
                return Ok(());
            }
            let due = self.member.next_due().unwrap_or(end).min(end);
            self.clock.advance(due.since(now).max(Duration::from_millis(1)).min(end.since(now)));
        }
    }

    /// What was written to a topic and committed since the last look; of several partitions, one after the other.
    pub fn read_output(&mut self, topic: &str) -> Vec<Output> {
        let all = self.cluster.records(&TopicName::new(topic), Isolation::Committed);
        let mut met: BTreeMap<Tp, usize> = BTreeMap::new();
        let mut fresh = Vec::new();
        for r in all {
            let nth = met.entry(r.tp.clone()).or_default();
            *nth += 1;
            if *nth > self.read.get(&r.tp).copied().unwrap_or(0) {
                fresh.push(Output::of(r));
            }
        }
        self.read.extend(met);
        fresh
    }

    /// The process is killed and its disk lost; another one takes its place and restores everything from the cluster.
    ///
    /// # Errors
    /// What a real start would say.
    pub fn lose_process(&mut self) -> Result<()> {
        self.ground.place.state = no_state()?;
        self.member = Member::start(&self.ground.composed, &self.ground.place)?;
        self.stores = stores_of(&self.ground.composed, &self.ground.place, &self.ground.edges);
        self.settle()?;
        self.until_running()
    }

    fn until_running(&mut self) -> Result<()> {
        for _ in 0..ROUNDS {
            if self.member.is_running() {
                return Ok(());
            }
            self.clock.advance(SHORT);
            self.settle()?;
        }
        Err(Error::new(codes::BUG, Fault::Bug, format!("starting {} in the driver: it never runs", self.application)))
    }

    /// The stores as queries see them: committed data only.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// How many records a step, by name, gave up for this reason.
    pub fn dropped(&self, step: &str, why: Dropped) -> u64 {
        self.ground.place.metrics.dropped(&UnitName::new(self.application.as_str()), step, why)
    }

    /// How many records went to the dead letters with this code.
    pub fn dead_letters(&self, code: Code) -> u64 {
        let units = [UnitName::new(self.application.as_str()), topics::effects_unit(&self.application)];
        units.iter().map(|unit| self.ground.place.metrics.dead_letters(unit, code)).sum()
    }

    /// A store as its changelog has it: committed data only. Empty where there is no such store, or none with a changelog.
    pub fn store(&self, name: &str) -> StoreView {
        let changelog = topics::changelog(&self.application, name);
        let mut entries = BTreeMap::new();
        for r in self.cluster.records(&changelog, Isolation::Committed) {
            let Some(key) = r.key else { continue };
            match r.value {
                Some(value) => drop(entries.insert(key.to_vec(), Stored { value, timestamp: r.timestamp, headers: r.headers })),
                None => drop(entries.remove(&key[..])),
            }
        }
        StoreView(entries)
    }

    /// Turns everything until nobody has anything to do now.
    fn settle(&mut self) -> Result<()> {
        for _ in 0..ROUNDS {
            let mut worked = self.port.pump()? | self.member.read_globals()?;
            let now = self.clock.now().mono;
            for thread in 0..self.member.threads() {
                if self.member.is_due(thread, now) {
                    self.member.turn(thread)?;
                    worked = true;
                }
            }
            let wait = self.member.next_due().map_or(SHORT * 2, |due| due.since(now));
            if !worked && wait > SHORT {
                return Ok(());
            }
            if !worked {
                self.clock.advance(wait);
            }
        }
        Err(Error::new(codes::BUG, Fault::Bug, format!("running {} in the driver: it never comes to rest", self.application)))
    }
}
