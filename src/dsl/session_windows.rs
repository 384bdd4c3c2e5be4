//! Sessions of grouped records, and what is kept of each.

use std::sync::Arc;

use crate::error::{Result, codes};
use crate::processor::{
    Change, Expiry, Kept, Next, Process, ProcessorCx, Record, Segmented, SessionStore, StreamClock, WindowIndex, millis, time_of,
};
use crate::serdes::{SerdeRef, Serdes, Window, Windowed};
use crate::task::{Dropped, TaskError};
use crate::time::WallTime;
use crate::topology::Role;

use super::group::{Fold, Grouping};
use super::keeping::{self, Lasting, NamedStore};
use super::outlets::Outlets;
use super::record_cache;
use super::suppress::Closing;
use super::table::{Asked, KTable};
use super::windowed::Windowing;
use super::windows::{self, EmitStrategy, SessionWindows};

impl Windowing for SessionWindows {
    type Of<K, V> = SessionWindowedKStream<K, V>;
    fn over<K, V>(self, grouping: Grouping<K, V>) -> SessionWindowedKStream<K, V> {
        SessionWindowedKStream { grouping, windows: self, emit: EmitStrategy::default() }
    }
}

/// A stream grouped by key and session.
#[doc(alias = "SessionWindowedCogroupedKStream")]
pub struct SessionWindowedKStream<K, V> {
    grouping: Grouping<K, V>,
    windows: SessionWindows,
    emit: EmitStrategy,
}

/// How a session is folded: its first value, one more record, two sessions that become one.
pub(crate) struct Folding<K, V, A> {
    /// What a session without any record holds; `None` where its first record is taken as it is.
    pub(crate) init: Box<dyn Fn() -> Option<A> + Send + Sync>,
    pub(crate) step: Fold<K, V, A>,
    pub(crate) merge: Box<dyn Fn(&K, A, A) -> Result<A> + Send + Sync>,
}

