//! Submit and wait: what is written, what is answered, and that it is never more than is so.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::console::submit::Doors;
use crate::intents::{AckLevel, Status, WorkRequest};
use crate::kafka::Isolation;
use crate::outbox::OperationRecord;

use super::served::{Got, STEP, Served};

/// Where requests are taken.
pub const TOPIC: &str = "agent.requests";

/// The doors of the topology that is shipped, with JSON instead of Avro.
pub fn doors() -> Doors {
    static DOORS: OnceLock<Doors> = OnceLock::new();
    let made = || {
        let dir = tempfile::tempdir().expect("a directory");
        let orders = crate::demo::files::write_orders(dir.path(), "", "http://127.0.0.1:9").expect("writes");
        let file = orders.join("topology.yaml");
        let text = std::fs::read_to_string(&file).expect("reads").replace("value: avro", "value: json");
        let application = crate::declare::parse(file.to_str().expect("UTF-8"), &text).expect("a topology").application;
        Doors::of(&application, None, Duration::ZERO)
    };
    DOORS.get_or_init(made).clone()
}

fn body(s: &Served, id: &str) -> Value {
    json!({
        "operation_id": id, "tenant": "acme", "resource": "order/A-1", "resource_version": "4", "action": "order.create",
        "input": { "media_type": "text/plain", "inline": "two bolts" },
        "deadline": s.console.now().plus(Duration::from_secs(600)).to_string(),
    })
}

