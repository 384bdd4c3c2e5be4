//! The entry: sources in, an [`Application`] out.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use crate::config::yaml::Diagnostics;
use crate::contract::Contract;
use crate::error::codes;
use crate::ids::{ApplicationId, ContractName, StepName, StoreName, TopicName};
use crate::intents::topics;
use crate::outbox::Pipeline;
use crate::processor::StoreRef;
use crate::serdes::SerdeRef;
use crate::state::{ChangelogSpec, EngineKind, StoreSpec};
use crate::topology::{Graph, NodeId, Role, Topology};

use super::global::{self, GlobalKTable};
use super::outlets::Outlets;
use super::source;
use super::suppress::Closing;
use super::table::KTable;
use super::with::{Consumed, Materialized};
use super::{Application, KStream, Policy, RequestTopic};

/// What is being built; streams and tables share it.
pub(super) struct Build {
    pub(super) graph: Graph,
    pub(super) pipelines: Vec<Pipeline>,
    /// Sources of requests, and the sinks where requests end, with their step.
    pub(super) request_sources: BTreeMap<TopicName, SerdeRef<serde_json::Value>>,
    pub(super) request_sinks: Vec<(NodeId, StepName)>,
    pub(super) contracts: BTreeMap<ContractName, Arc<Contract>>,
    pub(super) policies: BTreeMap<String, Policy>,
    pub(super) results: Option<TopicName>,
    pub(super) optimize: bool,
    /// What was repartitioned already, by node: the stream behind the topic.
    pub(super) repartitioned: BTreeMap<NodeId, Box<dyn Any>>,
    /// When the windows of a node close.
    pub(super) closings: BTreeMap<NodeId, Closing>,
}

/// The shared handle.
pub(super) type Shared = Rc<RefCell<Build>>;

/// Builds a topology. Errors are collected and told all at once by [`StreamsBuilder::build`].
///
/// ```
/// use readback::dsl::{Consumed, Produced, StreamsBuilder};
/// use readback::serdes::Serdes;
///
/// let builder = StreamsBuilder::new("routes").dead_letters("orders.dead");
/// let orders = builder.stream("orders", Consumed::with(Serdes::string(), Serdes::json::<serde_json::Value>()));
/// let large = orders.filter(|_, order| order["total"].as_i64() > Some(1_000));
/// large.to("orders.large", Produced::with(Serdes::string(), Serdes::json()));
///
/// let application = builder.build()?;
/// assert!(application.topology.describe().contains("(topic: orders.large)"));
/// # Ok::<(), readback::error::Error>(())
/// ```
pub struct StreamsBuilder {
    pub(super) build: Shared,
    version: i64,
    dead_letters: Option<TopicName>,
}

impl StreamsBuilder {
    /// An empty one; `application` becomes the consumer group and the prefix of internal topics.
    pub fn new(application: impl Into<ApplicationId>) -> Self {
        let build = Build {
            graph: Graph::new(application.into()),
            pipelines: Vec::new(),
            request_sources: BTreeMap::new(),
            request_sinks: Vec::new(),
            contracts: BTreeMap::new(),
            policies: BTreeMap::new(),
            results: None,
            optimize: false,
            repartitioned: BTreeMap::new(),
            closings: BTreeMap::new(),
        };
        Self { build: Rc::new(RefCell::new(build)), version: 1, dead_letters: None }
    }
    /// The author's version of the topology; shown, and put into requests.
    #[must_use]
    pub fn version(mut self, version: i64) -> Self {
        self.version = version;
        self
    }
    /// Fewer internal topics (`topology.optimization=all`): a table's topic is its changelog too, and a stream that is repartitioned
    /// for several steps goes through one topic, under the first one's name. Say so before the first step; turning it on or off
    /// later moves state to other topics.
    #[must_use]
    #[doc(alias = "topology.optimization")]
    pub fn optimize(self) -> Self {
        self.build.borrow_mut().optimize = true;
        self
    }
    /// Where records go that can't be decoded or processed. Without it the thread stops at the first one.
    #[must_use]
    pub fn dead_letters(mut self, topic: impl Into<TopicName>) -> Self {
        self.dead_letters = Some(topic.into());
        self
    }

    /// A topic as a stream. Null values are skipped unless the value serde is [`Serdes::optional`](crate::serdes::Serdes::optional).
    pub fn stream<K, V>(&self, topic: impl Into<TopicName>, consumed: Consumed<K, V>) -> KStream<K, V>
    where
        K: Clone + 'static,
        V: Clone + 'static,
    {
        source::stream(&self.build, topic.into(), None, consumed)
    }

