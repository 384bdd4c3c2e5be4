//! Questions and orders to the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Cx, Poll, Wake as StdWake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic as RdTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::{Metadata, MetadataTopic};
use rdkafka::types::RDKafkaRespErr;

use super::context::Context;
use super::{RdCluster, convert, creation, raw};
use crate::ids::{GroupId, TopicName, Tp};
use crate::kafka::{Admin, Class, Isolation, KResult, KafkaFault, Member, NewTopic, Refusal, Resource, TopicInfo};
use crate::offset::NextOffset;
use crate::time::WallTime;

const NAME: &str = "readback-admin";
/// Of a question that a refusal may cut short.
const SLICE: Duration = Duration::from_millis(500);
/// How long brokers may take to hear of a topic that was created: moments, but on a machine that starves.
const KNOWN_WITHIN: Duration = Duration::from_secs(20);
const MAKING: &str = "creating the admin client";
const READING_SETTINGS: &str = "reading settings";

/// An admin client, and a consumer for metadata: a producer's would create the topic it asks for.
pub(super) struct RdAdmin {
    cluster: RdCluster,
    admin: AdminClient<Context>,
    metadata: BaseConsumer<Context>,
}

struct Unpark(Thread);

impl StdWake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread; the client's own thread completes it.
fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Cx::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn topic_info(topic: &MetadataTopic) -> TopicInfo {
    let replication = topic.partitions().first().map_or(0, |p| p.replicas().len());
    TopicInfo {
        name: TopicName::from(topic.name()),
        partitions: u32::try_from(topic.partitions().len()).unwrap_or(u32::MAX),
        replication: u32::try_from(replication).unwrap_or(u32::MAX),
    }
}

impl RdAdmin {
    pub(super) fn new(cluster: &RdCluster) -> KResult<Self> {
        let metadata = cluster.make_consumer(MAKING, NAME, &cluster.consumer(NAME, NAME, Isolation::Committed), None)?;
        let admin: AdminClient<Context> =
            cluster.base(NAME).create_with_context(cluster.context(NAME)).map_err(|e| creation(MAKING, NAME, &e))?;
        admin.inner().context().keep(admin.inner());
        Ok(Self { cluster: cluster.clone(), admin, metadata })
    }

    fn fault(&self, doing: &'static str, to: impl std::fmt::Display, e: &KafkaError) -> KafkaFault {
        self.is_refused();
        convert::fault(self.metadata.client(), doing, to, e)
    }

    fn options(&self) -> AdminOptions {
        self.admin.inner().context().keep(self.admin.inner());
        let limit = self.cluster.config().request;
        AdminOptions::new().request_timeout(Some(limit)).operation_timeout(Some(limit))
    }

    fn metadata(&self) -> &BaseConsumer<Context> {
        self.metadata.context().keep(self.metadata.client());
        &self.metadata
    }

