//! What a node may do while it has a record.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Code, Error, Fault};
use crate::ids::{TaskId, TopicName};
use crate::intents::dead::Buried;
use crate::record::{Headers, InRecord, OutRecord};
use crate::serdes::{AvroCodec, Raw, Target};
use crate::state::{CacheBudget, Globals, Scan, StoreId, Stored};
use crate::task::{CountDropped, Dropped, TaskError, TxCx};
use crate::time::{Now, WallTime};

/// What happens to a record that can't be decoded or processed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadRecords {
    /// It goes to this topic as it came, with its origin and the reason in headers, in the same transaction.
    DeadLetter(TopicName),
    /// The thread stops.
    Fail,
}

/// What all nodes of a task share and none changes.
#[derive(Clone)]
pub struct Environment {
    /// Which task.
    pub task: TaskId,
    /// For registry-framed Avro.
    pub avro: Option<Arc<dyn AvroCodec>>,
    /// What happens to bad records.
    pub bad: BadRecords,
    /// Counts what steps give up.
    pub dropped: CountDropped,
    /// Stores that hold a whole topic.
    pub globals: Globals,
    /// What the record caches of the process may hold together.
    pub record_cache: Arc<CacheBudget>,
}

/// The open transaction as a node sees it, with the record that it was called for.
pub struct ProcessorCx<'a, 't> {
    tx: &'a mut TxCx<'t>,
    environment: &'a Environment,
    origin: Option<&'a InRecord>,
    stream_time: Option<WallTime>,
    timers: u64,
}

impl<'a, 't> ProcessorCx<'a, 't> {
    /// Joins the parts for one record or punctuation.
    pub fn new(
        tx: &'a mut TxCx<'t>,
        environment: &'a Environment,
        origin: Option<&'a InRecord>,
        stream_time: Option<WallTime>,
    ) -> Self {
        Self { tx, environment, origin, stream_time, timers: 0 }
    }
    /// Goes on for another record than the one that this was called for.
    pub(crate) fn on_behalf<R>(&mut self, origin: Option<&InRecord>, f: impl FnOnce(&mut ProcessorCx<'_, 't>) -> R) -> R {
        let Self { environment, stream_time, timers, .. } = *self;
        let mut cx = ProcessorCx { tx: &mut *self.tx, environment, origin, stream_time, timers };
        let done = f(&mut cx);
        (self.stream_time, self.timers) = (cx.stream_time, cx.timers);
        done
    }
    /// Both clocks as of the start of this call.
    pub fn now(&self) -> Now {
        self.tx.now()
    }
    /// The largest time of records that this task has seen; `None` before the first.
    pub fn stream_time(&self) -> Option<WallTime> {
        self.stream_time
    }
    /// A timer was set or taken back.
    pub(crate) fn timers_moved(&mut self) {
        self.timers += 1;
    }
    /// How often timers were set or taken back.
    pub(crate) fn timers(&self) -> u64 {
        self.timers
    }
    /// A source has read a record of this time.
    pub(crate) fn observe(&mut self, at: Option<WallTime>) {
        self.stream_time = self.stream_time.max(at);
    }
    /// Which task this is.
    pub fn task(&self) -> TaskId {
        self.environment.task
    }
    /// The record of the source topic that is being processed; none in punctuation.
    pub fn origin(&self) -> Option<&'a InRecord> {
        self.origin
    }
    /// `topic/partition/offset` of the record being processed.
    pub fn origin_text(&self) -> Option<String> {
        self.origin.map(|r| format!("{}/{}/{}", r.tp.topic, r.tp.partition, r.offset))
    }
    /// Writes one record in this transaction.
    pub fn emit(&mut self, record: OutRecord<'_>) -> Result<(), TaskError> {
        self.tx.emit(record)
    }
    /// The newest bytes under a key of a store.
    pub fn get(&mut self, store: StoreId, key: &[u8]) -> Result<Option<Stored>, TaskError> {
        Ok(self.tx.get(store, key)?)
    }
    /// Writes (or with `None` deletes) bytes under a key of a store, changelog included.
    pub fn put(&mut self, store: StoreId, key: &[u8], value: Option<Stored>) -> Result<(), TaskError> {
        self.tx.put(store, key, value)
    }
    /// As [`Self::put`] for a store whose log is the topic that the task reads: nothing is written there.
    pub fn keep(&mut self, store: StoreId, key: &[u8], value: Option<Stored>) -> Result<(), TaskError> {
        Ok(self.tx.keep(store, key, value)?)
    }
    /// Entries with `from <= key < to` of a store, in byte order.
    pub fn range(&mut self, store: StoreId, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<Scan, TaskError> {
        Ok(self.tx.range(store, from, to)?)
    }
    /// As [`range`](Self::range), the greatest key first.
    pub fn range_back(&mut self, store: StoreId, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<Scan, TaskError> {
        Ok(self.tx.range_back(store, from, to)?)
    }
    /// Removes an entry that is past its store's retention: here, not in the changelog.
    pub fn forget(&mut self, store: StoreId, key: Bytes) {
        self.tx.forget(store, key);
    }
    /// A step gives the record up: counts it.
    pub fn dropped(&self, step: &str, why: Dropped) {
        (self.environment.dropped)(step, why);
    }
    /// Entries of a store whose key begins with `prefix`, in byte order.
    pub fn prefix(&mut self, store: StoreId, prefix: &[u8]) -> Result<Scan, TaskError> {
        Ok(self.tx.prefix(store, prefix)?)
    }
    /// Stores that hold a whole topic, as far as the process has read them.
    pub fn globals(&self) -> &'a Globals {
        &self.environment.globals
    }
    /// What a serde encodes for.
    pub fn target<'x>(&self, topic: &'x TopicName) -> Target<'x>
    where
        'a: 'x,
    {
        Target { topic, avro: self.environment.avro.as_deref() }
    }
    /// What a serde decodes from.
    pub fn raw<'x>(&self, topic: &'x TopicName, bytes: Option<&'x bytes::Bytes>, headers: &'x Headers) -> Raw<'x>
    where
        'a: 'x,
    {
        Raw { topic, bytes, headers, avro: self.environment.avro.as_deref() }
    }

    /// The record can't be used: to the dead letters, or stop, as declared. `reason` holds no payload.
    pub fn bad_record(&mut self, code: Code, reason: &str) -> Result<(), TaskError> {
        let failed = || Error::new(code, Fault::Data, reason);
        let (BadRecords::DeadLetter(topic), Some(record)) = (&self.environment.bad, self.origin) else {
            return Err(failed().next("name a `dead_letters` topic to go on without such records").into());
        };
        let letter = Buried::of(record, code, reason, self.tx.now().wall);
        self.tx.bury(code, letter.on(topic, None))
    }

    /// Where a node ends: what one record is to blame for is put aside as declared, any other error stops the thread. Each node
    /// settles its own, so that its siblings still get the record.
    pub fn settle(&mut self, result: Result<(), TaskError>) -> Result<(), TaskError> {
        match result {
            Err(TaskError::Failed(e)) if e.fault == Fault::Data => self.bad_record(e.code, &e.doing),
            other => other,
        }
    }
}
