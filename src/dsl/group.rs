//! Records grouped by key, and what is kept of each group.

use crate::processor::{Process, ProcessorCx, Record};
use crate::serdes::{SerdeRef, Serdes};
use crate::task::TaskError;

use super::KStream;
use super::builder::store;
use super::source;
use super::table::KTable;
use super::with::{Grouped, Materialized};

/// A stream grouped by key. Where keys may have changed, it goes through a repartition topic named after the store below.
pub struct KGroupedStream<K, V> {
    stream: KStream<K, V>,
    grouped: Grouped<K, V>,
}

impl<K: Clone + 'static, V: Clone + 'static> KStream<K, V> {
    /// Groups by the key as it is.
    pub fn group_by_key(&self, grouped: Grouped<K, V>) -> KGroupedStream<K, V> {
        KGroupedStream { stream: self.clone().unnamed(), grouped }
    }
    /// Groups by another key.
    pub fn group_by<K2: Clone + 'static>(
        &self,
        f: impl Fn(&K, &V) -> K2 + Send + Sync + 'static,
        grouped: Grouped<K2, V>,
    ) -> KGroupedStream<K2, V> {
        KGroupedStream { stream: self.select_key(f), grouped }
    }
}

impl<K: Clone + 'static, V: Clone + 'static> KGroupedStream<K, V> {
    /// How many records each key had. `name` names the store.
    pub fn count(&self, name: &str) -> KTable<K, i64> {
        self.aggregate(name, || 0, |_, _, n| n + 1, Serdes::long())
    }
    /// Each group folded into one of its own values; the first is taken as it is.
    pub fn reduce(&self, name: &str, f: impl Fn(V, V) -> V + Send + Sync + 'static) -> KTable<K, V> {
        let value = self.grouped.value.clone();
        self.fold("KSTREAM-REDUCE", name, value, move |_, v, sum| match sum {
            Some(sum) => f(sum, v),
            None => v,
        })
    }
    /// Each group folded into a value of another type, from `init`.
    pub fn aggregate<A: Clone + 'static>(
        &self,
        name: &str,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
        value: SerdeRef<A>,
    ) -> KTable<K, A> {
        self.fold("KSTREAM-AGGREGATE", name, value, move |k, v, sum| f(k, v, sum.unwrap_or_else(&init)))
    }

    fn fold<A: Clone + 'static>(
        &self,
        kind: &str,
        name: &str,
        value: SerdeRef<A>,
        f: impl Fn(&K, V, Option<A>) -> A + Send + Sync + 'static,
    ) -> KTable<K, A> {
        let Grouped { key, value: input } = &self.grouped;
        let kept = store(&self.stream.build, &Materialized::named(name, key.clone(), value));
        let partitioned = self.stream.partitioned(name, key, input);
        let sums = kept.clone();
        let folded = partitioned.unnamed().each(
            kind,
            false,
            move |r: Record<K, V>, cx: &mut ProcessorCx<'_, '_>, next: &mut dyn Process<K, Option<A>>| -> Result<(), TaskError> {
                let before = sums.get_with_time(cx, &r.key)?;
                let latest = r.timestamp.max(before.as_ref().and_then(|(_, t)| *t));
                let Record { key, value, headers, .. } = r;
                let sum = f(&key, value, before.map(|(sum, _)| sum));
                next.process(Record { key, value: Some(sum), timestamp: latest, headers }, cx)
            },
        );
        self.stream.build.borrow_mut().graph.uses(folded.node, kept.name());
        source::upserts(&self.stream.build, "KTABLE-SOURCE", None, folded.node, &folded.out, kept)
    }
}
