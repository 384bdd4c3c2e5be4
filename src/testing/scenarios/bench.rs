//! A cluster, a clock and stream threads that are driven by hand: the same on the in-process log and on a real broker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::ids::{ApplicationId, GroupId, Partition, TopicName, Tp, UnitName};
use crate::kafka::{Class, Cluster, Committed, Isolation, KResult, NewTopic, Slot, Source, TxLimits, TxSink, Wake};
use crate::offset::NextOffset;
use crate::record::{InRecord, OutRecord};
use crate::runtime::{Metrics, RuntimeOptions, StreamThread, ThreadSeed};
use crate::state::{StateConfig, StateManager};
use crate::task::{SubtopologyPlan, UnitPlan};
use crate::time::SharedClock;

/// Turns after which a scenario is stuck, and how long it may last by its clock.
const TURNS: u32 = 500_000;
const LIMIT: Duration = Duration::from_secs(90);

/// What a scenario runs on.
#[derive(Clone)]
pub struct Bench<C: Cluster> {
    /// The cluster.
    pub cluster: C,
    /// Its time.
    pub clock: SharedClock,
    /// Lets time pass: moves a manual clock, or sleeps.
    pub pass: Arc<dyn Fn(Duration)>,
    /// Prefix of topics and group, unique on the cluster.
    pub name: String,
    /// Settings of all threads.
    pub options: RuntimeOptions,
}

impl<C: Cluster> Bench<C> {
    /// A topic of this scenario.
    pub fn topic(&self, short: &str) -> TopicName {
        TopicName::from(format!("{}-{short}", self.name))
    }

    /// Creates a topic.
    pub fn create(&self, topic: &TopicName, partitions: u32, config: &[(&str, &str)]) {
        let config: BTreeMap<String, String> = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let new = NewTopic { name: topic.clone(), partitions, replication: -1, config };
        self.cluster.admin().and_then(|a| a.create(&[new])).expect("topic is created");
    }

    /// Writes records, `(key, value)`, to one partition.
    pub fn feed(&self, topic: &TopicName, partition: i32, records: &[(String, String)]) {
        let out: Vec<OutRecord<'_>> = records.iter().map(|(k, v)| record(topic, partition, k, v)).collect();
        self.cluster.publish(&out, Duration::from_secs(10)).expect("records are published");
    }

    /// Writes each slice of records in a transaction of its own, then one that is taken back.
    pub fn feed_in_transactions(&self, topic: &TopicName, partition: i32, transactions: &[&[(String, String)]]) {
        let unit = UnitName::from(format!("{}-writer", self.name));
        let slot = Slot { group: GroupId::from(unit.as_str()), unit, number: 0 };
        let limit = Duration::from_secs(10);
        let mut sink = self.cluster.sink(&slot, TxLimits::default()).expect("a sink");
        crate::testing::conformance::kit::retried("init", || sink.init());
        for records in transactions {
            sink.begin().expect("begin");
            records.iter().for_each(|(k, v)| sink.send(record(topic, partition, k, v)).expect("send"));
            sink.flush(limit).expect("flush");
            sink.commit(limit).expect("commit");
        }
        sink.begin().expect("begin");
        sink.send(record(topic, partition, "k", "taken back")).expect("send");
        sink.abort(limit).expect("abort");
    }

    /// Everything that a topic shows.
    pub fn records(&self, topic: &TopicName, isolation: Isolation) -> Vec<InRecord> {
        let admin = self.cluster.admin().expect("an admin client");
        let partitions = patiently(|| admin.topic(topic)).map_or(0, |t| t.partitions);
        let mut reader = self.cluster.reader(isolation).expect("a reader");
        let mut found = Vec::new();
        for p in 0..partitions {
            let tp = Tp::new(topic.clone(), p as i32);
            let (start, end) = patiently(|| reader.ends(&tp, isolation));
            reader.assign(&[(tp.clone(), start)]).expect("assign");
            for _ in 0..10_000 {
                match patiently(|| reader.poll(Duration::from_millis(100))) {
                    Some(r) => found.push(r),
                    None if reader.position(&tp).is_some_and(|at| at >= end) => break,
                    None => {}
                }
            }
        }
        found
    }

    /// The committed values of a topic, by partition, in order.
    pub fn values(&self, topic: &TopicName, isolation: Isolation) -> BTreeMap<Partition, Vec<String>> {
        let mut values: BTreeMap<Partition, Vec<String>> = BTreeMap::new();
        for r in self.records(topic, isolation) {
            values.entry(r.tp.partition).or_default().push(text(r.value.as_deref()));
        }
        values
    }

    /// How many committed records a topic has.
    pub fn count(&self, topic: &TopicName) -> usize {
        self.records(topic, Isolation::Committed).len()
    }

    /// A unit of these sub-topologies.
    pub fn unit(&self, subtopologies: Vec<SubtopologyPlan>) -> UnitPlan {
        UnitPlan {
            application: ApplicationId::from(self.name.as_str()),
            unit: UnitName::from(self.name.as_str()),
            group: GroupId::from(self.name.as_str()),
            subtopologies,
            topics: Vec::new(),
            flat_gap: false,
        }
    }

