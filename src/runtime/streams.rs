//! A process with its stream threads.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::error::{Error, Fault, Result, codes};
use crate::ids::SlotName;
use crate::kafka::{Cluster, Slot, TxLimits, Wake};
use crate::state::StateManager;
use crate::task::UnitPlan;
use crate::time::SharedClock;

use super::metrics::Metrics;
use super::options::{OnFailure, RuntimeOptions, UnitRun};
use super::slots::{self, Taken};
use super::standby::{Served, StandbyThread};
use super::thread::{StreamThread, ThreadSeed, ThreadState};
use super::{ensure_topics, error_of, lost};

/// Before a failed thread starts again.
const START_AGAIN: Duration = Duration::from_secs(1);

/// What a process is about, all threads together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Some thread makes clients, claims, restores or recovers.
    Rebalancing,
    /// Every thread runs, and some tasks stand still because what they need is away: see [`KafkaStreams::waits_for`].
    Holding,
    /// Every thread runs.
    Running,
    /// [`KafkaStreams::stop`] was called, or a failure stops the rest.
    Stopping,
    /// Every thread ended in order.
    Stopped,
    /// Every thread ended, and one of them by a failure.
    Failed,
}

/// Runs units on stream threads, each an OS thread with its own consumer and transactional producer in its own slot.
pub struct KafkaStreams {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    standby: Option<StandbyThread>,
}

struct Shared {
    stop: AtomicBool,
    board: Mutex<Board>,
    changed: Condvar,
}

/// What the threads say of themselves.
struct Board {
    seats: Vec<Seat>,
    failure: Option<Error>,
}

/// What one thread says of itself.
struct Seat {
    slot: SlotName,
    state: ThreadState,
    /// What its tasks wait for.
    waits_for: Option<String>,
    thread: Option<Thread>,
    /// When it last said anything: it does at each turn.
    heard: Instant,
}

impl Seat {
    fn new(slot: SlotName) -> Self {
        Self { slot, state: ThreadState::Starting, waits_for: None, thread: None, heard: Instant::now() }
    }
}

/// Tells how long threads have made no turn; outlives the process that it is about.
#[derive(Clone)]
pub struct Pulse(Arc<Shared>);

impl Pulse {
    /// Threads that have not ended and made no turn for longer than `limit`, with how long.
    pub fn silent(&self, limit: Duration) -> Vec<(SlotName, Duration)> {
        let board = self.0.board();
        let living = board.seats.iter().filter(|s| s.state < ThreadState::Stopped);
        living.map(|s| (s.slot.clone(), s.heard.elapsed())).filter(|(_, silent)| *silent > limit).collect()
    }
}

impl KafkaStreams {
    /// Checks or creates the topics: what a start may be refused for.
    pub fn check<C: Cluster>(cluster: &C, units: &[UnitRun], options: &RuntimeOptions) -> Result<()> {
        let admin = cluster.admin().map_err(error_of)?;
        let plans: Vec<&UnitPlan> = units.iter().map(|u| &u.plan).collect();
        plans.iter().try_for_each(|p| lost::refuse_missing(cluster, p, &options.accept_loss))?;
        ensure_topics(&*admin, &plans, options)
    }

    /// Makes the clients of the slots that these units will take; whoever lives there goes on.
    pub fn prepare<C: Cluster>(cluster: &C, units: &[UnitRun], options: &RuntimeOptions) -> Result<()> {
        for UnitRun { plan, threads } in units {
            let limits = TxLimits { transaction: options.transaction_timeout, reports: plan.has_changelogs() };
            for number in slots::numbers(options.slots, *threads) {
                let slot = Slot { unit: plan.unit.clone(), group: plan.group.clone(), number };
                cluster.prepare(&slot, &plan.sources(), limits).map_err(error_of)?;
            }
        }
        Ok(())
    }

    /// Checks or creates the topics, takes the slots, starts the threads.
    pub fn start<C: Cluster>(
        cluster: &C,
        units: Vec<UnitRun>,
        state: &StateManager,
        clock: &SharedClock,
        options: &RuntimeOptions,
        metrics: &Metrics,
    ) -> Result<Self> {
        Self::check(cluster, &units, options)?;
        Self::begin(cluster, units, state, clock, options, metrics)
    }

