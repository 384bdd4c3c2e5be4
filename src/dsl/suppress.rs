//! Holding changes of a table back: until their window has closed, or for a time. What is held back stands in a store of its own,
//! so a restart loses none of it.

use std::sync::Arc;
use std::time::Duration;

use crate::error::codes;
use crate::processor::{Change, StreamClock, millis};
use crate::serdes::{SerdeRef, Window, Windowed};
use crate::topology::{NodeId, Role};

use super::builder::Build;
use super::held_back::{Buffer, Held, HeldBack};
use super::keeping::{self, NamedStore};
use super::outlets::Outlets;
use super::table::{Asked, Getter, KTable};

/// When windows of a step close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Closing {
    /// How long after its end a window takes late records.
    pub(super) grace: Duration,
    /// Whether the end belongs to the window.
    pub(super) end_belongs: bool,
}

/// How much may be held back before something must be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferConfig {
    records: u64,
    bytes: u64,
}

/// A buffer that passes its oldest entries on when it is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "EagerBufferConfig")]
pub struct EagerBuffer(BufferConfig);

/// A buffer that never passes an entry on too early: it has no bounds, or the application stops when they are reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "StrictBufferConfig")]
pub struct StrictBuffer(BufferConfig);

impl BufferConfig {
    /// At most this many keys.
    pub fn max_records(records: u64) -> Self {
        Self { records, bytes: u64::MAX }
    }
    /// At most this many bytes of keys and values.
    pub fn max_bytes(bytes: u64) -> Self {
        Self { records: u64::MAX, bytes }
    }
    /// No bounds: what is held back lies on disk.
    pub fn unbounded() -> StrictBuffer {
        StrictBuffer(Self { records: u64::MAX, bytes: u64::MAX })
    }
    /// At most this many bytes too.
    #[must_use]
    pub fn and_max_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }
    /// When full, the oldest entries are passed on before their time.
    pub fn emit_early_when_full(self) -> EagerBuffer {
        EagerBuffer(self)
    }
    /// When full, the application stops with an error.
    pub fn shut_down_when_full(self) -> StrictBuffer {
        StrictBuffer(self)
    }
}

/// A buffer of either kind.
#[derive(Clone, Copy)]
pub struct AnyBuffer(Buffer);

impl From<EagerBuffer> for AnyBuffer {
    fn from(b: EagerBuffer) -> Self {
        Self(Buffer { records: b.0.records, bytes: b.0.bytes, emits_early: true })
    }
}

impl From<StrictBuffer> for AnyBuffer {
    fn from(b: StrictBuffer) -> Self {
        Self(Buffer { records: b.0.records, bytes: b.0.bytes, emits_early: false })
    }
}

/// What is held back, and for how long. The name is compulsory: its store is named by it.
pub struct Suppressed<K> {
    store: NamedStore,
    buffer: Buffer,
    until: Until<K>,
}

enum Until<K> {
    WindowCloses(fn(&K) -> Window),
    Limit(Duration),
}

impl<K> Suppressed<Windowed<K>> {
    /// One result a window, once no record can change it any more. The table must be windowed by a step above.
    pub fn until_window_closes(name: impl Into<NamedStore>, buffer: StrictBuffer) -> Self {
        Self { store: name.into(), buffer: AnyBuffer::from(buffer).0, until: Until::WindowCloses(|key| key.window) }
    }
}

impl<K> Suppressed<K> {
    /// At most one change a key in each `limit` of stream time, counted from the first one held back.
    pub fn until_time_limit(name: impl Into<NamedStore>, limit: Duration, buffer: impl Into<AnyBuffer>) -> Self {
        Self { store: name.into(), buffer: buffer.into().0, until: Until::Limit(limit) }
    }
}

impl<K: Clone + 'static, V: Clone + 'static> KTable<K, V> {
    /// Holds changes back. `value` is how they are kept meanwhile. Reads of this table see what was passed on.
    pub fn suppress(&self, how: Suppressed<K>, value: SerdeRef<V>) -> KTable<K, V> {
        let Suppressed { store, buffer, until } = how;
        let place = keeping::place(&self.build, &store, None);
        let held = match until {
            Until::Limit(limit) => Held::For(millis(limit)),
            Until::WindowCloses(window) => {
                let build = &mut *self.build.borrow_mut();
                let closing = closing_above(build, self.node);
                if closing.is_none() {
                    let name = &store.name;
                    build.graph.problem(
                        codes::BAD_VALUE,
                        format!("`{name}` waits for windows to close, and no step above has windows that do"),
                    );
                }
                let Closing { grace, end_belongs } = closing.unwrap_or(Closing { grace: Duration::ZERO, end_belongs: false });
                Held::UntilClose { window, grace: millis(grace), end_belongs }
            }
        };
        let (node, label): (NodeId, Arc<str>) = {
            let graph = &mut self.build.borrow_mut().graph;
            if store.name.is_empty() {
                graph.problem(codes::MISSING_NAME, "a suppression needs a name: its store is named by it");
            }
            let node = graph.add("KTABLE-SUPPRESS", None, Role::Step, &[self.node]);
            graph.uses(node, place.name());
            (node, graph.name_of(node).into())
        };
        let out = Outlets::<K, Change<V>>::new();
        let serdes = (self.key.clone(), value.clone());
        let kept = HeldBack::new(place.clone(), held, self.key.clone(), value);
        let stores = self.stores.iter().chain([place.name()]).cloned().collect();
        let (below, make) = (out.clone(), kept.clone());
        self.out.add(move |parts| {
            let clock = StreamClock::new(place.clone());
            keeping::node(super::held_back::Suppress::new(make.clone(), clock, buffer, label.clone(), below.make(parts)), parts)
        });
        let through = self.get.clone();
        let get: Getter<K, V> = Arc::new(move |cx, key| match kept.prior(cx, key)? {
            Some(prior) => Ok(prior),
            None => through(cx, key),
        });
        self.asked.want_old();
        keeping::table(&self.build, node, out, stores, serdes, get, Asked::below(&[&self.asked]))
    }
}

/// The windows of the nearest step above that has some.
fn closing_above(build: &Build, node: NodeId) -> Option<Closing> {
    let mut open = vec![node];
    while let Some(id) = open.pop() {
        if let Some(closing) = build.closings.get(&id) {
            return Some(*closing);
        }
        open.extend(build.graph.above(id));
    }
    None
}
