//! The runtime's handle on its metrics: names from [`events`], bound once to a slot.

use std::sync::Arc;

use prometheus::{Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::error::{Code, Error, Fault, Result, codes};
use crate::events::{self, Metric};
use crate::ids::{SlotName, TopicName, Tp, UnitName};
use crate::task::{CountDropped, Dropped};
use crate::time::WallTime;

/// All runtime metrics of a process; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    pub(super) tasks: IntGaugeVec,
    pub(super) read: IntCounterVec,
    pub(super) written: IntCounterVec,
    pub(super) commits: IntCounterVec,
    pub(super) aborts: IntCounterVec,
    pub(super) commit_seconds: HistogramVec,
    pub(super) open_seconds: GaugeVec,
    pub(super) rebuilds: IntCounterVec,
    pub(super) blocked: IntCounterVec,
    pub(super) restored: IntCounterVec,
    pub(super) rebalances: IntCounterVec,
    pub(super) held: IntGaugeVec,
    pub(super) holds: IntCounterVec,
    pub(super) lost: IntCounterVec,
    pub(super) behind: IntGaugeVec,
    standby_tasks: IntGaugeVec,
    standby_records: IntCounterVec,
    pub(super) left: IntGaugeVec,
    resting: IntGaugeVec,
    oldest_resting: IntGaugeVec,
    dropped: IntCounterVec,
    dead_letters: IntCounterVec,
}

impl Metrics {
    /// Makes the metrics and registers them. A name that is registered already is an error.
    pub fn new(registry: &Registry) -> Result<Self> {
        Self::register(registry).map_err(|e| Error::new(codes::BUG, Fault::Bug, "registering metrics").because(e))
    }

    /// Metrics that nobody reads.
    pub fn unread() -> Result<Self> {
        Self::new(&Registry::new())
    }

    fn register(to: &Registry) -> prometheus::Result<Self> {
        let counter = |m: Metric| {
            let made = IntCounterVec::new(Opts::new(m.name, m.help), m.labels)?;
            to.register(Box::new(made.clone())).map(|()| made)
        };
        let gauge = |m: Metric| {
            let made = IntGaugeVec::new(Opts::new(m.name, m.help), m.labels)?;
            to.register(Box::new(made.clone())).map(|()| made)
        };
        let open_seconds =
            GaugeVec::new(Opts::new(events::OPEN_SECONDS.name, events::OPEN_SECONDS.help), events::OPEN_SECONDS.labels)?;
        to.register(Box::new(open_seconds.clone()))?;
        let m = events::COMMIT_SECONDS;
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 15)?;
        let commit_seconds = HistogramVec::new(HistogramOpts::new(m.name, m.help).buckets(buckets), m.labels)?;
        to.register(Box::new(commit_seconds.clone()))?;
        Ok(Self {
            tasks: gauge(events::TASKS)?,
            read: counter(events::RECORDS_READ)?,
            written: counter(events::RECORDS_WRITTEN)?,
            commits: counter(events::COMMITS)?,
            aborts: counter(events::ABORTS)?,
            commit_seconds,
            open_seconds,
            rebuilds: counter(events::REBUILDS)?,
            blocked: counter(events::BLOCKED)?,
            restored: counter(events::RESTORED)?,
            rebalances: counter(events::REBALANCES)?,
            held: gauge(events::HELD)?,
            holds: counter(events::HOLDS)?,
            lost: counter(events::INPUT_LOST)?,
            behind: gauge(events::BEHIND)?,
            standby_tasks: gauge(events::STANDBY_TASKS)?,
            standby_records: counter(events::STANDBY_RECORDS)?,
            left: gauge(events::LEFT)?,
            resting: gauge(events::RESTING)?,
            oldest_resting: gauge(events::OLDEST_RESTING)?,
            dropped: counter(events::DROPPED)?,
            dead_letters: counter(events::DEAD_LETTERS)?,
        })
    }

    /// How many records a step of a unit gave up for this reason.
    pub fn dropped(&self, unit: &UnitName, step: &str, why: Dropped) -> u64 {
        self.dropped.with_label_values(&[unit.as_str(), step, why.label()]).get()
    }
    /// How many dead letters of this code a unit has written.
    pub fn dead_letters(&self, unit: &UnitName, code: Code) -> u64 {
        self.dead_letters.with_label_values(&[unit.as_str(), &*code.to_string()]).get()
    }
    pub(super) fn standby(&self, unit: &UnitName, tasks: usize) {
        self.standby_tasks.with_label_values(&[unit.as_str()]).set(i64::try_from(tasks).unwrap_or(i64::MAX));
    }
    pub(super) fn standby_records(&self, unit: &UnitName, records: u64) {
        self.standby_records.with_label_values(&[unit.as_str()]).inc_by(records);
    }
    /// How many dead letters rest in a topic, and since when the oldest does.
    pub fn resting(&self, topic: &TopicName, count: usize, oldest: Option<WallTime>) {
        let labels = [topic.as_str()];
        self.resting.with_label_values(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        match oldest {
            Some(at) => self.oldest_resting.with_label_values(&labels).set(at.0 / 1000),
            // Refused where it was never set: then it is not there either way.
            None => drop(self.oldest_resting.remove_label_values(&labels)),
        }
    }
    /// Counts what the steps of a unit give up.
    pub(super) fn count_dropped(&self, unit: &UnitName) -> CountDropped {
        let (counter, unit) = (self.dropped.clone(), unit.clone());
        Arc::new(move |step, why| counter.with_label_values(&[unit.as_str(), step, why.label()]).inc())
    }

    pub(super) fn of(&self, unit: &UnitName, slot: &SlotName) -> SlotMetrics {
        let (unit, slot) = (unit.as_str().to_owned(), slot.as_str().to_owned());
        let labels: [&str; 2] = [&unit, &slot];
        SlotMetrics {
            tasks: self.tasks.with_label_values(&labels),
            read: self.read.with_label_values(&labels),
            written: self.written.with_label_values(&labels),
            commits: self.commits.with_label_values(&labels),
            commit_seconds: self.commit_seconds.with_label_values(&labels),
            open_seconds: self.open_seconds.with_label_values(&labels),
            blocked: self.blocked.with_label_values(&labels),
            restored: self.restored.with_label_values(&labels),
            held: self.held.with_label_values(&labels),
            all: self.clone(),
            unit,
            slot,
        }
    }
}

