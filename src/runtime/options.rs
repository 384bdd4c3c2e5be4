//! How a process runs its units.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::TopicName;
use crate::task::UnitPlan;

/// Which slot numbers the threads of a process take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotChoice {
    /// Thread `t` takes `first + t`.
    From(u32),
    /// Thread `t` takes `ordinal × threads + t`: the pod's place in its stateful set.
    Ordinal(u32),
    /// The lowest ones that the state directory has free.
    Lowest,
}

/// What follows when a thread panics or fails for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// All threads of the process stop in order, and the failure is what the process ends with.
    StopAll,
    /// The thread starts again in its slot; settings and taken slots still stop everything.
    Replace,
}

/// A unit and how many threads of this process serve it.
#[derive(Clone, Debug)]
pub struct UnitRun {
    /// The unit.
    pub plan: UnitPlan,
    /// Its threads, each an OS thread with a consumer and a transactional producer.
    pub threads: u32,
}

/// Settings of all stream threads.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Which slots.
    pub slots: SlotChoice,
    /// Oldest age of a transaction before it is committed.
    pub commit_interval: Duration,
    /// Bytes (sent and held in overlays) after which a transaction is committed.
    pub transaction_bytes: usize,
    /// Records read after which a transaction is committed.
    pub transaction_records: usize,
    /// `transaction.timeout.ms`; under the session timeout.
    pub transaction_timeout: Duration,
    /// The group's session timeout: how long a dead member stays listed.
    pub session_timeout: Duration,
    /// Whether the group lists its members by their slots, so that a dead one is told from one that lives. Not with KIP-848.
    pub lists_slots: bool,
    /// How long a task with several inputs waits for one that may have older records.
    pub max_task_idle: Duration,
    /// How long a stop waits for calls that are under way, at most.
    pub finish_within: Duration,
    /// What a thread's failure does.
    pub on_failure: OnFailure,
    /// Whether missing topics of the user are created too.
    pub create_topics: bool,
    /// Topics whose loss a person has accepted: made anew and read from their start, whatever positions and stores say.
    pub accept_loss: BTreeSet<TopicName>,
    /// Whether copies are kept of the stores that would come here if another process were gone.
    pub standby: bool,
    /// Replication of created topics; −1 takes the broker's default.
    pub replication: i32,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            slots: SlotChoice::Lowest,
            commit_interval: Duration::from_millis(100),
            transaction_bytes: 16 << 20,
            transaction_records: 100_000,
            transaction_timeout: Duration::from_secs(10),
            session_timeout: Duration::from_secs(15),
            lists_slots: true,
            max_task_idle: Duration::from_millis(100),
            finish_within: STOP_BOUND / 2,
            on_failure: OnFailure::StopAll,
            create_topics: false,
            accept_loss: BTreeSet::new(),
            standby: false,
            replication: -1,
        }
    }
}

/// How long [`KafkaStreams::stop`](super::KafkaStreams::stop) waits where nothing else is said.
pub const STOP_BOUND: Duration = Duration::from_secs(20);
