//! The task around the pure step: topics, partitions, timers, held signals, aborts.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::error::codes;
use crate::kafka::{KResult, Wake};
use crate::offset::Offset;
use crate::record::{Headers, InRecord, OutRecord};
use crate::serdes::internal::{Wire, decode, encode};
use crate::state::TaskStores;
use crate::task::{Close, Emit, Task, TaskSeed, TxCx};
use crate::time::{Clock, ManualClock, Now};

/// What a task wrote.
#[derive(Clone, Debug)]
struct Sent {
    topic: String,
    partition: i32,
    key: String,
    value: Vec<u8>,
    headers: Headers,
}

#[derive(Default)]
struct Recorder(Vec<Sent>);

impl Emit for Recorder {
    fn emit(&mut self, r: OutRecord<'_>) -> KResult<()> {
        self.0.push(Sent {
            topic: r.topic.to_string(),
            partition: r.partition.map_or(-1, |p| p.0),
            key: String::from_utf8_lossy(r.key.unwrap_or_default()).into_owned(),
            value: r.value.unwrap_or_default().to_vec(),
            headers: r.headers.cloned().unwrap_or_default(),
        });
        Ok(())
    }
}

struct Rig {
    task: Box<dyn Task>,
    stores: TaskStores,
    clock: Arc<ManualClock>,
    home: i32,
    next: i64,
}

fn config() -> OperationsConfig {
    let sink = |topic: &str| PublicSink { topic: TopicName::new(topic), partitions: 2, schema_id: None };
    OperationsConfig {
        application: ApplicationId::new("orders"),
        partitions: 4,
        pipelines: vec![gated()],
        renderer: Arc::new(Fill::default()),
        policy: Arc::new(Forbid::default()),
        results: BTreeMap::from([(StepName::new("place-order"), sink("agent.results"))]),
        dead_letters: Some(sink("agent.dead")),
        clock_error: Duration::from_millis(500),
        fetcher: Some(Arc::new(AtOnce)),
        metrics: None,
        tracer: Default::default(),
        weakened: None,
    }
}

/// Fetches everything at once.
struct AtOnce;

impl InputFetcher for AtOnce {
    fn fetch(&self, _: &Input, _: usize, done: FetchDone) {
        done(FetchEnd::Text(INPUT.into()));
    }
}

