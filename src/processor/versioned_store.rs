//! A store that knows what a key had at an earlier time: `l, key` holds the newest version, `h, key, end, start` those before it.

use bytes::Bytes;

use crate::ids::StoreName;
use crate::record::Headers;
use crate::serdes::SerdeRef;
use crate::state::Stored;
use crate::task::TaskError;
use crate::time::WallTime;

use super::ordered::{Ordered, Parts};
use super::{Kept, Place, ProcessorCx, millis};

const LATEST: u8 = b'l';
const HISTORY: u8 = b'h';
const GONE: u8 = 0;
const THERE: u8 = 1;

/// A versioned store of a topology. Cheap to clone; used inside the steps that the topology connects with it. A version stays for the
/// store's history after it was replaced; what is out of it goes when its key is next written.
#[doc(alias = "VersionedKeyValueStore")]
pub struct VersionedStore<K, V> {
    place: Place,
    key: SerdeRef<K>,
    value: SerdeRef<V>,
    history: i64,
}

impl<K, V> Clone for VersionedStore<K, V> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), key: self.key.clone(), value: self.value.clone(), history: self.history }
    }
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// It is the newest of its key.
    Newest,
    /// It lies before another one, which begins at this time.
    Until(WallTime),
    /// It is older than the store's history: nothing was written.
    TooLate,
}

/// A version before the newest: from when to when, and whether there was a value.
struct Past {
    start: WallTime,
    end: WallTime,
    stored: Stored,
}

impl<K, V> VersionedStore<K, V> {
    /// Versions at `place`, for `history` after they were replaced.
    pub(crate) fn new(place: Place, key: SerdeRef<K>, value: SerdeRef<V>, history: std::time::Duration) -> Self {
        Self { place, key, value, history: millis(history) }
    }
    /// Its name.
    pub fn name(&self) -> &StoreName {
        self.place.name()
    }

    /// The newest version.
    pub fn get(&self, cx: &mut ProcessorCx<'_, '_>, key: &K) -> Result<Option<Kept<V>>, TaskError> {
        let key = self.place.key_bytes(cx, &self.key, key)?;
        match self.place.get(cx, &latest(&key))? {
            Some(stored) => self.kept(cx, stored),
            None => Ok(None),
        }
    }
    /// The version that held at `at`; `None` also where `at` is out of the store's history.
    #[doc(alias = "asOf")]
    pub fn get_as_of(&self, cx: &mut ProcessorCx<'_, '_>, key: &K, at: WallTime) -> Result<Option<Kept<V>>, TaskError> {
        if self.is_out(cx, at) {
            return Ok(None);
        }
        let key = self.place.key_bytes(cx, &self.key, key)?;
        if let Some(newest) = self.place.get(cx, &latest(&key))?.filter(|s| s.timestamp <= Some(at)) {
            return self.kept(cx, newest);
        }
        match self.first_after(cx, &key, at)? {
            Some(past) if past.start <= at => self.kept(cx, past.stored),
            _ => Ok(None),
        }
    }
    /// Writes the version that begins at `at`, in its place among the others; `None` says that there was no value from then on.
    pub fn put(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        key: &K,
        value: Option<&V>,
        at: WallTime,
        headers: &Headers,
    ) -> Result<Version, TaskError> {
        if self.is_out(cx, at) {
            return Ok(Version::TooLate);
        }
        let bytes = self.place.key_bytes(cx, &self.key, key)?;
        let value = value.map(|v| self.place.value_bytes(cx, &self.value, v)).transpose()?.flatten();
        let stored = Stored { value: flagged(value), timestamp: Some(at), headers: headers.clone() };
        let newest = self.place.get(cx, &latest(&bytes))?;
        let since = newest.as_ref().and_then(|n| n.timestamp);
        if since > Some(at) {
            return self.put_before(cx, &bytes, stored, at, since);
        }
        if let Some(newest) = newest.filter(|_| since < Some(at)) {
            let start = since.unwrap_or(at);
            self.place.put(cx, &past(&bytes, at, start), Some(newest))?;
        }
        self.place.put(cx, &latest(&bytes), Some(stored))?;
        self.expire(cx, &bytes)?;
        Ok(Version::Newest)
    }

    /// Writes a version that another one follows: it takes the end of the one that it splits.
    fn put_before(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        key: &[u8],
        stored: Stored,
        at: WallTime,
        newest: Option<WallTime>,
    ) -> Result<Version, TaskError> {
        let after = self.first_after(cx, key, at)?;
        let end = match after {
            Some(Past { start, end, stored: split }) if start <= at => {
                self.place.put(cx, &past(key, end, start), None)?;
                if start < at {
                    self.place.put(cx, &past(key, at, start), Some(split))?;
                }
                end
            }
            Some(Past { start, .. }) => start,
            None => newest.unwrap_or(at),
        };
        self.place.put(cx, &past(key, end, at), Some(stored))?;
        Ok(Version::Until(end))
    }

    /// The first version that ends after `at`.
    fn first_after(&self, cx: &mut ProcessorCx<'_, '_>, key: &[u8], at: WallTime) -> Result<Option<Past>, TaskError> {
        let from = Ordered::of(HISTORY).key(key).time(WallTime(at.0.saturating_add(1))).bytes();
        let to = Ordered::of(HISTORY).key(key).byte(u8::MAX).bytes();
        let Some(first) = self.place.range(cx, (from, to))?.next() else { return Ok(None) };
        let (entry, stored) = first?;
        let mut parts = Parts(&entry[1..]);
        let read = (|| {
            parts.key()?;
            Some((parts.time()?, parts.time()?))
        })();
        let (end, start) = read.ok_or_else(|| self.place.strange())?;
        Ok(Some(Past { start, end, stored }))
    }

    /// Takes out the versions of a key that are out of history.
    fn expire(&self, cx: &mut ProcessorCx<'_, '_>, key: &[u8]) -> Result<(), TaskError> {
        let Some(now) = cx.stream_time() else { return Ok(()) };
        let limit = WallTime(now.0.saturating_sub(self.history));
        let scan =
            self.place.range(cx, (Ordered::of(HISTORY).key(key).bytes(), Ordered::of(HISTORY).key(key).time(limit).bytes()))?;
        let gone = scan.map(|e| e.map(|(entry, _)| entry)).collect::<Result<Vec<_>, _>>()?;
        gone.iter().try_for_each(|entry| self.place.put(cx, entry, None))
    }

    fn is_out(&self, cx: &ProcessorCx<'_, '_>, at: WallTime) -> bool {
        cx.stream_time().is_some_and(|now| at.0 < now.0.saturating_sub(self.history))
    }
    fn kept(&self, cx: &ProcessorCx<'_, '_>, mut stored: Stored) -> Result<Option<Kept<V>>, TaskError> {
        match stored.value.first() {
            Some(&THERE) => {
                stored.value = stored.value.slice(1..);
                Ok(Some(self.place.kept(cx, &self.value, stored)?))
            }
            Some(&GONE) => Ok(None),
            _ => Err(self.place.strange().into()),
        }
    }
}

fn flagged(value: Option<Bytes>) -> Bytes {
    let mut out = vec![if value.is_some() { THERE } else { GONE }];
    out.extend_from_slice(value.as_deref().unwrap_or_default());
    Bytes::from(out)
}

fn latest(key: &[u8]) -> Vec<u8> {
    let mut out = vec![LATEST];
    out.extend_from_slice(key);
    out
}

fn past(key: &[u8], end: WallTime, start: WallTime) -> Vec<u8> {
    Ordered::of(HISTORY).key(key).time(end).time(start).bytes()
}
