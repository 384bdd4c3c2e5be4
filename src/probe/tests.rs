//! Targets that keep their word, and targets that lie: each lie is caught by the claim that it breaks.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::contract;
use crate::http::{Answer, Done, Finished, HttpPort, Outgoing, Wire};
use crate::time::{Clock, SystemClock};

const ORDERS: &str = r#"contract: orders
version: 1
verified_on: 2026-11-20
target: { base_url: "http://127.0.0.1:1", hosts: [127.0.0.1], private: true, intermediaries: none }
calls:
  create:
    parameters:
      sku: { type: string, pattern: "[A-Z0-9-]{1,32}" }
      quantity: { type: integer, min: 1, max: 1000 }
    request: { method: POST, path: /orders, json: { sku: "{sku}", quantity: "{quantity}", ref: "{key}" } }
    key: { carrier: body }
    dedupe: { window: 24h, other_body: 422, while_running: 409 }
    readback:
      request: { method: GET, path: /orders, query: { ref: "{key}" } }
      complete: body.whole
      ours: body.items.filter(o, o.ref == key && o.sku == sku && o.quantity == quantity)
      same_key: body.items.filter(o, o.ref == key)
      evidence: item.id
      lag: 100ms
    in_flight: { bound: 5s, because: "tried" }
    answers:
      - { status: 201, means: applied, evidence: body.id }
      - { status: 429, means: retry_later }
      - { status: 400, means: rejected }
"#;

/// How a target breaks its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    None,
    ForgetsKeys,
    RemembersLate,
    TakesOtherContent,
    OtherStatusForOtherContent,
    ShowsLate,
    ListsInPart,
    ListsEverybodys,
    StoresOtherwise,
    SaysOk,
    RejectsOtherwise,
    WrongClock,
    WaitsInWords,
    LosesAnswers,
}

struct Order {
    at: Instant,
    body: Value,
}

#[derive(Default)]
struct Books {
    orders: Vec<Order>,
    calls: usize,
}

#[derive(Clone)]
struct Target {
    lie: Lie,
    books: Arc<Mutex<Books>>,
}

impl Target {
    fn new(lie: Lie) -> Self {
        Self { lie, books: Arc::default() }
    }

    fn post(&self, body: &Value) -> (u16, Value) {
        let mut books = self.books.lock().unwrap();
        books.calls += 1;
        if self.lie == Lie::WaitsInWords && books.calls == 2 {
            return (429, json!({}));
        }
        if !body["quantity"].is_i64() {
            return if self.lie == Lie::RejectsOtherwise { (418, json!({})) } else { (400, json!({})) };
        }
        let known = books.orders.iter().position(|o| o.body["ref"] == body["ref"]);
        if let Some(i) = known.filter(|_| self.lie != Lie::ForgetsKeys) {
            let same = books.orders[i].body["quantity"] == body["quantity"];
            let young = books.orders[i].at.elapsed() < Duration::from_millis(60);
            match (same, self.lie) {
                (_, Lie::RemembersLate) if young => {}
                (false, Lie::TakesOtherContent) => {}
                (false, Lie::OtherStatusForOtherContent) => return (201, json!({ "id": format!("o-{i}") })),
                (false, _) => return (422, json!({})),
                (true, _) if young => return (409, json!({})),
                (true, _) => return (201, json!({ "id": format!("o-{i}") })),
            }
        }
        let mut stored = body.clone();
        if self.lie == Lie::StoresOtherwise {
            stored["quantity"] = json!(stored["quantity"].as_i64().unwrap() * 100);
        }
        books.orders.push(Order { at: Instant::now(), body: stored });
        let id = format!("o-{}", books.orders.len() - 1);
        if self.lie == Lie::SaysOk { (200, json!({ "id": id })) } else { (201, json!({ "id": id })) }
    }

    fn list(&self, query: &str) -> (u16, Value) {
        let key = query.trim_start_matches("ref=");
        let lag = Duration::from_millis(if self.lie == Lie::ShowsLate { 250 } else { 20 });
        let books = self.books.lock().unwrap();
        let seen = books.orders.iter().filter(|o| o.at.elapsed() >= lag);
        let all = self.lie == Lie::ListsEverybodys;
        let items: Vec<Value> = seen
            .filter(|o| all || o.body["ref"] == key)
            .map(|o| {
                let mut item = o.body.clone();
                if all {
                    item["ref"] = key.into();
                }
                item["at"] = format!("{:?}", o.at).into();
                item
            })
            .collect();
        (200, json!({ "items": items, "whole": self.lie != Lie::ListsInPart }))
    }
}

