//! A console on a free port, people with tokens, operations to look at, and a member.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin::{AdminServer, Health};
use crate::config::{OidcSection, Secret, SecretRef};
use crate::console::books::Subject;
use crate::console::people::{Role, make};
use crate::console::server::router;
use crate::console::{Console, Settings};
use crate::effects::{self, Assumptions, Attempt, AttemptState, Event, LedgerRecord, Phase, Rules};
use crate::ids::{ApplicationId, OperationKey, TopicName};
use crate::intents::{ApprovalUse, Command, CommandKind, Decision, Status, WorkRequest, headers, topics};
use crate::kafka::memory::{Limits, MemoryCluster};
use crate::kafka::{Cluster, Isolation, NewTopic};
use crate::outbox::{Answered, OperationRecord, Stage};
use crate::record::{Headers, OutRecord};
use crate::serdes::internal::{self, Wire};
use crate::time::{Clock, ManualClock, MonoTime, Now, SystemClock, WallTime};

pub const APP: &str = "orders";
pub const STEP: &str = "place-order";
pub const SPAN: Duration = Duration::from_secs(10);

/// A console that is served.
pub struct Served {
    pub cluster: MemoryCluster,
    pub console: Arc<Console>,
    pub clock: Arc<ManualClock>,
    pub address: SocketAddr,
    pub tokens: BTreeMap<&'static str, String>,
    pub dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    member: Option<JoinHandle<()>>,
    _server: AdminServer,
    _runtime: tokio::runtime::Runtime,
}

/// Who has a token: one for each role, and a second operator.
pub const PEOPLE: [(&str, Role); 5] =
    [("vera", Role::Viewer), ("olga", Role::Operator), ("otto", Role::Operator), ("anna", Role::Approver), ("adam", Role::Admin)];

/// An answer in full.
#[derive(Clone, Debug)]
pub struct Got {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|l| l.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v))
    }
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// A clock that stands at the present.
pub fn a_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Now { wall: SystemClock.now().wall, mono: MonoTime(1_000) }))
}

/// An in-process log with the topics of an application.
pub fn a_cluster() -> MemoryCluster {
    let cluster = MemoryCluster::with(Arc::new(SystemClock), Limits { wait: true, ..Limits::default() });
    let app = ApplicationId::new(APP);
    let topic = |name: TopicName| NewTopic { name, partitions: 1, replication: 1, config: BTreeMap::new() };
    let ours = [topics::changelog(&app, "operations"), topics::ledger_changelog(&app), topics::commands(&app)];
    let users = ["orders.dead", "shipments", super::submit::TOPIC].map(TopicName::new);
    let all: Vec<NewTopic> = ours.into_iter().chain(users).map(topic).collect();
    cluster.admin().and_then(|a| a.create(&all)).expect("creates");
    cluster
}

impl Served {
    /// With people who may sign in, and a member.
    pub fn new() -> Self {
        Self::with(true, true)
    }

    /// With or without people and member.
    pub fn with(people: bool, member: bool) -> Self {
        Self::at(a_clock(), people, None, member, None)
    }

