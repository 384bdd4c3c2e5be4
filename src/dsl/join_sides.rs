//! The two sides of a join of streams at work: what they keep, whom a record meets, who stays alone.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::processor::{
    Expiry, KeyParts, Order, Ordered, Place, Process, ProcessorCx, Record, Segmented, StreamClock, WindowIndex, millis, time_of,
};
use crate::record::Headers;
use crate::serdes::{SerdeRef, Window};
use crate::state::Stored;
use crate::task::{Dropped, TaskError};
use crate::time::WallTime;

use super::branch::SharedNode;
use super::keeping::{Lasting, has_no_key};
use super::windows::JoinWindows;

/// What a record of one side, first, makes with one of the other or alone; nothing where it can't be alone.
pub(super) type Joiner<K, V, W, R> = Arc<dyn Fn(&K, V, Option<W>) -> Option<R> + Send + Sync>;
/// Makes what is passed on for a record that stayed alone, from what was kept of it.
type TellAlone<K, R> = Box<dyn Fn(&ProcessorCx<'_, '_>, &K, Stored) -> Result<Option<Record<K, R>>, TaskError>>;

/// One of something for each side.
#[derive(Clone)]
pub(super) struct Sides<T> {
    pub(super) this: T,
    pub(super) other: T,
}

impl<T> Sides<T> {
    fn of(&self, is_this: bool) -> &T {
        if is_this { &self.this } else { &self.other }
    }
    fn of_mut(&mut self, is_this: bool) -> &mut T {
        if is_this { &mut self.this } else { &mut self.other }
    }
}

const COUNTER: &[u8] = b"n";

/// What both sides of a join share in one task.
pub(super) struct Meeting<K, R> {
    places: Sides<Segmented>,
    clocks: Sides<StreamClock>,
    expiry: Sides<Expiry>,
    /// Records that have met nobody yet, by the time their window closes.
    waiting: Option<WindowIndex>,
    key: SerdeRef<K>,
    tell: Sides<TellAlone<K, R>>,
    /// Tells records of equal key and time apart.
    counter: i64,
    saved: i64,
}

impl<K: Clone, R> Meeting<K, R> {
    pub(super) fn new(places: Sides<Segmented>, waiting: Option<Place>, key: SerdeRef<K>, tell: Sides<TellAlone<K, R>>) -> Self {
        Self {
            clocks: Sides {
                this: StreamClock::new(places.this.place.clone()),
                other: StreamClock::new(places.other.place.clone()),
            },
            expiry: Sides { this: Expiry::new(places.this.clone()), other: Expiry::new(places.other.clone()) },
            waiting: waiting.map(WindowIndex::new),
            places,
            key,
            tell,
            counter: 0,
            saved: 0,
        }
    }
    /// The larger time of both sides.
    fn now(&self) -> Option<WallTime> {
        self.clocks.this.now().max(self.clocks.other.now())
    }

    /// Passes on the records whose window has closed and that met nobody; they leave the join.
    fn tell_alone(&mut self, cx: &mut ProcessorCx<'_, '_>, next: &mut SharedNode<K, R>) -> Result<(), TaskError> {
        let (Some(now), Some(waiting)) = (self.now(), self.waiting.as_mut()) else { return Ok(()) };
        for (who, window) in waiting.take_before(cx, now)? {
            let mut parts = KeyParts(&who);
            let read = (|| Some((parts.byte()? == 1, parts.key()?, Bytes::copy_from_slice(parts.0))))();
            let place = &self.places.this.place;
            let (is_this, bytes, tail) = read.ok_or_else(|| place.strange())?;
            let kept = self.places.of(is_this);
            let entry = kept.entry(&bytes, window.start, &tail);
            let Some(stored) = kept.place.get(cx, &entry)? else { continue };
            kept.place.put(cx, &entry, None)?;
            let key = place.decode(cx, &self.key, &bytes, &Headers::new())?;
            if let Some(record) = self.tell.of(is_this)(cx, &key, stored)? {
                next.process(record, cx)?;
            }
        }
        Ok(())
    }
}

