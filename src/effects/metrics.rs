//! What is watched of the effect stage: names from [`events`], labels bounded (targets come from contracts, never from records).

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::error::{Error, Fault, Result, codes};
use crate::events::{self, Metric};
use crate::ids::Partition;
use crate::intents::{AnswerClass, Flag, Status};
use crate::time::WallTime;

use super::attempt::WarrantKind;
use super::fold::Verdict;

/// All effect metrics of a process; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    attempts: IntCounterVec,
    readbacks: IntCounterVec,
    warrants: IntCounterVec,
    ends: IntCounterVec,
    flags: IntCounterVec,
    operations: IntGaugeVec,
    oldest_unknown: IntGaugeVec,
    running: IntGaugeVec,
    limit: IntGaugeVec,
    closed: IntCounterVec,
}

impl Metrics {
    /// Makes the metrics and registers them. A name that is registered already is an error.
    pub fn new(registry: &Registry) -> Result<Self> {
        Self::made(Some(registry)).map_err(|e| Error::new(codes::BUG, Fault::Bug, "registering the effects' metrics").because(e))
    }

    fn made(registry: Option<&Registry>) -> prometheus::Result<Self> {
        let counter = |m: Metric| {
            let made = IntCounterVec::new(Opts::new(m.name, m.help), m.labels)?;
            registry.map_or(Ok(()), |r| r.register(Box::new(made.clone()))).map(|()| made)
        };
        let gauge = |m: Metric| {
            let made = IntGaugeVec::new(Opts::new(m.name, m.help), m.labels)?;
            registry.map_or(Ok(()), |r| r.register(Box::new(made.clone()))).map(|()| made)
        };
        Ok(Self {
            attempts: counter(events::EFFECTS_ATTEMPTS)?,
            readbacks: counter(events::EFFECTS_READBACKS)?,
            warrants: counter(events::EFFECTS_WARRANTS)?,
            ends: counter(events::EFFECTS_ENDS)?,
            flags: counter(events::EFFECTS_FLAGS)?,
            operations: gauge(events::EFFECTS_OPERATIONS)?,
            oldest_unknown: gauge(events::OLDEST_UNKNOWN)?,
            running: gauge(events::TARGET_CALLS)?,
            limit: gauge(events::TARGET_LIMIT)?,
            closed: counter(events::TARGET_CLOSED)?,
        })
    }

    /// A call came out.
    pub(super) fn answered(&self, target: &str, class: AnswerClass) {
        let word = match class {
            AnswerClass::Applied => "applied",
            AnswerClass::NotApplied => "not_applied",
            AnswerClass::InProgress => "in_progress",
            AnswerClass::KeyConflict => "key_conflict",
            AnswerClass::PreconditionFailed => "precondition_failed",
            AnswerClass::Rejected => "rejected",
            AnswerClass::RetryLater => "retry_later",
            AnswerClass::Unknown => "unknown",
            AnswerClass::NotSent => "not_sent",
            AnswerClass::MaybeSent => "maybe_sent",
        };
        self.attempts.with_label_values(&[target, word]).inc();
    }

    /// A readback came out.
    pub(super) fn read(&self, target: &str, verdict: &Verdict) {
        let word = match verdict {
            Verdict::Absent => "absent",
            Verdict::One { .. } => "present",
            Verdict::Two => "two",
            Verdict::OtherContent => "other_content",
            Verdict::Incomplete(_) => "inconclusive",
        };
        self.readbacks.with_label_values(&[target, word]).inc();
    }

    /// A re-send was journalled under a warrant.
    pub(super) fn warranted(&self, kind: WarrantKind) {
        let word = match kind {
            WarrantKind::Unsent => "unsent",
            WarrantKind::RejectedEarly => "rejected_early",
            WarrantKind::Dedupe => "dedupe",
            WarrantKind::TargetFence => "target_fence",
            WarrantKind::SettledAbsent => "settled_absent",
            WarrantKind::Operator => "operator",
            WarrantKind::DuplicatesAccepted => "duplicates_accepted",
        };
        self.warrants.with_label_values(&[word]).inc();
    }

    /// An operation ended.
    pub(super) fn ended(&self, status: Status) {
        self.ends.with_label_values(&[status.word()]).inc();
    }

    /// Something that must not pass silently.
    pub(super) fn flagged(&self, flag: Flag) {
        let word = match flag {
            Flag::DuplicateSuspected => "duplicate_suspected",
            Flag::Contradiction => "contradiction",
            Flag::CancelTooLate => "cancel_too_late",
        };
        self.flags.with_label_values(&[word]).inc();
    }

    /// How many operations of a partition stand where.
    pub(super) fn standing(&self, partition: Partition, status: Status, count: i64) {
        self.operations.with_label_values(&[&partition.to_string(), status.word()]).set(count);
    }

    /// Since when the oldest unknown operation of a partition is unknown.
    pub(super) fn oldest_unknown(&self, partition: Partition, since: Option<WallTime>) {
        let label = partition.to_string();
        match since {
            Some(since) => self.oldest_unknown.with_label_values(&[&label]).set(since.0 / 1000),
            // Refused where it was never set: then it is not there either way.
            None => drop(self.oldest_unknown.remove_label_values(&[&label])),
        }
    }

    /// How many calls to a target are under way, of how many.
    pub(super) fn calls(&self, target: &str, running: usize, limit: usize) {
        self.running.with_label_values(&[target]).set(running as i64);
        self.limit.with_label_values(&[target]).set(limit as i64);
    }

    /// Calls to a target are deferred.
    pub(super) fn closed(&self, target: &str, why: &str) {
        self.closed.with_label_values(&[target, why]).inc();
    }
}