    /// With tokens or not, an issuer, a member or not, and what sessions are signed with.
    pub fn at(clock: Arc<ManualClock>, people: bool, oidc: Option<OidcSection>, member: bool, secret: Option<&str>) -> Self {
        let (cluster, app) = (a_cluster(), ApplicationId::new(APP));
        let dir = tempfile::tempdir().expect("a directory");
        let (mut tokens, mut lines) = (BTreeMap::new(), String::new());
        for (name, role) in PEOPLE {
            let (token, line) = make(name, &[role]).expect("a token");
            lines += &format!("{line}\n");
            tokens.insert(name, token);
        }
        let file = dir.path().join("tokens");
        std::fs::write(&file, lines).expect("writes");
        let settings = Settings {
            tokens: people.then_some(file),
            oidc,
            session: Duration::from_secs(3_600),
            session_secret: secret.map(|s| SecretRef::Literal(Secret::new(s))),
            listen: "127.0.0.1:0".to_owned(),
            proxies: vec!["127.0.0.1".parse().expect("a network")],
            ..Settings::default()
        };
        let mut console = Console::start(&cluster, &app, &settings, clock.clone()).expect("starts");
        let declared = crate::config::yaml::offline(|| {
            crate::declare::load(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/orders"))
        });
        let declared = declared.expect("a topology");
        let (application, warnings) = (Arc::new(declared.application), declared.warnings);
        console = console.of(Subject { application, config: Default::default(), warnings });
        console.answer_within = if member { SPAN } else { Duration::from_millis(300) };
        console.body_within = Duration::from_secs(2);
        console.doors = super::submit::doors();
        console.look_every = Duration::from_millis(50);
        console.dead_letters = Some(TopicName::new("orders.dead"));
        let until = Instant::now() + SPAN;
        while !console.kept().progress().whole {
            assert!(Instant::now() < until, "operations are never read");
            std::thread::sleep(Duration::from_millis(2));
        }
        let console = Arc::new(console);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let serve =
            AdminServer::start("127.0.0.1:0", prometheus::Registry::new(), Arc::<Health>::default(), None, router(console.clone()));
        let server = runtime.block_on(serve).expect("listens");
        let stop = Arc::<AtomicBool>::default();
        let member = member.then(|| {
            let (cluster, stop) = (cluster.clone(), stop.clone());
            std::thread::spawn(move || answer_commands(&cluster, &stop))
        });
        let address = server.address;
        Self { cluster, console, clock, address, tokens, dir, stop, member, _server: server, _runtime: runtime }
    }

    /// Puts an operation's ledger record into its changelog, and waits until it is listed.
    pub fn ledger(&self, record: &LedgerRecord) {
        put_ledger(&self.cluster, record);
        self.until_listed(&record.key(), record.version);
    }

    /// Puts an operation record into its changelog, and waits until it is listed.
    pub fn record(&self, record: &OperationRecord) {
        put_record(&self.cluster, record);
        self.until_listed(&record.key(), record.version);
    }

    fn until_listed(&self, key: &OperationKey, version: i64) {
        let until = Instant::now() + SPAN;
        let is = || self.console.kept().index().find(key.operation.as_str(), None, None).iter().any(|l| l.version == version);
        while !is() {
            assert!(Instant::now() < until, "{key} is not listed");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Puts a dead letter of a user's record into its topic: where it lies.
    pub fn letter(&self, why: &str) -> String {
        let topic = TopicName::new("orders.dead");
        let headers = Headers::new()
            .with(headers::DEAD_CODE, "RB0501")
            .with(headers::DEAD_REASON, why.to_owned())
            .with(headers::DEAD_ORIGIN, "shipments/0/7");
        let record = OutRecord {
            topic: &topic,
            partition: None,
            timestamp: None,
            key: Some(b"s-1"),
            value: Some(b"MARK"),
            headers: Some(&headers),
        };
        let lies = self.cluster.publish(&[record], SPAN).expect("publishes");
        format!("orders.dead-0-{}", lies[0].1.0 - 1)
    }

    /// The records of a topic so far.
    pub fn records(&self, topic: &str) -> Vec<Option<Vec<u8>>> {
        let records = self.cluster.records(&TopicName::new(topic), Isolation::Committed);
        records.iter().map(|r| r.value.as_deref().map(<[u8]>::to_vec)).collect()
    }

    /// Commands that were written so far.
    pub fn commands(&self) -> Vec<Command> {
        commands(&self.cluster)
    }

    /// The audit records so far.
    pub fn audited(&self) -> Vec<Value> {
        let topic = topics::audit(&ApplicationId::new(APP));
        if self.cluster.admin().and_then(|a| a.topic(&topic)).expect("asks").is_none() {
            return Vec::new();
        }
        let records = self.cluster.records(&topic, Isolation::Committed);
        records.iter().map(|r| serde_json::from_slice(r.value.as_deref().unwrap_or_default()).expect("JSON")).collect()
    }

    /// Sends a request as it stands.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
        let mut to = TcpStream::connect(self.address).expect("connects");
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request += &format!("Host: {}\r\n", self.address);
        }
        headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
        write!(to, "{request}\r\n{body}").expect("writes");
        let mut answer = Vec::new();
        to.read_to_end(&mut answer).expect("reads");
        let answer = String::from_utf8(answer).expect("UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        Got { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub fn get(&self, path: &str) -> Got {
        self.send("GET", path, &[], "")
    }

    fn bearer(&self, who: &str) -> String {
        format!("Bearer {}", self.tokens[who])
    }

    /// The API, as somebody.
    pub fn api(&self, who: &str, path: &str) -> Got {
        self.send("GET", &format!("/api/v1{path}"), &[("Authorization", &self.bearer(who))], "")
    }

    /// An order by the API, as somebody.
    pub fn order(&self, who: &str, path: &str, body: &Value) -> Got {
        let headers = [("Authorization", &*self.bearer(who)), ("Content-Type", "application/json")];
        self.send("POST", &format!("/api/v1/operations/{path}"), &headers, &body.to_string())
    }

    /// Signs in as a browser does; the session's cookie.
    pub fn sign_in(&self, who: &str) -> String {
        let got = self.try_sign_in(&self.tokens[who]);
        assert_eq!(got.status, 303, "{got:?}");
        let cookie = got.header("set-cookie").expect("a cookie");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        cookie.split(';').next().expect("a value").to_owned()
    }

    pub fn try_sign_in(&self, token: &str) -> Got {
        let form = self.get("/sign-in");
        let before = form.header("set-cookie").and_then(|c| c.split(';').next()).expect("a cookie").to_owned();
        let body = format!("form={}&token={token}", form_token(&form.body));
        self.send("POST", "/sign-in", &[("Cookie", &before)], &body)
    }

    /// A page, as somebody whose cookie this is.
    pub fn page(&self, cookie: &str, path: &str) -> Got {
        self.send("GET", path, &[("Cookie", cookie)], "")
    }

    pub fn post(&self, cookie: &str, path: &str, body: &str) -> Got {
        self.send("POST", path, &[("Cookie", cookie)], body)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(member) = self.member.take() {
            let _ = member.join();
        }
    }
}

/// The value of the first field `name` after `from` in a page.
pub fn field(body: &str, from: &str, name: &str) -> String {
    let at = body.find(from).unwrap_or_else(|| panic!("no {from:?} in {body}"));
    let rest = &body[at..];
    let mark = format!("name=\"{name}\" value=\"");
    let at = rest.find(&mark).unwrap_or_else(|| panic!("no field {name} in {rest}")) + mark.len();
    rest[at..].split('"').next().expect("a value").to_owned()
}

pub fn form_token(body: &str) -> String {
    field(body, "<form", "form")
}

pub fn key(operation: &str) -> OperationKey {
    OperationKey { tenant: "acme".into(), operation: operation.into(), step: STEP.into() }
}

/// An operation that nobody can decide but a person: one attempt, no answer, nothing bounds when it arrives.
pub fn parked(operation: &str) -> LedgerRecord {
    let now = SystemClock.now().wall;
    let mut l = LedgerRecord::held(key(operation), now.plus(Duration::from_secs(3_600)));
    (l.phase, l.version, l.contract, l.call) = (Phase::Parked, 7, "orders".into(), "create".into());
    (l.resource, l.requester) = ("order/A-1".into(), "agent:buyer".into());
    (l.code, l.detail) = (Some(235), Some("nothing can prove what happened".into()));
    (l.plan_hash, l.unknown_since) = (Some("plan-1".into()), Some(now));
    l.approval = Some(ApprovalUse {
        id: "approval-1".into(),
        approver: "mira@acme".into(),
        plan_hash: "plan-1".into(),
        expires_at: now.plus(Duration::from_secs(60)),
        policy_version: "orders v2".into(),
    });
    l.attempts.push(Attempt {
        n: 1,
        epoch: "orders.effects-001/12".into(),
        token: "secret".into(),
        journalled_at: now,
        send_not_after: now.plus(Duration::from_secs(5)),
        tail_ms: 4_000,
        in_flight_ms: None,
        lag_ms: 1_000,
        state: AttemptState::Maybe,
        class: None,
        status: None,
        digest: None,
        ended_at: Some(now),
        warrants: Vec::new(),
    });
    l
}

/// An operation whose plan waits for an approval.
pub fn awaiting(operation: &str) -> OperationRecord {
    let now = SystemClock.now().wall;
    let request = WorkRequest {
        operation_id: operation.into(),
        message_id: "m-1".into(),
        attempt_id: None,
        tenant: "acme".into(),
        requester: "agent:buyer".into(),
        resource: "order/A-1".into(),
        resource_version: Some("4".into()),
        action: "order.create".into(),
        input: Default::default(),
        deadline: now.plus(Duration::from_secs(3_600)),
        required_permissions: Vec::new(),
        approval_ref: None,
        cost_estimate: Default::default(),
        written_for: Default::default(),
        traceparent: None,
    };
    let mut r = OperationRecord::admitted(request, STEP.into(), None, "agent.requests/0/1".into(), now);
    (r.version, r.stage, r.status) = (4, Stage::Waiting, Status::AwaitingApproval);
    (r.proposal, r.plan_hash) = (Some("{\"sku\":\"A-1\",\"total\":700}".into()), Some("plan-9".into()));
    r
}

pub fn put(cluster: &MemoryCluster, topic: &TopicName, key: &str, schema: &str, value: &[u8]) {
    let headers = Headers::new().with(headers::SCHEMA, schema.to_owned());
    let record = OutRecord {
        topic,
        partition: None,
        timestamp: None,
        key: Some(key.as_bytes()),
        value: Some(value),
        headers: Some(&headers),
    };
    cluster.publish(&[record], SPAN).expect("publishes");
}

pub fn put_ledger(cluster: &MemoryCluster, record: &LedgerRecord) {
    let topic = topics::ledger_changelog(&ApplicationId::new(APP));
    let value = internal::encode(record).expect("encodes");
    put(cluster, &topic, &format!("s/{}", record.key().joined()), LedgerRecord::SCHEMA, &value);
}

fn put_record(cluster: &MemoryCluster, record: &OperationRecord) {
    let topic = topics::changelog(&ApplicationId::new(APP), "operations");
    let value = internal::encode(record).expect("encodes");
    let k = record.key();
    put(cluster, &topic, &format!("o/{}\u{1f}{}\u{1f}{}", k.operation, k.tenant, k.step), OperationRecord::SCHEMA, &value);
}

fn commands(cluster: &MemoryCluster) -> Vec<Command> {
    let records = cluster.records(&topics::commands(&ApplicationId::new(APP)), Isolation::Committed);
    records.iter().map(|r| internal::decode(r.value.as_deref().unwrap_or_default()).expect("a command")).collect()
}

/// Answers commands as a member does: by the ledger's own rules, or as the gate does before the hand-over.
fn answer_commands(cluster: &MemoryCluster, stop: &AtomicBool) {
    let host = Assumptions { epsilon: Duration::ZERO, pause: Duration::ZERO, audit: SPAN };
    let rules = Rules::unknown(host);
    let done = Mutex::new(0);
    while !stop.load(Ordering::Acquire) {
        let all = commands(cluster);
        let mut done = done.lock().expect("one thread");
        for command in &all[*done..] {
            let now = SystemClock.now().wall;
            if let Some(mut ledger) = last_ledger(cluster, command) {
                let event = Event::Command { command: Box::new(command.clone()), burned: Vec::new() };
                let reply = effects::fold(&mut ledger, event, &rules, now);
                ledger.version += i64::from(reply.is_some_and(|r| r.code.is_none()));
                put_ledger(cluster, &ledger);
            } else if let Some(mut record) = last_record(cluster, command) {
                decide(&mut record, command, now);
                put_record(cluster, &record);
            }
        }
        *done = all.len();
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn decide(record: &mut OperationRecord, command: &Command, now: WallTime) {
    if record.answered.iter().any(|a| a.id == command.command_id) {
        return;
    }
    let decision = command.approval.as_ref().map(|a| a.decision);
    let (status, code) = match (command.kind, decision) {
        (_, _) if command.seen.is_some_and(|seen| seen != record.version) => (record.status, Some("RB0709".to_owned())),
        _ if record.status.is_end() => (record.status, Some("RB0710".to_owned())),
        (CommandKind::ApproveLate, Some(Decision::Approve)) => (Status::Approved, None),
        // What ends the operation is answered with the code of that end.
        (CommandKind::ApproveLate, Some(Decision::Deny)) => (Status::Denied, Some("RB0240".to_owned())),
        (CommandKind::Cancel, _) => (Status::Cancelled, Some("RB0711".to_owned())),
        _ => (record.status, Some("RB0710".to_owned())),
    };
    record.version += i64::from(code.is_none());
    (record.status, record.changed_at) = (status, now);
    record.answered.push(Answered {
        id: command.command_id.clone(),
        status,
        ack_level: record.ack_level,
        version: record.version,
        code,
        detail: Some(status.word().to_owned()),
    });
}

fn last_ledger(cluster: &MemoryCluster, command: &Command) -> Option<LedgerRecord> {
    let records = cluster.records(&topics::ledger_changelog(&ApplicationId::new(APP)), Isolation::Committed);
    let all = records.iter().filter_map(|r| internal::decode::<LedgerRecord>(r.value.as_deref()?).ok());
    all.filter(|l| l.operation_id == command.operation_id).last()
}

fn last_record(cluster: &MemoryCluster, command: &Command) -> Option<OperationRecord> {
    let records = cluster.records(&topics::changelog(&ApplicationId::new(APP), "operations"), Isolation::Committed);
    let all = records.iter().filter_map(|r| internal::decode::<OperationRecord>(r.value.as_deref()?).ok());
    all.filter(|r| r.request.operation_id == command.operation_id).last()
}
