use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::ids::UnitName;
use crate::kafka::{Assigned, Input, KafkaFault, Reading, Revoked, SlotMark, Source, TxSink};
use crate::time::{ManualClock, Now};

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

fn revoked(source: &mut MemorySource) -> Revoked {
    match source.next() {
        Some(Input::Revoked(r)) => r,
        other => panic!("no revoke but {other:?}"),
    }
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

/// If this broke, tasks of one partition number could land on different members, or a member's start would not spread the work.
#[test]
fn a_newcomer_gets_its_share_only_after_the_others_gave_back() {
    let w = world();
    let mut first = w.source(0);
    assert_eq!(take(&mut first), [Tp::new("in", 0), Tp::new("in", 1)]);
    let mut second = w.source(1);
    assert!(second.next().is_none(), "the first still holds everything");
    let going = revoked(&mut first);
    assert!(second.next().is_none());
    assert!(first.next().is_none(), "nothing is read while a revoke is pending");
    first.released(&going).expect("released");
    assert_eq!(take(&mut first), [Tp::new("in", 0)]);
    assert_eq!(take(&mut second), [Tp::new("in", 1)]);
}

/// If this broke, a restart in the same slot would cost the whole group a rebalance, or two members could hold one slot.
#[test]
fn a_static_member_that_comes_back_takes_its_place() {
    let w = world();
    let (mut first, mut second) = (w.source(0), w.source(1));
    take_both(&mut first, &mut second);
    let mut back = w.source(1);
    assert_eq!(take(&mut back), [Tp::new("in", 1)]);
    assert!(!matches!(first.next(), Some(Input::Revoked(_))), "the others see nothing");
    match second.next() {
        Some(Input::Fault(f)) => assert_eq!(f.class, Class::SlotTaken),
        other => panic!("{other:?}"),
    }
}

/// Lets members answer the group until all have what is theirs.
fn take_both(first: &mut MemorySource, second: &mut MemorySource) {
    for _ in 0..3 {
        take_any(first);
        take_any(second);
    }
}

/// Follows the group until there is nothing to answer.
fn take_any(source: &mut MemorySource) {
    loop {
        match source.next() {
            Some(Input::Assigned(a)) => confirm(source, &a),
            Some(Input::Revoked(r) | Input::Lost(r)) => source.released(&r).expect("released"),
            Some(Input::Drained(_)) => {}
            _ => return,
        }
    }
}

/// If this broke, a member that stood still past its session would go on as if it owned its partitions.
#[test]
fn a_silent_member_is_expelled_and_told_that_all_is_lost() {
    let w = world();
    let (mut first, mut second) = (w.source(0), w.source(1));
    take_both(&mut first, &mut second);
    let stale = second.stamp().expect("stamped");
    w.advance(10);
    take_any(&mut first);
    w.advance(10);
    take_any(&mut first);
    assert_eq!(w.cluster.admin().expect("made").members(&slot(0).group).expect("listed").len(), 1);
    let lost = match second.next() {
        Some(Input::Lost(lost)) => lost,
        other => panic!("{other:?}"),
    };
    assert_eq!(lost.partitions, [Tp::new("in", 1)]);
    let mut sink = w.sink(1);
    sink.begin().expect("begun");
    assert_eq!(class(sink.offsets(&[(Tp::new("in", 1), NextOffset(5))], &SlotMark::default(), &stale)), Class::Abort);
    assert_eq!(class(sink.commit(LIMIT)), Class::Abort, "only an abort helps");
    sink.abort(LIMIT).expect("aborted");
    sink.begin().expect("and the producer goes on");
    second.released(&lost).expect("released");
    take_both(&mut first, &mut second);
    assert!(second.position(&Tp::new("in", 1)).is_some(), "it is back");
}

/// If this broke, one member that never gives back would stop the whole group for good.
#[test]
fn a_member_that_never_gives_back_is_expelled() {
    let w = world();
    let mut stuck = w.source(0);
    take(&mut stuck);
    let mut second = w.source(1);
    let going = revoked(&mut stuck);
    for _ in 0..7 {
        w.advance(10);
        assert!(stuck.next().is_none());
        take_any(&mut second);
    }
    assert!(second.position(&Tp::new("in", 0)).is_some() && second.position(&Tp::new("in", 1)).is_some());
    stuck.released(&going).expect("released at last");
    take_both(&mut second, &mut stuck);
    assert!(stuck.position(&Tp::new("in", 0)).is_some(), "and joins anew");
}

/// If this broke, a former owner could commit offsets with metadata of an older generation; ownership itself no broker checks.
#[test]
fn offsets_are_checked_by_generation_but_not_by_owner() {
    let w = world();
    let mut first = w.source(0);
    take_any(&mut first);
    let old = first.stamp().expect("stamped");
    let mut second = w.source(1);
    take_both(&mut first, &mut second);
    let fresh = first.stamp().expect("stamped");
    let mut sink = w.sink(0);
    let foreign = [(Tp::new("in", 1), NextOffset(3))];
    sink.begin().expect("begun");
    assert_eq!(class(sink.offsets(&foreign, &SlotMark::default(), &old)), Class::Abort);
    sink.abort(LIMIT).expect("aborted");
    sink.begin().expect("begun");
    sink.offsets(&foreign, &SlotMark("app-000".into()), &fresh).expect("accepted");
    assert_eq!(class(second.committed(&[Tp::new("in", 1)], Isolation::Committed)), Class::Blocked);
    let seen = second.committed(&[Tp::new("in", 1)], Isolation::Uncommitted).expect("answered");
    assert_eq!(seen[0].1, None, "the old position, at once");
    sink.commit(LIMIT).expect("committed");
    let seen = second.committed(&[Tp::new("in", 1)], Isolation::Committed).expect("answered");
    assert_eq!((seen[0].1, seen[0].2.0.as_str()), (Some(NextOffset(3)), "app-000"));
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
    let faults = std::iter::from_fn(|| source.next()).filter(|i| matches!(i, Input::Fault(f) if f.class == Class::Config)).count();
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

/// If this broke, partitions that are added while running would be read by nobody.
#[test]
fn added_partitions_are_assigned() {
    let w = world();
    let mut source = w.source(0);
    take(&mut source);
    w.cluster.add_partitions(&topic("in"), 3);
    let going = revoked(&mut source);
    source.released(&going).expect("released");
    assert_eq!(take(&mut source).len(), 3);
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

/// If this broke, a thread that sleeps would not notice records, or partitions that come.
#[test]
fn readers_are_woken_by_what_concerns_them() {
    let w = world();
    let woken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = woken.clone();
    let wake = Wake::new(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    });
    let mut source = w.cluster.source(&slot(0), &[topic("in")], wake).expect("joins");
    take(&mut source);
    let before = woken.load(std::sync::atomic::Ordering::SeqCst);
    w.publish("out", "k", "not ours");
    assert_eq!(woken.load(std::sync::atomic::Ordering::SeqCst), before);
    w.publish("in", "k", "ours");
    assert!(woken.load(std::sync::atomic::Ordering::SeqCst) > before);
}

/// What every cluster must keep, kept by this one.
mod conformance {
    use super::{Arc, MemoryCluster};

    crate::conformance!(&MemoryCluster::new(Arc::new(crate::time::SystemClock)));
}