    /// A topic as a table: the newest value of each key, kept in a store; null deletes. `materialized` names the store.
    pub fn table<K, V>(&self, topic: impl Into<TopicName>, materialized: Materialized<K, V>) -> KTable<K, V>
    where
        K: Clone + 'static,
        V: Clone + 'static,
    {
        source::table(&self.build, topic.into(), materialized)
    }

    /// A topic as a table that every process holds whole: the newest value of each key, whatever its partition. `materialized`
    /// names the store.
    #[doc(alias = "globalTable")]
    pub fn global_table<K, V>(&self, topic: impl Into<TopicName>, materialized: Materialized<K, V>) -> GlobalKTable<K, V>
    where
        K: Clone + 'static,
        V: Clone + 'static,
    {
        global::global_table(&self.build, topic.into(), materialized)
    }

    /// A store for processors, connected by [`KStream::process`].
    pub fn store<K, V>(&self, materialized: Materialized<K, V>) -> StoreRef<K, V> {
        store(&self.build, &materialized)
    }

    /// A store for processors that follows a topic (KIP-813): each task keeps its partition's newest values, restored from the topic
    /// itself. Steps may read it; writing is for the topic's owner.
    #[doc(alias = "addReadOnlyStateStore")]
    pub fn read_only_store<K, V>(&self, topic: impl Into<TopicName>, materialized: Materialized<K, V>) -> StoreRef<K, V>
    where
        K: Clone + 'static,
        V: Clone + 'static,
    {
        source::kept_topic(&self.build, topic.into(), &materialized).1
    }

    /// The application, or everything that is wrong with it.
    pub fn build(self) -> Result<Application, Diagnostics> {
        let (version, dead_letters) = (self.version, self.dead_letters);
        let mut d = Diagnostics::new();
        if self.build.borrow().graph.application().is_empty() {
            d.general(codes::MISSING_NAME, "the application needs a name");
        }
        let mut build = self.build.borrow_mut();
        if !build.pipelines.is_empty() {
            show_effects(&mut build, dead_letters.as_ref());
        }
        build.repartitioned.clear();
        let graph = std::mem::replace(&mut build.graph, Graph::new(ApplicationId::new("")));
        for (code, what) in graph.problems() {
            d.general(*code, what.clone());
        }
        let topology = graph.finish();
        let requests = request_topics(&topology, &build);
        let application = Application {
            id: topology.application().clone(),
            version,
            topology,
            pipelines: std::mem::take(&mut build.pipelines),
            requests,
            contracts: std::mem::take(&mut build.contracts),
            policies: std::mem::take(&mut build.policies),
            results: build.results.take(),
            dead_letters,
        };
        d.or(Some(application))
    }

    /// The application's name.
    pub(crate) fn application(&self) -> ApplicationId {
        self.build.borrow().graph.application().clone()
    }

    /// For `declare`.
    pub(crate) fn shared(&self) -> BuildHandle {
        BuildHandle(self.build.clone())
    }
}

/// The builder's inside for `declare`, which adds what its files hold.
pub(crate) struct BuildHandle(Shared);

impl BuildHandle {
    /// Registers a pipeline with its contracts and policy.
    pub(crate) fn pipeline(&self, pipeline: Pipeline, contracts: Vec<Arc<Contract>>, policy: Option<(String, Policy)>) {
        let mut build = self.0.borrow_mut();
        build.contracts.extend(contracts.into_iter().map(|c| (c.name.clone(), c)));
        build.policies.extend(policy);
        build.pipelines.push(pipeline);
    }
    /// Whether anything ends outside Kafka so far.
    pub(crate) fn has_pipelines(&self) -> bool {
        !self.0.borrow().pipelines.is_empty()
    }
    /// A source whose records are requests.
    pub(crate) fn request_source(&self, topic: TopicName, values: SerdeRef<serde_json::Value>) {
        self.0.borrow_mut().request_sources.insert(topic, values);
    }
    /// A sink where the requests of a step end.
    pub(crate) fn request_sink(&self, sink: NodeId, step: StepName) {
        self.0.borrow_mut().request_sinks.push((sink, step));
    }
    /// Sets the results topic.
    pub(crate) fn results(&self, topic: TopicName) {
        self.0.borrow_mut().results = Some(topic);
    }
}

