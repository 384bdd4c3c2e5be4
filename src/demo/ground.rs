//! The real ground of the demo: a broker and a registry of the local stack, or a cluster that exists.

use crate::error::Result;
use crate::kafka::{RdCluster, RdConfig};
use crate::registry::{Registry, RegistryAuth};

use super::members::{Member, MemberProcess, MemberSetup};
use super::stack::Stack;
use super::story::Ground;

/// A stack with clients of its own.
pub struct KafkaGround {
    stack: Stack,
    ours: bool,
    cluster: RdCluster,
    registry: Registry,
}

impl KafkaGround {
    /// `ours` = the broker may be broken.
    pub fn new(stack: Stack, ours: bool) -> Result<Self> {
        let cluster = RdCluster::new(RdConfig::new(stack.brokers()))?;
        let registry = Registry::new(stack.registry(), RegistryAuth::None)?;
        Ok(Self { stack, ours, cluster, registry })
    }
}

impl Ground for KafkaGround {
    type C = RdCluster;

    fn cluster(&self) -> &RdCluster {
        &self.cluster
    }
    fn brokers(&self) -> String {
        self.stack.brokers().to_owned()
    }
    fn registry(&self) -> String {
        self.stack.registry().to_owned()
    }
    fn name(&self) -> String {
        let brokers = match self.stack.brokers().split(',').count() {
            1 => "one broker".to_owned(),
            n => format!("{n} brokers"),
        };
        match self.ours {
            true => format!("Apache Kafka {} (KRaft, {brokers})", self.stack.kafka()).replace("  ", " "),
            false => "an existing Kafka cluster".to_owned(),
        }
    }
    fn register(&self, subject: &str, avsc: &str) -> Result<Option<u32>> {
        self.registry.register(subject, avsc).map(Some)
    }
    fn member(&self, setup: &MemberSetup, ordinal: u32, fail_points: &[String]) -> Result<Box<dyn Member>> {
        Ok(Box::new(MemberProcess::start(setup, ordinal, fail_points)?))
    }
    fn stop_broker(&self) -> Result<bool> {
        if self.ours {
            self.stack.stop_broker()?;
        }
        Ok(self.ours)
    }
    fn start_broker(&self) -> Result<()> {
        self.stack.start_broker()
    }
}
