//! What is watched of operations: names from [`events`], labels bounded (steps are declared, codes are ours).
//!
//! A task counts into a tally and adds it up once its transaction is committed: work that is taken back and done again counts once.

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::error::{Code, Error, Fault, Result, codes};
use crate::events::{self, Metric};
use crate::ids::StepName;
use crate::intents::{Cost, Status};
use crate::outbox::{OperationRecord, Output, Stage};
use crate::time::WallTime;

use super::step::Event;

/// All operation metrics of a process; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    admitted: IntCounterVec,
    refused: IntCounterVec,
    redelivered: IntCounterVec,
    ended: IntCounterVec,
    seconds: HistogramVec,
    cost_admitted: IntCounterVec,
    cost_used: IntCounterVec,
}

impl Metrics {
    /// Makes the metrics and registers them. A name that is registered already is an error.
    pub fn new(registry: &Registry) -> Result<Self> {
        Self::made(registry).map_err(|e| Error::new(codes::BUG, Fault::Bug, "registering the operations' metrics").because(e))
    }

    fn made(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |m: Metric| {
            let made = IntCounterVec::new(Opts::new(m.name, m.help), m.labels)?;
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
            cost_admitted: counter(events::COST_ADMITTED)?,
            cost_used: counter(events::COST_USED)?,
        })
    }

    fn add(&self, count: &Count) {
        match count {
            Count::Admitted(step, cost) => {
                self.admitted.with_label_values(&[step.as_str()]).inc();
                spend(&self.cost_admitted, step, *cost);
            }
            Count::Refused(step, code) => self.refused.with_label_values(&[step.as_str(), &code.to_string()]).inc(),
            Count::Redelivered(step) => self.redelivered.with_label_values(&[step.as_str()]).inc(),
            Count::Used(step, cost) => spend(&self.cost_used, step, *cost),
            Count::Ended(step, status, seconds) => {
                self.ended.with_label_values(&[step.as_str(), status.word()]).inc();
                self.seconds.with_label_values(&[step.as_str()]).observe(*seconds);
            }
        }
    }
}

fn spend(counter: &IntCounterVec, step: &StepName, cost: Cost) {
    for (of, amount) in [("tokens", cost.tokens), ("bytes", cost.bytes), ("tool_calls", cost.tool_calls)] {
        if let Some(amount) = u64::try_from(amount).ok().filter(|a| *a > 0) {
            counter.with_label_values(&[step.as_str(), of]).inc_by(amount);
        }
    }
}

/// One thing that happened in the open transaction.
#[derive(Debug)]
enum Count {
    Admitted(StepName, Cost),
    Refused(StepName, Code),
    Redelivered(StepName),
    Used(StepName, Cost),
    Ended(StepName, Status, f64),
}

/// What happened in the open transaction; nothing where nobody measures.
pub(super) struct Tally {
    metrics: Option<Metrics>,
    counts: Vec<Count>,
    /// The step of the event that is being folded.
    step: Option<StepName>,
}

impl Tally {
    pub fn new(metrics: Option<Metrics>) -> Self {
        Self { metrics, counts: Vec::new(), step: None }
    }

    /// An event comes; a request for an operation that is known already is a redelivery.
    pub fn comes(&mut self, before: Option<&OperationRecord>, event: &Event) {
        if self.metrics.is_none() {
            return;
        }
        self.step = match (before, event) {
            (Some(record), _) => Some(record.step.clone()),
            (None, Event::Intake(intake, _) | Event::Replay(intake, _)) => Some(intake.step.clone()),
            _ => None,
        };
        if let (Some(record), Event::Intake(..) | Event::Replay(..)) = (before, event) {
            self.counts.push(Count::Redelivered(record.step.clone()));
        }
    }

    /// Takes down what an event came to.
    pub fn note(&mut self, before: Option<&OperationRecord>, after: Option<&OperationRecord>, out: &[Output], now: WallTime) {
        if self.metrics.is_none() {
            return;
        }
        for output in out {
            if let (Output::DeadLetter(letter), Some(step)) = (output, &self.step) {
                self.counts.push(Count::Refused(step.clone(), letter.code));
            }
        }
        let Some(record) = after else { return };
        if before.is_none() {
            self.counts.push(Count::Admitted(record.step.clone(), record.charged));
        }
        let had = before.map(|b| b.used).unwrap_or_default();
        if record.used != had {
            let more = Cost {
                tokens: record.used.tokens - had.tokens,
                bytes: record.used.bytes - had.bytes,
                tool_calls: record.used.tool_calls - had.tool_calls,
            };
            self.counts.push(Count::Used(record.step.clone(), more));
        }
        if record.stage == Stage::Ended && before.is_none_or(|b| b.stage != Stage::Ended) {
            let seconds = now.since(record.admitted_at).as_secs_f64();
            self.counts.push(Count::Ended(record.step.clone(), record.status, seconds));
        }
    }

    /// The transaction is committed.
    pub fn committed(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        if let Some(metrics) = &self.metrics {
            counts.iter().for_each(|c| metrics.add(c));
        }
    }

    /// The transaction is taken back.
    pub fn aborted(&mut self) {
        self.counts.clear();
    }
}
