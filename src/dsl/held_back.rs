//! The buffer behind a suppression, by time: `t, time, key` holds the change, `k, key` the time where the key does not tell it.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Fault, codes};
use crate::processor::{Change, KeyParts, Next, Ordered, Place, Process, ProcessorCx, Record, StreamClock, time_of};
use crate::record::Headers;
use crate::serdes::{SerdeRef, Window};
use crate::state::Stored;
use crate::task::TaskError;
use crate::time::WallTime;

use super::keeping::Lasting;

const BY_TIME: u8 = b't';
const BY_KEY: u8 = b'k';
const SIZE: &[u8] = b"n";
const HAS_NEW: u8 = 1;
const HAS_PRIOR: u8 = 2;

/// How much may be held back.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) emits_early: bool,
}

/// For how long a change is held back, in milliseconds.
pub(super) enum Held<K> {
    UntilClose { window: fn(&K) -> Window, grace: i64, end_belongs: bool },
    For(i64),
}

impl<K> Clone for Held<K> {
    fn clone(&self) -> Self {
        match *self {
            Held::UntilClose { window, grace, end_belongs } => Held::UntilClose { window, grace, end_belongs },
            Held::For(limit) => Held::For(limit),
        }
    }
}

/// The changes that are held back.
pub(super) struct HeldBack<K, V> {
    place: Place,
    held: Held<K>,
    key: SerdeRef<K>,
    value: SerdeRef<V>,
}

impl<K, V> Clone for HeldBack<K, V> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), held: self.held.clone(), key: self.key.clone(), value: self.value.clone() }
    }
}

/// A change in bytes: what it is now, and what was passed on last.
#[derive(Default)]
struct Raw {
    new: Option<Bytes>,
    prior: Option<Bytes>,
}

impl<K, V> HeldBack<K, V> {
    pub(super) fn new(place: Place, held: Held<K>, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { place, held, key, value }
    }

    /// What was passed on last of a key of which a change is held back; `None` where none is.
    pub(super) fn prior(&self, cx: &mut ProcessorCx<'_, '_>, key: &K) -> Result<Option<Option<super::table::Timed<V>>>, TaskError> {
        let bytes = self.place.key_bytes(cx, &self.key, key)?;
        let Some(at) = self.time_of(cx, key, &bytes)? else { return Ok(None) };
        let Some(stored) = self.place.get(cx, &by_time(at, &bytes))? else { return Ok(None) };
        let prior = self.raw(&stored)?.prior;
        let value = prior.map(|p| self.place.decode(cx, &self.value, &p, &stored.headers)).transpose()?;
        Ok(Some(value.map(|v| (v, None))))
    }

    /// The time under which a key is held back, where it is or would be.
    fn time_of(&self, cx: &mut ProcessorCx<'_, '_>, key: &K, bytes: &[u8]) -> Result<Option<WallTime>, TaskError> {
        if let Held::UntilClose { window, .. } = self.held {
            return Ok(Some(window(key).end));
        }
        let stored = self.place.get(cx, &by_key(bytes))?;
        Ok(stored.and_then(|s| KeyParts(&s.value).time()))
    }

    fn raw(&self, stored: &Stored) -> Result<Raw, Error> {
        let read = || {
            let (flags, rest) = stored.value.split_first()?;
            let (length, rest) = rest.split_at_checked(4)?;
            let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
            let (new, prior) = rest.split_at_checked(length)?;
            let field = |flag: u8, bytes: &[u8]| (flags & flag != 0).then(|| Bytes::copy_from_slice(bytes));
            Some(Raw { new: field(HAS_NEW, new), prior: field(HAS_PRIOR, prior) })
        };
        read().ok_or_else(|| self.place.strange())
    }

    fn change(&self, cx: &ProcessorCx<'_, '_>, stored: &Stored) -> Result<Change<V>, Error> {
        let Raw { new, prior } = self.raw(stored)?;
        let value = |bytes: Option<Bytes>| bytes.map(|b| self.place.decode(cx, &self.value, &b, &stored.headers)).transpose();
        Ok(Change { old: value(prior)?, new: value(new)? })
    }
}

fn packed(raw: &Raw) -> Bytes {
    let new = raw.new.as_deref().unwrap_or_default();
    let flags = (u8::from(raw.new.is_some()) * HAS_NEW) | (u8::from(raw.prior.is_some()) * HAS_PRIOR);
    let mut out = vec![flags];
    out.extend((new.len() as u32).to_be_bytes());
    out.extend_from_slice(new);
    out.extend_from_slice(raw.prior.as_deref().unwrap_or_default());
    Bytes::from(out)
}

fn by_time(at: WallTime, key: &[u8]) -> Vec<u8> {
    Ordered::of(BY_TIME).time(at).key(key).bytes()
}

fn by_key(key: &[u8]) -> Vec<u8> {
    let mut out = vec![BY_KEY];
    out.extend_from_slice(key);
    out
}

/// The node.
pub(super) struct Suppress<K, V> {
    buffer: HeldBack<K, V>,
    clock: StreamClock,
    bounds: Buffer,
    name: Arc<str>,
    next: Next<K, Change<V>>,
    /// Keys and bytes that are held back.
    size: (u64, u64),
    saved: (u64, u64),
    /// Nothing that is held back has an earlier time.
    earliest: WallTime,
}

impl<K, V> Suppress<K, V> {
    pub(super) fn new(
        buffer: HeldBack<K, V>,
        clock: StreamClock,
        bounds: Buffer,
        name: Arc<str>,
        next: Next<K, Change<V>>,
    ) -> Self {
        Self { buffer, clock, bounds, name, next, size: (0, 0), saved: (0, 0), earliest: WallTime(i64::MIN) }
    }

