//! Grouped records cut into windows of fixed span, and what is kept of each.

use std::sync::Arc;
use std::time::Duration;

use crate::error::codes;
use crate::processor::{Change, Next, Segmented, WindowStore};
use crate::serdes::{SerdeRef, Serdes, Windowed};
use crate::topology::{Parts, Role};

use super::builder::Shared;
use super::group::{Fold, Grouping};
use super::keeping::{self, NamedStore};
use super::outlets::Outlets;
use super::record_cache;
use super::sliding::Sliding;
use super::suppress::Closing;
use super::table::{Asked, KTable};
use super::time_windows::TimeAggregate;
use super::windows::{self, EmitStrategy, SlidingWindows, TimeWindows, UnlimitedWindows};

/// How grouped records can be cut by time.
#[doc(alias = "Windows")]
pub trait Windowing {
    /// The stream that comes of it.
    type Of<K, V>;
    /// Cuts a grouped stream.
    fn over<K, V>(self, grouping: Grouping<K, V>) -> Self::Of<K, V>;
}

/// Windows whose span is known before any record comes.
#[derive(Clone, Copy)]
pub(super) enum Spans {
    Time(TimeWindows),
    Sliding(SlidingWindows),
    Unlimited(UnlimitedWindows),
}

/// A stream grouped by key and window.
#[doc(alias = "TimeWindowedCogroupedKStream")]
pub struct TimeWindowedKStream<K, V> {
    grouping: Grouping<K, V>,
    spans: Spans,
    emit: EmitStrategy,
}

macro_rules! fixed_spans {
    ($($windows:ident as $spans:ident),*) => {$(
        impl Windowing for $windows {
            type Of<K, V> = TimeWindowedKStream<K, V>;
            fn over<K, V>(self, grouping: Grouping<K, V>) -> TimeWindowedKStream<K, V> {
                TimeWindowedKStream { grouping, spans: Spans::$spans(self), emit: EmitStrategy::default() }
            }
        }
    )*};
}
fixed_spans!(TimeWindows as Time, SlidingWindows as Sliding, UnlimitedWindows as Unlimited);

