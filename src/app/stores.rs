//! Questions to the stores of a running process. Answers hold committed data only; what another process holds is said, not guessed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::{Partition, StoreName, TopicName, UnitName, partition_of};
use crate::offset::NextOffset;
use crate::record::Headers;
use crate::serdes::{AvroCodec, Raw, SerdeRef, Target};
use crate::state::{Globals, Scan, StoreView, StoreViews, Stored};
use crate::topology::StoreInfo;

/// The stores of a process.
#[derive(Clone)]
pub struct Stores {
    unit: UnitName,
    infos: Arc<BTreeMap<StoreName, StoreInfo>>,
    views: StoreViews,
    globals: Globals,
    pub(crate) avro: Option<Arc<dyn AvroCodec>>,
}

/// What a store says of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// It stands here.
    Value(Entry),
    /// It stands nowhere: the partition that it would be in is here.
    Absent(Partition),
    /// The partition that it would be in is not here.
    Elsewhere(Partition),
}

/// A committed entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key's bytes.
    pub key: Bytes,
    /// The value with its time and headers.
    pub stored: Stored,
    /// The partition that it was found in.
    pub partition: Partition,
    /// Up to where in its changelog that partition is; `None` for a global store.
    pub position: Option<NextOffset>,
}

/// Some entries of a store, in the order of their keys' bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries {
    /// Entries of all partitions that are here.
    pub entries: Vec<Entry>,
    /// Whether the limit cut some off.
    pub more: bool,
}

/// Which keys are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// All that begin with these bytes.
    Prefix(Bytes),
    /// `from <= key < to`; `None` is open.
    Range(Option<Bytes>, Option<Bytes>),
}

impl Stores {
    /// The stores of `infos` as `views` and `globals` have them.
    pub fn new(
        unit: UnitName,
        infos: Vec<StoreInfo>,
        views: StoreViews,
        globals: Globals,
        avro: Option<Arc<dyn AvroCodec>>,
    ) -> Self {
        let infos = Arc::new(infos.into_iter().map(|i| (i.name.clone(), i)).collect());
        Self { unit, infos, views, globals, avro }
    }

    /// All of them, in name order.
    pub fn all(&self) -> impl Iterator<Item = StoreHandle> {
        self.infos.values().map(|info| StoreHandle { info: info.clone(), stores: self.clone() })
    }

    /// The store of this name.
    ///
    /// # Errors
    /// `UNKNOWN_REFERENCE` where the topology has none.
    pub fn store(&self, name: &str) -> Result<StoreHandle> {
        let Some(info) = self.infos.get(&StoreName::new(name)) else {
            let known: Vec<&str> = self.infos.keys().map(StoreName::as_str).collect();
            return Err(Error::new(codes::UNKNOWN_REFERENCE, Fault::Configuration, format!("looking for store `{name}`"))
                .because(format!("the stores are: {}", known.join(", "))));
        };
        Ok(StoreHandle { info: info.clone(), stores: self.clone() })
    }
}

/// One store of a process.
#[derive(Clone)]
pub struct StoreHandle {
    info: StoreInfo,
    pub(crate) stores: Stores,
}

impl StoreHandle {
    /// What it is.
    pub fn info(&self) -> &StoreInfo {
        &self.info
    }

    /// The partitions that are here; none of a global store, which is here whole.
    pub fn here(&self) -> Vec<Partition> {
        self.views().iter().map(|v| v.partition).collect()
    }

    /// What stands under a key's bytes. Where the default partitioner puts the key comes first; a topic's own partitioner may have
    /// put it elsewhere, so the other partitions here are looked at too.
    ///
    /// # Errors
    /// `STORE_FAILED` where it can't be read.
    pub fn get(&self, key: &[u8]) -> Result<Found> {
        let place = partition_of(key, self.info.partitions);
        let entry = |stored, partition, position| Entry { key: Bytes::copy_from_slice(key), stored, partition, position };
        if self.info.global {
            let found = self.stores.globals.get(&self.info.name, key)?;
            return Ok(found.map_or(Found::Absent(place), |stored| Found::Value(entry(stored, place, None))));
        }
        let mut views = self.views();
        views.sort_by_key(|v| v.partition != place);
        for view in &views {
            let position = view.position()?;
            if let Some(stored) = view.get(key)? {
                return Ok(Found::Value(entry(stored, view.partition, position)));
            }
        }
        let here = views.iter().any(|v| v.partition == place);
        Ok(if here { Found::Absent(place) } else { Found::Elsewhere(place) })
    }