    /// Takes the slots and starts the threads, on topics that [`check`](Self::check) has seen.
    pub fn begin<C: Cluster>(
        cluster: &C,
        units: Vec<UnitRun>,
        state: &StateManager,
        clock: &SharedClock,
        options: &RuntimeOptions,
        metrics: &Metrics,
    ) -> Result<Self> {
        let (mut seats, mut served) = (Vec::new(), Vec::new());
        for UnitRun { plan, threads } in units {
            let plan = Arc::new(plan);
            let mut of_unit = Served { plan: plan.clone(), slots: BTreeSet::new() };
            for taken in slots::choose(options.slots, &plan.unit, threads, state.dir())? {
                of_unit.slots.insert(taken.number);
                let slot = Slot { unit: plan.unit.clone(), group: plan.group.clone(), number: taken.number };
                let seed = ThreadSeed {
                    cluster: cluster.clone(),
                    slot,
                    plan: plan.clone(),
                    state: state.clone(),
                    clock: clock.clone(),
                    options: options.clone(),
                    metrics: metrics.clone(),
                    wake: Wake::none(),
                };
                seats.push((seed, taken));
            }
            served.push(of_unit);
        }
        let board = Board { seats: seats.iter().map(|(s, _)| Seat::new(s.slot.name())).collect(), failure: None };
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), board: Mutex::new(board), changed: Condvar::new() });
        let standby = options.standby.then(|| StandbyThread::start(cluster.clone(), state.clone(), served, metrics.clone()));
        let mut streams = Self { shared: shared.clone(), threads: Vec::new(), standby };
        for (place, (seed, taken)) in seats.into_iter().enumerate() {
            match spawn(&shared, place, seed, taken) {
                Ok(thread) => streams.threads.push(thread),
                Err(error) => {
                    streams.shared.order_stop();
                    return Err(error);
                }
            }
        }
        Ok(streams)
    }

    /// What the process is about.
    pub fn state(&self) -> State {
        let board = self.shared.board();
        let all = |f: fn(&ThreadState) -> bool| board.seats.iter().all(|s| f(&s.state));
        match () {
            () if all(|s| *s >= ThreadState::Stopped) && board.failure.is_some() => State::Failed,
            () if all(|s| *s >= ThreadState::Stopped) => State::Stopped,
            () if self.shared.stop.load(Ordering::Acquire) => State::Stopping,
            () if all(|s| *s == ThreadState::Running) => State::Running,
            () if all(|s| matches!(s, ThreadState::Running | ThreadState::Holding)) => State::Holding,
            () => State::Rebalancing,
        }
    }

    /// Each thread's slot and what it is about.
    pub fn threads(&self) -> Vec<(SlotName, ThreadState)> {
        self.shared.board().seats.iter().map(|s| (s.slot.clone(), s.state)).collect()
    }

    /// For a probe that asks whether a thread is stuck.
    pub fn pulse(&self) -> Pulse {
        Pulse(self.shared.clone())
    }

    /// What tasks of this process wait for, in words; `None` = nothing.
    pub fn waits_for(&self) -> Option<String> {
        let told: Vec<String> = self.shared.board().seats.iter().filter_map(|s| s.waits_for.clone()).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Waits until `done` answers true for the state, or the process ended, or `limit` has passed; answers the state.
    pub fn wait(&self, limit: Duration, done: impl Fn(State) -> bool) -> State {
        let until = Instant::now() + limit;
        loop {
            let state = self.state();
            let left = until.saturating_duration_since(Instant::now());
            if done(state) || matches!(state, State::Stopped | State::Failed) || left.is_zero() {
                return state;
            }
            // The short step covers a change between the look and the wait.
            let board = self.shared.board();
            drop(self.shared.changed.wait_timeout(board, left.min(Duration::from_millis(50))));
        }
    }

    /// Lets every thread finish or take back its open transaction, give its partitions back and leave. Answers the failure that
    /// ended the process, where there was one, or `STOP_TIMEOUT` once `bound` has passed (what is open then is taken back by
    /// the broker).
    pub fn stop(mut self, bound: Duration) -> Result<()> {
        drop(self.standby.take());
        self.shared.order_stop();
        let state = self.wait(bound, |_| false);
        if !matches!(state, State::Stopped | State::Failed) {
            let open: Vec<String> =
                self.threads().iter().filter(|(_, s)| *s < ThreadState::Stopped).map(|(slot, _)| slot.to_string()).collect();
            self.threads.clear();
            return Err(Error::new(codes::STOP_TIMEOUT, Fault::Unreachable, format!("stopping {}", open.join(", ")))
                .because(format!("not done after {}", crate::time::show_duration(bound)))
                .next("nothing is lost: open transactions are taken back by the broker and their inputs read again"));
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let failure = self.shared.board().failure.take();
        failure.map_or(Ok(()), Err)
    }
}

impl Drop for KafkaStreams {
    fn drop(&mut self) {
        self.shared.order_stop();
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.board().seats.iter().filter_map(|s| s.thread.as_ref()).for_each(Thread::unpark);
    }

    fn seen(&self, place: usize, state: ThreadState, waits_for: Option<String>) {
        let mut board = self.board();
        let Some(seat) = board.seats.get_mut(place) else { return };
        seat.heard = Instant::now();
        if seat.state != state || seat.waits_for != waits_for || seat.thread.is_none() {
            (seat.state, seat.waits_for, seat.thread) = (state, waits_for, Some(std::thread::current()));
            self.changed.notify_all();
        }
    }

    fn failed(&self, place: usize, error: Error) {
        self.board().failure.get_or_insert(error);
        self.seen(place, ThreadState::Failed, None);
        self.order_stop();
    }
}

fn spawn<C: Cluster>(shared: &Arc<Shared>, place: usize, seed: ThreadSeed<C>, taken: Taken) -> Result<JoinHandle<()>> {
    let shared = shared.clone();
    let name = seed.slot.name();
    let run = move || live(&shared, place, seed, &taken);
    std::thread::Builder::new()
        .name(name.as_str().to_owned())
        .spawn(run)
        .map_err(|e| Error::new(codes::BUG, Fault::Unreachable, format!("starting thread {name}")).because(e))
}

/// A thread's life: from clients to the last commit, again where a failure asks for it.
fn live<C: Cluster>(shared: &Shared, place: usize, mut seed: ThreadSeed<C>, taken: &Taken) {
    seed.wake = Wake::this_thread();
    let mut ours = taken.lock.is_some();
    loop {
        shared.seen(place, ThreadState::Starting, None);
        let run = || once(shared, place, &seed, ours);
        let ended = std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let words = panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Error::new(codes::BUG, Fault::Bug, format!("running {}", seed.slot.name()))
                .because(words.unwrap_or_else(|| "a panic without words".to_owned()))
                .next("please report this; the open transaction was not committed"))
        });
        match ended {
            Ok(()) => return shared.seen(place, ThreadState::Stopped, None),
            Err(error) => {
                tracing::error!(slot = %seed.slot.name(), %error, "a stream thread failed");
                let again = seed.options.on_failure == OnFailure::Replace && StreamThread::<C>::may_try_again(&error);
                if !again || shared.stop.load(Ordering::Acquire) {
                    return shared.failed(place, error);
                }
                // Whoever is listed under this name now is what is left of the thread itself.
                ours = true;
                std::thread::park_timeout(START_AGAIN);
            }
        }
    }
}

