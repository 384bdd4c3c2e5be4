//! The default engine: fjall. One database per process, one keyspace per store; a key is `partition:i32 BE, kind:u8, key`.

use std::path::Path;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable};

use crate::ids::{Partition, StoreName, UnitName};

use super::changes::Changes;
use super::merge::{Direction, Layer};
use super::overlay::{Bounds, after_prefix};
use super::table::Mark;
use super::{StoreResult, Stored, failed, locked, value};

/// Memory of one keyspace's newest writes, before they go to a table on disk.
const MEMTABLE: u64 = 16 << 20;
/// Size of all journals together, at most.
const JOURNALS: u64 = 128 << 20;
/// Keys removed in one batch when a partition is wiped.
const WIPE_BATCH: usize = 10_000;

/// The changelog position of a partition; sorts before its data, so that a wipe takes it first.
const KIND_MARK: u8 = 0;
const KIND_DATA: u8 = 1;

/// The process's database.
#[derive(Clone)]
pub(super) struct Disk(Database);

impl Disk {
    pub(super) fn open(path: &Path, cache: usize) -> StoreResult<Self> {
        let opened = Database::builder(path).cache_size(cache as u64).max_journaling_size(JOURNALS).worker_threads(1).open();
        match opened {
            Ok(db) => Ok(Self(db)),
            Err(fjall::Error::Locked) => Err(locked(path)),
            Err(e) => Err(failed(format!("opening the database {}", path.display())).because(e)),
        }
    }
    pub(super) fn table(&self, unit: &UnitName, store: &StoreName, partition: Partition) -> StoreResult<DiskTable> {
        let name = format!("{unit}/{store}");
        if name.len() > usize::from(u8::MAX) {
            return Err(failed(format!("opening store {name}")).because("unit and store name together exceed 255 bytes"));
        }
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE);
        let keyspace = self.0.keyspace(&name, options).map_err(|e| failed(format!("opening store {name}")).because(e))?;
        Ok(DiskTable { db: self.0.clone(), keyspace, partition: partition.0.to_be_bytes() })
    }
    /// A batch over all keyspaces: atomic, and in the operating system's hands when its commit returns.
    pub(super) fn batch(&self) -> OwnedWriteBatch {
        self.0.batch()
    }
    /// Waits until everything committed is on the disk itself.
    pub(super) fn sync(&self) -> StoreResult<()> {
        self.0.persist(PersistMode::SyncAll).map_err(|e| failed("syncing the database").because(e))
    }
}

/// One partition of a keyspace.
#[derive(Clone)]
pub(super) struct DiskTable {
    db: Database,
    keyspace: Keyspace,
    partition: [u8; 4],
}

impl DiskTable {
    pub(super) fn get(&self, key: &[u8]) -> StoreResult<Option<Stored>> {
        let found = self.keyspace.get(self.key(KIND_DATA, key)).map_err(|e| self.failed("reading").because(e))?;
        found.map(|bytes| value::decode(&bytes)).transpose()
    }

    pub(super) fn position(&self) -> StoreResult<Option<Mark>> {
        let found = self.keyspace.get(self.key(KIND_MARK, b"")).map_err(|e| self.failed("reading the position of").because(e))?;
        found
            .map(|b| Mark::from_bytes(&b).ok_or_else(|| self.failed("reading the position of").because("not a position")))
            .transpose()
    }

    /// Entries of a snapshot made now.
    pub(super) fn scan(&self, bounds: &Bounds, direction: Direction) -> Layer {
        if bounds.is_empty() {
            return Box::new(std::iter::empty());
        }
        let from = self.key(KIND_DATA, bounds.from.as_deref().unwrap_or_default());
        let to = match &bounds.to {
            Some(to) => self.key(KIND_DATA, to),
            None => self.key(KIND_DATA + 1, b""),
        };
        let name = self.keyspace.name().to_string();
        direction.turn(self.db.snapshot().range(&self.keyspace, from..to).map(move |guard| {
            let (key, bytes) = guard.into_inner().map_err(|e| failed(format!("scanning store {name}")).because(e))?;
            Ok((Bytes::copy_from_slice(&key[5..]), Some(value::decode(&bytes)?)))
        }))
    }

    /// Adds writes, in key order, and the position.
    pub(super) fn add_to(&self, batch: &mut OwnedWriteBatch, changes: &Changes, mark: Option<Mark>) {
        if let Some(mark) = mark {
            batch.insert(&self.keyspace, self.key(KIND_MARK, b""), mark.to_bytes());
        }
        for (key, value) in changes.in_order() {
            match value {
                Some(value) => batch.insert(&self.keyspace, self.key(KIND_DATA, key), value::encode(value)),
                None => batch.remove(&self.keyspace, self.key(KIND_DATA, key)),
            }
        }
    }

    /// Removes everything of this partition, the position first: data without a position is wiped at the next open.
    pub(super) fn wipe(&self) -> StoreResult<()> {
        let to = after_prefix(&self.partition).unwrap_or_else(|| vec![u8::MAX; 5]);
        loop {
            let mut batch = self.db.batch();
            for guard in self.keyspace.range(self.partition.to_vec()..to.clone()).take(WIPE_BATCH) {
                batch.remove(&self.keyspace, guard.key().map_err(|e| self.failed("wiping").because(e))?);
            }
            if batch.is_empty() {
                return Ok(());
            }
            batch.commit().map_err(|e| self.failed("wiping").because(e))?;
        }
    }

    fn key(&self, kind: u8, key: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(5 + key.len());
        out.extend(self.partition);
        out.push(kind);
        out.extend_from_slice(key);
        out
    }
    fn failed(&self, doing: &str) -> crate::error::Error {
        failed(format!("{doing} store {}, partition {}", self.keyspace.name(), i32::from_be_bytes(self.partition)))
    }
}
