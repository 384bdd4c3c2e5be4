//! Stateless steps of a stream, and its ends.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::error::{Error, codes};
use crate::ids::TopicName;
use crate::intents::topics;
use crate::processor::{Process, ProcessorCx, Record};
use crate::record::OutRecord;
use crate::task::{Dropped, TaskError};
use crate::topology::{NodeId, Parts, Role};

use super::builder::{Shared, store, stream_of};
use super::keeping::has_no_key;
use super::outlets::{Each, End, Outlets};
use super::source;
use super::table::KTable;
use super::with::{Consumed, Goal, Materialized, Produced, Repartitioned};

/// A stream of records. Handles are cheap; each use of one adds a branch of its own.
pub struct KStream<K, V> {
    pub(super) build: Shared,
    pub(super) node: NodeId,
    pub(super) out: Outlets<K, V>,
    /// Whether keys may have changed since the records were last partitioned by key.
    pub(super) rekeyed: bool,
    pub(super) next_name: Option<String>,
}

impl<K, V> Clone for KStream<K, V> {
    fn clone(&self) -> Self {
        Self {
            build: self.build.clone(),
            node: self.node,
            out: self.out.clone(),
            rekeyed: self.rekeyed,
            next_name: self.next_name.clone(),
        }
    }
}

impl<K: Clone + 'static, V: Clone + 'static> KStream<K, V> {
    /// Names the next step. Stateful steps take their name as an argument instead, since it is compulsory there.
    #[must_use]
    pub fn named(&self, name: impl Into<String>) -> Self {
        Self { next_name: Some(name.into()), ..self.clone() }
    }

