//! A plan of several calls on a real broker, in real processes that are killed between its calls, against a target with books of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::processes::Running;
use crate::protocol::{Reply, lock, order, put, reply, serve, until_status, within, written};
use crate::{shared, until};

/// What exists at the target, in the order in which it came to be.
#[derive(Default)]
struct Books {
    placed: Vec<(String, String)>,
    /// Names whose answer waits.
    held: BTreeSet<String>,
}

type Shared = Arc<Mutex<Books>>;

fn target(books: &Shared) -> String {
    let books = books.clone();
    serve(move |asked| {
        let path = asked.line.split(' ').nth(1).unwrap_or_default();
        if asked.line.starts_with("POST /orders") {
            return place(&books, asked.text("name"), asked.text("ref"));
        }
        let reference = path.split('=').next_back().unwrap_or_default();
        let items: Vec<Value> =
            lock(&books).placed.iter().filter(|(_, r)| r == reference).map(|(name, r)| json!({ "ref": r, "id": name })).collect();
        reply(200, json!({ "items": items }))
    })
}

fn place(books: &Shared, name: &str, reference: &str) -> Reply {
    if name.starts_with("refused") {
        return reply(422, json!({}));
    }
    lock(books).placed.push((name.to_owned(), reference.to_owned()));
    until("its answer is let go", || (!lock(books).held.contains(name)).then_some(()));
    reply(201, json!({ "id": name }))
}

const CONTRACT: &str = r#"contract: orders
version: 1
verified_on: 2026-11-20
target: { base_url: BASE, hosts: ["127.0.0.1"], private: true, intermediaries: none }
calls:
  create:
    parameters: { name: { type: string } }
    request: { method: POST, path: /orders, json: { ref: "{key}", name: "{name}" } }
    key: { carrier: body }
    readback:
      request: { method: GET, path: /orders, query: { ref: "{key}" } }
      complete: "true"
      ours: body.items.filter(o, o.ref == key)
      evidence: item.id
      lag: 100ms
    in_flight: { bound: 1s, because: "one process, no proxy" }
    answers: [{ status: 201, means: applied, evidence: body.id }, { status: 422, means: rejected }]
    policy: { timeout: 2s, attempts: 5 }
"#;

fn topology(work: &Path, app: &str, base: &str) -> PathBuf {
    let graph = format!(
        "application: {app}
version: 1
sources:
  asked: {{ topic: {app}.in, key: string, value: json }}
  approvals: {{ topic: {app}.approvals, value: json, schema: readback/approval }}
steps:
  - name: admit
    from: asked
    admit:
      request:
        operation_id: value.id
        tenant: '\"acme\"'
        requester: '\"service:tests\"'
        resource: '\"plan/\" + value.id'
        deadline: timestamp(value.until)
  - name: gate
    from: admit
    gate: {{ approvals: approvals, expires: 10m }}
  - name: do-all
    from: gate
    effect:
      calls: input.calls
      tools: {{ place: {{ contract: contracts/orders.yaml#create }} }}
results: {app}.results
dead_letters: {app}.dead
"
    );
    written(work, &graph, [("orders", CONTRACT.replace("BASE", base))])
}

fn call(id: &str, name: &str, needs: &[&str]) -> Value {
    json!({ "id": id, "tool": "place", "arguments": { "name": name }, "needs": needs })
}

/// Asks for a plan, and approves it as it is shown.
fn approved(app: &str, id: &str, calls: &Value) {
    put(app, &json!({ "id": id, "calls": calls, "until": within(Duration::from_secs(600)) }));
    let seen = until_status(app, id, "awaiting_approval")["version"].to_string();
    let (code, said) = order(app, &["ops", "approve", id, "--reason", "all of it", "--seen", &seen]);
    assert_eq!(code, Some(0), "{said}");
}

/// If this broke, a member that dies between the calls of a plan would leave one of them out for ever, make one twice, or make one before
/// what it needs.
#[test]
fn a_plan_goes_on_where_a_killed_member_left_it() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("plans-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let books = Shared::default();
    let topology = topology(work.path(), &app, &target(&books));
    let start = |n: usize| {
        let mut member = Running::with(&topology, &work.path().join("state"), &format!("member-{n}"), &[]);
        member.until_running();
        member
    };
    let placed = |name: &str| until(name, || lock(&books).placed.iter().any(|(n, _)| n == name).then_some(()));
    let member = start(1);
    lock(&books).held.extend(["a".to_owned(), "b".to_owned()]);
    let diamond = json!([call("a", "a", &[]), call("b", "b", &["a"]), call("c", "c", &["a"]), call("d", "d", &["b", "c"])]);
    approved(&app, "plan-1", &diamond);

    // It dies while the first call is under way, and again while one of the next two is.
    placed("a");
    drop(member);
    lock(&books).held.remove("a");
    let member = start(2);
    placed("b");
    drop(member);
    lock(&books).held.remove("b");
    let mut member = start(3);
    until_status(&app, "plan-1", "confirmed");

    let made: Vec<String> = lock(&books).placed.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(made.len(), 4, "each once: {made:?}");
    assert!(made[0] == "a" && made[3] == "d", "{made:?}");
    for n in 1..=4 {
        until_status(&app, &format!("plan-1.{n}"), "confirmed");
    }

    // One call is refused: what needs it is left out, and the plan says what was done.
    let fork = json!([call("a", "a2", &[]), call("b", "refused", &["a"]), call("c", "c2", &["b"])]);
    approved(&app, "plan-2", &fork);
    let partial = until_status(&app, "plan-2", "partial");
    assert_eq!(partial["code"], "RB0714", "{partial}");
    let (_, said) = order(&app, &["ops", "show", "plan-2", "--tenant", "acme"]);
    let shown: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let ends: Vec<_> = shown["calls"].as_array().expect("calls").iter().map(|c| c["end"].as_str().unwrap_or_default()).collect();
    assert_eq!(ends, ["confirmed", "refused", "cancelled"], "{shown}");
    assert!(!lock(&books).placed.iter().any(|(name, _)| name == "c2"));
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}
