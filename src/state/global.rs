//! Stores that hold a whole topic, shared by all threads of the process: written by one reader, read by everybody.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;

use crate::ids::{Partition, StoreName};
use crate::offset::NextOffset;
use crate::record::InRecord;
use crate::time::{Clock, SystemClock};

use super::changes::Changes;
use super::merge::Direction;
use super::overlay::Bounds;
use super::table::{Mark, Table};
use super::writer::{Part, Sealed, Writer};
use super::{Scan, StoreResult, Stored, failed};

/// Where steps find the process's whole-topic stores; empty until the process opens them.
#[derive(Clone, Default)]
pub struct Globals(Arc<RwLock<BTreeMap<StoreName, Table>>>);

impl std::fmt::Debug for Globals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Globals")
    }
}

impl Globals {
    /// The value under a key's bytes.
    ///
    /// # Errors
    /// `STORE_FAILED` where the store is not open or can't be read.
    pub fn get(&self, store: &StoreName, key: &[u8]) -> StoreResult<Option<Stored>> {
        self.table(store)?.get(key)
    }

    /// Entries with `from <= key < to`, in byte order.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn range(&self, store: &StoreName, from: Option<&[u8]>, to: Option<&[u8]>) -> StoreResult<Scan> {
        Ok(self.table(store)?.entries(&Bounds::new(from, to)))
    }

    fn table(&self, store: &StoreName) -> StoreResult<Table> {
        let found = self.0.read().unwrap_or_else(PoisonError::into_inner).get(store).cloned();
        found.ok_or_else(|| failed(format!("reading store {store}: it is not open yet")))
    }

    pub(super) fn open(&self, store: &StoreName, table: Table) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(store.clone(), table);
    }
}

/// A whole-topic store as its one writer holds it. Entries of all partitions lie together; each partition has a position.
pub struct GlobalStore {
    data: Table,
    marks: Vec<Table>,
    writer: Writer,
}

impl GlobalStore {
    /// `tables` has one for each partition; the entries lie in the first.
    pub(super) fn new(tables: Vec<Table>, writer: Writer) -> Self {
        let data = tables.first().cloned().unwrap_or_else(|| Table::Memory(Arc::default()));
        Self { data, marks: tables, writer }
    }

    /// Where a partition's records have been taken in to.
    ///
    /// # Errors
    /// `STORE_FAILED` where it can't be read.
    pub fn position(&self, partition: Partition) -> StoreResult<Option<NextOffset>> {
        let mark = usize::try_from(partition.0).ok().and_then(|p| self.marks.get(p)).map(Table::position).transpose()?.flatten();
        Ok(mark.map(|m| m.position))
    }

    /// Takes records in, in this order, and the positions behind them, at once. A record without a key is left out.
    ///
    /// # Errors
    /// `STORE_FAILED` where an earlier batch could not be written.
    pub fn apply(&self, records: Vec<InRecord>, positions: &BTreeMap<Partition, NextOffset>) -> StoreResult<()> {
        let seen = SystemClock.now().wall.0;
        let mut changes = Changes::default();
        for r in records {
            let Some(key) = r.key else { continue };
            changes.insert(key, r.value.map(|value| Stored { value, timestamp: r.timestamp, headers: r.headers }));
        }
        let mut parts = vec![Part { table: self.data.clone(), changes: Arc::new(changes), mark: None }];
        for (partition, position) in positions {
            if let Some(table) = usize::try_from(partition.0).ok().and_then(|p| self.marks.get(p)) {
                let mark = Some(Mark { position: *position, seen });
                parts.push(Part { table: table.clone(), changes: Arc::default(), mark });
            }
        }
        self.writer.apply(Sealed::new(parts))
    }

    /// Waits until everything taken in can be read.
    ///
    /// # Errors
    /// `STORE_FAILED` where it could not be written.
    pub fn flush(&self) -> StoreResult<()> {
        self.writer.flush()
    }

    /// Drops everything, to be read from the topic's start.
    ///
    /// # Errors
    /// `STORE_FAILED` where it can't be removed.
    pub fn wipe(&self) -> StoreResult<()> {
        self.marks.iter().rev().try_for_each(|t| self.writer.wipe(t.clone()))
    }
}

impl Table {
    /// Entries within the bounds as they are now.
    pub(super) fn entries(&self, bounds: &Bounds) -> Scan {
        let kept = |entry: StoreResult<(Bytes, Option<Stored>)>| match entry {
            Ok((key, value)) => value.map(|value| Ok((key, value))),
            Err(e) => Some(Err(e)),
        };
        Box::new(self.scan(bounds, Direction::Up).filter_map(kept))
    }
}