impl<K: Clone + 'static, V: Clone + 'static> SessionWindowedKStream<K, V> {
    /// Says when results are passed on: at each change, or once when their session has closed.
    #[must_use]
    pub fn emit_strategy(mut self, emit: EmitStrategy) -> Self {
        self.emit = emit;
        self
    }
    /// How many records each session had. `name` names the store.
    pub fn count(&self, name: impl Into<NamedStore>) -> KTable<Windowed<K>, i64> {
        self.aggregate(name, || 0, |_, _, n| n + 1, |_, a, b| a + b, Serdes::long())
    }
    /// Each session folded from `init`; where two become one, `merge` says what that is.
    pub fn aggregate<A: Clone + 'static>(
        &self,
        name: impl Into<NamedStore>,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
        merge: impl Fn(&K, A, A) -> A + Send + Sync + 'static,
        value: SerdeRef<A>,
    ) -> KTable<Windowed<K>, A> {
        let init = Arc::new(init);
        let fresh = init.clone();
        let folding = Folding {
            init: Box::new(move || Some(init())),
            step: Arc::new(move |k, v, a| Ok(f(k, v, a.unwrap_or_else(|| fresh())))),
            merge: Box::new(move |k, a, b| Ok(merge(k, a, b))),
        };
        self.fold_by(name.into(), value, folding)
    }
    /// As [`aggregate`](Self::aggregate), by steps that can fail.
    pub(crate) fn fold_by<A: Clone + 'static>(
        &self,
        name: NamedStore,
        value: SerdeRef<A>,
        folding: Folding<K, V, A>,
    ) -> KTable<Windowed<K>, A> {
        self.fold("KSTREAM-AGGREGATE", name, value, folding)
    }
    /// Each session folded into one of its own values; the first is taken as it is.
    pub fn reduce(&self, name: impl Into<NamedStore>, f: impl Fn(V, V) -> V + Send + Sync + 'static) -> KTable<Windowed<K>, V> {
        let (one, two) = (Arc::new(f), self.grouping.value.clone());
        let other = one.clone();
        let folding = Folding {
            init: Box::new(|| None),
            step: Arc::new(move |_: &K, v, a| {
                Ok(match a {
                    Some(a) => one(a, v),
                    None => v,
                })
            }),
            merge: Box::new(move |_: &K, a, b| Ok(other(a, b))),
        };
        self.fold("KSTREAM-REDUCE", name.into(), two, folding)
    }

    fn fold<A: Clone + 'static>(
        &self,
        kind: &str,
        name: NamedStore,
        value: SerdeRef<A>,
        folding: Folding<K, V, A>,
    ) -> KTable<Windowed<K>, A> {
        let input = (self.grouping.by_name)(&name.name);
        let build = input.build.clone();
        let retention = name.at_least(self.windows.gap + self.windows.grace);
        let verdict = if millis(self.windows.gap) == 0 { Err("their gap must be a millisecond or more") } else { Ok(()) };
        windows::check(&mut build.borrow_mut().graph, &name.name, verdict);
        if name.name.is_empty() {
            build.borrow_mut().graph.problem(codes::MISSING_NAME, "a windowed step needs a name: its store is named by it");
        }
        let segmented =
            Segmented::new(keeping::place(&build, &name, Some(retention)), self.windows.gap.max(retention / 4), retention);
        let store = SessionStore::new(segmented, self.grouping.key.clone(), value.clone());
        let node = build.borrow_mut().graph.add(kind, None, Role::Step, &[input.node]);
        let label: Arc<str> = build.borrow().graph.name_of(node).into();
        build.borrow_mut().graph.uses(node, store.name());
        let closing = Closing { grace: self.windows.gap + self.windows.grace, end_belongs: true };
        build.borrow_mut().closings.insert(node, closing);
        let out = Outlets::<Windowed<K>, Change<A>>::new();
        let (below, kept, folding) = (out.clone(), store.clone(), Arc::new(folding));
        let (windows, emit) = (self.windows, self.emit);
        input.out.add(move |parts| {
            let place = kept.place().clone();
            let sessions = Sessions {
                windows,
                waiting: (emit == EmitStrategy::OnWindowClose).then(|| WindowIndex::new(place.clone())),
                clock: StreamClock::new(place),
                expiry: Expiry::new(kept.segmented.clone()),
                store: kept.clone(),
                folding: folding.clone(),
                name: label.clone(),
                next: below.make(parts),
            };
            keeping::node(sessions, parts)
        });
        let serdes = (Serdes::session_windowed(self.grouping.key.clone()), value);
        let (asked, cached) = (Asked::default(), name.cached && emit == EmitStrategy::OnWindowUpdate);
        let out = record_cache::outlets(out, cached, store.place().changelog(), serdes.clone(), &asked);
        keeping::table(
            &build,
            node,
            out,
            vec![store.name().clone()],
            serdes,
            Arc::new(move |cx, key| Ok(store.get(cx, &key.key, key.window)?.map(|kept| (kept.value, kept.timestamp)))),
            asked,
        )
    }
}

/// The node.
struct Sessions<K, V, A> {
    windows: SessionWindows,
    /// Where results wait for their session to close.
    waiting: Option<WindowIndex>,
    clock: StreamClock,
    expiry: Expiry,
    store: SessionStore<K, A>,
    folding: Arc<Folding<K, V, A>>,
    name: Arc<str>,
    next: Next<Windowed<K>, Change<A>>,
}

