//! Typed ends of a driver, as tests of Kafka Streams have them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::error::Result;
use crate::ids::TopicName;
use crate::record::Headers;
use crate::serdes::{Raw, SerdeRef, Target};
use crate::time::WallTime;

use super::test_driver::{JsonForAvro, Output, Piped, TopologyTestDriver};

/// A record with its types; what a test feeds and reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestRecord<K, V> {
    /// Its key.
    pub key: K,
    /// Its value.
    pub value: V,
    /// Its time; none is the driver's, or the topic's where that advances by itself.
    pub timestamp: Option<WallTime>,
    /// Its headers.
    pub headers: Headers,
}

/// A topic that a test feeds.
pub struct TestInputTopic<K, V> {
    topic: TopicName,
    key: SerdeRef<K>,
    value: SerdeRef<V>,
    next: Option<WallTime>,
    advance: Duration,
}

impl<K, V> TestInputTopic<K, V> {
    /// The topic `name`, written with these serdes. Tombstones: `Serdes::optional` of the value's.
    pub fn new(name: impl Into<TopicName>, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { topic: name.into(), key, value, next: None, advance: Duration::ZERO }
    }
    /// Records without a time of their own begin at `start`, each later than the one before by `advance`.
    #[must_use]
    #[doc(alias = "autoAdvance")]
    pub fn auto_advance(mut self, start: WallTime, advance: Duration) -> Self {
        (self.next, self.advance) = (Some(start), advance);
        self
    }
    /// Feeds one record.
    ///
    /// # Errors
    /// As [`TopologyTestDriver::pipe`]; what the serdes refuse.
    #[doc(alias = "pipeInput")]
    pub fn pipe_input(&mut self, driver: &mut TopologyTestDriver, key: K, value: V) -> Result<()> {
        self.pipe_record(driver, TestRecord { key, value, timestamp: None, headers: Headers::new() })
    }
    /// Feeds one record of this time.
    ///
    /// # Errors
    /// As [`pipe_input`](Self::pipe_input).
    pub fn pipe_input_at(&mut self, driver: &mut TopologyTestDriver, key: K, value: V, at: WallTime) -> Result<()> {
        self.pipe_record(driver, TestRecord { key, value, timestamp: Some(at), headers: Headers::new() })
    }
    /// Feeds one record with all that it has.
    ///
    /// # Errors
    /// As [`pipe_input`](Self::pipe_input).
    pub fn pipe_record(&mut self, driver: &mut TopologyTestDriver, record: TestRecord<K, V>) -> Result<()> {
        let to = Target { topic: &self.topic, avro: Some(&JsonForAvro) };
        let (key, value) = (self.key.encode(&record.key, to)?, self.value.encode(&record.value, to)?);
        let timestamp = record.timestamp.or(self.next);
        if record.timestamp.is_none() {
            self.next = self.next.map(|at| at.plus(self.advance));
        }
        driver.pipe(self.topic.as_str(), key.as_deref(), value.as_deref(), record.headers, timestamp)
    }
    /// Feeds records that are processed in one transaction, as of now or, with [`auto_advance`](Self::auto_advance), one after the
    /// other.
    ///
    /// # Errors
    /// As [`pipe_input`](Self::pipe_input).
    pub fn pipe_together(&mut self, driver: &mut TopologyTestDriver, all: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        let to = Target { topic: &self.topic, avro: Some(&JsonForAvro) };
        let mut encoded = Vec::new();
        for (key, value) in all {
            encoded.push((self.key.encode(&key, to)?, self.value.encode(&value, to)?, self.next));
            self.next = self.next.map(|at| at.plus(self.advance));
        }
        let records: Vec<_> =
            encoded.iter().map(|(k, v, at)| Piped { key: k.as_deref(), value: v.as_deref(), timestamp: *at }).collect();
        driver.pipe_together(self.topic.as_str(), &records)
    }
    /// Feeds records one after the other.
    ///
    /// # Errors
    /// As [`pipe_input`](Self::pipe_input).
    #[doc(alias = "pipeKeyValueList")]
    pub fn pipe_key_value_list(&mut self, driver: &mut TopologyTestDriver, all: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        all.into_iter().try_for_each(|(key, value)| self.pipe_input(driver, key, value))
    }
}

/// A topic that a test reads. It sees what was committed since it was read last.
pub struct TestOutputTopic<K, V> {
    topic: TopicName,
    key: SerdeRef<K>,
    value: SerdeRef<V>,
    unread: VecDeque<Output>,
}

impl<K, V> TestOutputTopic<K, V> {
    /// The topic `name`, read with these serdes.
    pub fn new(name: impl Into<TopicName>, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { topic: name.into(), key, value, unread: VecDeque::new() }
    }
    /// Whether there is nothing to read.
    #[doc(alias = "isEmpty")]
    pub fn is_empty(&mut self, driver: &mut TopologyTestDriver) -> bool {
        self.unread.extend(driver.read_output(self.topic.as_str()));
        self.unread.is_empty()
    }
    /// The next record, if there is one.
    ///
    /// # Errors
    /// What the serdes can't read.
    #[doc(alias = "readRecord")]
    pub fn read_record(&mut self, driver: &mut TopologyTestDriver) -> Result<Option<TestRecord<K, V>>> {
        if self.is_empty(driver) {
            return Ok(None);
        }
        let Some(out) = self.unread.pop_front() else { return Ok(None) };
        let of = |bytes| Raw { topic: &self.topic, bytes, headers: &out.headers, avro: Some(&JsonForAvro) };
        let (key, value) = (self.key.decode(of(out.key.as_ref()))?, self.value.decode(of(out.value.as_ref()))?);
        Ok(Some(TestRecord { key, value, timestamp: out.timestamp, headers: out.headers.clone() }))
    }
    /// All that is there, with keys.
    ///
    /// # Errors
    /// As [`read_record`](Self::read_record).
    #[doc(alias = "readKeyValuesToList")]
    pub fn read_key_values_to_list(&mut self, driver: &mut TopologyTestDriver) -> Result<Vec<(K, V)>> {
        let mut all = Vec::new();
        while let Some(record) = self.read_record(driver)? {
            all.push((record.key, record.value));
        }
        Ok(all)
    }
    /// All that is there, the newest value of each key.
    ///
    /// # Errors
    /// As [`read_record`](Self::read_record).
    #[doc(alias = "readKeyValuesToMap")]
    pub fn read_key_values_to_map(&mut self, driver: &mut TopologyTestDriver) -> Result<BTreeMap<K, V>>
    where
        K: Ord,
    {
        Ok(self.read_key_values_to_list(driver)?.into_iter().collect())
    }
    /// All values that are there.
    ///
    /// # Errors
    /// As [`read_record`](Self::read_record).
    #[doc(alias = "readValuesToList")]
    pub fn read_values_to_list(&mut self, driver: &mut TopologyTestDriver) -> Result<Vec<V>> {
        Ok(self.read_key_values_to_list(driver)?.into_iter().map(|(_, value)| value).collect())
    }
}