/// The metrics of one slot.
pub(super) struct SlotMetrics {
    pub tasks: prometheus::IntGauge,
    pub read: prometheus::IntCounter,
    pub written: prometheus::IntCounter,
    pub commits: prometheus::IntCounter,
    pub commit_seconds: prometheus::Histogram,
    pub open_seconds: Gauge,
    pub blocked: prometheus::IntCounter,
    pub restored: prometheus::IntCounter,
    pub held: prometheus::IntGauge,
    all: Metrics,
    unit: String,
    slot: String,
}

impl SlotMetrics {
    pub(super) fn aborted(&self, class: &str) {
        self.all.aborts.with_label_values(&[&*self.unit, &*self.slot, class]).inc();
    }
    pub(super) fn holds(&self, code: Code) {
        self.all.holds.with_label_values(&[&*self.unit, &*self.slot, &*code.to_string()]).inc();
    }
    pub(super) fn dead_letter(&self, code: Code) {
        self.all.dead_letters.with_label_values(&[&*self.unit, &*code.to_string()]).inc();
    }
    pub(super) fn rebuilt(&self, class: &str) {
        self.all.rebuilds.with_label_values(&[&*self.unit, &*self.slot, class]).inc();
    }
    pub(super) fn rebalanced(&self, event: &str) {
        self.all.rebalances.with_label_values(&[&*self.unit, &*self.slot, event]).inc();
    }
    pub(super) fn lost(&self, tp: &Tp, offsets: i64) {
        self.all.lost.with_label_values(&[&*self.unit, tp.topic.as_str()]).inc_by(offsets.unsigned_abs());
    }
    pub(super) fn behind(&self, tp: &Tp, behind: Behind) {
        let partition = tp.partition.to_string();
        let labels = [&*self.unit, tp.topic.as_str(), &*partition];
        self.all.behind.with_label_values(&labels).set(behind.offsets);
        self.all.left.with_label_values(&labels).set(behind.records);
    }
    pub(super) fn gone(&self, tp: &Tp) {
        let partition = tp.partition.to_string();
        let labels = [&*self.unit, tp.topic.as_str(), &*partition];
        let _ = self.all.behind.remove_label_values(&labels);
        let _ = self.all.left.remove_label_values(&labels);
    }
}

/// How far reading is behind the end of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Behind {
    /// Offsets, control records of transactions among them.
    pub offsets: i64,
    /// Records, by the share of offsets that were records so far.
    pub records: i64,
}

/// What was read of a partition since it was assigned: tells how many of its offsets are records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Share {
    /// Offsets that reading passed.
    pub passed: i64,
    /// Records that it brought.
    pub records: i64,
}

impl Share {
    /// Where reading stands, `offsets` before the end. Of a partition of which nothing was read each offset counts.
    pub fn behind(self, offsets: i64) -> Behind {
        let offsets = offsets.max(0);
        let seen = self.passed > 0 && self.records > 0;
        let share = if seen { (self.records as f64 / self.passed as f64).min(1.0) } else { 1.0 };
        Behind { offsets, records: (offsets as f64 * share).ceil() as i64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a partition of short transactions would look twice as far behind as it is, or a drained one not drained.
    #[test]
    fn records_left_leave_out_what_is_no_record() {
        let left = |passed, records, offsets| Share { passed, records }.behind(offsets).records;
        assert_eq!((left(0, 0, 10), left(100, 50, 10), left(100, 100, 7)), (10, 5, 7));
        assert_eq!((left(100, 50, 0), left(100, 50, -1), left(100, 50, 1)), (0, 0, 1));
    }
}
