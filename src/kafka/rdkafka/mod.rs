//! The real client; the only folder that imports rdkafka.

mod admin;
mod bare;
mod context;
mod convert;
mod ghost;
mod patience;
mod raw;
mod reader;
mod sink;
mod source;

pub use bare::{Copy, Feed};
pub use reader::RdReader;
pub use sink::RdSink;
pub use source::RdSource;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use super::{Admin, Class, Cluster, Isolation, KResult, KafkaFault, Reader, Slot, TxLimits, TxSink as _, Wake};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{Partition, SlotName, TopicName};
use crate::offset::NextOffset;
use crate::record::OutRecord;

/// How to reach a cluster, and the few times that are ours to choose.
#[derive(Clone, Debug)]
pub struct RdConfig {
    /// `bootstrap.servers`.
    pub brokers: String,
    /// `session.timeout.ms`: how long the group waits for a silent member. Brokers refuse less than 6 s by default.
    pub session: Duration,
    /// `cooperative-sticky` instead of `range`; only where no sub-topology needs co-partitioning.
    pub cooperative: bool,
    /// How long one request may take.
    pub request: Duration,
    /// How long [`committed`](super::Source::committed) waits before it says `Blocked`.
    pub offsets: Duration,
    /// Other client settings, handed on as they are. Those that the product owns are refused.
    pub settings: BTreeMap<String, String>,
}

impl RdConfig {
    /// The defaults for a cluster.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            session: Duration::from_secs(15),
            cooperative: false,
            request: Duration::from_secs(10),
            offsets: Duration::from_millis(500),
            settings: BTreeMap::new(),
        }
    }
}

/// Settings that the product owns, and why.
pub const RESERVED: &[(&str, &str)] = &[
    ("acks", "a transaction needs all of them"),
    ("auto.offset.reset", "where reading starts is said by the topology, never by the client"),
    ("bootstrap.servers", "it has an option of its own"),
    ("client.id", "it is the slot's name, by which a live holder is found"),
    ("delivery.report.only.error", "stores need the acknowledged positions"),
    ("enable.auto.commit", "offsets are committed in the transaction only"),
    ("enable.auto.offset.store", "offsets are committed in the transaction only"),
    ("enable.idempotence", "a transaction needs it"),
    ("enable.partition.eof", "drained partitions are known by it"),
    ("group.id", "it follows from the application's name"),
    ("group.instance.id", "it is the slot's name"),
    ("group.protocol", "slots need the classic protocol"),
    ("isolation.level", "input of transactions that were taken back must never be seen"),
    ("linger.ms", "a commit cuts it short, and it is chosen for that"),
    ("partition.assignment.strategy", "co-partitioning needs range"),
    ("partitioner", "keys must land where Java producers put them"),
    ("session.timeout.ms", "it has an option of its own, checked against the transaction's"),
    ("transaction.timeout.ms", "it has an option of its own, checked against the session's"),
    ("transactional.id", "it is the slot's name"),
];

/// A real cluster.
#[derive(Clone, Debug)]
pub struct RdCluster(Arc<RdConfig>);

impl RdCluster {
    /// Checks the settings; connects to nothing yet.
    ///
    /// # Errors
    /// `RESERVED_SETTING` for a setting that the product owns, `BAD_VALUE` for one that the client does not know or take.
    pub fn new(config: RdConfig) -> Result<Self> {
        for (key, why) in RESERVED {
            if config.settings.contains_key(*key) {
                let what = format!("the client setting {key} can't be set: {why}");
                return Err(Error::new(codes::RESERVED_SETTING, Fault::Configuration, what).next(format!("remove {key}")));
            }
        }
        let cluster = Self(Arc::new(config));
        match cluster.base("checked").create_native_config() {
            Err(KafkaError::ClientConfig(_, why, key, _)) => {
                let what = format!("the client setting {key} can't be set: {why}");
                Err(Error::new(codes::BAD_VALUE, Fault::Configuration, what)
                    .next("see the client's list of settings, or leave it out"))
            }
            _ => Ok(cluster),
        }
    }

    fn config(&self) -> &RdConfig {
        &self.0
    }

    fn base(&self, client_id: &str) -> ClientConfig {
        let mut c = ClientConfig::new();
        for (key, value) in &self.0.settings {
            c.set(key, value);
        }
        c.set("bootstrap.servers", &self.0.brokers).set("client.id", client_id);
        self.default(&mut c, "reconnect.backoff.ms", "50");
        self.default(&mut c, "reconnect.backoff.max.ms", "1000");
        self.default(&mut c, "socket.nagle.disable", "true");
        c
    }

    fn default(&self, c: &mut ClientConfig, key: &str, value: &str) {
        if !self.0.settings.contains_key(key) {
            c.set(key, value);
        }
    }

