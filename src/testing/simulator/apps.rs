//! The applications that are simulated: the orders topology with plan, gate and policy, the kits topology with plans of several calls, and
//! a plain one where each record is an
//! effect, once at a shop that knows no keys and once at one that remembers them for a while.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::yaml;
use crate::contract::{Contract, Parameters};
use crate::dsl::{Application, Consumed, Effect, StreamsBuilder};
use crate::http::Answer;
use crate::ids::{MessageId, OperationId, Tenant, TopicName};
use crate::intents::{Cost, Input, RenderedRequest, WorkRequest, WrittenFor, headers};
use crate::outbox::{CallRules, Does, OnPartial};
use crate::record::Headers;
use crate::serdes::Serdes;
use crate::serdes::internal::{self, Wire};
use crate::testing::shop::SENT_AT;
use crate::time::WallTime;

use super::schedule::{App, Class, Planned};

/// An article that the shop refuses.
pub(super) const REFUSED: &str = "SKU-REFUSED";
/// A piece costs so much; above 500 in total the orders topology asks for an approval.
const PRICE: i64 = 10;
const CONTRACT: &str = include_str!("../../../topology/orders/contracts/orders.yaml");
/// How long records live beyond end or deadline where each record is an effect: so short that requests come when they are gone, and
/// longer than anything is held up.
pub(super) const LIFE: Duration = Duration::from_secs(180);
/// How long the shop of the keyed application remembers a key.
pub(super) const MEMORY: Duration = Duration::from_secs(30);

/// A record of the plain application.
#[derive(Clone, Serialize, Deserialize)]
struct Wanted {
    operation: String,
    tenant: String,
    sku: String,
    quantity: i64,
    resource: String,
    deadline: i64,
}

/// How old a request may be at the shop that looks at it.
pub(super) const MAX_AGE: Duration = Duration::from_secs(20);
/// How late a request may arrive where nothing bounds it.
pub(super) const ANY_TIME: Duration = Duration::from_secs(32);

/// One of the applications.
pub(super) fn application(app: App) -> Application {
    match app {
        App::Orders => declared("topology/orders"),
        App::Plans => declared("topology/kits"),
        App::PlansUndone => undone_plans(),
        App::Plain => plain(CONTRACT),
        App::Keyed => plain(&CONTRACT.replace("dedupe: none", &format!("dedupe: {{ window: {}s }}", MEMORY.as_secs()))),
        App::Created => plain(&unbounded(&fenced("create: { exists: 409 }"))),
        App::Aged => {
            let age = format!("age: {{ within: {}s, header: {SENT_AT}, refused: 412 }}", MAX_AGE.as_secs());
            plain(&unbounded(&fenced(&age)))
        }
        App::Undone => plain(&undoing()),
        App::Counted => plain(&without_readback().replace("unprovable: person", "unprovable: duplicates_accepted")),
    }
}

/// The kits topology at a shop whose orders can be cancelled, where a plan that can't be whole is undone.
fn undone_plans() -> Application {
    let mut kits = declared("topology/kits");
    let contract = Arc::new(read(&undoing()));
    kits.contracts.insert(contract.name.clone(), contract);
    for pipeline in &mut kits.pipelines {
        if let Does::Proposed(tools) = &mut pipeline.effect.does {
            tools.on_partial = OnPartial::Compensate;
            // What this tool does nothing undoes: the same order, for good.
            if let Some(order) = tools.tools.get("order").cloned() {
                tools.tools.insert(FOR_GOOD.to_owned(), CallRules { call: "create-for-good".into(), ..order });
            }
        }
    }
    kits
}

/// The tool whose calls nothing undoes, where plans are undone.
const FOR_GOOD: &str = "tell";

/// The orders contract at a shop that makes one order under a reference, with the call that cancels one; and the same order for good.
fn undoing() -> String {
    let contract = fenced("create: { exists: 409 }");
    let create = contract.split_once("  create:\n").map_or("", |(_, create)| create);
    let for_good = format!("\n  create-for-good:\n{create}");
    contract.replace("    completion: sync\n", COMPENSATE) + &for_good + CANCEL
}

