//! Entries by segment of time, key and time: what a key has within a span lies together, and what is past its retention lies at the
//! front.

use std::time::Duration;

use bytes::Bytes;

use crate::state::{Scan, Stored};
use crate::task::TaskError;
use crate::time::WallTime;

use super::ordered::{Ordered, Parts};
use super::{Place, ProcessorCx, Punctuator};

const DATA: u8 = b'd';
const CLOCK: u8 = b'm';
/// Segments of one key that are looked into one by one; beyond that, all keys between are passed over.
const FEW: i64 = 64;
/// Entries that one commit takes out, at most: what is left waits for the next.
const EXPIRE_AT_ONCE: usize = 5_000;

/// Which entries a lookup gives first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The earliest.
    Forward,
    /// The latest.
    Backward,
}

/// An entry: its key, its time, what else its key says, its value.
pub(crate) struct Entry {
    pub(crate) key: Bytes,
    pub(crate) at: WallTime,
    pub(crate) tail: Bytes,
    pub(crate) stored: Stored,
}

/// A store whose entries have a time and end with it.
#[derive(Clone)]
pub(crate) struct Segmented {
    pub(crate) place: Place,
    width: i64,
    retention: i64,
}

impl Segmented {
    /// Entries stay for `retention` after their time; `width` is the time that lies together.
    pub(crate) fn new(place: Place, width: Duration, retention: Duration) -> Self {
        Self { place, width: millis(width).max(1), retention: millis(retention) }
    }

    fn segment(&self, at: WallTime) -> i64 {
        at.0.div_euclid(self.width)
    }
    /// The key of an entry.
    pub(crate) fn entry(&self, key: &[u8], at: WallTime, tail: &[u8]) -> Vec<u8> {
        let mut whole = Ordered::of(DATA).number(self.segment(at)).key(key).time(at).bytes();
        whole.extend_from_slice(tail);
        whole
    }
    fn read(&self, key: &Bytes, stored: Stored) -> Result<Entry, TaskError> {
        let mut parts = Parts(key);
        let parsed = (|| {
            parts.byte()?;
            parts.number()?;
            Some((parts.key()?, parts.time()?))
        })();
        let (of, at) = parsed.ok_or_else(|| self.place.strange())?;
        Ok(Entry { key: of, at, tail: key.slice(key.len() - parts.0.len()..), stored })
    }
    fn read_all(&self, scan: Scan, keep: impl Fn(&Entry) -> bool) -> Result<Vec<Entry>, TaskError> {
        let mut found = Vec::new();
        for entry in scan {
            let (key, stored) = entry?;
            let entry = self.read(&key, stored)?;
            if keep(&entry) {
                found.push(entry);
            }
        }
        Ok(found)
    }