impl Rig {
    fn new() -> Self {
        Self::of(config())
    }
    fn of(config: OperationsConfig) -> Self {
        let plan = subtopology(config, 1).expect("a good configuration");
        let home = partition_of(b"op-1", 4).0;
        let clock = Arc::new(ManualClock::at(Now::default()));
        clock.advance(Duration::from_secs(1));
        let id = TaskId { subtopology: 1, partition: Partition(home) };
        let seed = TaskSeed { id, wake: Wake::none(), clock: clock.clone(), assignment: 1, dropped: Arc::new(|_, _| ()) };
        let task = (plan.build)(seed).expect("a task");
        let mut rig = Self { task, stores: TaskStores::in_memory(Partition(home), plan.stores), clock, home, next: 0 };
        rig.cx(|task, cx| task.restored(cx));
        rig
    }
    fn cx(&mut self, f: impl FnOnce(&mut dyn Task, &mut TxCx<'_>) -> Result<(), crate::task::TaskError>) -> Vec<Sent> {
        let mut out = Recorder::default();
        let mut cx = TxCx::new(self.clock.now(), &mut out, &mut self.stores);
        f(self.task.as_mut(), &mut cx).expect("no fault");
        out.0.into_iter().filter(|s| !s.topic.ends_with("-changelog")).collect()
    }
    fn commit(&mut self) {
        self.stores.committed(&|_| None).expect("in memory");
        self.task.committed(self.clock.now());
    }
    fn raw(&mut self, topic: &str, partition: i32, value: Vec<u8>, schema: &str) -> Vec<Sent> {
        self.next += 1;
        let record = InRecord {
            tp: Tp::new(topic, partition),
            offset: Offset(self.next),
            timestamp: None,
            key: Some(Bytes::from_static(b"op-1")),
            value: Some(Bytes::from(value)),
            headers: Headers::new().with(headers::SCHEMA, schema.to_owned()),
        };
        self.cx(|task, cx| task.process(record, cx))
    }
    fn put<T: Wire>(&mut self, topic: &str, value: &T) -> Vec<Sent> {
        let home = self.home;
        self.raw(topic, home, encode(value).expect("encodes"), T::SCHEMA)
    }
    fn advance(&mut self, by: Duration) -> Vec<Sent> {
        self.clock.advance(by);
        let now = self.clock.now();
        if !self.task.wants_wake(now) {
            return vec![];
        }
        self.cx(|task, cx| task.wake(now, cx))
    }
}

const INTAKE: &str = "orders-operations-repartition";

fn of(sent: &[Sent], topic: &str) -> Vec<Sent> {
    sent.iter().filter(|s| s.topic == topic).cloned().collect()
}
fn result(sent: &[Sent]) -> Vec<ResultRecord> {
    of(sent, "agent.results").iter().map(|s| decode(&s.value).expect("a result")).collect()
}

/// If this broke, the parts would fit in tests of the pure step and in no pipeline: one operation through all topics.
#[test]
fn one_operation_through_all_topics() {
    let mut rig = Rig::new();
    let sent = rig.put(INTAKE, &intake(request(INPUT)));
    let out = of(&sent, "orders-outbox");
    assert_eq!((out[0].partition, out[0].key.as_str()), (partition_of(b"op-1.plan", 4).0, "op-1.plan"));
    assert_eq!(out[0].headers.text(headers::ORDERING_KEY), Some("op-1.plan"));
    assert_eq!(result(&sent)[0].status, Status::Accepted);
    let key = shelf::record_key(&OperationId::new("op-1"), &Tenant::new("acme"), &StepName::new("place-order"));
    let stored = rig.stores.get(shelf::STORE, &key).expect("in memory").expect("a record");
    assert_eq!(stored.headers.text(headers::SCHEMA), Some("operation/3"), "views find records by it");
    assert_eq!(of(&sent, "agent.results")[0].headers.text(headers::CE_TYPE), Some("readback.result.accepted"));
    rig.commit();

    let hash = request(INPUT).identity();
    let sent = rig.put("orders-plans", &back(ReturnKind::PlanAnswer, "op-1.plan", "plan", hash, None, 2, Some(BIG)));
    let waiting = result(&sent).pop().expect("a result");
    assert_eq!(waiting.status, Status::AwaitingApproval);
    let yes = approval("a-1", &waiting.plan_hash.expect("a plan hash"), Decision::Approve);
    let sent = rig.put(INTAKE, &yes);
    let intent: Intent = decode(&of(&sent, "orders-outbox")[0].value).expect("an intent");
    assert_eq!((intent.kind, intent.version), (IntentKind::Effect, 4));
    rig.commit();

    let sent = rig.put("orders-commands", &command("c-1", CommandKind::Cancel));
    let control: Control = decode(&of(&sent, "orders-control")[0].value).expect("a control record");
    assert_eq!(control.command.expect("a command").command_id.as_str(), "c-1");
}

/// Rule 2 (shortest trace 6): if a record that came to the wrong partition were worked on there, two contents of one ID would
/// make two effects.
#[test]
fn life_02_a_record_of_another_partition_is_passed_on() {
    needed(Rule::OnePlace, |off| {
        let mut rig = Rig::of(OperationsConfig { weakened: off, ..config() });
        let place = partition_of(b"op-2", 4).0;
        assert_ne!(place, rig.home, "the test needs another partition");
        let foreign = OperationId::new("op-2");
        let sent = rig.put(INTAKE, &intake(WorkRequest { operation_id: foreign, ..request(INPUT) }));
        let passed_on =
            |s: &Sent| (s.topic.as_str(), s.partition, s.headers.text(headers::SCHEMA)) == (INTAKE, place, Some("intake/1"));
        sent.len() != 1 || !passed_on(&sent[0])
    });
}

/// Rule 12 (shortest trace 6): a command for an unknown operation is held; its expiry is an answer, never silence.
#[test]
fn life_12_held_commands_wait_and_their_expiry_is_an_answer() {
    let mut rig = Rig::new();
    assert!(rig.put("orders-commands", &command("c-1", CommandKind::Cancel)).is_empty());
    rig.commit();
    assert!(rig.task.next_due().is_some());
    let sent = rig.advance(Duration::from_secs(60));
    let answer = &result(&sent)[0];
    assert_eq!((answer.code.clone(), answer.answers.as_deref()), (Some(codes::UNKNOWN_OPERATION.to_string()), Some("c-1")));
    rig.commit();
    assert_eq!(rig.task.next_due(), None);

    assert!(
        rig.put("orders-commands", &command("c-2", CommandKind::Cancel)).len() == 1,
        "what may wait no longer is answered at once"
    );
    let long = Command { not_after: WallTime(100_000), ..command("c-3", CommandKind::Cancel) };
    assert!(rig.put("orders-commands", &long).is_empty());
    let sent = rig.put(INTAKE, &intake(request(INPUT)));
    let states: Vec<_> = result(&sent).iter().map(|r| (r.status, r.kind)).collect();
    assert_eq!(
        states,
        [(Status::Accepted, ResultKind::State), (Status::Cancelled, ResultKind::State), (Status::Cancelled, ResultKind::Answer)]
    );
    assert!(rig.advance(Duration::from_secs(60)).is_empty(), "it is held no longer");
}

/// If this broke, commands for an operation that never comes could fill the store.
#[test]
fn what_is_held_for_one_operation_is_bounded() {
    let mut rig = Rig::new();
    let answered: usize = (0..40).map(|n| rig.put("orders-commands", &command(&format!("c-{n}"), CommandKind::Cancel)).len()).sum();
    assert_eq!(answered, 8);
    assert!(rig.put("orders-commands", &command("c-1", CommandKind::Cancel)).is_empty(), "a repeat takes no more room");
    assert_eq!(result(&rig.advance(Duration::from_secs(60))).len(), 32);
}

/// If this broke, a deadline would pass unseen, or a restart would forget it.
#[test]
fn timers_fire_and_survive_a_restart() {
    let mut rig = Rig::new();
    rig.put(INTAKE, &intake(request(INPUT)));
    rig.commit();
    let stores = std::mem::replace(&mut rig.stores, TaskStores::in_memory(Partition(0), vec![]));
    let mut again = Rig::new();
    again.stores = stores;
    again.clock.set(rig.clock.now());
    again.cx(|task, cx| task.restored(cx));
    assert!(again.advance(Duration::from_secs(60)).is_empty());
    let sent = again.advance(Duration::from_secs(600));
    assert_eq!(result(&sent)[0].status, Status::Expired);
}

/// If this broke, what an aborted transaction had folded would be lost or counted twice.
#[test]
fn an_abort_forgets_what_was_folded() {
    let mut rig = Rig::new();
    rig.put(INTAKE, &intake(request(INPUT)));
    rig.stores.aborted();
    rig.task.aborted();
    rig.cx(|task, cx| task.restored(cx));
    assert_eq!(rig.task.next_due(), None);
    let sent = rig.put(INTAKE, &intake(request(INPUT)));
    assert_eq!(result(&sent).len(), 1);
    assert_eq!(result(&sent)[0].version, Some(1));
}

/// If this broke, an input by locator would be fetched before its operation is stored, or a fetch would be lost with an abort.
#[test]
fn inputs_are_fetched_after_the_commit_and_folded_again_after_an_abort() {
    let mut rig = Rig::new();
    let mut asked = request("");
    asked.input.inline = None;
    asked.input.locator = Some("https://files.test/a".into());
    asked.input.sha256 = Some("a".repeat(64));
    assert!(result(&rig.put(INTAKE, &intake(asked))).is_empty());
    assert!(!rig.task.wants_wake(rig.clock.now()), "nothing is fetched in the open transaction");
    rig.commit();
    for _ in 0..2 {
        let sent = rig.advance(Duration::from_millis(1));
        assert_eq!(result(&sent)[0].status, Status::Accepted);
        assert_eq!(of(&sent, "orders-outbox").len(), 1);
        rig.stores.aborted();
        rig.task.aborted();
        rig.cx(|task, cx| task.restored(cx));
    }
    rig.advance(Duration::from_millis(1));
    rig.commit();
    assert!(!rig.task.wants_wake(rig.clock.now()));
}

/// C101: a record that can't be read goes to the dead letters in the same transaction that passes it, as it came.
#[test]
fn c101_unreadable_records_are_dead_letters_with_their_origin() {
    let mut rig = Rig::new();
    let home = rig.home;
    let sent = rig.raw(INTAKE, home, b"garbage".to_vec(), "intake/1");
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].topic.as_str(), &sent[0].value[..]), ("agent.dead", &b"garbage"[..]));
    assert_eq!(sent[0].headers.text(headers::DEAD_CODE), Some("RB0501"));
    let origin = format!("{INTAKE}/{home}/1");
    assert_eq!(sent[0].headers.text(headers::DEAD_ORIGIN), Some(origin.as_str()));
}

