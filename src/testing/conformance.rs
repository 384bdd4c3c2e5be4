//! What every [`Cluster`] must keep, whether it is a real broker or the in-process log. Each function is one promise; the macro
//! [`conformance!`](crate::conformance) makes a test of each.
// Test code in a library module: a broken promise panics.
#![allow(missing_docs, clippy::missing_panics_doc)]

pub(crate) mod kit;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use kit::*;

use crate::ids::{GroupId, TopicName, Tp};
use crate::kafka::{Class, Cluster, Input, Isolation, NewTopic, Reading, Revoked, SlotMark};
use crate::kafka::{Source, TxSink, Wake};
use crate::offset::{NextOffset, Offset};
use crate::record::{Header, Headers, InRecord, OutRecord};
use crate::time::WallTime;

/// Makes one test of each promise: `conformance!(expression that gives &impl Cluster)`.
#[macro_export]
macro_rules! conformance {
    ($cluster:expr; $($promise:ident)*) => {$(
        /// See the promise of the same name in `testing::conformance`.
        #[test]
        fn $promise() { $crate::testing::conformance::$promise($cluster); }
    )*};
    ($cluster:expr) => {
        $crate::conformance!($cluster;
            records_are_seen_only_after_the_commit
            aborted_records_are_never_seen
            a_newer_sink_fences_the_older
            fencing_by_name_ends_an_open_transaction
            offsets_belong_to_the_transaction
            pending_offsets_block_committed_readers_only
            a_stale_stamp_is_refused
            position_passes_control_records
            seek_reads_again_after_an_abort
            split_partitions_have_a_queue_of_their_own
            partitions_move_only_after_they_were_given_back
            deleted_records_move_the_start
            positions_are_set_and_groups_and_topics_forgotten
            written_follows_the_acknowledged_records
            records_keep_their_form
            topics_are_created_once_and_described
        );
    };
}

// --- transactions -------------------------------------------------------------------------------------------------------------

/// If this broke, a reader would act on output of a transaction that may still be taken back.
pub fn records_are_seen_only_after_the_commit<C: Cluster>(c: &C) {
    let topic = new_topic(c, "visible", 1);
    let tp = Tp::new(topic.clone(), 0);
    let mut sink = ready_sink(c, &slot(&unique("visible"), 0));
    sink.begin().expect("begin");
    put(&mut sink, &topic, 0, &["a"]);
    assert_eq!(all(c, &tp, Isolation::Committed), Vec::<String>::new());
    assert_eq!(all(c, &tp, Isolation::Uncommitted), ["a"]);
    sink.commit(PATIENCE).expect("commit");
    until("the commit shows", || (all(c, &tp, Isolation::Committed) == ["a"]).then_some(()));
}

/// If this broke, work that was taken back would still have effects downstream.
pub fn aborted_records_are_never_seen<C: Cluster>(c: &C) {
    let topic = new_topic(c, "aborted", 1);
    let tp = Tp::new(topic.clone(), 0);
    let mut sink = ready_sink(c, &slot(&unique("aborted"), 0));
    for round in 0..3 {
        sink.begin().expect("begin");
        // Aborted with messages under way: nothing waits for them before the abort itself does.
        for _ in 0..500 {
            retried("send", || sink.send(record(&topic, 0, "no")));
        }
        sink.abort(PATIENCE).unwrap_or_else(|e| panic!("abort {round}: {e}"));
    }
    commit_values(&mut sink, &topic, 0, &["yes"]);
    until("the commit shows", || (!all(c, &tp, Isolation::Committed).is_empty()).then_some(()));
    assert_eq!(all(c, &tp, Isolation::Committed), ["yes"]);
}

/// If this broke, two owners of one slot could both commit.
pub fn a_newer_sink_fences_the_older<C: Cluster>(c: &C) {
    let topic = new_topic(c, "fenced", 1);
    let tp = Tp::new(topic.clone(), 0);
    let slot = slot(&unique("fenced"), 0);
    let mut older = ready_sink(c, &slot);
    older.begin().expect("begin");
    put(&mut older, &topic, 0, &["older"]);
    let mut newer = ready_sink(c, &slot);
    let refused = older.commit(PATIENCE).expect_err("the older one must not commit");
    assert!(matches!(refused.class, Class::Fenced | Class::Rebuild), "{refused}");
    commit_values(&mut newer, &topic, 0, &["newer"]);
    until("the commit shows", || (!all(c, &tp, Isolation::Committed).is_empty()).then_some(()));
    assert_eq!(all(c, &tp, Isolation::Committed), ["newer"]);
}

