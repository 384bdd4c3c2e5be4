//! A task on a scripted network: what it emits is recorded, what it calls waits for the test's answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use crate::contract::{Completion, Confirm, LaneRule, Parameters};
use crate::effects::config::{CallSpec, EffectsConfig, Guard, LEDGER};
use crate::effects::{Assumptions, Denial, EffectTask, LedgerRecord, Rules, Shared, ledger, subtopology};
use crate::http::{CallLimits, Destination, Via};
use crate::ids::{DispatchToken, OperationId, Partition, TaskId, Tp, WireKey};
use crate::intents::{
    AnswerClass, Command, CommandKind, Control, ControlKind, Cost, Hearsay, Intent, IntentKind, PublicSink, RenderedRequest,
    ResultRecord, Return, headers,
};
use crate::kafka::{KResult, Wake};
use crate::offset::Offset;
use crate::record::{Headers, InRecord, OutRecord};
use crate::serdes::internal;
use crate::state::TaskStores;
use crate::task::{Close, Emit, Task, TaskError, TaskSeed, TxCx};
use crate::time::{Clock, ManualClock, MonoTime, Now, WallTime};

use super::judge::Plain;
use super::network::Network;

pub const APP: &str = "orders";
const START: i64 = 1_000_000_000;

pub fn sec(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Rules of a target with a complete readback: L 5 s, V 1 s, cut 2 s, P 2 s, ε 0.5 s.
pub fn rules() -> Rules {
    Rules {
        confirm: Confirm::Readback,
        completion: Completion::Sync,
        webhook: None,
        dedupe: None,
        margin: sec(1),
        in_flight: Some(sec(5)),
        lag: Some(sec(1)),
        no_intermediaries: true,
        version_read: false,
        refuses_copies: false,
        creates_once: false,
        max_age: None,
        compensates: false,
        duplicates: false,
        lane: LaneRule::Block,
        attempts: 3,
        readbacks: 50,
        cut: sec(2),
        window: sec(5),
        unknown_max_age: sec(600),
        epsilon: Duration::from_millis(500),
        pause: sec(2),
        audit: sec(1_000),
        weakened: None,
    }
}

pub fn now() -> Now {
    Now { wall: WallTime(START), mono: MonoTime(1_000_000_000) }
}

pub fn intent(op: &str) -> Intent {
    Intent {
        tenant: "acme".into(),
        operation_id: op.into(),
        step: "place-order".into(),
        identity_hash: "0123456789abcdef".into(),
        version: 3,
        kind: IntentKind::Effect,
        contract: "orders".into(),
        contract_version: 1,
        call: "create".into(),
        ordering_key: op.into(),
        wire_key: WireKey::from(format!("key-{op}")),
        request: RenderedRequest {
            method: "POST".into(),
            path: "/orders".into(),
            body: Some(b"{}".to_vec()),
            ..Default::default()
        },
        parameters: "{\"sku\":\"A\"}".into(),
        deadline: WallTime(START + 900_000),
        created_at: WallTime(START),
        requester: "agent:buyer".into(),
        action: "order.create".into(),
        resource: "order/1".into(),
        resource_version: None,
        required_permissions: Vec::new(),
        plan_hash: Some("plan-1".into()),
        approval: None,
        other_approver: true,
        cost: Cost::default(),
        look_at: None,
        traceparent: None,
    }
}

pub fn command(kind: CommandKind, op: &str, id: &str) -> Command {
    Command {
        command_id: id.into(),
        kind,
        tenant: "acme".into(),
        operation_id: op.into(),
        step: Some("place-order".into()),
        seen: None,
        by: "approver".into(),
        second: None,
        reason: "test".into(),
        evidence: None,
        resolution: None,
        approval: None,
        issued_at: WallTime(START),
        not_after: WallTime(START + 900_000),
        via: None,
    }
}

/// What somebody saw of an attempt.
pub fn said(attempt: i32, token: &str, class: AnswerClass) -> Hearsay {
    let token = DispatchToken::new(token);
    Hearsay { attempt, token, class, status: None, digest: None, reference: None, seen_at: WallTime(START) }
}

/// Says no when told to.
#[derive(Default)]
pub struct Switch(pub Mutex<Option<Denial>>);

impl Guard for Switch {
    fn may_send(&self, _: &LedgerRecord, _: &Parameters, _: WallTime) -> Result<(), Denial> {
        self.0.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

#[derive(Clone)]
pub struct Sent {
    pub topic: String,
    pub partition: i32,
    pub value: Vec<u8>,
    pub headers: Headers,
}

#[derive(Default)]
struct Out(Vec<Sent>);

impl Emit for Out {
    fn emit(&mut self, r: OutRecord<'_>) -> KResult<()> {
        self.0.push(Sent {
            topic: r.topic.to_string(),
            partition: r.partition.expect("always explicit").0,
            value: r.value.unwrap_or_default().to_vec(),
            headers: r.headers.cloned().unwrap_or_default(),
        });
        Ok(())
    }
}

pub struct Bench {
    pub clock: Arc<ManualClock>,
    pub network: Arc<Network>,
    pub guard: Arc<Switch>,
    pub config: EffectsConfig,
    task: Box<dyn Task>,
    stores: TaskStores,
    open: Out,
    /// Committed records.
    pub log: Vec<Sent>,
    offset: i64,
    assignment: u64,
}

impl Bench {
    pub fn new(rules: Rules) -> Self {
        Self::made(rules, &["orders"], Vec::new())
    }

    /// At a target that wants these.
    pub fn with_credentials(rules: Rules, credentials: Vec<crate::contract::Credentials>) -> Self {
        Self::made(rules, &["orders"], credentials)
    }

    /// A contract of each name, all alike, each with a target of its own.
    pub fn with_targets(rules: Rules, targets: &[&str]) -> Self {
        Self::made(rules, targets, Vec::new())
    }

    fn made(rules: Rules, targets: &[&str], credentials: Vec<crate::contract::Credentials>) -> Self {
        let clock = Arc::new(ManualClock::at(now()));
        let network = Arc::new(Network::new(Arc::clone(&clock)));
        let guard = Arc::new(Switch::default());
        let spec = |target: &str| CallSpec {
            name: format!("{target}#create"),
            path: "/orders".into(),
            read_path: "/orders".into(),
            target: target.into(),
            read_gate: format!("{target}/read"),
            rules: rules.clone(),
            judge: Arc::new(Plain { signs: rules.max_age.is_some() }),
            to: Arc::new(Destination {
                base_url: "http://orders.internal".into(),
                hosts: vec!["orders.internal".into()],
                private: true,
            }),
            via: Via::Own,
            read_via: Via::Own,
            credentials: credentials.clone(),
            limits: CallLimits { connect: sec(1), cut: sec(2), body: 1 << 20 },
            concurrency: 2,
            pages: 3,
        };
        let sink = |topic: &str| PublicSink { topic: topic.into(), partitions: 1, schema_id: None };
        let config = EffectsConfig {
            application: APP.into(),
            incarnation: "run-1".into(),
            partitions: 1,
            calls: targets
                .iter()
                .flat_map(|t| ["create", "cancel"].map(|call| (((*t).into(), 1, call.into()), Arc::new(spec(t)))))
                .collect(),
            guard: Arc::clone(&guard) as _,
            results: BTreeMap::from([("place-order".into(), sink("results"))]),
            dead_letters: BTreeMap::from([("place-order".into(), sink("dead"))]),
            http: Arc::clone(&network) as _,
            shared: Arc::new(Shared::default()),
            host: Assumptions::default(),
            max_open: 1_000,
        };
        let plan = subtopology(config.clone(), 1);
        let stores = TaskStores::in_memory(Partition(0), plan.stores);
        let task = Box::new(Self::make(&config, &clock, 1));
        Self { clock, network, guard, config, task, stores, open: Out::default(), log: Vec::new(), offset: 0, assignment: 1 }
    }

    fn make(config: &EffectsConfig, clock: &Arc<ManualClock>, assignment: u64) -> EffectTask {
        let id = TaskId { subtopology: 1, partition: Partition(0) };
        let seed = TaskSeed { id, wake: Wake::none(), clock: Arc::clone(clock) as _, assignment, dropped: Arc::new(|_, _| ()) };
        EffectTask::new(Arc::new(config.clone()), seed)
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut dyn Task, &mut TxCx<'_>) -> T) -> T {
        let mut cx = TxCx::new(self.clock.now(), &mut self.open, &mut self.stores);
        f(&mut *self.task, &mut cx)
    }

    fn record(&mut self, topic: &str, key: &str, value: Vec<u8>, h: Headers) -> InRecord {
        self.offset += 1;
        InRecord {
            tp: Tp::new(topic, 0),
            offset: Offset(self.offset),
            timestamp: None,
            key: Some(Bytes::from(key.to_owned())),
            value: Some(value.into()),
            headers: h,
        }
    }

    pub fn try_outbox(&mut self, value: Vec<u8>, h: Headers) -> Result<(), TaskError> {
        let record = self.record(&format!("{APP}-outbox"), "op", value, h);
        self.with(|task, cx| task.process(record, cx))
    }
    pub fn outbox(&mut self, i: &Intent) {
        let h = Headers::new().with(headers::OPERATION, i.operation_id.to_string());
        self.try_outbox(internal::encode(i).unwrap(), h).expect("an intent is taken");
    }
    fn say(&mut self, op: &str, command: Option<Command>, hearsay: Option<Hearsay>) {
        let control = Self::control(op, command, hearsay);
        self.hear_control(&control);
    }
    fn control(op: &str, command: Option<Command>, hearsay: Option<Hearsay>) -> Control {
        Control {
            kind: if command.is_some() { ControlKind::Command } else { ControlKind::Hearsay },
            tenant: "acme".into(),
            operation_id: op.into(),
            step: "place-order".into(),
            deadline: WallTime(START + 900_000),
            command,
            hearsay,
            contract: None,
            identity_hash: None,
        }
    }
    fn hear_control(&mut self, control: &Control) {
        let (value, op) = (internal::encode(control).unwrap(), control.operation_id.to_string());
        let record = self.record(&format!("{APP}-control"), &op, value, Headers::new());
        self.with(|task, cx| task.process(record, cx)).expect("control is taken");
    }
    pub fn order(&mut self, c: Command) {
        let op = c.operation_id.to_string();
        self.say(&op, Some(c), None);
    }
    /// A plan wants a call undone, of the envelope with this hash.
    pub fn undo(&mut self, op: &str, identity: &str) {
        let control = Control { kind: ControlKind::Undo, identity_hash: Some(identity.into()), ..Self::control(op, None, None) };
        self.hear_control(&control);
    }
    pub fn hear(&mut self, op: &str, attempt: i32, token: &str, class: AnswerClass) {
        self.say(op, None, Some(said(attempt, token, class)));
    }
    /// What other tasks of this application published on control comes back as input.
    pub fn loop_control(&mut self) {
        let topic = format!("{APP}-control");
        let said: Vec<_> = self.log.iter().filter(|s| s.topic == topic).cloned().collect();
        self.log.retain(|s| s.topic != topic);
        for s in said {
            let record = self.record(&topic, "op", s.value, s.headers);
            self.with(|task, cx| task.process(record, cx)).expect("control is taken");
        }
    }
    pub fn turn(&mut self) {
        let now = self.clock.now();
        if self.task.wants_wake(now) {
            self.with(|task, cx| task.wake(now, cx)).expect("wake");
        }
    }
    pub fn commit(&mut self) {
        self.with(|task, cx| task.before_commit(cx)).expect("before commit");
        self.log.append(&mut self.open.0);
        self.stores.committed(&|_| None).unwrap();
        self.task.committed(self.clock.now());
    }
    pub fn abort(&mut self) {
        self.open.0.clear();
        self.stores.aborted();
        self.task.aborted();
        self.with(|task, cx| task.restored(cx)).expect("restored");
    }
    /// Turn and commit.
    pub fn step(&mut self) {
        self.turn();
        self.commit();
    }
    pub fn after(&mut self, d: Duration) {
        self.clock.advance(d);
        self.step();
    }
    /// Its partition is about to go: what comes before the last commit.
    pub fn leave(&mut self) {
        self.task.leaving();
        self.turn();
    }
    /// The old task is gone, in order or not; a new one stands over the same committed stores. `process` = another process.
    pub fn replace(&mut self, process: bool) {
        self.task.close(Close::Lost);
        self.open.0.clear();
        self.stores.aborted();
        self.assignment += 1;
        if process {
            self.config.shared = Arc::new(Shared::default());
            self.config.incarnation = format!("run-{}", self.assignment);
        }
        self.task = Box::new(Self::make(&self.config, &self.clock, self.assignment));
        self.with(|task, cx| task.restored(cx)).expect("restored");
    }
    /// From now on calls of operations that are sampled make spans.
    pub fn traced(&mut self, tracer: crate::trace::Tracer) {
        self.config.shared = Arc::new(Shared::default().traced(tracer));
        self.replace(false);
    }
    pub fn ledger(&mut self, op: &str) -> Option<LedgerRecord> {
        self.load(&intent(op))
    }
    pub fn ledger_of(&mut self, i: &Intent) -> LedgerRecord {
        self.load(i).expect("in the ledger")
    }
    fn load(&mut self, i: &Intent) -> Option<LedgerRecord> {
        let key = ledger::op(&i.key());
        let mut out = Out::default();
        let mut cx = TxCx::new(now(), &mut out, &mut self.stores);
        let _ = LEDGER;
        ledger::load(&mut cx, &key).expect("readable")
    }
    pub fn results(&self) -> Vec<ResultRecord> {
        self.log.iter().filter(|s| s.topic == "results").map(|s| internal::decode(&s.value).unwrap()).collect()
    }
    /// `dispatched/3 …`: statuses of state records in their order.
    pub fn story(&self, op: &str) -> String {
        let of = OperationId::new(op);
        let states = self.results().into_iter().filter(|r| r.operation_id == of && r.kind == crate::intents::ResultKind::State);
        states.map(|r| r.status.word()).collect::<Vec<_>>().join(" ")
    }
    pub fn returns(&self) -> Vec<Return> {
        let topic = format!("{APP}-plans");
        self.log.iter().filter(|s| s.topic == topic).map(|s| internal::decode(&s.value).unwrap()).collect()
    }
}
