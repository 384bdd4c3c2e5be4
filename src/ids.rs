//! Names of things. Every identifier is a type of its own, so that none can stand in for another.

use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

/// Reads a text into the one allocation that a name is.
struct Text;

impl Visitor<'_> for Text {
    type Value = Arc<str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }
    fn visit_str<E>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(shared(text))
    }
}

/// A text to be shared. All empty ones are the same: records have many names that are not given.
fn shared(text: &str) -> Arc<str> {
    static EMPTY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));
    if text.is_empty() { Arc::clone(&EMPTY) } else { text.into() }
}

/// Declares a cheap-to-clone string newtype.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(Text).map(Self)
            }
        }

        impl $name {
            /// Takes the text as it is.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(shared(text.as_ref()))
            }
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
            /// Whether the text is empty.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(shared(&text))
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// The application: consumer group and prefix of internal topics.
    ApplicationId
);
name!(
    /// A topic.
    TopicName
);
name!(
    /// A consumer group.
    GroupId
);
name!(
    /// A unit: group + slots + sub-topologies. `orders` or `orders.effects`.
    UnitName
);
name!(
    /// A slot's full name, `<unit>-NNN`: `group.instance.id`, `client.id` and transactional id at once.
    SlotName
);
name!(
    /// A node of the topology that people named.
    StepName
);
name!(
    /// A state store.
    StoreName
);
name!(
    /// The requester's name for one intent; kept by every retry of it.
    OperationId
);
name!(
    /// The requester's name for one message that carries the intent.
    MessageId
);
name!(
    /// A command's own id; a repeat gets the same answer.
    CommandId
);
name!(
    /// Whose work this is.
    Tenant
);
name!(
    /// What an effect acts on.
    Resource
);
name!(
    /// What orders effects among each other; the default is the operation.
    OrderingKey
);
name!(
    /// The key that goes over the wire to the target, derived from tenant and operation.
    WireKey
);
name!(
    /// A contract's name.
    ContractName
);
name!(
    /// A call within a contract: `create` of `orders#create`.
    CallName
);
name!(
    /// The secret of one attempt by which its own answer is told from hearsay.
    DispatchToken
);
name!(
    /// An approval.
    ApprovalId
);
name!(
    /// Hex SHA-256 of the canonical envelope.
    IdentityHash
);
name!(
    /// Hex SHA-256 over a plan: proposal, rendered requests, tool definitions.
    PlanHash
);

/// Separates a root operation ID from what is derived of it; reserved in request IDs.
pub const DERIVED: char = '.';

impl OperationId {
    /// The root of a derived ID: `op-1` of `op-1.plan`, itself otherwise.
    pub fn root(&self) -> OperationId {
        match self.as_str().split_once(DERIVED) {
            Some((root, _)) => OperationId::new(root),
            None => self.clone(),
        }
    }
    /// The model call of this operation.
    pub fn plan(&self) -> OperationId {
        OperationId::from(format!("{self}{DERIVED}plan"))
    }
    /// Child `n` of this operation's plan.
    pub fn child(&self, n: u32) -> OperationId {
        OperationId::from(format!("{self}{DERIVED}{n}"))
    }
    /// Which call of its keeper's plan this is; none where it is no call.
    pub fn child_number(&self) -> Option<u32> {
        let keeper = self.keeper();
        let rest = self.as_str().strip_prefix(keeper.as_str())?.strip_prefix(DERIVED)?;
        rest.parse().ok().filter(|_| rest.bytes().all(|b| b.is_ascii_digit()))
    }
    /// This operation's compensation.
    pub fn undo(&self) -> OperationId {
        OperationId::from(format!("{self}{DERIVED}undo"))
    }
    /// What this is the compensation of, if it is one.
    pub fn undoes(&self) -> Option<OperationId> {
        self.as_str().rsplit_once(DERIVED).filter(|(_, last)| *last == "undo").map(|(original, _)| OperationId::new(original))
    }
    /// Whether this is the compensation of another.
    pub fn is_undo(&self) -> bool {
        self.undoes().is_some()
    }
    /// Replay `k` of this operation.
    pub fn replay(&self, k: u32) -> OperationId {
        OperationId::from(format!("{self}{DERIVED}r{k}"))
    }
    /// Which replay of its root this is; none where it is no replay.
    pub fn replay_number(&self) -> Option<u32> {
        let (_, rest) = self.as_str().split_once(DERIVED)?;
        rest.strip_prefix('r')?.parse().ok().filter(|_| rest.bytes().skip(1).all(|b| b.is_ascii_digit()))
    }
    /// The operation whose record speaks for this one: `op-1` of `op-1.plan`, `op-1.r2` of `op-1.r2.plan`.
    pub fn keeper(&self) -> OperationId {
        let mut parts = self.as_str().splitn(3, DERIVED);
        let (root, next) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let replay = OperationId::new(format!("{root}{DERIVED}{next}"));
        if replay.replay_number().is_some() { replay } else { self.root() }
    }
    /// Whether the ID is derived of another.
    pub fn is_derived(&self) -> bool {
        self.as_str().contains(DERIVED)
    }
}

