//! A table: the newest value of each key, and its changes.

use std::sync::Arc;

use crate::ids::StoreName;
use crate::processor::{Change, ProcessorCx, StoreRef};
use crate::task::TaskError;
use crate::topology::{NodeId, Role};

use super::KStream;
use super::builder::{Shared, stream_of};
use super::outlets::{Each, Outlets};

/// Reads a table's value of now.
pub(super) type Getter<K, V> = Arc<dyn Fn(&mut ProcessorCx<'_, '_>, &K) -> Result<Option<Timed<V>>, TaskError> + Send + Sync>;
/// A value with the time of the record that it came of.
pub(super) type Timed<V> = (V, Option<crate::time::WallTime>);

/// A table. Filters and mappings of one are views: they keep nothing and read through.
pub struct KTable<K, V> {
    pub(super) build: Shared,
    pub(super) node: NodeId,
    pub(super) out: Outlets<K, Change<V>>,
    pub(super) get: Getter<K, V>,
    pub(super) store: StoreName,
    pub(super) key: crate::serdes::SerdeRef<K>,
}

impl<K, V> Clone for KTable<K, V> {
    fn clone(&self) -> Self {
        Self { build: self.build.clone(), node: self.node, out: self.out.clone(), get: self.get.clone(), store: self.store.clone(), key: self.key.clone() }
    }
}

impl<K: Clone + 'static, V: Clone + 'static> KTable<K, V> {
    pub(super) fn of_store(build: &Shared, node: NodeId, out: Outlets<K, Change<V>>, store: StoreRef<K, V>) -> Self {
        let (name, key) = (store.name().clone(), store.key_serde());
        Self { build: build.clone(), node, out, get: Arc::new(move |cx, key| store.get_with_time(cx, key)), store: name, key }
    }

    /// Keeps entries for which `f` holds; others are as if deleted.
    pub fn filter(&self, f: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> KTable<K, V> {
        self.view("KTABLE-FILTER", move |k, v| Some(v).filter(|v| f(k, v)))
    }
    /// Another value for each entry.
    pub fn map_values<V2: Clone + 'static>(&self, f: impl Fn(&K, V) -> V2 + Send + Sync + 'static) -> KTable<K, V2> {
        self.view("KTABLE-MAPVALUES", move |k, v| Some(f(k, v)))
    }
    /// Every change as a record: the new value, `None` where the entry was deleted.
    pub fn to_stream(&self) -> KStream<K, Option<V>> {
        let node = self.build.borrow_mut().graph.add("KTABLE-TOSTREAM", None, Role::Step, &[self.node]);
        let out = Outlets::<K, Option<V>>::new();
        let below = out.clone();
        let f = Arc::new(
            |mut r: crate::processor::Record<K, Change<V>>,
             cx: &mut ProcessorCx<'_, '_>,
             next: &mut dyn crate::processor::Process<K, Option<V>>| {
                let new = r.value.new.take();
                next.process(r.with_value(new), cx)
            },
        );
        self.out.add(move |parts| Box::new(Each { f: f.clone(), next: below.make(parts) }));
        stream_of(&self.build, node, out, false)
    }

    fn view<V2: Clone + 'static>(&self, kind: &str, f: impl Fn(&K, V) -> Option<V2> + Send + Sync + 'static) -> KTable<K, V2> {
        let node = self.build.borrow_mut().graph.add(kind, None, Role::Step, &[self.node]);
        let out = Outlets::<K, Change<V2>>::new();
        let (below, f) = (out.clone(), Arc::new(f));
        let (on_change, on_get, through) = (f.clone(), f, self.get.clone());
        let change = Arc::new(
            move |r: crate::processor::Record<K, Change<V>>,
                  cx: &mut ProcessorCx<'_, '_>,
                  next: &mut dyn crate::processor::Process<K, Change<V2>>| {
                let seen = |v: Option<V>| v.and_then(|v| on_change(&r.key, v));
                let Change { old, new } = r.value.clone();
                let change = Change { old: seen(old), new: seen(new) };
                if change.old.is_none() && change.new.is_none() {
                    return Ok(());
                }
                next.process(r.with_value(change), cx)
            },
        );
        self.out.add(move |parts| Box::new(Each { f: change.clone(), next: below.make(parts) }));
        let get: Getter<K, V2> = Arc::new(move |cx, key| Ok(through(cx, key)?.and_then(|(v, t)| Some((on_get(key, v)?, t)))));
        KTable { build: self.build.clone(), node, out, get, store: self.store.clone(), key: self.key.clone() }
    }
}
