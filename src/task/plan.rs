//! What the runtime must know of a unit to run it: sources, stores, internal topics, and how a task is made.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::ids::{ApplicationId, GroupId, TaskId, TopicName, UnitName};
use crate::kafka::{Reading, Wake};
use crate::record::InRecord;
use crate::state::StoreSpec;
use crate::time::SharedClock;

use super::Task;

/// Where reading starts when the group knows no position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartAt {
    /// The oldest record there is (`auto.offset.reset=earliest`).
    Earliest,
    /// The next one to come.
    Latest,
    /// Nowhere: a missing position is an error, since an outbox or control topic must not be skipped or repeated. Whoever
    /// creates the topic commits its start in the first claim; a topic whose log starts at 0 counts as new.
    Refuse,
}

/// A source topic of a sub-topology.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// The topic.
    pub topic: TopicName,
    /// How its partitions are read.
    pub reading: Reading,
    /// Where reading starts without a position.
    pub start: StartAt,
}

/// Who makes a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopicUse {
    /// Ours: created at start where missing, with these settings.
    Internal,
    /// The user's: must exist; created only with `topics.create: true`.
    External,
}

/// A topic that must exist before the unit runs.
#[derive(Clone, Debug)]
pub struct InternalTopic {
    /// Its name.
    pub name: TopicName,
    /// Its partition count; `None` for external ones where any count is right.
    pub partitions: Option<u32>,
    /// Its settings.
    pub config: BTreeMap<String, String>,
    /// Who makes it.
    pub usage: TopicUse,
}

/// Why a step gave a record up without an error, as Kafka Streams does too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dropped {
    /// Every window that it belongs to was closed.
    Late,
    /// It has no key to be grouped or joined by.
    NullKey,
    /// It has no value to be joined.
    NullValue,
    /// Its source found no time for it, or one before 1970.
    NoTime,
}

impl Dropped {
    /// As a label of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Dropped::Late => "late",
            Dropped::NullKey => "null_key",
            Dropped::NullValue => "null_value",
            Dropped::NoTime => "no_time",
        }
    }
}

/// Counts a record that a step, by name, gave up.
pub type CountDropped = Arc<dyn Fn(&str, Dropped) + Send + Sync>;

/// What a task is made from.
pub struct TaskSeed {
    /// Which task.
    pub id: TaskId,
    /// Wakes its thread, for completions from other threads.
    pub wake: Wake,
    /// Time.
    pub clock: SharedClock,
    /// A number that no earlier assignment of this process had: with the process incarnation it makes the epoch.
    pub assignment: u64,
    /// Counts what its steps give up.
    pub dropped: CountDropped,
}

/// Makes a task; called on the stream thread at each assignment.
pub type TaskBuilder = Arc<dyn Fn(TaskSeed) -> Result<Box<dyn Task>> + Send + Sync>;

/// A sub-topology as the runtime sees it. Its sources are co-partitioned: task `p` reads partition `p` of each.
#[derive(Clone)]
pub struct SubtopologyPlan {
    /// Its number within the application.
    pub id: u32,
    /// Its source topics; the first one is where a timer-driven transaction takes its offset from.
    pub sources: Vec<SourceSpec>,
    /// Its stores; index = `StoreId`.
    pub stores: Vec<StoreSpec>,
    /// Makes its tasks.
    pub build: TaskBuilder,
}

impl fmt::Debug for SubtopologyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubtopologyPlan")
            .field("id", &self.id)
            .field("sources", &self.sources)
            .field("stores", &self.stores)
            .finish()
    }
}

/// Says what is wrong with a record that no step could read.
pub type RecordCheck = Arc<dyn Fn(&InRecord) -> Result<()> + Send + Sync>;

/// A store that holds a whole topic, as the process fills it.
#[derive(Clone)]
pub struct GlobalPlan {
    /// The store; its changelog is the topic.
    pub spec: StoreSpec,
    /// The topic.
    pub topic: TopicName,
    /// Its partition count.
    pub partitions: u32,
    /// Whether a record can be read.
    pub check: RecordCheck,
    /// Whether a record that can't be read is left out, instead of stopping the process.
    pub skips: bool,
}

impl fmt::Debug for GlobalPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GlobalPlan({} of {})", self.spec.name, self.topic)
    }
}

/// A unit as the runtime sees it.
#[derive(Clone, Debug)]
pub struct UnitPlan {
    /// The application.
    pub application: ApplicationId,
    /// The unit: `<app>` or `<app>.effects`.
    pub unit: UnitName,
    /// Its consumer group.
    pub group: GroupId,
    /// Its sub-topologies.
    pub subtopologies: Vec<SubtopologyPlan>,
    /// Topics that must exist first, internal and external.
    pub topics: Vec<InternalTopic>,
    /// Whether the commit gap is flat 5 ms (effect units) instead of adaptive.
    pub flat_gap: bool,
}

impl UnitPlan {
    /// Why this unit's members need slots, which only the classic group protocol gives; `None` where any member may have any partition.
    pub fn needs_slots(&self) -> Option<String> {
        self.subtopologies.iter().find_map(|part| match (part.stores.first(), &part.sources[..]) {
            (Some(store), _) => Some(format!("the store {} of {} stands where its slot finds it again", store.name, self.unit)),
            (None, [one, other, ..]) => {
                Some(format!("{} reads {} and {}, whose partitions must come together", self.unit, one.topic, other.topic))
            }
            (None, _) => None,
        })
    }

    /// The topics that its members read.
    pub fn sources(&self) -> Vec<TopicName> {
        self.subtopologies.iter().flat_map(|s| &s.sources).map(|s| s.topic.clone()).collect()
    }

    /// Whether its members write changelogs, and so need the positions of what they write.
    pub fn has_changelogs(&self) -> bool {
        self.subtopologies.iter().flat_map(|s| &s.stores).any(|s| s.changelog.is_some())
    }
}
