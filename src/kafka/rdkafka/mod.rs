//! The real client; the only folder that imports rdkafka.

mod admin;
mod bare;
mod context;
mod convert;
mod ghost;
mod login;
mod patience;
mod raw;
mod reader;
mod refusal;
mod sink;
mod source;
mod token;
mod warm;

pub use bare::{Copy, Feed};
pub use reader::RdReader;
pub use sink::RdSink;
pub use source::RdSource;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, Producer as _};

use self::context::Context;
use self::login::Login;
use self::refusal::Refusals;
use super::{Admin, Class, Cluster, Isolation, KResult, KafkaFault, Metrics, Reader, Refusal, Slot, TxLimits, TxSink as _, Wake};
use crate::config::{GroupProtocol, Security};
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
    /// With [`GroupProtocol::Consumer`] members have no instance id, and `session` and `cooperative` are the brokers' matter.
    pub protocol: GroupProtocol,
    /// How long one request may take.
    pub request: Duration,
    /// How long [`committed`](super::Source::committed) waits before it says `Blocked`.
    pub offsets: Duration,
    /// TLS and login; what it reads from files may change while clients run.
    pub security: Option<Security>,
    /// Other client settings, handed on as they are. Those that the product owns are refused.
    pub settings: BTreeMap<String, String>,
    /// Where the statistics of members and their producers go.
    pub metrics: Option<Metrics>,
}

impl RdConfig {
    /// The defaults for a cluster.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            session: Duration::from_secs(15),
            cooperative: false,
            protocol: GroupProtocol::Classic,
            request: Duration::from_secs(10),
            offsets: Duration::from_millis(500),
            security: None,
            settings: BTreeMap::new(),
            metrics: None,
        }
    }
}

/// How often the client tells its statistics, where somebody measures and `statistics.interval.ms` says nothing else.
const STATISTICS: &str = "5000";

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
    ("group.protocol", "it has an option of its own, and slots need the classic one"),
    ("isolation.level", "input of transactions that were taken back must never be seen"),
    ("linger.ms", "a commit cuts it short, and it is chosen for that"),
    ("partition.assignment.strategy", "co-partitioning needs range"),
    ("partitioner", "keys must land where Java producers put them"),
    ("session.timeout.ms", "it has an option of its own, checked against the transaction's"),
    ("transaction.timeout.ms", "it has an option of its own, checked against the session's"),
    ("transactional.id", "it is the slot's name"),
];

/// How long records of a transaction wait for more, in milliseconds. While one request of a partition is under way, the client's thread
/// looks without a pause for records that have waited longer.
const LINGER: &str = "100";
/// The same where a store waits for the positions: a commit has the less left to send, and few records come at once.
const SHORT_LINGER: &str = "5";

