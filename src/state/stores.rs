//! The stores of one task, as the task and the runtime see them: open overlay over queued overlays over cache over engine.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;

use crate::ids::{Partition, StoreName, Tp};
use crate::offset::NextOffset;
use crate::record::InRecord;
use crate::time::{Clock, SystemClock};

use super::cache::{CacheBudget, ObjectCache};
use super::changes::Changes;
use super::merge::{Direction, Layer, Merge};
use super::overlay::{Bounds, Overlay, Walk};
use super::table::{Mark, Table};
use super::views::Listed;
use super::writer::{Part, Sealed, Writer};
use super::{Change, Scan, StoreId, StoreResult, StoreSpec, Stored};

/// Commits of one task that may wait for the writer.
const QUEUED: usize = 2;

/// All stores of one task. Reads see the task's own uncommitted writes; an abort takes those back and nothing else.
pub struct TaskStores {
    partition: Partition,
    stores: Vec<Store>,
    /// Sealed overlays that the writer may not have applied yet, oldest first.
    queue: VecDeque<Arc<Sealed>>,
    pub(super) writer: Writer,
    /// Whether this task has committed: it is the changelog's only writer, so local data is current as of now.
    live: bool,
    /// Shows them to queries for as long as this task has them.
    _listed: Option<Listed>,
}

struct Store {
    spec: StoreSpec,
    table: Table,
    open: Overlay,
    /// Keys that were written and not logged yet, where the store is cached. By hash: most writes find their key there already.
    unlogged: HashSet<Bytes, RandomState>,
    cache: Option<ObjectCache>,
    mark: Option<Mark>,
}

impl TaskStores {
    /// Stores that live in memory only, for tests and stateless tasks.
    pub fn in_memory(partition: Partition, specs: Vec<StoreSpec>) -> Self {
        let fresh = |spec| Store::new(spec, Table::Memory(Arc::default()), None, None);
        let stores = specs.into_iter().map(fresh).collect();
        Self { partition, stores, queue: VecDeque::new(), writer: Writer::inline(None), live: false, _listed: None }
    }

    /// Stores over opened tables.
    pub(super) fn over(
        partition: Partition,
        tables: Vec<(StoreSpec, Table)>,
        writer: Writer,
        budget: &Arc<CacheBudget>,
    ) -> StoreResult<Self> {
        let open = |(spec, table): (StoreSpec, Table)| {
            let mark = table.position()?;
            let cache = table.is_on_disk().then(|| ObjectCache::new(budget.share()));
            Ok(Store::new(spec, table, cache, mark))
        };
        let stores = tables.into_iter().map(open).collect::<StoreResult<_>>()?;
        Ok(Self { partition, stores, queue: VecDeque::new(), writer, live: false, _listed: None })
    }

    /// Its stores by name, for queries.
    pub(super) fn tables(&self) -> Vec<(StoreName, Table)> {
        self.stores.iter().map(|s| (s.spec.name.clone(), s.table.clone())).collect()
    }

    pub(super) fn listed(self, listed: Listed) -> Self {
        Self { _listed: Some(listed), ..self }
    }

    // ---- what a task does, through `TxCx` ----

    /// The newest value, uncommitted ones included.
    ///
    /// # Errors
    /// `STORE_FAILED` where the engine can't be read.
    pub fn get(&mut self, store: StoreId, key: &[u8]) -> StoreResult<Option<Stored>> {
        self.forget_applied();
        if let Some(newest) = self.stores[store.0].open.get(key) {
            return Ok(newest.clone());
        }
        self.committed_value(store, key)
    }

    /// The newest value as of the last commit.
    fn committed_value(&mut self, store: StoreId, key: &[u8]) -> StoreResult<Option<Stored>> {
        let s = &mut self.stores[store.0];
        // It has what waits for the writer, too, as long as there is room.
        if let Some(known) = s.cache.as_mut().and_then(|c| c.get(key)) {
            return Ok(known);
        }
        if let Some(queued) = self.queue.iter().rev().find_map(|q| q.parts[store.0].changes.get(key)) {
            return Ok(queued.clone());
        }
        let found = s.table.get(key)?;
        if let Some(cache) = &mut s.cache {
            cache.insert(Bytes::copy_from_slice(key), found.clone());
        }
        Ok(found)
    }

    /// Writes into the overlay; answers the changelog record to emit at once, where the store has a changelog and is not cached.
    ///
    /// # Errors
    /// None today; the signature leaves room for engines that must read first.
    pub fn put(&mut self, store: StoreId, key: Bytes, value: Option<Stored>) -> StoreResult<Option<Change>> {
        let s = &mut self.stores[store.0];
        let change = match s.changelog(self.partition) {
            Some(_) if s.spec.cached => {
                s.unlogged.insert(key.clone());
                None
            }
            log => log.map(|tp| Change { tp, key: key.clone(), value: value.clone() }),
        };
        s.open.put(key, value);
        Ok(change)
    }