impl<K: Clone, V: Clone, A: Clone> Process<K, V> for Sessions<K, V, A> {
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> std::result::Result<(), TaskError> {
        if keeping::has_no_key(&self.store.key, &record.key, cx)? {
            cx.dropped(&self.name, Dropped::NullKey);
            return Ok(());
        }
        let at = time_of(record.timestamp)?;
        let now = self.clock.observe(at);
        let close = now.minus(self.windows.gap).minus(self.windows.grace);
        let mut near = self.store.find(cx, &record.key, at.minus(self.windows.gap), at.plus(self.windows.gap), now.max(at))?;
        // What has closed stays as it was given out.
        near.retain(|(session, _)| session.end >= close);
        let whole = near
            .iter()
            .fold(Window { start: at, end: at }, |w, (s, _)| Window { start: w.start.min(s.start), end: w.end.max(s.end) });
        match whole.end < close {
            true => cx.dropped(&self.name, Dropped::Late),
            false => self.merge(record, whole, near, cx)?,
        }
        self.give_out(close, cx)
    }
}

impl<K: Clone, V: Clone, A: Clone> Sessions<K, V, A> {
    /// Makes one session of those near a record and the record itself.
    fn merge(
        &mut self,
        record: Record<K, V>,
        whole: Window,
        near: Vec<(Window, Kept<A>)>,
        cx: &mut ProcessorCx<'_, '_>,
    ) -> std::result::Result<(), TaskError> {
        let Record { key, value, headers, .. } = record;
        let (mut sum, mut old) = ((self.folding.init)(), None);
        for (session, kept) in near {
            sum = Some(match sum {
                Some(sum) => (self.folding.merge)(&key, sum, kept.value.clone())?,
                None => kept.value.clone(),
            });
            if session == whole {
                old = Some(kept.value);
                continue;
            }
            self.store.delete(cx, &key, session)?;
            self.changed(&key, session, Change { old: Some(kept.value), new: None }, &headers, cx)?;
        }
        let new = (self.folding.step)(&key, value, sum)?;
        self.store.put(cx, &key, whole, &new, Some(whole.end), &headers)?;
        self.changed(&key, whole, Change { old, new: Some(new) }, &headers, cx)
    }

    /// Passes a change on, or notes it down until the session closes.
    fn changed(
        &mut self,
        key: &K,
        session: Window,
        value: Change<A>,
        headers: &crate::record::Headers,
        cx: &mut ProcessorCx<'_, '_>,
    ) -> std::result::Result<(), TaskError> {
        let Some(waiting) = &mut self.waiting else {
            let key = Windowed { key: key.clone(), window: session };
            return self.next.process(Record { key, value, timestamp: Some(session.end), headers: headers.clone() }, cx);
        };
        let key = self.store.place().key_bytes(cx, &self.store.key, key)?;
        match (&value.old, &value.new) {
            (None, Some(_)) => waiting.put(cx, &key, session),
            (Some(_), None) => waiting.delete(cx, &key, session),
            _ => Ok(()),
        }
    }

    /// Passes on the sessions that have closed: those that end before `close`.
    fn give_out(&mut self, close: WallTime, cx: &mut ProcessorCx<'_, '_>) -> std::result::Result<(), TaskError> {
        let Some(waiting) = self.waiting.as_mut() else { return Ok(()) };
        for (key, window) in waiting.take_before(cx, close)? {
            let key = self.store.place().decode(cx, &self.store.key, &key, &Default::default())?;
            let Some(kept) = self.store.get(cx, &key, window)? else { continue };
            let value = Change { old: None, new: Some(kept.value) };
            let key = Windowed { key, window };
            self.next.process(Record { key, value, timestamp: kept.timestamp, headers: kept.headers }, cx)?;
        }
        Ok(())
    }
}

impl<K, V, A> Lasting for Sessions<K, V, A> {
    fn restored(&mut self, cx: &mut ProcessorCx<'_, '_>) -> std::result::Result<(), TaskError> {
        self.clock.restored(cx)
    }
    fn before_commit(&mut self, cx: &mut ProcessorCx<'_, '_>) -> std::result::Result<(), TaskError> {
        self.clock.save(cx)?;
        self.expiry.run(cx, self.clock.now())
    }
}
