//! What is watched of operations: names from [`events`], labels bounded (steps are declared, codes are ours, tenants as declared).
//!
//! A task counts into a tally and adds it up once its transaction is committed: work that is taken back and done again counts once.
//! Each step and tenant has its handles, resolved when it is first seen.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::error::{Code, Error, Fault, Result, codes};
use crate::events::{self, Metric, Tenants};
use crate::ids::{StepName, Tenant};
use crate::intents::{Cost, Status};
use crate::outbox::{OperationRecord, Output, Stage};
use crate::time::WallTime;

use super::step::Event;

/// All operation metrics of a process; cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<All>);

struct All {
    tenants: Tenants,
    vectors: Vectors,
    lines: Mutex<HashMap<Line, Arc<Handles>>>,
}

struct Vectors {
    admitted: IntCounterVec,
    refused: IntCounterVec,
    redelivered: IntCounterVec,
    ended: IntCounterVec,
    seconds: HistogramVec,
    open: IntGaugeVec,
    oldest: IntGaugeVec,
    cost_admitted: IntCounterVec,
    cost_used: IntCounterVec,
    cost_in_flight: IntGaugeVec,
}

/// What is told apart: a step, and a tenant's label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Line {
    step: StepName,
    tenant: String,
}

/// What a cost is made of, in the order of [`parts`].
const OF: [&str; 3] = ["tokens", "bytes", "tool_calls"];
/// Stages of operations that have not ended.
pub(super) const STAGES: [(Stage, &str); 6] = [
    (Stage::Fetching, "fetching"),
    (Stage::Planning, "planning"),
    (Stage::Comparing, "comparing"),
    (Stage::Waiting, "waiting"),
    (Stage::Executing, "executing"),
    (Stage::HandedOver, "handed_over"),
];

/// A cost in its parts.
pub(super) fn parts(cost: Cost) -> [i64; 3] {
    [cost.tokens, cost.bytes, cost.tool_calls]
}

/// The metrics of one line.
struct Handles {
    admitted: IntCounter,
    redelivered: IntCounter,
    seconds: Histogram,
    cost_admitted: [IntCounter; 3],
    cost_used: [IntCounter; 3],
    cost_in_flight: [IntGauge; 3],
    open: [IntGauge; 6],
    /// Operations that have not ended, by when they were admitted, all partitions of the process together.
    ages: Mutex<BTreeMap<WallTime, i64>>,
}

impl Metrics {
    /// Makes the metrics and registers them; these tenants are told apart. A name that is registered already is an error.
    pub fn new(registry: &Registry, tenants: Tenants) -> Result<Self> {
        let vectors = Vectors::made(registry)
            .map_err(|e| Error::new(codes::BUG, Fault::Bug, "registering the operations' metrics").because(e))?;
        Ok(Self(Arc::new(All { tenants, vectors, lines: Mutex::default() })))
    }

    /// Where an operation counts.
    pub(super) fn line(&self, step: &StepName, tenant: &Tenant) -> Line {
        Line { step: step.clone(), tenant: self.0.tenants.label(tenant.as_str()).to_owned() }
    }

    fn handles(&self, line: &Line) -> Arc<Handles> {
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lines.get(line) {
            return known.clone();
        }
        let made = Arc::new(self.0.vectors.of(line));
        lines.insert(line.clone(), made.clone());
        made
    }

    fn add(&self, line: &Line, count: &Count) {
        let handles = self.handles(line);
        match count {
            Count::Admitted(cost) => {
                handles.admitted.inc();
                spend(&handles.cost_admitted, *cost);
            }
            Count::Refused(code) => {
                self.0.vectors.refused.with_label_values(&[line.step.as_str(), &code.to_string()]).inc();
            }
            Count::Redelivered => handles.redelivered.inc(),
            Count::Used(cost) => spend(&handles.cost_used, *cost),
            Count::Ended(status, seconds) => {
                self.0.vectors.ended.with_label_values(&[line.step.as_str(), &*line.tenant, status.word()]).inc();
                handles.seconds.observe(*seconds);
            }
        }
    }

    /// Adds to what stands open of a line: operations by stage and by when they were admitted, and the cost that is in flight.
    pub(super) fn stand(&self, line: &Line, stages: [i64; 6], ages: &BTreeMap<WallTime, i64>, cost: [i64; 3]) {
        let handles = self.handles(line);
        handles.open.iter().zip(stages).for_each(|(gauge, n)| gauge.add(n));
        handles.cost_in_flight.iter().zip(cost).for_each(|(gauge, n)| gauge.add(n));
        if ages.is_empty() {
            return;
        }
        let mut all: MutexGuard<'_, BTreeMap<WallTime, i64>> = handles.ages.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, n) in ages {
            let count = all.entry(*at).or_default();
            *count += n;
            if *count == 0 {
                all.remove(at);
            }
        }
        let labels = [line.step.as_str(), &*line.tenant];
        match all.first_key_value() {
            Some((at, _)) => self.0.vectors.oldest.with_label_values(&labels).set(at.0 / 1000),
            // Refused where it was never set: then it is not there either way.
            None => drop(self.0.vectors.oldest.remove_label_values(&labels)),
        }
    }
}

