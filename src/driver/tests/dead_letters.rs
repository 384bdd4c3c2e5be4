//! Dead letters and their way back, through the real admission on the in-process log.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::admin::dead_letters::{Back, DeadLetters, Place};
use crate::admin::replay::{Known, ReplayOrder, Replayed, Replayer};
use crate::admin::views::Operations;
use crate::error::codes;
use crate::ids::{ApplicationId, GroupId, TopicName, UnitName};
use crate::intents::{Status, headers};
use crate::kafka::memory::MemoryCluster;
use crate::kafka::{Cluster, Isolation, Slot, TxLimits, TxSink};
use crate::record::OutRecord;

/// A target that takes everything, asked at most five minutes before the deadline. Requests have ten.
const MAIL: &str = r#"contract: mail
version: 1
verified_on: 2026-11-20
target: { base_url: "https://mail.internal", hosts: [mail.internal] }
calls:
  send:
    parameters: { to: { type: string } }
    request: { method: POST, path: /messages, json: { to: "{to}", ref: "{key}" } }
    key: { carrier: body }
    answers: [{ status: 202, means: applied }]
    person: { look_at: "https://mail.internal/sent?ref={key}" }
    policy: { deadline: 5m }
"#;
const MINUTE: Duration = Duration::from_secs(60);

fn order(driver: &TopologyTestDriver, deadline: Option<Duration>) -> ReplayOrder {
    let at = driver.now();
    ReplayOrder { by: "person@acme".into(), reason: "repaired".into(), at, deadline: deadline.map(|d| at.plus(d)) }
}

fn dead(cluster: &MemoryCluster) -> DeadLetters {
    DeadLetters::read(cluster, &TopicName::new("dead")).unwrap()
}

fn resting(cluster: &MemoryCluster) -> Vec<Place> {
    dead(cluster).resting().map(|l| l.place.clone()).collect()
}

fn replay(driver: &mut TopologyTestDriver, picked: &[Place], deadline: Option<Duration>) -> Vec<Replayed> {
    let (app, order) = (ApplicationId::new("asked"), order(driver, deadline));
    let mut operations = Operations::open(&driver.cluster, &app).unwrap();
    operations.catch_up().unwrap();
    let known = Known { operations: &operations.seen, partitions: &|_| Some(1) };
    let done = Replayer::open(&driver.cluster, &app).unwrap().replay(&TopicName::new("dead"), picked, &known, &order).unwrap();
    driver.advance(Duration::from_secs(5)).unwrap();
    done
}

fn refusal(done: &[Replayed]) -> String {
    let [one] = done else { panic!("{done:?}") };
    one.outcome.as_ref().unwrap_err().code.to_string()
}

/// An application whose target counts its calls.
fn counted() -> (TopologyTestDriver, Arc<std::sync::atomic::AtomicUsize>) {
    counted_at(WallTime(1_767_225_600_000))
}

fn counted_at(start: WallTime) -> (TopologyTestDriver, Arc<std::sync::atomic::AtomicUsize>) {
    let mut driver = TopologyTestDriver::at(&built(MAIL, "send"), start).unwrap();
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = calls.clone();
    driver.serve(move |_, _| {
        counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        says(202, &json!({}))
    });
    (driver, calls)
}

fn asked(driver: &mut TopologyTestDriver) {
    ask(driver, &parameters("op-1", None, &json!({ "to": "a@example.org" })));
}