const COMPENSATE: &str = "    completion: sync\n    compensate: { call: cancel, parameters: { order: evidence }, deadline: 5m }\n";

const CANCEL: &str = r#"
  cancel:
    parameters: { order: { type: string, max_length: 64 } }
    request: { method: POST, path: /cancellations, json: { order: "{order}", client_ref: "{key}" } }
    key: { carrier: body, format: uuid }
    readback:
      request: { method: GET, path: /cancellations, query: { ref: "{key}" } }
      complete: body.next == null
      ours: body.items.filter(c, c.client_ref == key)
      lag: 1s
    in_flight: { bound: 5s, because: "as for an order" }
    answers:
      - { status: 201, means: applied }
      - { status: 429, means: retry_later }
      - { status: 503, when: '"retry-after" in headers', means: not_applied }
      - { status: [400, 403, 404, 422], means: rejected }
    policy: { timeout: 2s, attempts: 5, readbacks: 6, unknown_after: 10m }
"#;

/// The orders contract at a shop that refuses something by itself.
fn fenced(fence: &str) -> String {
    CONTRACT.replace("    dedupe: none\n", &format!("    dedupe: none\n    fence: {{ {fence} }}\n"))
}

/// The same where nothing bounds how late a request may arrive.
fn unbounded(contract: &str) -> String {
    let line =
        |l: &str| if l.trim_start().starts_with("in_flight:") { "    in_flight: unbounded\n".to_owned() } else { format!("{l}\n") };
    contract.lines().map(line).collect()
}

/// The orders contract at a shop that lists nothing.
fn without_readback() -> String {
    let (head, rest) = CONTRACT.split_once("    confirm: readback\n").expect("the orders contract has a readback");
    let (_, tail) = rest.split_once("    in_flight:").expect("and a bound after it");
    format!("{head}    in_flight:{tail}")
}

fn declared(folder: &str) -> Application {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let loaded = yaml::offline(|| crate::declare::load(&dir));
    loaded.unwrap_or_else(|d| panic!("{folder} can't be read:\n{d}")).application
}

fn read(contract: &str) -> Contract {
    let contract = yaml::offline(|| crate::contract::parse("orders.yaml", contract));
    contract.unwrap_or_else(|d| panic!("the orders contract can't be read:\n{d}"))
}

fn plain(contract: &str) -> Application {
    let contract = Arc::new(read(contract));
    let builder = StreamsBuilder::new("plain").dead_letters("plain.dead");
    let wanted = builder.stream("plain.wanted", Consumed::with(Serdes::string(), Serdes::json::<Wanted>()));
    let effect = Effect::named("place")
        .operation_id(|_, w: &Wanted| w.operation.clone())
        .request(|draft, w| draft.tenant(&w.tenant).resource(&w.resource).deadline(WallTime(w.deadline)))
        .parameters(|w| match json!({ "sku": w.sku, "quantity": w.quantity }) {
            Value::Object(map) => Parameters(map),
            _ => Parameters::default(),
        })
        .order_by(|_, w| w.resource.clone())
        .remember(LIFE);
    wanted.effect(&contract, "create", effect).results().to("plain.results");
    builder.build().unwrap_or_else(|d| panic!("the plain application can't be built:\n{d}"))
}

/// A record to publish.
pub(super) struct Message {
    pub topic: TopicName,
    pub key: String,
    pub value: Vec<u8>,
    pub headers: Headers,
}

impl Message {
    /// One of our own records on a user's topic.
    pub(super) fn of<T: Wire>(topic: &str, key: &OperationId, record: &T) -> Message {
        let value = internal::encode(record).expect("an internal record has its schema");
        let headers = Headers::new().with(headers::SCHEMA, T::SCHEMA);
        Message { topic: topic.into(), key: key.to_string(), value, headers }
    }
}

