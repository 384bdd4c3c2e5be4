//! Small tasks for scenarios.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Fault, codes};
use crate::ids::{StoreName, TopicName};
use crate::kafka::Reading;
use crate::record::{InRecord, OutRecord};
use crate::state::{ChangelogSpec, EngineKind, StoreId, StoreSpec, Stored};
use crate::task::{Close, SourceSpec, StartAt, SubtopologyPlan, Task, TaskError, TaskSeed, TxCx, Urgency};
use crate::time::{MonoTime, Now, WallTime};

use super::bench::text;

/// What happened to the tasks of a scenario, in order: `restored`, `committed`, `aborted`, `closed Revoked`.
pub type Diary = Arc<Mutex<Vec<String>>>;

/// What a scenario's tasks do.
#[derive(Clone)]
pub struct Script {
    /// Where each record's answer goes, to the same partition.
    pub to: TopicName,
    /// Whether the answer is the running sum of the key (kept in store 0) instead of the value.
    pub sums: bool,
    /// How many records with the value `boom` still fail the task.
    pub booms: Arc<AtomicU32>,
    /// Whether the answer has its record's time.
    pub keeps_time: bool,
    /// Writes `tick` this often, without any input.
    pub ticks: Option<Duration>,
    /// What happened.
    pub diary: Diary,
}

impl Script {
    /// Copies.
    pub fn copy(to: &TopicName) -> Self {
        Self { to: to.clone(), sums: false, booms: Arc::default(), keeps_time: false, ticks: None, diary: Diary::default() }
    }

    /// A sub-topology of such tasks.
    pub fn plan(&self, id: u32, sources: &[(&TopicName, Reading)]) -> SubtopologyPlan {
        let script = self.clone();
        let spec = |(topic, reading): &(&TopicName, Reading)| SourceSpec {
            topic: (*topic).clone(),
            reading: *reading,
            start: StartAt::Earliest,
        };
        SubtopologyPlan {
            id,
            sources: sources.iter().map(spec).collect(),
            stores: if self.sums { vec![self.store()] } else { Vec::new() },
            build: Arc::new(move |seed| Ok(Box::new(ScriptTask::new(script.clone(), &seed)))),
        }
    }

    /// The changelog of the running sums.
    pub fn changelog(&self) -> TopicName {
        TopicName::from(format!("{}-sums-changelog", self.to))
    }

    /// What the tasks noted.
    pub fn notes(&self) -> Vec<String> {
        self.diary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self) -> StoreSpec {
        let config = BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]);
        let changelog = Some(ChangelogSpec { topic: self.changelog(), config });
        StoreSpec { name: StoreName::new("sums"), engine: EngineKind::Memory, cached: false, changelog }
    }
}

struct ScriptTask {
    script: Script,
    partition: crate::ids::Partition,
    next_tick: Option<MonoTime>,
    dirty: bool,
}

impl ScriptTask {
    fn new(script: Script, seed: &TaskSeed) -> Self {
        let next_tick = script.ticks.map(|t| seed.clock.now().mono.plus(t));
        Self { script, partition: seed.id.partition, next_tick, dirty: false }
    }

    fn note(&self, what: impl Into<String>) {
        self.script.diary.lock().unwrap_or_else(PoisonError::into_inner).push(what.into());
    }

    fn emit(&self, key: &[u8], value: &str, timestamp: Option<WallTime>, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        cx.emit(OutRecord {
            topic: &self.script.to,
            partition: Some(self.partition),
            timestamp,
            key: Some(key),
            value: Some(value.as_bytes()),
            headers: None,
        })
    }

    fn sum(&self, key: &[u8], value: &str, cx: &mut TxCx<'_>) -> Result<String, TaskError> {
        let before: i64 = cx.get(StoreId(0), key)?.map_or(0, |s| text(Some(&s.value)).parse().unwrap_or(0));
        let sum = (before + value.parse::<i64>().unwrap_or(0)).to_string();
        cx.put(StoreId(0), key, Some(Stored::bytes(sum.clone().into_bytes())))?;
        Ok(sum)
    }
}

impl Task for ScriptTask {
    fn restored(&mut self, _cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.note("restored");
        Ok(())
    }

    fn process(&mut self, record: InRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.dirty = true;
        let (key, value) = (record.key.unwrap_or_default(), text(record.value.as_deref()));
        if value == "boom" && self.script.booms.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            return Err(Error::new(codes::BUG, Fault::Bug, "processing boom").into());
        }
        let answer = if self.script.sums { self.sum(&key, &value, cx)? } else { value };
        self.emit(&key, &answer, record.timestamp.filter(|_| self.script.keeps_time), cx)
    }

    fn wake(&mut self, now: Now, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        if let (Some(every), true) = (self.script.ticks, self.wants_wake(now)) {
            self.next_tick = Some(now.mono.plus(every));
            self.dirty = true;
            self.emit(b"tick", "tick", None, cx)?;
        }
        Ok(())
    }

    fn wants_wake(&self, now: Now) -> bool {
        self.next_tick.is_some_and(|t| t <= now.mono)
    }

    fn urgency(&self) -> Urgency {
        if self.dirty { Urgency::WhenDrained } else { Urgency::None }
    }

    fn before_commit(&mut self, _cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn committed(&mut self, _at: Now) {
        self.dirty = false;
        self.note("committed");
    }

    fn aborted(&mut self) {
        self.dirty = false;
        self.note("aborted");
    }

    fn next_due(&self) -> Option<MonoTime> {
        self.next_tick
    }

    fn close(&mut self, how: Close) {
        self.note(format!("closed {how:?}"));
    }
}
