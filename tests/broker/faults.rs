//! What the client does when things break. Each case ends with what a read_committed reader sees.

use std::collections::BTreeMap;
use std::time::Duration;

use readback::ids::{GroupId, Partition, TopicName, Tp, UnitName};
use readback::kafka::rdkafka::{RdCluster, RdSink, RdSource};
use readback::kafka::{
    Class, Cluster, Input, Isolation, KResult, NewTopic, Reading, Slot, SlotMark, Source, TxLimits, TxSink, Wake,
};
use readback::offset::NextOffset;
use readback::record::OutRecord;

use crate::{shared, until};

pub const LIMIT: Duration = Duration::from_secs(30);

pub fn topic(c: &RdCluster, name: &str) -> TopicName {
    let name = TopicName::from(format!("{name}-{}", uuid::Uuid::new_v4().simple()));
    let new = NewTopic { name: name.clone(), partitions: 1, replication: 1, config: BTreeMap::new() };
    c.admin().expect("admin").create(&[new]).expect("create");
    name
}

/// Topic, unit and group of one name each: nothing is shared between tests.
pub fn slot(topic: &TopicName) -> Slot {
    Slot { unit: UnitName::new(topic.as_str()), group: GroupId::new(topic.as_str()), number: 0 }
}

fn retried<T>(what: &str, mut f: impl FnMut() -> KResult<T>) -> T {
    until(what, || match f() {
        Ok(done) => Some(done),
        Err(e) if matches!(e.class, Class::Retry | Class::Blocked) => None,
        Err(e) => panic!("{what}: {e}"),
    })
}

pub fn sink(c: &RdCluster, slot: &Slot, limits: TxLimits) -> RdSink {
    let mut sink = c.sink(slot, limits).expect("a sink");
    retried("init", || sink.init());
    sink
}

pub fn source(c: &RdCluster, slot: &Slot, topic: &TopicName) -> RdSource {
    let mut source = c.source(slot, std::slice::from_ref(topic), Wake::none()).expect("a source");
    let assigned = until("an assignment", || match source.next() {
        Some(Input::Assigned(a)) => Some(a),
        _ => None,
    });
    let start: Vec<_> = assigned.partitions.iter().map(|tp| (tp.clone(), NextOffset(0), Reading::Shared)).collect();
    source.confirm(&assigned, &start).expect("confirm");
    source
}

fn record<'a>(topic: &'a TopicName, value: &'a [u8]) -> OutRecord<'a> {
    OutRecord { topic, partition: Some(Partition(0)), timestamp: None, key: None, value: Some(value), headers: None }
}

/// How many records a read_committed reader sees.
pub fn seen(c: &RdCluster, topic: &TopicName) -> usize {
    let tp = Tp::new(topic.clone(), 0);
    let mut reader = c.reader(Isolation::Committed).expect("a reader");
    reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assign");
    let end = until("no open transaction is left", || {
        let (_, stable) = reader.ends(&tp, Isolation::Committed).ok()?;
        let (_, high) = reader.ends(&tp, Isolation::Uncommitted).ok()?;
        (stable == high).then_some(high)
    });
    let mut count = 0;
    until("the end", || {
        while reader.poll(Duration::from_millis(50)).ok()?.is_some() {
            count += 1;
        }
        reader.position(&tp).filter(|at| *at >= end)
    });
    count
}

/// One transaction with a record and an offset, up to its commit.
pub fn prepare(sink: &mut RdSink, source: &mut RdSource, topic: &TopicName, next: i64) {
    sink.begin().expect("begin");
    retried("send", || sink.send(record(topic, b"x")));
    sink.flush(LIMIT).expect("flush");
    let stamp = source.stamp().expect("stamp");
    retried("offsets", || sink.offsets(&[(Tp::new(topic.clone(), 0), NextOffset(next))], &SlotMark::default(), &stamp));
}

pub fn committed(source: &mut RdSource, topic: &TopicName) -> Option<NextOffset> {
    retried("committed", || source.committed(&[Tp::new(topic.clone(), 0)], Isolation::Committed))[0].1
}

