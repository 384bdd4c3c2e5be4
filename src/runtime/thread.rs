//! One stream thread: a consumer, a transactional producer, and the tasks between them. [`StreamThread::turn`] never parks;
//! [`StreamThread::main_loop`] does. A simulation calls `turn` itself and moves the clock to the least `until`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::ids::{SlotName, TaskId, Tp};
use crate::kafka::{Class, Cluster, Input, KafkaFault, Reading, Revoked, Slot, SlotMark, Source, Wake};
use crate::record::InRecord;
use crate::state::StateManager;
use crate::task::{Close, TaskError, UnitPlan};
use crate::time::{MonoTime, Now, SharedClock};

use super::Step;
use super::error_of;
use super::join::Join;
use super::metrics::{Metrics, SlotMetrics};
use super::options::RuntimeOptions;
use super::pace::{Pace, Pressure};
use super::recovery::{Recovery, for_people};
use super::running::Running;
use super::tasks::Tasks;
use super::transaction::Transaction;

/// Records that one turn takes at most, from the shared queue and from split ones each.
const TURN: usize = 500;
/// The longest park.
const LONGEST_PARK: Duration = Duration::from_millis(500);
/// How long to wait for the store's writer before a commit is tried again.
const WRITER_PAUSE: Duration = Duration::from_millis(1);

/// What a stream thread is made from.
#[derive(Clone)]
pub struct ThreadSeed<C: Cluster> {
    /// Makes its clients.
    pub cluster: C,
    /// Its place in the group.
    pub slot: Slot,
    /// What it runs.
    pub plan: Arc<UnitPlan>,
    /// The process's stores.
    pub state: StateManager,
    /// Time.
    pub clock: SharedClock,
    /// Settings.
    pub options: RuntimeOptions,
    /// The process's metrics.
    pub metrics: Metrics,
    /// Unparks it.
    pub wake: Wake,
}

/// When a thread wants its next turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Idle {
    /// At the latest then; not after the turn's own `now` while there is work.
    pub until: MonoTime,
}

/// What a thread is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ThreadState {
    /// Clients are being made, or no assignment came yet.
    Starting,
    /// Assigned partitions are being claimed and restored.
    Restoring,
    /// A producer is being made anew.
    Recovering,
    /// Tasks run, and some of them stand still because what they need is away.
    Holding,
    /// Tasks run (or the group gave this thread none).
    Running,
    /// In order, with everything given back.
    Stopped,
    /// By a fault that nothing here could mend.
    Failed,
}

/// One stream thread.
pub struct StreamThread<C: Cluster> {
    pub(super) seed: ThreadSeed<C>,
    pub(super) slot: SlotName,
    pub(super) source: C::Source,
    pub(super) tx: Transaction<C::Sink>,
    pub(super) tasks: Tasks,
    pub(super) joins: VecDeque<Join>,
    pub(super) recovery: Option<Recovery>,
    /// Partitions whose tasks are closed and which the source still holds.
    pub(super) releasing: Option<Revoked>,
    pub(super) metrics: SlotMetrics,
    /// Faults since the last commit, and how many of them were fencings.
    pub(super) faults: u32,
    /// When the first of them was.
    pub(super) faulty: Option<MonoTime>,
    pub(super) fenced: u32,
    pub(super) paused_until: MonoTime,
    pace: Pace,
    drained: bool,
    /// No more input is taken: the process stops.
    leaving: bool,
    pub(super) assigned: bool,
    /// Whether an assignment was looked at for what a former topology had.
    pub(super) settled: bool,
    watched: MonoTime,
    /// When something that lasts was last told, and what it was.
    pub(super) said: MonoTime,
    pub(super) stuck: Option<String>,
}

