//! Dead letters and their way back, through the real admission on the in-process log.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::admin::dead_letters::{Back, DeadLetters, Place};
use crate::admin::replay::{Known, ReplayOrder, Replayed, Replayer};
use crate::admin::views::Operations;
use crate::error::codes;
use crate::ids::{ApplicationId, GroupId, TopicName, Tp, UnitName};
use crate::intents::{Status, headers};
use crate::kafka::memory::MemoryCluster;
use crate::kafka::{Cluster, Isolation, Slot, TxLimits, TxSink};
use crate::offset::NextOffset;
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
    replay_of("asked", driver, picked, deadline)
}

fn replay_of(app: &str, driver: &mut TopologyTestDriver, picked: &[Place], deadline: Option<Duration>) -> Vec<Replayed> {
    let (app, order, topic) = (ApplicationId::new(app), order(driver, deadline), picked[0].tp.topic.clone());
    let mut operations = Operations::open(&driver.cluster, &app).unwrap();
    operations.catch_up().unwrap();
    let known = Known { operations: &operations.seen, partitions: &|_| Some(1) };
    let done = Replayer::open(&driver.cluster, &app).unwrap().replay(&topic, picked, &known, &order).unwrap();
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

/// If this broke, a listing would fail, or read the rest as not there, when retention takes letters in front of it.
#[test]
fn letters_that_retention_takes_while_they_are_read_pass_by() {
    let mut driver = application(MAIL, "send");
    for _ in 0..4 {
        driver.pipe("asks", Some(b"k"), Some(b"{no json"), Headers::new(), None).unwrap();
    }
    let (topic, admin) = (TopicName::new("dead"), driver.cluster.admin().unwrap());
    let third_on = [(Tp::new(topic.clone(), 0), NextOffset(4))];
    let there = DeadLetters::read_some(&driver.cluster, &topic, &|_| admin.delete_records(&third_on).is_ok()).unwrap();
    let found: Vec<i64> = there.letters.keys().map(|place| place.offset.0).collect();
    assert_eq!(found, [0, 4, 6], "a commit lies between them");
}

/// If this broke, a letter about an old record would be deleted by its topic's retention before anybody saw it, or a replay would
/// give the record another time than it had.
#[test]
fn a_letter_has_the_time_of_its_death_and_a_replay_that_of_its_record() {
    let mut driver = application(MAIL, "send");
    let old = WallTime(1_000);
    driver.pipe("asks", Some(b"k"), Some(b"{no json"), Headers::new(), Some(old)).unwrap();
    let (app, topic) = (ApplicationId::new("asked"), TopicName::new("dead"));
    let died = driver.cluster.records(&topic, Isolation::Committed).remove(0).timestamp;
    assert_eq!(died, Some(driver.now()));
    let (order, nothing) = (order(&driver, None), BTreeMap::new());
    let known = Known { operations: &nothing, partitions: &|_| Some(1) };
    let picked = resting(&driver.cluster);
    Replayer::open(&driver.cluster, &app).unwrap().replay(&topic, &picked, &known, &order).unwrap();
    let back = driver.cluster.records(&TopicName::new("asks"), Isolation::Committed).pop().unwrap();
    assert_eq!((back.timestamp, back.headers.text(headers::DEAD_TIME)), (Some(old), None));
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

/// The results so far: operation, status, and whose replay it is.
fn told(driver: &mut TopologyTestDriver, topic: &str) -> Vec<(String, Status, Option<String>)> {
    let of = |o: crate::driver::Output| {
        let r: ResultRecord = internal::decode(&o.value.unwrap()).unwrap();
        (r.operation_id.to_string(), r.status, o.headers.text(headers::REPLAY_OF).map(str::to_owned))
    };
    driver.read_output(topic).into_iter().map(of).collect()
}

/// If this broke, an operation that has ended would come to life again under its own ID, work that exists would be made a second time,
/// or two replays would run side by side.
#[test]
fn what_has_ended_is_replayed_as_a_new_operation_once_it_did_not_happen() {
    let (mut driver, calls) = counted();
    driver.advance(MINUTE * 11).unwrap();
    asked(&mut driver);
    assert_eq!(told(&mut driver, "results"), [("op-1".to_owned(), Status::Expired, None)]);
    let expired = resting(&driver.cluster);
    assert_eq!(driver.dead_letters(codes::REQUEST_EXPIRED), 1);
    // The same letter twice more, as a broker or a person may copy it.
    let letter = driver.cluster.records(&TopicName::new("dead"), Isolation::Committed).remove(0);
    for _ in 0..2 {
        let copy = OutRecord {
            topic: &letter.tp.topic,
            partition: None,
            timestamp: letter.timestamp,
            key: letter.key.as_deref(),
            value: letter.value.as_deref(),
            headers: Some(&letter.headers),
        };
        driver.cluster.publish(&[copy], Duration::ZERO).unwrap();
    }
    let copies: Vec<Place> = resting(&driver.cluster).into_iter().filter(|p| *p != expired[0]).collect();

    driver.serve(|_, _| Scripted::Lost);
    assert!(replay(&mut driver, &expired, Some(MINUTE * 3))[0].outcome.is_ok());
    let (id, status, whose) = told(&mut driver, "results").pop().unwrap();
    assert_eq!((id.as_str(), status, whose.as_deref()), ("op-1.r1", Status::Parked, Some("op-1")), "a lost answer");
    assert!(replay(&mut driver, &copies[..1], Some(MINUTE * 3))[0].outcome.is_ok());
    assert_eq!(driver.dead_letters(codes::REPLAY_REFUSED), 1, "one at a time: it died again, with the reason");

    // The replay is delivered once more: it is the same operation.
    let topic = crate::agent::intake_topic(&ApplicationId::new("asked"));
    let first = driver
        .cluster
        .records(&topic, Isolation::Committed)
        .into_iter()
        .find(|r| r.headers.get(headers::REPLAY_OF).is_some())
        .unwrap();
    driver.pipe(topic.as_str(), first.key.as_deref(), first.value.as_deref(), first.headers.clone(), None).unwrap();
    assert!(told(&mut driver, "results").iter().all(|(id, ..)| id != "op-1.r2"));

    // A person finds that it happened: then it is not made again.
    let order = crate::outbox::commands::Order {
        tenant: None,
        operation_id: crate::ids::OperationId::new("op-1.r1"),
        step: None,
        seen: None,
        by: "person@acme".into(),
        second: None,
        via: None,
        reason: "it is there".into(),
        evidence: None,
        at: driver.now(),
        hold: MINUTE,
    };
    let mut command = crate::outbox::commands::resolve(order, crate::intents::Resolution::Applied);
    let mut operations = Operations::open(&driver.cluster, &ApplicationId::new("asked")).unwrap();
    operations.catch_up().unwrap();
    let seen = operations.find(&command.operation_id).pop().unwrap().1.version();
    command.seen = Some(seen);
    let record = crate::outbox::commands::CommandRecord::new(&ApplicationId::new("asked"), 1, &command).unwrap();
    driver.pipe(record.topic.as_str(), Some(&record.key), Some(&record.value), record.headers.clone(), None).unwrap();
    assert_eq!(told(&mut driver, "results").pop().map(|t| (t.0, t.1)), Some(("op-1.r1".to_owned(), Status::ResolvedApplied)));
    operations.catch_up().unwrap();
    let kept = operations.find(&command.operation_id).pop().unwrap().1.record.clone().unwrap();
    assert_eq!((kept.stage, kept.status), (crate::outbox::Stage::Ended, Status::ResolvedApplied), "its own record is told of it");
    replay(&mut driver, &copies[1..], Some(MINUTE * 3));
    assert_eq!(driver.dead_letters(codes::REPLAY_REFUSED), 2);
    assert!(told(&mut driver, "results").iter().all(|(id, ..)| id != "op-1.r2"));
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
}

/// If this broke, somebody could take the ID of a replay beforehand, or pass one off.
#[test]
fn nobody_else_may_use_the_id_of_a_replay() {
    let (mut driver, calls) = counted();
    driver.advance(MINUTE * 6).unwrap();
    ask(&mut driver, &parameters("op-1.r1", None, &json!({ "to": "a@example.org" })));
    driver.advance(Duration::from_secs(5)).unwrap();
    assert_eq!(driver.dead_letters(codes::REQUEST_INVALID), 1);
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
}

/// If this broke, a yes that was given to the first one would send the replay: other bytes, another key, another day.
#[test]
fn an_approval_of_the_first_one_does_not_carry_over() {
    use crate::config::yaml;
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/orders");
    let application = yaml::offline(|| crate::declare::load(&dir).unwrap_or_else(|d| panic!("{d}"))).application;
    let start = WallTime(1_767_225_600_000);
    let mut driver = yaml::offline(|| TopologyTestDriver::at(&application, start)).unwrap();
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = calls.clone();
    driver.serve(move |call, request| match call {
        "model#chat" => {
            let plan = json!({ "sku": "SKU-4", "quantity": 60, "total": 600 }).to_string();
            says(200, &json!({ "id": "c", "choices": [{ "message": { "content": plan } }], "usage": { "total_tokens": 9 } }))
        }
        "orders#create" => {
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            says(201, &json!({ "id": "o-1" }))
        }
        _ => {
            let key = request.query.split('&').find_map(|p| p.strip_prefix("ref=")).unwrap_or_default();
            says(200, &json!({ "items": [{ "id": "o-1", "client_ref": key, "sku": "SKU-4", "quantity": 60 }], "next": null }))
        }
    });
    let request = json!({
        "operation_id": "op-9", "message_id": "m-9", "attempt_id": null, "tenant": "acme", "requester": "agent:buyer",
        "resource": "order/A-9", "resource_version": "1", "action": "order.create",
        "input": { "media_type": "application/json", "inline": "{}", "locator": null, "sha256": null },
        "deadline": start.plus(MINUTE).0, "required_permissions": ["orders:create"], "approval_ref": "a-1",
        "cost_estimate": { "tokens": 0, "bytes": 0, "tool_calls": 1 },
        "written_for": { "topology": null, "prompt": null, "tools": null }, "traceparent": null,
    });
    driver.advance(MINUTE * 2).unwrap();
    driver.pipe("agent.requests", Some(b"op-9"), Some(request.to_string().as_bytes()), Headers::new(), None).unwrap();
    let dead = DeadLetters::read(&driver.cluster, &TopicName::new("agent.dead")).unwrap();
    let letters: Vec<Place> = dead.resting().map(|l| l.place.clone()).collect();
    assert!(replay_of("orders", &mut driver, &letters, Some(MINUTE * 10))[0].outcome.is_ok());
    let results = driver.read_output("agent.results");
    let waits: ResultRecord = internal::decode(results.last().unwrap().value.as_deref().unwrap()).unwrap();
    assert_eq!((waits.operation_id.as_str(), waits.status), ("op-9.r1", Status::AwaitingApproval));
    let approve = |driver: &mut TopologyTestDriver, id: &str, operation: &str| {
        let yes = json!({
            "approval_id": id, "tenant": "acme", "operation_id": operation, "plan_hash": waits.plan_hash, "approver": "approver@acme",
            "decision": "approve", "expires_at": start.plus(MINUTE * 60).0, "policy_version": "1", "reason": null,
        });
        driver.pipe("agent.approvals", Some(operation.as_bytes()), Some(yes.to_string().as_bytes()), Headers::new(), None).unwrap();
        driver.advance(Duration::from_secs(5)).unwrap();
    };
    approve(&mut driver, "a-1", "op-9");
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0, "it was given to the first one");
    approve(&mut driver, "a-2", "op-9.r1");
    assert_eq!(told(&mut driver, "agent.results").pop().map(|t| (t.0, t.1)), Some(("op-9.r1".to_owned(), Status::Confirmed)));
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// If this broke, a trip that came to nothing could not be booked once the card is good again, would be booked under the keys of what was
/// cancelled, or one of which something stands would be booked a second time.
#[test]
fn a_plan_that_was_wholly_undone_is_made_anew_from_its_letter() {
    use crate::config::yaml;
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/trips");
    let application = yaml::offline(|| crate::declare::load(&dir).unwrap_or_else(|d| panic!("{d}"))).application;
    let start = WallTime(1_767_225_600_000);
    let mut driver = yaml::offline(|| TopologyTestDriver::at(&application, start)).unwrap();
    let keys = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let serve = |driver: &mut TopologyTestDriver, card: u16, keys: &Arc<std::sync::Mutex<std::collections::BTreeSet<String>>>| {
        let keys = keys.clone();
        driver.serve(move |call, request| {
            let key = request.headers.iter().find(|h| h.name == "idempotency-key").map(|h| h.value.clone()).unwrap_or_default();
            assert!(keys.lock().unwrap().insert(key), "{call} goes under a key of its own");
            match call {
                "payments#charge" => says(card, &json!({ "id": "c" })),
                _ => says(201, &json!({ "id": call })),
            }
        });
    };
    serve(&mut driver, 402, &keys);
    let call = |id: &str, arguments: Value, needs: &[&str]| json!({ "id": id, "tool": id, "arguments": arguments, "needs": needs });
    let trip = json!({ "trip": "7", "company": "acme", "wanted_at": "2026-01-01T00:00:00Z", "total": 480.0, "calls": [
        call("flight", json!({ "number": "RB42", "day": "2026-12-01" }), &[]),
        call("hotel", json!({ "house": "Harbour", "nights": 2 }), &[]),
        call("card", json!({ "account": "acme-travel", "cents": 48_000 }), &["flight", "hotel"]),
    ] });
    driver.pipe("trips.wanted", Some(b"7"), Some(trip.to_string().as_bytes()), Headers::new(), None).unwrap();
    driver.advance(MINUTE).unwrap();
    let undone = told(&mut driver, "trips.results").into_iter().rfind(|t| t.0 == "trip-7").unwrap();
    assert_eq!((undone.1, driver.dead_letters(codes::PLAN_UNDONE)), (Status::Partial, 1));

    let letters = |driver: &TopologyTestDriver| -> Vec<Place> {
        let dead = DeadLetters::read(&driver.cluster, &TopicName::new("trips.dead")).unwrap();
        dead.resting().map(|l| l.place.clone()).collect()
    };
    driver.advance(MINUTE * 10).unwrap();
    let first = letters(&driver);
    assert_eq!(refusal(&replay_of("trips", &mut driver, &first, None)), codes::REPLAY_REFUSED.to_string(), "its deadline is over");
    assert!(replay_of("trips", &mut driver, &first, Some(MINUTE * 5))[0].outcome.is_ok());
    driver.advance(MINUTE).unwrap();
    let again = told(&mut driver, "trips.results").into_iter().rfind(|t| t.0 == "trip-7.r1").unwrap();
    assert_eq!((again.1, again.2.as_deref()), (Status::Partial, Some("trip-7")), "the card is as it was");

    serve(&mut driver, 201, &keys);
    let second = letters(&driver);
    assert_eq!(second.len(), 1, "the replay is a letter, too");
    assert!(replay_of("trips", &mut driver, &second, Some(MINUTE * 5))[0].outcome.is_ok());
    driver.advance(MINUTE).unwrap();
    let whole = told(&mut driver, "trips.results").into_iter().rfind(|t| t.0 == "trip-7.r2").unwrap();
    assert_eq!((whole.1, whole.2.as_deref()), (Status::Confirmed, Some("trip-7")));
    assert!(letters(&driver).is_empty());
    assert_eq!(keys.lock().unwrap().len(), 3 + 2 + 3 + 2 + 3, "two bookings and a refused charge, undone, twice; then the trip");
}
