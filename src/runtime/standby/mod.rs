//! Standby replicas: copies of stores that other processes write, kept warm from their changelogs, so that whoever is given a
//! partition after a death has to read its tail only.

mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::ids::{Partition, TaskId, Tp};
use crate::kafka::{Class, Cluster, Isolation, Reader};
use crate::offset::NextOffset;
use crate::record::InRecord;
use crate::state::{StateManager, StoreSpec};
use crate::task::{SubtopologyPlan, UnitPlan};

use super::error_of;
use super::metrics::Metrics;
use places::Slots;

/// Records of one slice.
const SLICE: usize = 2_000;
/// How long the thread waits for news, which bounds how long it takes to stop.
const IDLE: Duration = Duration::from_millis(200);
/// Between two looks at who lives.
const REVIEW: Duration = Duration::from_secs(3);

/// What a process runs of a unit.
#[derive(Clone)]
pub(super) struct Served {
    pub plan: Arc<UnitPlan>,
    /// The numbers of this process's slots.
    pub slots: BTreeSet<u32>,
}

/// Keeps the copies of a process on a thread of its own; stops when dropped.
pub(super) struct StandbyThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StandbyThread {
    /// Starts it. A copy that can't be kept costs nothing but its warmth, so nothing here ends the process.
    pub(super) fn start<C: Cluster>(cluster: C, state: StateManager, served: Vec<Served>, metrics: Metrics) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let run = move || {
            let mut keeper = Keeper::new(cluster, state, served, metrics);
            while !told.load(Ordering::Acquire) {
                if let Err(error) = keeper.turn(IDLE) {
                    tracing::warn!(%error, "standby replicas fall behind; they are tried again");
                    keeper.reader = None;
                    std::thread::park_timeout(IDLE);
                }
            }
            keeper.state.copies().clear();
        };
        let thread = std::thread::Builder::new().name("standby".into()).spawn(run).ok();
        Self { stop, thread }
    }
}

impl Drop for StandbyThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A copy's changelog partition: whose it is, and up to where it was applied.
struct Followed {
    unit: usize,
    task: TaskId,
    at: NextOffset,
}

struct Keeper<C> {
    cluster: C,
    state: StateManager,
    served: Vec<Served>,
    metrics: Metrics,
    /// Reads what `followed` says; none where that is not known anew yet.
    reader: Option<Box<dyn Reader>>,
    followed: BTreeMap<Tp, Followed>,
    reviewed: Option<Instant>,
}

impl<C: Cluster> Keeper<C> {
    fn new(cluster: C, state: StateManager, served: Vec<Served>, metrics: Metrics) -> Self {
        Self { cluster, state, served, metrics, reader: None, followed: BTreeMap::new(), reviewed: None }
    }

    /// Looks at who lives now and then; takes in what is there, waiting for the first record at most `limit`.
    fn turn(&mut self, limit: Duration) -> Result<()> {
        if self.reviewed.is_none_or(|at| at.elapsed() >= REVIEW) {
            self.reviewed = Some(Instant::now());
            if self.review()? {
                self.reader = None;
            }
        }
        if self.reader.is_none() {
            self.follow()?;
        }
        self.read(limit)
    }

    /// Opens the copies that are to stand here and closes the others. Answers whether there are other ones now.
    fn review(&mut self) -> Result<bool> {
        let admin = self.cluster.admin().map_err(error_of)?;
        let mut changed = false;
        for served in &self.served {
            let (plan, threads) = (&served.plan, u32::try_from(served.slots.len()).unwrap_or(1));
            let members = admin.members(&plan.group).map_err(error_of)?;
            let live = members.iter().filter_map(|m| Slots::number(&plan.unit, &m.client_id));
            let live = Slots::of(&plan.unit, live.chain(served.slots.iter().copied()));
            let mut wanted = BTreeSet::new();
            for sub in plan.subtopologies.iter().filter(|s| followed_stores(s).next().is_some()) {
                let mut count = 0;
                for source in &sub.sources {
                    let topic = admin.topic(&source.topic).map_err(error_of)?;
                    count = count.max(topic.map_or(0, |t| t.partitions));
                }
                for p in places::copies(&live, &served.slots, threads, count) {
                    let task = TaskId { subtopology: sub.id, partition: Partition(p as i32) };
                    changed |=
                        self.state.copies().keep(&plan.unit, task, || self.state.open_copy(&plan.unit, task, &sub.stores))?;
                    wanted.insert(task);
                }
            }
            changed |= self.state.copies().retain(&plan.unit, &wanted);
            self.metrics.standby(&plan.unit, self.state.copies().count(&plan.unit));
        }
        Ok(changed)
    }