impl<C: Cluster> StreamThread<C> {
    /// Joins the group. To be called on the thread that will run it.
    pub fn new(seed: ThreadSeed<C>) -> Result<Self> {
        let slot = seed.slot.name();
        let source = seed.cluster.source(&seed.slot, &seed.plan.sources(), seed.wake.clone()).map_err(error_of)?;
        let now = seed.clock.now().mono;
        Ok(Self {
            source,
            tx: Transaction::new(SlotMark(slot.as_str().to_owned()), seed.options.transaction_timeout),
            tasks: Tasks::default(),
            joins: VecDeque::new(),
            recovery: Some(Recovery::new(Vec::new(), now)),
            releasing: None,
            metrics: seed.metrics.of(&seed.plan.unit, &slot),
            faults: 0,
            faulty: None,
            fenced: 0,
            paused_until: MonoTime(0),
            pace: Pace::new(seed.plan.flat_gap, seed.options.commit_interval),
            drained: false,
            leaving: false,
            assigned: false,
            settled: false,
            watched: now,
            said: now,
            stuck: None,
            slot,
            seed,
        })
    }

    /// What it is about.
    pub fn state(&self) -> ThreadState {
        match () {
            () if self.recovery.is_some() && self.assigned => ThreadState::Recovering,
            () if !self.joins.is_empty() => ThreadState::Restoring,
            () if !self.assigned => ThreadState::Starting,
            () if self.tasks.all().any(|t| t.held.is_some()) => ThreadState::Holding,
            () => ThreadState::Running,
        }
    }

    /// The tasks that run here.
    pub fn running(&self) -> Vec<TaskId> {
        self.tasks.all().map(|t| t.id).collect()
    }

    /// Does what is to be done now and answers when to call again. An error is final: the open transaction is taken back, the
    /// tasks are to be closed by [`stop`](Self::stop).
    pub fn turn(&mut self, now: Now) -> Result<Idle> {
        match self.try_turn(now) {
            Ok(idle) => Ok(idle),
            Err(error) => self.meet(error, now).map(|()| Idle { until: self.resume(now) }).inspect_err(|_| self.give_up()),
        }
    }

    /// Acts on an error by what it asks for. One that comes back is final.
    pub(super) fn meet(&mut self, error: TaskError, now: Now) -> Result<()> {
        match error {
            TaskError::Kafka(fault) => self.recover_from(fault, now),
            TaskError::Held(error) => self.hold(&error, now),
            TaskError::Failed(error) => {
                self.metrics.aborted("task");
                Err(error)
            }
        }
    }

    /// Turns until `stop` is set, parking in between; then lets what was started come home, and gives everything back.
    pub fn main_loop(&mut self, stop: &AtomicBool, seen: &dyn Fn(ThreadState, Option<String>)) -> Result<()> {
        while !stop.load(Ordering::Acquire) {
            self.turn_and_park()?;
            seen(self.state(), self.waits_for());
        }
        self.leaving = true;
        let now = self.seed.clock.now();
        let until = now.mono.plus(self.seed.options.finish_within);
        if let Err(error) = self.leave_all(now) {
            self.meet(error, now)?;
        }
        while self.tasks.all().any(|t| t.task.waits()) && self.seed.clock.now().mono < until {
            self.turn_and_park()?;
        }
        self.stop(self.seed.clock.now())
    }

    fn turn_and_park(&mut self) -> Result<()> {
        let idle = self.turn(self.seed.clock.now())?;
        let park = idle.until.since(self.seed.clock.now().mono).min(LONGEST_PARK);
        if !park.is_zero() {
            std::thread::park_timeout(park);
        }
        Ok(())
    }

    /// From now on no task starts anything; what has not left yet is taken back.
    fn leave_all(&mut self, now: Now) -> Step<()> {
        let Self { tasks, tx, recovery, .. } = self;
        if recovery.is_some() || !tx.has_sink() {
            return Ok(());
        }
        tasks.all_mut().try_for_each(|t| t.leave(tx, now))
    }