impl<K, R> Lasting for Meeting<K, R> {
    fn restored(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.clocks.this.restored(cx)?;
        self.clocks.other.restored(cx)?;
        let counter = self.places.this.place.get(cx, COUNTER)?;
        self.counter = counter.and_then(|c| KeyParts(&c.value).number()).unwrap_or(0);
        self.saved = self.counter;
        Ok(())
    }
    fn before_commit(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        for is_this in [true, false] {
            self.clocks.of_mut(is_this).save(cx)?;
            let now = self.clocks.of(is_this).now();
            self.expiry.of_mut(is_this).run(cx, now)?;
        }
        if self.counter != self.saved {
            let bytes = Bytes::from(Ordered::of(0).number(self.counter).bytes()).slice(1..);
            let now = self.clocks.this.now().max(self.clocks.other.now());
            self.places.this.place.put(cx, COUNTER, Some(Stored { value: bytes, timestamp: now, ..Stored::default() }))?;
            self.saved = self.counter;
        }
        Ok(())
    }
}

/// How records of one side meet the other.
pub(super) struct Way<K, V, W, R> {
    pub(super) is_this: bool,
    pub(super) places: Sides<Segmented>,
    pub(super) windows: JoinWindows,
    pub(super) key: SerdeRef<K>,
    pub(super) mine: SerdeRef<V>,
    pub(super) theirs: SerdeRef<W>,
    pub(super) joiner: Joiner<K, V, W, R>,
    /// Whether a record that met nobody is told of.
    pub(super) alone: bool,
    pub(super) name: Arc<str>,
}

impl<K: Clone + 'static, V: 'static, W: 'static, R: 'static> Way<K, V, W, R> {
    /// How a kept record that stayed alone is told of.
    pub(super) fn alone(self) -> TellAlone<K, R> {
        Box::new(move |cx, key, stored| {
            let kept = self.places.of(self.is_this).place.kept(cx, &self.mine, stored)?;
            let value = (self.joiner)(key, kept.value, None);
            Ok(value.map(|value| Record { key: key.clone(), value, timestamp: kept.timestamp, headers: kept.headers }))
        })
    }
    /// The times of the other side's records that one of ours meets.
    fn span(&self, at: WallTime) -> (WallTime, WallTime) {
        let w = &self.windows;
        let (before, after) = if self.is_this { (w.before, w.after) } else { (w.after, w.before) };
        (at.minus(before).max(WallTime(0)), at.plus(after))
    }
    /// When nobody can come any more whom one of our records meets.
    fn closes(&self, at: WallTime) -> WallTime {
        self.span(at).1.plus(self.windows.grace)
    }
    fn retention(&self) -> i64 {
        millis(self.windows.before + self.windows.after + self.windows.grace)
    }
}

/// One side: a node.
pub(super) struct Side<K, V, W, R> {
    pub(super) way: Way<K, V, W, R>,
    pub(super) meeting: Rc<RefCell<Meeting<K, R>>>,
    pub(super) next: SharedNode<K, R>,
}

impl<K: Clone + 'static, V: Clone + 'static, W: 'static, R: 'static> Process<K, V> for Side<K, V, W, R> {
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let done = self.take(record, cx);
        cx.settle(done)
    }
}

