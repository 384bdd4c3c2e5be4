//! A stock service with versioned items, as many APIs have them: `PUT` with `If-Match`, 412 when the item has changed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::error::codes;
use crate::intents::Status;

const STOCK: &str = r#"contract: stock
version: 1
verified_on: 2026-11-20
target:
  base_url: https://stock.internal
  hosts: [stock.internal]
  intermediaries: none

calls:
  set:
    parameters:
      article: { type: string, pattern: "[A-Z0-9-]{1,32}" }
      count: { type: integer, min: 0, max: 1000 }
    request:
      method: PUT
      path: /items/{article}
      headers: { if-match: '"{resource_version}"' }
      json: { count: "{count}", change: "{key}" }
    key: { carrier: body }
    precondition: { never_reused: true }
    readback:
      request: { method: GET, path: /changes, query: { of: "{key}" } }
      complete: body.all
      ours: body.changes.filter(c, c.change == key && c.count == count)
      lag: 1s
    in_flight: { bound: 5s, because: "one process, no proxy" }
    answers:
      - { status: 200, means: applied }
      - { status: 412, means: precondition_failed }
      - { status: [400, 404, 422], means: rejected }
"#;

/// The item as the service has it.
#[derive(Default)]
struct Stock {
    version: u32,
    changes: Vec<Value>,
    /// Answers that get lost after the request was served.
    lose: usize,
    puts: usize,
}

impl Stock {
    fn serve(&mut self, request: &RenderedRequest) -> Scripted {
        let current = format!("\"{}\"", self.version);
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/items/A-1") => with(200, &[("etag", &current)], &json!({ "version": self.version })),
            ("GET", _) => {
                let of = request.query.trim_start_matches("of=");
                let changes: Vec<_> = self.changes.iter().filter(|c| c["change"] == of).collect();
                says(200, &json!({ "all": true, "changes": changes }))
            }
            _ => {
                self.puts += 1;
                let holds = header(request, "if-match").is_none_or(|v| v == current);
                if holds {
                    self.version += 1;
                    self.changes.push(body(request));
                }
                if self.lose > 0 {
                    self.lose -= 1;
                    return Scripted::Lost;
                }
                if holds { says(200, &json!({})) } else { says(412, &json!({})) }
            }
        }
    }
}

fn run(contract: &str, stock: Stock, seen: &str) -> (Vec<ResultRecord>, Arc<Mutex<Stock>>) {
    let stock = Arc::new(Mutex::new(stock));
    let mut driver = application(contract, "set");
    let target = Arc::clone(&stock);
    driver.serve(move |_, request| target.lock().unwrap().serve(request));
    ask(&mut driver, &parameters("op-1", Some(seen), &json!({ "article": "A-1", "count": 7 })));
    driver.advance(Duration::from_secs(120)).unwrap();
    (states(&mut driver), stock)
}

/// If this broke, an effect that was planned on one version of its resource would be made on another.
#[test]
fn an_effect_is_made_on_the_version_that_was_seen_or_not_at_all() {
    let (told, stock) = run(STOCK, Stock { version: 4, ..Stock::default() }, "4");
    assert_eq!(told.last().unwrap().status, Status::Confirmed);
    assert_eq!(stock.lock().unwrap().version, 5);

    let (told, stock) = run(STOCK, Stock { version: 5, ..Stock::default() }, "4");
    let last = told.last().unwrap();
    assert_eq!((last.status, last.code.clone()), (Status::Refused, Some(codes::PRECONDITION_FAILED.to_string())));
    let stock = stock.lock().unwrap();
    assert_eq!((stock.version, stock.puts), (5, 1), "told once, not tried again");
}

/// If this broke, the change that our own lost request made would be reported as somebody else's, or be made twice.
#[test]
fn a_lost_answer_is_sent_again_and_the_change_is_known_as_ours() {
    let (told, stock) = run(STOCK, Stock { version: 4, lose: 1, ..Stock::default() }, "4");
    let last = told.last().unwrap();
    assert_eq!((last.status, last.flags.len()), (Status::Confirmed, 0));
    let stock = stock.lock().unwrap();
    assert_eq!((stock.version, stock.changes.len()), (5, 1), "once");
}

/// If this broke, a target that compares nothing itself would be written to although its item has changed.
#[test]
fn where_the_target_does_not_compare_the_version_is_read_before_the_send() {
    let reads = STOCK.replace("      headers: { if-match: '\"{resource_version}\"' }\n", "").replace(
        "precondition: { never_reused: true }",
        "precondition: { read: { request: { method: GET, path: \"/items/{article}\" }, version: headers.etag } }",
    );
    let reads = reads.replace("      - { status: 412, means: precondition_failed }\n", "");
    let (told, stock) = run(&reads, Stock { version: 5, ..Stock::default() }, "4");
    let last = told.last().unwrap();
    assert_eq!((last.status, last.code.clone()), (Status::Denied, Some(codes::PRECONDITION_FAILED.to_string())));
    assert_eq!(stock.lock().unwrap().puts, 0);
    let (told, stock) = run(&reads, Stock { version: 4, ..Stock::default() }, "4");
    assert_eq!(told.last().unwrap().status, Status::Confirmed);
    assert_eq!(stock.lock().unwrap().puts, 1);
}

/// If this broke, a request without a version would be sent unconditionally, and overwrite what nobody has looked at.
#[test]
fn a_request_that_saw_no_version_is_invalid() {
    let mut driver = application(STOCK, "set");
    driver.serve(|_, _| panic!("nothing is sent"));
    ask(&mut driver, &parameters("op-1", None, &json!({ "article": "A-1", "count": 7 })));
    let told = driver.read_output("results");
    let told = internal::decode::<ResultRecord>(told[0].value.as_ref().unwrap()).unwrap();
    assert_eq!(told.status, Status::Invalid);
    assert!(told.detail.unwrap().contains("resource_version"));
}
