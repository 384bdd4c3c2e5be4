//! A process of an application on the in-process log: the stream threads of its units, turned by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::app::Composed;
use crate::error::Result;
use crate::kafka::memory::MemoryCluster;
use crate::kafka::{Slot, Wake};
use crate::runtime::{GlobalReader, Metrics, RuntimeOptions, StreamThread, ThreadSeed, ThreadState};
use crate::state::StateManager;
use crate::task::UnitPlan;
use crate::time::{MonoTime, SharedClock};

/// Where a process lives.
#[derive(Clone)]
pub struct Place {
    /// Its cluster.
    pub cluster: MemoryCluster,
    /// Its own clock.
    pub clock: SharedClock,
    /// Its stores.
    pub state: StateManager,
    /// Its slot's number in each unit.
    pub number: u32,
    /// Settings of its threads.
    pub options: RuntimeOptions,
    /// Its metrics.
    pub metrics: Metrics,
}

/// A process with one thread for each unit. Dropping it is a crash: nothing is committed, closed or given back.
pub struct Member {
    clock: SharedClock,
    globals: Option<GlobalReader>,
    threads: Vec<Turned>,
}

struct Turned {
    thread: StreamThread<MemoryCluster>,
    woken: Arc<AtomicBool>,
    due: MonoTime,
}

impl Member {
    /// Makes the threads; their topics must exist.
    pub fn start(composed: &Composed, place: &Place) -> Result<Self> {
        let (plans, globals) = &composed.globals;
        let mut globals = GlobalReader::open(&place.cluster, plans, globals, &place.state)?;
        globals.as_mut().map_or(Ok(()), |g| g.bootstrap(&AtomicBool::new(false)))?;
        let units = std::iter::once(&composed.stream).chain(&composed.effects);
        let threads = units.map(|plan| Turned::new(plan, place)).collect::<Result<_>>()?;
        Ok(Self { clock: place.clock.clone(), globals, threads })
    }

    /// Takes in what is new in the whole-topic stores' topics. Says whether there was anything.
    pub fn read_globals(&mut self) -> Result<bool> {
        self.globals.as_mut().map_or(Ok(false), |g| Ok(g.step(Duration::ZERO)? > 0))
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Whether this thread has something to do by `now`, or was woken.
    pub fn is_due(&self, thread: usize, now: MonoTime) -> bool {
        self.threads.get(thread).is_some_and(|t| t.due <= now || t.woken.load(Ordering::Relaxed))
    }

    /// When the next of its threads has something to do; `None` without threads.
    pub fn next_due(&self) -> Option<MonoTime> {
        let due = |t: &Turned| if t.woken.load(Ordering::Relaxed) { MonoTime(0) } else { t.due };
        self.threads.iter().map(due).min()
    }

    /// Whether every thread has its assignment and all tasks run.
    pub fn is_running(&self) -> bool {
        self.threads.iter().all(|t| t.thread.state() == ThreadState::Running)
    }

    /// One turn of one thread.
    pub fn turn(&mut self, thread: usize) -> Result<()> {
        let now = self.clock.now();
        let Some(t) = self.threads.get_mut(thread) else { return Ok(()) };
        t.woken.store(false, Ordering::Relaxed);
        t.due = t.thread.turn(now)?.until;
        Ok(())
    }

    /// Ends in order, as on a signal.
    pub fn stop(mut self) -> Result<()> {
        let now = self.clock.now();
        self.threads.iter_mut().try_for_each(|t| t.thread.stop(now))
    }
}

impl Turned {
    fn new(plan: &UnitPlan, place: &Place) -> Result<Self> {
        let woken = Arc::new(AtomicBool::new(true));
        let flag = woken.clone();
        let seed = ThreadSeed {
            cluster: place.cluster.clone(),
            slot: Slot { unit: plan.unit.clone(), group: plan.group.clone(), number: place.number },
            plan: Arc::new(plan.clone()),
            state: place.state.clone(),
            clock: place.clock.clone(),
            options: place.options.clone(),
            metrics: place.metrics.clone(),
            wake: Wake::new(move || flag.store(true, Ordering::Relaxed)),
        };
        Ok(Self { thread: StreamThread::new(seed)?, woken, due: MonoTime(0) })
    }
}
