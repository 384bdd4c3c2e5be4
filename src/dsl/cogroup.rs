//! One aggregate over several grouped streams.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Fault, Result, codes};
use crate::serdes::{Raw, Serde, SerdeRef, Target};

use super::KStream;
use super::group::{Fold, Grouping, KGroupedStream, fold};
use super::keeping::NamedStore;
use super::session_windows::{Folding, SessionWindowedKStream};
use super::table::KTable;
use super::windowed::{TimeWindowedKStream, Windowing};
use super::windows::EmitStrategy;

/// What a record of one of the streams does to the aggregate.
pub(crate) type Step<K, A> = Rc<dyn Fn(&K, A) -> Result<A>>;
/// A grouped stream whose step has the name of its place in the list.
type Side<K, A> = Rc<dyn Fn(&str) -> KStream<K, Step<K, A>>>;

/// Grouped streams that share one aggregate.
pub struct CogroupedKStream<K, A> {
    key: SerdeRef<K>,
    first: Side<K, A>,
    others: Vec<Side<K, A>>,
}

/// A grouped stream whose records have become what they do to the aggregate.
fn side<K: Clone + 'static, V: Clone + 'static, A: Clone + 'static>(
    grouped: &KGroupedStream<K, V>,
    f: impl Fn(&K, V, A) -> Result<A> + Send + Sync + 'static,
) -> Side<K, A> {
    let (grouping, f) = (grouped.grouping(), Arc::new(f));
    Rc::new(move |name: &str| {
        let f = f.clone();
        (grouping.by_name)(name).map_values(move |_, v| {
            let f = f.clone();
            let step: Step<K, A> = Rc::new(move |k, a| f(k, v.clone(), a));
            step
        })
    })
}

impl<K: Clone + 'static, A: Clone + 'static> CogroupedKStream<K, A> {
    pub(crate) fn of<V: Clone + 'static>(
        grouped: &KGroupedStream<K, V>,
        f: impl Fn(&K, V, A) -> Result<A> + Send + Sync + 'static,
    ) -> Self {
        Self { key: grouped.grouping().key, first: side(grouped, f), others: Vec::new() }
    }
    /// Adds a stream; `f` says what a record of it adds. Its repartition topic, where it needs one, is named by the aggregate and
    /// the stream's place in the list.
    #[must_use]
    pub fn cogroup<V: Clone + 'static>(
        self,
        grouped: &KGroupedStream<K, V>,
        f: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
    ) -> Self {
        self.cogroup_by(grouped, move |k, v, a| Ok(f(k, v, a)))
    }
    /// As [`Self::cogroup`], by a step that can fail.
    pub(crate) fn cogroup_by<V: Clone + 'static>(
        mut self,
        grouped: &KGroupedStream<K, V>,
        f: impl Fn(&K, V, A) -> Result<A> + Send + Sync + 'static,
    ) -> Self {
        self.others.push(side(grouped, f));
        self
    }
    /// The aggregate of all streams, from `init`. `name` names the store.
    pub fn aggregate(
        &self,
        name: impl Into<NamedStore>,
        init: impl Fn() -> A + Send + Sync + 'static,
        value: SerdeRef<A>,
    ) -> KTable<K, A> {
        let step: Fold<K, Step<K, A>, A> = Arc::new(move |k, step, a| step(k, a.unwrap_or_else(&init)));
        fold(&self.grouping(), "COGROUPKSTREAM-AGGREGATE", name.into(), value, step)
    }
    /// Cuts each group by time.
    #[doc(alias = "windowedBy")]
    pub fn windowed_by<W: Windowing>(&self, windows: W) -> WindowedCogroup<W::Of<K, Step<K, A>>> {
        WindowedCogroup(windows.over(self.grouping()))
    }

    fn grouping(&self) -> Grouping<K, Step<K, A>> {
        let (first, others) = (self.first.clone(), self.others.clone());
        let merged = move |name: &str| {
            let others = others.iter().enumerate().map(|(i, steps)| steps(&format!("{name}-{}", i + 1)));
            let all = others.fold(first(name), |all, one| all.merge(&one));
            all.build.borrow_mut().graph.copartition(all.node);
            all
        };
        Grouping { by_name: Rc::new(merged), key: self.key.clone(), value: Arc::new(NotKept) }
    }
}

/// Grouped streams that share one aggregate in each window.
pub struct WindowedCogroup<W>(W);

impl<K: Clone + 'static, A: Clone + 'static> WindowedCogroup<TimeWindowedKStream<K, Step<K, A>>> {
    /// Says when results are passed on: at each change, or once when their window has closed.
    #[must_use]
    pub fn emit_strategy(self, emit: EmitStrategy) -> Self {
        Self(self.0.emit_strategy(emit))
    }
    /// The aggregate of all streams in each window, from `init`. `name` names the store.
    pub fn aggregate(
        &self,
        name: impl Into<NamedStore>,
        init: impl Fn() -> A + Send + Sync + 'static,
        value: SerdeRef<A>,
    ) -> KTable<crate::serdes::Windowed<K>, A> {
        self.0.fold_by(name.into(), value, Arc::new(move |k, step: Step<K, A>, a| step(k, a.unwrap_or_else(&init))))
    }
}

impl<K: Clone + 'static, A: Clone + 'static> WindowedCogroup<SessionWindowedKStream<K, Step<K, A>>> {
    /// The aggregate of all streams in each session, from `init`; where two become one, `merge` says what that is.
    pub fn aggregate_sessions(
        &self,
        name: impl Into<NamedStore>,
        init: impl Fn() -> A + Send + Sync + 'static,
        merge: impl Fn(&K, A, A) -> A + Send + Sync + 'static,
        value: SerdeRef<A>,
    ) -> KTable<crate::serdes::Windowed<K>, A> {
        self.sessions_by(name.into(), init, move |k, a, b| Ok(merge(k, a, b)), value)
    }
    /// As [`Self::aggregate_sessions`], by a `merge` that can fail.
    pub(crate) fn sessions_by(
        &self,
        name: NamedStore,
        init: impl Fn() -> A + Send + Sync + 'static,
        merge: impl Fn(&K, A, A) -> Result<A> + Send + Sync + 'static,
        value: SerdeRef<A>,
    ) -> KTable<crate::serdes::Windowed<K>, A> {
        let folding = Folding {
            init: Box::new(move || Some(init())),
            // A session begins with what `init` gives.
            step: Arc::new(|k, step: Step<K, A>, a| a.map_or_else(|| Err(no_beginning()), |a| step(k, a))),
            merge: Box::new(merge),
        };
        self.0.fold_by(name, value, folding)
    }
    /// Says when results are passed on: at each change, or once when their session has closed.
    #[must_use]
    pub fn emit_strategy(self, emit: EmitStrategy) -> Self {
        Self(self.0.emit_strategy(emit))
    }
}

fn no_beginning() -> Error {
    Error::new(codes::BUG, Fault::Bug, "a session of a cogroup without its first value")
}

/// Steps of a cogroup are made after the last topic on their way and never written.
struct NotKept;

impl<T> Serde<T> for NotKept {
    fn decode(&self, _: Raw<'_>) -> Result<T> {
        Err(Error::new(codes::BUG, Fault::Bug, "reading a step of a cogroup, which is never kept"))
    }
    fn encode(&self, _: &T, _: Target<'_>) -> Result<Option<Bytes>> {
        Err(Error::new(codes::BUG, Fault::Bug, "writing a step of a cogroup, which is never kept"))
    }
}
