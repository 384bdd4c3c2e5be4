//! Nodes and what connects them. [`Graph`] is what a builder writes into, [`Topology`] what comes of it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use crate::error::{self, codes};
use crate::ids::{ApplicationId, StoreName, TopicName, UnitName};
use crate::processor::{Environment, ProcessorCx, Punctuator};
use crate::record::InRecord;
use crate::serdes::{AvroCodec, Shape};
use crate::state::{StoreId, StoreSpec};
use crate::task::TaskError;

use super::Layout;

/// A node's number, in the order of building: the number in its generated name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub usize);

/// What a node is to the graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Reads topics.
    Source(Vec<TopicName>),
    /// Works on records.
    Step,
    /// Writes a topic.
    Sink(TopicName),
    /// Writes topics that each record names.
    ComputedSink,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its name: the one that people gave, or `KSTREAM-FILTER-0000000001`.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// The nodes that feed it.
    pub above: Vec<NodeId>,
    /// The unit that runs it where that is not the graph's own task: `Some` for effect and operation steps.
    pub foreign: Option<UnitName>,
}

/// Takes records of a source topic into the nodes below.
pub trait Ingest {
    /// Decodes one record and passes it on.
    fn ingest(&mut self, record: &InRecord, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError>;
}

/// Makes the source's part of a task.
pub type SourceFactory = Arc<dyn Fn(&mut Parts<'_>) -> Box<dyn Ingest> + Send + Sync>;

/// What factories need, and leave, while a task is made.
pub struct Parts<'a> {
    /// What all nodes share.
    pub environment: &'a Environment,
    /// Partition counts.
    pub layout: &'a Layout,
    /// Nodes with several parents, made once a task.
    pub shared: HashMap<NodeId, Box<dyn Any>>,
    /// Nodes that are called without a record.
    pub punctuators: Vec<Box<dyn Punctuator>>,
}

/// Makes what keeps a store of user code within its bounds, once a task.
pub type KeeperFactory = Arc<dyn Fn() -> Box<dyn Punctuator> + Send + Sync>;

pub(super) struct StoreEntry {
    pub(super) spec: StoreSpec,
    pub(super) place: Arc<OnceLock<StoreId>>,
    pub(super) users: BTreeSet<NodeId>,
}

/// Says what is wrong with a record that no step could read.
pub type GlobalCheck = Arc<dyn Fn(&InRecord, Option<&dyn AvroCodec>) -> error::Result<()> + Send + Sync>;

/// A store that holds a whole topic.
pub(super) struct GlobalEntry {
    pub(super) spec: StoreSpec,
    pub(super) node: NodeId,
    pub(super) check: GlobalCheck,
}

/// An internal topic between two sub-topologies.
#[derive(Clone, Debug)]
pub(super) struct Repartition {
    pub(super) topic: TopicName,
    pub(super) partitions: Option<u32>,
    pub(super) sink: NodeId,
}

/// A graph in the making. Errors are collected: a builder tells all of them at once.
pub struct Graph {
    pub(super) application: ApplicationId,
    pub(super) nodes: Vec<Node>,
    pub(super) sources: BTreeMap<NodeId, SourceFactory>,
    pub(super) stores: BTreeMap<StoreName, StoreEntry>,
    pub(super) globals: BTreeMap<StoreName, GlobalEntry>,
    pub(super) shapes: BTreeMap<StoreName, (Shape, Shape)>,
    pub(super) repartitions: Vec<Repartition>,
    /// Steps whose inputs must have the same partition count.
    pub(super) copartitioned: Vec<NodeId>,
    pub(super) keepers: Vec<(StoreName, KeeperFactory)>,
    problems: Vec<(crate::error::Code, String)>,
}

impl Graph {
    /// An empty one.
    pub fn new(application: ApplicationId) -> Self {
        Self {
            application,
            nodes: Vec::new(),
            sources: BTreeMap::new(),
            stores: BTreeMap::new(),
            globals: BTreeMap::new(),
            shapes: BTreeMap::new(),
            repartitions: Vec::new(),
            copartitioned: Vec::new(),
            keepers: Vec::new(),
            problems: Vec::new(),
        }
    }
    /// Whose graph.
    pub fn application(&self) -> &ApplicationId {
        &self.application
    }
    /// The generated name that the next node would get: `KSTREAM-FILTER-0000000001`.
    pub fn generated(&self, kind: &str) -> String {
        format!("{kind}-{:010}", self.nodes.len())
    }
    /// A node's name.
    pub fn name_of(&self, node: NodeId) -> &str {
        &self.nodes[node.0].name
    }
    /// The nodes that feed a node.
    pub fn above(&self, node: NodeId) -> &[NodeId] {
        &self.nodes[node.0].above
    }
    /// Adds a node under `name`, or under a generated one of its `kind`.
    pub fn add(&mut self, kind: &str, name: Option<&str>, role: Role, above: &[NodeId]) -> NodeId {
        let id = NodeId(self.nodes.len());
        let name = name.map_or_else(|| self.generated(kind), str::to_owned);
        if self.nodes.iter().any(|n| n.name == name) {
            self.problem(codes::DUPLICATE_NAME, format!("two steps are named `{name}`"));
        }
        self.nodes.push(Node { id, name, role, above: above.to_vec(), foreign: None });
        id
    }
    /// Says how the tasks' part of a source is made.
    pub fn source(&mut self, node: NodeId, factory: SourceFactory) {
        self.sources.insert(node, factory);
    }
    /// Adds an edge to a node that exists: its second parent.
    pub fn connect(&mut self, above: NodeId, below: NodeId) {
        self.nodes[below.0].above.push(above);
    }
    /// Marks a node as run by a task of another making, in this unit or another one.
    pub fn foreign(&mut self, node: NodeId, unit: UnitName) {
        self.nodes[node.0].foreign = Some(unit);
    }
    /// Adds a store; the same name twice is an error.
    pub fn store(&mut self, spec: StoreSpec) -> Arc<OnceLock<StoreId>> {
        let place = Arc::new(OnceLock::new());
        self.new_store(&spec.name);
        let entry = StoreEntry { spec, place: place.clone(), users: BTreeSet::new() };
        self.stores.insert(entry.spec.name.clone(), entry);
        place
    }
    /// Says what keeps a store within its bounds.
    pub fn keeper(&mut self, store: &StoreName, keeper: KeeperFactory) {
        self.keepers.push((store.clone(), keeper));
    }
    /// Adds a store that holds the whole topic above `node`; every process fills its own, and any step may read it.
    pub fn global(&mut self, spec: StoreSpec, node: NodeId, check: GlobalCheck) {
        self.new_store(&spec.name);
        self.globals.insert(spec.name.clone(), GlobalEntry { spec, node, check });
    }
    /// How people write a store's keys and read its values.
    pub fn shape(&mut self, store: &StoreName, key: Shape, value: Shape) {
        self.shapes.insert(store.clone(), (key, value));
    }
    fn new_store(&mut self, name: &StoreName) {
        if self.stores.contains_key(name) || self.globals.contains_key(name) {
            self.problem(codes::DUPLICATE_NAME, format!("two stores are named `{name}`"));
        }
    }
    /// Lets a step use a store; both then share a sub-topology.
    pub fn uses(&mut self, node: NodeId, store: &StoreName) {
        match self.stores.get_mut(store) {
            Some(entry) => {
                entry.users.insert(node);
            }
            None => self.problem(codes::UNKNOWN_REFERENCE, format!("no store is named `{store}`")),
        }
    }
    /// Declares an internal topic that `sink` writes.
    pub fn repartition(&mut self, topic: TopicName, partitions: Option<u32>, sink: NodeId) {
        self.repartitions.push(Repartition { topic, partitions, sink });
    }
    /// All sources that feed `step` must have the same partition count.
    pub fn copartition(&mut self, step: NodeId) {
        self.copartitioned.push(step);
    }
    /// Notes an error of the builder's user.
    pub fn problem(&mut self, code: crate::error::Code, what: impl Into<String>) {
        self.problems.push((code, what.into()));
    }
    /// What was wrong so far.
    pub fn problems(&self) -> &[(crate::error::Code, String)] {
        &self.problems
    }
    /// The finished graph. Errors noted before are the caller's to look at.
    pub fn finish(self) -> Topology {
        let subtopologies = components(&self);
        Topology { graph: self, subtopologies }
    }
}

/// Nodes that share tasks: connected by edges or stores, split at topics.
#[derive(Clone, Debug)]
pub struct Subtopology {
    /// Its number.
    pub id: u32,
    /// Its nodes, in the order of building.
    pub nodes: Vec<NodeId>,
    /// Its stores, in name order; the index is the `StoreId`.
    pub stores: Vec<StoreName>,
    /// Who runs it where that is not the graph's own task.
    pub foreign: Option<UnitName>,
    /// Whether it only fills a whole-topic store, which no task does.
    pub global: bool,
}

impl Subtopology {
    /// Whether tasks of the graph run it.
    pub fn has_tasks(&self) -> bool {
        self.foreign.is_none() && !self.global
    }
}

/// A finished graph.
pub struct Topology {
    pub(super) graph: Graph,
    subtopologies: Vec<Subtopology>,
}

impl Topology {
    /// Whose.
    pub fn application(&self) -> &ApplicationId {
        &self.graph.application
    }
    /// Its parts, numbered by their first node.
    pub fn subtopologies(&self) -> &[Subtopology] {
        &self.subtopologies
    }
    /// All nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.graph.nodes
    }
    /// The node of this number.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.graph.nodes[id.0]
    }
    /// Topics that are read and not made by this application's units.
    pub fn external_sources(&self) -> BTreeSet<TopicName> {
        let own = |s: &Subtopology| s.foreign.is_none();
        let read = self.subtopologies.iter().filter(|s| own(s)).flat_map(|s| self.sources_of(s));
        read.filter(|t| !self.is_internal(t)).collect()
    }
    /// Topics that are written and not internal.
    pub fn external_sinks(&self) -> BTreeSet<TopicName> {
        let sink = |n: &Node| match &n.role {
            Role::Sink(topic) if n.foreign.is_none() && !self.is_internal(topic) => Some(topic.clone()),
            _ => None,
        };
        self.graph.nodes.iter().filter_map(sink).collect()
    }
    /// The source topics of a part, in the order of building.
    pub fn sources_of(&self, part: &Subtopology) -> Vec<TopicName> {
        let mut topics = Vec::new();
        for id in &part.nodes {
            if let Role::Source(read) = &self.node(*id).role {
                topics.extend(read.iter().filter(|t| !topics.contains(*t)).cloned().collect::<Vec<_>>());
            }
        }
        topics
    }
    /// Whether this application makes the topic.
    pub fn is_internal(&self, topic: &TopicName) -> bool {
        let prefix = format!("{}-", self.graph.application);
        self.graph.repartitions.iter().any(|r| r.topic == *topic)
            || (topic.as_str().starts_with(&prefix) && topic.as_str().ends_with("-repartition"))
    }
    /// The stores that a node uses, in name order.
    pub fn stores_of(&self, node: NodeId) -> Vec<&StoreName> {
        let own = self.graph.stores.iter().filter(|(_, e)| e.users.contains(&node)).map(|(name, _)| name);
        let global = self.graph.globals.iter().filter(|(_, e)| e.node == node).map(|(name, _)| name);
        own.chain(global).collect()
    }
}

