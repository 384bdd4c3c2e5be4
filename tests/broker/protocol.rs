//! The rest of the protocol on a real broker, in real processes, against targets that behave as their contracts say: time fence,
//! conditional create, compensation, pause, approvals taken back, bulk resolve, replay of what has ended, and what means the same.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use readback::ids::TopicName;
use readback::kafka::Cluster;
use readback::record::OutRecord;
use readback::time::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::processes::Running;
use crate::story::program;
use crate::{cluster_at, shared, stack, until};

/// What a target does with a request.
pub struct Reply {
    pub status: u16,
    pub body: Value,
    /// Whether the answer is lost on its way.
    pub lost: bool,
}

pub fn reply(status: u16, body: Value) -> Reply {
    Reply { status, body, lost: false }
}

/// One request as a target got it.
#[derive(Clone)]
pub struct Asked {
    pub line: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

impl Asked {
    /// A field of the body as text.
    pub fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_default()
    }
    fn post(&self, path: &str) -> bool {
        self.line.starts_with(&format!("POST {path}"))
    }
}

/// Serves what `answer` says, one thread a connection; gives the address.
pub fn serve(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || respond(stream, answer.as_ref()));
        }
    });
    url
}

fn respond(mut stream: TcpStream, answer: &(impl Fn(&Asked) -> Reply + ?Sized)) {
    let Some(asked) = request(&mut stream) else { return };
    let reply = answer(&asked);
    if reply.lost {
        return;
    }
    let body = reply.body.to_string();
    let head = format!("HTTP/1.1 {} OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", reply.status, body.len());
    let _ = stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes());
}

fn request(stream: &mut TcpStream) -> Option<Asked> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut lines = head.lines();
        let line = lines.next()?.to_owned();
        let pairs = lines.filter_map(|l| l.split_once(':')).map(|(n, v)| (n.to_lowercase(), v.trim().to_owned()));
        let headers: BTreeMap<String, String> = pairs.collect();
        let length = headers.get("content-length").and_then(|l| l.parse::<usize>().ok()).unwrap_or(0);
        if body.len() >= length {
            let body = serde_json::from_str(body).unwrap_or(Value::Null);
            return Some(Asked { line, headers, body });
        }
    }
}

/// What really exists at the targets of this story, and how they are told to behave.
#[derive(Default)]
struct Books {
    things: Vec<String>,
    orders: Vec<(String, String)>,
    cancelled: Vec<String>,
    mails: Vec<String>,
    /// Posts so far, by path and name.
    posts: BTreeMap<(String, String), usize>,
    refused_as_old: usize,
    /// Names whose answer waits.
    held: BTreeSet<String>,
}

type Shared = Arc<Mutex<Books>>;

/// The books of a target, whatever became of who had them before.
pub fn lock<T>(books: &Mutex<T>) -> MutexGuard<'_, T> {
    books.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// All targets behind one address.