    /// Commits what is open (or takes it back), closes the tasks and leaves. Each step is bounded by the client's limits.
    pub fn stop(&mut self, now: Now) -> Result<()> {
        let ended = match self.recovery {
            None => self.leave_all(now).and_then(|()| self.commit_at_once(now)),
            Some(_) => Ok(()),
        };
        let ended = ended.map_err(|e| {
            self.give_up();
            tracing::warn!(slot = %self.slot, error = %e, "the last transaction was taken back; its inputs come again");
            e
        });
        let mut closed = Ok(());
        for task in self.tasks.clear() {
            closed = closed.and(task.close(Close::Stopped));
        }
        self.joins.clear();
        self.metrics.tasks.set(0);
        self.source.close();
        self.tx.drop_sink();
        match ended {
            // Taken back in order: nothing is lost and nobody has to act.
            Err(TaskError::Kafka(_) | TaskError::Held(_)) | Ok(()) => closed.map_err(for_people),
            Err(e) => Err(for_people(e)),
        }
    }

    fn try_turn(&mut self, now: Now) -> Step<Idle> {
        if self.recovery.is_some() {
            self.step_recovery(now)?;
            return Ok(Idle { until: self.resume(now) });
        }
        if now.mono < self.paused_until {
            return Ok(Idle { until: self.paused_until });
        }
        self.release()?;
        self.try_held_again(now)?;
        let mut took = 0;
        if self.leaving {
            self.look_after_the_group(now)?;
        } else if !self.wants_commit(now) || self.stores_ready() {
            took = self.take_shared(now)? + self.take_split(now)?;
        }
        let mut worked = took > 0;
        for task in self.tasks.all_mut() {
            worked |= task.wake(&mut self.tx, now)?;
        }
        self.drained = took == 0;
        worked |= self.step_join(now)?;
        if self.wants_commit(now) && self.stores_ready() {
            self.commit(now)?;
            worked = true;
        }
        self.watch(now);
        Ok(Idle { until: if worked || self.recovery.is_some() { now.mono } else { self.resume(now) } })
    }

    /// When the next turn has something to do, if nothing happens before.
    fn resume(&self, now: Now) -> MonoTime {
        let mut until = now.mono.plus(LONGEST_PARK);
        if let Some(recovery) = &self.recovery {
            return until.min(recovery.not_before());
        }
        if let Some(join) = self.joins.front() {
            until = until.min(join.not_before());
        }
        if let Some(due) = self.tasks.next_due() {
            until = until.min(due);
        }
        if let Some(due) = self.commit_due() {
            until = until.min(if due <= now.mono { now.mono.plus(WRITER_PAUSE) } else { due });
        }
        until.max(self.paused_until)
    }

    fn take_shared(&mut self, now: Now) -> Step<usize> {
        let mut took = 0;
        while took < TURN
            && self.recovery.is_none()
            && let Some(input) = self.source.next()
        {
            match input {
                Input::Record(record) => {
                    took += 1;
                    self.dispatch(record, now)?;
                }
                Input::Drained(tp) => self.tasks.of(&tp).into_iter().for_each(|t| t.drained(&tp)),
                other => self.rebalanced(other, now)?,
            }
        }
        Ok(took)
    }

    /// Records of a partition without a task were revoked meanwhile: their new owner reads them.
    fn dispatch(&mut self, record: InRecord, now: Now) -> Step<()> {
        if self.tasks.of(&record.tp).is_some_and(|t| t.commits_before(&record)) {
            self.commit_at_once(now)?;
        }
        if let Some(task) = self.tasks.of(&record.tp) {
            self.metrics.read.inc();
            task.process(record, &mut self.tx, now)?;
        }
        Ok(())
    }

    fn take_split(&mut self, now: Now) -> Step<usize> {
        let idle = self.seed.options.max_task_idle;
        let mut took = 0;
        let reads = |t: &&mut Running| t.stands_until().is_none() && t.parts.iter().any(|p| p.reading == Reading::Split);
        for task in self.tasks.all_mut().filter(reads) {
            took += task.feed(&mut self.source, &mut self.tx, now, TURN, idle)?;
        }
        self.metrics.read.inc_by(took as u64);
        Ok(took)
    }

