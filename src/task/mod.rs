//! What a stream thread runs: a [`Task`] sees records, time and its stores through a [`TxCx`], and cannot begin or commit.

mod cx;
mod plan;

pub use cx::{Emit, TxCx};
pub use plan::{
    CountDropped, Dropped, GlobalPlan, InternalTopic, RecordCheck, SourceSpec, StartAt, SubtopologyPlan, TaskBuilder, TaskSeed,
    TopicUse, UnitPlan,
};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::ids::Tp;
use crate::kafka::KafkaFault;
use crate::record::InRecord;
use crate::time::{MonoTime, Now};

/// Whether a task takes more of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appetite {
    /// Up to this many records in this turn.
    Take(usize),
    /// None now: its split queue is not polled.
    Full,
}

/// How soon a task wants its transaction committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Urgency {
    /// Something waits on it: within this gap since the last commit ended, even if more input waits.
    Within(Duration),
    /// As soon as the inputs are drained, at the latest at the interval.
    WhenDrained,
    /// Nothing to commit.
    None,
}

/// Why a task closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Its partitions go to another member, in order.
    Revoked,
    /// Its partitions are gone already.
    Lost,
    /// A planned hand-over to a warm successor.
    HandOver,
    /// The process stops.
    Stopped,
}

/// Why a task could not go on.
#[derive(Debug)]
pub enum TaskError {
    /// The client refused: the thread acts by its class.
    Kafka(KafkaFault),
    /// Processing failed in a way that the handlers did not take: the transaction is aborted and the thread stops.
    Failed(Error),
    /// What it needs is away, and the record is not to blame: the transaction is aborted, and this task alone stands still and
    /// tries the same record again until it succeeds.
    Held(Arc<Error>),
}

impl From<KafkaFault> for TaskError {
    fn from(f: KafkaFault) -> Self {
        TaskError::Kafka(f)
    }
}

impl From<Error> for TaskError {
    fn from(e: Error) -> Self {
        TaskError::Failed(e)
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::Kafka(k) => k.fmt(f),
            TaskError::Failed(e) => e.fmt(f),
            TaskError::Held(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for TaskError {}

/// One sub-topology × partition at work. Lives on its stream thread.
pub trait Task {
    /// Whether it takes more of this partition.
    fn appetite(&self, _tp: &Tp) -> Appetite {
        Appetite::Take(usize::MAX)
    }
    /// Called once after restore, before the first record, inside no transaction: rebuilds indexes from the stores.
    fn restored(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError>;
    /// Takes one record. Everything it emits or stores belongs to the open transaction.
    fn process(&mut self, record: InRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError>;
    /// Punctuation, due times, completions of calls. May do nothing.
    fn wake(&mut self, now: Now, cx: &mut TxCx<'_>) -> Result<(), TaskError>;
    /// Whether `wake` has something to do now; keeps idle turns from opening transactions.
    fn wants_wake(&self, now: Now) -> bool;
    /// How soon it wants a commit.
    fn urgency(&self) -> Urgency;
    /// Last chance to write before the commit.
    fn before_commit(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError>;
    /// The transaction is committed. Calls to the outside are handed out here only.
    fn committed(&mut self, at: Now);
    /// The transaction was taken back: forget what was folded since the last commit; the inputs come again. The stores are
    /// already back, so `restored` is called next.
    fn aborted(&mut self);
    /// Its partitions go, or the process stops: from now on it starts nothing, and takes back what it has started and what has not
    /// left yet. `wake` and a last commit follow.
    fn leaving(&mut self) {}
    /// Whether something that it has started is still to come home.
    fn waits(&self) -> bool {
        false
    }
    /// When `wake` has something to do at the latest.
    fn next_due(&self) -> Option<MonoTime>;
    /// No more calls after this one.
    fn close(&mut self, how: Close);
}