/// If this broke, taking work back under load would turn the producer fatal, and every abort would cost a rebuild.
#[test]
fn aborting_with_many_records_under_way_stays_clean() {
    let c = &shared().cluster;
    for reports in [true, false] {
        let topic = topic(c, "abort");
        let mut sink = sink(c, &slot(&topic), TxLimits { reports, ..TxLimits::default() });
        for round in 0..10 {
            sink.begin().expect("begin");
            for _ in 0..10_000 {
                retried("send", || sink.send(record(&topic, b"0123456789")));
            }
            sink.abort(LIMIT).unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
        sink.begin().expect("begin");
        sink.send(record(&topic, b"kept")).expect("send");
        sink.commit(LIMIT).expect("commit");
        assert_eq!(seen(c, &topic), 1);
    }
}

/// If this broke, two processes with one slot would throw each other out in turn, for ever.
#[test]
fn a_second_holder_of_a_slot_shows_as_slot_taken() {
    let c = &shared().cluster;
    let topic = topic(c, "taken");
    let mut first = source(c, &slot(&topic), &topic);
    let mut second = c.source(&slot(&topic), std::slice::from_ref(&topic), Wake::none()).expect("a source");
    until("the first one is told", || {
        second.next();
        match first.next() {
            Some(Input::Fault(e)) if e.class == Class::SlotTaken => Some(()),
            Some(Input::Revoked(r) | Input::Lost(r)) => first.released(&r).ok().filter(|()| false),
            _ => None,
        }
    });
    first.close();
    second.close();
}

/// If this broke, a transaction that the broker ended by its timeout would stop the thread instead of being done again.
#[test]
fn a_timed_out_transaction_is_fenced_and_the_slot_goes_on() {
    let c = &shared().cluster;
    let topic = topic(c, "timeout");
    let limits = TxLimits { transaction: Duration::from_millis(1500), ..TxLimits::default() };
    let mut old = sink(c, &slot(&topic), limits);
    old.begin().expect("begin");
    old.send(record(&topic, b"late")).expect("send");
    old.flush(LIMIT).expect("flush");
    // The reader waits until the broker itself took the transaction back.
    assert_eq!(seen(c, &topic), 0);
    let refused = old.commit(LIMIT).expect_err("the broker has aborted it");
    assert!(matches!(refused.class, Class::Fenced | Class::Rebuild), "{refused}");
    drop(old);
    let mut new = sink(c, &slot(&topic), limits);
    new.begin().expect("begin");
    new.send(record(&topic, b"again")).expect("send");
    new.commit(LIMIT).expect("commit");
    assert_eq!(seen(c, &topic), 1);
}

/// C028: if this broke, a record over the limit would be sent again and again, and the producer would die in a loop.
#[test]
fn c028_a_record_over_the_limit_is_told_apart_and_the_producer_lives() {
    let c = &shared().cluster;
    let topic = topic(c, "large");
    let mut sink = sink(c, &slot(&topic), TxLimits::default());
    sink.begin().expect("begin");
    let large = vec![0; 2_000_000];
    let refused = sink.send(record(&topic, &large)).expect_err("too large");
    assert_eq!(refused.class, Class::Config, "{refused}");
    sink.send(record(&topic, b"instead")).expect("the transaction goes on");
    sink.commit(LIMIT).expect("commit");
    assert_eq!(seen(c, &topic), 1);
}

/// If this broke, closing while a rebalance is pending would hang for ever.
#[test]
fn closing_with_a_pending_rebalance_ends() {
    let c = &shared().cluster;
    let topic = topic(c, "closing");
    let mut first = source(c, &slot(&topic), &topic);
    let other = Slot { number: 1, ..slot(&topic) };
    let mut second = c.source(&other, std::slice::from_ref(&topic), Wake::none()).expect("a source");
    until("a revocation that nobody answers", || {
        second.next();
        matches!(first.next(), Some(Input::Revoked(_))).then_some(())
    });
    first.close();
    second.close();
}