impl HttpPort for Target {
    fn start(&self, call: Outgoing, _: Box<dyn FnOnce() -> bool + Send>, done: Done) {
        let began = SystemClock.now().wall;
        let r = &call.request;
        let (status, body) = match r.method.as_str() {
            "GET" => self.list(&r.query),
            _ => self.post(&serde_json::from_slice(r.body.as_deref().unwrap()).unwrap()),
        };
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        if status == 429 {
            headers.push(("retry-after".to_owned(), "in a while".to_owned()));
        }
        let wrong = Duration::from_secs(if self.lie == Lie::WrongClock { 30 } else { 0 });
        let lost = self.lie == Lie::LosesAnswers && r.method != "GET";
        let wire = if lost {
            Wire::MaybeSent("the connection broke".into())
        } else {
            Wire::Answered(Answer { status, headers, body: Bytes::from(body.to_string()) })
        };
        let now = SystemClock.now().wall;
        let whole = crate::time::WallTime(now.plus(wrong).0 / 1000 * 1000);
        done(Finished { wire, began, ended: now, target_date: Some(whole) });
    }
}

fn probed(lie: Lie) -> (Report, Target) {
    let contract = contract::parse("orders.yaml", ORDERS).unwrap_or_else(|d| panic!("{d}"));
    let parameters = Parameters(json!({ "sku": "A-1", "quantity": 2 }).as_object().unwrap().clone());
    let target = Target::new(lie);
    let report = Probe::new(&contract, &CallName::new("create"), parameters, None).unwrap().run(&target).unwrap();
    (report, target)
}

fn finding(report: &Report, name: &str) -> Finding {
    report.claim(name).unwrap_or_else(|| panic!("{name} was not tried: {report:#?}")).finding
}

/// If this broke, a target that keeps its word would be called a liar, or more would be made than was said.
#[test]
fn a_target_that_keeps_its_word() {
    let (report, target) = probed(Lie::None);
    assert!(!report.is_broken(), "{report:#?}");
    for name in [
        "absent",
        "applied",
        "readback",
        "lag",
        "ours",
        "dedupe",
        "other body",
        "at once",
        "while running",
        "rejected",
        "answers",
        "clock",
    ] {
        assert_eq!(finding(&report, name), Finding::Holds, "{name}: {report:#?}");
    }
    assert_eq!(finding(&report, "retry-after"), Finding::NotTried);
    assert_eq!((target.books.lock().unwrap().orders.len(), report.made.len()), (3, 3), "as `effects` says, each listed");
}

/// If this broke, a contract would be believed that promises what its target does not do.
#[test]
fn each_lie_is_caught_by_its_claim() {
    let lies = [
        (Lie::ForgetsKeys, "dedupe"),
        (Lie::RemembersLate, "at once"),
        (Lie::TakesOtherContent, "other body"),
        (Lie::OtherStatusForOtherContent, "other body"),
        (Lie::ShowsLate, "lag"),
        (Lie::ListsInPart, "absent"),
        (Lie::ListsEverybodys, "ours"),
        (Lie::StoresOtherwise, "readback"),
        (Lie::SaysOk, "applied"),
        (Lie::SaysOk, "answers"),
        (Lie::RejectsOtherwise, "rejected"),
        (Lie::WrongClock, "clock"),
        (Lie::WaitsInWords, "retry-after"),
    ];
    let threads: Vec<_> = lies.map(|(lie, name)| std::thread::spawn(move || (lie, name, probed(lie).0))).into();
    for thread in threads {
        let (lie, name, report) = thread.join().unwrap();
        assert_eq!(finding(&report, name), Finding::DoesNotHold, "{lie:?}: {report:#?}");
    }
}

const FENCED: &str = r#"contract: orders
version: 1
verified_on: 2026-11-20
target: { base_url: "http://127.0.0.1:1", hosts: [127.0.0.1], private: true, intermediaries: none }
calls:
  create:
    parameters: { sku: { type: string } }
    request: { method: POST, path: /orders, json: { sku: "{sku}", ref: "{key}" } }
    key: { carrier: body }
    fence: FENCE
    readback:
      request: { method: GET, path: /orders, query: { ref: "{key}" } }
      complete: body.whole
      ours: body.items.filter(o, o.ref == key)
      evidence: item.id
      lag: 10ms
    answers: [{ status: 201, means: applied, evidence: body.id }, { status: 400, means: rejected }]
    compensate: { call: cancel, parameters: { order: evidence } }
  cancel:
    parameters: { order: { type: string } }
    request: { method: POST, path: /cancellations, json: { order: "{order}", ref: "{key}" } }
    key: { carrier: body }
    answers: [{ status: 201, means: applied }, { status: 404, means: rejected }]
