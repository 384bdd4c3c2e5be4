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
    /// Which of them were taken back, each time.
    undone: Vec<(String, String)>,
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
        if asked.line.starts_with("POST /cancellations") {
            return take_back(&books, asked.text("order"), asked.text("ref"));
        }
        let reference = path.split('=').next_back().unwrap_or_default();
        let books = lock(&books);
        if books.placed.iter().any(|(name, r)| r == reference && books.held.contains(&format!("list {name}"))) {
            return reply(503, json!({}));
        }
        let of = if path.starts_with("/cancellations") { &books.undone } else { &books.placed };
        let items: Vec<Value> =
            of.iter().filter(|(_, r)| r == reference).map(|(name, r)| json!({ "ref": r, "id": name })).collect();
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

fn take_back(books: &Shared, order: &str, reference: &str) -> Reply {
    lock(books).undone.push((order.to_owned(), reference.to_owned()));
    until("its answer is let go", || (!lock(books).held.contains(&format!("undo {order}"))).then_some(()));
    reply(201, json!({ "id": order }))
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

/// What undoes a call, as lines of the contract above.
const COMPENSATE: &str = "    in_flight: { bound: 1s, because: \"one process, no proxy\" }
    compensate: { call: cancel, parameters: { order: evidence } }
";
const CANCEL: &str = r#"  cancel:
    parameters: { order: { type: string } }
    request: { method: POST, path: /cancellations, json: { ref: "{key}", order: "{order}" } }
    key: { carrier: body }
    readback:
      request: { method: GET, path: /cancellations, query: { ref: "{key}" } }
      complete: "true"
      ours: body.items.filter(c, c.ref == key)
      lag: 100ms
    in_flight: { bound: 1s, because: "one process, no proxy" }
    answers: [{ status: 201, means: applied }, { status: 422, means: rejected }]
    policy: { timeout: 2s, attempts: 5 }
"#;

/// The same application where a plan that can't be whole is undone.
fn undone_topology(work: &Path, app: &str, base: &str) -> PathBuf {
    let dir = topology(work, app, base);
    let change = |file: &str, from: &str, to: &str, more: &str| {
        let text = std::fs::read_to_string(dir.join(file)).expect("written before");
        assert!(text.contains(from), "{text}");
        std::fs::write(dir.join(file), text.replace(from, to) + more).expect("writes");
    };
    change("topology.yaml", "      calls: input.calls\n", "      calls: input.calls\n      on_partial: compensate\n", "");
    let bound = COMPENSATE.lines().next().expect("two lines");
    change("contracts/orders.yaml", &format!("{bound}\n"), COMPENSATE, CANCEL);
    dir
}

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

fn shown(app: &str, id: &str) -> Value {
    let (_, said) = order(app, &["ops", "show", id, "--tenant", "acme"]);
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// When a step was, as the timeline shows it.
fn time_of(shown: &Value, label: &str) -> i64 {
    let steps = shown["timeline"].as_array().expect("a timeline");
    steps.iter().find(|s| s["label"] == label).and_then(|s| s["at"].as_i64()).unwrap_or_else(|| panic!("no {label} in {shown:#}"))
}

/// When an operation was approved, and the decision as it is kept.
fn approval_of(app: &str, id: &str) -> (i64, Value) {
    let shown = shown(app, id);
    let decision = shown["decisions"].as_array().and_then(|all| all.iter().find(|d| d["deed"] == "approve")).cloned();
    (time_of(&shown, "approved"), decision.unwrap_or_else(|| panic!("no approval in {shown:#}")))
}

/// When the first attempt was journalled: no byte left earlier.
fn sent_at(app: &str, id: &str) -> i64 {
    time_of(&shown(app, id), "attempt 1")
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
    let (approved_at, decision) = approval_of(&app, "plan-1");
    assert!(approved_at <= sent_at(&app, "plan-1.1"), "approved before it was sent, by the times that are shown");
    assert_eq!(
        (&decision["reason"], &decision["verified"], &decision["via"]),
        (&json!("all of it"), &json!(false), &json!("command_line"))
    );

    // One call is refused: what needs it is left out, and the plan says what was done.
    let fork = json!([call("a", "a2", &[]), call("b", "refused", &["a"]), call("c", "c2", &["b"])]);
    approved(&app, "plan-2", &fork);
    let partial = until_status(&app, "plan-2", "partial");
    assert_eq!(partial["code"], "RB0714", "{partial}");
    let shown = shown(&app, "plan-2");
    let ends: Vec<_> = shown["calls"].as_array().expect("calls").iter().map(|c| c["end"].as_str().unwrap_or_default()).collect();
    assert_eq!(ends, ["confirmed", "refused", "cancelled"], "{shown}");
    assert!(!lock(&books).placed.iter().any(|(name, _)| name == "c2"));
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}

/// If this broke, a member that dies while a plan is undone would leave a call done, undo one twice, or undo one from under another; or a plan that
/// a person calls off would stay half done.
#[test]
fn a_plan_that_cannot_be_whole_is_undone_across_kills() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("plans-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let books = Shared::default();
    let topology = undone_topology(work.path(), &app, &target(&books));
    let start = |n: usize| {
        let mut member = Running::with(&topology, &work.path().join("state"), &format!("undoing-{n}"), &[]);
        member.until_running();
        member
    };
    let taken_back = |name: &str| until(name, || lock(&books).undone.iter().any(|(n, _)| n == name).then_some(()));
    let member = start(1);
    lock(&books).held.extend(["undo c".to_owned(), "undo a".to_owned()]);
    let diamond = json!([call("a", "a", &[]), call("b", "b", &["a"]), call("c", "c", &["b"]), call("d", "refused", &["c"])]);
    approved(&app, "plan-1", &diamond);

    // It dies while the last call is undone, and again while the first is.
    taken_back("c");
    drop(member);
    lock(&books).held.remove("undo c");
    let member = start(2);
    taken_back("a");
    drop(member);
    lock(&books).held.remove("undo a");
    let mut member = start(3);
    let ended = until_status(&app, "plan-1", "partial");
    assert_eq!(ended["code"], "RB0715", "{ended}");
    let took = |books: &Shared| lock(books).undone.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(took(&books), ["c", "b", "a"], "each once, the last first");
    let plan = shown(&app, "plan-1");
    let states: Vec<_> = plan["undo"].as_array().expect("undo").iter().map(|u| u["state"].as_str().unwrap_or_default()).collect();
    assert_eq!(states, ["undone", "undone", "undone", "not_ordered"], "{plan:#}");
    for n in 1..=3 {
        until_status(&app, &format!("plan-1.{n}"), "confirmed");
        until_status(&app, &format!("plan-1.{n}.undo"), "confirmed");
        assert_eq!(shown(&app, &format!("plan-1.{n}"))["undone_by"]["words"], format!("undone by plan-1.{n}.undo"));
    }
    // It came to nothing, and goes back as a plan of its own, which nobody has approved yet.
    let dead = format!("{app}.dead");
    let again = ["dlq", "replay", "--topic", &dead, "--all", "--code", "RB0715", "--deadline", "10m", "--reason", "repaired"];
    let (code, said) = order(&app, &again);
    assert_eq!(code, Some(0), "{said}");
    until_status(&app, "plan-1.r1", "awaiting_approval");
    assert_eq!(took(&books).len(), 3);

    // A person calls one off: a is confirmed, what b came to is not known yet.
    lock(&books).held.extend(["b2".to_owned(), "list b2".to_owned()]);
    approved(&app, "plan-2", &json!([call("a", "a2", &[]), call("b", "b2", &["a"]), call("c", "c2", &["b"])]));
    until("b2", || lock(&books).placed.iter().any(|(n, _)| n == "b2").then_some(()));
    let called_off = {
        let app = app.clone();
        std::thread::spawn(move || order(&app, &["ops", "cancel", "plan-2", "--tenant", "acme", "--reason", "withdrawn"]))
    };
    until("c is left out", || (shown(&app, "plan-2")["calls"][2]["end"] == "cancelled").then_some(()));
    assert_eq!(took(&books).len(), 3, "a is not undone while b may stand on it");
    lock(&books).held.clear();
    let (code, said) = called_off.join().expect("the order was given");
    assert_eq!(code, Some(0), "answered when it is undone: {said}");
    let ended = until_status(&app, "plan-2", "partial");
    assert_eq!(ended["code"], "RB0715", "{ended}");
    assert_eq!(took(&books)[3..], ["b2", "a2"]);
    assert!(!lock(&books).placed.iter().any(|(name, _)| name == "c2"));
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}
