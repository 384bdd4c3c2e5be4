//! Stream threads, task manager, transactions, rebalance, restore, slots.
//!
//! Read in this order: [`StreamThread`] (the loop), `transaction` (the only place that begins and commits), `running` and `tasks`
//! (what a transaction holds of a task), `join` (assignment to running task), `recovery` (after faults), `held`
//! (tasks that wait for what is away), `rebalance` (what the group gives and takes), [`KafkaStreams`] (a
//! process with its threads), `standby` (copies of what others write).

pub mod failpoint;
mod faults;
mod former;
mod global;
mod gone;
mod held;
mod join;
mod lost;
mod metrics;
mod options;
mod pace;
mod rebalance;
mod recovery;
mod restore;
mod running;
mod slots;
mod standby;
mod streams;
mod tasks;
mod thread;
mod topics;
mod transaction;

pub(crate) use failpoint::failpoint;
pub use faults::{error_of, unreached};
pub use global::{GlobalReader, GlobalThread};
pub use metrics::Metrics;
pub use options::{OnFailure, RuntimeOptions, STOP_BOUND, SlotChoice, UnitRun};
pub use slots::detect_slots;
pub use streams::{KafkaStreams, Pulse, State};
pub use thread::{Idle, StreamThread, ThreadSeed, ThreadState};
pub use topics::{Difference, differences, ensure_topics, wait_for_topic};

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no earlier assignment of this process had.
fn next_assignment() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// What a step within a thread gives: faults of the client are acted on by their class, the rest ends the thread.
type Step<T> = std::result::Result<T, crate::task::TaskError>;
