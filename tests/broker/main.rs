//! Everything that needs a real broker. The stack is started by the first test and stops when the process is gone.

mod alone;
mod brokers;
mod chaos;
mod cluster;
mod collector;
mod conformance;
mod console;
mod dead_letters;
mod declared;
mod faults;
mod handover;
mod kills;
mod lost;
mod members;
mod notices;
mod plans;
mod processes;
mod protocol;
mod registry;
mod scenarios;
mod secured;
mod security;
mod settings;
mod slow;
mod standby;
mod story;
mod streams;
mod sums;
mod tables;
mod tools;
mod traces;
mod webhooks;
mod wire;

use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use readback::demo::stack::{Stack, StackOptions};
use readback::ids::{TopicName, Tp};
use readback::kafka::rdkafka::{RdCluster, RdConfig};
use readback::kafka::{Cluster as _, Isolation, NewTopic, Slot, TxLimits, TxSink as _};
use readback::record::OutRecord;

static IN_USE: RwLock<()> = RwLock::new(());

/// The stack that all tests of this binary share.
fn stack() -> &'static Stack {
    static STACK: OnceLock<Stack> = OnceLock::new();
    STACK.get_or_init(|| {
        let options = StackOptions::from_env().expect("the environment names a whole cluster or none");
        let stack = Stack::up(&options).unwrap_or_else(|e| panic!("these tests need a real broker\n{e}"));
        commit_once(&cluster_at(stack.brokers()));
        stack
    })
}

/// Commits a transaction and reads it: a broker that was just started makes its coordinators with the first one, and until then
/// refuses transactions that a story is about.
fn commit_once(cluster: &RdCluster) {
    let name = format!("first-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let (topic, tp) = (TopicName::from(name.clone()), Tp::new(name.as_str(), 0));
    let new = NewTopic { name: topic.clone(), partitions: 1, replication: -1, config: Default::default() };
    cluster.admin().and_then(|a| a.create(&[new])).expect("a topic");
    let slot = Slot { unit: name.as_str().into(), group: name.as_str().into(), number: 0 };
    let mut sink = cluster.sink(&slot, TxLimits::default()).expect("a producer");
    until("there is a coordinator", || sink.init().ok());
    sink.begin().expect("begins");
    let record =
        OutRecord { topic: &topic, partition: Some(tp.partition), timestamp: None, key: None, value: Some(b"."), headers: None };
    sink.send(record).expect("sends");
    sink.commit(Duration::from_secs(60)).expect("commits");
    let mut reader = cluster.reader(Isolation::Committed).expect("a reader");
    let is_read = || reader.ends(&tp, Isolation::Committed).ok().filter(|(_, end)| end.0 == 2);
    until("the commit is seen", is_read);
    cluster.admin().and_then(|a| a.delete(&[topic])).expect("deleted");
}

/// Clients of a cluster through `brokers`, with the shortest session that a broker allows.
fn cluster_at(brokers: &str) -> RdCluster {
    RdCluster::new(RdConfig { session: Duration::from_secs(6), ..RdConfig::new(brokers) }).expect("settings")
}

/// Clients whose session outlasts a restart of the broker: after a shorter one the group fences them by what is left of themselves.
fn patient_cluster() -> RdCluster {
    RdCluster::new(RdConfig { session: Duration::from_secs(45), ..RdConfig::new(stack().brokers()) }).expect("settings")
}

/// Starts the killed broker and waits until it leads its partitions. A broker that is asked to end a transaction before that drops
/// the markers ("Couldn't find leader endpoint"), and the transaction hangs: a fault of brokers that are their own controller.
///
/// A broker that does not lead after a minute is killed and started once more: what it is for here is to be back.
fn restart_broker() {
    if start_and_lead(Duration::from_secs(60)).is_none() {
        eprintln!("the broker does not lead after a restart; its log ends with\n{}", end_of_broker_log());
        stack().kill_broker().expect("kill");
        start_and_lead(Duration::from_secs(180))
            .unwrap_or_else(|| panic!("no leader; the broker's log ends with\n{}", end_of_broker_log()));
    }
}

/// Whether the broker leads within `limit` after it was started; with what the reader was told last where it does not.
fn start_and_lead(limit: Duration) -> Option<()> {
    stack().start_broker().expect("start");
    let mut reader = cluster_at(stack().brokers()).reader(Isolation::Committed).expect("a reader");
    let offsets = Tp::new("__consumer_offsets", 0);
    let start = Instant::now();
    loop {
        match reader.ends(&offsets, Isolation::Committed) {
            Ok(_) => return Some(()),
            Err(fault) if start.elapsed() > limit => {
                eprintln!("the last answer of the restarted broker: {fault}");
                return None;
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// The last lines of the broker's log: what it complained of, then what it did.
fn end_of_broker_log() -> String {
    let log = StackOptions::from_env().expect("as before").dir.join("broker.log");
    let log = std::fs::read_to_string(log).unwrap_or_else(|e| format!("(not read: {e})"));
    let lines: Vec<&str> = log.lines().collect();
    let complaints: Vec<&str> =
        lines.iter().rev().filter(|l| l.contains(" WARN ") || l.contains(" ERROR ")).take(40).copied().collect();
    let last = lines.iter().rev().take(40).copied();
    last.chain(["--- complaints"]).chain(complaints).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// A cluster in use by many tests at once.
struct Shared {
    cluster: RdCluster,
    _in_use: RwLockReadGuard<'static, ()>,
}

/// For tests that leave the broker as it is.
fn shared() -> Shared {
    let in_use = IN_USE.read().unwrap_or_else(PoisonError::into_inner);
    Shared { cluster: cluster_at(stack().brokers()), _in_use: in_use }
}

/// For tests that break the broker or its proxy: no other test runs meanwhile.
fn alone() -> RwLockWriteGuard<'static, ()> {
    IN_USE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Tries until `f` gives something; no assertion depends on how long it takes.
fn until<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = f() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(180), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
