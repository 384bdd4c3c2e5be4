//! Which stores are open in this process, for queries: committed entries only, also while they are being restored.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::ids::{Partition, StoreName, UnitName};
use crate::offset::NextOffset;

use super::overlay::Bounds;
use super::table::Table;
use super::{Scan, StoreResult, Stored};

type Key = (UnitName, StoreName, Partition);

/// A table with the mark of the task that shows it: within a process a partition's next task may begin before its last one ends.
struct Shown {
    table: Table,
    by: Arc<()>,
}

/// The stores that are open here; each task adds its own while it has them.
#[derive(Clone, Default)]
pub struct StoreViews(Arc<RwLock<BTreeMap<Key, Shown>>>);

impl StoreViews {
    /// The partitions of a store that are here.
    pub fn of(&self, unit: &UnitName, store: &StoreName) -> Vec<StoreView> {
        let open = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let here = open.iter().filter(|((u, s, _), _)| u == unit && s == store);
        here.map(|((_, _, p), shown)| StoreView { partition: *p, table: shown.table.clone() }).collect()
    }

    /// Adds stores until the answer is dropped.
    pub(super) fn list(&self, unit: &UnitName, partition: Partition, tables: &[(StoreName, Table)]) -> Listed {
        let mut open = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<Key> = tables.iter().map(|(name, _)| (unit.clone(), name.clone(), partition)).collect();
        let by = Arc::new(());
        open.extend(keys.iter().cloned().zip(tables.iter().map(|(_, t)| Shown { table: t.clone(), by: by.clone() })));
        Listed { views: self.clone(), keys, by }
    }
}

/// Takes its stores from the list when dropped.
pub(super) struct Listed {
    views: StoreViews,
    keys: Vec<Key>,
    by: Arc<()>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut open = self.views.0.write().unwrap_or_else(PoisonError::into_inner);
        for key in &self.keys {
            if open.get(key).is_some_and(|shown| Arc::ptr_eq(&shown.by, &self.by)) {
                open.remove(key);
            }
        }
    }
}

/// One partition of a store, read-only.
pub struct StoreView {
    /// Which.
    pub partition: Partition,
    table: Table,
}

impl StoreView {
    /// The committed value under a key's bytes.
    ///
    /// # Errors
    /// `STORE_FAILED` where it can't be read.
    pub fn get(&self, key: &[u8]) -> StoreResult<Option<Stored>> {
        self.table.get(key)
    }
    /// Committed entries with `from <= key < to`, in byte order.
    pub fn range(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> Scan {
        self.table.entries(&Bounds::new(from, to))
    }
    /// Committed entries whose key begins with `prefix`, in byte order.
    pub fn prefix(&self, prefix: &[u8]) -> Scan {
        self.table.entries(&Bounds::prefix(prefix))
    }
    /// Up to where in its changelog these entries are; none before the first commit.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn position(&self) -> StoreResult<Option<NextOffset>> {
        Ok(self.table.position()?.map(|m| m.position))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ids::TaskId;
    use crate::state::{EngineKind, StateConfig, StateManager, StoreId, StoreSpec};

    /// If this broke, a query would show what is taken back later, or go on showing a store that another process has now.
    #[test]
    fn only_committed_entries_are_shown_and_only_while_the_task_has_them() {
        let state = StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true }).unwrap();
        let (unit, name) = (UnitName::new("app"), StoreName::new("counts"));
        let spec = StoreSpec { name: name.clone(), engine: EngineKind::Disk, cached: false, changelog: None };
        let task = TaskId { subtopology: 0, partition: Partition(3) };
        let mut stores = state.task_stores(&unit, task, &[spec]).unwrap();
        let seen = || {
            let views = state.views().of(&unit, &name);
            views.iter().map(|v| (v.partition, v.get(b"k").unwrap().map(|s| s.value))).collect::<Vec<_>>()
        };
        let put = |stores: &mut crate::state::TaskStores, v: &'static str| {
            stores.put(StoreId(0), "k".into(), Some(Stored::bytes(v))).unwrap();
        };
        put(&mut stores, "open");
        assert_eq!(seen(), [(Partition(3), None)]);
        stores.aborted();
        put(&mut stores, "committed");
        stores.committed(&|_| None).unwrap();
        put(&mut stores, "open again");
        assert_eq!(seen(), [(Partition(3), Some("committed".into()))]);
        drop(stores);
        assert_eq!(seen(), []);
    }
}
