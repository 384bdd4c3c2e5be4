//! A table grouped anew: its entries are folded by another key, and an entry that changes or goes is taken out of its group again.

use crate::error::Error;
use crate::processor::{Change, Process, ProcessorCx, Record};
use crate::serdes::{SerdeRef, Serdes};
use crate::time::WallTime;

use super::builder::{Shared, store, stream_of};
use super::change;
use super::keeping::NamedStore;
use super::table::{Asked, KTable, Timed};
use super::with::{Grouped, Repartitioned};
use super::{KStream, outlets::Outlets};
use crate::topology::NodeId;

/// A table's entries under the keys of their groups. Each fold below reads them through a repartition topic of its own, named
/// after its store.
pub struct KGroupedTable<K, V> {
    build: Shared,
    node: NodeId,
    out: Outlets<K, Change<V>>,
    grouped: Grouped<K, V>,
}

impl<K: Clone + 'static, V: Clone + 'static> KTable<K, V> {
    /// Groups entries by another key. Where an entry changes its group, the old one gives it up before the new one takes it; where
    /// it stays, both happen in one step.
    #[doc(alias = "groupBy")]
    pub fn group_by<K2, V2>(
        &self,
        f: impl Fn(&K, V) -> (K2, V2) + Send + Sync + 'static,
        grouped: Grouped<K2, V2>,
    ) -> KGroupedTable<K2, V2>
    where
        K2: Clone + PartialEq + 'static,
        V2: Clone + 'static,
    {
        self.group_with(move |k, v| Ok(f(k, v)), grouped)
    }
    /// As [`Self::group_by`], by a function that can fail.
    pub(crate) fn group_with<K2, V2>(
        &self,
        f: impl Fn(&K, V) -> Result<(K2, V2), Error> + Send + Sync + 'static,
        grouped: Grouped<K2, V2>,
    ) -> KGroupedTable<K2, V2>
    where
        K2: Clone + PartialEq + 'static,
        V2: Clone + 'static,
    {
        self.asked.want_old();
        let (node, out) = self.below("KTABLE-SELECT", move |r: Record<K, Change<V>>, cx, next| {
            let Record { key, value: Change { old, new }, timestamp, headers } = r;
            let (old, new) = (old.map(|v| f(&key, v)).transpose()?, new.map(|v| f(&key, v)).transpose()?);
            let mut pass =
                |key, old, new| next.process(Record { key, value: Change { old, new }, timestamp, headers: headers.clone() }, cx);
            match (old, new) {
                (Some((from, old)), Some((to, new))) if from == to => pass(to, Some(old), Some(new)),
                (old, new) => {
                    old.map_or(Ok(()), |(group, value)| pass(group, Some(value), None))?;
                    new.map_or(Ok(()), |(group, value)| pass(group, None, Some(value)))
                }
            }
        });
        KGroupedTable { build: self.build.clone(), node, out, grouped }
    }
}

impl<K: Clone + 'static, V: Clone + 'static> KGroupedTable<K, V> {
    /// How many entries each group has; a group that lost its last one keeps its zero. `name` names the store.
    pub fn count(&self, name: impl Into<NamedStore>) -> KTable<K, i64> {
        self.aggregate(name, || 0, |_, _, n| n + 1, |_, _, n| n - 1, Serdes::long())
    }