fn targets(books: &Shared) -> String {
    let books = books.clone();
    serve(move |asked| {
        let name = asked.text("name").to_owned();
        let path = asked.line.split(' ').nth(1).unwrap_or_default().to_owned();
        let nth = {
            let mut b = lock(&books);
            let nth = b.posts.entry((path.clone(), name.clone())).or_default();
            *nth += 1;
            *nth
        };
        let key = || path.split(['/', '=']).next_back().unwrap_or_default().to_owned();
        match path.as_str() {
            // One thing under an ID. The first request is long on its way: it arrives right before the second.
            "/things" if asked.post("/things") => {
                let mut b = lock(&books);
                let id = asked.text("id").to_owned();
                if nth == 1 {
                    return Reply { lost: true, ..reply(0, json!({})) };
                }
                if nth == 2 {
                    b.things.push(id.clone());
                }
                if b.things.contains(&id) {
                    return reply(409, json!({}));
                }
                b.things.push(id.clone());
                reply(201, json!({ "id": id }))
            }
            p if p.starts_with("/things/") => match lock(&books).things.contains(&key()) {
                true => reply(200, json!({ "id": key() })),
                false => reply(404, json!({})),
            },
            // Nothing that is older than two seconds; the first request is lost before it acts.
            "/orders" if asked.post("/orders") => {
                let sent = asked.headers.get("x-sent-at").and_then(|s| s.parse::<i64>().ok()).unwrap_or(0);
                if SystemClock.now().wall.0 / 1_000 > sent + 2 {
                    lock(&books).refused_as_old += 1;
                    return reply(412, json!({}));
                }
                if name == "lost" && nth == 1 {
                    return Reply { lost: true, ..reply(0, json!({})) };
                }
                let id = {
                    let mut b = lock(&books);
                    let id = format!("o-{}", b.orders.len() + 1);
                    b.orders.push((asked.text("ref").to_owned(), id.clone()));
                    id
                };
                until("its answer is let go", || (!lock(&books).held.contains(&name)).then_some(()));
                reply(201, json!({ "id": id }))
            }
            // Nobody can know while an answer is held.
            p if p.starts_with("/orders?") && !lock(&books).held.is_empty() => reply(503, json!({})),
            p if p.starts_with("/orders?") => {
                let key = key();
                let items: Vec<Value> =
                    lock(&books).orders.iter().filter(|(r, _)| *r == key).map(|(r, id)| json!({ "ref": r, "id": id })).collect();
                reply(200, json!({ "items": items }))
            }
            "/cancellations" if asked.post("/cancellations") => {
                lock(&books).cancelled.push(asked.text("order").to_owned());
                reply(201, json!({ "id": "c-1" }))
            }
            // Says nothing of what it does; the answer is lost for names that ask for it.
            "/mails" => {
                lock(&books).mails.push(name.clone());
                Reply { lost: name.starts_with("silent"), ..reply(202, json!({})) }
            }
            _ => reply(404, json!({})),
        }
    })
}

const CONTRACTS: [(&str, &str); 3] = [
    (
        "things",
        r#"contract: things
version: 1
verified_on: 2026-11-20
target: { base_url: BASE, hosts: ["127.0.0.1"], private: true, intermediaries: none }
calls:
  make:
    parameters: { name: { type: string } }
    request: { method: POST, path: /things, json: { id: "{key}", name: "{name}" } }
    key: { carrier: body }
    fence: { create: { exists: [409] } }
    readback: { request: { method: GET, path: "/things/{key}" }, complete: "true", ours: "body.id == key", absent: 404, lag: 100ms }
    answers: [{ status: 201, means: applied }]
"#,
    ),
    (
        "orders",
        r#"contract: orders
version: 1
verified_on: 2026-11-20
target: { base_url: BASE, hosts: ["127.0.0.1"], private: true, intermediaries: none }
calls:
  create:
    parameters: { name: { type: string } }
    request: { method: POST, path: /orders, json: { ref: "{key}", name: "{name}" } }
    key: { carrier: body }
    fence: { age: { within: 4s, header: x-sent-at, refused: 412 } }
    confirm: answer
    readback:
      request: { method: GET, path: /orders, query: { ref: "{key}" } }
      complete: "true"
      ours: body.items.filter(o, o.ref == key)
      evidence: item.id
      lag: 100ms
    answers: [{ status: 201, means: applied, evidence: body.id }]
    compensate: { call: cancel, parameters: { order: evidence } }
    policy: { timeout: 2s, window: 1s, attempts: 3 }
  cancel:
    parameters: { order: { type: string } }
    request: { method: POST, path: /cancellations, json: { order: "{order}", ref: "{key}" } }
    key: { carrier: body }
    answers: [{ status: 201, means: applied }]
"#,
    ),
    (
        "mail",
        r#"contract: mail
version: 1
verified_on: 2026-11-20
target: { base_url: BASE, hosts: ["127.0.0.1"], private: true }
calls:
  send:
    parameters: { name: { type: string } }
    request: { method: POST, path: /mails, json: { ref: "{key}", name: "{name}" } }
    key: { carrier: body }
    answers: [{ status: 202, means: applied }]
"#,
    ),
];