/// If this broke, what a dead member left open would block its successor for the whole transaction timeout.
pub fn fencing_by_name_ends_an_open_transaction<C: Cluster>(c: &C) {
    let topic = new_topic(c, "dead", 1);
    let tp = Tp::new(topic.clone(), 0);
    let slot = slot(&unique("dead"), 0);
    let mut dead = ready_sink(c, &slot);
    dead.begin().expect("begin");
    put(&mut dead, &topic, 0, &["half"]);
    retried("fence", || c.fence(&slot.name()));
    let mut reader = c.reader(Isolation::Committed).expect("a reader");
    until("the last stable offset moves", || {
        let (_, stable) = reader.ends(&tp, Isolation::Committed).ok()?;
        let (_, high) = reader.ends(&tp, Isolation::Uncommitted).ok()?;
        (stable == high && high > NextOffset(1)).then_some(())
    });
    assert_eq!(all(c, &tp, Isolation::Committed), Vec::<String>::new());
}

/// If this broke, input would be read again after its output was committed, or skipped after it was taken back.
pub fn offsets_belong_to_the_transaction<C: Cluster>(c: &C) {
    let topic = new_topic(c, "offsets", 1);
    let tp = Tp::new(topic.clone(), 0);
    let slot = slot(&unique("offsets"), 0);
    let mut source = joined(c, &slot, &topic, Reading::Shared);
    let mut sink = ready_sink(c, &slot);
    assert_eq!(committed_at(&mut source, &tp), (None, SlotMark::default()));
    let mark = SlotMark(slot.name().to_string());
    for (offset, commit) in [(7, true), (9, false)] {
        sink.begin().expect("begin");
        let stamp = source.stamp().expect("stamp");
        retried("offsets", || sink.offsets(&[(tp.clone(), NextOffset(offset))], &mark, &stamp));
        match commit {
            true => sink.commit(PATIENCE).expect("commit"),
            false => sink.abort(PATIENCE).expect("abort"),
        }
        assert_eq!(committed_at(&mut source, &tp), (Some(NextOffset(7)), mark.clone()));
    }
    source.close();
}

/// If this broke, a new owner would start from an offset that an open transaction is about to move.
pub fn pending_offsets_block_committed_readers_only<C: Cluster>(c: &C) {
    let topic = new_topic(c, "pending", 1);
    let tp = Tp::new(topic.clone(), 0);
    let slot = slot(&unique("pending"), 0);
    let mut source = joined(c, &slot, &topic, Reading::Shared);
    let mut sink = ready_sink(c, &slot);
    let mark = SlotMark(slot.name().to_string());
    sink.begin().expect("begin");
    let stamp = source.stamp().expect("stamp");
    retried("offsets", || sink.offsets(&[(tp.clone(), NextOffset(3))], &mark, &stamp));
    let blocked = source.committed(std::slice::from_ref(&tp), Isolation::Committed).expect_err("must not answer");
    assert_eq!(blocked.class, Class::Blocked, "{blocked}");
    let old = retried("committed", || source.committed(std::slice::from_ref(&tp), Isolation::Uncommitted));
    assert_eq!(old[0].1, None, "read_uncommitted answers what was before");
    sink.commit(PATIENCE).expect("commit");
    assert_eq!(committed_at(&mut source, &tp).0, Some(NextOffset(3)));
    source.close();
}

// --- membership ---------------------------------------------------------------------------------------------------------------

/// Lets two members of a group settle, both confirming from the start; gives back what each has.
fn settle<S: Source>(members: &mut [&mut S; 2], have: &mut [Vec<Tp>; 2], done: impl Fn(&[Vec<Tp>; 2]) -> bool) {
    until("the group settles", || {
        for (source, have) in members.iter_mut().zip(have.iter_mut()) {
            match source.next() {
                Some(Input::Assigned(a)) => {
                    confirm_at_start(*source, &a, Reading::Shared);
                    have.extend(a.partitions);
                }
                Some(Input::Revoked(r) | Input::Lost(r)) => {
                    source.released(&r).expect("released");
                    have.retain(|tp| !r.partitions.contains(tp));
                }
                Some(Input::Fault(e)) if e.class != Class::Retry => panic!("{e}"),
                _ => {}
            }
        }
        done(have).then_some(())
    });
}