    /// Each group folded into one of its own values: `add` takes a value in, `subtract` takes it out again.
    pub fn reduce(
        &self,
        name: impl Into<NamedStore>,
        add: impl Fn(V, V) -> V + Send + Sync + 'static,
        subtract: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> KTable<K, V> {
        let value = self.grouped.value.clone();
        let add = move |_: &K, v: V, sum: Option<V>| {
            Ok(Some(match sum {
                Some(sum) => add(sum, v),
                None => v,
            }))
        };
        self.fold("KTABLE-REDUCE", name.into(), value, add, move |_, v, sum| Ok(Some(subtract(sum, v))))
    }

    /// Each group folded into a value of another type, from `init`. Where `add` or `subtract` answers `None`, the group is deleted.
    pub fn aggregate<A, N, S>(
        &self,
        name: impl Into<NamedStore>,
        init: impl Fn() -> A + Send + Sync + 'static,
        add: impl Fn(&K, V, A) -> N + Send + Sync + 'static,
        subtract: impl Fn(&K, V, A) -> S + Send + Sync + 'static,
        value: SerdeRef<A>,
    ) -> KTable<K, A>
    where
        A: Clone + 'static,
        N: Into<Option<A>>,
        S: Into<Option<A>>,
    {
        let add = move |k: &K, v: V, sum: Option<A>| Ok(add(k, v, sum.unwrap_or_else(&init)).into());
        self.fold_by(name.into(), value, add, move |k, v, sum| Ok(subtract(k, v, sum).into()))
    }
    /// As [`Self::aggregate`], by steps that can fail.
    pub(crate) fn fold_by<A: Clone + 'static>(
        &self,
        name: NamedStore,
        value: SerdeRef<A>,
        add: impl Fn(&K, V, Option<A>) -> Result<Option<A>, Error> + Send + Sync + 'static,
        subtract: impl Fn(&K, V, A) -> Result<Option<A>, Error> + Send + Sync + 'static,
    ) -> KTable<K, A> {
        self.fold("KTABLE-AGGREGATE", name, value, add, subtract)
    }

    fn fold<A: Clone + 'static>(
        &self,
        kind: &str,
        name: NamedStore,
        value: SerdeRef<A>,
        add: impl Fn(&K, V, Option<A>) -> Result<Option<A>, Error> + Send + Sync + 'static,
        subtract: impl Fn(&K, V, A) -> Result<Option<A>, Error> + Send + Sync + 'static,
    ) -> KTable<K, A> {
        let Grouped { key, value: input } = &self.grouped;
        let kept = store(&self.build, &name.materialized(key.clone(), value));
        let selected: KStream<K, Change<V>> = stream_of(&self.build, self.node, self.out.clone(), true);
        let entries = selected.repartition(Repartitioned::named(&name.name, key.clone(), change::serde(input.clone())));
        let sums = kept.clone();
        let folded = entries.each(kind, false, move |r, cx: &mut ProcessorCx<'_, '_>, next: &mut dyn Process<K, Change<A>>| {
            let before = sums.get_with_time(cx, &r.key)?;
            let Record { key, value, timestamp, headers } = r;
            let old = before.as_ref().map(|(sum, _)| sum.clone());
            let (new, timestamp) = turn(&key, value, timestamp, before, &add, &subtract)?;
            match &new {
                Some(sum) => sums.put(cx, &key, sum, timestamp, &headers)?,
                None => sums.delete(cx, &key)?,
            }
            next.process(Record { key, value: Change { old, new }, timestamp, headers }, cx)
        });
        self.build.borrow_mut().graph.uses(folded.node, kept.name());
        KTable::of_store(&self.build, folded.node, folded.out, kept, Asked::default())
    }
}

/// The group's value after a change, and its time: first without the old entry, then with the new one.
fn turn<K, V, A: Clone>(
    key: &K,
    change: Change<V>,
    at: Option<WallTime>,
    before: Option<Timed<A>>,
    add: &impl Fn(&K, V, Option<A>) -> Result<Option<A>, Error>,
    subtract: &impl Fn(&K, V, A) -> Result<Option<A>, Error>,
) -> Result<(Option<A>, Option<WallTime>), Error> {
    let since = before.as_ref().map(|(_, t)| *t);
    let sum = before.map(|(sum, _)| sum);
    let touched = change.new.is_some() || (change.old.is_some() && sum.is_some());
    let without = match (change.old, sum) {
        (Some(old), Some(sum)) => subtract(key, old, sum)?,
        (_, sum) => sum,
    };
    let with = match change.new {
        Some(new) => add(key, new, without)?,
        None => without,
    };
    Ok((with, if touched { at.max(since.flatten()) } else { at }))
}
