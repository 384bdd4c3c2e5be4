//! Two streams joined: records of equal keys whose times are close enough meet. What stays alone is told once, when its window has
//! closed, and meets nobody after that.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::error::codes;
use crate::processor::Segmented;
use crate::serdes::SerdeRef;
use crate::topology::{NodeId, Parts, Role};

use super::KStream;
use super::branch::shared_once;
use super::builder::stream_of;
use super::join_sides::{Joiner, Meeting, Side, Sides};
use super::keeping::{self, NamedStore};
use super::outlets::Outlets;
use super::windows::JoinWindows;

/// How two joined streams are kept and travel. The name is compulsory: stores and, where keys may have changed, repartition topics
/// are named by it.
pub struct StreamJoined<K, V1, V2> {
    name: String,
    key: SerdeRef<K>,
    this: SerdeRef<V1>,
    other: SerdeRef<V2>,
    memory: bool,
}

impl<K, V1, V2> StreamJoined<K, V1, V2> {
    /// A join of this name; serdes of the key, of this stream's values, of the other's.
    #[doc(alias = "with")]
    pub fn named(name: impl Into<String>, key: SerdeRef<K>, this: SerdeRef<V1>, other: SerdeRef<V2>) -> Self {
        Self { name: name.into(), key, this, other, memory: false }
    }
    /// Both sides are kept in memory only and restored from their changelogs at each start.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.memory = true;
        self
    }

    fn store(&self, what: &str) -> NamedStore {
        let store = NamedStore::named(format!("{}-{what}-join", self.name));
        if self.memory { store.in_memory() } else { store }
    }
}

/// Which sides are told of alone.
#[derive(Clone, Copy)]
struct Alone {
    this: bool,
    other: bool,
}

/// A joiner that knows which side may be missing by what it is given.
type Both<K, V1, V2, R> = Arc<dyn Fn(&K, Option<V1>, Option<V2>) -> Option<R> + Send + Sync>;

impl<K: Clone + 'static, V1: Clone + 'static> KStream<K, V1> {
    /// Pairs of records of both streams. The topics of both sides must have the same partition count.
    #[doc(alias = "join")]
    pub fn join_stream<V2: Clone + 'static, R: Clone + 'static>(
        &self,
        other: &KStream<K, V2>,
        windows: JoinWindows,
        joined: StreamJoined<K, V1, V2>,
        f: impl Fn(&K, V1, V2) -> R + Send + Sync + 'static,
    ) -> KStream<K, R> {
        let both = move |k: &K, a: Option<V1>, b: Option<V2>| Some(f(k, a?, b?));
        self.meet(other, windows, joined, Alone { this: false, other: false }, Arc::new(both))
    }
    /// As [`Self::join_stream`], and records of this stream that met nobody, once their window has closed.
    #[doc(alias = "leftJoin")]
    pub fn left_join_stream<V2: Clone + 'static, R: Clone + 'static>(
        &self,
        other: &KStream<K, V2>,
        windows: JoinWindows,
        joined: StreamJoined<K, V1, V2>,
        f: impl Fn(&K, V1, Option<V2>) -> R + Send + Sync + 'static,
    ) -> KStream<K, R> {
        let both = move |k: &K, a: Option<V1>, b: Option<V2>| Some(f(k, a?, b));
        self.meet(other, windows, joined, Alone { this: true, other: false }, Arc::new(both))
    }
    /// As [`Self::join_stream`], and records of either stream that met nobody, once their window has closed.
    #[doc(alias = "outerJoin")]
    pub fn outer_join<V2: Clone + 'static, R: Clone + 'static>(
        &self,
        other: &KStream<K, V2>,
        windows: JoinWindows,
        joined: StreamJoined<K, V1, V2>,
        f: impl Fn(&K, Option<V1>, Option<V2>) -> R + Send + Sync + 'static,
    ) -> KStream<K, R> {
        let both = move |k: &K, a: Option<V1>, b: Option<V2>| Some(f(k, a, b));
        self.meet(other, windows, joined, Alone { this: true, other: true }, Arc::new(both))
    }