impl<K: Clone + 'static, V: Clone + 'static, W: 'static, R: 'static> Side<K, V, W, R> {
    fn take(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let way = &self.way;
        let place = &way.places.of(way.is_this).place;
        let Some(value) = place.value_bytes(cx, &way.mine, &record.value)? else {
            cx.dropped(&way.name, Dropped::NullValue);
            return Ok(());
        };
        if has_no_key(&way.key, &record.key, cx)? {
            // Without a key it can meet nobody: an outer side is told of at once.
            if !way.alone {
                cx.dropped(&way.name, Dropped::NullKey);
                return Ok(());
            }
            return pass_alone(&self.way, &mut self.next, record, cx);
        }
        let at = time_of(record.timestamp)?;
        let key = place.key_bytes(cx, &way.key, &record.key)?;
        let meeting = &mut *self.meeting.borrow_mut();
        let mine = meeting.clocks.of_mut(way.is_this).observe(at);
        let tail =
            self.way.keep(meeting, &key, (at, mine), Stored { value, timestamp: Some(at), headers: record.headers.clone() }, cx)?;
        meeting.tell_alone(cx, &mut self.next)?;

        let met = self.way.meet(meeting, &key, at, cx)?;
        if met.is_empty() && self.way.alone {
            let closes = self.way.closes(at);
            match (&mut meeting.waiting, tail) {
                (Some(waiting), Some(tail)) if meeting.clocks.this.now().max(meeting.clocks.other.now()) <= Some(closes) => {
                    let who = who(self.way.is_this, &key, &tail);
                    return waiting.put(cx, &who, Window { start: at, end: closes });
                }
                _ => return pass_alone(&self.way, &mut self.next, record, cx),
            }
        }
        for theirs in met {
            let timestamp = Some(at).max(theirs.timestamp);
            if let Some(value) = (self.way.joiner)(&record.key, record.value.clone(), Some(theirs.value)) {
                let key = record.key.clone();
                self.next.process(Record { key, value, timestamp, headers: record.headers.clone() }, cx)?;
            }
        }
        Ok(())
    }
}

/// Tells of a record that meets nobody.
fn pass_alone<K, V, W, R>(
    way: &Way<K, V, W, R>,
    next: &mut SharedNode<K, R>,
    record: Record<K, V>,
    cx: &mut ProcessorCx<'_, '_>,
) -> Result<(), TaskError> {
    let Record { key, value, timestamp, headers } = record;
    match (way.joiner)(&key, value, None) {
        Some(value) => next.process(Record { key, value, timestamp, headers }, cx),
        None => Ok(()),
    }
}

impl<K: Clone + 'static, V: Clone + 'static, W: 'static, R: 'static> Way<K, V, W, R> {
    /// Keeps a record for those that come after it; answers what tells it from others of its time, where it was not too late.
    fn keep(
        &self,
        meeting: &mut Meeting<K, R>,
        key: &[u8],
        (at, now): (WallTime, WallTime),
        stored: Stored,
        cx: &mut ProcessorCx<'_, '_>,
    ) -> Result<Option<Vec<u8>>, TaskError> {
        if at.0 <= now.0.saturating_sub(self.retention()) && at < now {
            cx.dropped(&self.name, Dropped::Late);
            return Ok(None);
        }
        meeting.counter += 1;
        let tail = Ordered::of(0).number(meeting.counter).bytes()[1..].to_vec();
        let kept = self.places.of(self.is_this);
        kept.place.put(cx, &kept.entry(key, at, &tail), Some(stored))?;
        Ok(Some(tail))
    }

    /// The other side's records that one of this time meets; they are not alone any more.
    fn meet(
        &self,
        meeting: &mut Meeting<K, R>,
        key: &[u8],
        at: WallTime,
        cx: &mut ProcessorCx<'_, '_>,
    ) -> Result<Vec<crate::processor::Kept<W>>, TaskError> {
        let theirs = self.places.of(!self.is_this);
        let gone = meeting.clocks.of(!self.is_this).now().map(|now| now.0.saturating_sub(self.retention()));
        let mut met = Vec::new();
        for e in theirs.of_key(cx, key, self.span(at), Order::Forward)? {
            if gone.is_some_and(|gone| e.at.0 <= gone) && meeting.clocks.of(!self.is_this).now() > Some(e.at) {
                continue;
            }
            if let Some(waiting) = &mut meeting.waiting {
                let closes = self.other_closes(e.at);
                waiting.delete_if_there(cx, &who(!self.is_this, key, &e.tail), Window { start: e.at, end: closes })?;
            }
            met.push(theirs.place.kept(cx, &self.theirs, e.stored)?);
        }
        Ok(met)
    }

    /// When a record of the other side closes.
    fn other_closes(&self, at: WallTime) -> WallTime {
        let w = &self.windows;
        at.plus(if self.is_this { w.before } else { w.after }).plus(w.grace)
    }
}

/// A kept record: its side, its key, what tells it from others of its time.
fn who(is_this: bool, key: &[u8], tail: &[u8]) -> Vec<u8> {
    let mut who = Ordered::of(u8::from(is_this)).key(key).bytes();
    who.extend_from_slice(tail);
    who
}