/// If this broke, a member that was left behind could still commit offsets of partitions that it lost.
pub fn a_stale_stamp_is_refused<C: Cluster>(c: &C) {
    let topic = new_topic(c, "stale", 2);
    let tp = Tp::new(topic.clone(), 0);
    let unit = unique("stale");
    let mut first = joined(c, &slot(&unit, 0), &topic, Reading::Shared);
    let stale = first.stamp().expect("stamp");
    let mut second = c.source(&slot(&unit, 1), std::slice::from_ref(&topic), Wake::none()).expect("a source");
    let mut have = [vec![tp.clone(), Tp::new(topic.clone(), 1)], vec![]];
    settle(&mut [&mut first, &mut second], &mut have, |h| h[0].len() == 1 && h[1].len() == 1);

    let mut sink = ready_sink(c, &slot(&unit, 0));
    sink.begin().expect("begin");
    let refused = sink.offsets(&[(tp.clone(), NextOffset(1))], &SlotMark::default(), &stale).expect_err("must be refused");
    assert_eq!(refused.class, Class::Abort, "{refused}");
    sink.abort(PATIENCE).expect("abort");
    sink.begin().expect("the sink goes on");
    let fresh = first.stamp().expect("stamp");
    retried("offsets", || sink.offsets(&[(tp.clone(), NextOffset(1))], &SlotMark::default(), &fresh));
    sink.commit(PATIENCE).expect("commit");
    first.close();
    second.close();
}

/// If this broke, two members would work on one partition at the same time.
pub fn partitions_move_only_after_they_were_given_back<C: Cluster>(c: &C) {
    let topic = new_topic(c, "moves", 2);
    let unit = unique("moves");
    let mut first = joined(c, &slot(&unit, 0), &topic, Reading::Shared);
    let mut second = c.source(&slot(&unit, 1), std::slice::from_ref(&topic), Wake::none()).expect("a source");
    let held: Revoked = until("a revocation", || {
        assert!(!matches!(second.next(), Some(Input::Assigned(a)) if !a.partitions.is_empty()), "assigned before given back");
        match first.next() {
            Some(Input::Revoked(r)) => Some(r),
            _ => None,
        }
    });
    let quiet = Instant::now();
    while quiet.elapsed() < SILENCE {
        assert!(!matches!(second.next(), Some(Input::Assigned(a)) if !a.partitions.is_empty()), "assigned before given back");
        std::thread::sleep(Duration::from_millis(2));
    }
    first.released(&held).expect("released");
    let mut have = [vec![], vec![]];
    settle(&mut [&mut first, &mut second], &mut have, |h| h[0].len() == 1 && h[1].len() == 1);
    assert_ne!(have[0], have[1]);
    let listed = c.admin().expect("admin").members(&GroupId::new(unit.as_str())).expect("members");
    let mut clients: Vec<_> = listed.into_iter().map(|m| m.client_id).collect();
    clients.sort();
    assert_eq!(clients, [slot(&unit, 0).name().to_string(), slot(&unit, 1).name().to_string()]);
    first.close();
    second.close();
}

// --- reading ------------------------------------------------------------------------------------------------------------------

/// If this broke, lag on transactional topics would never reach zero (C034), and restore loops would never end.
pub fn position_passes_control_records<C: Cluster>(c: &C) {
    let topic = new_topic(c, "position", 1);
    let tp = Tp::new(topic.clone(), 0);
    let unit = unique("position");
    let mut sink = ready_sink(c, &slot(&unit, 0));
    commit_values(&mut sink, &topic, 0, &["a", "b"]);
    let mut source = joined(c, &slot(&unit, 0), &topic, Reading::Shared);
    assert_eq!(text(&next_record(&mut source)), "a");
    assert_eq!(source.position(&tp), Some(NextOffset(1)));
    assert_eq!(text(&next_record(&mut source)), "b");
    until("drained", || matches!(source.next(), Some(Input::Drained(at)) if at == tp).then_some(()));
    assert_eq!(source.position(&tp), Some(NextOffset(3)), "two records and the marker");
    assert_eq!(source.known_end(&tp), Some(NextOffset(3)));
    assert_eq!(retried("ends", || source.ends(&tp)), (NextOffset(0), NextOffset(3)));
    source.close();
}

