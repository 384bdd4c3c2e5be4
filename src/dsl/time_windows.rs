//! Aggregates over windows of a fixed grid, and over the one that never ends.

use crate::processor::{Change, Expiry, Process, ProcessorCx, Record, StreamClock, millis, time_of};
use crate::serdes::{Window, Windowed};
use crate::task::{Dropped, TaskError};
use crate::time::WallTime;

use super::keeping::Lasting;
use super::windowed::{Spans, Task};
use super::windows::EmitStrategy;

/// The node.
pub(super) struct TimeAggregate<K, V, A> {
    spans: Spans,
    emit: EmitStrategy,
    clock: StreamClock,
    expiry: Expiry,
    task: Task<K, V, A>,
}

impl<K, V, A> TimeAggregate<K, V, A> {
    pub(super) fn new(spans: Spans, emit: EmitStrategy, task: Task<K, V, A>) -> Self {
        let clock = StreamClock::new(task.store.place().clone());
        Self { spans, emit, clock, expiry: Expiry::new(task.store.segmented.clone()), task }
    }
}

impl<K: Clone, V: Clone, A: Clone> Process<K, V> for TimeAggregate<K, V, A> {
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        if self.task.store.is_null(cx, &record.key)? {
            cx.dropped(&self.task.name, Dropped::NullKey);
            return Ok(());
        }
        let at = time_of(record.timestamp)?;
        let now = self.clock.observe(at);
        match self.spans {
            Spans::Time(w) => {
                let close = now.minus(w.grace);
                let (mut open, mut late) = (false, false);
                for window in w.windows_of(at) {
                    match window.end > close {
                        true => self.update(&record, at, window, cx)?,
                        false => late = true,
                    }
                    open |= window.end > close;
                }
                if late && !open {
                    cx.dropped(&self.task.name, Dropped::Late);
                }
                self.give_out(close, millis(w.size), millis(w.advance).max(1), cx)
            }
            Spans::Unlimited(w) if at >= w.start => self.update(&record, at, self.task.store.window(w.start), cx),
            Spans::Unlimited(_) | Spans::Sliding(_) => Ok(()),
        }
    }
}

impl<K: Clone, V: Clone, A: Clone> TimeAggregate<K, V, A> {
    fn update(
        &mut self,
        record: &Record<K, V>,
        at: WallTime,
        window: Window,
        cx: &mut ProcessorCx<'_, '_>,
    ) -> Result<(), TaskError> {
        let task = &mut self.task;
        let before = task.store.get(cx, &record.key, window.start)?;
        let timestamp = Some(at).max(before.as_ref().and_then(|b| b.timestamp));
        let old = before.map(|b| b.value);
        let new = (task.step)(&record.key, record.value.clone(), old.clone())?;
        task.store.put(cx, &record.key, window.start, &new, timestamp, &record.headers)?;
        if self.emit == EmitStrategy::OnWindowClose {
            return Ok(());
        }
        let key = Windowed { key: record.key.clone(), window };
        let value = Change { old, new: Some(new) };
        task.next.process(Record { key, value, timestamp, headers: record.headers.clone() }, cx)
    }

    /// Passes on the windows that have closed since the last time: those that end at `close` or before.
    fn give_out(&mut self, close: WallTime, size: i64, advance: i64, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        if self.emit != EmitStrategy::OnWindowClose || self.clock.closed.is_some_and(|c| c >= close) {
            return Ok(());
        }
        let newest = |close: WallTime| close.0.saturating_sub(size);
        let from = self.clock.closed.map_or(i64::MIN, |c| newest(c).saturating_add(1));
        self.clock.closed = Some(close);
        let to = newest(close);
        // Where no window of the grid begins in between, none has closed.
        if from.saturating_sub(1).div_euclid(advance) == to.div_euclid(advance) {
            return Ok(());
        }
        for (key, kept) in self.task.store.fetch_all(cx, WallTime(from), WallTime(to))? {
            let value = Change { old: None, new: Some(kept.value) };
            self.task.next.process(Record { key, value, timestamp: kept.timestamp, headers: kept.headers }, cx)?;
        }
        Ok(())
    }
}

impl<K, V, A> Lasting for TimeAggregate<K, V, A> {
    fn restored(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.clock.restored(cx)
    }
    fn before_commit(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.clock.save(cx)?;
        match self.spans {
            Spans::Unlimited(_) => Ok(()),
            Spans::Time(_) | Spans::Sliding(_) => self.expiry.run(cx, self.clock.now()),
        }
    }
}
