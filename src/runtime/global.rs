//! Reads whole topics into stores of the process: to their end before any task runs, and on from there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::{Partition, TopicName, Tp};
use crate::kafka::{Class, Cluster, Isolation, KafkaFault, Reader};
use crate::offset::NextOffset;
use crate::record::InRecord;
use crate::state::{GlobalStore, Globals, StateManager};
use crate::task::GlobalPlan;

use super::error_of;

/// Records of one slice, and how long one poll waits where something is known to be there.
const SLICE: usize = 2_000;
const WAIT: Duration = Duration::from_millis(20);
/// How long the thread waits for news, which bounds how long it takes to stop.
const IDLE: Duration = Duration::from_millis(200);

/// The one writer of a process's whole-topic stores.
pub struct GlobalReader {
    tables: Vec<(GlobalPlan, GlobalStore)>,
    reader: Box<dyn Reader>,
    /// Where each partition ended when this was opened.
    targets: Vec<(Tp, NextOffset)>,
    at: BTreeMap<Tp, NextOffset>,
}

impl GlobalReader {
    /// Opens the stores for `globals` and finds out what is missing; `None` where there are none.
    ///
    /// # Errors
    /// What the cluster or the disk says.
    pub fn open<C: Cluster>(cluster: &C, plans: &[GlobalPlan], globals: &Globals, state: &StateManager) -> Result<Option<Self>> {
        if plans.is_empty() {
            return Ok(None);
        }
        let mut reader = cluster.reader(Isolation::Committed).map_err(error_of)?;
        let (mut tables, mut targets, mut at) = (Vec::new(), Vec::new(), BTreeMap::<Tp, NextOffset>::new());
        for plan in plans {
            let store = state.global_store(&plan.spec, plan.partitions, globals)?;
            let mut starts = Vec::new();
            for p in 0..plan.partitions {
                let tp = Tp::new(plan.topic.clone(), p as i32);
                let (earliest, end) = reader.ends(&tp, Isolation::Committed).map_err(error_of)?;
                starts.push((store.position(tp.partition)?, earliest, end));
                targets.push((tp, end));
            }
            let fits = starts.iter().all(|(local, earliest, end)| local.is_none_or(|at| *earliest <= at && at <= *end));
            if !fits {
                tracing::warn!(store = %plan.spec.name, topic = %plan.topic, "local data does not fit the topic: reading all of it");
                store.wipe()?;
            }
            for (p, (local, earliest, _)) in starts.into_iter().enumerate() {
                let from = local.filter(|_| fits).unwrap_or(earliest);
                let start = at.entry(Tp::new(plan.topic.clone(), p as i32)).or_insert(from);
                *start = (*start).min(from);
            }
            tables.push((plan.clone(), store));
        }
        let start: Vec<_> = at.iter().map(|(tp, at)| (tp.clone(), *at)).collect();
        reader.assign(&start).map_err(error_of)?;
        Ok(Some(Self { tables, reader, targets, at }))
    }

    /// Reads until everything that was there when this was opened can be read, or `stop` says so.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn bootstrap(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Acquire) && self.targets.iter().any(|(tp, end)| self.at.get(tp).is_none_or(|at| at < end)) {
            self.step(WAIT)?;
        }
        self.tables.iter().try_for_each(|(_, store)| store.flush())
    }

    /// Takes in what is there, waiting for the first record at most `limit`. Answers how many records it was.
    ///
    /// # Errors
    /// `RESTORE_FAILED` where the topic can't be read, `STORE_FAILED`, and what a record is to blame for where those are not skipped.
    pub fn step(&mut self, limit: Duration) -> Result<usize> {
        let mut records: BTreeMap<TopicName, Vec<InRecord>> = BTreeMap::new();
        let (mut taken, mut wait) = (0, limit);
        while taken < SLICE {
            match self.reader.poll(wait) {
                Ok(Some(record)) => {
                    taken += 1;
                    records.entry(record.tp.topic.clone()).or_default().push(record);
                    wait = Duration::ZERO;
                }
                Ok(None) => break,
                Err(f) if f.class == Class::Retry => break,
                Err(f) => return Err(failed(f)),
            }
        }
        let mut moved: BTreeMap<TopicName, BTreeMap<Partition, NextOffset>> = BTreeMap::new();
        for (tp, at) in &mut self.at {
            let position = self.reader.position(tp).filter(|p| p > at);
            if let Some(position) = position {
                *at = position;
                moved.entry(tp.topic.clone()).or_default().insert(tp.partition, position);
            }
        }
        for (plan, store) in &self.tables {
            let Some(positions) = moved.get(&plan.topic) else { continue };
            let mut fit = Vec::new();
            for r in records.get(&plan.topic).into_iter().flatten() {
                match (plan.check)(r) {
                    Ok(()) => fit.push(r.clone()),
                    Err(e) if plan.skips => skipped(plan, r, &e),
                    Err(e) => return Err(e),
                }
            }
            store.apply(fit, positions)?;
        }
        Ok(taken)
    }
}

