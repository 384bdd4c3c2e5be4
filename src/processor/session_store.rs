//! A store of sessions: for each key, a value by the first and last moment of its session.

use crate::error::Error;
use crate::ids::StoreName;
use crate::record::Headers;
use crate::serdes::{SerdeRef, Window, Windowed};
use crate::task::TaskError;
use crate::time::WallTime;

use super::ordered::{Ordered, Parts};
use super::segmented::{Entry, Segmented};
use super::{Kept, Order, Place, ProcessorCx};

/// A session store of a topology. Cheap to clone; used inside the steps that the topology connects with it. Sessions go when stream
/// time has passed their end by the store's retention.
#[doc(alias = "ReadOnlySessionStore")]
pub struct SessionStore<K, V> {
    pub(crate) segmented: Segmented,
    pub(crate) key: SerdeRef<K>,
    value: SerdeRef<V>,
}

impl<K, V> Clone for SessionStore<K, V> {
    fn clone(&self) -> Self {
        Self { segmented: self.segmented.clone(), key: self.key.clone(), value: self.value.clone() }
    }
}

impl<K, V> SessionStore<K, V> {
    /// Sessions at `segmented`.
    pub(crate) fn new(segmented: Segmented, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { segmented, key, value }
    }
    /// Its name.
    pub fn name(&self) -> &StoreName {
        self.place().name()
    }

    /// What a key has in exactly this session.
    #[doc(alias = "fetchSession")]
    pub fn get(&self, cx: &mut ProcessorCx<'_, '_>, key: &K, session: Window) -> Result<Option<Kept<V>>, TaskError> {
        let entry = self.entry(cx, key, session)?;
        self.place().get_kept(cx, &entry, &self.value)
    }
    /// Writes what a key has in a session.
    pub fn put(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        key: &K,
        session: Window,
        value: &V,
        timestamp: Option<WallTime>,
        headers: &Headers,
    ) -> Result<(), TaskError> {
        let entry = self.entry(cx, key, session)?;
        self.place().put_kept(cx, &entry, &self.value, value, timestamp, headers)
    }
    /// Deletes a session.
    #[doc(alias = "remove")]
    pub fn delete(&self, cx: &mut ProcessorCx<'_, '_>, key: &K, session: Window) -> Result<(), TaskError> {
        let entry = self.entry(cx, key, session)?;
        self.place().put(cx, &entry, None)
    }
    /// The sessions of a key that end at `earliest_end` or later and begin at `latest_start` or earlier, by their end. `until` is a
    /// time at or after which none ends: the stream time, say.
    #[doc(alias = "findSessions")]
    pub fn find(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        key: &K,
        earliest_end: WallTime,
        latest_start: WallTime,
        until: WallTime,
    ) -> Result<Vec<(Window, Kept<V>)>, TaskError> {
        let key = self.place().key_bytes(cx, &self.key, key)?;
        let mut found = Vec::new();
        for e in self.segmented.of_key(cx, &key, (earliest_end, until), Order::Forward)? {
            let session = self.session(&e)?;
            if session.start <= latest_start {
                found.push((session, self.place().kept(cx, &self.value, e.stored)?));
            }
        }
        Ok(found)
    }
    /// The sessions of all keys that end within `from..=to`, the earliest end first.
    pub fn fetch_all(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        from: WallTime,
        to: WallTime,
    ) -> Result<Vec<(Windowed<K>, Kept<V>)>, TaskError> {
        let mut all = Vec::new();
        for e in self.segmented.all(cx, (from, to))? {
            let window = self.session(&e)?;
            let key = self.place().decode(cx, &self.key, &e.key, &Headers::new())?;
            all.push((Windowed { key, window }, self.place().kept(cx, &self.value, e.stored)?));
        }
        Ok(all)
    }

    pub(crate) fn place(&self) -> &Place {
        &self.segmented.place
    }
    fn session(&self, e: &Entry) -> Result<Window, Error> {
        let start = Parts(&e.tail).time().ok_or_else(|| self.place().strange())?;
        Ok(Window { start, end: e.at })
    }
    fn entry(&self, cx: &ProcessorCx<'_, '_>, key: &K, session: Window) -> Result<Vec<u8>, Error> {
        let start = Ordered::of(0).time(session.start).bytes();
        Ok(self.segmented.entry(&self.place().key_bytes(cx, &self.key, key)?, session.end, &start[1..]))
    }
}