    /// A stream thread of the unit in this slot, as a process of its own: with stores of its own.
    pub fn thread(&self, plan: &UnitPlan, number: u32) -> StreamThread<C> {
        let state = StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true }).expect("state");
        self.thread_over(plan, number, &state)
    }

    /// The same, over stores that others had before.
    pub fn thread_over(&self, plan: &UnitPlan, number: u32, state: &StateManager) -> StreamThread<C> {
        let seed = ThreadSeed {
            cluster: self.cluster.clone(),
            slot: Slot { unit: plan.unit.clone(), group: plan.group.clone(), number },
            plan: Arc::new(plan.clone()),
            state: state.clone(),
            clock: self.clock.clone(),
            options: self.options.clone(),
            metrics: Metrics::unread().expect("metrics"),
            wake: Wake::this_thread(),
        };
        StreamThread::new(seed).expect("a thread")
    }

    /// One round of turns; time passes if all are idle.
    pub fn round(&self, threads: &mut [&mut StreamThread<C>]) -> Result<()> {
        let now = self.clock.now();
        let mut until = now.mono.plus(Duration::from_millis(20));
        for thread in threads {
            until = until.min(thread.turn(now)?.until);
        }
        let idle = until.since(self.clock.now().mono);
        if !idle.is_zero() {
            (self.pass)(idle);
        }
        Ok(())
    }

    /// Turns the threads until `done`; looked at once in a while. Panics if it never comes.
    pub fn run(&self, threads: &mut [&mut StreamThread<C>], done: impl FnMut(&[&mut StreamThread<C>]) -> bool) -> Result<()> {
        let came = self.turn_until(threads, done)?;
        assert!(came, "{}: nothing came of it; {}", self.name, told(threads));
        Ok(())
    }

    /// Whether `done` came true within the limits.
    fn turn_until(
        &self,
        threads: &mut [&mut StreamThread<C>],
        mut done: impl FnMut(&[&mut StreamThread<C>]) -> bool,
    ) -> Result<bool> {
        let started = self.clock.now().mono;
        for turn in 0..TURNS {
            self.round(threads)?;
            if turn % 20 == 0 && done(threads) {
                return Ok(true);
            }
            if self.clock.now().mono.since(started) >= LIMIT {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Turns the threads until a topic has this many committed records, and then some, in case there are more.
    pub fn run_until_count(&self, threads: &mut [&mut StreamThread<C>], topic: &TopicName, count: usize) -> Result<()> {
        if !self.turn_until(threads, |_| self.count(topic) >= count)? {
            // Written but not readable: a transaction that nobody ends. Not written: the input stands still.
            let (committed, written) = (self.count(topic), self.records(topic, Isolation::Uncommitted).len());
            panic!("{}: {committed} of {count} records of {topic}, {written} written; {}", self.name, told(threads));
        }
        for _ in 0..50 {
            self.round(threads)?;
        }
        Ok(())
    }

    /// Stops a thread in order.
    pub fn stop(&self, mut thread: StreamThread<C>) {
        thread.stop(self.clock.now()).expect("stops in order");
    }

    /// Where the group stands. Joins the group for the question: not to be asked while threads run.
    pub fn committed(&self, plan: &UnitPlan, tps: &[Tp]) -> Vec<Committed> {
        let slot = Slot { unit: plan.unit.clone(), group: plan.group.clone(), number: 0 };
        let topics: Vec<TopicName> = plan.subtopologies.iter().flat_map(|s| &s.sources).map(|s| s.topic.clone()).collect();
        let mut source = self.cluster.source(&slot, &topics, Wake::none()).expect("a source");
        let committed = source.committed(tps, Isolation::Committed).expect("committed offsets");
        source.close();
        committed
    }

    /// Where a partition ends for readers of committed records, markers included.
    pub fn end(&self, tp: &Tp) -> NextOffset {
        self.cluster.reader(Isolation::Committed).and_then(|mut r| r.ends(tp, Isolation::Committed)).expect("ends").1
    }
}

/// Asks again where that helps, as right after a broker has come back.
fn patiently<T>(mut ask: impl FnMut() -> KResult<T>) -> T {
    let mut left = 100;
    loop {
        match ask() {
            Err(f) if f.class == Class::Retry && left > 0 => std::thread::sleep(Duration::from_millis(50)),
            done => return done.expect("an answer"),
        }
        left -= 1;
    }
}

/// A record of text.
pub fn record<'a>(topic: &'a TopicName, partition: i32, key: &'a str, value: &'a str) -> OutRecord<'a> {
    OutRecord {
        topic,
        partition: Some(Partition(partition)),
        timestamp: None,
        key: Some(key.as_bytes()),
        value: Some(value.as_bytes()),
        headers: None,
    }
}

/// Bytes as text.
pub fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

/// `(key, value)` pairs: `n` numbers from `from`, the keys in turn.
pub fn numbers(from: usize, n: usize, keys: &[&str]) -> Vec<(String, String)> {
    (from..from + n).map(|i| (keys[i % keys.len()].to_owned(), i.to_string())).collect()
}

/// What the threads are at.
fn told<C: Cluster>(threads: &[&mut StreamThread<C>]) -> String {
    let one = |t: &&mut StreamThread<C>| format!("{:?} with {:?}", t.state(), t.running());
    threads.iter().map(one).collect::<Vec<_>>().join(", ")
}