fn post(s: &Served, who: &str, path: &str, more: &[(&str, &str)], body: &Value) -> Got {
    let bearer = format!("Bearer {}", s.tokens[who]);
    let mut headers = vec![("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    headers.extend_from_slice(more);
    s.send("POST", &format!("/api/v1/requests/{path}"), &headers, &body.to_string())
}

fn written(s: &Served) -> Vec<WorkRequest> {
    s.records(TOPIC).iter().map(|v| serde_json::from_slice(v.as_deref().expect("a value")).expect("a request")).collect()
}

/// What a member makes of a request.
fn member(s: &Served, request: &WorkRequest, version: i64, status: Status, ack: AckLevel) {
    let mut record = OperationRecord::admitted(request.clone(), STEP.into(), None, "agent.requests/0/0".into(), s.console.now());
    (record.version, record.status, record.ack_level) = (version, status, ack);
    s.record(&record);
}

fn reached(got: &Got) -> (u16, String, bool) {
    let json = got.json();
    (got.status, json["level"].as_str().unwrap_or_default().to_owned(), json["ended"] == true)
}

/// If this broke, a caller would be told that something has happened that has not, or would do it twice by asking again.
#[test]
fn the_answer_names_the_level_that_was_reached_and_a_repeat_is_one_operation() {
    let s = Served::new();
    let request = body(&s, "op-9");
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let ask = |wait: &str| post(&s, "olga", &format!("{TOPIC}?wait_for={wait}&within=100ms"), &[("traceparent", trace)], &request);
    let first = ask("accepted");
    assert_eq!(reached(&first), (202, "queued".to_owned(), false), "{first:?}");
    assert_eq!(first.header("location"), Some("/api/v1/operations/op-9?tenant=acme&step=place-order"));
    let [it] = &written(&s)[..] else { panic!("one request is written") };
    assert_eq!((it.operation_id.as_str(), it.requester.as_str(), it.traceparent.as_deref()), ("op-9", "olga", Some(trace)));
    let records = s.cluster.records(&TOPIC.into(), Isolation::Committed);
    assert_eq!((records[0].key.as_deref(), records[0].headers.text("traceparent")), (Some(&b"op-9"[..]), Some(trace)));
    let audited = s.audited().pop().expect("an audit record");
    assert_eq!((&audited["who"], &audited["action"], &audited["came"]), (&json!("olga"), &json!("submit"), &json!("ordered")));
    member(&s, it, 1, Status::Accepted, AckLevel::Accepted);
    assert_eq!(reached(&ask("accepted")), (200, "accepted".to_owned(), false));
    assert_eq!(reached(&ask("planned")), (202, "accepted".to_owned(), false));
    member(&s, it, 2, Status::AwaitingApproval, AckLevel::Planned);
    assert_eq!(reached(&ask("planned")), (200, "planned".to_owned(), false));
    assert_eq!(reached(&ask("ended")), (202, "planned".to_owned(), false));
    member(&s, it, 3, Status::Denied, AckLevel::Planned);
    assert_eq!(reached(&ask("ended")), (200, "planned".to_owned(), true));
    assert_eq!(reached(&ask("confirmed")), (202, "planned".to_owned(), true), "it never will be");
    assert_eq!(written(&s).len(), 1, "a repeat writes nothing once the operation is known");
    s.clock.advance(Duration::from_secs(7_200));
    assert_eq!(reached(&ask("ended")), (200, "planned".to_owned(), true), "after its deadline, too");
    let mut other = request.clone();
    other["resource"] = "order/A-2".into();
    let conflict = post(&s, "olga", TOPIC, &[], &other);
    assert_eq!((conflict.status, conflict.code().as_str(), written(&s).len()), (409, "RB0702", 1), "{conflict:?}");
    let theirs = post(&s, "otto", TOPIC, &[], &request);
    assert_eq!((theirs.status, theirs.code().as_str()), (409, "RB0702"), "who asks is part of the content");
}

/// If this broke, a caller that waits would not hear of what happens meanwhile, or would be answered for somebody else's request.
#[test]
fn a_caller_that_waits_hears_when_it_is_so() {
    let s = Served::new();
    let wait = |id: &'static str| {
        let (s, request) = (&s, body(&s, id));
        move || post(s, "olga", "place-order?wait_for=confirmed&within=20s", &[], &request)
    };
    let when_written = |n: usize| {
        let until = Instant::now() + Duration::from_secs(10);
        while written(&s).len() < n {
            assert!(Instant::now() < until, "it is never written");
            std::thread::sleep(Duration::from_millis(2));
        }
        written(&s).remove(n - 1)
    };
    std::thread::scope(|scope| {
        let waits = scope.spawn(wait("op-1"));
        let request = when_written(1);
        member(&s, &request, 1, Status::Accepted, AckLevel::Accepted);
        member(&s, &request, 2, Status::Confirmed, AckLevel::Confirmed);
        assert_eq!(reached(&waits.join().expect("answers")), (200, "confirmed".to_owned(), true));
        // Another request of this ID was there first, on its way when ours was written.
        let waits = scope.spawn(wait("op-2"));
        let mut first = when_written(2);
        first.resource = "order/other".into();
        member(&s, &first, 1, Status::Confirmed, AckLevel::Confirmed);
        let got = waits.join().expect("answers");
        assert_eq!((got.status, got.code().as_str()), (409, "RB0702"), "{got:?}");
    });
}

/// If this broke, people without the role would cause effects, or what admission refuses would be called queued.
#[test]
fn what_may_not_be_or_can_not_be_is_not_written() {
    let s = Served::new();
    let good = body(&s, "op-1");
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    let past = s.console.now().minus(Duration::from_secs(1)).to_string();
    let key = |v: &'static str| [("Idempotency-Key", v)];
    for (what, who, to, headers, body, code) in [
        ("a viewer", "vera", TOPIC, &[][..], good.clone(), "RB0802"),
        ("an approver", "anna", TOPIC, &[], good.clone(), "RB0802"),
        ("another topic", "olga", "orders.dead", &[], good.clone(), "RB0106"),
        ("no ID", "olga", TOPIC, &[], with("operation_id", Value::Null), "RB0105"),
        ("two IDs", "olga", TOPIC, &key("op-2"), good.clone(), "RB0105"),
        ("a derived ID", "olga", TOPIC, &[], with("operation_id", json!("op.plan")), "RB0701"),
        ("a type that is not taken", "olga", TOPIC, &[], with("input", json!({ "media_type": "a/b", "inline": "x" })), "RB0701"),
        ("no input", "olga", TOPIC, &[], with("input", json!({ "media_type": "text/plain" })), "RB0701"),
        ("a deadline that is over", "olga", TOPIC, &[], with("deadline", json!(past)), "RB0703"),
        ("a deadline that is none", "olga", TOPIC, &[], with("deadline", json!("soon")), "RB0105"),
        ("a requester of one's own", "olga", TOPIC, &[], with("requester", json!("agent:boss")), "RB0105"),
        ("what cannot be waited for", "olga", "agent.requests?wait_for=done", &[], good.clone(), "RB0105"),
    ] {
        let got = post(&s, who, to, headers, &body);
        assert_eq!(got.code(), code, "{what}: {got:?}");
        assert!((400..500).contains(&got.status), "{what}: {got:?}");
    }
    assert_eq!(written(&s).len(), 0);
    let refused = s.audited().into_iter().filter(|a| a["action"] == "submit").map(|a| a["came"].clone()).collect::<Vec<_>>();
    assert!(refused.len() >= 10 && refused.iter().all(|c| c == "refused"), "{refused:?}");
    let headers = [("Idempotency-Key", "op-3"), ("traceparent", "not one")];
    let got = post(&s, "adam", &format!("{TOPIC}?wait_for=queued"), &headers, &with("operation_id", Value::Null));
    assert_eq!(reached(&got), (200, "queued".to_owned(), false), "{got:?}");
    let [it] = &written(&s)[..] else { panic!("one request is written") };
    assert_eq!((it.operation_id.as_str(), it.requester.as_str(), it.traceparent.clone()), ("op-3", "adam", None));
}

/// If this broke, callers that wait would take the place of everybody else.
#[test]
fn beyond_those_that_wait_one_is_answered_at_once() {
    let s = Served::new();
    let _all = s.console.waiting.clone().try_acquire_many_owned(crate::console::submit::WAITING as u32).expect("all of it");
    let got = post(&s, "olga", &format!("{TOPIC}?wait_for=confirmed&within=60s"), &[], &body(&s, "op-1"));
    assert_eq!(reached(&got), (202, "queued".to_owned(), false), "{got:?}");
}