/// If this broke, input of a transaction that was taken back would be lost, or come in another order.
pub fn seek_reads_again_after_an_abort<C: Cluster>(c: &C) {
    for reading in [Reading::Shared, Reading::Split] {
        let topic = new_topic(c, "seek", 1);
        let tp = Tp::new(topic.clone(), 0);
        let unit = unique("seek");
        let mut sink = ready_sink(c, &slot(&unit, 0));
        commit_values(&mut sink, &topic, 0, &["a", "b", "c", "d"]);
        let mut source = joined(c, &slot(&unit, 0), &topic, reading);
        let read = |source: &mut C::Source, n: usize| -> Vec<String> {
            let one = |source: &mut C::Source| {
                until("a record", || match (source.next(), source.next_of(&tp)) {
                    (Some(Input::Record(r)), None) | (_, Some(Input::Record(r))) => Some(text(&r)),
                    _ => None,
                })
            };
            (0..n).map(|_| one(source)).collect()
        };
        assert_eq!(read(&mut source, 3), ["a", "b", "c"]);
        retried("seek", || source.seek(&[(tp.clone(), NextOffset(1))]));
        assert_eq!(source.position(&tp), Some(NextOffset(1)));
        assert_eq!(read(&mut source, 3), ["b", "c", "d"]);
        source.close();
    }
}

/// If this broke, a full task could not be held back without holding back its neighbours.
pub fn split_partitions_have_a_queue_of_their_own<C: Cluster>(c: &C) {
    let topic = new_topic(c, "split", 2);
    let (own, shared) = (Tp::new(topic.clone(), 0), Tp::new(topic.clone(), 1));
    let unit = unique("split");
    let mut sink = ready_sink(c, &slot(&unit, 0));
    commit_values(&mut sink, &topic, 0, &["own-1", "own-2"]);
    commit_values(&mut sink, &topic, 1, &["shared-1", "shared-2"]);
    let mut source = c.source(&slot(&unit, 0), std::slice::from_ref(&topic), Wake::none()).expect("a source");
    let assigned = wait_assigned(&mut source);
    let start = [(own.clone(), NextOffset(0), Reading::Split), (shared.clone(), NextOffset(0), Reading::Shared)];
    source.confirm(&assigned, &start).expect("confirm");
    assert_eq!(text(&next_record(&mut source)), "shared-1");
    assert_eq!(text(&next_record(&mut source)), "shared-2");
    let quiet = Instant::now();
    while quiet.elapsed() < SILENCE {
        assert!(!matches!(source.next(), Some(Input::Record(_))), "a record of the split partition on the shared queue");
        std::thread::sleep(Duration::from_millis(2));
    }
    for expected in ["own-1", "own-2"] {
        let found = until("a record of the split queue", || match source.next_of(&own) {
            Some(Input::Record(r)) => Some(r),
            _ => None,
        });
        assert_eq!((text(&found).as_str(), &found.tp), (expected, &own));
    }
    source.close();
}

// --- topics and records -------------------------------------------------------------------------------------------------------

/// If this broke, purged repartition topics would be read from a start that is not there.
pub fn deleted_records_move_the_start<C: Cluster>(c: &C) {
    let topic = new_topic(c, "deleted", 1);
    let tp = Tp::new(topic.clone(), 0);
    let values = [record(&topic, 0, "a"), record(&topic, 0, "b"), record(&topic, 0, "c")];
    let at = c.publish(&values, PATIENCE).expect("publish");
    assert_eq!(at.iter().map(|(_, next)| next.0).collect::<Vec<_>>(), [1, 2, 3]);
    c.admin().expect("admin").delete_records(&[(tp.clone(), NextOffset(2))]).expect("delete");
    let mut reader = c.reader(Isolation::Committed).expect("a reader");
    until("the start moves", || (reader.ends(&tp, Isolation::Uncommitted).ok()? == (NextOffset(2), NextOffset(3))).then_some(()));
    reader.assign(&[(tp.clone(), NextOffset(2))]).expect("assign");
    let found = until("a record", || reader.poll(Duration::from_millis(50)).expect("poll"));
    assert_eq!((text(&found).as_str(), found.offset), ("c", Offset(2)));
}

