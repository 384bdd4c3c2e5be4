//! Runs planned sub-topologies by hand: records in, records out, internal topics fed back. One partition a task, no cluster.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use crate::dsl::Application;
use crate::ids::{Partition, TaskId, TopicName, Tp, partition_of};
use crate::kafka::{KResult, Wake};
use crate::offset::Offset;
use crate::processor::BadRecords;
use crate::record::{Headers, InRecord, OutRecord};
use crate::state::{CacheBudget, TaskStores};
use crate::task::{CountDropped, Dropped, Emit, StartAt, Task, TaskError, TaskSeed, TxCx};
use crate::time::{Clock, ManualClock, Now, WallTime};
use crate::topology::{Environments, Layout};

/// A record that was written.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Written {
    pub(crate) topic: String,
    pub(crate) partition: Option<i32>,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) timestamp: Option<WallTime>,
    pub(crate) headers: Headers,
}

impl Written {
    pub(crate) fn text(&self) -> String {
        let show = |b: &Option<Bytes>| b.as_ref().map_or("null".into(), |b| String::from_utf8_lossy(b).into_owned());
        format!("{}={}", show(&self.key), show(&self.value))
    }
}

#[derive(Default)]
struct Recorder(Vec<Written>);

impl Emit for Recorder {
    fn emit(&mut self, r: OutRecord<'_>) -> KResult<()> {
        self.0.push(Written {
            topic: r.topic.to_string(),
            partition: r.partition.map(|p| p.0),
            key: r.key.map(Bytes::copy_from_slice),
            value: r.value.map(Bytes::copy_from_slice),
            timestamp: r.timestamp,
            headers: r.headers.cloned().unwrap_or_default(),
        });
        Ok(())
    }
}

struct Running {
    task: Box<dyn Task>,
    stores: TaskStores,
    sources: Vec<TopicName>,
    partition: i32,
}

pub(crate) struct Harness {
    tasks: Vec<Running>,
    layout: Arc<Layout>,
    internal: Vec<TopicName>,
    clock: Arc<ManualClock>,
    offset: i64,
    dropped: Arc<Mutex<BTreeMap<(String, &'static str), u64>>>,
    pub(crate) out: Vec<Written>,
}

impl Harness {
    pub(crate) fn new(app: &Application, partitions: u32) -> Self {
        Self::over(app, |_| partitions)
    }