    /// Asks for one topic or all, in slices: whom a broker refuses need not wait for the end of the time.
    fn fetch(&self, topic: Option<&str>) -> Result<Metadata, KafkaError> {
        let until = Instant::now() + self.cluster.config().request;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.metadata().fetch_metadata(topic, left.min(SLICE)) {
                Err(e) if left <= SLICE || self.is_refused() => return Err(e),
                Err(_) => {}
                found => return found,
            }
        }
    }

    /// Whether login or certificates are refused. Nothing is read by this consumer, but its log, which says so, comes that way.
    fn is_refused(&self) -> bool {
        while self.metadata.poll(Duration::ZERO).is_some() {}
        matches!(self.metadata.context().refusal(), Some(Refusal::Tls(_) | Refusal::Login(_)))
    }

    fn settings(&self, of: &ResourceSpecifier<'_>, to: &str) -> KResult<BTreeMap<String, String>> {
        let found = wait(self.admin.describe_configs([of], &self.options())).map_err(|e| self.fault(READING_SETTINGS, to, &e))?;
        let mut settings = BTreeMap::new();
        for resource in found {
            let resource = resource.map_err(|code| self.fault(READING_SETTINGS, to, &KafkaError::AdminOp(code)))?;
            settings.extend(resource.entries.into_iter().filter_map(|e| e.value.map(|v| (e.name, v))));
        }
        if settings.is_empty() { Err(self.hidden(of, to)) } else { Ok(settings) }
    }

    /// Why there are no settings. The client hands on a refused resource as one that has none, and whatever may be read has some: it is the
    /// refusal, unless the brokers say that this login may read them. Then the one that answered has not heard of the topic yet.
    fn hidden(&self, of: &ResourceSpecifier<'_>, to: &str) -> KafkaFault {
        let topic = TopicName::new(to);
        let (on, refused) = match of {
            ResourceSpecifier::Broker(_) => (Resource::Cluster, RDKafkaErrorCode::ClusterAuthorizationFailed),
            _ => (Resource::Topic(&topic), RDKafkaErrorCode::TopicAuthorizationFailed),
        };
        match self.operations(on) {
            Ok(Some(all)) if all.contains("DescribeConfigs") => {
                KafkaFault::new(Class::Retry, READING_SETTINGS, to, "the broker tells none yet")
            }
            _ => self.fault(READING_SETTINGS, to, &KafkaError::AdminOp(refused)),
        }
    }

    fn may(&self, asked: &raw::Asked<'_>, of: impl std::fmt::Display) -> KResult<raw::Told> {
        let client = self.admin.inner();
        client.context().keep(client);
        let told = raw::may(client, asked, self.cluster.config().request);
        told.map_err(|code| self.fault("asking for permissions", of, &KafkaError::AdminOp(code)))
    }

    /// A creation is confirmed by the controller, and brokers hear of it a moment later. Until then whoever looks for the topic, or for
    /// its partitions, is told that there is none. Bounded: where it takes longer, the next request says so.
    fn until_known(&self, topics: &[NewTopic]) {
        let until = Instant::now() + KNOWN_WITHIN;
        let led = |t: &MetadataTopic| {
            let mut partitions = t.partitions().iter();
            t.error().is_none() && partitions.len() > 0 && partitions.all(|p| p.error().is_none())
        };
        let all_known = || {
            let known = self.fetch(None).ok()?;
            topics.iter().all(|new| known.topics().iter().any(|t| t.name() == new.name.as_str() && led(t))).then_some(())
        };
        while all_known().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Admin for RdAdmin {
    fn topic(&self, name: &TopicName) -> KResult<Option<TopicInfo>> {
        let found = self.fetch(Some(name.as_str())).map_err(|e| self.fault("asking for a topic", name, &e))?;
        let Some(topic) = found.topics().iter().find(|t| t.name() == name.as_str()) else { return Ok(None) };
        match topic.error() {
            None => Ok(Some(topic_info(topic))),
            Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART | RDKafkaRespErr::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC) => {
                Ok(None)
            }
            Some(code) => Err(self.fault("asking for a topic", name, &KafkaError::MetadataFetch(code.into()))),
        }
    }

    fn topics(&self) -> KResult<Vec<TopicInfo>> {
        let found = self.fetch(None).map_err(|e| self.fault("asking for topics", &self.cluster.config().brokers, &e))?;
        Ok(found.topics().iter().filter(|t| t.error().is_none()).map(topic_info).collect())
    }

    fn topic_config(&self, name: &TopicName) -> KResult<BTreeMap<String, String>> {
        self.settings(&ResourceSpecifier::Topic(name.as_str()), name.as_str())
    }

    fn broker_config(&self) -> KResult<BTreeMap<String, String>> {
        let found = self.fetch(None).map_err(|e| self.fault("asking for brokers", &self.cluster.config().brokers, &e))?;
        let none = || KafkaFault::new(Class::Retry, "asking for brokers", &self.cluster.config().brokers, "no broker answers");
        let broker = found.brokers().first().ok_or_else(none)?.id();
        self.settings(&ResourceSpecifier::Broker(broker), &format!("broker {broker}"))
    }

    fn create(&self, topics: &[NewTopic]) -> KResult<()> {
        const DOING: &str = "creating topics";
        let new: Vec<RdTopic<'_>> = topics
            .iter()
            .map(|t| {
                let partitions = i32::try_from(t.partitions).unwrap_or(i32::MAX);
                let base = RdTopic::new(t.name.as_str(), partitions, TopicReplication::Fixed(t.replication));
                t.config.iter().fold(base, |topic, (key, value)| topic.set(key, value))
            })
            .collect();
        let done = wait(self.admin.create_topics(&new, &self.options()));
        for topic in
            done.map_err(|e| self.fault(DOING, topics.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", "), &e))?
        {
            match topic {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) => return Err(KafkaFault::new(Class::Config, DOING, name, KafkaError::AdminOp(code))),
            }
        }
        self.until_known(topics);
        Ok(())
    }

    fn delete_records(&self, before: &[(Tp, NextOffset)]) -> KResult<()> {
        const DOING: &str = "deleting records";
        let list = convert::positions(before.iter().map(|(tp, next)| (tp, *next)))?;
        let done = wait(self.admin.delete_records(&list, &self.options())).map_err(|e| self.fault(DOING, NAME, &e))?;
        for element in done.elements() {
            element.error().map_err(|e| self.fault(DOING, Tp::new(element.topic(), element.partition()), &e))?;
        }
        Ok(())
    }

    fn committed(&self, group: &GroupId, tps: &[Tp]) -> KResult<Vec<(Tp, NextOffset)>> {
        const DOING: &str = "reading committed offsets";
        // It never subscribes, so it asks the group's coordinator without being a member.
        let asking =
            self.cluster.make_consumer(MAKING, NAME, &self.cluster.consumer(NAME, group.as_str(), Isolation::Committed), None)?;
        let found = asking
            .committed_offsets(convert::partitions(tps), self.cluster.config().request)
            .map_err(|e| self.fault(DOING, group, &e))?;
        let position = |at| match at {
            Offset::Offset(at) => Some(NextOffset(at)),
            _ => None,
        };
        let known = found.elements();
        Ok(known.iter().filter_map(|e| Some((Tp::new(e.topic(), e.partition()), position(e.offset())?))).collect())
    }

    fn delete(&self, topics: &[TopicName]) -> KResult<()> {
        const DOING: &str = "deleting topics";
        let names: Vec<&str> = topics.iter().map(|t| t.as_str()).collect();
        let done = wait(self.admin.delete_topics(&names, &self.options())).map_err(|e| self.fault(DOING, names.join(", "), &e))?;
        for topic in done {
            match topic {
                Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)) => {}
                Err((name, code)) => return Err(self.fault(DOING, name, &KafkaError::AdminOp(code))),
            }
        }
        Ok(())
    }

    fn reposition(&self, group: &GroupId, to: &[(Tp, NextOffset)]) -> KResult<()> {
        const DOING: &str = "setting positions";
        // It never subscribes: the coordinator takes positions from outside only where the group has no member.
        let setting =
            self.cluster.make_consumer(MAKING, NAME, &self.cluster.consumer(NAME, group.as_str(), Isolation::Committed), None)?;
        let list = convert::positions(to.iter().map(|(tp, next)| (tp, *next)))?;
        setting.commit(&list, CommitMode::Sync).map_err(|e| self.fault(DOING, group, &e))
    }

    fn forget(&self, group: &GroupId) -> KResult<()> {
        const DOING: &str = "forgetting a group";
        let done = wait(self.admin.delete_groups(&[group.as_str()], &self.options())).map_err(|e| self.fault(DOING, group, &e))?;
        for one in done {
            match one {
                Ok(_) | Err((_, RDKafkaErrorCode::GroupIdNotFound)) => {}
                Err((_, code)) => return Err(self.fault(DOING, group, &KafkaError::AdminOp(code))),
            }
        }
        Ok(())
    }

    fn positions_at(&self, tps: &[Tp], time: WallTime) -> KResult<Vec<(Tp, Option<NextOffset>)>> {
        const DOING: &str = "looking for a time";
        let asked = convert::positions(tps.iter().map(|tp| (tp, NextOffset(time.0))))?;
        let found =
            self.metadata().offsets_for_times(asked, self.cluster.config().request).map_err(|e| self.fault(DOING, time, &e))?;
        let position = |at| match at {
            Offset::Offset(at) => Some(NextOffset(at)),
            _ => None,
        };
        Ok(found.elements().iter().map(|e| (Tp::new(e.topic(), e.partition()), position(e.offset()))).collect())
    }

    fn members(&self, group: &GroupId) -> KResult<Vec<Member>> {
        let found = self
            .metadata()
            .fetch_group_list(Some(group.as_str()), self.cluster.config().request)
            .map_err(|e| self.fault("listing members", group, &e))?;
        let members = found.groups().iter().filter(|g| g.name() == group.as_str()).flat_map(|g| g.members());
        let member = |m: &rdkafka::groups::GroupMemberInfo| Member {
            client_id: m.client_id().to_owned(),
            host: m.client_host().to_owned(),
            partitions: m.assignment().and_then(convert::assignment).unwrap_or_default(),
        };
        Ok(members.map(member).collect())
    }

    fn operations(&self, on: Resource<'_>) -> KResult<Option<BTreeSet<&'static str>>> {
        let told = match on {
            Resource::Topic(topic) => self.may(&raw::Asked::Topic(topic.as_str()), topic),
            Resource::Group(group) => self.may(&raw::Asked::Group(group.as_str()), group),
            Resource::Cluster => self.may(&raw::Asked::Cluster, "the cluster"),
        };
        Ok(told?.operations.map(|all| all.into_iter().filter_map(convert::operation).collect()))
    }

    fn cluster_id(&self) -> KResult<Option<String>> {
        self.may(&raw::Asked::Cluster, "the cluster").map(|told| told.cluster)
    }

    fn brokers(&self) -> KResult<u32> {
        let found = self.fetch(None).map_err(|e| self.fault("asking for brokers", &self.cluster.config().brokers, &e))?;
        Ok(u32::try_from(found.brokers().len()).unwrap_or(u32::MAX))
    }
}
