//! The process's state: one directory with its lock and format version, one database, one writer.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ids::{Partition, StoreName, TaskId, UnitName};
use crate::time::{Clock, SystemClock, WallTime};

use super::cache::CacheBudget;
use super::copies::Copies;
use super::disk::Disk;
use super::global::{GlobalStore, Globals};
use super::lock::try_lock;
use super::small::SmallTable;
use super::table::{MemoryTable, Table};
use super::views::StoreViews;
use super::writer::Writer;
use super::{EngineKind, StoreResult, StoreSpec, TaskStores, failed, locked};

/// The version of the directory's layout, in its file `format`.
const FORMAT: u32 = 1;
/// How long a compacted changelog keeps tombstones where its settings say nothing.
const DELETE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How the process keeps state.
#[derive(Clone, Debug)]
pub struct StateConfig {
    /// Where; `None` keeps everything in memory (driver, simulator). A directory belongs to one process: members on one machine
    /// take one each, as `<state-dir>/<name of the process's first slot>`, so that a slot finds its data again.
    pub dir: Option<PathBuf>,
    /// Bytes for block and object caches, all stores together.
    pub cache: usize,
    /// Whether batches are applied inline instead of on the writer thread (driver, simulator).
    pub inline: bool,
}

/// Opens stores for tasks; shared by all stream threads of the process.
#[derive(Clone)]
pub struct StateManager {
    inner: Arc<Inner>,
}

struct Inner {
    config: StateConfig,
    disk: Option<Disk>,
    writer: Writer,
    budget: Arc<CacheBudget>,
    views: StoreViews,
    copies: Copies,
    /// Where there is no directory: what a disk would keep when a task closes.
    kept: Mutex<HashMap<(UnitName, StoreName, Partition), Arc<MemoryTable>>>,
    _lock: Option<File>,
}

impl StateManager {
    /// Deletes a state directory that no process has; one that is not there is no error.
    ///
    /// # Errors
    /// `STATE_DIR_LOCKED` where a process has it; `STORE_FAILED` where it can't be deleted.
    pub fn remove(dir: &Path) -> StoreResult<()> {
        if !dir.exists() {
            return Ok(());
        }
        let _lock = try_lock(&dir.join("lock"))?.ok_or_else(|| locked(dir))?;
        std::fs::remove_dir_all(dir).map_err(|e| failed(format!("deleting {}", dir.display())).because(e))
    }

    /// Opens or creates the state directory.
    ///
    /// # Errors
    /// `STATE_DIR_LOCKED` where another process has it; `STORE_FAILED` where it can't be used or was written by a newer version.
    pub fn open(config: StateConfig) -> StoreResult<Self> {
        let (mut lock, mut disk) = (None, None);
        if let Some(dir) = &config.dir {
            lock = Some(try_lock(&dir.join("lock"))?.ok_or_else(|| locked(dir))?);
            check_format(dir)?;
            disk = Some(Disk::open(&dir.join("db"), config.cache / 2)?);
        }
        let writer = if config.inline { Writer::inline(disk.clone()) } else { Writer::thread(disk.clone())? };
        let budget = CacheBudget::new(config.cache / 2);
        Ok(Self {
            inner: Arc::new(Inner {
                config,
                disk,
                writer,
                budget,
                views: StoreViews::default(),
                copies: Copies::default(),
                kept: Mutex::default(),
                _lock: lock,
            }),
        })
    }

    /// The stores of one task: the copy that is kept here, else standing where the disk has them.
    ///
    /// # Errors
    /// `STORE_FAILED` where a store can't be opened.
    pub fn task_stores(&self, unit: &UnitName, task: TaskId, specs: &[StoreSpec]) -> StoreResult<TaskStores> {
        self.inner.copies.take(unit, task, |copy| {
            let stores = copy.map_or_else(|| self.open_stores(unit, task, specs), Ok)?;
            let listed = self.inner.views.list(unit, task.partition, &stores.tables());
            Ok(stores.listed(listed))
        })
    }

    /// The stores of a task as a copy; `None` while a task of this process has one of them.
    ///
    /// # Errors
    /// `STORE_FAILED` where a store can't be opened.
    pub fn open_copy(&self, unit: &UnitName, task: TaskId, specs: &[StoreSpec]) -> StoreResult<Option<TaskStores>> {
        let in_use = specs.iter().any(|s| self.inner.views.of(unit, &s.name).iter().any(|v| v.partition == task.partition));
        if in_use { Ok(None) } else { self.open_stores(unit, task, specs).map(Some) }
    }

    /// The copies of stores that other processes write.
    pub fn copies(&self) -> &Copies {
        &self.inner.copies
    }

