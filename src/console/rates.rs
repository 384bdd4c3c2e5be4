//! What this process measures of itself, as pages show it: gauges as they stand, counters as rates over the last minute.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prometheus::Registry;

use crate::events::Metric;

/// A series: its metric's name and its labels' values.
type Series = (String, BTreeMap<String, String>);
type Sample = BTreeMap<Series, f64>;

/// Between samples, and how many are kept: rates are over a minute.
const EVERY: Duration = Duration::from_secs(5);
const KEPT: usize = 13;

/// Samples of a process's metrics; ends when dropped.
pub struct Rates {
    kept: Arc<Mutex<VecDeque<(Instant, Sample)>>>,
    thread: Option<JoinHandle<()>>,
    alive: Arc<()>,
}

impl Rates {
    /// Starts to sample.
    pub fn start(registry: Registry) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::from([(Instant::now(), sample(&registry))])));
        let alive = Arc::new(());
        let (to, watched) = (kept.clone(), Arc::downgrade(&alive));
        let thread = std::thread::Builder::new().name("rates".into()).spawn(move || {
            while watched.upgrade().is_some() {
                std::thread::park_timeout(EVERY);
                let mut kept = to.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back((Instant::now(), sample(&registry)));
                if kept.len() > KEPT {
                    kept.pop_front();
                }
            }
        });
        Self { kept, thread: thread.ok(), alive }
    }

    /// A gauge as it stands, summed by one of its labels.
    pub fn gauge(&self, metric: Metric, by: &str) -> BTreeMap<String, f64> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.back().map(|(_, s)| summed(s, metric, by)).unwrap_or_default()
    }

    /// A gauge as it stands, by two of its labels.
    pub fn gauges(&self, metric: Metric, by: [&str; 2]) -> BTreeMap<[String; 2], f64> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let series = kept.back().into_iter().flat_map(|(_, s)| s).filter(|((name, _), _)| name == metric.name);
        series.map(|((_, labels), value)| (by.map(|label| labels.get(label).cloned().unwrap_or_default()), *value)).collect()
    }

    /// What a counter gained in the last minute, summed by one of its labels.
    pub fn gained(&self, metric: Metric, by: &str) -> BTreeMap<String, f64> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some((_, first)), Some((_, last))) = (kept.front(), kept.back()) else { return BTreeMap::new() };
        let before = summed(first, metric, by);
        let gain = |(label, now): (String, f64)| {
            let had = before.get(&label).copied().unwrap_or_default();
            (label, (now - had).max(0.0))
        };
        summed(last, metric, by).into_iter().map(gain).collect()
    }

    /// What a counter gains a second, over the last minute.
    pub fn rate(&self, metric: Metric, by: &str) -> BTreeMap<String, f64> {
        let span = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            match (kept.front(), kept.back()) {
                (Some((first, _)), Some((last, _))) => last.duration_since(*first).as_secs_f64(),
                _ => 0.0,
            }
        };
        if span <= 0.0 {
            return BTreeMap::new();
        }
        self.gained(metric, by).into_iter().map(|(label, gain)| (label, gain / span)).collect()
    }
}

impl Drop for Rates {
    fn drop(&mut self) {
        self.alive = Arc::new(());
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn sample(registry: &Registry) -> Sample {
    let mut sample = Sample::new();
    for family in registry.gather() {
        for m in family.get_metric() {
            let labels = m.get_label().iter().map(|l| (l.name().to_owned(), l.value().to_owned())).collect();
            // One of the two is zero.
            let value = m.get_counter().get_value() + m.get_gauge().get_value();
            sample.insert((family.name().to_owned(), labels), value);
        }
    }
    sample
}

fn summed(sample: &Sample, metric: Metric, by: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for ((_, labels), value) in sample.iter().filter(|((name, _), _)| name == metric.name) {
        *sums.entry(labels.get(by).cloned().unwrap_or_default()).or_default() += value;
    }
    sums
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, IntGaugeVec, Opts};

    use super::*;
    use crate::events;

    /// If this broke, the overview would show a rate or a number of calls that no metric has.
    #[test]
    fn counters_are_rates_and_gauges_stand() {
        let registry = Registry::new();
        let read = events::RECORDS_READ;
        let records = IntCounterVec::new(Opts::new(read.name, read.help), read.labels).expect("a counter");
        let calls = events::TARGET_CALLS;
        let running = IntGaugeVec::new(Opts::new(calls.name, calls.help), calls.labels).expect("a gauge");
        registry.register(Box::new(records.clone())).expect("registers");
        registry.register(Box::new(running.clone())).expect("registers");
        records.with_label_values(&["orders", "orders-000"]).inc_by(7);
        let rates = Rates::start(registry.clone());
        records.with_label_values(&["orders", "orders-000"]).inc_by(30);
        records.with_label_values(&["orders", "orders-001"]).inc_by(30);
        running.with_label_values(&["shop"]).set(3);
        let later = (Instant::now() + Duration::from_secs(30), sample(&registry));
        rates.kept.lock().expect("held").push_back(later);
        assert_eq!(rates.gained(read, "unit")["orders"], 60.0);
        let rate = rates.rate(read, "unit")["orders"];
        assert!((1.9..=2.1).contains(&rate), "{rate}");
        assert_eq!(rates.gauge(calls, "target")["shop"], 3.0);
    }
}