    fn meet<V2: Clone + 'static, R: Clone + 'static>(
        &self,
        other: &KStream<K, V2>,
        windows: JoinWindows,
        joined: StreamJoined<K, V1, V2>,
        alone: Alone,
        both: Both<K, V1, V2, R>,
    ) -> KStream<K, R> {
        if joined.name.is_empty() {
            self.build
                .borrow_mut()
                .graph
                .problem(codes::MISSING_NAME, "a join of streams needs a name: its stores are named by it");
        }
        let left = self.partitioned(&format!("{}-left", joined.name), &joined.key, &joined.this);
        let right = other.partitioned(&format!("{}-right", joined.name), &joined.key, &joined.other);
        let retention = windows.before + windows.after + windows.grace;
        let kept = |what: &str| {
            let place = keeping::place(&self.build, &joined.store(what), Some(retention));
            Segmented::new(place, retention, retention)
        };
        let places = Sides { this: kept("this"), other: kept("other") };
        let waiting = (alone.this || alone.other).then(|| keeping::place(&self.build, &joined.store("outer"), None));
        let drawn = self.draw(&left, &right, &joined.name, &places, waiting.as_ref().map(|w| w.name()), alone);

        let out = Outlets::<K, R>::new();
        let side = SideParts { places: places.clone(), windows, key: joined.key.clone(), name: joined.name.as_str().into() };
        let (forth, back) = (both.clone(), both);
        let this: Joiner<K, V1, V2, R> = Arc::new(move |k, a, b| forth(k, Some(a), b));
        let that: Joiner<K, V2, V1, R> = Arc::new(move |k, b, a| back(k, a, Some(b)));
        let meeting = {
            let (side, this, that) = (side.clone(), this.clone(), that.clone());
            let (v1, v2) = (joined.this.clone(), joined.other.clone());
            move || {
                let ways = Sides {
                    this: side.clone().way(true, v1.clone(), v2.clone(), this.clone(), alone.this).alone(),
                    other: side.clone().way(false, v2.clone(), v1.clone(), that.clone(), alone.other).alone(),
                };
                Meeting::new(side.places.clone(), waiting.clone(), side.key.clone(), ways)
            }
        };
        let meeting = Arc::new(meeting);
        let (make, below, mine) = (meeting.clone(), out.clone(), side.clone());
        let (v1, v2) = (joined.this.clone(), joined.other.clone());
        left.out.add(move |parts| {
            let way = mine.clone().way(true, v1.clone(), v2.clone(), this.clone(), alone.this);
            Box::new(Side { way, meeting: once(drawn, &*make, parts), next: shared_once(drawn, &below, parts) })
        });
        let (make, below) = (meeting, out.clone());
        let (v1, v2) = (joined.this, joined.other);
        right.out.add(move |parts| {
            let way = side.clone().way(false, v2.clone(), v1.clone(), that.clone(), alone.other);
            Box::new(Side { way, meeting: once(drawn, &*make, parts), next: shared_once(drawn, &below, parts) })
        });
        stream_of(&self.build, drawn, out, false)
    }

    /// The nodes as Kafka Streams draws them; answers the last one.
    fn draw<V2>(
        &self,
        left: &KStream<K, V1>,
        right: &KStream<K, V2>,
        name: &str,
        places: &Sides<Segmented>,
        waiting: Option<&crate::ids::StoreName>,
        alone: Alone,
    ) -> NodeId {
        let graph = &mut self.build.borrow_mut().graph;
        let (this, other) = (places.this.place.name(), places.other.place.name());
        let kept_this = graph.add("KSTREAM-WINDOWED", Some(&format!("{name}-this-windowed")), Role::Step, &[left.node]);
        let kept_other = graph.add("KSTREAM-WINDOWED", Some(&format!("{name}-other-windowed")), Role::Step, &[right.node]);
        let outer =
            |alone: bool, kind: &str| if alone { format!("{name}-outer-{kind}-join") } else { format!("{name}-{kind}-join") };
        let join_this = graph.add("KSTREAM-JOINTHIS", Some(&outer(alone.other, "this")), Role::Step, &[kept_this]);
        let join_other = graph.add("KSTREAM-JOINOTHER", Some(&outer(alone.this, "other")), Role::Step, &[kept_other]);
        let merge = graph.add("KSTREAM-MERGE", Some(&format!("{name}-merge")), Role::Step, &[join_this, join_other]);
        for (node, store) in [(kept_this, this), (kept_other, other), (join_this, other), (join_other, this)] {
            graph.uses(node, store);
        }
        for (node, store) in [join_this, join_other].into_iter().zip(waiting.into_iter().cycle()) {
            graph.uses(node, store);
        }
        graph.copartition(merge);
        merge
    }
}

/// What both sides have in common.
#[derive(Clone)]
struct SideParts<K> {
    places: Sides<Segmented>,
    windows: JoinWindows,
    key: SerdeRef<K>,
    name: Arc<str>,
}

impl<K: 'static> SideParts<K> {
    fn way<V: 'static, W: 'static, R: 'static>(
        self,
        is_this: bool,
        mine: SerdeRef<V>,
        theirs: SerdeRef<W>,
        joiner: Joiner<K, V, W, R>,
        alone: bool,
    ) -> super::join_sides::Way<K, V, W, R> {
        super::join_sides::Way {
            is_this,
            places: self.places,
            windows: self.windows,
            key: self.key,
            mine,
            theirs,
            joiner,
            alone,
            name: self.name,
        }
    }
}

/// What both sides of a task share.
fn once<K: Clone + 'static, R: 'static>(
    node: NodeId,
    make: &dyn Fn() -> Meeting<K, R>,
    parts: &mut Parts<'_>,
) -> Rc<RefCell<Meeting<K, R>>> {
    // The node's other entry is what hangs below it.
    let place = NodeId(usize::MAX - node.0);
    let made = parts.shared.get(&place).and_then(|any| any.downcast_ref::<Rc<RefCell<Meeting<K, R>>>>()).cloned();
    made.unwrap_or_else(|| {
        let made = Rc::new(RefCell::new(make()));
        parts.shared.insert(place, Box::new(made.clone()));
        keeping::lasting(made.clone(), parts);
        made
    })
}