/// C100: a bad record that is replayed again and again must not grow: its headers hold the last reason only, cut short.
#[test]
fn c100_dead_letters_do_not_grow() {
    let mut rig = Rig::new();
    let home = rig.home;
    let mut letter = rig.raw(INTAKE, home, b"garbage".to_vec(), "intake/1").remove(0);
    let size = |s: &Sent| s.headers.0.iter().map(|h| h.value.as_ref().map_or(0, Bytes::len)).sum::<usize>();
    let first = size(&letter);
    for _ in 0..200 {
        let record = InRecord {
            tp: Tp::new(INTAKE, home),
            offset: Offset(1),
            timestamp: None,
            key: Some(Bytes::from_static(b"op-1")),
            value: Some(Bytes::from(letter.value.clone())),
            headers: letter.headers.clone(),
        };
        letter = rig.cx(|task, cx| task.process(record, cx)).remove(0);
    }
    assert_eq!(size(&letter), first);
}

/// If this broke, work that is taken back and done again would count twice, and redeliveries would look like new requests.
#[test]
fn what_happens_is_counted_once_it_is_committed() {
    let registry = prometheus::Registry::new();
    let metrics = Some(Metrics::new(&registry, Default::default()).expect("new names"));
    let mut rig = Rig::of(OperationsConfig { metrics, ..config() });
    let count = |name: &str, label: &str| -> f64 {
        let families = registry.gather();
        let of = families.iter().filter(|f| f.name() == name).flat_map(|f| f.get_metric());
        of.filter(|m| m.get_label().iter().any(|l| l.value() == label)).map(|m| m.get_counter().get_value()).sum()
    };
    let admitted = || count("readback_operations_admitted_total", "place-order");
    rig.put(INTAKE, &intake(request(INPUT)));
    assert_eq!(admitted(), 0.0, "nothing is committed yet");
    rig.stores.aborted();
    rig.task.aborted();
    rig.put(INTAKE, &intake(request(INPUT)));
    rig.commit();
    assert_eq!(admitted(), 1.0);
    rig.put(INTAKE, &intake(request(INPUT)));
    rig.put(INTAKE, &intake(request("{\"other\": true}")));
    rig.advance(Duration::from_secs(600));
    rig.commit();
    assert_eq!(admitted(), 1.0);
    assert_eq!(count("readback_operations_redelivered_total", "place-order"), 2.0);
    assert_eq!(count("readback_operations_refused_total", &codes::REQUEST_CONFLICT.to_string()), 1.0);
    assert_eq!(count("readback_operations_ended_total", "expired"), 1.0);
}

