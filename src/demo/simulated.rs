//! The demo's ground where there is neither Docker nor a JDK: the in-process log, with members as threads of this process. It is
//! not Kafka, and says so; kills and broker restarts are played by the log.

use std::sync::Arc;
use std::time::Duration;

use crate::app::{Edges, Schemas, Weakened, compose, external_counts};
use crate::config::ProcessConfig;
use crate::effects;
use crate::error::{Error, Fault, Result, codes};
use crate::http::HyperPort;
use crate::ids::{GroupId, UnitName};
use crate::kafka::memory::{Limits, MemoryCluster};
use crate::kafka::{Cluster, Slot};
use crate::runtime::{KafkaStreams, Metrics, RuntimeOptions, SlotChoice, State, UnitRun};
use crate::state::{StateConfig, StateManager};
use crate::time::{SharedClock, SystemClock};

use super::members::{Member, MemberSetup};
use super::story::Ground;

/// Told once, before anything else.
pub const BANNER: &str = "neither Docker nor a JDK with Maven was found: this runs on the in-process log, which is NOT Kafka;\n  \
kills and broker restarts are simulated";

/// The in-process log as ground.
pub struct SimulatedGround {
    cluster: MemoryCluster,
    http: tokio::runtime::Runtime,
}

impl SimulatedGround {
    /// An empty log.
    pub fn new() -> Result<Self> {
        let http = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the HTTP runtime").because(e))?;
        let limits = Limits { wait: true, ..Limits::default() };
        Ok(Self { cluster: MemoryCluster::with(Arc::new(SystemClock), limits), http })
    }
}

impl Ground for SimulatedGround {
    type C = MemoryCluster;

    fn cluster(&self) -> &MemoryCluster {
        &self.cluster
    }
    fn brokers(&self) -> String {
        "this process".into()
    }
    fn registry(&self) -> String {
        "none".into()
    }
    fn name(&self) -> String {
        "in-process log (NOT Kafka)".into()
    }
    fn register(&self, _: &str, _: &str) -> Result<Option<u32>> {
        Ok(None)
    }
    fn stop_broker(&self) -> Result<bool> {
        self.cluster.set_down(true);
        Ok(true)
    }
    fn start_broker(&self) -> Result<()> {
        self.cluster.set_down(false);
        Ok(())
    }
    fn member(&self, setup: &MemberSetup, ordinal: u32, _: &[String]) -> Result<Box<dyn Member>> {
        Ok(Box::new(MemberThreads::start(self, setup, ordinal)?))
    }
    fn fault_names(&self) -> [&'static str; 2] {
        ["simulated_kills", "simulated_broker_restarts"]
    }
    fn kill_word(&self) -> &'static str {
        "simulated kill"
    }
    fn restart_word(&self) -> &'static str {
        "the log was away for a second (simulated broker restart)"
    }
}

struct NoRegistry;

impl Schemas for NoRegistry {
    fn id_of(&self, _: &str, _: &str) -> Result<Option<u32>> {
        Ok(None)
    }
}

/// A member as threads of this process.
struct MemberThreads {
    cluster: MemoryCluster,
    streams: Option<KafkaStreams>,
    slots: Vec<Slot>,
    kills: u32,
}

impl MemberThreads {
    fn start(ground: &SimulatedGround, setup: &MemberSetup, ordinal: u32) -> Result<Self> {
        let read = crate::declare::load(&setup.topology)
            .map_err(|d| Error::new(codes::BUG, Fault::Bug, "reading the demo's own topology").because(d.to_string()))?;
        let application = read.application;
        let clock: SharedClock = Arc::new(SystemClock);
        let edges = Edges {
            http: Arc::new(HyperPort::new(ground.http.handle().clone(), clock.clone(), None)?),
            avro: None,
            incarnation: uuid::Uuid::new_v4().simple().to_string()[..12].to_owned(),
            shared: Arc::new(effects::Shared::default()),
            fetcher: None,
            metrics: None,
            tracer: Default::default(),
            weakened: Weakened::default(),
        };
        let config = ProcessConfig::default();
        let admin = ground.cluster.admin().map_err(crate::runtime::error_of)?;
        let counts = external_counts(&application, admin.as_ref())?;
        let composed = compose(&application, &config, &counts, &NoRegistry, &edges)?;
        let state = StateManager::open(StateConfig { dir: None, cache: 16 << 20, inline: true })?;
        let mut units = vec![UnitRun { plan: composed.stream, threads: 1 }];
        units.extend(composed.effects.map(|plan| UnitRun { plan, threads: 1 }));
        let slot = |unit: &UnitName, group: &GroupId| Slot { unit: unit.clone(), group: group.clone(), number: ordinal };
        let slots = units.iter().map(|u| slot(&u.plan.unit, &u.plan.group)).collect();
        let options = RuntimeOptions { slots: SlotChoice::Ordinal(ordinal), ..RuntimeOptions::default() };
        let streams = KafkaStreams::start(&ground.cluster, units, &state, &clock, &options, &Metrics::unread()?)?;
        Ok(Self { cluster: ground.cluster.clone(), streams: Some(streams), slots, kills: 0 })
    }
}

impl Member for MemberThreads {
    fn kill_and_restart(&mut self) -> Result<()> {
        for slot in &self.slots {
            self.cluster.expire_transaction(&slot.name());
            self.cluster.expire_session(&slot.group, &slot.name());
        }
        self.kills += 1;
        Ok(())
    }
    fn check(&mut self) -> Result<()> {
        match self.streams.as_ref().map(KafkaStreams::state) {
            Some(State::Failed) => self.stop(Duration::from_secs(5)),
            _ => Ok(()),
        }
    }
    fn stand_still(&self) {}
    fn go_on(&self) {}
    fn stop(&mut self, limit: Duration) -> Result<()> {
        self.streams.take().map_or(Ok(()), |s| s.stop(limit))
    }
    fn kills(&self) -> u32 {
        self.kills
    }
}

#[cfg(test)]
mod tests {
    use crate::demo::story::{DemoOptions, run};

    use super::*;

    /// If this broke, a machine without broker would get no demo, or one whose report passes a log's tricks off as `kill -9` and a
    /// broker's restart.
    #[test]
    fn the_report_says_that_kills_and_restarts_are_simulated() {
        let work = tempfile::tempdir().expect("a directory");
        let ground = SimulatedGround::new().expect("a log");
        let report = run(&ground, &DemoOptions::new(11, 60), work.path()).expect("the story is told");
        assert!(report.holds, "{:?}", report.verdict);
        let json = serde_json::to_value(&report).expect("JSON");
        let faults = json["faults"].as_object().expect("faults by kind");
        assert_eq!((&faults["simulated_kills"], &faults["simulated_broker_restarts"]), (&3.into(), &1.into()));
        assert!(!faults.contains_key("kill_9") && !faults.contains_key("broker_restarts"), "{faults:?}");
        let table = report.table();
        assert!(table.contains("simulated kills 3") && table.contains("NOT Kafka"), "{table}");
        assert!(!table.contains("kill 9"), "{table}");
    }
}
