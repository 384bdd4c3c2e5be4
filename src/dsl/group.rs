//! Records grouped by key, and what is kept of each group.

use std::rc::Rc;
use std::sync::Arc;

use crate::error::Result;
use crate::processor::{Process, ProcessorCx, Record};
use crate::serdes::{SerdeRef, Serdes};
use crate::task::{Dropped, TaskError};

use super::KStream;
use super::builder::store;
use super::cogroup::CogroupedKStream;
use super::keeping::{NamedStore, has_no_key};
use super::source;
use super::table::KTable;
use super::windowed::Windowing;
use super::with::Grouped;

/// What one more record makes of an aggregate; `None` where there is none yet. An error makes the record a dead letter.
pub(crate) type Fold<K, V, A> = Arc<dyn Fn(&K, V, Option<A>) -> Result<A> + Send + Sync>;

/// A grouped stream before its step has a name: what travels to the step goes through a topic of that name where keys may have changed.
pub struct Grouping<K, V> {
    pub(super) by_name: Rc<dyn Fn(&str) -> KStream<K, V>>,
    pub(super) key: SerdeRef<K>,
    pub(super) value: SerdeRef<V>,
}

/// A stream grouped by key. Where keys may have changed, it goes through a repartition topic named after the store below.
pub struct KGroupedStream<K, V> {
    stream: KStream<K, V>,
    grouped: Grouped<K, V>,
}

impl<K: Clone + 'static, V: Clone + 'static> KStream<K, V> {
    /// Groups by the key as it is.
    #[doc(alias = "groupByKey")]
    pub fn group_by_key(&self, grouped: Grouped<K, V>) -> KGroupedStream<K, V> {
        KGroupedStream { stream: self.clone().unnamed(), grouped }
    }
    /// Groups by another key.
    #[doc(alias = "groupBy")]
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
    pub fn count(&self, name: impl Into<NamedStore>) -> KTable<K, i64> {
        self.aggregate(name, || 0, |_, _, n| n + 1, Serdes::long())
    }
    /// Each group folded into one of its own values; the first is taken as it is.
    pub fn reduce(&self, name: impl Into<NamedStore>, f: impl Fn(V, V) -> V + Send + Sync + 'static) -> KTable<K, V> {
        let step: Fold<K, V, V> = Arc::new(move |_, v, sum| {
            Ok(match sum {
                Some(sum) => f(sum, v),
                None => v,
            })
        });
        fold(&self.grouping(), "KSTREAM-REDUCE", name.into(), self.grouped.value.clone(), step)
    }
    /// Each group folded into a value of another type, from `init`.
    pub fn aggregate<A: Clone + 'static>(
        &self,
        name: impl Into<NamedStore>,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
        value: SerdeRef<A>,
    ) -> KTable<K, A> {
        let step: Fold<K, V, A> = Arc::new(move |k, v, sum| Ok(f(k, v, sum.unwrap_or_else(&init))));
        self.fold_by(name.into(), value, step)
    }
    /// As [`aggregate`](Self::aggregate), by a step that can fail.
    pub(crate) fn fold_by<A: Clone + 'static>(&self, name: NamedStore, value: SerdeRef<A>, step: Fold<K, V, A>) -> KTable<K, A> {
        fold(&self.grouping(), "KSTREAM-AGGREGATE", name, value, step)
    }
    /// Cuts each group by time: `TimeWindows`, `SlidingWindows`, `SessionWindows` or `UnlimitedWindows`.
    #[doc(alias = "windowedBy")]
    pub fn windowed_by<W: Windowing>(&self, windows: W) -> W::Of<K, V> {
        windows.over(self.grouping())
    }
    /// Begins an aggregate over several grouped streams; `f` says what a record of this one adds.
    pub fn cogroup<A: Clone + 'static>(&self, f: impl Fn(&K, V, A) -> A + Send + Sync + 'static) -> CogroupedKStream<K, A> {
        CogroupedKStream::of(self, move |k, v, a| Ok(f(k, v, a)))
    }

    pub(super) fn grouping(&self) -> Grouping<K, V> {
        let (stream, key, value) = (self.stream.clone(), self.grouped.key.clone(), self.grouped.value.clone());
        let (by_key, by_value) = (key.clone(), value.clone());
        Grouping { by_name: Rc::new(move |name| stream.partitioned(name, &by_key, &by_value).unnamed()), key, value }
    }
}

/// The step that keeps an aggregate of each group, and the table of it.
pub(super) fn fold<K: Clone + 'static, V: Clone + 'static, A: Clone + 'static>(
    grouping: &Grouping<K, V>,
    kind: &str,
    name: NamedStore,
    value: SerdeRef<A>,
    step: Fold<K, V, A>,
) -> KTable<K, A> {
    let input = (grouping.by_name)(&name.name);
    let kept = store(&input.build, &name.materialized(grouping.key.clone(), value));
    let (sums, key_serde) = (kept.clone(), grouping.key.clone());
    let label = input.build.borrow().graph.generated(kind);
    let folded = input.each(
        kind,
        false,
        move |r: Record<K, V>,
              cx: &mut ProcessorCx<'_, '_>,
              next: &mut dyn Process<K, Option<A>>|
              -> std::result::Result<(), TaskError> {
            if has_no_key(&key_serde, &r.key, cx)? {
                cx.dropped(&label, Dropped::NullKey);
                return Ok(());
            }
            let before = sums.get_with_time(cx, &r.key)?;
            let latest = r.timestamp.max(before.as_ref().and_then(|(_, t)| *t));
            let Record { key, value, headers, .. } = r;
            let sum = step(&key, value, before.map(|(sum, _)| sum))?;
            next.process(Record { key, value: Some(sum), timestamp: latest, headers }, cx)
        },
    );
    input.build.borrow_mut().graph.uses(folded.node, kept.name());
    source::upserts(&input.build, "KTABLE-SOURCE", None, folded.node, &folded.out, kept)
}
