//! The seams to Kafka. Two implementations: [`rdkafka`] on a real cluster, [`memory`] as an in-process log with transactions,
//! fencing and read_committed. The engine knows only these traits. See `design` notes in `src/docs/architecture.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{GroupId, Partition, SlotName, TopicName, Tp, UnitName};
use crate::offset::NextOffset;
use crate::record::{InRecord, OutRecord};
use crate::time::WallTime;

pub mod memory;
mod metrics;
pub mod rdkafka;

pub use self::metrics::{Client, Metrics, Watch};
pub use self::rdkafka::{Copy as BareCopy, RdCluster, RdConfig};

/// What an error asks the engine to do. Checked in the order fatal, abort, retry; no flag at all counts as fatal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// The same call again, same arguments, bounded.
    Retry,
    /// Abort the transaction, drop the overlay, rewind.
    Abort,
    /// Someone with the same transactional id came after us: rebuild once, by the slot rule.
    Fenced,
    /// Another member holds the slot (`FencedInstanceId`): leave with its own exit code, never rejoin.
    SlotTaken,
    /// Drop the producer and make it anew with the same id.
    Rebuild,
    /// Nobody can say whether the commit happened: rebuild, then read the committed offsets.
    OutcomeUnknown,
    /// Offsets are blocked by somebody's open transaction: wait, and say so.
    Blocked,
    /// What is read is not there: an unknown topic, or a position outside the log.
    Gone,
    /// A setting, name or permission is wrong: no retry helps.
    Config,
}

impl Class {
    /// A bounded metric label.
    pub fn label(self) -> &'static str {
        match self {
            Class::Retry => "retry",
            Class::Abort => "abort",
            Class::Fenced => "fenced",
            Class::SlotTaken => "slot_taken",
            Class::Rebuild => "rebuild",
            Class::OutcomeUnknown => "outcome_unknown",
            Class::Blocked => "blocked",
            Class::Gone => "gone",
            Class::Config => "config",
        }
    }
}

/// An error of the client, classed by what it asks for.
#[derive(Clone, Debug)]
pub struct KafkaFault {
    /// What it asks for.
    pub class: Class,
    /// What we were doing: `send_offsets`.
    pub doing: &'static str,
    /// To what: a topic, partition, slot.
    pub to: String,
    /// The client's own words.
    pub detail: String,
    /// What we were refused for, where that explains it.
    pub refusal: Option<Refusal>,
}

/// Why no broker can be talked to, where that is known: somebody has to mend it, and trying again helps after that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A certificate, theirs or ours, is not accepted.
    Tls(String),
    /// The login is not accepted.
    Login(String),
    /// The issuer gives no token.
    Token(String),
    /// There is no such host.
    Name(String),
}

impl Refusal {
    /// In words.
    pub fn why(&self) -> &str {
        match self {
            Refusal::Tls(why) | Refusal::Login(why) | Refusal::Token(why) | Refusal::Name(why) => why,
        }
    }
}

impl KafkaFault {
    /// A fault of `class` while `doing` something `to` something.
    pub fn new(class: Class, doing: &'static str, to: impl fmt::Display, detail: impl fmt::Display) -> Self {
        Self { class, doing, to: to.to_string(), detail: detail.to_string(), refusal: None }
    }
    /// With what explains it; what a broker has decided about the call itself needs no other reason.
    #[must_use]
    pub fn refused(self, refusal: Option<Refusal>) -> Self {
        let decided = matches!(self.class, Class::Config | Class::Fenced | Class::SlotTaken | Class::Gone);
        Self { refusal: refusal.filter(|_| !decided), ..self }
    }
}

