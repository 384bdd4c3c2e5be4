//! Aggregates over sliding windows. A record of time `t` makes the window that ends at `t`, and the one that begins just after `t`
//! once a later record lies in it. What a new window holds is always what some window before it held, so no record is kept.

use std::collections::BTreeSet;

use crate::processor::{Change, Expiry, Kept, Order, Process, ProcessorCx, Record, StreamClock, WindowIndex, millis, time_of};
use crate::serdes::Windowed;
use crate::task::{Dropped, TaskError};
use crate::time::WallTime;

use super::keeping::Lasting;
use super::windowed::Task;
use super::windows::{EmitStrategy, SlidingWindows};

/// The node.
pub(super) struct Sliding<K, V, A> {
    difference: i64,
    grace: i64,
    /// Where results wait for their window to close.
    waiting: Option<WindowIndex>,
    clock: StreamClock,
    expiry: Expiry,
    task: Task<K, V, A>,
}

/// What the windows around a record hold.
struct Around<A> {
    starts: BTreeSet<WallTime>,
    /// The newest record before this one.
    previous: Option<WallTime>,
    /// What the window up to it holds.
    left: Option<A>,
    /// What lies after this record, as far as a window shows it.
    right: Option<Kept<A>>,
    left_exists: bool,
    right_exists: bool,
}

impl<K, V, A> Sliding<K, V, A> {
    pub(super) fn new(windows: SlidingWindows, emit: EmitStrategy, task: Task<K, V, A>) -> Self {
        let place = task.store.place().clone();
        Self {
            difference: millis(windows.difference),
            grace: millis(windows.grace),
            waiting: (emit == EmitStrategy::OnWindowClose).then(|| WindowIndex::new(place.clone())),
            clock: StreamClock::new(place),
            expiry: Expiry::new(task.store.segmented.clone()),
            task,
        }
    }
}

impl<K: Clone, V: Clone, A: Clone> Process<K, V> for Sliding<K, V, A> {
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        if self.task.store.is_null(cx, &record.key)? {
            cx.dropped(&self.task.name, Dropped::NullKey);
            return Ok(());
        }
        let at = time_of(record.timestamp)?;
        let close = WallTime(self.clock.observe(at).0.saturating_sub(self.grace));
        if at.0.saturating_add(1).saturating_add(self.difference) <= close.0 {
            cx.dropped(&self.task.name, Dropped::Late);
        } else if at.0 < self.difference {
            self.early(&record, at, close, cx)?;
        } else {
            self.later(&record, at, close, cx)?;
        }
        self.give_out(close, cx)
    }
}

impl<K: Clone, V: Clone, A: Clone> Sliding<K, V, A> {
    /// A record whose window to the left begins in 1970 or later.
    fn later(&mut self, r: &Record<K, V>, at: WallTime, close: WallTime, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let around = self.look(r, at, close, cx)?;
        self.right_of_previous(r, at, close, &around, cx)?;
        if !around.left_exists {
            let start = WallTime(at.0 - self.difference);
            let holds = around.left.filter(|_| around.previous.is_some_and(|p| p >= start));
            self.update(r, at, close, start, (holds, at), false, cx)?;
        }
        match around.right {
            Some(right) if !around.right_exists => self.right_of(r, at, right, cx),
            _ => Ok(()),
        }
    }

    /// Goes through the windows near a record, and updates those that it belongs to.
    fn look(
        &mut self,
        r: &Record<K, V>,
        at: WallTime,
        close: WallTime,
        cx: &mut ProcessorCx<'_, '_>,
    ) -> Result<Around<A>, TaskError> {
        let mut around =
            Around { starts: BTreeSet::new(), previous: None, left: None, right: None, left_exists: false, right_exists: false };
        let from = WallTime((at.0 - 2 * self.difference).max(0));
        for (start, kept) in self.task.store.fetch(cx, &r.key, from, WallTime(at.0 + 1), Order::Forward)? {
            around.starts.insert(start);
            let (end, newest) = (start.0 + self.difference, kept.timestamp.unwrap_or(start));
            if end < at.0 {
                (around.left, around.previous) = (Some(kept.value), Some(newest));
                continue;
            }
            if start > at {
                around.right_exists = true;
                continue;
            }
            if end == at.0 {
                around.left_exists = true;
                around.previous = if newest < at { Some(newest) } else { around.previous };
            }
            self.update(r, at, close, start, (Some(kept.value.clone()), newest), true, cx)?;
            if end > at.0 {
                around.right = Some(kept).filter(|_| newest > at);
            }
        }
        Ok(around)
    }