/// A registry's gauge by name and by one label, summed.
fn gauge(registry: &prometheus::Registry, name: &str, label: &str) -> f64 {
    let families = registry.gather();
    let of = families.iter().filter(|f| f.name() == name).flat_map(|f| f.get_metric());
    of.filter(|m| m.get_label().iter().any(|l| l.value() == label)).map(|m| m.get_gauge().get_value()).sum()
}

/// If this broke, cost in flight and the oldest operation would be wrong from the first abort or the first rebalance on, and for ever.
#[test]
fn what_stands_open_is_told_through_aborts_and_assignments() {
    let registry = prometheus::Registry::new();
    let tenants = crate::events::Tenants::declared(["acme".to_owned()]);
    let metrics = Some(Metrics::new(&registry, tenants).expect("new names"));
    let of = |name: &str, label: &str| gauge(&registry, &format!("readback_operations_{name}"), label);
    let told = || (of("open", "planning"), of("cost_in_flight", "tokens"), of("oldest_timestamp_seconds", "acme"));
    let mut rig = Rig::of(OperationsConfig { metrics: metrics.clone(), ..config() });
    rig.advance(Duration::from_secs(1));
    rig.commit();
    assert!(!rig.task.wants_wake(rig.clock.now()), "there is nothing to count");
    rig.put(INTAKE, &intake(request(INPUT)));
    rig.stores.aborted();
    rig.task.aborted();
    assert_eq!(told(), (0.0, 0.0, 0.0), "it was taken back");
    rig.put(INTAKE, &intake(request(INPUT)));
    rig.commit();
    assert_eq!(told(), (1.0, 100.0, 2.0));

    // The partition goes, and comes back to a task that finds the record.
    rig.task.close(Close::Lost);
    assert_eq!(told(), (0.0, 0.0, 0.0));
    let plan = subtopology(OperationsConfig { metrics, ..config() }, 1).expect("a good configuration");
    let id = TaskId { subtopology: 1, partition: Partition(rig.home) };
    let seed = TaskSeed { id, wake: Wake::none(), clock: rig.clock.clone(), assignment: 2, dropped: Arc::new(|_, _| ()) };
    rig.task = (plan.build)(seed).expect("a task");
    rig.cx(|task, cx| task.restored(cx));
    assert_eq!(told(), (0.0, 0.0, 0.0), "not counted yet");
    // A record that changes before its turn counts as it is then; what is taken back is counted again.
    rig.put(INTAKE, &intake(request("{\"other\": true}")));
    rig.advance(Duration::from_secs(1));
    rig.stores.aborted();
    rig.task.aborted();
    rig.cx(|task, cx| task.restored(cx));
    rig.advance(Duration::from_secs(1));
    rig.commit();
    assert_eq!(told(), (1.0, 100.0, 2.0));
    rig.advance(Duration::from_secs(600));
    rig.commit();
    assert_eq!((told().0, told().2), (0.0, 0.0), "it has expired");
}

