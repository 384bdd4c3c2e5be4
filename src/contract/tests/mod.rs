//! A contract from its text to what it says of answers.

use serde_json::{Value, json};

use super::*;
use crate::http::Answer;
use crate::ids::{CallName, OperationKey, WireKey};
use crate::intents::RenderedRequest;

mod answers;
mod compensate;
mod fence;
mod file;
mod fuzz;
mod judge;
mod precondition;
mod protocol;
mod webhook;

const ORDERS: &str = r#"contract: orders
version: 3
verified_on: 2026-11-20
target:
  base_url: https://orders.internal
  hosts: [orders.internal]
  intermediaries: none
  credentials: { header: authorization, prefix: "Bearer ", secret: { file: /run/secrets/orders } }

calls:
  create:
    parameters:
      sku:      { type: string, pattern: "[A-Z0-9-]{1,32}" }
      quantity: { type: integer, min: 1, max: 1000 }
      note:     { type: string, optional: true }
    request:
      method: POST
      path: /orders
      json: { sku: "{sku}", quantity: "{quantity}", client_ref: "{key}", note: "{note}" }
    key: { carrier: body, format: uuid }
    dedupe: none
    confirm: readback
    readback:
      request: { method: GET, path: /orders, query: { ref: "{key}", page: "{page}" } }
      complete: body.next == null
      next: body.next
      ours: body.items.filter(o, o.client_ref == key && o.sku == sku && o.quantity == quantity)
      same_key: body.items.filter(o, o.client_ref == key)
      evidence: item.id
      lag: 1s
      pages: 3
    in_flight: { bound: 5s, because: "one process, no proxy" }
    answers:
      - { status: 201, means: applied, evidence: body.id }
      - { status: 200, when: body.ok == true, means: applied }
      - { status: 429, means: retry_later }
      - { status: 503, when: '"retry-after" in headers', means: not_applied }
      - { status: [400, 403, 404, 422], means: rejected }
    completion: sync
    policy: { concurrency: 32, deadline: 15m, attempts: 5, unprovable: person }
    person: { look_at: "https://orders.internal/console?a=1&ref={key}" }
"#;

fn contract(text: &str) -> Contract {
    parse("contracts/orders.yaml", text).unwrap_or_else(|d| panic!("{d}"))
}

/// The call `create` of the orders contract, with one part of the text replaced.
fn create_with(from: &str, to: &str) -> Call {
    let text = ORDERS.replace(from, to);
    assert!(from == to || text != ORDERS, "{from} is not in the text");
    contract(&text).call(&CallName::new("create")).expect("declared").clone()
}

fn create() -> Call {
    create_with("", "")
}

fn parameters() -> Parameters {
    let Value::Object(map) = json!({ "sku": "A-1", "quantity": 3 }) else { panic!("an object") };
    Parameters(map)
}

fn operation(tenant: &str, id: &str, step: &str) -> OperationKey {
    OperationKey { tenant: tenant.into(), operation: id.into(), step: step.into() }
}

fn answer(status: u16, body: &Value) -> Answer {
    with_headers(status, &[("content-type", "application/json")], body.to_string())
}

fn with_headers(status: u16, headers: &[(&str, &str)], body: String) -> Answer {
    let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Answer { status, headers, body: body.into() }
}