/// An operation in full: (tenant, operation_id, effect step).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct OperationKey {
    /// Whose it is.
    pub tenant: Tenant,
    /// The requester's ID, or one derived of it.
    pub operation: OperationId,
    /// The effect step.
    pub step: StepName,
}

impl OperationKey {
    /// One text that tells all operations apart: parts joined by the unit separator, which no part may hold.
    pub fn joined(&self) -> String {
        format!("{}\u{1f}{}\u{1f}{}", self.tenant, self.operation, self.step)
    }
}

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant, self.operation, self.step)
    }
}

/// A partition number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(pub i32);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A topic and one of its partitions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tp {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: Partition,
}

impl Tp {
    /// Names partition `partition` of `topic`.
    pub fn new(topic: impl Into<TopicName>, partition: i32) -> Self {
        Self { topic: topic.into(), partition: Partition(partition) }
    }
}

impl fmt::Display for Tp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Debug for Tp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A task: sub-topology × partition, printed as Kafka Streams does, `0_3`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId {
    /// Number of the sub-topology.
    pub subtopology: u32,
    /// Partition of its sources.
    pub partition: Partition,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.subtopology, self.partition)
    }
}

/// Java's murmur2 over `bytes`, as Kafka's default partitioner has it.
pub fn murmur2(bytes: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let mut h: u32 = 0x9747_b28c ^ (bytes.len() as u32);
    let mut chunks = bytes.chunks_exact(4);
    for c in &mut chunks {
        let mut k = u32::from_le_bytes([c[0], c[1], c[2], c[3]]).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    for (i, b) in rest.iter().enumerate() {
        h ^= u32::from(*b) << (8 * i);
    }
    if !rest.is_empty() {
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    (h ^ (h >> 15)) as i32
}

/// The partition of a key: murmur2, sign dropped, modulo `count`.
pub fn partition_of(key: &[u8], count: u32) -> Partition {
    Partition((murmur2(key) & 0x7fff_ffff) % count.max(1) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, keyed records would land where no Java producer expects them. Values: Kafka's UtilsTest.
    #[test]
    fn murmur2_is_javas() {
        for (text, hash) in
            [("21", -973_932_308), ("foobar", -790_332_482), ("a-little-bit-long-string", -985_981_536), ("abc", 479_470_107)]
        {
            assert_eq!(murmur2(text.as_bytes()), hash, "{text}");
        }
    }

    /// If this broke, a child's commands would be routed to another partition than its parent's.
    #[test]
    fn derived_ids_share_their_root() {
        let op = OperationId::new("op-1");
        for d in [op.plan(), op.child(3), op.undo()] {
            assert_eq!((d.root(), d.keeper()), (op.clone(), op.clone()));
            assert!(d.is_derived() && d.replay_number().is_none());
        }
        assert_eq!((op.undo().undoes(), op.plan().undoes()), (Some(op.clone()), None));
        assert_eq!([op.child(3), op.clone(), op.undo(), op.child(3).undo()].map(|o| o.child_number()), [Some(3), None, None, None]);
        assert_eq!((op.replay(2).child(1).child_number(), op.replay(2).child_number()), (Some(1), None));
        assert_eq!((op.child(3).undo().keeper(), op.replay(2).child(1).keeper()), (op.clone(), op.replay(2)));
        let again = op.replay(2);
        assert_eq!((again.root(), again.keeper(), again.replay_number()), (op.clone(), again.clone(), Some(2)));
        assert_eq!((again.plan().root(), again.plan().keeper(), again.plan().replay_number()), (op, again, None));
    }
}