impl fmt::Display for KafkaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {} ({})", self.doing, self.to, self.detail, self.class.label())?;
        match &self.refusal {
            Some(refusal) if !self.detail.contains(refusal.why()) => write!(f, "; {}", refusal.why()),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for KafkaFault {}

/// A result with [`KafkaFault`].
pub type KResult<T> = Result<T, KafkaFault>;

/// Unparks the thread that owns a source; called by client threads, so it must be cheap and never block.
#[derive(Clone)]
pub struct Wake(Arc<dyn Fn() + Send + Sync>);

impl Wake {
    /// Wraps what wakes the owner.
    pub fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }
    /// Wakes nobody (simulation: the scheduler asks each thread anyway).
    pub fn none() -> Self {
        Self::new(|| {})
    }
    /// Unparks the current thread.
    pub fn this_thread() -> Self {
        let thread = std::thread::current();
        Self::new(move || thread.unpark())
    }
    /// Wakes the owner.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

/// A stable place in a unit's group: one consumer, one transactional producer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The unit it belongs to.
    pub unit: UnitName,
    /// The unit's consumer group.
    pub group: GroupId,
    /// Its number within the unit.
    pub number: u32,
}

impl Slot {
    /// `<unit>-NNN`: `group.instance.id`, `client.id` and transactional id. Zero-padded, since static members sort by string.
    pub fn name(&self) -> SlotName {
        SlotName::from(format!("{}-{:03}", self.unit, self.number))
    }
}

/// Time limits of a transactional producer.
#[derive(Clone, Copy, Debug)]
pub struct TxLimits {
    /// `transaction.timeout.ms`: bounds what an unfenced crash can block.
    pub transaction: Duration,
    /// Whether acknowledged positions are needed (`written`): threads with changelogged stores.
    pub reports: bool,
}

impl Default for TxLimits {
    fn default() -> Self {
        Self { transaction: Duration::from_secs(10), reports: true }
    }
}

/// Which records a reader sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// Committed records only, up to the last stable offset.
    Committed,
    /// Everything up to the high watermark.
    Uncommitted,
}

/// How a source partition is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// From the consumer's shared queue, by [`Source::next`].
    Shared,
    /// From a queue of its own, by [`Source::next_of`]; it is not polled while its task is full.
    Split,
}

/// Text kept as metadata beside committed offsets: the slot that claimed the partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlotMark(pub String);

/// Partitions that the group gave; stays pending until [`Source::confirm`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assigned {
    /// All of them (eager) or what came in addition (cooperative).
    pub partitions: Vec<Tp>,
}

/// Partitions that the group takes; stays pending until [`Source::released`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revoked {
    /// What goes.
    pub partitions: Vec<Tp>,
}

/// What a source has for its owner.
#[derive(Clone, Debug)]
pub enum Input {
    /// A record of a shared partition.
    Record(InRecord),
    /// This partition has nothing more for now (position has reached the last known end).
    Drained(Tp),
    /// New partitions: read offsets, restore, then [`Source::confirm`].
    Assigned(Assigned),
    /// Partitions go in order: commit or abort first, then [`Source::released`].
    Revoked(Revoked),
    /// Partitions are gone already: abort only, then [`Source::released`].
    Lost(Revoked),
    /// The client has something to say; most transport faults are noise (`Class::Retry`).
    Fault(KafkaFault),
}

/// A committed position as the group knows it; `None` where it knows none.
pub type Committed = (Tp, Option<NextOffset>, SlotMark);

/// A consumer in a slot. Lives on its stream thread. Nothing here blocks but `committed`, `seek` and `resume`, which are
/// bounded.
pub trait Source {
    /// Group metadata: taken fresh right before the offsets are sent, moved into the commit.
    type Stamp;

