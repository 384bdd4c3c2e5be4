//! How records are read, written, kept and grouped.

use std::sync::Arc;

use crate::error::Error;
use crate::ids::{Partition, TopicName};
use crate::processor::{ProcessorCx, Record};
use crate::serdes::SerdeRef;
use crate::time::WallTime;

/// Says which partition of a topic a record goes to; `None` leaves it to the key.
pub(super) type Partitioner<K, V> =
    Arc<dyn Fn(&Record<K, V>, Goal<'_>, &ProcessorCx<'_, '_>) -> Result<Option<Partition>, Error> + Send + Sync>;
/// Says which time a record has, given its partition's largest time so far; `None` passes the record over.
pub(super) type Custom<K, V> = Arc<dyn Fn(&Record<K, V>, Option<WallTime>) -> Result<Option<WallTime>, Error> + Send + Sync>;

/// The topic that a record goes to.
#[derive(Clone, Copy)]
pub(crate) struct Goal<'a> {
    pub(crate) topic: &'a TopicName,
    /// How many partitions it has, where that is known.
    pub(crate) partitions: Option<u32>,
}

/// Where the time of a source's records comes from.
#[doc(alias = "default.timestamp.extractor")]
pub(super) enum Timestamps<K, V> {
    /// The record's own; one without stays without, and steps that need a time refuse it.
    OfRecord,
    /// The clock on the wall when it is read.
    Wall,
    /// What the user says.
    Custom(Custom<K, V>),
}

impl<K, V> Clone for Timestamps<K, V> {
    fn clone(&self) -> Self {
        match self {
            Timestamps::OfRecord => Timestamps::OfRecord,
            Timestamps::Wall => Timestamps::Wall,
            Timestamps::Custom(f) => Timestamps::Custom(f.clone()),
        }
    }
}

macro_rules! serdes_of {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr),* $(,)? }) => {
        $(#[$doc])*
        pub struct $name<K, V> {
            pub(super) key: SerdeRef<K>,
            pub(super) value: SerdeRef<V>,
            $($(#[$field_doc])* pub(super) $field: $type,)*
        }
        impl<K, V> $name<K, V> {
            /// These serdes for key and value.
            pub fn with(key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
                Self { key, value, $($field: $default),* }
            }
        }
        impl<K, V> Clone for $name<K, V> {
            fn clone(&self) -> Self {
                Self { key: self.key.clone(), value: self.value.clone(), $($field: self.$field.clone()),* }
            }
        }
    };
}

serdes_of! {
    /// How a source topic is read.
    Consumed { times: Timestamps<K, V> = Timestamps::OfRecord }
}
serdes_of! {
    /// How a sink topic is written.
    Produced { partitioner: Option<Partitioner<K, V>> = None }
}
serdes_of! {
    /// How grouped records travel where they must change partitions.
    Grouped {}
}
serdes_of! {
    /// How a store keeps its entries; its name is compulsory, since topics and disk are named by it.
    Materialized { name: String = String::new(), memory: bool = false, cached: bool = false }
}
serdes_of! {
    /// How the stream side of a join travels where it must change partitions; the name is compulsory.
    Joined { name: String = String::new() }
}
serdes_of! {
    /// How records travel through a repartition topic; the name is compulsory.
    Repartitioned { name: String = String::new(), partitions: Option<u32> = None }
}

impl<K, V> Consumed<K, V> {
    /// Times from what records hold: `f` gets the record and the largest time so far of its partition. `None`, or a time before
    /// 1970, passes the record over and counts it as dropped, so a bad time can be skipped or guessed.
    #[must_use]
    #[doc(alias = "withTimestampExtractor")]
    #[doc(alias = "TimestampExtractor")]
    pub fn timestamps(mut self, f: impl Fn(&Record<K, V>, Option<WallTime>) -> Option<WallTime> + Send + Sync + 'static) -> Self {
        self.times = Timestamps::Custom(Arc::new(move |r, latest| Ok(f(r, latest))));
        self
    }
    /// As [`Self::timestamps`], by a function that can fail: then the record is bad.
    pub(crate) fn timestamps_by(
        mut self,
        f: impl Fn(&Record<K, V>, Option<WallTime>) -> Result<Option<WallTime>, Error> + Send + Sync + 'static,
    ) -> Self {
        self.times = Timestamps::Custom(Arc::new(f));
        self
    }
    /// Times from the clock on the wall when a record is read.
    #[must_use]
    #[doc(alias = "WallclockTimestampExtractor")]
    pub fn wall_clock(mut self) -> Self {
        self.times = Timestamps::Wall;
        self
    }
}

impl<K, V> Produced<K, V> {
    /// Says which partition each record goes to, given how many the topic has (`None` where the topic is not known at start).
    /// `None` leaves it to the key.
    #[must_use]
    #[doc(alias = "StreamPartitioner")]
    pub fn partitioner(mut self, f: impl Fn(&K, &V, Option<u32>) -> Option<Partition> + Send + Sync + 'static) -> Self {
        self.partitioner = Some(Arc::new(move |r, goal, _| Ok(f(&r.key, &r.value, goal.partitions))));
        self
    }
    /// As [`Self::partitioner`], by a function of the whole record that can fail.
    pub(crate) fn partitioner_by(
        mut self,
        f: impl Fn(&Record<K, V>, Goal<'_>, &ProcessorCx<'_, '_>) -> Result<Option<Partition>, Error> + Send + Sync + 'static,
    ) -> Self {
        self.partitioner = Some(Arc::new(f));
        self
    }
}

impl<K, V> Materialized<K, V> {
    /// A store of this name with these serdes.
    pub fn named(name: impl Into<String>, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { name: name.into(), ..Self::with(key, value) }
    }
    /// Kept in memory only and restored from its changelog at each start.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.memory = true;
        self
    }
    /// Changes of one key within a transaction are passed on and logged as one: what was first, what is last. A table that is
    /// joined with another table passes each change on all the same.
    #[must_use]
    #[doc(alias = "withCachingEnabled")]
    #[doc(alias = "statestore.cache.max.bytes")]
    pub fn with_caching_enabled(mut self) -> Self {
        self.cached = true;
        self
    }
}

impl<K, V> Joined<K, V> {
    /// A join of this name; the serdes are those of the stream side.
    pub fn named(name: impl Into<String>, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { name: name.into(), ..Self::with(key, value) }
    }
}

impl<K, V> Repartitioned<K, V> {
    /// A repartition topic `<app>-<name>-repartition`.
    pub fn named(name: impl Into<String>, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { name: name.into(), ..Self::with(key, value) }
    }
    /// With this many partitions instead of those of the topics that feed it.
    #[must_use]
    pub fn partitions(mut self, n: u32) -> Self {
        self.partitions = Some(n);
        self
    }
}
