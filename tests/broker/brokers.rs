//! Three brokers and a controller of their own: `dev/stack` with replication 3 and min.insync 2, started by the first story that needs
//! them. They stop when this process is gone.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::until;

/// Where they are, and a hand on each.
pub struct Brokers {
    /// `bootstrap.servers`: all three.
    pub addresses: String,
    pub registry: String,
}

/// The three, all up, for one story at a time.
pub fn three_brokers() -> MutexGuard<'static, Brokers> {
    static THREE: OnceLock<Mutex<Brokers>> = OnceLock::new();
    let three = THREE.get_or_init(|| Mutex::new(Brokers::up())).lock().unwrap_or_else(PoisonError::into_inner);
    (1..=3).for_each(|n| three.start(n));
    three.until_in_sync();
    three
}

/// One partition of a topic as a broker tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub topic: String,
    pub partition: i32,
    pub leader: i32,
    pub in_sync: usize,
    pub replicas: usize,
}

impl Brokers {
    fn up() -> Self {
        let env = stack(&["up", "--lease", &std::process::id().to_string()]);
        let value = |name: &str| {
            let line = env.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_else(|| panic!("no {name} in {env}")).to_owned()
        };
        Self { addresses: value("READBACK_BROKERS"), registry: value("READBACK_REGISTRY") }
    }
    /// `kill -9`.
    pub fn kill(&self, broker: i32) {
        stack(&["broker", "kill", &broker.to_string()]);
    }
    /// Stops it in order: it gives its leaderships away first.
    pub fn stop(&self, broker: i32) {
        stack(&["broker", "stop", &broker.to_string()]);
    }
    /// Starts it on its data; one that runs is left as it is.
    pub fn start(&self, broker: i32) {
        stack(&["broker", "start", &broker.to_string()]);
    }
    /// Every partition's leader goes to its next replica.
    pub fn move_leaders(&self) {
        stack(&["leaders"]);
    }
    /// All partitions, as whoever answers knows them; `None` where nobody does.
    pub fn places(&self) -> Option<Vec<Place>> {
        let asking: BaseConsumer = rdkafka::ClientConfig::new().set("bootstrap.servers", &self.addresses).create().ok()?;
        let told = asking.fetch_metadata(None, Duration::from_secs(10)).ok()?;
        let places = told.topics().iter().flat_map(|t| {
            t.partitions().iter().map(|p| Place {
                topic: t.name().to_owned(),
                partition: p.id(),
                leader: p.leader(),
                in_sync: p.isr().len(),
                replicas: p.replicas().len(),
            })
        });
        Some(places.collect())
    }
    /// Until every replica follows its leader.
    pub fn until_in_sync(&self) {
        until("all replicas are in sync", || {
            let places = self.places()?;
            places.iter().all(|p| p.leader > 0 && p.in_sync == p.replicas).then_some(())
        });
    }
    /// The broker that coordinates what this name belongs to: a group on `__consumer_offsets`, a transactional id on `__transaction_state`.
    pub fn coordinator(&self, topic: &str, name: &str) -> i32 {
        let hash = name.bytes().fold(0i32, |h, b| h.wrapping_mul(31).wrapping_add(i32::from(b))) & i32::MAX;
        until("the coordinator is known", || {
            let all: Vec<Place> = self.places()?.into_iter().filter(|p| p.topic == topic).collect();
            let partition = hash % i32::try_from(all.len()).ok().filter(|n| *n > 0)?;
            all.iter().find(|p| p.partition == partition).map(|p| p.leader).filter(|leader| *leader > 0)
        })
    }
}

/// Runs `dev/stack` for the three; what it printed.
fn stack(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let run = Command::new("bash")
        .arg(root.join("dev/stack"))
        .args(arguments)
        .env("READBACK_STACK_DIR", root.join("target/stack-three"))
        .env("READBACK_STACK_BROKERS", "3")
        .output()
        .expect("bash");
    assert!(run.status.success(), "dev/stack {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).into_owned()
}