    fn consumer(&self, client_id: &str, group: &str, isolation: Isolation) -> ClientConfig {
        let mut c = self.base(client_id);
        c.set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            // Of members only, but the client compares it with other settings everywhere.
            .set("session.timeout.ms", self.0.session.as_millis().to_string())
            .set(
                "isolation.level",
                match isolation {
                    Isolation::Committed => "read_committed",
                    Isolation::Uncommitted => "read_uncommitted",
                },
            );
        // With the client's own defaults a full queue is looked at again after a whole second, and holds 100,000 records.
        self.default(&mut c, "fetch.queue.backoff.ms", "1");
        self.default(&mut c, "queued.min.messages", "5000");
        self.default(&mut c, "queued.max.messages.kbytes", "4096");
        self.default(&mut c, "allow.auto.create.topics", "false");
        c
    }

    fn member(&self, slot: &Slot) -> ClientConfig {
        let name = slot.name();
        let session = self.0.session.as_millis();
        let mut c = self.consumer(name.as_str(), slot.group.as_str(), Isolation::Committed);
        c.set("group.instance.id", name.as_str())
            .set("partition.assignment.strategy", if self.0.cooperative { "cooperative-sticky" } else { "range" });
        self.default(&mut c, "heartbeat.interval.ms", &(session / 10).clamp(100, 3_000).to_string());
        c
    }

    fn producer(&self, client_id: &str) -> ClientConfig {
        let mut c = self.base(client_id);
        c.set("enable.idempotence", "true").set("acks", "all").set("linger.ms", "0").set("partitioner", "murmur2_random");
        c
    }

    fn transactional(&self, name: &SlotName, limits: TxLimits) -> ClientConfig {
        let mut c = self.producer(name.as_str());
        // Nobody sees a record before the commit, which cuts this short: so records leave in batches, not one by one.
        c.set("linger.ms", "5")
            .set("transactional.id", name.as_str())
            .set("transaction.timeout.ms", limits.transaction.as_millis().to_string())
            .set("delivery.report.only.error", if limits.reports { "false" } else { "true" });
        c
    }
}

/// How long a finder's request waits at the broker for records that are not there yet: the next place has to wait for it.
const FIND: Duration = Duration::from_millis(10);

impl Cluster for RdCluster {
    type Source = RdSource;
    type Sink = RdSink;

    fn source(&self, slot: &Slot, topics: &[TopicName], wake: Wake) -> KResult<RdSource> {
        RdSource::join(self.clone(), slot, topics, wake)
    }

    fn sink(&self, slot: &Slot, limits: TxLimits) -> KResult<RdSink> {
        RdSink::new(self, &slot.name(), limits)
    }

    fn fence(&self, slot: &SlotName) -> KResult<()> {
        let mut sink = RdSink::new(self, slot, TxLimits { reports: false, ..TxLimits::default() })?;
        let until = Instant::now() + self.config().request;
        loop {
            match sink.init() {
                Err(e) if e.class == Class::Retry && Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                done => return done,
            }
        }
    }

    fn reader(&self, isolation: Isolation) -> KResult<Box<dyn Reader>> {
        Ok(Box::new(RdReader::new(self.clone(), isolation, None)?))
    }

    fn finder(&self, isolation: Isolation) -> KResult<Box<dyn Reader>> {
        Ok(Box::new(RdReader::new(self.clone(), isolation, Some(FIND))?))
    }

    fn admin(&self) -> KResult<Box<dyn Admin>> {
        Ok(Box::new(admin::RdAdmin::new(self)?))
    }

    fn publish(&self, records: &[OutRecord<'_>], limit: Duration) -> KResult<Vec<(Partition, NextOffset)>> {
        sink::publish(self, records, limit)
    }
}

/// A fault of creating a client.
fn creation(what: &'static str, to: impl std::fmt::Display, e: &rdkafka::error::KafkaError) -> KafkaFault {
    convert::clientless(what, to, e)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C115: a setting that does not exist, or a value that it does not take, must be told at load, by its name.
    #[test]
    fn unknown_settings_and_values_are_refused_at_load() {
        for (key, value) in [("transactional.timeout.ms", "1000"), ("security.protocol", "sals_ssl"), ("socket.timeout.ms", "soon")]
        {
            let mut config = RdConfig::new("127.0.0.1:1");
            config.settings.insert(key.to_owned(), value.to_owned());
            let refused = RdCluster::new(config).expect_err("must be refused");
            assert_eq!((refused.code, refused.fault), (codes::BAD_VALUE, Fault::Configuration));
            assert!(refused.doing.contains(key), "{refused}");
        }
    }

    /// C115: a file must not switch off what the guarantees rest on; the text names the setting and the rule.
    #[test]
    fn owned_settings_are_refused_with_the_reason() {
        for (key, why) in RESERVED {
            let mut config = RdConfig::new("127.0.0.1:1");
            config.settings.insert((*key).to_owned(), "x".to_owned());
            let refused = RdCluster::new(config).expect_err("must be refused");
            assert_eq!(refused.code, codes::RESERVED_SETTING);
            assert!(refused.doing.contains(why), "{refused}");
        }
    }
}