    /// Starts to read all copies' changelogs where the copies stand. One that does not fit its changelog begins anew.
    fn follow(&mut self) -> Result<()> {
        let mut reader = self.cluster.reader(Isolation::Committed).map_err(error_of)?;
        self.followed.clear();
        for (unit, served) in self.served.iter().enumerate() {
            for task in self.state.copies().of(&served.plan.unit) {
                let Some(sub) = served.plan.subtopologies.iter().find(|s| s.id == task.subtopology) else { continue };
                for tp in followed_stores(sub).filter_map(|s| Some(Tp::new(s.changelog.as_ref()?.topic.clone(), task.partition.0)))
                {
                    let (earliest, end) = reader.ends(&tp, Isolation::Uncommitted).map_err(error_of)?;
                    let begin = self.state.copies().with(&served.plan.unit, task, |stores| {
                        let local = stores.changelogs().into_iter().find(|(t, _)| *t == tp).and_then(|(_, at)| at);
                        match local {
                            Some(at) if earliest <= at && at <= end => Ok(at),
                            Some(_) => stores.wipe(&tp).map(|()| earliest),
                            None => Ok(earliest),
                        }
                    });
                    let Some(at) = begin.transpose()? else { continue };
                    self.followed.insert(tp, Followed { unit, task, at });
                }
            }
        }
        let start: Vec<_> = self.followed.iter().map(|(tp, f)| (tp.clone(), f.at)).collect();
        reader.assign(&start).map_err(error_of)?;
        self.reader = Some(reader);
        Ok(())
    }

    /// One slice. A copy that a task has taken meanwhile is passed over.
    fn read(&mut self, limit: Duration) -> Result<()> {
        let Some(reader) = self.reader.as_mut().filter(|_| !self.followed.is_empty()) else {
            std::thread::park_timeout(limit);
            return Ok(());
        };
        let mut batches: BTreeMap<Tp, Vec<InRecord>> = BTreeMap::new();
        let (mut taken, mut wait) = (0, limit);
        while taken < SLICE {
            match reader.poll(wait) {
                Ok(Some(record)) => {
                    taken += 1;
                    batches.entry(record.tp.clone()).or_default().push(record);
                    wait = Duration::ZERO;
                }
                Ok(None) => break,
                Err(f) if f.class == Class::Retry => break,
                Err(f) => return Err(error_of(f)),
            }
        }
        for (tp, followed) in &mut self.followed {
            let Some(at) = reader.position(tp).filter(|at| *at > followed.at) else { continue };
            let batch = batches.remove(tp).unwrap_or_default();
            let unit = &self.served[followed.unit].plan.unit;
            self.metrics.standby_records(unit, batch.len() as u64);
            let applied = self.state.copies().with(unit, followed.task, |stores| stores.restore(tp, batch, at));
            applied.unwrap_or(Ok(()))?;
            followed.at = at;
        }
        Ok(())
    }
}

/// The stores whose changelogs can be followed. One whose changelog is a source of its own task can't: what stands there beyond the
/// group's position is not processed yet.
fn followed_stores(sub: &SubtopologyPlan) -> impl Iterator<Item = &StoreSpec> {
    let is_source = |spec: &StoreSpec| spec.changelog.as_ref().is_some_and(|c| sub.sources.iter().any(|s| s.topic == c.topic));
    sub.stores.iter().filter(move |spec| spec.changelog.is_some() && !is_source(spec))
}
