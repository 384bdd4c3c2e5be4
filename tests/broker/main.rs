//! Everything that needs a real broker. The stack is started by the first test and stops when the process is gone.

mod conformance;
mod console;
mod faults;
mod kills;
mod lost;
mod processes;
mod registry;
mod scenarios;
mod story;
mod streams;
mod tables;
mod wire;

use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use readback::demo::stack::{Stack, StackOptions};
use readback::ids::Tp;
use readback::kafka::rdkafka::{RdCluster, RdConfig};
use readback::kafka::{Cluster as _, Isolation};

static IN_USE: RwLock<()> = RwLock::new(());

/// The stack that all tests of this binary share.
fn stack() -> &'static Stack {
    static STACK: OnceLock<Stack> = OnceLock::new();
    STACK.get_or_init(|| {
        let options = StackOptions::from_env().expect("the environment names a whole cluster or none");
        Stack::up(&options).unwrap_or_else(|e| panic!("these tests need a real broker\n{e}"))
    })
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
fn restart_broker() {
    stack().start_broker().expect("start");
    let mut reader = cluster_at(stack().brokers()).reader(Isolation::Committed).expect("a reader");
    let offsets = Tp::new("__consumer_offsets", 0);
    until("a leader", || reader.ends(&offsets, Isolation::Committed).ok());
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