/// The request for an operation, `nth` time; with another content where it is to be a conflict.
pub(super) fn request(app: App, planned: &Planned, start: WallTime, nth: usize, conflict: bool) -> Message {
    let quantity = planned.quantity + i64::from(conflict);
    let deadline = start.plus(planned.patience + if conflict { LONGER } else { Duration::ZERO });
    let resource = format!("order/{}", if planned.shares_lane { "shared".to_owned() } else { planned.id().to_string() });
    let sku = if planned.class == Class::Refused { REFUSED.to_owned() } else { format!("SKU-{}", planned.number) };
    match app {
        App::Plain | App::Keyed | App::Created | App::Aged | App::Counted | App::Undone => {
            let operation = planned.id().to_string();
            let wanted = Wanted { operation, tenant: planned.tenant().to_string(), sku, quantity, resource, deadline: deadline.0 };
            let value = serde_json::to_vec(&wanted).expect("a record of texts and numbers");
            Message { topic: "plain.wanted".into(), key: planned.id().to_string(), value, headers: Headers::new() }
        }
        App::Orders | App::Plans | App::PlansUndone => {
            let kit = app != App::Orders;
            let for_good = app == App::PlansUndone && planned.number % 2 == 1;
            let input = json!({ "want": sku, "pieces": quantity, "kit": kit, "for_good": for_good }).to_string();
            let request = WorkRequest {
                operation_id: planned.id(),
                message_id: MessageId::from(format!("m-{}-{nth}", planned.number)),
                attempt_id: None,
                tenant: planned.tenant(),
                requester: "agent:buyer".into(),
                resource: resource.into(),
                resource_version: None,
                action: "order.create".into(),
                input: Input { media_type: "application/json".into(), inline: Some(input), locator: None, sha256: None },
                deadline,
                required_permissions: vec![if kit { "kit:equip" } else { "orders:create" }.into()],
                approval_ref: None,
                cost_estimate: Cost { tokens: 800, bytes: 2_048, tool_calls: 1 },
                written_for: WrittenFor::default(),
                traceparent: None,
            };
            Message::of("agent.requests", &planned.id(), &request)
        }
    }
}

impl Planned {
    /// Its ID.
    pub fn id(&self) -> OperationId {
        OperationId::from(format!("op-{}", self.number))
    }
    /// Its tenant: the policy of the orders topology forbids one.
    pub fn tenant(&self) -> Tenant {
        Tenant::new(if self.class == Class::Denied { "blocked" } else { "acme" })
    }
}

/// The model server: proposes what was asked for.
pub(super) fn model(request: &RenderedRequest) -> Answer {
    let body: Value = request.body.as_deref().and_then(|b| serde_json::from_slice(b).ok()).unwrap_or_default();
    let asked: Value = body["messages"][1]["content"].as_str().and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default();
    let quantity = asked["pieces"].as_i64().unwrap_or_default();
    let total = quantity * PRICE;
    let plan = match asked["kit"] == true {
        true => json!({ "total": total, "calls": kit(&asked["want"], quantity, asked["for_good"] == true) }),
        false => json!({ "sku": asked["want"], "quantity": quantity, "total": total }),
    };
    let answer = json!({
        "id": "chat-1", "choices": [{ "message": { "role": "assistant", "content": plan.to_string() } }],
        "usage": { "total_tokens": 300 },
    });
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Answer { status: 200, headers, body: Bytes::from(answer.to_string()) }
}

/// Orders that need each other: one first, then two, of which one is for what was asked, then one that needs both. `for_good`: the other
/// of the two is one that nothing undoes.
fn kit(want: &Value, quantity: i64, for_good: bool) -> Value {
    let tool = |id: &str| if for_good && id == "side" { FOR_GOOD } else { "order" };
    let call = |id: &str, sku: Value, needs: &[&str]| json!({ "id": id, "tool": tool(id), "arguments": { "sku": sku, "quantity": quantity }, "needs": needs });
    json!([
        call("last", "SKU-D".into(), &["asked", "side"]),
        call("first", "SKU-A".into(), &[]),
        call("asked", want.clone(), &["first"]),
        call("side", "SKU-C".into(), &["first"]),
    ])
}

/// How much later the deadline of a conflicting request is.
const LONGER: Duration = Duration::from_secs(300);
/// How many pieces need an approval.
pub(super) const DEAR: i64 = 500 / PRICE + 1;
/// The shortest deadline that leaves room for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