impl<K: Clone + 'static, V: Clone + 'static> TimeWindowedKStream<K, V> {
    /// Says when results are passed on: at each change, or once when their window has closed.
    #[must_use]
    pub fn emit_strategy(mut self, emit: EmitStrategy) -> Self {
        self.emit = emit;
        self
    }
    /// How many records each key had in each window. `name` names the store.
    pub fn count(&self, name: impl Into<NamedStore>) -> KTable<Windowed<K>, i64> {
        self.fold("KSTREAM-AGGREGATE", name.into(), Serdes::long(), Arc::new(|_, _, n| Ok(n.unwrap_or(0) + 1)))
    }
    /// What each key had in each window, folded from `init`.
    pub fn aggregate<A: Clone + 'static>(
        &self,
        name: impl Into<NamedStore>,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
        value: SerdeRef<A>,
    ) -> KTable<Windowed<K>, A> {
        self.fold_by(name.into(), value, Arc::new(move |k, v, a| Ok(f(k, v, a.unwrap_or_else(&init)))))
    }
    /// As [`aggregate`](Self::aggregate), by a step that can fail.
    pub(crate) fn fold_by<A: Clone + 'static>(
        &self,
        name: NamedStore,
        value: SerdeRef<A>,
        step: Fold<K, V, A>,
    ) -> KTable<Windowed<K>, A> {
        self.fold("KSTREAM-AGGREGATE", name, value, step)
    }
    /// What each key had in each window, folded into one of its own values; the first is taken as it is.
    pub fn reduce(&self, name: impl Into<NamedStore>, f: impl Fn(V, V) -> V + Send + Sync + 'static) -> KTable<Windowed<K>, V> {
        let value = self.grouping.value.clone();
        let step: Fold<K, V, V> = Arc::new(move |_, v, a| {
            Ok(match a {
                Some(a) => f(a, v),
                None => v,
            })
        });
        self.fold("KSTREAM-REDUCE", name.into(), value, step)
    }

    fn fold<A: Clone + 'static>(
        &self,
        kind: &str,
        name: NamedStore,
        value: SerdeRef<A>,
        step: Fold<K, V, A>,
    ) -> KTable<Windowed<K>, A> {
        let input = (self.grouping.by_name)(&name.name);
        let build = input.build.clone();
        self.check(&build, &name.name);
        let store = self.store(&build, &name, value.clone());
        let node = build.borrow_mut().graph.add(kind, None, Role::Step, &[input.node]);
        build.borrow_mut().graph.uses(node, store.name());
        let out = Outlets::<Windowed<K>, Change<A>>::new();
        let (below, kept, spans, emit) = (out.clone(), store.clone(), self.spans, self.emit);
        let label: Arc<str> = build.borrow().graph.name_of(node).into();
        build.borrow_mut().closings.extend(self.closing().map(|c| (node, c)));
        input.out.add(move |parts| {
            let next = below.make(parts);
            made(spans, emit, Task { store: kept.clone(), step: step.clone(), name: label.clone(), next }, parts)
        });
        let serdes = (Serdes::time_windowed(self.grouping.key.clone(), store.size()), value);
        let (asked, cached) = (Asked::default(), name.cached && self.emit == EmitStrategy::OnWindowUpdate);
        let out = record_cache::outlets(out, cached, store.place().changelog(), serdes.clone(), &asked);
        keeping::table(
            &build,
            node,
            out,
            vec![store.name().clone()],
            serdes,
            Arc::new(move |cx, key| Ok(store.get(cx, &key.key, key.window.start)?.map(|kept| (kept.value, kept.timestamp)))),
            asked,
        )
    }

    fn closing(&self) -> Option<Closing> {
        match self.spans {
            Spans::Time(w) => Some(Closing { grace: w.grace, end_belongs: false }),
            Spans::Sliding(w) => Some(Closing { grace: w.grace, end_belongs: true }),
            Spans::Unlimited(_) => None,
        }
    }

    fn check(&self, build: &Shared, name: &str) {
        let graph = &mut build.borrow_mut().graph;
        let verdict = match self.spans {
            Spans::Time(w) => w.verdict(),
            Spans::Unlimited(_) if self.emit == EmitStrategy::OnWindowClose => Err("unlimited windows never close"),
            Spans::Sliding(_) | Spans::Unlimited(_) => Ok(()),
        };
        windows::check(graph, name, verdict);
        if name.is_empty() {
            graph.problem(codes::MISSING_NAME, "a windowed step needs a name: its store is named by it");
        }
    }

    fn store<A>(&self, build: &Shared, name: &NamedStore, value: SerdeRef<A>) -> WindowStore<K, A> {
        let (size, width, least) = match self.spans {
            Spans::Time(w) => (w.size, w.advance, w.size + w.grace),
            Spans::Sliding(w) => (w.difference, w.difference, w.difference * 3 + w.grace + Duration::from_millis(1)),
            Spans::Unlimited(_) => (Duration::MAX, keeping::FOREVER, keeping::FOREVER),
        };
        let retention = name.at_least(least);
        let place = keeping::place(build, name, Some(retention).filter(|_| !matches!(self.spans, Spans::Unlimited(_))));
        WindowStore::new(Segmented::new(place, width, retention), self.grouping.key.clone(), value, size)
    }
}

/// What a windowed step of one task is made of.
pub(super) struct Task<K, V, A> {
    pub(super) store: WindowStore<K, A>,
    pub(super) step: Fold<K, V, A>,
    pub(super) name: Arc<str>,
    pub(super) next: Next<Windowed<K>, Change<A>>,
}

fn made<K: Clone + 'static, V: Clone + 'static, A: Clone + 'static>(
    spans: Spans,
    emit: EmitStrategy,
    task: Task<K, V, A>,
    parts: &mut Parts<'_>,
) -> Next<K, V> {
    match spans {
        Spans::Sliding(w) => keeping::node(Sliding::new(w, emit, task), parts),
        Spans::Time(_) | Spans::Unlimited(_) => keeping::node(TimeAggregate::new(spans, emit, task), parts),
    }
}