    /// Commits what is open, after the stores have room for it.
    pub(super) fn commit_at_once(&mut self, now: Now) -> Step<()> {
        self.settle_stores()?;
        self.commit(now)
    }

    /// Ends the open transaction: the tasks' last words, their positions, the commit, and only then stores and tasks.
    pub(super) fn commit(&mut self, now: Now) -> Step<()> {
        let Some(open) = self.tx.open().copied() else { return Ok(()) };
        let mut offsets: Vec<(Tp, crate::offset::NextOffset)> = Vec::new();
        for task in self.tasks.touched() {
            task.before_commit(&mut self.tx, now)?;
            offsets.extend(task.offsets(&self.source));
        }
        if offsets.is_empty() {
            // Nothing would fence a former owner; and whose work it was is closed already.
            return Err(KafkaFault::new(Class::Abort, "committing", &self.slot, "no task stands behind this transaction").into());
        }
        let started = self.seed.clock.now();
        let written = self.tx.open().map_or(open.written, |o| o.written);
        self.tx.commit(&offsets, &mut self.source)?;
        let ended = self.seed.clock.now();
        self.pace.finished(started.mono, ended.mono);
        (self.faults, self.faulty, self.fenced) = (0, None, 0);
        self.metrics.commits.inc();
        self.tx.take_buried().into_iter().for_each(|code| self.metrics.dead_letter(code));
        self.metrics.written.inc_by(written as u64);
        self.metrics.commit_seconds.observe(ended.mono.since(started.mono).as_secs_f64());
        for task in self.tasks.touched() {
            task.committed(&offsets, &self.tx, ended)?;
        }
        Ok(())
    }

    fn commit_due(&self) -> Option<MonoTime> {
        let open = self.tx.open()?;
        let held: usize = self.tasks.all().filter(|t| t.touched).map(|t| t.stores.open_bytes()).sum();
        let o = &self.seed.options;
        let full = open.read >= o.transaction_records || open.bytes + held >= o.transaction_bytes;
        Some(self.pace.due(&Pressure { opened: open.since, urgency: self.tasks.urgency(), drained: self.drained, full }))
    }

    fn wants_commit(&self, now: Now) -> bool {
        self.commit_due().is_some_and(|due| due <= now.mono)
    }

    /// Whether the writer has room: at most two batches of a task may wait for it.
    fn stores_ready(&self) -> bool {
        self.tasks.all().filter(|t| t.touched).all(|t| t.stores.ready_to_commit())
    }

    /// Makes room where the commit can't wait.
    fn settle_stores(&mut self) -> Step<()> {
        for task in self.tasks.touched().filter(|t| !t.stores.ready_to_commit()) {
            task.stores.drain()?;
        }
        Ok(())
    }

    /// After a final error: nothing of the open transaction may become visible.
    fn give_up(&mut self) {
        if let Err(fault) = self.tx.abort() {
            tracing::warn!(slot = %self.slot, %fault, "the transaction is left to its timeout");
        }
        for task in self.tasks.touched() {
            task.drop_open();
            task.task.aborted();
        }
        self.tx.drop_sink();
    }

    fn watch(&mut self, now: Now) {
        if now.mono.since(self.watched) < Duration::from_secs(1) {
            return;
        }
        self.watched = now.mono;
        self.metrics.held.set(self.tasks.all().filter(|t| t.held.is_some()).count() as i64);
        self.metrics.open_seconds.set(self.tx.open().map_or(0.0, |o| now.mono.since(o.since).as_secs_f64()));
        for task in self.tasks.all() {
            for (tp, behind) in task.behind(&self.source) {
                self.metrics.behind(tp, behind);
            }
        }
    }

    /// Whether a failure of this kind may be tried again in the same slot.
    pub(super) fn may_try_again(error: &Error) -> bool {
        use crate::error::Fault;
        matches!(error.fault, Fault::Unreachable | Fault::Data | Fault::Bug)
    }
}