/// Each process reads the whole topic, so a dead letter for each would be written by all of them: the log says it instead.
fn skipped(plan: &GlobalPlan, r: &InRecord, e: &Error) {
    tracing::warn!(store = %plan.spec.name, origin = %r.tp, offset = %r.offset, error = %e, "a record that can't be read is left out");
}

fn failed(f: KafkaFault) -> Error {
    Error::new(codes::RESTORE_FAILED, Fault::Unreachable, format!("reading {} into a store", f.to))
        .because(f)
        .next("start again; what was read is kept")
}

/// A [`GlobalReader`] on a thread of its own; stops when dropped.
pub struct GlobalThread {
    stop: Arc<AtomicBool>,
    failed: Arc<Mutex<Option<Error>>>,
    thread: Option<JoinHandle<()>>,
}

impl GlobalThread {
    /// Reads on.
    pub fn start(mut reader: GlobalReader) -> Self {
        let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (told, end) = (stop.clone(), failed.clone());
        let run = move || {
            while !told.load(Ordering::Acquire) {
                if let Err(e) = reader.step(IDLE) {
                    *end.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("globals".into()).spawn(run).ok();
        Self { stop, failed, thread }
    }

    /// Why it can't go on, once.
    pub fn failure(&self) -> Option<Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for GlobalThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kafka::memory::MemoryCluster;
    use crate::record::OutRecord;
    use crate::state::{ChangelogSpec, EngineKind, StateConfig, StoreSpec};
    use crate::time::{ManualClock, MonoTime, Now, WallTime};

    struct Ground {
        cluster: MemoryCluster,
        state: StateManager,
        plan: GlobalPlan,
        globals: Globals,
    }

    impl Ground {
        fn new() -> Self {
            let now = Now { wall: WallTime(1_000), mono: MonoTime(1_000) };
            let cluster = MemoryCluster::new(Arc::new(ManualClock::at(now)));
            let topic = TopicName::new("countries");
            cluster.create(&topic, 2);
            let changelog = Some(ChangelogSpec { topic: topic.clone(), config: Default::default() });
            let spec = StoreSpec { name: "countries".into(), engine: EngineKind::Disk, cached: false, changelog };
            let plan = GlobalPlan { spec, topic, partitions: 2, check: Arc::new(|_| Ok(())), skips: false };
            let state = StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true }).unwrap();
            Self { cluster, state, plan, globals: Globals::default() }
        }
        fn put(&self, partition: i32, key: &str, value: Option<&str>) {
            let record = OutRecord {
                topic: &self.plan.topic,
                partition: Some(Partition(partition)),
                timestamp: None,
                key: Some(key.as_bytes()),
                value: value.map(str::as_bytes),
                headers: None,
            };
            self.cluster.publish(&[record], Duration::from_secs(1)).unwrap();
        }
        fn open(&self) -> GlobalReader {
            let plans = std::slice::from_ref(&self.plan);
            let mut reader = GlobalReader::open(&self.cluster, plans, &self.globals, &self.state).unwrap().unwrap();
            reader.bootstrap(&AtomicBool::new(false)).unwrap();
            reader
        }
        fn get(&self, key: &str) -> Option<String> {
            let found = self.globals.get(&self.plan.spec.name, key.as_bytes()).unwrap();
            found.map(|s| String::from_utf8(s.value.to_vec()).unwrap())
        }
    }

    /// If this broke, tasks would run before the table is there, and join their first records with nothing; or a key that moved to
    /// another partition would keep its old value.
    #[test]
    fn everything_that_was_there_is_there_before_tasks_run() {
        let g = Ground::new();
        for (partition, key, value) in
            [(0, "de", Some("old")), (1, "de", Some("Germany")), (1, "xx", Some("gone")), (1, "xx", None)]
        {
            g.put(partition, key, value);
        }
        let mut reader = g.open();
        assert_eq!(g.get("xx"), None);
        assert!(g.get("de").is_some());
        g.put(0, "fr", Some("France"));
        assert_eq!(reader.step(Duration::ZERO).unwrap(), 1);
        assert_eq!(g.get("fr"), Some("France".into()));
    }

    /// If this broke, each start would read the whole topic again, or miss what came while the process was away.
    #[test]
    fn a_restart_reads_on_from_where_it_stood() {
        let g = Ground::new();
        g.put(0, "de", Some("Germany"));
        drop(g.open());
        g.put(1, "fr", Some("France"));
        let plans = std::slice::from_ref(&g.plan);
        let mut reader = GlobalReader::open(&g.cluster, plans, &g.globals, &g.state).unwrap().unwrap();
        assert_eq!(reader.step(Duration::ZERO).unwrap(), 1, "only what is new");
        assert_eq!((g.get("de"), g.get("fr")), (Some("Germany".into()), Some("France".into())));
    }
}