"#;

/// A target with a fence and a way back, or one that only says so.
struct Fenced {
    honest: bool,
    orders: Mutex<Vec<String>>,
}

impl HttpPort for Fenced {
    fn start(&self, call: Outgoing, _: Box<dyn FnOnce() -> bool + Send>, done: Done) {
        let r = &call.request;
        let body: Value = serde_json::from_slice(r.body.as_deref().unwrap_or(b"null")).unwrap();
        let mut orders = self.orders.lock().unwrap();
        let key = body["ref"].as_str().unwrap_or_default().to_owned();
        let now = SystemClock.now().wall;
        let sent = r.headers.iter().find(|h| h.name == "x-sent-at").map(|h| h.value.parse::<i64>().unwrap());
        let old = self.honest && sent.is_some_and(|s| now.0 / 1_000 > s + 20);
        let (status, answer) = match (r.method.as_str(), r.path.as_str()) {
            ("GET", _) => {
                let asked = r.query.trim_start_matches("ref=");
                let items: Vec<_> = orders.iter().filter(|o| *o == asked).map(|o| json!({ "ref": o, "id": o })).collect();
                (200, json!({ "items": items, "whole": true }))
            }
            (_, "/cancellations") if self.honest && body["order"].is_string() => (201, json!({})),
            (_, "/cancellations") => (404, json!({})),
            _ if !body["sku"].is_string() => (400, json!({})),
            _ if old => (412, json!({})),
            _ if self.honest && orders.contains(&key) => (409, json!({})),
            _ => {
                orders.push(key.clone());
                (201, json!({ "id": key }))
            }
        };
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let wire = Wire::Answered(Answer { status, headers, body: Bytes::from(answer.to_string()) });
        done(Finished { wire, began: now, ended: now, target_date: None });
    }
}

/// If this broke, a fence or a compensation would be believed that the target does not have; or the time that an attempt must carry
/// would be missing, and every one refused.
#[test]
fn fences_and_compensation_are_tried() {
    for fence in ["{ create: { exists: [409] } }", "{ age: { within: 30s, header: x-sent-at, refused: 412 } }"] {
        for (honest, expected) in [(true, Finding::Holds), (false, Finding::DoesNotHold)] {
            let text = FENCED.replace("FENCE", fence);
            let contract = contract::parse("orders.yaml", &text).unwrap_or_else(|d| panic!("{d}"));
            let parameters = Parameters(json!({ "sku": "A-1" }).as_object().unwrap().clone());
            let target = Fenced { honest, orders: Mutex::default() };
            let report = Probe::new(&contract, &CallName::new("create"), parameters, None).unwrap().run(&target).unwrap();
            for name in ["fence", "compensate"] {
                assert_eq!(finding(&report, name), expected, "{fence}: {report:#?}");
            }
            assert_eq!(finding(&report, "applied"), Finding::Holds, "{fence}");
        }
    }
}

/// If this broke, an effect whose answer was lost would stand in the sandbox, and nobody would be told where.
#[test]
fn what_may_have_been_made_is_listed_too() {
    let (report, target) = probed(Lie::LosesAnswers);
    assert!(!report.reached && !report.is_broken(), "{report:#?}");
    let made: Vec<_> = report.made.iter().map(|m| (m.key.clone(), m.certain)).collect();
    let stored = target.books.lock().unwrap().orders[0].body["ref"].as_str().unwrap().to_owned();
    assert_eq!(made, [(stored, false)]);
    assert!(probed(Lie::None).0.made.iter().all(|m| m.certain));
}

/// If this broke, a sandbox that is not there would be reported as one that keeps its word.
#[test]
fn a_target_that_is_not_there_proves_nothing() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let port = crate::http::HyperPort::new(runtime.handle().clone(), Arc::new(SystemClock), None).unwrap();
    let contract = contract::parse("orders.yaml", ORDERS).unwrap_or_else(|d| panic!("{d}"));
    let parameters = Parameters(json!({ "sku": "A-1", "quantity": 2 }).as_object().unwrap().clone());
    let report = Probe::new(&contract, &CallName::new("create"), parameters, None).unwrap().run(&port).unwrap();
    assert!(!report.reached && !report.is_broken() && report.made.is_empty(), "{report:#?}");
    for name in ["absent", "applied"] {
        assert_eq!(finding(&report, name), Finding::NotTried);
    }
}