    /// Keeps records for which `f` holds.
    pub fn filter(&self, f: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> KStream<K, V> {
        self.each("KSTREAM-FILTER", self.rekeyed, move |r, cx, next| match f(&r.key, &r.value) {
            true => next.process(r, cx),
            false => Ok(()),
        })
    }
    /// Keeps records for which `f` does not hold.
    #[doc(alias = "filterNot")]
    pub fn filter_not(&self, f: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> KStream<K, V> {
        self.filter(move |k, v| !f(k, v))
    }
    /// Another key and value for each record. A join or grouping below repartitions.
    pub fn map<K2: Clone + 'static, V2: Clone + 'static>(
        &self,
        f: impl Fn(K, V) -> (K2, V2) + Send + Sync + 'static,
    ) -> KStream<K2, V2> {
        self.each("KSTREAM-MAP", true, move |r, cx, next| next.process(r.map(&f), cx))
    }
    /// Another value for each record.
    #[doc(alias = "mapValues")]
    pub fn map_values<V2: Clone + 'static>(&self, f: impl Fn(&K, V) -> V2 + Send + Sync + 'static) -> KStream<K, V2> {
        self.each("KSTREAM-MAPVALUES", self.rekeyed, move |r, cx, next| {
            let mapped = r.map(|k, v| {
                let v = f(&k, v);
                (k, v)
            });
            next.process(mapped, cx)
        })
    }
    /// Any number of records for each. A join or grouping below repartitions.
    #[doc(alias = "flatMap")]
    pub fn flat_map<K2: Clone + 'static, V2: Clone + 'static, I: IntoIterator<Item = (K2, V2)>>(
        &self,
        f: impl Fn(K, V) -> I + Send + Sync + 'static,
    ) -> KStream<K2, V2> {
        self.each("KSTREAM-FLATMAP", true, move |r, cx, next| {
            let Record { key, value, timestamp, headers } = r;
            f(key, value)
                .into_iter()
                .try_for_each(|(key, value)| next.process(Record { key, value, timestamp, headers: headers.clone() }, cx))
        })
    }
    /// Any number of values for each record, under its key.
    #[doc(alias = "flatMapValues")]
    pub fn flat_map_values<V2: Clone + 'static, I: IntoIterator<Item = V2>>(
        &self,
        f: impl Fn(&K, V) -> I + Send + Sync + 'static,
    ) -> KStream<K, V2> {
        self.each("KSTREAM-FLATMAPVALUES", self.rekeyed, move |r, cx, next| {
            let Record { key, value, timestamp, headers } = r;
            f(&key, value)
                .into_iter()
                .try_for_each(|value| next.process(Record { key: key.clone(), value, timestamp, headers: headers.clone() }, cx))
        })
    }
    /// Another key for each record. A join or grouping below repartitions.
    #[doc(alias = "selectKey")]
    pub fn select_key<K2: Clone + 'static>(&self, f: impl Fn(&K, &V) -> K2 + Send + Sync + 'static) -> KStream<K2, V> {
        self.each("KSTREAM-KEY-SELECT", true, move |r, cx, next| {
            let key = f(&r.key, &r.value);
            next.process(r.with_key(key), cx)
        })
    }
    /// Looks at records as they pass.
    pub fn peek(&self, f: impl Fn(&K, &V) + Send + Sync + 'static) -> KStream<K, V> {
        self.each("KSTREAM-PEEK", self.rekeyed, move |r, cx, next| {
            f(&r.key, &r.value);
            next.process(r, cx)
        })
    }
    /// Looks at records as they end here.
    #[doc(alias = "foreach")]
    pub fn for_each(&self, f: impl Fn(&K, &V) + Send + Sync + 'static) {
        let f = Arc::new(f);
        self.end("KSTREAM-FOREACH", Role::Step, move |_| {
            let f = f.clone();
            move |r: Record<K, V>, _: &mut ProcessorCx<'_, '_>| {
                f(&r.key, &r.value);
                Ok(())
            }
        });
    }

    /// Prints records to standard output as they end here: `[label]: key, value`.
    pub fn print(&self, label: &str)
    where
        K: std::fmt::Display,
        V: std::fmt::Display,
    {
        let label: Arc<str> = label.into();
        self.end("KSTREAM-PRINTER", Role::Step, move |_| {
            let label = label.clone();
            move |r: Record<K, V>, _: &mut ProcessorCx<'_, '_>| {
                println!("[{label}]: {}, {}", r.key, r.value);
                Ok(())
            }
        });
    }

    /// Both streams as one; the order between them is not defined.
    pub fn merge(&self, other: &KStream<K, V>) -> KStream<K, V> {
        let name = self.next_name.as_deref();
        let node = self.build.borrow_mut().graph.add("KSTREAM-MERGE", name, Role::Step, &[self.node, other.node]);
        let out = Outlets::new();
        for side in [&self.out, &other.out] {
            let below = out.clone();
            side.add(move |parts| Box::new(super::branch::shared_once(node, &below, parts)));
        }
        stream_of(&self.build, node, out, self.rekeyed || other.rekeyed)
    }

    /// Writes records to a topic; time and headers travel. What can't be encoded is a bad record.
    pub fn to(&self, topic: impl Into<TopicName>, produced: Produced<K, V>) {
        let topic = topic.into();
        self.end("KSTREAM-SINK", Role::Sink(topic.clone()), move |parts| {
            let (topic, sink) = (topic.clone(), Sink::new(&produced, parts));
            move |r: Record<K, V>, cx: &mut ProcessorCx<'_, '_>| sink.write(&topic, &r, cx)
        });
    }

    /// Writes each record to the topic that `f` names for it. The topics must exist.
    #[doc(alias = "TopicNameExtractor")]
    pub fn to_topic_of(&self, f: impl Fn(&Record<K, V>) -> TopicName + Send + Sync + 'static, produced: Produced<K, V>) {
        self.to_topic_by(move |r, _| Ok(f(r)), produced);
    }

    /// As [`Self::to_topic_of`], by a function that can fail.
    pub(crate) fn to_topic_by(
        &self,
        f: impl Fn(&Record<K, V>, &ProcessorCx<'_, '_>) -> Result<TopicName, Error> + Send + Sync + 'static,
        produced: Produced<K, V>,
    ) {
        let f = Arc::new(f);
        self.end("KSTREAM-SINK", Role::ComputedSink, move |parts| {
            let (f, sink) = (f.clone(), Sink::new(&produced, parts));
            move |r: Record<K, V>, cx: &mut ProcessorCx<'_, '_>| sink.write(&f(&r, cx)?, &r, cx)
        });
    }

    /// Through a topic of our own, partitioned by key anew.
    pub fn repartition(&self, how: Repartitioned<K, V>) -> KStream<K, V> {
        let topic = {
            let graph = &mut self.build.borrow_mut().graph;
            if how.name.is_empty() {
                graph.problem(codes::MISSING_NAME, "a repartition needs a name: its topic is named by it");
            }
            topics::repartition(graph.application(), &how.name.as_str().into())
        };
        let (key, value) = (how.key, how.value);
        let produced = Produced::with(key.clone(), value.clone());
        let written = topic.clone();
        let sink = self.clone().unnamed().end("KSTREAM-SINK", Role::Sink(topic.clone()), move |parts| {
            let (topic, sink) = (written.clone(), Sink::new(&produced, parts));
            move |r: Record<K, V>, cx: &mut ProcessorCx<'_, '_>| sink.write(&topic, &r, cx)
        });
        self.build.borrow_mut().graph.repartition(topic.clone(), how.partitions, sink);
        source::stream(&self.build, topic, None, Consumed::with(key, value))
    }

    /// The newest value of each key as a table, kept in a store under a name.
    #[doc(alias = "toTable")]
    pub fn to_table(&self, materialized: Materialized<K, V>) -> KTable<K, V> {
        let partitioned = self.partitioned(&materialized.name, &materialized.key, &materialized.value);
        let kept = store(&self.build, &materialized);
        let (key, step) = (materialized.key.clone(), self.build.borrow().graph.generated("KSTREAM-MAPVALUES"));
        let optional = partitioned.unnamed().each("KSTREAM-MAPVALUES", false, move |r, cx, next| {
            if has_no_key(&key, &r.key, cx)? {
                cx.dropped(&step, Dropped::NullKey);
                return Ok(());
            }
            let value = Some(r.value.clone());
            next.process(r.with_value(value), cx)
        });
        source::upserts(&self.build, "KSTREAM-TOTABLE", None, optional.node, &optional.out, kept)
    }

    /// Whether keys may have changed since the records were last partitioned by key.
    pub(crate) fn is_rekeyed(&self) -> bool {
        self.rekeyed
    }

    /// This stream, partitioned by its key: through a repartition topic where keys may have changed.
    pub(super) fn partitioned(
        &self,
        name: &str,
        key: &crate::serdes::SerdeRef<K>,
        value: &crate::serdes::SerdeRef<V>,
    ) -> KStream<K, V> {
        if !self.rekeyed {
            return self.clone();
        }
        let known = self.build.borrow().repartitioned.get(&self.node).and_then(|s| s.downcast_ref::<KStream<K, V>>()).cloned();
        if let Some(known) = known {
            return known;
        }
        let through = self.repartition(Repartitioned::named(name, key.clone(), value.clone()));
        let mut build = self.build.borrow_mut();
        if build.optimize {
            build.repartitioned.insert(self.node, Box::new(through.clone()));
        }
        drop(build);
        through
    }

    /// A node below that is one function of a record.
    pub(crate) fn each<K2, V2, F>(&self, kind: &str, rekeyed: bool, f: F) -> KStream<K2, V2>
    where
        K2: Clone + 'static,
        V2: Clone + 'static,
        F: Fn(Record<K, V>, &mut ProcessorCx<'_, '_>, &mut dyn Process<K2, V2>) -> Result<(), TaskError> + Send + Sync + 'static,
    {
        let node = self.build.borrow_mut().graph.add(kind, self.next_name.as_deref(), Role::Step, &[self.node]);
        let (out, f) = (Outlets::<K2, V2>::new(), Arc::new(f));
        let below = out.clone();
        self.out.add(move |parts| Box::new(Each { f: f.clone(), next: below.make(parts) }));
        stream_of(&self.build, node, out, rekeyed)
    }

    /// A node below with nothing under it; `make` is asked once a task.
    pub(super) fn end<F, M>(&self, kind: &str, role: Role, make: M) -> NodeId
    where
        F: Fn(Record<K, V>, &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> + 'static,
        M: Fn(&mut Parts<'_>) -> F + Send + Sync + 'static,
    {
        let node = self.build.borrow_mut().graph.add(kind, self.next_name.as_deref(), role, &[self.node]);
        self.out.add(move |parts| Box::new(End(make(parts), PhantomData)));
        node
    }

    pub(super) fn unnamed(mut self) -> Self {
        self.next_name = None;
        self
    }
}

/// The end of a stream at a topic.
struct Sink<K, V> {
    how: Produced<K, V>,
    partitions: BTreeMap<TopicName, u32>,
}

impl<K, V> Sink<K, V> {
    fn new(how: &Produced<K, V>, parts: &Parts<'_>) -> Self {
        let partitions = if how.partitioner.is_some() { parts.layout.written() } else { BTreeMap::new() };
        Self { how: how.clone(), partitions }
    }
    fn write(&self, topic: &TopicName, r: &Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let key = self.how.key.encode(&r.key, cx.target(topic))?;
        let value = self.how.value.encode(&r.value, cx.target(topic))?;
        let partition = match &self.how.partitioner {
            Some(partition) => partition(r, Goal { topic, partitions: self.partitions.get(topic).copied() }, cx)?,
            None => None,
        };
        cx.emit(OutRecord {
            topic,
            partition,
            timestamp: r.timestamp,
            key: key.as_deref(),
            value: value.as_deref(),
            headers: Some(&r.headers).filter(|h| !h.is_empty()),
        })
    }
}
