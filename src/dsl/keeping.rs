//! What steps with windows have in common: a named store, a node that lasts as long as its task, and what it does around commits.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::ids::StoreName;
use crate::intents::topics;
use crate::processor::{Change, Next, Place, Process, ProcessorCx, Punctuator, Record, millis};
use crate::serdes::SerdeRef;
use crate::state::{ChangelogSpec, EngineKind, StoreSpec};
use crate::task::TaskError;
use crate::topology::{Graph, NodeId, Parts};

use super::builder::Shared;
use super::outlets::Outlets;
use super::table::{Asked, Getter, KTable};
use super::with::Materialized;

/// Longer than any record's time.
pub(super) const FOREVER: Duration = Duration::from_millis(i64::MAX as u64 / 4);
/// A changelog keeps this much longer than its store, so that a store that was away finds what it missed.
const LONGER: Duration = Duration::from_secs(86_400);

/// The name of a step's store, which topics and disk are named by, with where and how long it keeps. A plain name will do.
#[derive(Clone, Debug)]
#[doc(alias = "Materialized")]
pub struct NamedStore {
    pub(super) name: String,
    pub(super) memory: bool,
    pub(super) cached: bool,
    retention: Option<Duration>,
}

impl NamedStore {
    /// A store of this name on disk.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), memory: false, cached: false, retention: None }
    }
    /// Kept in memory only and restored from its changelog at each start.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.memory = true;
        self
    }
    /// Changes of one key within a transaction are passed on and logged as one.
    #[must_use]
    #[doc(alias = "withCachingEnabled")]
    pub fn with_caching_enabled(mut self) -> Self {
        self.cached = true;
        self
    }
    /// Keeps windows for this long, for queries: never shorter than the windows themselves need.
    #[must_use]
    #[doc(alias = "withRetention")]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    pub(super) fn at_least(&self, least: Duration) -> Duration {
        self.retention.map_or(least, |r| r.max(least))
    }
    /// The store of a table under this name.
    pub(super) fn materialized<K, V>(&self, key: SerdeRef<K>, value: SerdeRef<V>) -> Materialized<K, V> {
        Materialized { memory: self.memory, cached: self.cached, ..Materialized::named(&self.name, key, value) }
    }
    pub(super) fn engine(&self) -> EngineKind {
        if self.memory { EngineKind::Memory } else { EngineKind::Disk }
    }
}

impl From<&str> for NamedStore {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

impl From<&String> for NamedStore {
    fn from(name: &String) -> Self {
        Self::named(name)
    }
}

impl From<String> for NamedStore {
    fn from(name: String) -> Self {
        Self::named(name)
    }
}

/// Adds a store under `name` with a changelog that is compacted and, with a retention, forgets what is older.
pub(super) fn place(build: &Shared, name: &NamedStore, retention: Option<Duration>) -> Place {
    place_in(&mut build.borrow_mut().graph, name, retention)
}

fn place_in(graph: &mut Graph, name: &NamedStore, retention: Option<Duration>) -> Place {
    let store = StoreName::new(&name.name);
    let changelog = topics::changelog(graph.application(), &name.name);
    let mut config = vec![("cleanup.policy", if retention.is_some() { "compact,delete" } else { "compact" }.to_owned())];
    config.extend(retention.map(|r| ("retention.ms", millis(r.saturating_add(LONGER)).to_string())));
    let config = config.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let spec = StoreSpec {
        name: store.clone(),
        engine: name.engine(),
        cached: name.cached,
        changelog: Some(ChangelogSpec { topic: changelog.clone(), config }),
    };
    Place::new(store, changelog, graph.store(spec))
}

/// The table that a node keeps or holds back: `get` reads it from `stores`.
pub(super) fn table<K: Clone + 'static, V: Clone + 'static>(
    build: &Shared,
    node: NodeId,
    out: Outlets<K, Change<V>>,
    stores: Vec<StoreName>,
    (key, value): (SerdeRef<K>, SerdeRef<V>),
    get: Getter<K, V>,
    asked: Asked,
) -> KTable<K, V> {
    KTable { build: build.clone(), node, out, get, stores, key, value: Some(value), asked, next_name: None }
}

/// What a node does beside taking records.
pub(super) trait Lasting {
    /// After the stores are restored, or put back after an abort.
    fn restored(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError>;
    /// Before each commit of its task, and before any [`before_commit`](Self::before_commit): passes on what it still holds, to nodes
    /// that have not been asked yet.
    fn flush(&mut self, _: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        Ok(())
    }
    /// Before each commit of its task.
    fn before_commit(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError>;
}

/// Makes a node that lasts as long as its task.
pub(super) fn node<N, K, V>(node: N, parts: &mut Parts<'_>) -> Next<K, V>
where
    N: Process<K, V> + Lasting + 'static,
    K: 'static,
    V: 'static,
{
    let node = Rc::new(RefCell::new(node));
    lasting(node.clone(), parts);
    Box::new(Held(node))
}

/// Tells `node` of restores and commits.
pub(super) fn lasting<N: Lasting + 'static>(node: Rc<RefCell<N>>, parts: &mut Parts<'_>) {
    parts.punctuators.push(Box::new(Hooks(node)));
}

/// A node that others hold too.
pub(super) struct Held<N>(pub(super) Rc<RefCell<N>>);

impl<N: Process<K, V>, K, V> Process<K, V> for Held<N> {
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let done = self.0.borrow_mut().process(record, cx);
        cx.settle(done)
    }
}

struct Hooks<N>(Rc<RefCell<N>>);

impl<N: Lasting> Punctuator for Hooks<N> {
    fn restored(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.0.borrow_mut().restored(cx)
    }
    fn flush(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.0.borrow_mut().flush(cx)
    }
    fn before_commit(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.0.borrow_mut().before_commit(cx)
    }
}

/// Whether a record has no key: grouping and joining steps pass such records over and count them.
pub(super) fn has_no_key<K>(serde: &SerdeRef<K>, key: &K, cx: &ProcessorCx<'_, '_>) -> Result<bool, TaskError> {
    Ok(serde.takes_null() && serde.encode(key, cx.target(&"".into()))?.is_none())
}
