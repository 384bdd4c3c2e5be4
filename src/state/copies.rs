//! Copies of stores that other processes write: open here without a task, until a task of this process is given the partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ids::{TaskId, UnitName};

use super::{StoreResult, TaskStores};

type Open = BTreeMap<(UnitName, TaskId), TaskStores>;

/// The copies of a process. A store is open once: as a copy here, or in a task.
#[derive(Default)]
pub struct Copies(Mutex<Open>);

impl Copies {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a copy by `open`, which answers `None` while a task has the stores. Answers whether there is a new one.
    ///
    /// # Errors
    /// As `open`.
    pub fn keep(&self, unit: &UnitName, task: TaskId, open: impl FnOnce() -> StoreResult<Option<TaskStores>>) -> StoreResult<bool> {
        let mut copies = self.open();
        let key = (unit.clone(), task);
        if copies.contains_key(&key) {
            return Ok(false);
        }
        let Some(stores) = open()? else { return Ok(false) };
        copies.insert(key, stores);
        Ok(true)
    }

    /// Closes those of a unit that are not among `wanted`. Answers whether there were any.
    pub fn retain(&self, unit: &UnitName, wanted: &BTreeSet<TaskId>) -> bool {
        let mut copies = self.open();
        let before = copies.len();
        copies.retain(|(u, task), _| u != unit || wanted.contains(task));
        copies.len() != before
    }

    /// Works on one, where it is still here.
    pub fn with<T>(&self, unit: &UnitName, task: TaskId, work: impl FnOnce(&mut TaskStores) -> T) -> Option<T> {
        self.open().get_mut(&(unit.clone(), task)).map(work)
    }

    /// The tasks of a unit whose stores are copied here.
    pub fn of(&self, unit: &UnitName) -> Vec<TaskId> {
        self.open().keys().filter(|(u, _)| u == unit).map(|(_, task)| *task).collect()
    }

    /// How many of a unit there are.
    pub fn count(&self, unit: &UnitName) -> usize {
        self.open().keys().filter(|(u, _)| u == unit).count()
    }

    /// Closes all.
    pub fn clear(&self) {
        self.open().clear();
    }

    /// Hands a copy to a task, or none; while `then` makes its stores of that, no copy of them can be opened.
    pub(super) fn take(
        &self,
        unit: &UnitName,
        task: TaskId,
        then: impl FnOnce(Option<TaskStores>) -> StoreResult<TaskStores>,
    ) -> StoreResult<TaskStores> {
        let mut copies = self.open();
        let copy = copies.remove(&(unit.clone(), task));
        then(copy)
    }
}
