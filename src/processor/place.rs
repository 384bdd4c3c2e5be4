//! Where a store of a topology lies, and what can be done there in bytes.

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

/// A value as a store keeps it: with the time and headers of the record that wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept<V> {
    /// The value.
    pub value: V,
    /// The time of the newest record in it.
    pub timestamp: Option<WallTime>,
    /// The headers of the record that wrote it.
    pub headers: Headers,
}

/// A store by name; its number is filled in when the topology is planned.
#[derive(Clone)]
pub struct Place {
    name: StoreName,
    changelog: TopicName,
    id: Arc<OnceLock<StoreId>>,
}

impl Place {
    /// Names a store.
    pub fn new(name: StoreName, changelog: TopicName, id: Arc<OnceLock<StoreId>>) -> Self {
        Self { name, changelog, id }
    }
    /// Its name.
    pub fn name(&self) -> &StoreName {
        &self.name
    }

    pub(crate) fn changelog(&self) -> &TopicName {
        &self.changelog
    }
    fn id(&self) -> Result<StoreId, Error> {
        self.id.get().copied().ok_or_else(|| {
            Error::new(codes::BUG, Fault::Bug, format!("using store {} outside the steps it is connected with", self.name))
        })
    }
    pub(crate) fn get(&self, cx: &mut ProcessorCx<'_, '_>, key: &[u8]) -> Result<Option<Stored>, TaskError> {
        cx.get(self.id()?, key)
    }
    pub(crate) fn put(&self, cx: &mut ProcessorCx<'_, '_>, key: &[u8], value: Option<Stored>) -> Result<(), TaskError> {
        cx.put(self.id()?, key, value)
    }
    pub(crate) fn forget(&self, cx: &mut ProcessorCx<'_, '_>, key: Bytes) -> Result<(), TaskError> {
        cx.forget(self.id()?, key);
        Ok(())
    }
    /// Entries with `from <= key < to`.
    pub(crate) fn range(&self, cx: &mut ProcessorCx<'_, '_>, (from, to): (Vec<u8>, Vec<u8>)) -> Result<Scan, TaskError> {
        cx.range(self.id()?, Some(&from), Some(&to))
    }
    /// As [`range`](Self::range), the greatest key first.
    pub(crate) fn range_back(&self, cx: &mut ProcessorCx<'_, '_>, (from, to): (Vec<u8>, Vec<u8>)) -> Result<Scan, TaskError> {
        cx.range_back(self.id()?, Some(&from), Some(&to))
    }

    /// The bytes of a key; null can't be one.
    pub(crate) fn key_bytes<K>(&self, cx: &ProcessorCx<'_, '_>, serde: &SerdeRef<K>, key: &K) -> Result<Bytes, Error> {
        let bytes = serde.encode(key, cx.target(&self.changelog))?;
        bytes.ok_or_else(|| Error::new(codes::UNDECODABLE, Fault::Data, format!("a null key can't be kept in store {}", self.name)))
    }
    /// Whether a key is null, which grouping and joining steps pass over.
    pub(crate) fn is_null<K>(&self, cx: &ProcessorCx<'_, '_>, serde: &SerdeRef<K>, key: &K) -> Result<bool, Error> {
        Ok(serde.takes_null() && serde.encode(key, cx.target(&self.changelog))?.is_none())
    }
    /// A value in bytes; a null one is kept as absent.
    pub(crate) fn value_bytes<V>(&self, cx: &ProcessorCx<'_, '_>, serde: &SerdeRef<V>, value: &V) -> Result<Option<Bytes>, Error> {
        serde.encode(value, cx.target(&self.changelog))
    }
    /// What a store holds was written by us: undecodable content is no record's fault.
    pub(crate) fn decode<T>(
        &self,
        cx: &ProcessorCx<'_, '_>,
        serde: &SerdeRef<T>,
        bytes: &Bytes,
        headers: &Headers,
    ) -> Result<T, Error> {
        serde.decode(cx.raw(&self.changelog, Some(bytes), headers)).map_err(|e| self.strange().because(e))
    }
    /// The error for content that this version did not write.
    pub(crate) fn strange(&self) -> Error {
        Error::new(codes::STORE_FAILED, Fault::Bug, format!("reading store {}", self.name))
            .next("its content was written under another type: rename the store or reset the application")
    }
    pub(crate) fn kept<V>(&self, cx: &ProcessorCx<'_, '_>, serde: &SerdeRef<V>, stored: Stored) -> Result<Kept<V>, Error> {
        let value = self.decode(cx, serde, &stored.value, &stored.headers)?;
        Ok(Kept { value, timestamp: stored.timestamp, headers: stored.headers })
    }
    /// What stands at an entry.
    pub(crate) fn get_kept<V>(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        entry: &[u8],
        serde: &SerdeRef<V>,
    ) -> Result<Option<Kept<V>>, TaskError> {
        let Some(stored) = self.get(cx, entry)? else { return Ok(None) };
        Ok(Some(self.kept(cx, serde, stored)?))
    }
    /// Writes a value to an entry.
    pub(crate) fn put_kept<V>(
        &self,
        cx: &mut ProcessorCx<'_, '_>,
        entry: &[u8],
        serde: &SerdeRef<V>,
        value: &V,
        timestamp: Option<WallTime>,
        headers: &Headers,
    ) -> Result<(), TaskError> {
        let value = self.value_bytes(cx, serde, value)?;
        self.put(cx, entry, value.map(|value| Stored { value, timestamp, headers: headers.clone() }))
    }
}