impl Vectors {
    fn made(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |m: Metric| {
            let made = IntCounterVec::new(Opts::new(m.name, m.help), m.labels)?;
            registry.register(Box::new(made.clone())).map(|()| made)
        };
        let gauge = |m: Metric| {
            let made = IntGaugeVec::new(Opts::new(m.name, m.help), m.labels)?;
            registry.register(Box::new(made.clone())).map(|()| made)
        };
        let m = events::SECONDS;
        let buckets = vec![0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 10_000.0];
        let seconds = HistogramVec::new(HistogramOpts::new(m.name, m.help).buckets(buckets), m.labels)?;
        registry.register(Box::new(seconds.clone()))?;
        Ok(Self {
            admitted: counter(events::ADMITTED)?,
            refused: counter(events::REFUSED)?,
            redelivered: counter(events::REDELIVERED)?,
            ended: counter(events::ENDED)?,
            seconds,
            open: gauge(events::OPEN)?,
            oldest: gauge(events::OLDEST_OPEN)?,
            cost_admitted: counter(events::COST_ADMITTED)?,
            cost_used: counter(events::COST_USED)?,
            cost_in_flight: gauge(events::COST_IN_FLIGHT)?,
        })
    }

    fn of(&self, line: &Line) -> Handles {
        let (step, tenant) = (line.step.as_str(), &*line.tenant);
        let both = [step, tenant];
        Handles {
            admitted: self.admitted.with_label_values(&both),
            redelivered: self.redelivered.with_label_values(&both),
            seconds: self.seconds.with_label_values(&both),
            cost_admitted: OF.map(|of| self.cost_admitted.with_label_values(&[step, tenant, of])),
            cost_used: OF.map(|of| self.cost_used.with_label_values(&[step, tenant, of])),
            cost_in_flight: OF.map(|of| self.cost_in_flight.with_label_values(&[step, tenant, of])),
            open: STAGES.map(|(_, stage)| self.open.with_label_values(&[step, tenant, stage])),
            ages: Mutex::default(),
        }
    }
}

fn spend(counters: &[IntCounter; 3], cost: Cost) {
    for (counter, amount) in counters.iter().zip(parts(cost)) {
        counter.inc_by(u64::try_from(amount).unwrap_or(0));
    }
}

/// One thing that happened in the open transaction.
#[derive(Debug)]
enum Count {
    Admitted(Cost),
    Refused(Code),
    Redelivered,
    Used(Cost),
    Ended(Status, f64),
}

/// What happened in the open transaction; nothing where nobody measures.
pub(super) struct Tally {
    metrics: Option<Metrics>,
    counts: Vec<(Line, Count)>,
    /// Where the event counts that is being folded.
    line: Option<Line>,
}

impl Tally {
    pub fn new(metrics: Option<Metrics>) -> Self {
        Self { metrics, counts: Vec::new(), line: None }
    }

    /// An event comes; a request for an operation that is known already is a redelivery.
    pub fn comes(&mut self, before: Option<&OperationRecord>, event: &Event) {
        let Some(metrics) = &self.metrics else { return };
        self.line = match (before, event) {
            (Some(record), _) => Some(metrics.line(&record.step, &record.request.tenant)),
            (None, Event::Intake(intake, _) | Event::Replay(intake, _)) => Some(metrics.line(&intake.step, &intake.request.tenant)),
            _ => None,
        };
        if let (Some(_), Event::Intake(..) | Event::Replay(..)) = (before, event) {
            self.count(Count::Redelivered);
        }
    }

    /// Takes down what an event came to.
    pub fn note(&mut self, before: Option<&OperationRecord>, after: Option<&OperationRecord>, out: &[Output], now: WallTime) {
        if self.metrics.is_none() {
            return;
        }
        for output in out {
            if let Output::DeadLetter(letter) = output {
                self.count(Count::Refused(letter.code));
            }
        }
        let Some(record) = after else { return };
        if before.is_none() {
            self.count(Count::Admitted(record.charged));
        }
        let had = before.map(|b| b.used).unwrap_or_default();
        if record.used != had {
            self.count(Count::Used(Cost {
                tokens: record.used.tokens - had.tokens,
                bytes: record.used.bytes - had.bytes,
                tool_calls: record.used.tool_calls - had.tool_calls,
            }));
        }
        if record.stage == Stage::Ended && before.is_none_or(|b| b.stage != Stage::Ended) {
            self.count(Count::Ended(record.status, now.since(record.admitted_at).as_secs_f64()));
        }
    }

    fn count(&mut self, count: Count) {
        if let Some(line) = &self.line {
            self.counts.push((line.clone(), count));
        }
    }

    /// The transaction is committed.
    pub fn committed(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        if let Some(metrics) = &self.metrics {
            counts.iter().for_each(|(line, count)| metrics.add(line, count));
        }
    }

    /// The transaction is taken back.
    pub fn aborted(&mut self) {
        self.counts.clear();
    }
}
