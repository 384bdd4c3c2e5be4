//! A table: the newest value of each key, and its changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, codes};
use crate::ids::StoreName;
use crate::processor::{Change, Process, ProcessorCx, Record, StoreRef};
use crate::serdes::SerdeRef;
use crate::task::TaskError;
use crate::time::WallTime;
use crate::topology::{NodeId, Role};

use super::KStream;
use super::builder::{Shared, store, stream_of};
use super::outlets::{Each, Outlets};
use super::record_cache;
use super::with::Materialized;

/// A value with the time of the record that it came of.
pub(super) type Timed<V> = (V, Option<WallTime>);

/// Reads a table's value of now.
pub(super) type Getter<K, V> = Arc<dyn Fn(&mut ProcessorCx<'_, '_>, &K) -> Result<Option<Timed<V>>, TaskError> + Send + Sync>;

/// A table. Filters, mappings and joins of tables are views: they keep nothing and read through, unless [`KTable::materialized`].
pub struct KTable<K, V> {
    pub(super) build: Shared,
    pub(super) node: NodeId,
    pub(super) out: Outlets<K, Change<V>>,
    pub(super) get: Getter<K, V>,
    /// What `get` reads.
    pub(super) stores: Vec<StoreName>,
    pub(super) key: SerdeRef<K>,
    /// Known where a store keeps such values.
    pub(super) value: Option<SerdeRef<V>>,
    pub(super) asked: Asked,
    pub(super) next_name: Option<String>,
}

impl<K, V> Clone for KTable<K, V> {
    fn clone(&self) -> Self {
        Self {
            build: self.build.clone(),
            node: self.node,
            out: self.out.clone(),
            get: self.get.clone(),
            stores: self.stores.clone(),
            key: self.key.clone(),
            value: self.value.clone(),
            asked: self.asked.clone(),
            next_name: self.next_name.clone(),
        }
    }
}

/// What steps below ask of a table.
#[derive(Clone, Default)]
pub(super) struct Asked {
    /// To say what was before. Where nobody asks, a filter passes a tombstone on for every entry that it does not keep, as Kafka
    /// Streams does; where somebody does, only for those that were kept before.
    old: Arc<AtomicBool>,
    /// To pass each change on at once: a join of tables looks at the other side as of now, which must be what was passed on.
    at_once: Arc<AtomicBool>,
    above: Vec<Asked>,
    /// Whether reads end here, at a store of its own.
    kept: bool,
}

impl Asked {
    pub(super) fn below(above: &[&Asked]) -> Self {
        Self { above: above.iter().map(|o| (*o).clone()).collect(), ..Self::default() }
    }
    pub(super) fn kept_below(above: &Asked) -> Self {
        Self { kept: true, ..Self::below(&[above]) }
    }
    pub(super) fn want_old(&self) {
        self.old.store(true, Ordering::Relaxed);
        self.above.iter().for_each(Asked::want_old);
    }
    pub(super) fn wants_old(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }
    pub(super) fn want_at_once(&self) {
        self.at_once.store(true, Ordering::Relaxed);
        if !self.kept {
            self.above.iter().for_each(Asked::want_at_once);
        }
    }
    pub(super) fn is_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }
}

impl<K: Clone + 'static, V: Clone + 'static> KTable<K, V> {
    /// The table that a store keeps, with its changes at `out`; they go through the record cache where the store has one.
    pub(super) fn of_store(build: &Shared, node: NodeId, out: Outlets<K, Change<V>>, store: StoreRef<K, V>, asked: Asked) -> Self {
        let serdes = (store.key_serde().clone(), store.value_serde().clone());
        Self {
            build: build.clone(),
            node,
            out: record_cache::outlets(out, store.is_cached(), store.changelog(), serdes, &asked),
            stores: vec![store.name().clone()],
            key: store.key_serde().clone(),
            value: Some(store.value_serde().clone()),
            get: Arc::new(move |cx, key| store.get_with_time(cx, key)),
            asked,
            next_name: None,
        }
    }

