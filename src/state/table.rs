//! One store of one partition: where its committed entries live. Written by the writer only, read by the task that owns it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;

use crate::offset::NextOffset;

use super::changes::Changes;
use super::disk::DiskTable;
use super::merge::{Direction, Layer};
use super::overlay::{Bounds, Walk};
use super::small::SmallTable;
use super::{StoreResult, Stored};

/// Committed entries of one store in one partition.
#[derive(Clone)]
pub(super) enum Table {
    /// A prefix of a keyspace of the process's database.
    Disk(DiskTable),
    /// A map with a log of its own.
    Small(Arc<SmallTable>),
    /// A map.
    Memory(Arc<MemoryTable>),
}

impl Table {
    pub(super) fn get(&self, key: &[u8]) -> StoreResult<Option<Stored>> {
        match self {
            Table::Disk(t) => t.get(key),
            Table::Small(t) => Ok(t.entries.get(key)),
            Table::Memory(t) => Ok(t.get(key)),
        }
    }
    /// Entries within the bounds as they are now.
    pub(super) fn scan(&self, bounds: &Bounds, direction: Direction) -> Layer {
        match self {
            Table::Disk(t) => t.scan(bounds, direction),
            Table::Small(t) => t.entries.scan(bounds, direction),
            Table::Memory(t) => t.scan(bounds, direction),
        }
    }
    /// Where the committed data stands in the changelog.
    pub(super) fn position(&self) -> StoreResult<Option<Mark>> {
        match self {
            Table::Disk(t) => t.position(),
            Table::Small(t) => Ok(t.entries.position()),
            Table::Memory(t) => Ok(t.position()),
        }
    }
    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> StoreResult<bool> {
        self.scan(&Bounds::new(None, None), Direction::Up).next().transpose().map(|first| first.is_none())
    }
    /// Whether reads reach the disk, so that an object cache pays.
    pub(super) fn is_on_disk(&self) -> bool {
        matches!(self, Table::Disk(_))
    }
    /// Whether the data is still there after a restart.
    pub(super) fn outlives_process(&self) -> bool {
        !matches!(self, Table::Memory(_))
    }
}

/// A changelog position and the wall time, in milliseconds, at which the data was last known to stand there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) position: NextOffset,
    pub(super) seen: i64,
}

impl Mark {
    pub(super) fn to_bytes(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.position.0.to_be_bytes());
        out[8..].copy_from_slice(&self.seen.to_be_bytes());
        out
    }
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (position, seen) = bytes.split_at_checked(8)?;
        Some(Self {
            position: NextOffset(i64::from_be_bytes(position.try_into().ok()?)),
            seen: i64::from_be_bytes(seen.try_into().ok()?),
        })
    }
}

/// Entries in memory.
#[derive(Default)]
pub(super) struct MemoryTable(RwLock<Contents>);

#[derive(Default)]
struct Contents {
    entries: Arc<BTreeMap<Bytes, Stored>>,
    mark: Option<Mark>,
}

impl MemoryTable {
    pub(super) fn get(&self, key: &[u8]) -> Option<Stored> {
        self.read(|c| c.entries.get(key).cloned())
    }
    pub(super) fn position(&self) -> Option<Mark> {
        self.read(|c| c.mark)
    }
    pub(super) fn scan(&self, bounds: &Bounds, direction: Direction) -> Layer {
        direction.turn(Walk::new(self.entries(), bounds).map(|(k, v)| Ok((k, Some(v)))))
    }
    /// All entries as they are now.
    pub(super) fn entries(&self) -> Arc<BTreeMap<Bytes, Stored>> {
        self.read(|c| c.entries.clone())
    }
    /// Applies writes and position at once. Copies the map only where a scan still holds it.
    pub(super) fn apply(&self, changes: &Changes, mark: Option<Mark>) {
        let mut contents = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let entries = Arc::make_mut(&mut contents.entries);
        for (key, value) in changes.iter() {
            match value {
                Some(value) => entries.insert(key.clone(), value.clone()),
                None => entries.remove(key),
            };
        }
        contents.mark = mark.or(contents.mark);
    }
    pub(super) fn wipe(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Contents::default();
    }
    fn read<T>(&self, look: impl FnOnce(&Contents) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