/// If this broke, a request that was refused could not be worked on once its reason is gone, or would be worked on twice: by a second
/// order, by a redelivered replay, or by a person who does not know of the first.
#[test]
fn a_refused_request_goes_back_to_admission_and_makes_one_effect() {
    let (mut driver, calls) = counted();
    asked(&mut driver);
    let first = resting(&driver.cluster);
    assert_eq!((first.len(), driver.dead_letters(codes::REQUEST_INVALID)), (1, 1), "its deadline is too far away");

    let again = replay(&mut driver, &first, None);
    assert_eq!(again[0].outcome.as_deref(), Ok("admission as op-1"));
    let second = resting(&driver.cluster);
    assert!(second.len() == 1 && second != first, "still too far: it died again, as a letter of its own: {second:?}");

    driver.advance(MINUTE * 6).unwrap();
    assert_eq!(refusal(&replay(&mut driver, &first, None)), codes::REPLAYED_ALREADY.to_string());
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert!(replay(&mut driver, &second, None)[0].outcome.is_ok());
    assert_eq!(states(&mut driver).last().map(|r| r.status), Some(Status::Confirmed));

    // The broker delivers the replay once more.
    let intakes = driver.cluster.records(&crate::agent::intake_topic(&ApplicationId::new("asked")), Isolation::Committed);
    let r = intakes.into_iter().last().unwrap();
    let text = r.headers.text(headers::REPLAY_OF).map(str::to_owned);
    assert_eq!(text, Some(second[0].header()), "the record says which letter it was");
    driver.pipe(r.tp.topic.as_str(), r.key.as_deref(), r.value.as_deref(), r.headers.clone(), None).unwrap();
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert_eq!(refusal(&replay(&mut driver, &second, None)), codes::REPLAYED_ALREADY.to_string());
    assert!(resting(&driver.cluster).is_empty());
}

