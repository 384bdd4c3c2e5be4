//! What the promises are stated with.
#![allow(missing_docs, clippy::missing_panics_doc)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::ids::{GroupId, TopicName, Tp, UnitName};
use crate::kafka::{Assigned, Class, Cluster, Input, Isolation, KResult, NewTopic, Reading, Slot, SlotMark};
use crate::kafka::{Source, TxLimits, TxSink, Wake};
use crate::offset::NextOffset;
use crate::record::{InRecord, OutRecord};

/// How long anything may take before a promise counts as broken. No assertion depends on being quick.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// How long nothing must come where nothing may come.
pub const SILENCE: Duration = Duration::from_millis(400);

/// Tries until `f` gives something.
pub fn until<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = f() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Calls until it is not `Retry` or `Blocked` any more.
pub fn retried<T>(what: &str, mut f: impl FnMut() -> KResult<T>) -> T {
    until(what, || match f() {
        Ok(done) => Some(done),
        Err(e) if matches!(e.class, Class::Retry | Class::Blocked) => None,
        Err(e) => panic!("{what}: {e}"),
    })
}

pub fn unique(name: &str) -> String {
    format!("{name}-{}", uuid::Uuid::new_v4().simple())
}

pub fn new_topic<C: Cluster>(c: &C, name: &str, partitions: u32) -> TopicName {
    let name = TopicName::from(unique(name));
    let admin = c.admin().expect("an admin client");
    admin.create(&[NewTopic { name: name.clone(), partitions, replication: 1, config: BTreeMap::new() }]).expect("create");
    until("the topic shows", || admin.topic(&name).expect("topic").filter(|t| t.partitions == partitions));
    name
}

pub fn slot(unit: &str, number: u32) -> Slot {
    Slot { unit: UnitName::new(unit), group: GroupId::new(unit), number }
}

pub fn ready_sink<C: Cluster>(c: &C, slot: &Slot) -> C::Sink {
    let mut sink = c.sink(slot, TxLimits::default()).expect("a sink");
    retried("init", || sink.init());
    sink
}

pub fn record<'a>(topic: &'a TopicName, partition: i32, value: &'a str) -> OutRecord<'a> {
    OutRecord {
        topic,
        partition: Some(crate::ids::Partition(partition)),
        timestamp: None,
        key: None,
        value: Some(value.as_bytes()),
        headers: None,
    }
}

/// Sends and flushes within the open transaction.
pub fn put<S: TxSink>(sink: &mut S, topic: &TopicName, partition: i32, values: &[&str]) {
    for value in values {
        retried("send", || sink.send(record(topic, partition, value)));
    }
    sink.flush(PATIENCE).expect("flush");
}

pub fn commit_values<S: TxSink>(sink: &mut S, topic: &TopicName, partition: i32, values: &[&str]) {
    sink.begin().expect("begin");
    put(sink, topic, partition, values);
    sink.commit(PATIENCE).expect("commit");
}

pub fn text(record: &InRecord) -> String {
    String::from_utf8(record.value.clone().unwrap_or_default().to_vec()).expect("text")
}

/// Reads one partition by `isolation` from its start until nothing came for a while.
pub fn all<C: Cluster>(c: &C, tp: &Tp, isolation: Isolation) -> Vec<String> {
    let mut reader = c.reader(isolation).expect("a reader");
    reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assign");
    let end = retried("ends", || reader.ends(tp, isolation)).1;
    let mut found = Vec::new();
    until("the end is reached", || {
        while let Some(r) = reader.poll(Duration::from_millis(20)).expect("poll") {
            found.push(text(&r));
        }
        reader.position(tp).filter(|p| *p >= end)
    });
    found
}

pub fn wait_assigned<S: Source>(source: &mut S) -> Assigned {
    until("an assignment", || match source.next() {
        Some(Input::Assigned(a)) => Some(a),
        Some(Input::Fault(e)) if e.class != Class::Retry => panic!("{e}"),
        Some(Input::Revoked(r) | Input::Lost(r)) => {
            source.released(&r).expect("released");
            None
        }
        _ => None,
    })
}

/// Joins alone and reads everything from the start.
pub fn joined<C: Cluster>(c: &C, slot: &Slot, topic: &TopicName, reading: Reading) -> C::Source {
    let mut source = c.source(slot, std::slice::from_ref(topic), Wake::none()).expect("a source");
    let assigned = wait_assigned(&mut source);
    confirm_at_start(&mut source, &assigned, reading);
    source
}

pub fn confirm_at_start<S: Source>(source: &mut S, assigned: &Assigned, reading: Reading) {
    let start: Vec<_> = assigned.partitions.iter().map(|tp| (tp.clone(), NextOffset(0), reading)).collect();
    source.confirm(assigned, &start).expect("confirm");
}

pub fn next_record<S: Source>(source: &mut S) -> InRecord {
    until("a record", || match source.next() {
        Some(Input::Record(r)) => Some(r),
        Some(Input::Fault(e)) if e.class != Class::Retry => panic!("{e}"),
        _ => None,
    })
}

pub fn committed_at<S: Source>(source: &mut S, tp: &Tp) -> (Option<NextOffset>, SlotMark) {
    let found = retried("committed", || source.committed(std::slice::from_ref(tp), Isolation::Committed));
    let (_, next, mark) = found.into_iter().next().expect("one entry");
    (next, mark)
}
