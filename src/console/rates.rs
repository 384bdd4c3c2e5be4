//! What members measure of themselves, as pages show it: gauges as they stand, counters as rates over the last minute.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prometheus::Registry;

use crate::events::{self, Metric};

use super::peers::Peers;

/// What pages show of it; of all else nothing is kept.
const SHOWN: [Metric; 12] = [
    events::RECORDS_READ,
    events::ADMITTED,
    events::EFFECTS_ATTEMPTS,
    events::EFFECTS_READBACKS,
    events::EFFECTS_ENDS,
    events::ABORTS,
    events::TARGET_CALLS,
    events::TARGET_LIMIT,
    events::TARGET_BREAKER,
    events::TARGET_REMAINING,
    events::TARGET_CLOSED,
    events::OPEN_SECONDS,
];

/// A series: its metric's name and its labels' values.
pub type Series = (String, BTreeMap<String, String>);
/// All series of a moment.
pub type Sample = BTreeMap<Series, f64>;
/// The label that tells the address of the member that a series is of, where members were asked.
pub const INSTANCE: &str = "instance";

/// Between samples, and how many are kept: rates are over a minute.
const EVERY: Duration = Duration::from_secs(5);
const KEPT: usize = 13;

/// Whose metrics are sampled.
pub enum Source {
    /// Those of the process that serves the console.
    Own(Registry),
    /// Those of members, asked at their `/metrics`.
    Peers(Peers),
}

/// Who was asked for a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// This process.
    Itself,
    /// Members: the addresses of those that answered, and why the others did not.
    Members {
        /// Those that answered.
        answered: Vec<String>,
        /// Those that did not, with the reason.
        silent: Vec<(String, String)>,
    },
}

struct Look {
    at: Instant,
    asked: Asked,
    sample: Sample,
}

/// Samples of metrics; ends when dropped.
pub struct Rates {
    kept: Arc<Mutex<VecDeque<Look>>>,
    thread: Option<JoinHandle<()>>,
    alive: Arc<()>,
}

impl Rates {
    /// Starts to sample. Members are first asked by the thread: who starts a console does not wait for those that are away.
    pub fn start(source: Source) -> Self {
        let first = match &source {
            Source::Own(registry) => VecDeque::from([Look { at: Instant::now(), asked: Asked::Itself, sample: sample(registry) }]),
            Source::Peers(_) => VecDeque::new(),
        };
        let kept = Arc::new(Mutex::new(first));
        let alive = Arc::new(());
        let (to, watched) = (kept.clone(), Arc::downgrade(&alive));
        let thread = std::thread::Builder::new().name("rates".into()).spawn(move || {
            if let Source::Own(_) = source {
                std::thread::park_timeout(EVERY);
            }
            while watched.upgrade().is_some() {
                let (asked, sample) = match &source {
                    Source::Own(registry) => (Asked::Itself, sample(registry)),
                    Source::Peers(peers) => peers.ask(),
                };
                let mut kept = to.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(Look { at: Instant::now(), asked, sample });
                if kept.len() > KEPT {
                    kept.pop_front();
                }
                drop(kept);
                std::thread::park_timeout(EVERY);
            }
        });
        Self { kept, thread: thread.ok(), alive }
    }