/// The topology of `app`: `{"id", "kind", "name", "until"}` on `<app>.in` becomes an effect of its kind.
fn topology(work: &Path, app: &str, base: &str) -> PathBuf {
    let step = |name: &str, kind: &str, call: &str, more: &str| {
        format!(
            "  - name: {name}
    from: kinds.{kind}
    effect:
      contract: contracts/{call}
      request:
        operation_id: value.id
        tenant: '\"acme\"'
        requester: '\"service:tests\"'
        resource: '\"thing/\" + value.name'
        deadline: timestamp(value.until)
      parameters: {{ name: value.name }}
{more}"
        )
    };
    let steps = [
        step("make-thing", "thing", "things.yaml#make", ""),
        step("place-order", "order", "orders.yaml#create", ""),
        step("send-mail", "mail", "mail.yaml#send", "      duplicates: { within: 10m }\n"),
    ];
    let graph = format!(
        "application: {app}
version: 1
sources:
  asked: {{ topic: {app}.in, key: string, value: json }}
steps:
  - name: kinds
    from: asked
    branch: {{ thing: 'value.kind == \"thing\"', order: 'value.kind == \"order\"', mail: 'value.kind == \"mail\"' }}
{}results: {app}.results
dead_letters: {app}.dead
",
        steps.join("")
    );
    written(work, &graph, CONTRACTS.iter().map(|(name, text)| (*name, text.replace("BASE", base))))
}

/// Writes a topology and its contracts, by name; gives its directory.
pub fn written<'a>(work: &Path, graph: &str, contracts: impl IntoIterator<Item = (&'a str, String)>) -> PathBuf {
    let dir = work.join("topology");
    std::fs::create_dir_all(dir.join("contracts")).expect("a directory");
    std::fs::write(dir.join("topology.yaml"), graph).expect("writes");
    for (name, text) in contracts {
        std::fs::write(dir.join(format!("contracts/{name}.yaml")), text).expect("writes");
    }
    dir
}

/// Writes one request to `<app>.in`.
pub fn put(app: &str, value: &Value) {
    let topic = TopicName::from(format!("{app}.in"));
    let (key, text) = (value["id"].as_str().unwrap_or_default().to_owned(), value.to_string());
    let record = OutRecord {
        topic: &topic,
        partition: None,
        timestamp: None,
        key: Some(key.as_bytes()),
        value: Some(text.as_bytes()),
        headers: None,
    };
    cluster_at(stack().brokers()).publish(&[record], Duration::from_secs(20)).expect("writes");
}

/// A deadline so far from now, as requests have it.
pub fn within(time: Duration) -> String {
    SystemClock.now().wall.plus(time).to_string()
}

/// Runs the program for `app`: exit code and what it said.
pub fn order(app: &str, args: &[&str]) -> (Option<i32>, String) {
    let out = Command::new(program())
        .args(args)
        .args(["--app", app, "--brokers", stack().brokers(), "--output", "json"])
        .env("USER", "person@acme")
        .output()
        .expect("the program starts");
    (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr))
}

/// All operations of `app` by ID, as `ops list` prints them.
pub fn listed(app: &str) -> BTreeMap<String, Value> {
    let (_, said) = order(app, &["ops", "list", "--limit", "1000"]);
    let lines = said.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    lines.filter_map(|l| Some((l["operation"].as_str()?.to_owned(), l))).collect()
}

/// Waits until an operation shows this status; gives its line.
pub fn until_status(app: &str, id: &str, status: &str) -> Value {
    let mut last = Value::Null;
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until(&format!("{id} is {status}"), || {
            last = listed(app).remove(id).unwrap_or(Value::Null);
            (last["status"] == status).then(|| last.clone())
        })
    }));
    found.unwrap_or_else(|_| panic!("{id} never was {status}: {last}"))
}

fn did(app: &str, args: &[&str]) -> String {
    let (code, said) = order(app, args);
    assert_eq!(code, Some(0), "{args:?}: {said}");
    said
}

struct Ground {
    app: String,
    books: Shared,
    member: Running,
    _work: tempfile::TempDir,
}