    /// The next event of the shared queue, if there is one now.
    fn next(&mut self) -> Option<Input>;
    /// A rebalance or fault, if there is one now; records stay where they are. For an owner that can take none: a rebalance that
    /// nobody looks at costs the membership.
    fn heed(&mut self) -> Option<Input> {
        None
    }
    /// The next record of a split partition, if there is one now.
    fn next_of(&mut self, tp: &Tp) -> Option<Input>;
    /// Takes an assignment: start positions and how each is read. Splits queues before it assigns.
    fn confirm(&mut self, assigned: &Assigned, start: &[(Tp, NextOffset, Reading)]) -> KResult<()>;
    /// Gives partitions back, after the commit or abort.
    fn released(&mut self, revoked: &Revoked) -> KResult<()>;
    /// Committed positions. `Class::Blocked` while an open transaction holds them (read_committed).
    fn committed(&mut self, tps: &[Tp], isolation: Isolation) -> KResult<Vec<Committed>>;
    /// Moves reading of assigned partitions (after an abort).
    fn seek(&mut self, to: &[(Tp, NextOffset)]) -> KResult<()>;
    /// Stops reading assigned partitions, for seconds or minutes, and forgets what was fetched of them.
    fn pause(&mut self, tps: &[Tp]) -> KResult<()>;
    /// Goes on reading paused partitions, from these positions.
    fn resume(&mut self, from: &[(Tp, NextOffset)]) -> KResult<()>;
    /// Where reading stands, past control records.
    fn position(&self, tp: &Tp) -> Option<NextOffset>;
    /// The end as of the last fetch; no I/O.
    fn known_end(&self, tp: &Tp) -> Option<NextOffset>;
    /// Earliest and latest (by the source's isolation) positions; bounded I/O.
    fn ends(&mut self, tp: &Tp) -> KResult<(NextOffset, NextOffset)>;
    /// Group metadata as of now.
    fn stamp(&mut self) -> KResult<Self::Stamp>;
    /// Is silent for `time`, which lets the group forget the slot, and then joins anew by itself; nothing is assigned meanwhile. Answers
    /// whether it does: the group in memory gives nobody what a former member of the slot had.
    fn stay_away(&mut self, _time: Duration) -> KResult<bool> {
        Ok(false)
    }
    /// Leaves: unassigns inline and closes. Static members stay listed for a session, by design.
    fn close(&mut self);
}

/// A transactional producer in a slot. Lives on its stream thread; every call may block up to its limit.
pub trait TxSink {
    /// The source's group metadata.
    type Stamp;

    /// Fences whoever had the id before; may be called again after `Retry`.
    fn init(&mut self) -> KResult<()>;
    /// Local state only.
    fn begin(&mut self) -> KResult<()>;
    /// Queues a record. `Class::Retry` = the queue is full: serve and try again.
    fn send(&mut self, record: OutRecord<'_>) -> KResult<()>;
    /// Waits until everything queued was delivered.
    fn flush(&mut self, limit: Duration) -> KResult<()>;
    /// Puts positions into the transaction. Retriable only with identical arguments.
    fn offsets(&mut self, next: &[(Tp, NextOffset)], mark: &SlotMark, by: &Self::Stamp) -> KResult<()>;
    /// Ends the transaction. `OutcomeUnknown` → drop this sink and make a new one.
    fn commit(&mut self, limit: Duration) -> KResult<()>;
    /// Takes the transaction back; flushes first (never aborts over undelivered messages).
    fn abort(&mut self, limit: Duration) -> KResult<()>;
    /// The position after the last acknowledged record of this partition: exact or low, never high.
    fn written(&self, tp: &Tp) -> Option<NextOffset>;
}

/// Reads partitions outside any group: restore, views, tests.
pub trait Reader: Send {
    /// Replaces what is read and from where.
    fn assign(&mut self, start: &[(Tp, NextOffset)]) -> KResult<()>;
    /// The next record, waiting at most `limit`.
    fn poll(&mut self, limit: Duration) -> KResult<Option<InRecord>>;
    /// Where reading stands, past control records.
    fn position(&self, tp: &Tp) -> Option<NextOffset>;
    /// Earliest position and high watermark (`Uncommitted`) or last stable offset (`Committed`).
    fn ends(&mut self, tp: &Tp, isolation: Isolation) -> KResult<(NextOffset, NextOffset)>;
}

/// A topic as the cluster has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicInfo {
    /// Its name.
    pub name: TopicName,
    /// Its partition count.
    pub partitions: u32,
    /// Its replication factor.
    pub replication: u32,
}

/// A topic to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: TopicName,
    /// Its partition count.
    pub partitions: u32,
    /// −1 takes the broker's default.
    pub replication: i32,
    /// Its settings, `cleanup.policy` and so on.
    pub config: BTreeMap<String, String>,
}

/// A member of a consumer group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its client id; ours are slot names.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// What the group has given it, where the coordinator tells.
    pub partitions: Vec<Tp>,
}

