//! State stores. Uncommitted writes live in an overlay and reach the store, with the changelog position, in one atomic sorted
//! batch after the commit, on the writer thread. An abort drops the overlay and never wipes the store.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::error::{Error, Fault, codes};
use crate::ids::{StoreName, TopicName, Tp};
use crate::record::{Headers, OutRecord};
use crate::time::WallTime;

/// A store's place in its sub-topology's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreId(pub usize);

/// Which engine keeps the committed data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// On disk, ordered (fjall): the default.
    Disk,
    /// Hash table and append log: for stores that fit memory.
    Small,
    /// In memory only: restored from the changelog at each start.
    Memory,
}

/// A store as a topology declares it.
#[derive(Clone, Debug)]
pub struct StoreSpec {
    /// Its name, stable over versions.
    pub name: StoreName,
    /// Where committed data lives.
    pub engine: EngineKind,
    /// Whether several writes of one key within a transaction are logged as one.
    pub cached: bool,
    /// Its changelog topic and settings; `None` = not restored, lost with the disk.
    pub changelog: Option<ChangelogSpec>,
}

/// A changelog topic.
#[derive(Clone, Debug)]
pub struct ChangelogSpec {
    /// Its name.
    pub topic: TopicName,
    /// Its settings, `cleanup.policy` and so on.
    pub config: BTreeMap<String, String>,
}

/// A value with what travels beside it: time and headers survive state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// The bytes.
    pub value: Bytes,
    /// The time of the record that wrote it.
    pub timestamp: Option<WallTime>,
    /// Its headers.
    pub headers: Headers,
}

impl Stored {
    /// Only bytes.
    pub fn bytes(value: impl Into<Bytes>) -> Self {
        Self { value: value.into(), ..Self::default() }
    }
}

/// A changelog record that a write asks for.
#[derive(Clone, Debug)]
pub struct Change {
    /// The changelog partition.
    pub tp: Tp,
    /// The key.
    pub key: Bytes,
    /// The value; `None` is a tombstone.
    pub value: Option<Stored>,
}

impl Change {
    /// As a record to emit.
    pub fn as_record(&self) -> OutRecord<'_> {
        OutRecord {
            topic: &self.tp.topic,
            partition: Some(self.tp.partition),
            timestamp: self.value.as_ref().and_then(|v| v.timestamp),
            key: Some(&self.key),
            value: self.value.as_ref().map(|v| &v.value[..]),
            headers: self.value.as_ref().map(|v| &v.headers).filter(|h| !h.is_empty()),
        }
    }
}

/// A result of a store call.
pub type StoreResult<T> = Result<T, Error>;

/// Entries in key order; a snapshot of the moment it was made.
pub type Scan = Box<dyn Iterator<Item = StoreResult<(Bytes, Stored)>>>;

mod cache;
mod changes;
mod copies;
mod disk;
mod global;
mod lock;
mod manager;
mod merge;
mod overlay;
mod small;
mod stores;
mod table;
mod value;
mod views;
mod writer;

#[cfg(test)]
mod tests;

pub use cache::{CacheBudget, CacheShare};
pub use copies::Copies;
pub use global::{GlobalStore, Globals};
pub use lock::SlotLock;
pub use manager::{StateConfig, StateManager};
pub use stores::TaskStores;
pub use views::{StoreView, StoreViews};

/// A store that can't be opened, read or written.
fn failed(doing: impl Into<String>) -> Error {
    Error::new(codes::STORE_FAILED, Fault::Configuration, doing)
}

/// A directory that another process has.
fn locked(dir: &std::path::Path) -> Error {
    Error::new(codes::STATE_DIR_LOCKED, Fault::Configuration, format!("opening the state directory {}", dir.display()))
        .because("another process has it open")
        .next("stop the other process, or give each process a directory of its own")
}