    /// Writes into the overlay only: what the store is restored from has it already.
    pub fn keep(&mut self, store: StoreId, key: Bytes, value: Option<Stored>) {
        self.stores[store.0].open.put(key, value);
    }

    /// The changelog records of cached stores before the commit: one for each key, in key order. What came and went within the
    /// transaction is none.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn unlogged(&mut self) -> StoreResult<Vec<Change>> {
        let mut changes = Vec::new();
        for i in 0..self.stores.len() {
            let s = &mut self.stores[i];
            let Some(tp) = s.changelog(self.partition) else { continue };
            let mut keys: Vec<Bytes> = s.unlogged.drain().collect();
            keys.sort_unstable();
            for key in keys {
                let value = self.stores[i].open.get(&key).cloned().flatten();
                if value.is_some() || self.committed_value(StoreId(i), &key)?.is_some() {
                    changes.push(Change { tp: tp.clone(), key, value });
                }
            }
        }
        Ok(changes)
    }

    /// Entries whose key begins with `prefix`, in key order.
    ///
    /// # Errors
    /// As the entries of the scan: `STORE_FAILED`.
    pub fn prefix(&mut self, store: StoreId, prefix: &[u8]) -> StoreResult<Scan> {
        self.scan(store, &Bounds::prefix(prefix), Direction::Up)
    }

    /// Entries with `from <= key < to`, in key order.
    ///
    /// # Errors
    /// As the entries of the scan: `STORE_FAILED`.
    pub fn range(&mut self, store: StoreId, from: Option<&[u8]>, to: Option<&[u8]>) -> StoreResult<Scan> {
        self.scan(store, &Bounds::new(from, to), Direction::Up)
    }

    /// Entries with `from <= key < to`, the greatest key first.
    ///
    /// # Errors
    /// As the entries of the scan: `STORE_FAILED`.
    pub fn range_back(&mut self, store: StoreId, from: Option<&[u8]>, to: Option<&[u8]>) -> StoreResult<Scan> {
        self.scan(store, &Bounds::new(from, to), Direction::Down)
    }

    /// Removes an entry here and not in the changelog, whose own retention ends it: for entries past a store's retention.
    pub fn forget(&mut self, store: StoreId, key: Bytes) {
        let s = &mut self.stores[store.0];
        s.unlogged.remove(&key);
        s.open.put(key, None);
    }

    /// Overlays first, then the engine's snapshot: what the writer applies between the two is in both, not in none.
    fn scan(&mut self, store: StoreId, bounds: &Bounds, direction: Direction) -> StoreResult<Scan> {
        self.forget_applied();
        let s = &mut self.stores[store.0];
        let mut layers: Vec<Layer> = vec![direction.turn(s.open.slice(bounds).into_iter().map(Ok))];
        for queued in self.queue.iter().rev() {
            layers.push(direction.turn(Walk::new(queued.parts[store.0].changes.as_sorted(), bounds).map(Ok)));
        }
        layers.push(s.table.scan(bounds, direction));
        Ok(Box::new(Merge::new(layers, direction)))
    }

    // ---- what the runtime does ----

    /// Changelog partitions with the position that the local data stands at; `None` = nothing local.
    pub fn changelogs(&self) -> Vec<(Tp, Option<NextOffset>)> {
        self.stores.iter().filter_map(|s| Some((s.changelog(self.partition)?, s.mark.map(|m| m.position)))).collect()
    }

    /// Applies changelog records in order (absolute values), then stands at `position`. Waits while the writer is two batches
    /// behind, so a batch bounds the memory that restoring takes.
    ///
    /// # Errors
    /// `STORE_FAILED` where an earlier batch could not be written.
    pub fn restore(&mut self, changelog: &Tp, records: Vec<InRecord>, position: NextOffset) -> StoreResult<()> {
        let Some(i) = self.index_of(changelog) else { return Ok(()) };
        self.forget_applied();
        if self.queue.len() >= QUEUED {
            self.writer.flush()?;
        }
        // Tombstones after this point stay in the log for their retention from its records' time, not from now.
        let seen = records.iter().filter_map(|r| r.timestamp).next_back();
        let seen = seen.map_or_else(|| self.stores[i].mark.map_or_else(now, |m| m.seen), |t| t.0.min(now()));
        let mut changes = Changes::default();
        for r in records {
            let Some(key) = r.key else { continue };
            changes.insert(key, r.value.map(|value| Stored { value, timestamp: r.timestamp, headers: r.headers }));
        }
        let mark = Mark { position, seen };
        let mut restored = Some((changes, mark));
        let parts = self.stores.iter_mut().enumerate().map(|(n, s)| match restored.take_if(|_| n == i) {
            Some((changes, mark)) => s.seal(changes, Some(mark)),
            None => s.seal(Changes::default(), None),
        });
        let sealed = Sealed::new(parts.collect());
        self.hand_over(sealed)
    }

    /// Drops local data of this changelog's store, to be restored from its start.
    ///
    /// # Errors
    /// `STORE_FAILED` where it can't be removed.
    pub fn wipe(&mut self, changelog: &Tp) -> StoreResult<()> {
        let Some(i) = self.index_of(changelog) else { return Ok(()) };
        self.writer.wipe(self.stores[i].table.clone())?;
        self.forget_applied();
        let s = &mut self.stores[i];
        s.drop_open();
        s.mark = None;
        if let Some(cache) = &mut s.cache {
            cache.clear();
        }
        Ok(())
    }

    /// Whether a commit may go on now, or the writer is still busy with the two before. Says yes where the writer has failed:
    /// the commit then meets the error.
    pub fn ready_to_commit(&self) -> bool {
        self.queue.iter().filter(|q| !q.is_applied()).count() < QUEUED || self.writer.check().is_err()
    }

    /// Bytes in the open overlay.
    pub fn open_bytes(&self) -> usize {
        self.stores.iter().map(|s| s.open.bytes()).sum()
    }

    /// The transaction is committed: seals the overlay and hands it to the writer with the acknowledged positions.
    ///
    /// # Errors
    /// `STORE_FAILED` where the writer has failed, now or before: this task must stop. The store then stands at a lower position
    /// than the changelog and is caught up when opened anew.
    pub fn committed(&mut self, written: &dyn Fn(&Tp) -> Option<NextOffset>) -> StoreResult<()> {
        self.live = true;
        let (partition, seen) = (self.partition, now());
        let parts = self.stores.iter_mut().map(|s| {
            let acknowledged =
                s.changelog(partition).and_then(|tp| written(&tp)).filter(|p| s.mark.is_none_or(|m| m.position != *p));
            let changes = s.open.seal();
            let moved = acknowledged.or(s.mark.map(|m| m.position).filter(|_| !changes.is_empty()));
            s.seal(changes, moved.map(|position| Mark { position, seen }))
        });
        let sealed = Sealed::new(parts.collect());
        self.hand_over(sealed)
    }

    /// The transaction was taken back: drops the open overlay, nothing else. (The cache holds committed values only.)
    pub fn aborted(&mut self) {
        self.stores.iter_mut().for_each(Store::drop_open);
    }

    /// Waits until the writer has applied everything handed over; before the partition goes. Marks local data as current.
    ///
    /// # Errors
    /// `STORE_FAILED` where the writer has failed.
    pub fn drain(&mut self) -> StoreResult<()> {
        if self.live {
            let seen = now();
            let parts = self.stores.iter_mut().map(|s| s.seal(Changes::default(), s.mark.map(|m| Mark { seen, ..m })));
            let sealed = Sealed::new(parts.collect());
            self.hand_over(sealed)?;
        }
        self.writer.flush()?;
        self.forget_applied();
        Ok(())
    }

    fn hand_over(&mut self, sealed: Arc<Sealed>) -> StoreResult<()> {
        if sealed.is_nothing() {
            return self.writer.check();
        }
        self.queue.push_back(sealed.clone());
        self.writer.apply(sealed)
    }

    fn forget_applied(&mut self) {
        while self.queue.front().is_some_and(|q| q.is_applied()) {
            self.queue.pop_front();
        }
    }

    fn index_of(&self, changelog: &Tp) -> Option<usize> {
        self.stores.iter().position(|s| s.spec.changelog.as_ref().is_some_and(|c| c.topic == changelog.topic))
    }
}

impl Store {
    fn new(spec: StoreSpec, table: Table, cache: Option<ObjectCache>, mark: Option<Mark>) -> Self {
        Self { spec, table, open: Overlay::default(), unlogged: HashSet::default(), cache, mark }
    }
    fn drop_open(&mut self) {
        self.open.clear();
        self.unlogged.clear();
    }
    fn changelog(&self, partition: Partition) -> Option<Tp> {
        self.spec.changelog.as_ref().map(|c| Tp { topic: c.topic.clone(), partition })
    }
    /// Makes writes committed ones: into the cache, and into the part for the writer.
    fn seal(&mut self, changes: Changes, mark: Option<Mark>) -> Part {
        self.mark = mark.or(self.mark);
        if let Some(cache) = &mut self.cache {
            changes.iter().for_each(|(key, value)| cache.insert(key.clone(), value.clone()));
        }
        Part { table: self.table.clone(), changes: Arc::new(changes), mark }
    }
}

fn now() -> i64 {
    SystemClock.now().wall.0
}