    /// Who was asked last; `None`: nobody yet.
    pub fn asked(&self) -> Option<Asked> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).back().map(|look| look.asked.clone())
    }

    /// A gauge as it stands, summed by one of its labels.
    pub fn gauge(&self, metric: Metric, by: &str) -> BTreeMap<String, f64> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.back().map(|look| summed(&look.sample, metric, by)).unwrap_or_default()
    }

    /// The least of a gauge as it stands, by two of its labels.
    pub fn least(&self, metric: Metric, by: [&str; 2]) -> BTreeMap<[String; 2], f64> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut least = BTreeMap::new();
        for (labels, value) in kept.back().into_iter().flat_map(|look| series(&look.sample, metric)) {
            let place = by.map(|label| labels.get(label).cloned().unwrap_or_default());
            least.entry(place).and_modify(|has: &mut f64| *has = has.min(value)).or_insert(value);
        }
        least
    }

    /// What a counter gained in the last minute, summed by one of its labels.
    pub fn gained(&self, metric: Metric, by: &str) -> BTreeMap<String, f64> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = BTreeMap::new();
        for (before, after) in kept.iter().zip(kept.iter().skip(1)) {
            for (labels, value) in series(&after.sample, metric) {
                let gain = gain(before, labels, value, metric);
                *sums.entry(labels.get(by).cloned().unwrap_or_default()).or_default() += gain;
            }
        }
        sums
    }

    /// What a counter gains a second, over the last minute.
    pub fn rate(&self, metric: Metric, by: &str) -> BTreeMap<String, f64> {
        let span = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            match (kept.front(), kept.back()) {
                (Some(first), Some(last)) => last.at.duration_since(first.at).as_secs_f64(),
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

/// Whether pages show this metric.
pub fn is_shown(name: &str) -> bool {
    SHOWN.iter().any(|m| m.name == name)
}

fn sample(registry: &Registry) -> Sample {
    let mut sample = Sample::new();
    for family in registry.gather().iter().filter(|f| is_shown(f.name())) {
        for m in family.get_metric() {
            let labels = m.get_label().iter().map(|l| (l.name().to_owned(), l.value().to_owned())).collect();
            // One of the two is zero.
            let value = m.get_counter().get_value() + m.get_gauge().get_value();
            sample.insert((family.name().to_owned(), labels), value);
        }
    }
    sample
}

fn series(sample: &Sample, metric: Metric) -> impl Iterator<Item = (&BTreeMap<String, String>, f64)> {
    sample.iter().filter(move |((name, _), _)| name == metric.name).map(|((_, labels), value)| (labels, *value))
}

/// What one series of a counter gained since the sample before: all that it has where it is new or its process began anew; nothing where
/// its member was not heard then, since nobody knows how much of it is older.
fn gain(before: &Look, labels: &BTreeMap<String, String>, value: f64, metric: Metric) -> f64 {
    let heard = match &before.asked {
        Asked::Itself => true,
        Asked::Members { answered, .. } => labels.get(INSTANCE).is_some_and(|i| answered.contains(i)),
    };
    let had = before.sample.get(&(metric.name.to_owned(), labels.clone())).copied().unwrap_or_default();
    match heard {
        true if value >= had => value - had,
        true => value,
        false => 0.0,
    }
}

fn summed(sample: &Sample, metric: Metric, by: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (labels, value) in series(sample, metric) {
        *sums.entry(labels.get(by).cloned().unwrap_or_default()).or_default() += value;
    }
    sums
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, IntGaugeVec, Opts};

    use super::*;

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
        let rates = Rates::start(Source::Own(registry.clone()));
        records.with_label_values(&["orders", "orders-000"]).inc_by(30);
        records.with_label_values(&["orders", "orders-001"]).inc_by(30);
        running.with_label_values(&["shop"]).set(3);
        let later = Look { at: Instant::now() + Duration::from_secs(30), asked: Asked::Itself, sample: sample(&registry) };
        rates.kept.lock().expect("held").push_back(later);
        assert_eq!(rates.gained(read, "unit")["orders"], 60.0);
        let rate = rates.rate(read, "unit")["orders"];
        assert!((1.9..=2.1).contains(&rate), "{rate}");
        assert_eq!(rates.gauge(calls, "target")["shop"], 3.0);
    }

    /// If this broke, a member that was away for a moment, or was started anew, would be shown as a burst, or as a loss.
    #[test]
    fn a_member_that_was_not_heard_or_began_anew_makes_no_burst() {
        let look = |of: &[(&str, f64)]| Look {
            at: Instant::now(),
            asked: Asked::Members { answered: of.iter().map(|(i, _)| (*i).to_owned()).collect(), silent: Vec::new() },
            sample: of
                .iter()
                .map(|(i, n)| {
                    let labels = [(INSTANCE.to_owned(), (*i).to_owned()), ("unit".to_owned(), "orders".to_owned())].into();
                    ((events::RECORDS_READ.name.to_owned(), labels), *n)
                })
                .collect(),
        };
        let kept = VecDeque::from([
            look(&[("a", 1_000.0), ("b", 5_000.0)]),
            look(&[("a", 1_010.0)]),
            look(&[("a", 3.0), ("b", 5_100.0)]),
            look(&[("a", 4.0), ("b", 5_107.0)]),
        ]);
        let rates = Rates { kept: Arc::new(Mutex::new(kept)), thread: None, alive: Arc::new(()) };
        let gained = rates.gained(events::RECORDS_READ, "unit");
        assert_eq!(gained["orders"], 10.0 + 3.0 + 1.0 + 7.0);
    }
}