/// If this broke, other content under a known ID would be worked on, or a letter would be marked as replayed that went nowhere.
#[test]
fn what_would_be_a_duplicate_or_a_conflict_stays() {
    let (mut driver, calls) = counted();
    driver.advance(MINUTE * 6).unwrap();
    asked(&mut driver);
    ask(&mut driver, &parameters("op-1", None, &json!({ "to": "other@example.org" })));
    driver.advance(Duration::from_secs(5)).unwrap();
    let conflict = resting(&driver.cluster);
    assert_eq!(driver.dead_letters(codes::REQUEST_CONFLICT), 1);
    assert_eq!(refusal(&replay(&mut driver, &conflict, None)), codes::REPLAY_REFUSED.to_string());
    assert_eq!(resting(&driver.cluster), conflict, "it rests as before");
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// If this broke, work would begin long after it was wanted, or a person who wants it anyway could not have it.
#[test]
fn what_is_too_old_needs_a_new_deadline() {
    let (mut driver, calls) = counted_at(WallTime(1_767_225_600_000).plus(MINUTE * 60 * 24 * 90));
    asked(&mut driver);
    assert_eq!(driver.dead_letters(codes::REQUEST_STALE), 1);
    let stale = resting(&driver.cluster);
    assert_eq!(refusal(&replay(&mut driver, &stale, None)), codes::REPLAY_REFUSED.to_string());
    assert!(replay(&mut driver, &stale, Some(MINUTE * 2))[0].outcome.is_ok());
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// If this broke, a record would come back under another key, at another time or without its headers, and join, group or time out
/// otherwise than the original; or it would grow with each round (C100).
#[test]
fn a_record_goes_back_as_it_came() {
    let mut driver = application(MAIL, "send");
    let at = driver.now().plus(Duration::from_secs(3));
    let theirs = Headers::new().with("theirs", "kept");
    driver.pipe("asks", Some(b"k"), Some(b"{no json"), theirs, Some(at)).unwrap();
    for round in 1..=2 {
        let letters = resting(&driver.cluster);
        assert_eq!(replay(&mut driver, &letters, None)[0].outcome.as_deref(), Ok("asks"));
        let there = driver.cluster.records(&TopicName::new("asks"), Isolation::Committed);
        assert_eq!(there.len(), round + 1);
        let (first, last) = (&there[0], &there[round]);
        assert_eq!((&last.key, &last.value, last.timestamp), (&first.key, &first.value, first.timestamp));
        let expected = Headers::new().with("theirs", "kept").with(headers::REPLAY_OF, letters[0].header());
        assert_eq!(last.headers, expected);
    }
    assert_eq!(driver.dead_letters(codes::UNDECODABLE), 3);
}

/// A producer as `name-000` with a transaction open: `records` are sent, nothing is committed.
fn left_open(cluster: &MemoryCluster, name: &str, records: &[OutRecord<'_>]) -> crate::kafka::memory::MemorySink {
    let slot = Slot { unit: UnitName::new(name), group: GroupId::new(name), number: 0 };
    let mut sink = cluster.sink(&slot, TxLimits::default()).unwrap();
    sink.init().unwrap();
    sink.begin().unwrap();
    records.iter().for_each(|r| sink.send(*r).unwrap());
    sink.flush(Duration::from_secs(1)).unwrap();
    sink
}

fn plain<'a>(topic: &'a TopicName, value: &'a [u8], headers: &'a Headers) -> OutRecord<'a> {
    OutRecord { topic, partition: None, timestamp: None, key: None, value: Some(value), headers: Some(headers) }
}

/// If this broke, a person who is killed between sending and marking would leave a letter that goes back a second time, or one that
/// is marked and never went.
#[test]
fn who_was_killed_in_between_has_neither_sent_nor_marked() {
    let mut driver = application(MAIL, "send");
    driver.pipe("asks", Some(b"k"), Some(b"{no json"), Headers::new(), None).unwrap();
    let (letters, asks) = (resting(&driver.cluster), TopicName::new("asks"));
    let none = Headers::new();
    let mut killed = left_open(&driver.cluster, "asked-dead-letters", &[plain(&asks, b"{no json", &none)]);
    assert!(replay(&mut driver, &letters, None)[0].outcome.is_ok());
    assert!(killed.commit(Duration::from_secs(1)).is_err(), "it comes back to life, and is shut out");
    let there = driver.cluster.records(&asks, Isolation::Committed);
    assert_eq!(there.len(), 2, "the original, and one replay");
}

/// If this broke, a mark behind a member's open transaction would not be seen, and the letter would go back twice.
#[test]
fn a_mark_behind_an_open_transaction_counts() {
    let mut driver = application(MAIL, "send");
    driver.pipe("asks", Some(b"k"), Some(b"{no json"), Headers::new(), None).unwrap();
    let (letters, topic) = (resting(&driver.cluster), TopicName::new("dead"));
    let app = ApplicationId::new("asked");
    let (order, nothing) = (order(&driver, None), BTreeMap::new());
    let known = Known { operations: &nothing, partitions: &|_| Some(1) };
    let names = Headers::new().with(headers::DEAD_CODE, "RB0501");
    let mut member = None;
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        let mut replayer = Replayer::open(&driver.cluster, &app).unwrap();
        let ends = member.take().map(|mut open: crate::kafka::memory::MemorySink| {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                open.commit(Duration::from_secs(1)).unwrap();
            })
        });
        if ends.is_none() {
            member = Some(left_open(&driver.cluster, "asked", &[]));
        }
        if let Some(open) = &mut member {
            // Between the letter and its mark.
            let there = DeadLetters::read(&driver.cluster, &topic).unwrap();
            assert_eq!(there.letters.len(), 1);
            open.send(plain(&topic, b"{}", &names)).unwrap();
            open.flush(Duration::from_secs(1)).unwrap();
            // What is read was committed before; what is sent lies behind what is open.
            let going = crate::admin::replay::plan(&app, &there.letters[&letters[0]], &known, &order).unwrap().unwrap();
            replayer.send_marked(&there.letters[&letters[0]], going, &order).unwrap();
            continue;
        }
        outcomes = replayer.replay(&topic, &letters, &known, &order).unwrap();
        ends.unwrap().join().unwrap();
    }
    assert_eq!(refusal(&outcomes), codes::REPLAYED_ALREADY.to_string());
}

/// If this broke, an intent could be sent past admission, plan and approval.
#[test]
fn an_intent_does_not_go_back() {
    let driver = application(MAIL, "send");
    let names = Headers::new()
        .with(headers::SCHEMA, "intent/1")
        .with(headers::DEAD_CODE, "RB0241")
        .with(headers::DEAD_ORIGIN, "asked-outbox/0/7")
        .with(headers::DEAD_STEP, "ask");
    driver.cluster.publish(&[plain(&TopicName::new("dead"), b"", &names)], Duration::ZERO).unwrap();
    let there = dead(&driver.cluster);
    assert!(matches!(there.letters.values().next().unwrap().back(), Back::Nowhere(_)));
}
