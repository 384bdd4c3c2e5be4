//! Sources: a topic as a stream or as a table.

use crate::ids::TopicName;
use crate::processor::{Change, Next, ProcessorCx, Record, StoreRef};
use crate::record::InRecord;
use crate::task::{Dropped, TaskError};
use crate::time::WallTime;
use crate::topology::{Ingest, NodeId, Role};

use std::sync::Arc;

use super::KStream;
use super::builder::{Shared, source_store, store, stream_of};
use super::outlets::{Each, Outlets};
use super::table::{Asked, KTable, upsert};
use super::with::{Consumed, Materialized, Timestamps};

pub(super) fn stream<K, V>(build: &Shared, topic: TopicName, name: Option<&str>, consumed: Consumed<K, V>) -> KStream<K, V>
where
    K: Clone + 'static,
    V: Clone + 'static,
{
    let (node, out) = source(build, topic, name, consumed);
    stream_of(build, node, out, false)
}

/// A source node and its outlets.
pub(super) fn source<K, V>(
    build: &Shared,
    topic: TopicName,
    name: Option<&str>,
    consumed: Consumed<K, V>,
) -> (NodeId, Outlets<K, V>)
where
    K: Clone + 'static,
    V: Clone + 'static,
{
    let out = Outlets::<K, V>::new();
    let graph = &mut build.borrow_mut().graph;
    let node = graph.add("KSTREAM-SOURCE", name, Role::Source(vec![topic]), &[]);
    let (below, name) = (out.clone(), Arc::<str>::from(graph.name_of(node)));
    graph.source(
        node,
        Arc::new(move |parts| {
            Box::new(Source { name: name.clone(), consumed: consumed.clone(), latest: None, next: below.make(parts) })
        }),
    );
    (node, out)
}

struct Source<K, V> {
    name: Arc<str>,
    consumed: Consumed<K, V>,
    /// The largest time so far.
    latest: Option<WallTime>,
    next: Next<K, V>,
}

impl<K, V> Ingest for Source<K, V> {
    fn ingest(&mut self, r: &InRecord, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        if r.value.is_none() && !self.consumed.value.takes_null() {
            tracing::debug!(topic = %r.tp.topic, partition = %r.tp.partition, offset = %r.offset, "skipped a null value");
            return Ok(());
        }
        let key = self.consumed.key.decode(cx.raw(&r.tp.topic, r.key.as_ref(), &r.headers));
        let value = self.consumed.value.decode(cx.raw(&r.tp.topic, r.value.as_ref(), &r.headers));
        match (key, value) {
            (Ok(key), Ok(value)) => {
                let mut record = Record { key, value, timestamp: r.timestamp, headers: r.headers.clone() };
                match &self.consumed.times {
                    Timestamps::OfRecord => {}
                    Timestamps::Wall => record.timestamp = Some(cx.now().wall),
                    Timestamps::Custom(f) => match f(&record, self.latest) {
                        Ok(Some(at)) if at >= WallTime(0) => record.timestamp = Some(at),
                        // As in Kafka Streams, no record has a time before 1970.
                        Ok(_) => {
                            cx.dropped(&self.name, Dropped::NoTime);
                            return Ok(());
                        }
                        Err(e) => return cx.settle(Err(e.into())),
                    },
                }
                self.latest = self.latest.max(record.timestamp);
                cx.observe(record.timestamp);
                self.next.process(record, cx)
            }
            (Err(e), _) | (_, Err(e)) => cx.settle(Err(e.into())),
        }
    }
}

/// A topic as a table, kept in a store of its own.
pub(super) fn table<K, V>(build: &Shared, topic: TopicName, materialized: Materialized<K, V>) -> KTable<K, V>
where
    K: Clone + 'static,
    V: Clone + 'static,
{
    if build.borrow().optimize {
        return kept_topic(build, topic, &materialized).0;
    }
    let kept = store(build, &materialized);
    filled(build, topic, &materialized, kept)
}

/// A topic as a table whose store is restored from the topic itself, and the store.
pub(super) fn kept_topic<K, V>(build: &Shared, topic: TopicName, how: &Materialized<K, V>) -> (KTable<K, V>, StoreRef<K, V>)
where
    K: Clone + 'static,
    V: Clone + 'static,
{
    let kept = source_store(build, how, &topic);
    (filled(build, topic, how, kept.clone()), kept)
}

fn filled<K, V>(build: &Shared, topic: TopicName, materialized: &Materialized<K, V>, store: StoreRef<K, V>) -> KTable<K, V>
where
    K: Clone + 'static,
    V: Clone + 'static,
{
    let nullable = crate::serdes::Serdes::optional(materialized.value.clone());
    let nullable_key = crate::serdes::Serdes::optional(materialized.key.clone());
    let (source, out) = source(build, topic, None, Consumed::with(nullable_key, nullable));
    let label = build.borrow().graph.generated("KTABLE-SOURCE");
    upserts(build, "KTABLE-SOURCE", None, source, &keyed(&out, label), store)
}

/// Only what has a key: a table has no place for the rest.
fn keyed<K, V>(from: &Outlets<Option<K>, V>, step: String) -> Outlets<K, V>
where
    K: Clone + 'static,
    V: Clone + 'static,
{
    let out = Outlets::<K, V>::new();
    let below = out.clone();
    let f =
        Arc::new(move |r: Record<Option<K>, V>, cx: &mut ProcessorCx<'_, '_>, next: &mut dyn crate::processor::Process<K, V>| {
            let Record { key: Some(key), value, timestamp, headers } = r else {
                cx.dropped(&step, Dropped::NullKey);
                return Ok(());
            };
            next.process(Record { key, value, timestamp, headers }, cx)
        });
    from.add(move |parts| Box::new(Each { f: f.clone(), next: below.make(parts) }));
    out
}

/// A node that writes a store from a stream of optional values and passes changes on.
pub(super) fn upserts<K, V>(
    build: &Shared,
    kind: &str,
    name: Option<&str>,
    above: NodeId,
    from: &Outlets<K, Option<V>>,
    store: StoreRef<K, V>,
) -> KTable<K, V>
where
    K: Clone + 'static,
    V: Clone + 'static,
{
    let node = build.borrow_mut().graph.add(kind, name, Role::Step, &[above]);
    build.borrow_mut().graph.uses(node, store.name());
    let out = Outlets::<K, Change<V>>::new();
    let (below, kept) = (out.clone(), store.clone());
    let upsert =
        move |r: Record<K, Option<V>>, cx: &mut ProcessorCx<'_, '_>, next: &mut dyn crate::processor::Process<K, Change<V>>| {
            let r = upsert(&kept, r, cx)?;
            next.process(r, cx)
        };
    let upsert = Arc::new(upsert);
    from.add(move |parts| Box::new(Each { f: upsert.clone(), next: below.make(parts) }));
    KTable::of_store(build, node, out, store, Asked::default())
}
