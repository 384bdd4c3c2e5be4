#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::dsl::harness::{Harness, Written};
use crate::intents::{Approval, Intake, WorkRequest};
use crate::outbox::{Does, View};
use crate::serdes::internal;

/// The target URLs stand in variables that every test process has: any URL-like value will do for `base_url`.
fn shipped(name: &str) -> Declared {
    let dir = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("topology").join(name), dir.path());
    load(dir.path()).unwrap_or_else(|d| panic!("{d}"))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
            continue;
        }
        let mut text = std::fs::read_to_string(entry.path()).unwrap();
        for variable in ["NOTICES_URL", "ORDERS_URL", "MODEL_URL", "MAIL_URL"] {
            text = text.replace(&format!("{{ env: {variable} }}"), "http://127.0.0.1:9");
        }
        // There is no registry here; the same records as JSON.
        std::fs::write(target, text.replace("value: avro", "value: json")).unwrap();
    }
}

fn intake(w: &Written) -> Intake {
    assert_eq!(w.headers.text("rb_schema"), Some("intake/1"));
    internal::decode(w.value.as_ref().unwrap()).unwrap()
}

/// If this broke, the topology that is shipped for an existing topic would not map its records to requests.
#[test]
fn the_webhook_maps_records_to_requests() {
    let declared = shipped("webhook");
    assert!(declared.warnings.is_empty(), "{}", declared.warnings);
    let app = declared.application;
    assert_eq!(app.results.as_ref().map(|t| t.as_str()), Some("logistics.notices.v1"));
    let mut h = Harness::new(&app, 3);
    let shipment = |id: &str, status: &str| {
        json!({"shipment_id": id, "merchant": "acme", "status": status, "version": 3,
               "dispatched_at": "2026-11-20T10:00:00Z", "customer_email": "kim@example.com"})
        .to_string()
    };
    h.feed("logistics.shipments.v2", Some("S-1"), Some(&shipment("S-1", "DISPATCHED"))).unwrap();
    h.feed("logistics.shipments.v2", Some("S-2"), Some(&shipment("S-2", "PACKED"))).unwrap();
    h.feed("logistics.shipments.v2", Some("S-3"), Some(r#"{"status": "DISPATCHED"}"#)).unwrap();
    let written: Vec<_> = h.out.iter().filter(|w| w.topic == "shipment-notices-operations-repartition").collect();
    assert_eq!(written.len(), 1, "one is not dispatched, one can't be mapped");
    assert_eq!(written[0].partition, Some(crate::ids::partition_of(b"shipment-S-1", 3).0), "by the root operation ID");
    let got = intake(written[0]);
    assert_eq!(got.request.operation_id.as_str(), "shipment-S-1");
    assert_eq!(got.request.resource_version.as_deref(), Some("3"));
    assert_eq!(got.request.deadline.to_string(), "2026-11-20T12:00:00.000Z");
    assert_eq!(got.ordering_key.unwrap().as_str(), "S-1");
    assert!(got.origin.starts_with("logistics.shipments.v2/"), "{}", got.origin);

    let pipeline = &app.pipelines[0];
    let input: Value = serde_json::from_str(got.request.input.inline.as_deref().unwrap()).unwrap();
    let view = View { request: &got.request, input: Some(&input), plan: None, arguments: None };
    let effect = pipeline.effect.calls()[0].1;
    let parameters = (effect.parameters)(&view).unwrap();
    assert_eq!(Value::Object(parameters.0.clone()), json!({"shipment": "S-1", "email": "kim@example.com"}));
    let call = app.contracts.values().next().unwrap().calls.get(&effect.call).unwrap();
    assert!(call.check(&parameters).is_ok());
    let dead: Vec<_> = h.out.iter().filter(|w| w.topic == "logistics.shipments.dead").collect();
    assert_eq!(dead.len(), 1);
    assert!(dead[0].headers.text("rb_dead_reason").unwrap().contains("finds no member"));
}

/// If this broke, the same record delivered twice would be two intents with two identities.
#[test]
fn the_same_content_is_the_same_intent() {
    let app = shipped("webhook").application;
    let mut h = Harness::new(&app, 1);
    let value = json!({"shipment_id": "S-1", "merchant": "acme", "status": "DISPATCHED", "version": 3,
                       "dispatched_at": "2026-11-20T10:00:00Z", "customer_email": "kim@example.com"});
    for _ in 0..2 {
        h.feed("logistics.shipments.v2", Some("S-1"), Some(&value.to_string())).unwrap();
    }
    let got: Vec<_> = h.out.iter().filter(|w| w.topic.ends_with("-operations-repartition")).map(intake).collect();
    assert_eq!(got[0].request.identity(), got[1].request.identity());
    assert_ne!(got[0].request.message_id, got[1].request.message_id);
}

fn request() -> Value {
    json!({"operation_id": "op-1", "message_id": "m-1", "attempt_id": null, "tenant": "acme", "requester": "agent:buyer",
        "resource": "order/A-1", "resource_version": "1", "action": "order.create",
        "input": {"media_type": "application/json", "inline": "{\"want\":\"SKU-1\",\"pieces\":3}", "locator": null, "sha256": null},
        "deadline": "2026-11-20T10:10:00Z", "required_permissions": ["orders:create"], "approval_ref": null,
        "cost_estimate": {"tokens": 800, "bytes": 2048, "tool_calls": 1},
        "written_for": {"topology": "3", "prompt": "buyer.v7", "tools": null}, "traceparent": null})
}

/// If this broke, the shipped agent topology would lose a stage on its way to the effect, or ask for approvals by another rule.
#[test]
fn the_orders_topology_lowers_onto_one_pipeline() {
    let declared = shipped("orders");
    assert!(declared.warnings.is_empty(), "{}", declared.warnings);
    let app = declared.application;
    let [pipeline] = app.pipelines.as_slice() else { panic!("one pipeline") };
    assert_eq!(pipeline.step.as_str(), "place-order");
    assert_eq!(pipeline.admit.max_input, 256 * 1024);
    assert_eq!(pipeline.admit.max_deadline.as_secs(), 15 * 60);
    let budgets: Vec<_> = pipeline.admit.budgets.iter().map(|b| (b.of.as_str(), b.amount, b.per.as_secs())).collect();
    assert_eq!(budgets, [("tokens", 2_000_000, 86_400), ("calls", 500, 3_600)]);
    let (plan, gate) = (pipeline.plan.as_ref().unwrap(), pipeline.gate.as_ref().unwrap());
    assert_eq!((plan.prompt_version.as_str(), plan.max), ("buyer.v7", 16 * 1024));
    assert_eq!(app.policies.keys().collect::<Vec<_>>(), ["policies/orders.cedar"]);

    let mut h = Harness::new(&app, 4);
    h.feed("agent.requests", None, Some(&request().to_string())).unwrap();
    let approval = json!({"approval_id": "a", "tenant": "acme", "operation_id": "op-1", "plan_hash": "p", "approver": "approver@acme",
        "decision": "approve", "expires_at": 1_795_000_000_000_i64, "policy_version": "2", "reason": null});
    h.feed("agent.approvals", None, Some(&approval.to_string())).unwrap();
    let [w, a] = h.out.as_slice() else { panic!("a request and an approval: {:?}", h.out) };
    assert_eq!((w.partition, a.partition), (a.partition, w.partition), "both where the operation is kept");
    let got = intake(w);
    assert_eq!((got.step.as_str(), got.request.deadline.to_string().as_str()), ("place-order", "2026-11-20T10:10:00.000Z"));
    assert_eq!(internal::decode::<Approval>(a.value.as_ref().unwrap()).unwrap().approver, "approver@acme");

    let input = json!({"want": "SKU-1", "pieces": 3});
    for (total, needed) in [(json!(500), false), (json!(500.5), true), (json!(501), true)] {
        let proposal = json!({"sku": "SKU-1", "quantity": 3, "total": total});
        let view = View { request: &got.request, input: Some(&input), plan: Some(&proposal), arguments: None };
        assert_eq!((gate.required)(&view), Ok(needed), "{total}");
        let effect = pipeline.effect.calls()[0].1;
        assert_eq!((effect.parameters)(&view).unwrap().0, *json!({"sku": "SKU-1", "quantity": 3}).as_object().unwrap());
        assert_eq!((effect.order_by.as_ref().unwrap())(&view).unwrap().as_str(), "order/A-1");
        let model = (plan.parameters)(&view).unwrap();
        assert_eq!(model.0["input"], json!("{\"want\":\"SKU-1\",\"pieces\":3}"));
        assert!(app.contracts[&plan.contract].calls[&plan.call].check(&model).is_ok());
    }
}

/// If this broke, a request in our own form, as tools and tests write it, would be a dead letter.
#[test]
fn requests_in_our_own_form_are_read_by_their_header() {
    let app = shipped("orders").application;
    let mut h = Harness::new(&app, 1);
    let ours = crate::dsl::request_of(request()).unwrap();
    let bytes = internal::encode(&ours).unwrap();
    let headers = crate::record::Headers::new().with("rb_schema", "work-request/1");
    h.feed_bytes("agent.requests", None, Some(bytes.into()), headers).unwrap();
    assert_eq!(intake(&h.out[0]).request, ours);
}

/// If this broke, `describe` would not show where a request goes after it leaves the user's topic.
#[test]
fn the_description_shows_both_units() {
    let text = shipped("orders").application.topology.describe();
    for part in [
        "topics: [orders-operations-repartition, orders-commands, orders-plans]",
        "Processor: place-order (stores: [operations])",
        "(unit orders.effects)",
        "topics: [orders-outbox, orders-control]",
        "topic: agent.results",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

const PLAIN: &str = r#"
application: app
sources:
  lines: { topic: lines, value: json }
tables:
  prices: { topic: prices, value: json }
steps:
  - { name: known, from: lines, filter: has(value.n) }
  - name: shaped
    from: known
    map: { key: value.sku, value: { n: value.n * 2, from: key, at: record.partition } }
  - name: size
    from: shaped
    branch: { big: value.n > 10, small: "true" }
  - name: priced
    from: size.big
    join: { table: prices, kind: left, value: { n: value.n, price: table } }
  - { name: out, from: priced, to: { topic: out } }
  - { name: out-small, from: size.small, to: { topic: small, value: json } }
dead_letters: dead
"#;

/// If this broke, filter, map, branch or join of a file would do other than the same steps in Rust.
#[test]
fn plain_steps_work_as_in_rust() {
    let app = parse("t.yaml", PLAIN).unwrap_or_else(|d| panic!("{d}")).application;
    let mut h = Harness::new(&app, 2);
    h.feed("prices", Some("tea"), Some("7")).unwrap();
    for (n, sku) in [("6", "tea"), ("1", "tea"), ("7", "ale")] {
        h.feed("lines", Some("k"), Some(&format!(r#"{{"n": {n}, "sku": "{sku}"}}"#))).unwrap();
    }
    h.feed("lines", Some("k"), Some(r#"{"sku": "tea"}"#)).unwrap();
    h.feed("lines", Some("k"), Some(r#"{"n": "MARK", "sku": "tea"}"#)).unwrap();
    assert_eq!(h.texts("out"), [r#"tea={"n":12,"price":7}"#, r#"ale={"n":14,"price":null}"#]);
    assert_eq!(h.texts("small").len(), 1);
    let dead: Vec<_> = h.out.iter().filter(|w| w.topic == "dead").collect();
    let reason = dead[0].headers.text("rb_dead_reason").unwrap();
    assert!(reason.starts_with("shaped.value.n") && !reason.contains("MARK"), "{reason}");
}

/// If this broke, people would fix one error, start, find the next, and so on; or a mistyped key would be dropped in silence.
#[test]
fn all_errors_of_a_file_are_told_at_once_with_their_places() {
    let text = r#"
application: app
sources:
  lines: { topic: lines, valeu: json }
steps:
  - { name: a, from: linse, filter: value.n > 1 }
  - { name: b, from: lines, filter: valu.n > 1 }
  - { name: b, from: lines, map: {} }
  - { name: c, from: lines }
  - name: d
    from: lines
    effect: { contract: nowhere.yaml#create, request: { operation_id: value.id } }
  - { name: e, from: lines, gate: { approvals: lines } }
"#;
    let d = parse("t.yaml", text).unwrap_err();
    let shown = d.to_string();
    for part in [
        "unknown key `valeu`",
        "did you mean `value`?",
        "`value` is missing",
        "t.yaml:4:26",
        "nothing above is named `linse`",
        "did you mean `lines`?",
        "reads `valu`, which is not known here",
        "a map needs `key`, `value` or both",
        "`b` names two things",
        "needs exactly one kind, and has none",
        "there is no file nowhere.yaml",
        "`tenant` is missing",
        "`gate` reads from an admit step",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
}

/// If this broke, a window or join that can't be meant would start, or be refused one mistake at a time.
#[test]
fn mistakes_in_groups_and_joins_are_told_with_their_places() {
    let text = r#"
application: app
sources:
  lines: { topic: lines, value: json }
  others: { topic: others, value: json }
tables:
  prices: { topic: prices, value: json }
steps:
  - { name: a, from: lines, group: { by: value.k } }
  - { name: b, from: lines, group: { count: true, reduce: aggregate } }
  - { name: c, from: lines, group: { count: true, window: { size: 1h, session: 5m } } }
  - { name: d, from: lines, group: { count: true, emit: close } }
  - { name: e, from: lines, group: { window: { session: 5m }, aggregate: { from: "0", with: aggregate + 1 } } }
  - { name: f, from: lines, group: { aggregate: { from: value.n, with: aggregat + 1 } } }
  - { name: g, from: lines, join: { stream: others, value: other } }
  - { name: h, from: lines, join: { table: prices, within: 5m, value: table } }
  - { name: i, from: lines, join: { table: prices, kind: outer, value: table } }
  - { name: j, from: lines, join: { table: others, value: table } }
  - { name: n, from: lines, to: { topic: out } }
  - { name: k, from: lines, join: { stream: n, within: 5m, value: other } }
  - { name: l, from: lines, join: { value: other } }
  - { name: m, from: lines, merge: [n] }
"#;
    let shown = parse("t.yaml", text).unwrap_err().to_string();
    for part in [
        "a group needs one of `count`, `reduce`, `aggregate`, and has none",
        "a group needs one of `count`, `reduce`, `aggregate`, and has several",
        "a window has exactly one of `size`, `sliding`, `session`",
        "`emit` and `retention` are for windows",
        "an aggregate of sessions needs `merge`",
        "reads `value`, which is not known here",
        "reads `aggregat`, which is not known here",
        "a join of streams needs `within`, or `before` and `after`",
        "`within` is for joins with a `stream`",
        "a join with a table is inner or left",
        "this is no table",
        "this is no stream",
        "a join meets exactly one of `table`, `global`, `stream`",
        "this can't be merged in",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
}

/// If this broke, requests would be admitted and then forgotten.
#[test]
fn requests_that_reach_no_effect_and_second_effects_are_refused() {
    let text = r#"
application: app
sources:
  requests: { topic: r, value: json, schema: readback/work-request }
steps:
  - { name: admit, from: requests, admit: {} }
"#;
    let d = parse("t.yaml", text).unwrap_err().to_string();
    assert!(d.contains("the requests of `admit` never reach an effect"), "{d}");
}

/// If this broke, a deadline could follow the time of arrival, and a record that comes again would be a new request.
#[test]
fn a_deadline_comes_from_the_content() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/topology/webhook/topology.yaml")).unwrap();
    let text = text.replace("timestamp(value.dispatched_at)", "timestamp(record.timestamp)");
    let d = parse("t.yaml", &text).unwrap_err().to_string();
    assert!(d.contains("reads `record`, which is not known here"), "{d}");
}

/// If this broke, a proposal could call what nobody declared, or a tool would get other parameters than its line says.
#[test]
fn tools_are_what_a_proposal_may_call() {
    let app = shipped("kits").application;
    let pipeline = &app.pipelines[0];
    let calls: Vec<_> =
        pipeline.effect.calls().iter().map(|(tool, c)| format!("{}={}#{}", tool.unwrap(), c.contract, c.call)).collect();
    assert_eq!(calls, ["order=orders#create", "tell=mail#send"]);
    let Does::Proposed(rules) = &pipeline.effect.does else { panic!("several calls") };
    let request: WorkRequest = serde_json::from_value(json!({
        "operation_id": "kit-1", "message_id": "m", "attempt_id": null, "tenant": "acme", "requester": "r", "resource": "desk/1",
        "resource_version": null, "action": "equip", "deadline": 0, "required_permissions": [], "approval_ref": null,
        "input": {"media_type": "", "inline": null, "locator": null, "sha256": null},
        "cost_estimate": {"tokens": 0, "bytes": 0, "tool_calls": 0}, "written_for": {"topology": null, "prompt": null, "tools": null},
        "traceparent": null,
    }))
    .unwrap();
    let plan = json!({"calls": [{"id": "a"}]});
    let view = |arguments| View { request: &request, input: None, plan: Some(&plan), arguments: Some(arguments) };
    let order = json!({"sku": "DESK-1", "quantity": 2});
    assert_eq!((rules.list)(&view(&order)), Ok(json!([{"id": "a"}])));
    assert_eq!(Value::Object((rules.tools["order"].parameters)(&view(&order)).unwrap().0), order, "as they are");
    let tell = json!({"to": "kim@example.com", "text": "soon"});
    assert_eq!((rules.tools["tell"].parameters)(&view(&tell)).unwrap().0["text"], json!("Your workplace is on its way: soon"));
    assert_eq!(rules.most, 6);
}

/// If this broke, a plan would be undone that was to be left, or one be left that was to be undone; or nobody would be told before the first
/// plan that something of it can't be undone.
#[test]
fn what_a_plan_that_is_undone_leaves_done_is_told() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/kits");
    let dir = tempfile::tempdir().unwrap();
    copy(&from, dir.path());
    let text = std::fs::read_to_string(from.join("topology.yaml")).unwrap();
    let contract = std::fs::read_to_string(from.join("contracts/orders.yaml")).unwrap();
    let chosen = |choice: &str| {
        std::fs::write(dir.path().join("topology.yaml"), text.replace("      max_calls: 6\n", choice)).unwrap();
        yaml::offline(|| load(dir.path()))
    };
    let compensates = |d: &super::Declared| d.application.pipelines[0].effect.compensates();
    assert!(!compensates(&chosen("").unwrap()) && !compensates(&chosen("      on_partial: leave\n").unwrap()));
    let none = chosen("      on_partial: compensate\n").unwrap_err().to_string();
    assert!(none.contains("no contract of the tools declares `compensate`"), "{none}");

    let cancel = "  cancel:
    parameters: { order: { type: string } }
    request: { method: POST, path: /cancellations, json: { order: \"{order}\", client_ref: \"{key}\" } }
    key: { carrier: body, format: uuid }
    confirm: answer
    in_flight: { bound: 5s, because: tests }
    answers: [{ status: 201, means: applied }]
";
    let undone = contract.replace(
        "    completion: sync\n",
        "    completion: sync\n    compensate: { call: cancel, parameters: { order: evidence } }\n",
    );
    std::fs::write(dir.path().join("contracts/orders.yaml"), undone + cancel).unwrap();
    let declared = chosen("      on_partial: compensate\n").unwrap();
    assert!(compensates(&declared));
    let told = declared.warnings.to_string();
    assert!(told.contains("what the tool `tell` did stays done in a plan that is undone") && told.contains("mail#send"), "{told}");
    assert!(!told.contains("`order` did"), "{told}");
    let wrong = chosen("      on_partial: undo\n").unwrap_err().to_string();
    assert!(wrong.contains("compensate"), "{wrong}");
}

/// If this broke, a mistyped plan of tools would start as something else.
#[test]
fn mistakes_in_tools_are_told_with_their_places() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/topology/kits/topology.yaml")).unwrap();
    let told = |from: &str, to: &str| {
        let dir = tempfile::tempdir().unwrap();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/kits"), dir.path());
        assert!(text.contains(from), "{from}");
        std::fs::write(dir.path().join("topology.yaml"), text.replace(from, to)).unwrap();
        load(dir.path()).unwrap_err().to_string()
    };
    let effect = "      max_calls: 6\n";
    for (from, to, part) in [
        (effect, "      max_calls: 99\n", "32"),
        (effect, "      order_by: request.resource\n", "`order_by` belongs to each of the tools here"),
        (effect, "      contract: contracts/orders.yaml#create\n", "`contract` belongs to each of the tools here"),
        ("        tell:\n", "        tell us:\n", "a tool's name is made of"),
        ("arguments.to,", "argument.to,", "reads `argument`, which is not known here"),
        ("parameters: { to:", "parameters: { too:", "parameter `too`"),
        ("contracts/mail.yaml#send", "contracts/mail.yaml#sent", "sent"),
    ] {
        let shown = told(from, to);
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    let no_list =
        text.replace("      calls: plan.calls", "      # calls: plan.calls").replace("    from: plan\n", "    from: admit\n");
    let dir = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/kits"), dir.path());
    std::fs::write(dir.path().join("topology.yaml"), no_list).unwrap();
    let shown = load(dir.path()).unwrap_err().to_string();
    assert!(shown.contains("`calls` is missing"), "{shown}");
}