    /// At most `limit` entries of the partitions here.
    ///
    /// # Errors
    /// `STORE_FAILED` where they can't be read.
    pub fn entries(&self, keys: &Keys, limit: usize) -> Result<Entries> {
        let mut entries = Vec::new();
        if self.info.global {
            let (from, to) = match keys {
                Keys::Range(from, to) => (from.clone(), to.clone()),
                Keys::Prefix(prefix) => (Some(prefix.clone()), None),
            };
            let scan = self.stores.globals.range(&self.info.name, from.as_deref(), to.as_deref())?;
            let within = |key: &Bytes| !matches!(keys, Keys::Prefix(p) if !key.starts_with(p));
            take(scan, Partition(0), None, &within, limit, &mut entries)?;
        }
        for view in self.views() {
            let scan = match keys {
                Keys::Range(from, to) => view.range(from.as_deref(), to.as_deref()),
                Keys::Prefix(prefix) => view.prefix(prefix),
            };
            take(scan, view.partition, view.position()?, &|_| true, limit, &mut entries)?;
        }
        entries.sort_by(|a, b| (&a.key, a.partition).cmp(&(&b.key, b.partition)));
        let more = entries.len() > limit;
        entries.truncate(limit);
        Ok(Entries { entries, more })
    }

    /// With types.
    pub fn typed<K, V>(&self, key: SerdeRef<K>, value: SerdeRef<V>) -> TypedStore<K, V> {
        TypedStore { handle: self.clone(), key, value }
    }

    pub(crate) fn topic(&self) -> TopicName {
        self.info.changelog.clone().unwrap_or_else(|| TopicName::new(self.info.name.as_str()))
    }

    fn views(&self) -> Vec<StoreView> {
        self.stores.views.of(&self.stores.unit, &self.info.name)
    }
}

/// One entry more than the limit says that there are more.
fn take(
    scan: Scan,
    partition: Partition,
    position: Option<NextOffset>,
    within: &dyn Fn(&Bytes) -> bool,
    limit: usize,
    into: &mut Vec<Entry>,
) -> Result<()> {
    for entry in scan.take(limit + 1) {
        let (key, stored) = entry?;
        if !within(&key) {
            break;
        }
        into.push(Entry { key, stored, partition, position });
    }
    Ok(())
}

/// One store of a process, with types.
#[derive(Clone)]
pub struct TypedStore<K, V> {
    handle: StoreHandle,
    key: SerdeRef<K>,
    value: SerdeRef<V>,
}

impl<K, V> TypedStore<K, V> {
    /// The committed value under `key`.
    ///
    /// # Errors
    /// `STORE_ELSEWHERE` where the key's partition is not here; `STORE_FAILED`; what the serdes say.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let topic = self.handle.topic();
        let bytes = self.key.encode(key, Target { topic: &topic, avro: self.avro() })?.unwrap_or_default();
        match self.handle.get(&bytes)? {
            Found::Value(entry) => self.value(&topic, &entry).map(Some),
            Found::Absent(_) => Ok(None),
            Found::Elsewhere(p) => Err(elsewhere(&self.handle, p)),
        }
    }

    /// At most `limit` committed entries of the partitions here, in the order of their keys' bytes.
    ///
    /// # Errors
    /// `STORE_FAILED`; what the serdes say.
    pub fn entries(&self, limit: usize) -> Result<Vec<(K, V)>> {
        let (topic, none) = (self.handle.topic(), Headers::new());
        let found = self.handle.entries(&Keys::Range(None, None), limit)?;
        let decode = |e: &Entry| {
            let key = self.key.decode(Raw { topic: &topic, bytes: Some(&e.key), headers: &none, avro: self.avro() })?;
            Ok((key, self.value(&topic, e)?))
        };
        found.entries.iter().map(decode).collect()
    }

    fn avro(&self) -> Option<&dyn AvroCodec> {
        self.handle.stores.avro.as_deref()
    }
    fn value(&self, topic: &TopicName, e: &Entry) -> Result<V> {
        self.value.decode(Raw { topic, bytes: Some(&e.stored.value), headers: &e.stored.headers, avro: self.avro() })
    }
}

/// A key's partition is not in this process.
pub(crate) fn elsewhere(store: &StoreHandle, partition: Partition) -> Error {
    let here: Vec<String> = store.here().iter().map(ToString::to_string).collect();
    let doing = format!("reading store {}: partition {partition} of {} is not here", store.info().name, store.info().partitions);
    Error::new(codes::STORE_ELSEWHERE, Fault::Unreachable, doing)
        .because(format!("this process has the partitions: {}", here.join(", ")))
        .next("ask the process that has it; during a hand-over, ask again")
}