    fn grown(&mut self, key: &[u8], before: Option<&Stored>, after: Option<&Stored>) {
        let bytes = |s: &Stored| (key.len() + s.value.len()) as u64;
        self.size.0 = self.size.0 + u64::from(after.is_some()) - u64::from(before.is_some());
        self.size.1 = self.size.1 + after.map_or(0, bytes) - before.map_or(0, bytes);
    }
    fn is_full(&self) -> bool {
        self.size.0 > self.bounds.records || self.size.1 > self.bounds.bytes
    }
    fn full(&self) -> TaskError {
        let doing = format!("holding changes back in {}: {} keys, {} bytes", self.name, self.size.0, self.size.1);
        Error::new(codes::BUFFER_FULL, Fault::Configuration, doing)
            .next("allow more, or let the oldest be passed on early with `emit_early_when_full`")
            .into()
    }
}

impl<K: Clone, V: Clone> Process<K, Change<V>> for Suppress<K, V> {
    fn process(&mut self, record: Record<K, Change<V>>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let at = time_of(record.timestamp)?;
        let now = self.clock.observe(at);
        self.hold(record, at, cx)?;
        let due = match self.buffer.held {
            Held::UntilClose { grace, end_belongs, .. } => now.0.saturating_sub(grace).saturating_sub(i64::from(end_belongs)),
            Held::For(limit) => now.0.saturating_sub(limit),
        };
        if self.earliest.0 <= due {
            self.pass_on(cx, |_, at| at.0 <= due)?;
        }
        match self.is_full() {
            true if self.bounds.emits_early => self.pass_on(cx, |s, _| s.is_full()),
            true => Err(self.full()),
            false => Ok(()),
        }
    }
}

impl<K: Clone, V: Clone> Suppress<K, V> {
    /// Takes a change in; a key that is there keeps its place in time.
    fn hold(&mut self, r: Record<K, Change<V>>, at: WallTime, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let b = &self.buffer;
        let key = b.place.key_bytes(cx, &b.key, &r.key)?;
        let known = b.time_of(cx, &r.key, &key)?;
        let time = known.unwrap_or(at);
        let entry = by_time(time, &key);
        let before = b.place.get(cx, &entry)?;
        let bytes = |v: &Option<V>| match v {
            Some(v) => b.place.value_bytes(cx, &b.value, v),
            None => Ok(None),
        };
        let new = bytes(&r.value.new)?;
        let prior = match &before {
            Some(before) => b.raw(before)?.prior,
            None => bytes(&r.value.old)?,
        };
        // A final result that is nothing need not wait.
        let nothing = matches!(b.held, Held::UntilClose { .. }) && new.is_none();
        let after = (!nothing).then(|| Stored { value: packed(&Raw { new, prior }), timestamp: r.timestamp, headers: r.headers });
        if before.is_none() && after.is_none() {
            return Ok(());
        }
        b.place.put(cx, &entry, after.clone())?;
        if known.is_none() {
            let value = Bytes::from(Ordered::of(0).time(time).bytes()).slice(1..);
            b.place.put(cx, &by_key(&key), Some(Stored { value, timestamp: Some(time), headers: Headers::new() }))?;
        }
        self.grown(&key, before.as_ref(), after.as_ref());
        self.earliest = self.earliest.min(time);
        Ok(())
    }

    /// Passes the oldest on for as long as `wanted` says so.
    fn pass_on(&mut self, cx: &mut ProcessorCx<'_, '_>, wanted: impl Fn(&Self, WallTime) -> bool) -> Result<(), TaskError> {
        let place = self.buffer.place.clone();
        let scan = place.range(cx, (Ordered::of(BY_TIME).bytes(), Ordered::of(BY_TIME + 1).bytes()))?;
        self.earliest = WallTime(i64::MAX);
        for entry in scan {
            let (entry, stored) = entry?;
            let mut parts = KeyParts(&entry[1..]);
            let read = (|| Some((parts.time()?, parts.key()?)))();
            let (at, bytes) = read.ok_or_else(|| place.strange())?;
            if !wanted(self, at) {
                self.earliest = at;
                break;
            }
            place.put(cx, &entry, None)?;
            if matches!(self.buffer.held, Held::For(_)) {
                place.put(cx, &by_key(&bytes), None)?;
            }
            self.grown(&bytes, Some(&stored), None);
            let key = place.decode(cx, &self.buffer.key, &bytes, &Headers::new())?;
            let value = self.buffer.change(cx, &stored)?;
            self.next.process(Record { key, value, timestamp: stored.timestamp, headers: stored.headers }, cx)?;
        }
        Ok(())
    }
}

impl<K, V> Lasting for Suppress<K, V> {
    fn restored(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.clock.restored(cx)?;
        if let Some(stored) = self.buffer.place.get(cx, SIZE)? {
            let mut parts = KeyParts(&stored.value);
            let number = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
            self.size = (number(parts.number()), number(parts.number()));
            self.saved = self.size;
        }
        Ok(())
    }
    fn before_commit(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.clock.save(cx)?;
        if self.size != self.saved {
            let bytes = Ordered::of(0).number(self.size.0 as i64).number(self.size.1 as i64).bytes();
            let value = Stored { value: Bytes::from(bytes).slice(1..), timestamp: self.clock.now(), headers: Headers::new() };
            self.buffer.place.put(cx, SIZE, Some(value))?;
            self.saved = self.size;
        }
        Ok(())
    }
}