    /// With a partition count for each topic of the user.
    pub(crate) fn over(app: &Application, partitions: impl Fn(&str) -> u32) -> Self {
        let counts: BTreeMap<_, _> =
            app.topology.external_sources().into_iter().map(|t| (t.clone(), partitions(t.as_str()))).collect();
        let layout = Arc::new(app.topology.layout(&counts, None).expect("a layout"));
        let bad = app.dead_letters.clone().map_or(BadRecords::Fail, BadRecords::DeadLetter);
        let plans = app.topology.plan(
            &layout,
            &Environments {
                avro: None,
                bad,
                start: StartAt::Earliest,
                globals: Default::default(),
                record_cache: CacheBudget::new(1 << 20),
            },
        );
        let clock = Arc::new(ManualClock::default());
        let dropped = Arc::<Mutex<BTreeMap<(String, &'static str), u64>>>::default();
        let counted = dropped.clone();
        let count: CountDropped = Arc::new(move |step, why| {
            *counted.lock().expect("nobody panicked").entry((step.to_owned(), why.label())).or_default() += 1;
        });
        let mut tasks = Vec::new();
        for plan in &plans {
            let partitions = plan.sources.iter().filter_map(|s| layout.partitions.get(&s.topic)).max().copied();
            for p in 0..partitions.unwrap_or(1) as i32 {
                let id = TaskId { subtopology: plan.id, partition: Partition(p) };
                let seed = TaskSeed { id, wake: Wake::none(), clock: clock.clone(), assignment: 1, dropped: count.clone() };
                let mut stores = TaskStores::in_memory(Partition(p), plan.stores.clone());
                let mut task = (plan.build)(seed).expect("a task");
                let mut out = Recorder::default();
                task.restored(&mut TxCx::new(clock.now(), &mut out, &mut stores)).expect("restored");
                let sources = plan.sources.iter().map(|s| s.topic.clone()).collect();
                tasks.push(Running { task, stores, sources, partition: p });
            }
        }
        let internal = layout.partitions.keys().filter(|t| app.topology.is_internal(t)).cloned().collect();
        Self { tasks, layout, internal, clock, offset: 0, dropped, out: Vec::new() }
    }

    /// Feeds one record and everything that it leads to, then commits.
    pub(crate) fn feed(&mut self, topic: &str, key: Option<&str>, value: Option<&str>) -> Result<(), TaskError> {
        let key = key.map(|k| Bytes::copy_from_slice(k.as_bytes()));
        let value = value.map(|v| Bytes::copy_from_slice(v.as_bytes()));
        self.feed_bytes(topic, key, value, Headers::new())
    }

    pub(crate) fn feed_bytes(
        &mut self,
        topic: &str,
        key: Option<Bytes>,
        value: Option<Bytes>,
        headers: Headers,
    ) -> Result<(), TaskError> {
        let at = Some(WallTime(self.offset * 1_000));
        self.feed_whole(topic, key, value, headers, at)
    }

    /// Feeds one record of this time, in milliseconds.
    pub(crate) fn feed_at(&mut self, topic: &str, key: &str, value: &str, at: i64) -> Result<(), TaskError> {
        let bytes = |s: &str| Some(Bytes::copy_from_slice(s.as_bytes()));
        self.feed_whole(topic, bytes(key), bytes(value), Headers::new(), Some(WallTime(at)))
    }

    pub(crate) fn feed_whole(
        &mut self,
        topic: &str,
        key: Option<Bytes>,
        value: Option<Bytes>,
        headers: Headers,
        at: Option<WallTime>,
    ) -> Result<(), TaskError> {
        self.drain([Written { topic: topic.into(), partition: None, key, value, timestamp: at, headers }].into())
    }

    /// Feeds records that are all there before anything that they lead to is read: topic, key, value, time.
    pub(crate) fn feed_together(&mut self, records: &[(&str, &str, Option<&str>, i64)]) {
        let bytes = |s: &str| Bytes::copy_from_slice(s.as_bytes());
        let record = |(topic, key, value, at): &(&str, &str, Option<&str>, i64)| Written {
            topic: (*topic).into(),
            partition: None,
            key: Some(bytes(key)),
            value: value.map(bytes),
            timestamp: Some(WallTime(*at)),
            headers: Headers::new(),
        };
        self.drain(records.iter().map(record).collect()).expect("processed");
    }

    fn drain(&mut self, mut queue: VecDeque<Written>) -> Result<(), TaskError> {
        while let Some(w) = queue.pop_front() {
            let topic = TopicName::new(&w.topic);
            let n = self.layout.partitions.get(&topic).copied().unwrap_or(1);
            let p = w.partition.unwrap_or_else(|| partition_of(w.key.as_deref().unwrap_or_default(), n).0);
            let record = InRecord {
                tp: Tp { topic: topic.clone(), partition: Partition(p) },
                offset: Offset(self.offset),
                timestamp: w.timestamp,
                key: w.key,
                value: w.value,
                headers: w.headers,
            };
            self.offset += 1;
            let Some(t) = self.tasks.iter_mut().find(|t| t.partition == p && t.sources.contains(&topic)) else { continue };
            let mut out = Recorder::default();
            let mut cx = TxCx::new(self.clock.now(), &mut out, &mut t.stores);
            t.task.process(record, &mut cx)?;
            t.task.before_commit(&mut cx)?;
            t.stores.committed(&|_| None).expect("committed");
            t.task.committed(self.clock.now());
            let (inner, outer): (Vec<_>, Vec<_>) =
                out.0.into_iter().partition(|w| self.internal.iter().any(|t| t.as_str() == w.topic));
            queue.extend(inner);
            self.out.extend(outer);
        }
        Ok(())
    }

    /// Lets time pass and wakes who wants it.
    pub(crate) fn advance(&mut self, d: Duration) {
        self.clock.advance(d);
        let now: Now = self.clock.now();
        for t in &mut self.tasks {
            if t.task.wants_wake(now) {
                let mut out = Recorder::default();
                let mut cx = TxCx::new(now, &mut out, &mut t.stores);
                t.task.wake(now, &mut cx).expect("wake");
                t.task.before_commit(&mut cx).expect("before the commit");
                t.stores.committed(&|_| None).expect("committed");
                self.out.extend(out.0);
            }
        }
    }

    /// Takes the open transaction of every task back and restores, as the runtime does.
    pub(crate) fn abort(&mut self) {
        for t in &mut self.tasks {
            t.stores.aborted();
            t.task.aborted();
            let mut out = Recorder::default();
            t.task.restored(&mut TxCx::new(self.clock.now(), &mut out, &mut t.stores)).expect("restored");
        }
    }

    /// How many records a step gave up for this reason.
    pub(crate) fn dropped(&self, step: &str, why: Dropped) -> u64 {
        self.dropped.lock().expect("nobody panicked").get(&(step.to_owned(), why.label())).copied().unwrap_or(0)
    }

    /// Makes all tasks anew over what their stores have committed, as a restart does.
    pub(crate) fn restart(&mut self) {
        self.abort();
    }

    /// How many entries a topic's changelog would leave: the newest of each key that is no tombstone.
    pub(crate) fn left_of(&self, topic: &str) -> usize {
        let mut left = BTreeMap::new();
        for w in self.out.iter().filter(|w| w.topic == topic) {
            left.insert(w.key.clone(), w.value.is_some());
        }
        left.values().filter(|there| **there).count()
    }
    /// `key=value@time` of what was written to a topic since the last look, in order.
    pub(crate) fn take(&mut self, topic: &str) -> Vec<String> {
        let (found, rest) = std::mem::take(&mut self.out).into_iter().partition(|w| w.topic == topic);
        self.out = rest;
        let at = |w: &Written| w.timestamp.map_or("-".to_owned(), |t| t.0.to_string());
        Vec::<Written>::into_iter(found).map(|w| format!("{}@{}", w.text(), at(&w))).collect()
    }

    /// `key=value` of what was written to a topic, in order.
    pub(crate) fn texts(&self, topic: &str) -> Vec<String> {
        self.out.iter().filter(|w| w.topic == topic).map(Written::text).collect()
    }
}
