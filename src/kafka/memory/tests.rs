use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::ids::UnitName;
use crate::kafka::{Assigned, Input, KafkaFault, Reading, Revoked, SlotMark, Source, TxSink};
use crate::time::{ManualClock, Now};

mod groups;

const LIMIT: Duration = Duration::from_secs(5);

struct World {
    clock: Arc<ManualClock>,
    cluster: MemoryCluster,
}

fn world() -> World {
    let clock = Arc::new(ManualClock::at(Now::default().plus(Duration::from_secs(1_000_000))));
    let cluster = MemoryCluster::new(clock.clone());
    cluster.create(&topic("in"), 2);
    cluster.create(&topic("out"), 1);
    World { clock, cluster }
}

fn topic(name: &str) -> TopicName {
    TopicName::new(name)
}

fn slot(number: u32) -> Slot {
    Slot { unit: UnitName::new("app"), group: GroupId::new("app"), number }
}

fn out<'a>(topic: &'a TopicName, key: &'a str, value: &'a str) -> OutRecord<'a> {
    OutRecord {
        topic,
        partition: Some(Partition(0)),
        timestamp: None,
        key: Some(key.as_bytes()),
        value: Some(value.as_bytes()),
        headers: None,
    }
}

impl World {
    fn source(&self, n: u32) -> MemorySource {
        self.cluster.source(&slot(n), &[topic("in")], Wake::none()).expect("joins")
    }
    fn sink(&self, n: u32) -> MemorySink {
        let mut sink = self.cluster.sink(&slot(n), TxLimits::default()).expect("made");
        sink.init().expect("initialised");
        sink
    }
    fn publish(&self, to: &str, key: &str, value: &str) {
        self.cluster.publish(&[out(&topic(to), key, value)], LIMIT).expect("published");
    }
    fn shown(&self, of: &str, isolation: Isolation) -> Vec<String> {
        let text = |r: InRecord| String::from_utf8(r.value.unwrap_or_default().to_vec()).expect("text");
        self.cluster.records(&topic(of), isolation).into_iter().map(text).collect()
    }
    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

/// Confirms an assignment from the start of each partition.
fn take(source: &mut MemorySource) -> Vec<Tp> {
    let Some(Input::Assigned(a)) = source.next() else { panic!("no assignment") };
    confirm(source, &a);
    a.partitions
}

fn confirm(source: &mut MemorySource, a: &Assigned) {
    let start: Vec<_> = a.partitions.iter().map(|tp| (tp.clone(), NextOffset(0), Reading::Shared)).collect();
    source.confirm(a, &start).expect("confirmed");
}

fn class<T: std::fmt::Debug>(result: Result<T, KafkaFault>) -> Class {
    result.expect_err("fails").class
}

fn records(source: &mut MemorySource) -> Vec<i64> {
    std::iter::from_fn(|| source.next()).filter_map(|i| if let Input::Record(r) = i { Some(r.offset.0) } else { None }).collect()
}

/// C034: if this broke, markers at the end of a partition would look like records never reached, and draining would never end.
#[test]
fn readers_of_committed_records_pass_markers_and_aborted_records() {
    let w = world();
    let mut sink = w.sink(0);
    for (value, commit) in [("a", true), ("b", false), ("c", true)] {
        sink.begin().expect("begun");
        sink.send(out(&topic("out"), "k", value)).expect("sent");
        if commit { sink.commit(LIMIT).expect("committed") } else { sink.abort(LIMIT).expect("aborted") }
    }
    assert_eq!(w.shown("out", Isolation::Committed), ["a", "c"]);
    assert_eq!(w.shown("out", Isolation::Uncommitted), ["a", "b", "c"]);
    let mut reader = w.cluster.reader(Isolation::Committed).expect("made");
    let tp = Tp::new("out", 0);
    reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assigned");
    while reader.poll(LIMIT).expect("read").is_some() {}
    assert_eq!(reader.position(&tp), Some(NextOffset(6)), "three records, three markers\n{}", w.cluster.dump());
}

/// C035: if this broke, a record after somebody's open transaction would be shown before that transaction's fate is known.
#[test]
fn an_open_transaction_holds_everything_behind_it() {
    let w = world();
    let mut sink = w.sink(0);
    sink.begin().expect("begun");
    sink.send(out(&topic("out"), "k", "open")).expect("sent");
    w.publish("out", "k", "behind");
    assert!(w.shown("out", Isolation::Committed).is_empty());
    sink.commit(LIMIT).expect("committed");
    assert_eq!(w.shown("out", Isolation::Committed), ["open", "behind"]);
}

/// If this broke, a process that was replaced could still commit.
#[test]
fn a_newer_producer_fences_the_older_and_aborts_its_transaction() {
    let w = world();
    let mut old = w.sink(0);
    old.begin().expect("begun");
    old.send(out(&topic("out"), "k", "old")).expect("sent");
    let mut new = w.sink(0);
    assert_eq!(class(old.commit(LIMIT)), Class::Fenced);
    assert_eq!(class(old.init()), Class::Fenced);
    new.begin().expect("begun");
    new.send(out(&topic("out"), "k", "new")).expect("sent");
    new.commit(LIMIT).expect("committed");
    assert_eq!(w.shown("out", Isolation::Committed), ["new"]);
}

/// If this broke, a crash without successor would block readers for ever, or a producer that overslept could still commit.
#[test]
fn a_transaction_that_times_out_is_aborted_and_its_producer_fenced() {
    let w = world();
    let mut sink = w.sink(0);
    sink.begin().expect("begun");
    sink.send(out(&topic("out"), "k", "late")).expect("sent");
    w.publish("out", "k", "behind");
    w.advance(11);
    assert_eq!(w.shown("out", Isolation::Committed), ["behind"]);
    assert_eq!(class(sink.send(out(&topic("out"), "k", "later"))), Class::Fenced);
    w.sink(0).begin().expect("a new one works");
}

/// If this broke, the four fates of a commit without an answer could not be told apart by what is in the log.
#[test]
fn a_lost_answer_leaves_what_it_says() {
    for (fate, shown) in [(LostAnswer::Applied, 1), (LostAnswer::NotApplied, 0), (LostAnswer::Late, 0)] {
        let w = world();
        let mut sink = w.sink(0);
        w.cluster.lose_commit_answer(Some(&slot(0).name()), fate);
        sink.begin().expect("begun");
        sink.send(out(&topic("out"), "k", "v")).expect("sent");
        assert_eq!(class(sink.commit(LIMIT)), Class::OutcomeUnknown);
        assert_eq!(class(sink.begin()), Class::Rebuild, "only a new producer helps");
        w.sink(0);
        assert_eq!(w.cluster.deliver_late(), 0, "the new epoch refuses it");
        assert_eq!(w.shown("out", Isolation::Committed).len(), shown, "{fate:?}");
    }
}

/// If this broke, no test could show what a late commit does to a producer that goes on without a new epoch.
#[test]
fn a_late_commit_arrives_unless_fenced() {
    let w = world();
    let mut sink = w.sink(0);
    w.cluster.lose_commit_answer(None, LostAnswer::Late);
    sink.begin().expect("begun");
    sink.send(out(&topic("out"), "k", "v")).expect("sent");
    assert_eq!(class(sink.commit(LIMIT)), Class::OutcomeUnknown);
    assert_eq!(w.cluster.deliver_late(), 1);
    assert_eq!(w.shown("out", Isolation::Committed), ["v"]);
}

/// If this broke, a restore that trusts the last stable offset of a changelog would look right while a broker's would not be:
/// offsets can be stable before the changelog's marker is written.
#[test]
fn markers_of_one_topic_can_come_later_than_the_offsets() {
    let w = world();
    let mut source = w.source(0);
    take(&mut source);
    let mut sink = w.sink(0);
    w.cluster.hold_markers(HeldMarkers::Topics([topic("out")].into()));
    sink.begin().expect("begun");
    sink.send(out(&topic("out"), "k", "v")).expect("sent");
    sink.offsets(&[(Tp::new("in", 0), NextOffset(1))], &SlotMark::default(), &source.stamp().expect("stamped")).expect("sent");
    sink.commit(LIMIT).expect("committed");
    let at = source.committed(&[Tp::new("in", 0)], Isolation::Committed).expect("stable");
    assert_eq!(at[0].1, Some(NextOffset(1)));
    assert!(w.shown("out", Isolation::Committed).is_empty());
    w.cluster.hold_markers(HeldMarkers::None);
    assert_eq!(w.shown("out", Isolation::Committed), ["v"]);
    assert!(w.cluster.unfinished().is_empty());
}

/// If this broke, a changelog would be restored with values that were overwritten or aborted, or positions would not survive gaps.
#[test]
fn compaction_keeps_the_last_of_each_key_and_all_offsets() {
    let w = world();
    for (k, v) in [("a", "1"), ("b", "1"), ("a", "2")] {
        w.publish("out", k, v);
    }
    let mut sink = w.sink(0);
    sink.begin().expect("begun");
    sink.send(out(&topic("out"), "a", "aborted")).expect("sent");
    sink.abort(LIMIT).expect("aborted");
    w.cluster.compact(&topic("out"));
    assert_eq!(w.shown("out", Isolation::Uncommitted), ["1", "2"]);
    let mut reader = w.cluster.reader(Isolation::Committed).expect("made");
    let tp = Tp::new("out", 0);
    assert_eq!(reader.ends(&tp, Isolation::Committed).expect("answered"), (NextOffset(0), NextOffset(5)));
    reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assigned");
    while reader.poll(LIMIT).expect("read").is_some() {}
    assert_eq!(reader.position(&tp), Some(NextOffset(5)), "past what is gone");
}

/// If this broke, a position whose records are deleted would be read as if nothing were missing.
#[test]
fn deleted_records_are_out_of_range() {
    let w = world();
    for v in ["1", "2", "3"] {
        w.publish("in", "k", v);
    }
    let tp = Tp::new("in", 0);
    w.cluster.admin().expect("made").delete_records(&[(tp.clone(), NextOffset(2))]).expect("deleted");
    let mut source = w.source(0);
    take(&mut source);
    let faults = std::iter::from_fn(|| source.next()).filter(|i| matches!(i, Input::Fault(f) if f.class == Class::Gone)).count();
    assert_eq!(faults, 1, "said once");
    source.seek(&[(tp.clone(), NextOffset(2))]).expect("sought");
    assert_eq!(records(&mut source), [2]);
    assert_eq!(source.ends(&tp).expect("answered"), (NextOffset(2), NextOffset(3)));
}

/// If this broke, a full task would get records that it cannot hold, or a join could not tell an empty input from a slow one.
#[test]
fn split_partitions_are_read_only_when_asked_and_say_when_drained() {
    let w = world();
    w.publish("in", "k", "1");
    let mut source = w.source(0);
    let Some(Input::Assigned(a)) = source.next() else { panic!("no assignment") };
    let (zero, one) = (Tp::new("in", 0), Tp::new("in", 1));
    let start = [(zero.clone(), NextOffset(0), Reading::Split), (one.clone(), NextOffset(0), Reading::Shared)];
    source.confirm(&a, &start).expect("confirmed");
    assert!(matches!(source.next(), Some(Input::Drained(tp)) if tp == one));
    assert!(source.next().is_none());
    assert!(matches!(source.next_of(&zero), Some(Input::Record(_))));
    assert!(matches!(source.next_of(&zero), Some(Input::Drained(tp)) if tp == zero));
    assert!(source.next_of(&zero).is_none());
    w.publish("in", "k", "2");
    assert!(matches!(source.next_of(&zero), Some(Input::Record(_))));
}

/// If this broke, an outage of the broker could not be played: commits must end unclear, and what was there must be there again.
#[test]
fn a_broker_that_is_away_answers_nobody_and_forgets_nothing() {
    let w = world();
    w.publish("in", "k", "1");
    let mut source = w.source(0);
    take(&mut source);
    let mut sink = w.sink(0);
    sink.begin().expect("begun");
    sink.send(out(&topic("out"), "k", "v")).expect("sent");
    w.cluster.set_down(true);
    assert!(source.next().is_none());
    assert_eq!(class(sink.send(out(&topic("out"), "k", "w"))), Class::Retry);
    assert_eq!(class(sink.commit(LIMIT)), Class::OutcomeUnknown);
    w.cluster.set_down(false);
    w.sink(0);
    assert!(w.shown("out", Isolation::Committed).is_empty());
    assert_eq!(records(&mut source), [0]);
}

/// If this broke, a planned fault would hit another slot than the one it was meant for.
#[test]
fn planned_faults_hit_whom_they_name() {
    let w = world();
    let (mut a, mut b) = (w.sink(0), w.sink(1));
    w.cluster.fail_next(Call::Commit, Some(&slot(1).name()), Class::Abort);
    for sink in [&mut a, &mut b] {
        sink.begin().expect("begun");
        sink.send(out(&topic("out"), "k", "v")).expect("sent");
    }
    a.commit(LIMIT).expect("not meant");
    assert_eq!(class(b.commit(LIMIT)), Class::Abort);
    b.abort(LIMIT).expect("aborted");
    assert_eq!(w.shown("out", Isolation::Committed).len(), 1);
}

/// What every cluster must keep, kept by this one.
mod conformance {
    use super::{Arc, MemoryCluster};

    crate::conformance!(&MemoryCluster::new(Arc::new(crate::time::SystemClock)));
}
