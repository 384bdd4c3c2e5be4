//! A store of windows: for each key, a value by the start of its window.

use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Fault, codes};
use crate::ids::StoreName;
use crate::record::Headers;
use crate::serdes::{SerdeRef, Window, Windowed};
use crate::task::TaskError;
use crate::time::WallTime;

use super::segmented::Segmented;
use super::{Kept, Order, Place, ProcessorCx};

/// A window store of a topology. Cheap to clone; used inside the steps that the topology connects with it. Windows go when stream
/// time has passed their start by the store's retention.
#[doc(alias = "ReadOnlyWindowStore")]
pub struct WindowStore<K, V> {
    pub(crate) segmented: Segmented,
    key: SerdeRef<K>,
    value: SerdeRef<V>,
    size: Duration,
}

impl<K, V> Clone for WindowStore<K, V> {
    fn clone(&self) -> Self {
        Self { segmented: self.segmented.clone(), key: self.key.clone(), value: self.value.clone(), size: self.size }
    }
}

impl<K, V> WindowStore<K, V> {
    /// Windows of `size` at `segmented`.
    pub(crate) fn new(segmented: Segmented, key: SerdeRef<K>, value: SerdeRef<V>, size: Duration) -> Self {
        Self { segmented, key, value, size }
    }
    /// Its name.
    pub fn name(&self) -> &StoreName {
        self.place().name()
    }
    /// How long its windows are.
    pub fn size(&self) -> Duration {
        self.size
    }
    /// The window of this store that begins at `start`.
    pub fn window(&self, start: WallTime) -> Window {
        Window { start, end: start.plus(self.size) }
    }

    /// What a key has in the window that begins at `start`.
    #[doc(alias = "fetch")]
    pub fn get(&self, cx: &mut ProcessorCx<'_, '_>, key: &K, start: WallTime) -> Result<Option<Kept<V>>, TaskError> {
        let entry = self.entry(cx, key, start)?;
        self.place().get_kept(cx, &entry, &self.value)
    }
    /// Writes what a key has in the window that begins at `start`.
    pub fn put(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        key: &K,
        start: WallTime,
        value: &V,
        timestamp: Option<WallTime>,
        headers: &Headers,
    ) -> Result<(), TaskError> {
        let entry = self.entry(cx, key, start)?;
        self.place().put_kept(cx, &entry, &self.value, value, timestamp, headers)
    }
    /// Deletes what a key has in the window that begins at `start`.
    pub fn delete(&self, cx: &mut ProcessorCx<'_, '_>, key: &K, start: WallTime) -> Result<(), TaskError> {
        let entry = self.entry(cx, key, start)?;
        self.place().put(cx, &entry, None)
    }
    /// What a key has in windows that begin within `from..=to`, by their start.
    #[doc(alias = "backwardFetch")]
    pub fn fetch(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        key: &K,
        from: WallTime,
        to: WallTime,
        order: Order,
    ) -> Result<Vec<(WallTime, Kept<V>)>, TaskError> {
        let key = self.place().key_bytes(cx, &self.key, key)?;
        let found = self.segmented.of_key(cx, &key, (from, to), order)?;
        found.into_iter().map(|e| Ok((e.at, self.place().kept(cx, &self.value, e.stored)?))).collect()
    }
    /// What all keys have in windows that begin within `from..=to`, the earliest window first.
    #[doc(alias = "fetchAll")]
    pub fn fetch_all(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        from: WallTime,
        to: WallTime,
    ) -> Result<Vec<(Windowed<K>, Kept<V>)>, TaskError> {
        let found = self.segmented.all(cx, (from, to))?;
        let read = |e: super::segmented::Entry, cx: &mut ProcessorCx<'_, '_>| {
            let key = self.place().decode(cx, &self.key, &e.key, &Headers::new())?;
            Ok((Windowed { key, window: self.window(e.at) }, self.place().kept(cx, &self.value, e.stored)?))
        };
        found.into_iter().map(|e| read(e, cx)).collect()
    }

    /// Whether a key is null; such records are in no group.
    pub(crate) fn is_null(&self, cx: &ProcessorCx<'_, '_>, key: &K) -> Result<bool, Error> {
        self.place().is_null(cx, &self.key, key)
    }
    pub(crate) fn key_of(&self, cx: &ProcessorCx<'_, '_>, bytes: &Bytes) -> Result<K, Error> {
        self.place().decode(cx, &self.key, bytes, &Headers::new())
    }
    pub(crate) fn key_bytes(&self, cx: &ProcessorCx<'_, '_>, key: &K) -> Result<Bytes, Error> {
        self.place().key_bytes(cx, &self.key, key)
    }
    pub(crate) fn place(&self) -> &Place {
        &self.segmented.place
    }
    fn entry(&self, cx: &ProcessorCx<'_, '_>, key: &K, start: WallTime) -> Result<Vec<u8>, Error> {
        Ok(self.segmented.entry(&self.key_bytes(cx, key)?, start, b""))
    }
}

/// The time of a record, which windows and joins can't do without.
pub(crate) fn time_of(timestamp: Option<WallTime>) -> Result<WallTime, Error> {
    let none = || {
        Error::new(codes::UNDECODABLE, Fault::Data, "putting a record without a time into a window")
            .next("give the source a timestamp extractor that names one")
    };
    timestamp.ok_or_else(none)
}