/// A real cluster.
#[derive(Clone, Debug)]
pub struct RdCluster(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: RdConfig,
    login: Option<Arc<Login>>,
    refusals: Arc<Refusals>,
    /// Clients that were made for slots before these are taken.
    warm: warm::Warm,
}

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
        let refusals = Arc::new(Refusals::new(ca_of(&config)));
        let login = config.security.as_ref().map(|s| Login::new(s, refusals.clone())).transpose()?;
        let cluster = Self(Arc::new(Shared { config, login, refusals, warm: warm::Warm::default() }));
        match cluster.base("checked").create_native_config() {
            Err(KafkaError::ClientConfig(_, why, key, _)) => {
                let what = format!("the client setting {key} can't be set: {why}");
                let next = match why.contains("not available at build time") || why.contains("built with") {
                    true => "build with --features ssl (OpenSSL of the system) or ssl-vendored: this build has no TLS",
                    false => "see the client's list of settings, or leave it out",
                };
                Err(Error::new(codes::BAD_VALUE, Fault::Configuration, what).next(next))
            }
            _ => Ok(cluster),
        }
    }

    fn config(&self) -> &RdConfig {
        &self.0.config
    }

    /// What a client calls back.
    fn context(&self, name: &str) -> Context {
        Context::of(name, self.0.refusals.clone(), self.0.login.clone())
    }

    /// A consumer that signs in with what holds now, and tells its statistics where `watch` takes them.
    fn make_consumer(
        &self,
        what: &'static str,
        name: &str,
        config: &ClientConfig,
        watch: Option<super::Watch>,
    ) -> KResult<BaseConsumer<Context>> {
        self.signed_in()?;
        let context = self.context(name).watched(watch);
        let made: BaseConsumer<Context> = config.create_with_context(context).map_err(|e| creation(what, name, &e))?;
        made.context().keep(made.client());
        Ok(made)
    }

    /// The consumer of a slot; it has not joined yet.
    fn make_member(&self, slot: &Slot) -> KResult<BaseConsumer<Context>> {
        let name = slot.name();
        self.make_consumer("creating the consumer", name.as_str(), &self.member(slot), self.watch(super::Client::Consumer, &name))
    }

    /// The transactional producer of a slot; it has fenced nobody yet.
    fn make_sender(&self, name: &SlotName, limits: TxLimits) -> KResult<BaseProducer<Context>> {
        let watch = self.watch(super::Client::Producer, name);
        self.make_producer("creating the producer", name.as_str(), &self.transactional(name, limits), watch)
    }

    /// A producer, in the same way.
    fn make_producer(
        &self,
        what: &'static str,
        name: &str,
        config: &ClientConfig,
        watch: Option<super::Watch>,
    ) -> KResult<BaseProducer<Context>> {
        self.signed_in()?;
        let context = self.context(name).watched(watch);
        let made: BaseProducer<Context> = config.create_with_context(context).map_err(|e| creation(what, name, &e))?;
        made.context().keep(made.client());
        Ok(made)
    }

    /// Waits for what a new client needs to sign in.
    fn signed_in(&self) -> KResult<()> {
        self.0.login.as_ref().map_or(Ok(()), |login| login.ready(self.config().request))
    }

    fn base(&self, client_id: &str) -> ClientConfig {
        let mut c = ClientConfig::new();
        for (key, value) in &self.config().settings {
            c.set(key, value);
        }
        if let Some(login) = &self.0.login {
            login.put(&mut c);
        }
        c.set("bootstrap.servers", &self.config().brokers).set("client.id", client_id);
        self.default(&mut c, "reconnect.backoff.ms", "50");
        self.default(&mut c, "reconnect.backoff.max.ms", "1000");
        self.default(&mut c, "socket.nagle.disable", "true");
        c
    }

    fn default(&self, c: &mut ClientConfig, key: &str, value: &str) {
        if !self.config().settings.contains_key(key) {
            c.set(key, value);
        }
    }

    /// The watch over a client of a slot, where somebody measures.
    fn watch(&self, client: super::Client, slot: &SlotName) -> Option<super::Watch> {
        self.config().metrics.as_ref().map(|m| m.watch(client, slot.as_str()))
    }

    /// Lets the client tell its statistics.
    fn measured(&self, c: &mut ClientConfig) {
        if self.config().metrics.is_some() {
            self.default(c, "statistics.interval.ms", STATISTICS);
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
            .set("session.timeout.ms", self.config().session.as_millis().to_string())
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
        let session = self.config().session.as_millis();
        let mut c = self.consumer(name.as_str(), slot.group.as_str(), Isolation::Committed);
        self.measured(&mut c);
        if self.config().protocol == GroupProtocol::Consumer {
            // Sessions and heartbeats are the group's own settings at the brokers; the client refuses its own beside them.
            c.remove("session.timeout.ms").remove("heartbeat.interval.ms").set("group.protocol", "consumer");
            return c;
        }
        c.set("group.instance.id", name.as_str())
            .set("partition.assignment.strategy", if self.config().cooperative { "cooperative-sticky" } else { "range" });
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
        c.set("linger.ms", if limits.reports { SHORT_LINGER } else { LINGER })
            .set("transactional.id", name.as_str())
            .set("transaction.timeout.ms", limits.transaction.as_millis().to_string())
            .set("delivery.report.only.error", if limits.reports { "false" } else { "true" });
        self.measured(&mut c);
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

    fn prepare(&self, slot: &Slot, topics: &[TopicName], limits: TxLimits) -> KResult<()> {
        self.warm(slot, topics, limits)
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

/// The authorities that brokers' certificates must go back to, however they were given.
fn ca_of(config: &RdConfig) -> Option<PathBuf> {
    let raw = || config.settings.get("ssl.ca.location").map(PathBuf::from);
    config.security.as_ref().map_or_else(raw, |s| s.ca.clone())
}

/// A fault of creating a client.
fn creation(what: &'static str, to: impl std::fmt::Display, e: &rdkafka::error::KafkaError) -> KafkaFault {
    let fault = convert::clientless(what, to, e);
    // Certificates and keys are read when a client is made.
    let tls = fault.detail.contains("ssl.") || fault.detail.contains("SSL");
    let refusal = tls.then(|| Refusal::Tls(fault.detail.clone()));
    // They were good when they were looked at last: in the middle of a rotation the next try finds them whole.
    let class = if tls { Class::Retry } else { fault.class };
    KafkaFault { class, ..fault }.refused(refusal)
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