    /// The entries of a key with `from <= time <= to`.
    pub(crate) fn of_key(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        key: &[u8],
        (from, to): (WallTime, WallTime),
        order: Order,
    ) -> Result<Vec<Entry>, TaskError> {
        let (first, last) = (self.segment(from), self.segment(to));
        if from > to {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        if last.saturating_sub(first) >= FEW {
            found = self.all(cx, (from, to))?;
            found.retain(|e| e.key == key);
            if order == Order::Backward {
                found.reverse();
            }
            return Ok(found);
        }
        let within = |segment: i64| Ordered::of(DATA).number(segment).key(key);
        let bounds = |segment: i64| {
            let end =
                to.0.checked_add(1).map_or_else(|| within(segment).byte(u8::MAX), |after| within(segment).time(WallTime(after)));
            (within(segment).time(from).bytes(), end.bytes())
        };
        for n in 0..=last - first {
            let scan = match order {
                Order::Forward => self.place.range(cx, bounds(first + n))?,
                Order::Backward => self.place.range_back(cx, bounds(last - n))?,
            };
            found.extend(self.read_all(scan, |_| true)?);
        }
        Ok(found)
    }

    /// All entries with `from <= time <= to`, the earliest first, then by key.
    pub(crate) fn all(&self, cx: &mut ProcessorCx<'_, '_>, (from, to): (WallTime, WallTime)) -> Result<Vec<Entry>, TaskError> {
        let low = Ordered::of(DATA).number(self.segment(from)).bytes();
        let high = match self.segment(to).checked_add(1) {
            Some(after) => Ordered::of(DATA).number(after).bytes(),
            None => Ordered::of(DATA + 1).bytes(),
        };
        let scan = self.place.range(cx, (low, high))?;
        let mut found = self.read_all(scan, |e| from <= e.at && e.at <= to)?;
        found.sort_by_key(|e| e.at);
        Ok(found)
    }
}

/// The largest record time that a step has seen. It stands in the step's store, so that a restart forgets no lateness.
pub(crate) struct StreamClock {
    place: Place,
    now: Option<WallTime>,
    /// Up to when windows are closed and given out.
    pub(crate) closed: Option<WallTime>,
    saved: (Option<WallTime>, Option<WallTime>),
}

impl StreamClock {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, now: None, closed: None, saved: (None, None) }
    }
    /// Reads where it stood.
    pub(crate) fn restored(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let Some(stored) = self.place.get(cx, &[CLOCK])? else { return Ok(()) };
        let mut parts = Parts(&stored.value);
        (self.now, self.closed) = (parts.time(), parts.time());
        self.saved = (self.now, self.closed);
        Ok(())
    }
    /// Takes a record's time in; answers the largest one.
    pub(crate) fn observe(&mut self, at: WallTime) -> WallTime {
        let now = self.now.map_or(at, |now| now.max(at));
        self.now = Some(now);
        now
    }
    /// The largest record time; none before the first record.
    pub(crate) fn now(&self) -> Option<WallTime> {
        self.now
    }
    /// Writes where it stands, where it moved.
    pub(crate) fn save(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let state = (self.now, self.closed);
        let Some(now) = self.now.filter(|_| state != self.saved) else { return Ok(()) };
        let times = [Some(now), self.closed].into_iter().flatten();
        let bytes = times.fold(Ordered::of(CLOCK), Ordered::time).bytes();
        let value = Stored { value: Bytes::from(bytes).slice(1..), timestamp: Some(now), ..Stored::default() };
        self.place.put(cx, &[CLOCK], Some(value))?;
        self.saved = state;
        Ok(())
    }
}

/// Takes out what is past its retention, some at each commit. The changelog is not told: its own retention ends them there.
pub(crate) struct Expiry {
    segmented: Segmented,
    done: Option<i64>,
}

impl Expiry {
    pub(crate) fn new(segmented: Segmented) -> Self {
        Self { segmented, done: None }
    }
    /// One step of it; `now` is the stream time of what is kept.
    pub(crate) fn run(&mut self, cx: &mut ProcessorCx<'_, '_>, now: Option<WallTime>) -> Result<(), TaskError> {
        let s = &self.segmented;
        let Some(limit) = now.map(|now| s.segment(WallTime(now.0.saturating_sub(s.retention)))) else { return Ok(()) };
        if self.done.is_some_and(|done| done >= limit) {
            return Ok(());
        }
        let scan = s.place.range(cx, (Ordered::of(DATA).bytes(), Ordered::of(DATA).number(limit).bytes()))?;
        let gone = scan.take(EXPIRE_AT_ONCE).map(|e| e.map(|(key, _)| key)).collect::<Result<Vec<_>, _>>()?;
        if gone.len() < EXPIRE_AT_ONCE {
            self.done = Some(limit);
        }
        gone.into_iter().try_for_each(|key| s.place.forget(cx, key))
    }
}

/// Keeps a store that user code writes within its retention, by the stream time of its task.
pub(crate) struct Keeping(Expiry);

impl Keeping {
    pub(crate) fn new(segmented: Segmented) -> Self {
        Self(Expiry::new(segmented))
    }
}

impl Punctuator for Keeping {
    fn before_commit(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let now = cx.stream_time();
        self.0.run(cx, now)
    }
}

/// A length of time in milliseconds, as record times have it.
pub(crate) fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}
