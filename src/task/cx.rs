//! What a task may do inside the open transaction.

use bytes::Bytes;

use crate::error::Code;
use crate::kafka::KResult;
use crate::record::OutRecord;
use crate::state::{Scan, StoreId, StoreResult, Stored, TaskStores};
use crate::time::Now;

use super::TaskError;

/// Takes records into the open transaction; the runtime's sink, or a recorder in tests. Serves a full queue by itself.
pub trait Emit {
    /// Queues one record.
    fn emit(&mut self, record: OutRecord<'_>) -> KResult<()>;
    /// The record just queued is a dead letter; counted once the transaction is committed.
    fn buried(&mut self, _code: Code) {}
}

/// The open transaction as a task sees it: emit, read and write stores, read time. It cannot begin or commit.
pub struct TxCx<'a> {
    now: Now,
    out: &'a mut dyn Emit,
    stores: &'a mut TaskStores,
}

impl<'a> TxCx<'a> {
    /// Joins the parts for one call.
    pub fn new(now: Now, out: &'a mut dyn Emit, stores: &'a mut TaskStores) -> Self {
        Self { now, out, stores }
    }
    /// Both clocks as of the start of this call.
    pub fn now(&self) -> Now {
        self.now
    }
    /// Writes one record in this transaction.
    pub fn emit(&mut self, record: OutRecord<'_>) -> Result<(), TaskError> {
        Ok(self.out.emit(record)?)
    }
    /// Writes a dead letter in this transaction.
    pub fn bury(&mut self, code: Code, record: OutRecord<'_>) -> Result<(), TaskError> {
        self.out.emit(record)?;
        self.out.buried(code);
        Ok(())
    }
    /// The newest value, uncommitted ones of this task included.
    pub fn get(&mut self, store: StoreId, key: &[u8]) -> StoreResult<Option<Stored>> {
        self.stores.get(store, key)
    }
    /// Writes (or with `None` deletes) a value: into the overlay, and as a changelog record into this transaction.
    pub fn put(&mut self, store: StoreId, key: &[u8], value: Option<Stored>) -> Result<(), TaskError> {
        if let Some(change) = self.stores.put(store, Bytes::copy_from_slice(key), value)? {
            self.out.emit(change.as_record())?;
        }
        Ok(())
    }
    /// Writes into the overlay only, for a store whose log is the topic that the task reads.
    pub fn keep(&mut self, store: StoreId, key: &[u8], value: Option<Stored>) -> StoreResult<()> {
        self.stores.keep(store, Bytes::copy_from_slice(key), value);
        Ok(())
    }
    /// Writes what cached stores have not logged yet: the last word of a task before the commit.
    pub fn log_cached(&mut self) -> Result<(), TaskError> {
        for change in self.stores.unlogged()? {
            self.out.emit(change.as_record())?;
        }
        Ok(())
    }
    /// All entries whose key begins with `prefix`, in key order, newest values.
    pub fn prefix(&mut self, store: StoreId, prefix: &[u8]) -> StoreResult<Scan> {
        self.stores.prefix(store, prefix)
    }
    /// All entries with `from <= key < to`, in key order, newest values; `None` is open.
    pub fn range(&mut self, store: StoreId, from: Option<&[u8]>, to: Option<&[u8]>) -> StoreResult<Scan> {
        self.stores.range(store, from, to)
    }
    /// As [`range`](Self::range), the greatest key first.
    pub fn range_back(&mut self, store: StoreId, from: Option<&[u8]>, to: Option<&[u8]>) -> StoreResult<Scan> {
        self.stores.range_back(store, from, to)
    }
    /// Removes an entry that is past its store's retention: here, not in the changelog.
    pub fn forget(&mut self, store: StoreId, key: Bytes) {
        self.stores.forget(store, key);
    }
}
