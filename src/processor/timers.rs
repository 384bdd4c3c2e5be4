//! Timers by key that a restart does not forget: `t, time, key` says what is due, `k, key` when.

use bytes::Bytes;

use crate::ids::StoreName;
use crate::record::Headers;
use crate::serdes::SerdeRef;
use crate::state::Stored;
use crate::task::TaskError;
use crate::time::WallTime;

use super::ordered::{Ordered, Parts};
use super::{Place, ProcessorCx, PunctuationKind};

const BY_TIME: u8 = b't';
const BY_KEY: u8 = b'k';
/// Timers that run in one go; more wait for the next.
const AT_ONCE: usize = 1_000;

/// One timer for each key, kept in a store. A processor names its own by [`Processor::timers`](super::Processor::timers).
pub struct Timers<K> {
    place: Place,
    key: SerdeRef<K>,
    kind: PunctuationKind,
}

impl<K> Clone for Timers<K> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), key: self.key.clone(), kind: self.kind }
    }
}

impl<K> Timers<K> {
    /// Timers at `place` that follow this clock.
    pub(crate) fn new(place: Place, key: SerdeRef<K>, kind: PunctuationKind) -> Self {
        Self { place, key, kind }
    }
    /// The name of their store.
    pub fn name(&self) -> &StoreName {
        self.place.name()
    }
    /// Which clock they follow.
    pub fn kind(&self) -> PunctuationKind {
        self.kind
    }

    /// When the timer of `key` is due; `None` where none is set.
    pub fn get(&self, cx: &mut ProcessorCx<'_, '_>, key: &K) -> Result<Option<WallTime>, TaskError> {
        let key = self.place.key_bytes(cx, &self.key, key)?;
        self.due(cx, &key)
    }
    /// Sets the timer of `key`, in place of the one that it had.
    pub fn set(&self, cx: &mut ProcessorCx<'_, '_>, key: &K, at: WallTime) -> Result<(), TaskError> {
        let key = self.place.key_bytes(cx, &self.key, key)?;
        self.remove(cx, &key)?;
        let entry = |value: Bytes| Some(Stored { value, timestamp: Some(at), headers: Headers::new() });
        self.place.put(cx, &by_time(at, &key), entry(Bytes::new()))?;
        self.place.put(cx, &by_key(&key), entry(Bytes::from(Ordered::of(0).time(at).bytes()).slice(1..)))?;
        cx.timers_moved();
        Ok(())
    }
    /// Takes the timer of `key` back.
    pub fn cancel(&self, cx: &mut ProcessorCx<'_, '_>, key: &K) -> Result<(), TaskError> {
        let key = self.place.key_bytes(cx, &self.key, key)?;
        self.remove(cx, &key)?;
        cx.timers_moved();
        Ok(())
    }

    /// When the next timer is due.
    pub(crate) fn next(&self, cx: &mut ProcessorCx<'_, '_>) -> Result<Option<WallTime>, TaskError> {
        let mut scan = self.place.range(cx, (Ordered::of(BY_TIME).bytes(), Ordered::of(BY_TIME + 1).bytes()))?;
        let Some(first) = scan.next() else { return Ok(None) };
        let (entry, _) = first?;
        Ok(Some(Parts(&entry[1..]).time().ok_or_else(|| self.place.strange())?))
    }
    /// Takes out what is due by `now`, the earliest first.
    pub(crate) fn take_due(&self, cx: &mut ProcessorCx<'_, '_>, now: WallTime) -> Result<Vec<(K, WallTime)>, TaskError> {
        let after = WallTime(now.0.saturating_add(1));
        let scan = self.place.range(cx, (Ordered::of(BY_TIME).bytes(), Ordered::of(BY_TIME).time(after).bytes()))?;
        let mut due = Vec::new();
        for entry in scan.take(AT_ONCE) {
            let (entry, _) = entry?;
            let mut parts = Parts(&entry[1..]);
            let read = (|| Some((parts.time()?, parts.key()?)))();
            let (at, key) = read.ok_or_else(|| self.place.strange())?;
            self.remove(cx, &key)?;
            due.push((self.place.decode(cx, &self.key, &key, &Headers::new())?, at));
        }
        Ok(due)
    }

    fn due(&self, cx: &mut ProcessorCx<'_, '_>, key: &[u8]) -> Result<Option<WallTime>, TaskError> {
        let Some(stored) = self.place.get(cx, &by_key(key))? else { return Ok(None) };
        Ok(Some(Parts(&stored.value).time().ok_or_else(|| self.place.strange())?))
    }
    fn remove(&self, cx: &mut ProcessorCx<'_, '_>, key: &[u8]) -> Result<(), TaskError> {
        if let Some(at) = self.due(cx, key)? {
            self.place.put(cx, &by_time(at, key), None)?;
            self.place.put(cx, &by_key(key), None)?;
        }
        Ok(())
    }
}

fn by_time(at: WallTime, key: &[u8]) -> Vec<u8> {
    Ordered::of(BY_TIME).time(at).key(key).bytes()
}

fn by_key(key: &[u8]) -> Vec<u8> {
    let mut out = vec![BY_KEY];
    out.extend_from_slice(key);
    out
}