fn once<C: Cluster>(shared: &Shared, place: usize, seed: &ThreadSeed<C>, ours: bool) -> Result<()> {
    let session = seed.options.session_timeout;
    slots::wait_until_free(&seed.cluster, &seed.slot, ours, session, &seed.clock, &shared.stop)?;
    if shared.stop.load(Ordering::Acquire) {
        return Ok(());
    }
    let mut thread = StreamThread::new(seed.clone())?;
    let ended = thread.main_loop(&shared.stop, &|state, waits_for| shared.seen(place, state, waits_for));
    if ended.is_err() {
        let _ = thread.stop(seed.clock.now());
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C124: a thread that hangs would not be seen by the probe that restarts it, or one that has ended in order would be.
    #[test]
    fn a_thread_that_makes_no_turn_is_silent() {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(100)).expect("the machine runs for longer");
        let seat = |slot: &str, state, heard| Seat { state, heard, ..Seat::new(SlotName::from(slot)) };
        let seats = vec![
            seat("hangs", ThreadState::Running, long_ago),
            seat("turns", ThreadState::Running, long_ago),
            seat("ended", ThreadState::Stopped, long_ago),
        ];
        let board = Mutex::new(Board { seats, failure: None });
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), board, changed: Condvar::new() });
        shared.seen(1, ThreadState::Running, None);
        let silent: Vec<_> = Pulse(shared).silent(Duration::from_secs(60)).into_iter().map(|(slot, _)| slot).collect();
        assert_eq!(silent, [SlotName::from("hangs")]);
    }
}