    /// A record so near to 1970 that its window to the left would begin before it: all such share the window from 1970 on.
    fn early(&mut self, r: &Record<K, V>, at: WallTime, close: WallTime, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let mut around =
            Around { starts: BTreeSet::new(), previous: None, left: None, right: None, left_exists: false, right_exists: false };
        let (mut first, mut later) = (None, None);
        for (start, kept) in self.task.store.fetch(cx, &r.key, WallTime(0), WallTime(at.0 + 1), Order::Forward)? {
            around.starts.insert(start);
            let newest = kept.timestamp.unwrap_or(start);
            if start.0 == 0 {
                around.previous = Some(newest).filter(|n| *n < at);
                first = Some((kept, newest));
            } else if start > at {
                around.right_exists = true;
            } else {
                self.update(r, at, close, start, (Some(kept.value.clone()), newest), true, cx)?;
                later = Some(kept);
            }
        }
        // Without a window between, all that the first one holds after this record lies in this record's right window.
        around.right = later.or_else(|| first.as_ref().map(|(kept, _)| kept.clone())).filter(|k| k.timestamp > Some(at));
        if let Some(right) = around.right.take().filter(|_| !around.right_exists) {
            self.right_of(r, at, right, cx)?;
        }
        self.right_of_previous(r, at, close, &around, cx)?;
        match first {
            Some((kept, newest)) => self.update(r, at, close, WallTime(0), (Some(kept.value), newest), true, cx),
            None => self.update(r, at, close, WallTime(0), (None, at), false, cx),
        }
    }

    /// The window that begins just after the record before this one, where this one is the first in it.
    fn right_of_previous(
        &mut self,
        r: &Record<K, V>,
        at: WallTime,
        close: WallTime,
        around: &Around<A>,
        cx: &mut ProcessorCx<'_, '_>,
    ) -> Result<(), TaskError> {
        match around.previous.map(|p| WallTime(p.0 + 1)) {
            Some(start) if !around.starts.contains(&start) && start.0 + self.difference >= at.0 => {
                self.update(r, at, close, start, (None, at), false, cx)
            }
            _ => Ok(()),
        }
    }

    /// The window that begins just after this record.
    fn right_of(&mut self, r: &Record<K, V>, at: WallTime, holds: Kept<A>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.write(r, WallTime(at.0 + 1), None, holds.value, holds.timestamp.max(Some(at)), cx)
    }

    /// Adds the record to what a window holds, where it is still open.
    #[allow(clippy::too_many_arguments)]
    fn update(
        &mut self,
        r: &Record<K, V>,
        at: WallTime,
        close: WallTime,
        start: WallTime,
        (holds, newest): (Option<A>, WallTime),
        exists: bool,
        cx: &mut ProcessorCx<'_, '_>,
    ) -> Result<(), TaskError> {
        if start.0 + self.difference < close.0 {
            return Ok(());
        }
        let new = (self.task.step)(&r.key, r.value.clone(), holds.clone())?;
        self.write(r, start, holds.filter(|_| exists), new, Some(newest.max(at)), cx)
    }

    fn write(
        &mut self,
        r: &Record<K, V>,
        start: WallTime,
        old: Option<A>,
        new: A,
        timestamp: Option<WallTime>,
        cx: &mut ProcessorCx<'_, '_>,
    ) -> Result<(), TaskError> {
        let store = &self.task.store;
        store.put(cx, &r.key, start, &new, timestamp, &r.headers)?;
        let window = store.window(start);
        match &mut self.waiting {
            Some(_) if old.is_some() => Ok(()),
            Some(waiting) => waiting.put(cx, &store.key_bytes(cx, &r.key)?, window),
            None => {
                let key = Windowed { key: r.key.clone(), window };
                let value = Change { old, new: Some(new) };
                self.task.next.process(Record { key, value, timestamp, headers: r.headers.clone() }, cx)
            }
        }
    }

    /// Passes on the windows that have closed: those that end before `close`.
    fn give_out(&mut self, close: WallTime, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let Some(waiting) = self.waiting.as_mut() else { return Ok(()) };
        let store = &self.task.store;
        for (key, window) in waiting.take_before(cx, close)? {
            let key = store.key_of(cx, &key)?;
            let Some(kept) = store.get(cx, &key, window.start)? else { continue };
            let value = Change { old: None, new: Some(kept.value) };
            let key = Windowed { key, window };
            self.task.next.process(Record { key, value, timestamp: kept.timestamp, headers: kept.headers }, cx)?;
        }
        Ok(())
    }
}

impl<K, V, A> Lasting for Sliding<K, V, A> {
    fn restored(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.clock.restored(cx)
    }
    fn before_commit(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.clock.save(cx)?;
        self.expiry.run(cx, self.clock.now())
    }
}