impl Ground {
    fn start() -> Self {
        let work = tempfile::tempdir().expect("a directory");
        let app = format!("protocol-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
        let books = Shared::default();
        let base = targets(&books);
        let mut member = Running::with(&topology(work.path(), &app, &base), &work.path().join("state"), "member", &[]);
        member.until_running();
        Self { app, books, member, _work: work }
    }
    fn ask(&self, kind: &str, id: &str, name: &str) {
        put(&self.app, &json!({ "id": id, "kind": kind, "name": name, "until": within(Duration::from_secs(600)) }));
    }
    fn posts(&self, path: &str, name: &str) -> usize {
        lock(&self.books).posts.get(&(path.to_owned(), name.to_owned())).copied().unwrap_or(0)
    }
}

/// If this broke, what the simulator shows of fences, compensation, pauses, revocations, incidents, replays and look-alikes would not be
/// so on a real broker.
#[test]
fn fences_compensation_orders_and_look_alikes_hold_on_a_real_broker() {
    let _shared = shared();
    let mut g = Ground::start();
    let app = g.app.clone();
    g.ask("thing", "thing-1", "lost");
    g.ask("order", "order-1", "lost");
    g.ask("mail", "mail-1", "hello");
    for n in 1..=2 {
        g.ask("mail", &format!("silent-{n}"), &format!("silent-{n}"));
    }
    put(&app, &json!({ "id": "late-1", "kind": "mail", "name": "late", "until": within(Duration::ZERO) }));

    // Conditional create: sent again without an answer; the first one was there before, so the taken ID is read back.
    until_status(&app, "thing-1", "confirmed");
    assert_eq!((g.posts("/things", "lost"), lock(&g.books).things.len()), (2, 1));

    // What means the same waits for a person, who takes the approval back before it is used.
    until_status(&app, "mail-1", "confirmed");
    g.ask("mail", "mail-2", "hello");
    let waits = until_status(&app, "mail-2", "awaiting_approval");
    assert!(waits["code"] == "RB0712" && waits["detail"].as_str().is_some_and(|d| d.contains("mail-1")), "{waits}");
    did(&app, &["ops", "pause", "--target", "mail#send", "--reason", "INC-42"]);
    let seen = waits["version"].to_string();
    did(&app, &["ops", "approve", "mail-2", "--reason", "both are meant", "--seen", &seen]);
    did(&app, &["ops", "revoke", "mail-2", "--reason", "not after all"]);
    g.ask("mail", "mail-3", "other");
    until_status(&app, "mail-3", "approved");
    did(&app, &["ops", "resume", "--target", "mail#send", "--reason", "INC-42 is over"]);
    until_status(&app, "mail-3", "confirmed");
    until_status(&app, "mail-2", "denied");
    assert_eq!(lock(&g.books).mails.iter().filter(|m| m.trim() == "hello").count(), 1);

    // An incident: all that nobody can know, resolved at once, as many as were seen.
    for n in 1..=2 {
        until_status(&app, &format!("silent-{n}"), "parked");
    }
    let bulk = ["ops", "resolve-all", "--call", "mail#send", "--applied", "--reason", "INC-43: all are in the outbox", "--expect"];
    assert_eq!(order(&app, &[&bulk[..], &["3"]].concat()).0, Some(4), "another number changes nothing");
    did(&app, &[&bulk[..], &["2"]].concat());
    until_status(&app, "silent-2", "resolved_applied");

    // What had ended and did not happen comes back as a new operation.
    until_status(&app, "late-1", "expired");
    let letters = did(&app, &["dlq", "list", "--topic", &format!("{app}.dead")]);
    let letter: Value = letters.lines().find_map(|l| serde_json::from_str(l).ok()).expect("a letter");
    let place = letter["letter"].as_str().unwrap_or_else(|| panic!("{letter}")).to_owned();
    did(&app, &["dlq", "replay", &place, "--deadline", "10m", "--reason", "the source was late"]);
    until_status(&app, "late-1.r1", "confirmed");
    assert_eq!(g.posts("/mails", "late"), 1);

    // Time fence: absent once the target refuses what was lost; then a new attempt, with a time of its own.
    until_status(&app, "order-1", "confirmed");
    assert_eq!((g.posts("/orders", "lost"), lock(&g.books).refused_as_old), (2, 0));

    // Cancelled while its answer was away: undone, once.
    lock(&g.books).held.insert("undo".into());
    g.ask("order", "order-2", "undo");
    until("it was placed", || (g.posts("/orders", "undo") == 1).then_some(()));
    did(&app, &["ops", "cancel", "order-2", "--reason", "the customer withdrew"]);
    lock(&g.books).held.clear();
    until_status(&app, "order-2", "superseded");
    until_status(&app, "order-2.undo", "confirmed");
    let undone = lock(&g.books).cancelled.clone();
    assert!(undone.len() == 1 && lock(&g.books).orders.iter().any(|(_, id)| *id == undone[0]), "{undone:?}");

    let orders = lock(&g.books).orders.len();
    assert_eq!(orders, 2, "one each");
    assert_eq!(g.member.terminate().code(), Some(0), "{}", g.member.said());
}