/// What permissions are held on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource<'a> {
    /// A topic.
    Topic(&'a TopicName),
    /// A consumer group.
    Group(&'a GroupId),
    /// The cluster itself.
    Cluster,
}

/// Questions and orders to the cluster, each bounded by the implementation's request timeout.
pub trait Admin: Send {
    /// One topic, or `None` where it does not exist.
    fn topic(&self, name: &TopicName) -> KResult<Option<TopicInfo>>;
    /// All topics.
    fn topics(&self) -> KResult<Vec<TopicInfo>>;
    /// A topic's settings. `Class::Config` where this login may not read them: a topic that may be read has some.
    fn topic_config(&self, name: &TopicName) -> KResult<BTreeMap<String, String>>;
    /// Settings of one broker that answers. `Class::Config` where this login may not read them.
    fn broker_config(&self) -> KResult<BTreeMap<String, String>>;
    /// Creates topics; those that exist already are no error.
    fn create(&self, topics: &[NewTopic]) -> KResult<()>;
    /// Deletes everything before the positions.
    fn delete_records(&self, before: &[(Tp, NextOffset)]) -> KResult<()>;
    /// A group's committed positions, where it has any; committed transactions only.
    fn committed(&self, group: &GroupId, tps: &[Tp]) -> KResult<Vec<(Tp, NextOffset)>>;
    /// Deletes topics, and with them every group's positions there; those that do not exist are no error.
    fn delete(&self, topics: &[TopicName]) -> KResult<()>;
    /// Sets the positions of a group that nobody is a member of; refused where somebody is.
    fn reposition(&self, group: &GroupId, to: &[(Tp, NextOffset)]) -> KResult<()>;
    /// Forgets a group that nobody is a member of, with all its positions; one that does not exist is no error.
    fn forget(&self, group: &GroupId) -> KResult<()>;
    /// The position of the first record of a time or later; `None` where there is none.
    fn positions_at(&self, tps: &[Tp], time: WallTime) -> KResult<Vec<(Tp, Option<NextOffset>)>>;
    /// Live members of a group, as its coordinator lists them.
    fn members(&self, group: &GroupId) -> KResult<Vec<Member>>;
    /// How many brokers answer.
    fn brokers(&self) -> KResult<u32>;
    /// What this login may do there, as Kafka calls it (`Read`, `DescribeConfigs`); `None` where the brokers don't say. `Class::Config`
    /// where it may not even look.
    fn operations(&self, _on: Resource<'_>) -> KResult<Option<BTreeSet<&'static str>>> {
        Ok(None)
    }
    /// The cluster's own id, where it tells.
    fn cluster_id(&self) -> KResult<Option<String>> {
        Ok(None)
    }
}

/// Makes clients. Cheap to clone; shared by all threads.
pub trait Cluster: Clone + Send + Sync + 'static {
    /// Its consumer.
    type Source: Source;
    /// Its producer.
    type Sink: TxSink<Stamp = <Self::Source as Source>::Stamp>;

    /// Joins the slot's group as a static member and subscribes. To be called on the owning thread.
    fn source(&self, slot: &Slot, topics: &[TopicName], wake: Wake) -> KResult<Self::Source>;
    /// A producer with the slot's transactional id, not initialised.
    fn sink(&self, slot: &Slot, limits: TxLimits) -> KResult<Self::Sink>;
    /// Makes the clients of a slot that somebody else still lives in, and lets them find their brokers. They join and fence nothing: the
    /// next [`source`](Self::source) and [`sink`](Self::sink) of the slot take them.
    fn prepare(&self, _slot: &Slot, _topics: &[TopicName], _limits: TxLimits) -> KResult<()> {
        Ok(())
    }
    /// A producer with another transactional id: to fence a dead slot, or to write from tools.
    fn fence(&self, slot: &SlotName) -> KResult<()>;
    /// A reader outside any group.
    fn reader(&self, isolation: Isolation) -> KResult<Box<dyn Reader>>;
    /// A reader for single records here and there: it does not stay at the broker to wait for more of the last place.
    fn finder(&self, isolation: Isolation) -> KResult<Box<dyn Reader>> {
        self.reader(isolation)
    }
    /// Questions and orders.
    fn admin(&self) -> KResult<Box<dyn Admin>>;
    /// A plain idempotent producer for tools and tests: sends and waits for the acknowledgement of all.
    fn publish(&self, records: &[OutRecord<'_>], limit: Duration) -> KResult<Vec<(Partition, NextOffset)>>;
}
