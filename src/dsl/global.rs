//! A table that every process holds whole: joined by any key, without a repartition, as far as the process has read its topic.

use std::sync::Arc;

use crate::error::{Error, codes};
use crate::ids::{StoreName, TopicName};
use crate::processor::{GlobalRef, Process, ProcessorCx, Record};
use crate::record::InRecord;
use crate::serdes::{AvroCodec, Raw};
use crate::state::{ChangelogSpec, StoreSpec};
use crate::topology::Role;

use super::KStream;
use super::builder::{Shared, engine_of};
use super::with::Materialized;

/// The newest value of each key of a whole topic. It is read to its end before tasks run, and then on, beside them: unlike a
/// [`KTable`](super::KTable) it is not in step with the streams that meet it.
pub struct GlobalKTable<K, V> {
    pub(super) store: GlobalRef<K, V>,
}

impl<K, V> Clone for GlobalKTable<K, V> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone() }
    }
}

impl<K, V> GlobalKTable<K, V> {
    /// For processors, and for queries.
    pub fn store(&self) -> &GlobalRef<K, V> {
        &self.store
    }
}

pub(super) fn global_table<K, V>(build: &Shared, topic: TopicName, how: Materialized<K, V>) -> GlobalKTable<K, V>
where
    K: Clone + 'static,
    V: Clone + 'static,
{
    let graph = &mut build.borrow_mut().graph;
    if how.name.is_empty() {
        graph.problem(codes::MISSING_NAME, "a global table needs a name: its store is named by it");
    }
    let name = StoreName::new(&how.name);
    let source = graph.add("KSTREAM-SOURCE", None, Role::Source(vec![topic.clone()]), &[]);
    let keeper = graph.add("KTABLE-SOURCE", None, Role::Step, &[source]);
    let spec = StoreSpec {
        name: name.clone(),
        engine: engine_of(&how),
        cached: false,
        changelog: Some(ChangelogSpec { topic: topic.clone(), config: Default::default() }),
    };
    let (key, value) = (how.key.clone(), how.value.clone());
    let check = move |r: &InRecord, avro: Option<&dyn AvroCodec>| {
        let raw = |bytes| Raw { topic: &r.tp.topic, bytes, headers: &r.headers, avro };
        let (Some(k), Some(v)) = (&r.key, &r.value) else { return Ok(()) };
        key.decode(raw(Some(k)))?;
        value.decode(raw(Some(v))).map(drop)
    };
    graph.shape(&name, how.key.shape(), how.value.shape());
    graph.global(spec, keeper, Arc::new(check));
    GlobalKTable { store: GlobalRef::new(name, topic, how.key, how.value) }
}

impl<K: Clone + 'static, V: Clone + 'static> KStream<K, V> {
    /// Records for which `key` finds an entry of the table, with that entry. `f` sees the record's key and the key it looked under.
    #[doc(alias = "join")]
    pub fn join_global<GK, GV, R>(
        &self,
        table: &GlobalKTable<GK, GV>,
        key: impl Fn(&K, &V) -> Option<GK> + Send + Sync + 'static,
        f: impl Fn(&K, &GK, V, GV) -> R + Send + Sync + 'static,
    ) -> KStream<K, R>
    where
        GK: 'static,
        GV: 'static,
        R: Clone + 'static,
    {
        self.meet_global("KSTREAM-JOIN", table, plain(key), move |r: &Record<K, V>, looked, found, _| {
            let both = looked.zip(found);
            Ok(both.map(|(k, found)| f(&r.key, k, r.value.clone(), found)))
        })
    }

    /// As [`Self::join_global`], with every record: `None` where `key` names nothing, or nothing is found.
    #[doc(alias = "leftJoin")]
    pub fn left_join_global<GK, GV, R>(
        &self,
        table: &GlobalKTable<GK, GV>,
        key: impl Fn(&K, &V) -> Option<GK> + Send + Sync + 'static,
        f: impl Fn(&K, Option<&GK>, V, Option<GV>) -> R + Send + Sync + 'static,
    ) -> KStream<K, R>
    where
        GK: 'static,
        GV: 'static,
        R: Clone + 'static,
    {
        self.meet_global("KSTREAM-LEFTJOIN", table, plain(key), move |r: &Record<K, V>, looked, found, _| {
            Ok(Some(f(&r.key, looked, r.value.clone(), found)))
        })
    }

    /// A join whose functions look at the whole record, may fail on it, and drop it by `None`.
    pub(crate) fn join_global_with<GK, GV, R>(
        &self,
        table: &GlobalKTable<GK, GV>,
        key: impl Fn(&Record<K, V>, &ProcessorCx<'_, '_>) -> Result<Option<GK>, Error> + Send + Sync + 'static,
        f: impl Fn(&Record<K, V>, Option<GV>, &ProcessorCx<'_, '_>) -> Result<Option<R>, Error> + Send + Sync + 'static,
    ) -> KStream<K, R>
    where
        GK: 'static,
        GV: 'static,
        R: Clone + 'static,
    {
        self.meet_global("KSTREAM-JOIN", table, key, move |r, _, found, cx| f(r, found, cx))
    }

    fn meet_global<GK, GV, R>(
        &self,
        kind: &str,
        table: &GlobalKTable<GK, GV>,
        key: impl Fn(&Record<K, V>, &ProcessorCx<'_, '_>) -> Result<Option<GK>, Error> + Send + Sync + 'static,
        f: impl Fn(&Record<K, V>, Option<&GK>, Option<GV>, &ProcessorCx<'_, '_>) -> Result<Option<R>, Error> + Send + Sync + 'static,
    ) -> KStream<K, R>
    where
        GK: 'static,
        GV: 'static,
        R: Clone + 'static,
    {
        let store = table.store.clone();
        self.each(kind, self.is_rekeyed(), move |r: Record<K, V>, cx: &mut ProcessorCx<'_, '_>, next: &mut dyn Process<K, R>| {
            let looked = key(&r, cx)?;
            let found = looked.as_ref().map(|k| store.get(cx, k)).transpose()?.flatten();
            match f(&r, looked.as_ref(), found, cx)? {
                Some(value) => next.process(r.with_value(value), cx),
                None => Ok(()),
            }
        })
    }
}

/// A key function that never fails.
fn plain<K, V, GK>(
    key: impl Fn(&K, &V) -> Option<GK> + Send + Sync + 'static,
) -> impl Fn(&Record<K, V>, &ProcessorCx<'_, '_>) -> Result<Option<GK>, Error> + Send + Sync + 'static {
    move |r, _| Ok(key(&r.key, &r.value))
}
