//! The stores of one task, as the task and the runtime see them.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ids::{Partition, Tp};
use crate::offset::NextOffset;
use crate::record::InRecord;

use super::{Change, Scan, StoreId, StoreResult, StoreSpec, Stored};

/// All stores of one task: open overlay over committed overlays over cache over engine.
pub struct TaskStores {
    partition: Partition,
    specs: Vec<StoreSpec>,
    open: Vec<BTreeMap<Bytes, Option<Stored>>>,
    base: Vec<BTreeMap<Bytes, Stored>>,
    positions: Vec<Option<NextOffset>>,
}

impl TaskStores {
    /// Stores that live in memory only, for tests and stateless tasks.
    pub fn in_memory(partition: Partition, specs: Vec<StoreSpec>) -> Self {
        let n = specs.len();
        Self { partition, specs, open: vec![BTreeMap::new(); n], base: vec![BTreeMap::new(); n], positions: vec![None; n] }
    }

    // ---- what a task does, through `TxCx` ----

    /// The newest value, uncommitted ones included.
    pub fn get(&mut self, store: StoreId, key: &[u8]) -> StoreResult<Option<Stored>> {
        Ok(match self.open[store.0].get(key) {
            Some(newest) => newest.clone(),
            None => self.base[store.0].get(key).cloned(),
        })
    }

    /// Writes into the overlay; answers the changelog record to emit, where the store has a changelog.
    pub fn put(&mut self, store: StoreId, key: Bytes, value: Option<Stored>) -> StoreResult<Option<Change>> {
        let change = self.specs[store.0].changelog.as_ref().map(|c| Change {
            tp: Tp { topic: c.topic.clone(), partition: self.partition },
            key: key.clone(),
            value: value.clone(),
        });
        self.open[store.0].insert(key, value);
        Ok(change)
    }

    /// Entries whose key begins with `prefix`, in key order.
    pub fn prefix(&mut self, store: StoreId, prefix: &[u8]) -> StoreResult<Scan> {
        let prefix = prefix.to_vec();
        let all = self.range(store, Some(&prefix.clone()), None)?;
        Ok(Box::new(all.take_while(move |e| e.as_ref().map_or(true, |(k, _)| k.starts_with(&prefix)))))
    }

    /// Entries with `from <= key < to`, in key order.
    pub fn range(&mut self, store: StoreId, from: Option<&[u8]>, to: Option<&[u8]>) -> StoreResult<Scan> {
        let mut merged = self.base[store.0].clone();
        for (k, v) in &self.open[store.0] {
            match v {
                Some(v) => merged.insert(k.clone(), v.clone()),
                None => merged.remove(k),
            };
        }
        let (from, to) = (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec));
        let inside = move |k: &[u8]| from.as_deref().is_none_or(|f| k >= f) && to.as_deref().is_none_or(|t| k < t);
        Ok(Box::new(merged.into_iter().filter(move |(k, _)| inside(k)).map(Ok)))
    }

    // ---- what the runtime does ----

    /// Changelog partitions with the position that the local data stands at; `None` = nothing local.
    pub fn changelogs(&self) -> Vec<(Tp, Option<NextOffset>)> {
        let of = |(i, s): (usize, &StoreSpec)| {
            s.changelog.as_ref().map(|c| (Tp { topic: c.topic.clone(), partition: self.partition }, self.positions[i]))
        };
        self.specs.iter().enumerate().filter_map(of).collect()
    }

    /// Applies changelog records in order (absolute values), then stands at `position`.
    pub fn restore(&mut self, changelog: &Tp, records: Vec<InRecord>, position: NextOffset) -> StoreResult<()> {
        let Some(i) = self.index_of(changelog) else { return Ok(()) };
        for r in records {
            let Some(key) = r.key else { continue };
            match r.value {
                Some(value) => {
                    self.base[i].insert(key, Stored { value, timestamp: r.timestamp, headers: r.headers });
                }
                None => {
                    self.base[i].remove(&key);
                }
            }
        }
        self.positions[i] = Some(position);
        Ok(())
    }

    /// Drops local data of this changelog's store, to be restored from its start.
    pub fn wipe(&mut self, changelog: &Tp) -> StoreResult<()> {
        if let Some(i) = self.index_of(changelog) {
            self.base[i].clear();
            self.open[i].clear();
            self.positions[i] = None;
        }
        Ok(())
    }

    /// Whether a commit may go on now, or the writer is still busy with the two before.
    pub fn ready_to_commit(&self) -> bool {
        true
    }

    /// Bytes in the open overlay.
    pub fn open_bytes(&self) -> usize {
        self.open.iter().flatten().map(|(k, v)| k.len() + v.as_ref().map_or(0, |v| v.value.len()) + 64).sum()
    }

    /// The transaction is committed: seals the overlay and hands it to the writer with the acknowledged positions.
    pub fn committed(&mut self, written: &dyn Fn(&Tp) -> Option<NextOffset>) -> StoreResult<()> {
        for i in 0..self.specs.len() {
            for (k, v) in std::mem::take(&mut self.open[i]) {
                match v {
                    Some(v) => self.base[i].insert(k, v),
                    None => self.base[i].remove(&k),
                };
            }
            if let Some(c) = &self.specs[i].changelog {
                let tp = Tp { topic: c.topic.clone(), partition: self.partition };
                self.positions[i] = written(&tp).or(self.positions[i]);
            }
        }
        Ok(())
    }

    /// The transaction was taken back: drops the open overlay and its cache entries, nothing else.
    pub fn aborted(&mut self) {
        self.open.iter_mut().for_each(BTreeMap::clear);
    }

    /// Waits until the writer has applied everything handed over; before the partition goes.
    pub fn drain(&mut self) -> StoreResult<()> {
        Ok(())
    }

    fn index_of(&self, changelog: &Tp) -> Option<usize> {
        self.specs.iter().position(|s| s.changelog.as_ref().is_some_and(|c| c.topic == changelog.topic))
    }
}