    /// Names the next step.
    #[must_use]
    pub fn named(&self, name: impl Into<String>) -> Self {
        Self { next_name: Some(name.into()), ..self.clone() }
    }

    /// Keeps entries for which `f` holds; others are as if deleted.
    pub fn filter(&self, f: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> KTable<K, V> {
        let kept = self.view("KTABLE-FILTER", Unchanged::Skipped, move |k, v, _| Ok(v.filter(|v| f(k, v))));
        KTable { value: self.value.clone(), ..kept }
    }
    /// Keeps entries for which `f` does not hold.
    #[doc(alias = "filterNot")]
    pub fn filter_not(&self, f: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> KTable<K, V> {
        self.filter(move |k, v| !f(k, v))
    }
    /// Another value for each entry.
    #[doc(alias = "mapValues")]
    pub fn map_values<V2: Clone + 'static>(&self, f: impl Fn(&K, V) -> V2 + Send + Sync + 'static) -> KTable<K, V2> {
        self.view("KTABLE-MAPVALUES", Unchanged::Passed, move |k, v, _| Ok(v.map(|v| f(k, v))))
    }
    /// As [`Self::filter`], by a condition that can fail.
    pub(crate) fn filter_by(&self, f: impl Fn(&K, &V) -> Result<bool, Error> + Send + Sync + 'static) -> KTable<K, V> {
        let kept = self.view("KTABLE-FILTER", Unchanged::Skipped, move |k, v, _| match v {
            Some(v) => Ok(f(k, &v)?.then_some(v)),
            None => Ok(None),
        });
        KTable { value: self.value.clone(), ..kept }
    }
    /// As [`Self::map_values`], by a function that can fail.
    pub(crate) fn map_values_by<V2: Clone + 'static>(
        &self,
        f: impl Fn(&K, V) -> Result<V2, Error> + Send + Sync + 'static,
    ) -> KTable<K, V2> {
        self.view("KTABLE-MAPVALUES", Unchanged::Passed, move |k, v, _| Ok(v.map(|v| f(k, v)).transpose()?))
    }
    /// Whether a store keeps these values as they are.
    pub(crate) fn is_kept(&self) -> bool {
        self.value.is_some()
    }
    /// Another value for each entry, with the help of stores; `f` also sees deletions, as `None`, and may answer them. It is asked
    /// again when something reads the table, so it should give the same answer twice; else materialize the result.
    #[doc(alias = "transformValues")]
    pub fn transform_values<V2: Clone + 'static>(
        &self,
        stores: &[&StoreName],
        f: impl Fn(&K, Option<V>, &mut ProcessorCx<'_, '_>) -> Result<Option<V2>, TaskError> + Send + Sync + 'static,
    ) -> KTable<K, V2> {
        let mut table = self.view("KTABLE-TRANSFORMVALUES", Unchanged::Passed, f);
        stores.iter().for_each(|s| table.build.borrow_mut().graph.uses(table.node, s));
        table.stores.extend(stores.iter().map(|s| (*s).clone()));
        table
    }

    /// The same table, kept in a store of its own: reads no longer go through, and queries find it by name.
    #[doc(alias = "Materialized")]
    pub fn materialized(&self, how: Materialized<K, V>) -> KTable<K, V> {
        let kept = store(&self.build, &how);
        self.build.borrow_mut().graph.uses(self.node, kept.name());
        let out = Outlets::<K, Change<V>>::new();
        let (below, own) = (out.clone(), kept.clone());
        let keep = move |r: Record<K, Change<V>>, cx: &mut ProcessorCx<'_, '_>, next: &mut dyn Process<K, Change<V>>| {
            let r = upsert(&own, r.map(|k, change| (k, change.new)), cx)?;
            next.process(r, cx)
        };
        let keep = Arc::new(keep);
        self.out.add(move |parts| Box::new(Each { f: keep.clone(), next: below.make(parts) }));
        Self::of_store(&self.build, self.node, out, kept, Asked::kept_below(&self.asked))
    }

    /// Every change as a record: the new value, `None` where the entry was deleted.
    #[doc(alias = "toStream")]
    pub fn to_stream(&self) -> KStream<K, Option<V>> {
        let (node, out) = self.below("KTABLE-TOSTREAM", |mut r: Record<K, Change<V>>, cx, next| {
            let new = r.value.new.take();
            next.process(r.with_value(new), cx)
        });
        stream_of(&self.build, node, out, false)
    }

    /// A node below that is one function of a change.
    pub(super) fn below<K2, V2, F>(&self, kind: &str, f: F) -> (NodeId, Outlets<K2, V2>)
    where
        K2: Clone + 'static,
        V2: Clone + 'static,
        F: Fn(Record<K, Change<V>>, &mut ProcessorCx<'_, '_>, &mut dyn Process<K2, V2>) -> Result<(), TaskError>
            + Send
            + Sync
            + 'static,
    {
        let node = self.build.borrow_mut().graph.add(kind, self.next_name.as_deref(), Role::Step, &[self.node]);
        let (out, f) = (Outlets::<K2, V2>::new(), Arc::new(f));
        let below = out.clone();
        self.out.add(move |parts| Box::new(Each { f: f.clone(), next: below.make(parts) }));
        (node, out)
    }

    /// A view by one function of an entry, on changes and on reads.
    fn view<V2, F>(&self, kind: &str, unchanged: Unchanged, f: F) -> KTable<K, V2>
    where
        V2: Clone + 'static,
        F: Fn(&K, Option<V>, &mut ProcessorCx<'_, '_>) -> Result<Option<V2>, TaskError> + Send + Sync + 'static,
    {
        let (on_change, through, asked) = (Arc::new(f), self.get.clone(), Asked::below(&[&self.asked]));
        let (on_get, below) = (on_change.clone(), asked.clone());
        let (node, out) = self.below(kind, move |r: Record<K, Change<V>>, cx, next: &mut dyn Process<K, Change<V2>>| {
            let Change { old, new } = r.value.clone();
            let old = if below.wants_old() { on_change(&r.key, old, cx)? } else { None };
            let new = on_change(&r.key, new, cx)?;
            if unchanged == Unchanged::Skipped && below.wants_old() && old.is_none() && new.is_none() {
                return Ok(());
            }
            next.process(r.with_value(Change { old, new }), cx)
        });
        let get: Getter<K, V2> = Arc::new(move |cx, key| {
            let (value, time) = through(cx, key)?.map_or((None, None), |(v, t)| (Some(v), t));
            Ok(on_get(key, value, cx)?.map(|v| (v, time)))
        });
        let (build, stores, key) = (self.build.clone(), self.stores.clone(), self.key.clone());
        KTable { build, node, out, get, stores, key, value: None, asked, next_name: None }
    }

    /// The value serde that a step needs, or a problem that names the way out.
    pub(super) fn value_serde(&self, step: &str) -> Option<SerdeRef<V>> {
        if self.value.is_none() {
            let what = format!("`{step}` must write values of a table that no store keeps: call `materialized` on it first");
            self.build.borrow_mut().graph.problem(codes::MISSING_NAME, what);
        }
        self.value.clone()
    }
}

/// What becomes of a change that leaves nothing where nothing was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unchanged {
    Skipped,
    Passed,
}

/// Writes a value, or its absence, under a key; answers the change.
pub(super) fn upsert<K, V>(
    store: &StoreRef<K, V>,
    r: Record<K, Option<V>>,
    cx: &mut ProcessorCx<'_, '_>,
) -> Result<Record<K, Change<V>>, TaskError> {
    let old = store.get(cx, &r.key)?;
    match &r.value {
        Some(value) => store.put(cx, &r.key, value, r.timestamp, &r.headers)?,
        None => store.delete(cx, &r.key)?,
    }
    Ok(r.map(|k, new| (k, Change { old, new })))
}