/// If this broke, a reset would leave positions behind, set them elsewhere, or move them under a member that is at work.
pub fn positions_are_set_and_groups_and_topics_forgotten<C: Cluster>(c: &C) {
    let topic = new_topic(c, "positions", 1);
    let (tp, admin) = (Tp::new(topic.clone(), 0), c.admin().expect("admin"));
    let at = |ms: i64, value| OutRecord { timestamp: Some(WallTime(ms)), ..record(&topic, 0, value) };
    let now = crate::time::Clock::now(&crate::time::SystemClock).wall.0;
    c.publish(&[at(now - 3_000, "a"), at(now - 2_000, "b"), at(now - 1_000, "c")], PATIENCE).expect("publish");
    let found = |ms: i64| admin.positions_at(std::slice::from_ref(&tp), WallTime(ms)).expect("asked")[0].1;
    assert_eq!((found(now - 2_500), found(now - 9_000), found(now)), (Some(NextOffset(1)), Some(NextOffset(0)), None));

    let group = GroupId::new(unique("positions"));
    let committed = || admin.committed(&group, std::slice::from_ref(&tp)).expect("asked");
    retried("set", || admin.reposition(&group, &[(tp.clone(), NextOffset(2))]));
    assert_eq!(committed(), [(tp.clone(), NextOffset(2))]);
    retried("set again", || admin.reposition(&group, &[(tp.clone(), NextOffset(1))]));
    assert_eq!(committed(), [(tp.clone(), NextOffset(1))]);
    retried("forget", || admin.forget(&group));
    assert_eq!(committed(), []);
    admin.forget(&group).expect("one that is not there is no error");

    let held = slot(&unique("held"), 0);
    let mut source = joined(c, &held, &topic, Reading::Shared);
    assert!(admin.reposition(&held.group, &[(tp.clone(), NextOffset(2))]).is_err(), "it has a member");
    assert!(admin.forget(&held.group).is_err(), "it has a member");
    source.close();

    admin.delete(std::slice::from_ref(&topic)).expect("deleted");
    until("the topic is gone", || admin.topic(&topic).expect("topic").is_none().then_some(()));
    admin.delete(&[topic]).expect("one that is not there is no error");
}

/// If this broke, a store could be saved with a position beyond what its changelog holds, and miss records at the next restore.
pub fn written_follows_the_acknowledged_records<C: Cluster>(c: &C) {
    let topic = new_topic(c, "written", 1);
    let tp = Tp::new(topic.clone(), 0);
    let mut sink = ready_sink(c, &slot(&unique("written"), 0));
    assert_eq!(sink.written(&tp), None);
    commit_values(&mut sink, &topic, 0, &["a", "b"]);
    assert_eq!(sink.written(&tp), Some(NextOffset(2)));
    commit_values(&mut sink, &topic, 0, &["c"]);
    assert_eq!(sink.written(&tp), Some(NextOffset(4)), "the marker takes an offset too");
}

/// C029: if this broke, headers with null values, tombstones or times would change on their way.
pub fn records_keep_their_form<C: Cluster>(c: &C) {
    let topic = new_topic(c, "form", 1);
    let tp = Tp::new(topic.clone(), 0);
    let mut headers = Headers::new().with("a", "1").with("a", "2");
    headers.0.push(Header { name: "none".into(), value: None });
    headers.push("empty", Bytes::new());
    let sent =
        OutRecord { key: Some(b"k"), value: None, headers: Some(&headers), timestamp: Some(WallTime(5)), ..record(&topic, 0, "") };
    c.publish(&[sent], PATIENCE).expect("publish");
    let mut reader = c.reader(Isolation::Committed).expect("a reader");
    reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assign");
    let found = until("a record", || reader.poll(Duration::from_millis(50)).expect("poll"));
    let expected =
        InRecord { tp, offset: Offset(0), timestamp: Some(WallTime(5)), key: Some(Bytes::from_static(b"k")), value: None, headers };
    assert_eq!(found, expected);
}

/// If this broke, starting twice would fail, or a missing topic would be taken for an existing one.
pub fn topics_are_created_once_and_described<C: Cluster>(c: &C) {
    let name = TopicName::from(unique("described"));
    let admin = c.admin().expect("admin");
    assert_eq!(admin.topic(&name).expect("topic"), None);
    let config = BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]);
    let new = [NewTopic { name: name.clone(), partitions: 3, replication: 1, config }];
    admin.create(&new).expect("create");
    admin.create(&new).expect("create again");
    let found = until("the topic shows", || admin.topic(&name).expect("topic"));
    assert_eq!((found.partitions, found.replication), (3, 1));
    assert!(admin.topics().expect("topics").iter().any(|t| t.name == name));
    assert_eq!(admin.topic_config(&name).expect("config").get("cleanup.policy").map(String::as_str), Some("compact"));
    assert!(admin.brokers().expect("brokers") >= 1);
    assert!(!admin.broker_config().expect("broker config").is_empty());
}