impl std::fmt::Debug for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

/// Groups nodes by edges and shared stores; parts are numbered by their first node.
fn components(graph: &Graph) -> Vec<Subtopology> {
    let mut leader: Vec<usize> = (0..graph.nodes.len()).collect();
    fn find(leader: &mut [usize], mut i: usize) -> usize {
        while leader[i] != i {
            leader[i] = leader[leader[i]];
            i = leader[i];
        }
        i
    }
    let edges = graph.nodes.iter().flat_map(|n| n.above.iter().map(|a| (a.0, n.id.0)));
    let by_store = graph.stores.values().flat_map(|s| {
        let first = s.users.first().map(|u| u.0);
        s.users.iter().filter_map(move |u| first.map(|f| (f, u.0)))
    });
    for (a, b) in edges.chain(by_store) {
        let (a, b) = (find(&mut leader, a), find(&mut leader, b));
        leader[a.max(b)] = a.min(b);
    }
    let mut groups: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    for i in 0..graph.nodes.len() {
        groups.entry(find(&mut leader, i)).or_default().push(NodeId(i));
    }
    let part = |(id, nodes): (usize, Vec<NodeId>)| {
        let used = |e: &StoreEntry| nodes.iter().any(|n| e.users.contains(n));
        let stores = graph.stores.iter().filter(|(_, e)| used(e)).map(|(name, _)| name.clone()).collect();
        let foreign = nodes.iter().find_map(|n| graph.nodes[n.0].foreign.clone());
        let global = graph.globals.values().any(|g| nodes.contains(&g.node));
        Subtopology { id: id as u32, nodes, stores, foreign, global }
    };
    groups.into_values().enumerate().map(part).collect()
}
