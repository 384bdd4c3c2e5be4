//! A key-value store with types, by the name its topology gave it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::error::{Error, Fault, codes};
use crate::ids::{StoreName, TopicName};
use crate::record::Headers;
use crate::serdes::SerdeRef;
use crate::state::{Scan, StoreId, Stored};
use crate::task::TaskError;
use crate::time::WallTime;

use super::ProcessorCx;

/// A store of a topology. Cheap to clone; used inside the steps that the topology connects with it.
pub struct StoreRef<K, V> {
    name: StoreName,
    changelog: TopicName,
    key: SerdeRef<K>,
    value: SerdeRef<V>,
    place: Arc<OnceLock<StoreId>>,
    log: Log,
    cached: bool,
}

/// Who writes the topic that a store is restored from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Log {
    /// We do, with each write.
    Own,
    /// Others do: it is the topic that the store is filled from.
    Source,
}

impl<K, V> Clone for StoreRef<K, V> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            changelog: self.changelog.clone(),
            key: self.key.clone(),
            value: self.value.clone(),
            place: self.place.clone(),
            log: self.log,
            cached: self.cached,
        }
    }
}

impl<K, V> StoreRef<K, V> {
    /// Names a store; `place` is filled in when the topology is planned.
    pub fn new(name: StoreName, changelog: TopicName, key: SerdeRef<K>, value: SerdeRef<V>, place: Arc<OnceLock<StoreId>>) -> Self {
        Self { name, changelog, key, value, place, log: Log::Own, cached: false }
    }
    /// The same, restored from the topic that it is filled from: nothing is written there.
    pub fn of_source(self) -> Self {
        Self { log: Log::Source, ..self }
    }
    /// Its name.
    pub fn name(&self) -> &StoreName {
        &self.name
    }
    /// The same, whose changes of one transaction are passed on as one, by the table that it keeps.
    pub(crate) fn cached(self, cached: bool) -> Self {
        Self { cached, ..self }
    }
    /// Whether changes of one transaction are passed on as one.
    pub(crate) fn is_cached(&self) -> bool {
        self.cached
    }
    /// The topic that it is restored from.
    pub(crate) fn changelog(&self) -> &TopicName {
        &self.changelog
    }
    /// How keys are written.
    pub(crate) fn key_serde(&self) -> &SerdeRef<K> {
        &self.key
    }
    /// How values are written.
    pub(crate) fn value_serde(&self) -> &SerdeRef<V> {
        &self.value
    }
    /// The newest value under `key`.
    pub fn get(&self, cx: &mut ProcessorCx<'_, '_>, key: &K) -> Result<Option<V>, TaskError> {
        Ok(self.get_with_time(cx, key)?.map(|(value, _)| value))
    }
    /// The newest value under `key` with the time of the record that wrote it.
    pub fn get_with_time(&self, cx: &mut ProcessorCx<'_, '_>, key: &K) -> Result<Option<(V, Option<WallTime>)>, TaskError> {
        let key = self.key_bytes(cx, key)?;
        let Some(stored) = cx.get(self.id()?, &key)? else { return Ok(None) };
        match self.decode(cx, &stored) {
            // Restored as it stands in the topic, where others may have written it: what was refused as a record is no entry.
            Err(e) if self.log == Log::Source => {
                tracing::warn!(store = %self.name, error = %e, "an entry that can't be read counts as absent");
                Ok(None)
            }
            read => Ok(Some((read?, stored.timestamp))),
        }
    }
    /// Writes a value with its time and headers.
    pub fn put(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        key: &K,
        value: &V,
        timestamp: Option<WallTime>,
        headers: &Headers,
    ) -> Result<(), TaskError> {
        let key = self.key_bytes(cx, key)?;
        let value = self.value.encode(value, cx.target(&self.changelog))?;
        let stored = value.map(|value| Stored { value, timestamp, headers: headers.clone() });
        self.write(cx, &key, stored)
    }
    /// Deletes what stands under `key`.
    pub fn delete(&self, cx: &mut ProcessorCx<'_, '_>, key: &K) -> Result<(), TaskError> {
        let key = self.key_bytes(cx, key)?;
        self.write(cx, &key, None)
    }
    /// Entries with `from <= key < to` in the order of their encoded keys; `None` is open.
    pub fn range(&self, cx: &mut ProcessorCx<'_, '_>, from: Option<&K>, to: Option<&K>) -> Result<Vec<(K, V)>, TaskError> {
        let from = from.map(|k| self.key_bytes(cx, k)).transpose()?;
        let to = to.map(|k| self.key_bytes(cx, k)).transpose()?;
        let scan = cx.range(self.id()?, from.as_deref(), to.as_deref())?;
        scan.map(|entry| Ok(self.entry(cx, entry?)?)).collect()
    }
    /// Entries whose encoded key begins with `prefix`, as they were when this was called; [`Self::entry`] decodes one.
    pub(crate) fn prefix(&self, cx: &mut ProcessorCx<'_, '_>, prefix: &[u8]) -> Result<Scan, TaskError> {
        cx.prefix(self.id()?, prefix)
    }
    /// Decodes an entry of a scan.
    pub(crate) fn entry(&self, cx: &ProcessorCx<'_, '_>, (key, stored): (Bytes, Stored)) -> Result<(K, V), Error> {
        let none = Headers::new();
        Ok((self.key.decode(cx.raw(&self.changelog, Some(&key), &none))?, self.decode(cx, &stored)?))
    }

    fn write(&self, cx: &mut ProcessorCx<'_, '_>, key: &[u8], value: Option<Stored>) -> Result<(), TaskError> {
        match self.log {
            Log::Own => cx.put(self.id()?, key, value),
            Log::Source => cx.keep(self.id()?, key, value),
        }
    }
    fn id(&self) -> Result<StoreId, Error> {
        self.place.get().copied().ok_or_else(|| {
            Error::new(codes::BUG, Fault::Bug, format!("using store {} outside the steps it is connected with", self.name))
        })
    }
    fn key_bytes(&self, cx: &ProcessorCx<'_, '_>, key: &K) -> Result<Bytes, Error> {
        let bytes = self.key.encode(key, cx.target(&self.changelog))?;
        bytes.ok_or_else(|| Error::new(codes::UNDECODABLE, Fault::Data, format!("a null key can't be kept in store {}", self.name)))
    }
    /// What a store holds was written by us: undecodable content is no record's fault.
    fn decode(&self, cx: &ProcessorCx<'_, '_>, stored: &Stored) -> Result<V, Error> {
        self.value.decode(cx.raw(&self.changelog, Some(&stored.value), &stored.headers)).map_err(|e| {
            Error::new(codes::STORE_FAILED, Fault::Bug, format!("reading store {}", self.name))
                .because(e)
                .next("its content was written under another type: rename the store or reset the application")
        })
    }
}
