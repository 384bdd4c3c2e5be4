//! Tables joined by their keys. Each side's change meets the other side's value of now; the result is a view of both.

use std::sync::Arc;

use crate::processor::{Change, Process, ProcessorCx, Record};
use crate::task::TaskError;
use crate::topology::Role;

use super::branch::shared_once;
use super::outlets::{Each, Outlets};
use super::table::{Asked, Getter, KTable, Timed};

/// Which sides must be there for an entry of the result.
#[derive(Clone, Copy)]
struct Required {
    left: bool,
    right: bool,
}

/// How two values that may be missing become one that may be missing.
type Joiner<K, V, T, R> = Arc<dyn Fn(&K, Option<V>, Option<T>) -> Option<R> + Send + Sync>;

impl<K: Clone + 'static, V: Clone + 'static> KTable<K, V> {
    /// Entries whose key stands in both tables. The topics of both must have the same partition count.
    pub fn join<T, R>(&self, other: &KTable<K, T>, f: impl Fn(&K, V, T) -> R + Send + Sync + 'static) -> KTable<K, R>
    where
        T: Clone + 'static,
        R: Clone + 'static,
    {
        let joiner: Joiner<K, V, T, R> = Arc::new(move |k, v, t| Some(f(k, v?, t?)));
        self.join_by(other, Required { left: true, right: true }, joiner)
    }

    /// All entries of this table, with the other's value where there is one.
    #[doc(alias = "leftJoin")]
    pub fn left_join<T, R>(&self, other: &KTable<K, T>, f: impl Fn(&K, V, Option<T>) -> R + Send + Sync + 'static) -> KTable<K, R>
    where
        T: Clone + 'static,
        R: Clone + 'static,
    {
        self.asked.want_old();
        let joiner: Joiner<K, V, T, R> = Arc::new(move |k, v, t| Some(f(k, v?, t)));
        self.join_by(other, Required { left: true, right: false }, joiner)
    }

    /// Entries whose key stands in either table.
    #[doc(alias = "outerJoin")]
    pub fn outer_join<T, R>(
        &self,
        other: &KTable<K, T>,
        f: impl Fn(&K, Option<V>, Option<T>) -> R + Send + Sync + 'static,
    ) -> KTable<K, R>
    where
        T: Clone + 'static,
        R: Clone + 'static,
    {
        self.asked.want_old();
        other.asked.want_old();
        let there = |v: &Option<V>, t: &Option<T>| v.is_some() || t.is_some();
        let joiner: Joiner<K, V, T, R> = Arc::new(move |k, v, t| there(&v, &t).then(|| f(k, v, t)));
        self.join_by(other, Required { left: false, right: false }, joiner)
    }

    fn join_by<T, R>(&self, other: &KTable<K, T>, required: Required, join: Joiner<K, V, T, R>) -> KTable<K, R>
    where
        T: Clone + 'static,
        R: Clone + 'static,
    {
        [&self.asked, &other.asked].iter().for_each(|a| a.want_at_once());
        let name = self.next_name.as_deref();
        let part = |suffix: &str| name.map(|n| format!("{n}-{suffix}"));
        let (this, that, merged) = {
            let graph = &mut self.build.borrow_mut().graph;
            let this = graph.add("KTABLE-JOINTHIS", part("join-this").as_deref(), Role::Step, &[self.node]);
            let that = graph.add("KTABLE-JOINOTHER", part("join-other").as_deref(), Role::Step, &[other.node]);
            other.stores.iter().for_each(|s| graph.uses(this, s));
            self.stores.iter().for_each(|s| graph.uses(that, s));
            let merged = graph.add("KTABLE-MERGE", name, Role::Step, &[this, that]);
            graph.copartition(merged);
            (this, that, merged)
        };
        debug_assert!(this < that && that < merged, "numbered in the order of Kafka Streams");

        let out = Outlets::<K, Change<R>>::new();
        let asked = Asked::below(&[&self.asked, &other.asked]);
        let flipped: Joiner<K, T, V, R> = {
            let join = join.clone();
            Arc::new(move |k, t, v| join(k, v, t))
        };
        side(
            &self.out,
            &out,
            merged,
            Side { other: other.get.clone(), needs: required.right, join: join.clone(), asked: asked.clone() },
        );
        side(&other.out, &out, merged, Side { other: self.get.clone(), needs: required.left, join: flipped, asked: asked.clone() });

        let (left, right) = (self.get.clone(), other.get.clone());
        let get: Getter<K, R> = Arc::new(move |cx, key| {
            let (left, right) = (left(cx, key)?, right(cx, key)?);
            let time = time_of(&left).max(time_of(&right));
            Ok(join(key, value_of(left), value_of(right)).map(|r| (r, time)))
        });
        let stores = self.stores.iter().chain(&other.stores).cloned().collect();
        let (build, key) = (self.build.clone(), self.key.clone());
        KTable { build, node: merged, out, get, stores, key, value: None, asked, next_name: None }
    }
}

/// One side of a join: its changes meet the other side.
struct Side<K, V, T, R> {
    other: Getter<K, T>,
    /// Whether there is no result without the other side.
    needs: bool,
    join: Joiner<K, V, T, R>,
    asked: Asked,
}

fn side<K, V, T, R>(
    from: &Outlets<K, Change<V>>,
    out: &Outlets<K, Change<R>>,
    merged: crate::topology::NodeId,
    side: Side<K, V, T, R>,
) where
    K: Clone + 'static,
    V: Clone + 'static,
    T: Clone + 'static,
    R: Clone + 'static,
{
    let (below, f) = (
        out.clone(),
        Arc::new(move |r, cx: &mut ProcessorCx<'_, '_>, next: &mut dyn Process<K, Change<R>>| side.meet(r, cx, next)),
    );
    from.add(move |parts| Box::new(Each { f: f.clone(), next: Box::new(shared_once(merged, &below, parts)) }));
}

impl<K, V, T: Clone, R> Side<K, V, T, R> {
    fn meet(
        &self,
        r: Record<K, Change<V>>,
        cx: &mut ProcessorCx<'_, '_>,
        next: &mut dyn Process<K, Change<R>>,
    ) -> Result<(), TaskError> {
        let found = (self.other)(cx, &r.key)?;
        let nothing = r.value.old.is_none() && r.value.new.is_none();
        if found.is_none() && (self.needs || nothing) {
            return Ok(());
        }
        let timestamp = r.timestamp.max(time_of(&found));
        let found = value_of(found);
        let Record { key, value: Change { old, new }, headers, .. } = r;
        let new = (self.join)(&key, new, found.clone());
        let old = if self.asked.wants_old() { (self.join)(&key, old, found) } else { None };
        next.process(Record { key, value: Change { old, new }, timestamp, headers }, cx)
    }
}

fn time_of<V>(found: &Option<Timed<V>>) -> Option<crate::time::WallTime> {
    found.as_ref().and_then(|(_, t)| *t)
}

fn value_of<V>(found: Option<Timed<V>>) -> Option<V> {
    found.map(|(v, _)| v)
}