/// Which step takes the requests of which topic: what lies above its sink.
fn request_topics(topology: &Topology, build: &Build) -> Vec<RequestTopic> {
    let mut found = Vec::new();
    for (sink, step) in &build.request_sinks {
        let (mut open, mut seen) = (vec![*sink], BTreeSet::new());
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let node = topology.node(id);
            open.extend(&node.above);
            let Role::Source(topics) = &node.role else { continue };
            for (topic, values) in build.request_sources.iter().filter(|(t, _)| topics.contains(t)) {
                found.push(RequestTopic { topic: topic.clone(), step: step.clone(), values: values.clone() });
            }
        }
    }
    found
}

/// Adds a store with its changelog.
pub(super) fn store<K, V>(build: &Shared, m: &Materialized<K, V>) -> StoreRef<K, V> {
    let graph = &mut build.borrow_mut().graph;
    let topic = topics::changelog(graph.application(), &m.name);
    let config = [("cleanup.policy".to_owned(), "compact".to_owned())].into();
    add_store(graph, m, ChangelogSpec { topic, config })
}

/// Adds a store that is restored from the topic that it is filled from.
pub(super) fn source_store<K, V>(build: &Shared, m: &Materialized<K, V>, topic: &TopicName) -> StoreRef<K, V> {
    add_store(&mut build.borrow_mut().graph, m, ChangelogSpec { topic: topic.clone(), config: BTreeMap::new() }).of_source()
}

fn add_store<K, V>(graph: &mut Graph, m: &Materialized<K, V>, log: ChangelogSpec) -> StoreRef<K, V> {
    if m.name.is_empty() {
        graph.problem(codes::MISSING_NAME, "a store needs a name: topics and disk are named by it");
    }
    let (name, topic) = (StoreName::new(&m.name), log.topic.clone());
    graph.shape(&name, m.key.shape(), m.value.shape());
    let place = graph.store(StoreSpec { name: name.clone(), engine: engine_of(m), cached: m.cached, changelog: Some(log) });
    StoreRef::new(name, topic, m.key.clone(), m.value.clone(), place).cached(m.cached)
}

/// Where a store's committed data lives.
pub(super) fn engine_of<K, V>(m: &Materialized<K, V>) -> EngineKind {
    if m.memory { EngineKind::Memory } else { EngineKind::Disk }
}

/// A new stream below a node.
pub(super) fn stream_of<K: Clone + 'static, V: Clone + 'static>(
    build: &Shared,
    node: NodeId,
    out: Outlets<K, V>,
    rekeyed: bool,
) -> KStream<K, V> {
    KStream { build: build.clone(), node, out, rekeyed, next_name: None }
}

/// Draws the operations sub-topology and the effect unit, which tasks of their own run, so that `describe` shows the whole.
fn show_effects(build: &mut Build, dead_letters: Option<&TopicName>) {
    let app = build.graph.application().clone();
    let (here, there) = (crate::ids::UnitName::new(app.as_str()), topics::effects_unit(&app));
    let shown_store =
        |name: &str| StoreSpec { name: StoreName::new(name), engine: EngineKind::Disk, cached: false, changelog: None };
    let graph = &mut build.graph;

    let read = vec![topics::repartition(&app, &"operations".into()), topics::commands(&app), topics::plans(&app)];
    let source = graph.add("KSTREAM-SOURCE", None, Role::Source(read), &[]);
    graph.foreign(source, here.clone());
    graph.store(shown_store("operations"));
    for pipeline in &build.pipelines {
        let mut last = source;
        let plan = pipeline.plan.as_ref().map(|p| &p.step);
        let gate = pipeline.gate.as_ref().map(|g| &g.step);
        for step in plan.into_iter().chain(gate).chain([&pipeline.step]) {
            last = graph.add("KSTREAM-EFFECT", Some(step.as_str()), Role::Step, &[last]);
            graph.uses(last, &StoreName::new("operations"));
        }
        let written = [Some(topics::outbox(&app)), Some(topics::control(&app)), build.results.clone(), dead_letters.cloned()];
        for topic in written.into_iter().flatten() {
            let sink = graph.add("KSTREAM-SINK", None, Role::Sink(topic), &[last]);
            graph.foreign(sink, here.clone());
        }
    }

    let source = graph.add("KSTREAM-SOURCE", None, Role::Source(vec![topics::outbox(&app), topics::control(&app)]), &[]);
    graph.foreign(source, there.clone());
    graph.store(shown_store("ledger"));
    let effects = graph.add("KSTREAM-EFFECTS", None, Role::Step, &[source]);
    graph.uses(effects, &StoreName::new("ledger"));
    for topic in [build.results.clone(), Some(topics::plans(&app))].into_iter().flatten() {
        let sink = graph.add("KSTREAM-SINK", None, Role::Sink(topic), &[effects]);
        graph.foreign(sink, there.clone());
    }
}