/// If this broke, spans of one operation would hang in different traces or under nobody, work that is taken back would be told, or
/// what nobody samples would be.
#[test]
fn the_spans_of_an_operation_hang_under_its_admission() {
    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let spans = Arc::new(std::sync::Mutex::new(Vec::<crate::trace::Span>::new()));
    let kept = spans.clone();
    let settings = crate::trace::TraceSettings { ratio: 0.0, follow: true, propagate: true };
    let tracer = crate::trace::Tracer::new(&settings, Arc::new(move |span| kept.lock().expect("a lock").push(span)));
    let mut rig = Rig::of(OperationsConfig { tracer, ..config() });
    let ask = |traceparent: &str| intake(WorkRequest { traceparent: Some(traceparent.to_owned()), ..request(INPUT) });
    let sent = rig.put(INTAKE, &ask(&CALLER.replace("-01", "-00")));
    let intent: Intent = decode(&of(&sent, "orders-outbox")[0].value).expect("an intent");
    assert_eq!(intent.traceparent, Some(CALLER.replace("-01", "-00")), "passed on as it came");
    rig.stores.aborted();
    rig.task.aborted();
    rig.put(INTAKE, &ask(CALLER));
    rig.stores.aborted();
    rig.task.aborted();
    assert!(spans.lock().expect("a lock").is_empty(), "nothing is committed, or nothing sampled");

    let sent = rig.put(INTAKE, &ask(CALLER));
    let intent: Intent = decode(&of(&sent, "orders-outbox")[0].value).expect("an intent");
    rig.commit();
    let hash = request(INPUT).identity();
    let sent = rig.put("orders-plans", &back(ReturnKind::PlanAnswer, "op-1.plan", "plan", hash, None, 2, Some(BIG)));
    let waiting = result(&sent).pop().expect("a result");
    rig.commit();
    rig.advance(Duration::from_secs(3));
    rig.put(INTAKE, &approval("a-1", &waiting.plan_hash.expect("a plan hash"), Decision::Deny));
    rig.commit();

    let spans = spans.lock().expect("a lock");
    let names: Vec<&str> = spans.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["process requests", "plan place-order", "approval place-order", "operation place-order"]);
    let first = &spans[0];
    assert_eq!(first.parent, crate::trace::TraceContext::sampled(CALLER).map(|c| c.span));
    assert_eq!(intent.traceparent, Some(first.context.to_string()), "what comes of it carries its context");
    assert!(spans[1..].iter().all(|s| s.parent == Some(first.context.span) && s.context.trace == first.context.trace));
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|s| s.context.span).collect();
    assert_eq!(ids.len(), 4, "each its own");
    assert!(spans[2].ended.since(spans[2].began) >= Duration::from_secs(3) && spans[3].failed.is_some());
}