    /// Local data that can't be caught up from its changelog is dropped here: data without a position, and data older than the
    /// changelog keeps tombstones.
    fn open_stores(&self, unit: &UnitName, task: TaskId, specs: &[StoreSpec]) -> StoreResult<TaskStores> {
        let writer = &self.inner.writer;
        writer.flush()?;
        let now = SystemClock.now().wall;
        let mut tables = Vec::with_capacity(specs.len());
        for spec in specs {
            let table = self.table(unit, spec, task.partition)?;
            if spec.changelog.is_some() && is_useless(spec, &table, now)? {
                tracing::info!(store = %spec.name, partition = %task.partition, "local data dropped; it is restored from the changelog's start");
                writer.wipe(table.clone())?;
            }
            tables.push((spec.clone(), table));
        }
        TaskStores::over(task.partition, tables, writer.clone(), &self.inner.budget)
    }

    /// The stores that are open here, for queries.
    pub fn views(&self) -> &StoreViews {
        &self.inner.views
    }

    /// A store that holds a whole topic of this many partitions, open for `globals` to read. Local data that can't be caught up
    /// from the topic is dropped, as for tasks.
    ///
    /// # Errors
    /// `STORE_FAILED` where it can't be opened.
    pub fn global_store(&self, spec: &StoreSpec, partitions: u32, globals: &Globals) -> StoreResult<GlobalStore> {
        let (unit, now) = (UnitName::new("globals"), SystemClock.now().wall);
        let tables: Vec<Table> =
            (0..partitions.max(1)).map(|p| self.table(&unit, spec, Partition(p as i32))).collect::<StoreResult<_>>()?;
        let useless = tables.iter().map(|t| is_useless(spec, t, now)).collect::<StoreResult<Vec<_>>>()?;
        globals.open(&spec.name, tables[0].clone());
        let store = GlobalStore::new(tables, self.inner.writer.clone());
        if useless.contains(&true) {
            tracing::info!(store = %spec.name, "local data dropped; it is read from the topic's start");
            store.wipe()?;
        }
        Ok(store)
    }

    /// The directory, where there is one.
    pub fn dir(&self) -> Option<&Path> {
        self.inner.config.dir.as_deref()
    }

    /// Applies what is queued and brings it to the disk; nothing can be written after. The directory is free for another process
    /// when the last clone and all stores are dropped.
    ///
    /// # Errors
    /// `STORE_FAILED` where a batch could not be written, now or before.
    pub fn close(&self) -> StoreResult<()> {
        self.inner.writer.close()
    }

    fn table(&self, unit: &UnitName, spec: &StoreSpec, partition: Partition) -> StoreResult<Table> {
        match (spec.engine, &self.inner.disk, &self.inner.config.dir) {
            (EngineKind::Memory, ..) => Ok(Table::Memory(Arc::default())),
            (EngineKind::Disk, Some(disk), _) => Ok(Table::Disk(disk.table(unit, &spec.name, partition)?)),
            (EngineKind::Small, _, Some(dir)) => {
                let dir = dir.join("small").join(unit.as_str());
                std::fs::create_dir_all(&dir).map_err(|e| failed(format!("creating {}", dir.display())).because(e))?;
                Ok(Table::Small(Arc::new(SmallTable::open(dir.join(format!("{}-{partition}.log", spec.name)))?)))
            }
            _ => {
                let mut kept = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Table::Memory(kept.entry((unit.clone(), spec.name.clone(), partition)).or_default().clone()))
            }
        }
    }
}

/// Whether local data of a changelogged store must go. Without a position nobody knows which tombstones it has missed; beyond the
/// changelog's `delete.retention.ms` the tombstones themselves may be gone.
fn is_useless(spec: &StoreSpec, table: &Table, now: WallTime) -> StoreResult<bool> {
    let Some(mark) = table.position()? else { return Ok(!table.is_empty()?) };
    let set = spec.changelog.as_ref().and_then(|c| c.config.get("delete.retention.ms")?.parse().ok());
    let retention = set.map_or(DELETE_RETENTION, Duration::from_millis);
    Ok(table.outlives_process() && now.since(WallTime(mark.seen)) > retention)
}

fn check_format(dir: &Path) -> StoreResult<()> {
    let path = dir.join("format");
    let refused = |why: String| {
        failed(format!("opening the state directory {}", dir.display()))
            .because(why)
            .next("run the version that wrote it, or point the state directory elsewhere: it is restored from the changelogs")
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse::<u32>() {
            Ok(FORMAT) => Ok(()),
            Ok(n) => Err(refused(format!("its format is {n}, this version knows {FORMAT}"))),
            Err(_) => Err(refused("its format file is not a number".into())),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::write(&path, format!("{FORMAT}\n")).map_err(|e| failed(format!("writing {}", path.display())).because(e))
        }
        Err(e) => Err(failed(format!("reading {}", path.display())).because(e)),
    }
}
