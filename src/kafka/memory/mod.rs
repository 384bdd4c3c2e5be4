//! The in-process log: topics, transactions with control markers, fencing, groups and sessions as a broker has them, without a
//! broker. Deterministic: no threads, no randomness; time is the clock's, and it is looked at in every call.
//!
//! Dropping a source or sink is what a crash looks like from outside: nothing is left, ended or given back. A process that only
//! stands still (and comes back) is one whose clients are not called while the clock moves on.
//!
//! Known differences from a real cluster: records reach the log in `send`, not some time before `flush`; a heartbeat is sent by
//! every [`Source::next`](super::Source::next), not by a thread of the client; there is one broker, and it loses only what it is told to.

mod admin;
mod broker;
mod faults;
mod group;
mod log;
mod reader;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub use faults::{Call, HeldMarkers, Lie, LostAnswer};
pub use sink::MemorySink;
pub use source::{MemorySource, MemoryStamp};

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ids::{GroupId, Partition, SlotName, TopicName, Tp};
use crate::offset::NextOffset;
use crate::record::{InRecord, OutRecord};
use crate::time::SharedClock;

use super::{Admin, Class, Cluster, Isolation, KResult, Reader, Slot, TxLimits, Wake};
use broker::Broker;
use log::Read;

/// Time limits that a real cluster has in its settings.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `session.timeout.ms`: how long a member may be silent.
    pub session: Duration,
    /// `max.poll.interval.ms`: how long a rebalance waits for a member that speaks but does not give back.
    pub rebalance: Duration,
    /// Whether sessions and transactions run out at all; not in the driver, whose time jumps.
    pub expire: bool,
    /// Whether readers wait for records as long as they are told; only where the clock moves by itself.
    pub wait: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { session: Duration::from_secs(15), rebalance: Duration::from_secs(60), expire: true, wait: false }
    }
}

struct Shared {
    broker: Mutex<Broker>,
    changed: Condvar,
}

/// A handle on the in-process cluster; clones are the same cluster.
#[derive(Clone)]
pub struct MemoryCluster(Arc<Shared>);

impl fmt::Debug for MemoryCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryCluster")
    }
}

impl MemoryCluster {
    /// An empty cluster that lives by `clock`, with default limits.
    pub fn new(clock: SharedClock) -> Self {
        Self::with(clock, Limits::default())
    }

    /// An empty cluster with other limits.
    pub fn with(clock: SharedClock, limits: Limits) -> Self {
        Self(Arc::new(Shared { broker: Mutex::new(Broker::new(clock, limits)), changed: Condvar::new() }))
    }

    /// The broker, after time did its work.
    fn broker(&self) -> MutexGuard<'_, Broker> {
        let mut broker = self.0.broker.lock().unwrap_or_else(PoisonError::into_inner);
        broker.tick();
        broker
    }

    /// Tells readers that wait.
    fn changed(&self) {
        self.0.changed.notify_all();
    }

    /// Lets time do its work now: sessions and transactions that are over end.
    pub fn tick(&self) {
        drop(self.broker());
        self.changed();
    }

    /// Creates a topic where there is none, without settings.
    pub fn create(&self, topic: &TopicName, partitions: u32) {
        self.broker().create(topic, partitions, BTreeMap::new());
    }

    /// Adds partitions up to `to`; groups that read the topic rebalance.
    pub fn add_partitions(&self, topic: &TopicName, to: u32) {
        self.broker().grow(topic, to);
    }

    /// Deletes a topic with all positions in it; groups that read it rebalance.
    pub fn delete(&self, topic: &TopicName) {
        self.broker().delete(topic);
        self.changed();
    }

    /// Cuts off what a partition has from `end` on, as an unclean election does; groups keep their positions.
    pub fn cut_after(&self, tp: &Tp, end: NextOffset) {
        self.broker().log_mut(tp).into_iter().for_each(|log| log.cut_after(end));
    }

    /// Compacts a topic: the last committed record of each key below the last stable offset stays.
    pub fn compact(&self, topic: &TopicName) {
        if let Some(t) = self.broker().topics.get_mut(topic) {
            t.logs.iter_mut().for_each(log::Log::compact);
        }
    }

    /// All records of a topic that this isolation shows, by partition and offset.
    pub fn records(&self, topic: &TopicName, isolation: Isolation) -> Vec<InRecord> {
        let broker = self.broker();
        let logs = broker.topics.get(topic).map(|t| t.logs.as_slice()).unwrap_or_default();
        let mut found = Vec::new();
        for (p, log) in logs.iter().enumerate() {
            let tp = Tp::new(topic.clone(), p as i32);
            let mut at = log.start();
            while let Read::Record(r) = log.read(&tp, at, isolation) {
                at = r.offset.next();
                found.push(*r);
            }
        }
        found
    }

    /// Everything in all logs, markers and unfinished transactions included, as text for a failing test.
    pub fn dump(&self) -> String {
        let broker = self.broker();
        let mut text = String::new();
        for (name, topic) in &broker.topics {
            for (p, log) in topic.logs.iter().enumerate() {
                let _ = writeln!(text, "{name}-{p} [{}, {}) stable {}", log.start(), log.end(), log.stable());
                log.dump().for_each(|line| {
                    let _ = writeln!(text, "  {line}");
                });
            }
        }
        text
    }

    /// Committed positions of a group.
    pub fn positions(&self, group: &GroupId) -> BTreeMap<Tp, NextOffset> {
        self.broker().groups.get(group).map(group::Group::positions).unwrap_or_default()
    }

    /// Slots whose transaction is open, or ended with markers to come.
    pub fn unfinished(&self) -> Vec<SlotName> {
        self.broker().unfinished()
    }

    /// Makes the next call of this kind fail; of this slot only, where one is named. `Fenced`, `Rebuild` and `OutcomeUnknown`
    /// leave a sink unusable, `Abort` and `Config` until it has aborted, as with the real client.
    pub fn fail_next(&self, call: Call, who: Option<&SlotName>, class: Class) {
        self.broker().faults.plan(call, who.cloned(), class);
    }

    /// Loses the answer of the next commit; of this slot only, where one is named.
    pub fn lose_commit_answer(&self, who: Option<&SlotName>, what: LostAnswer) {
        self.broker().faults.lose(who.cloned(), what);
    }

    /// Delivers commits that are on their way; says how many took effect.
    pub fn deliver_late(&self) -> usize {
        let delivered = self.broker().deliver_late();
        self.changed();
        delivered
    }

    /// Holds markers back from now on. A slot that goes on gets its markers written first, as a broker would.
    pub fn hold_markers(&self, what: HeldMarkers) {
        self.broker().hold_markers(what);
        self.changed();
    }

    /// From now on the cluster does not keep this promise.
    pub fn lie(&self, about: Lie) {
        self.broker().faults.lie = Some(about);
    }

    /// Takes the broker away, or gives it back. Nothing it knows is lost.
    pub fn set_down(&self, down: bool) {
        self.broker().faults.down = down;
    }

    /// Ends a slot's transaction as its timeout would: aborted, and its producer fenced.
    pub fn expire_transaction(&self, slot: &SlotName) {
        self.broker().fence(slot);
        self.changed();
    }

    /// Ends a member's session as its timeout would.
    pub fn expire_session(&self, group: &GroupId, slot: &SlotName) {
        let mut broker = self.broker();
        let now = broker.now();
        if let Some(g) = broker.groups.get_mut(group) {
            g.expel(slot, now);
        }
        broker.settle();
    }
}

impl Cluster for MemoryCluster {
    type Source = MemorySource;
    type Sink = MemorySink;

    fn source(&self, slot: &Slot, topics: &[TopicName], wake: Wake) -> KResult<MemorySource> {
        Ok(MemorySource::join(self.clone(), slot, topics, wake))
    }

    fn sink(&self, slot: &Slot, limits: TxLimits) -> KResult<MemorySink> {
        Ok(MemorySink::new(self.clone(), slot.name(), limits.transaction))
    }

    fn fence(&self, slot: &SlotName) -> KResult<()> {
        let mut broker = self.broker();
        broker.faults.gate(Call::Init, "fencing", slot.as_str())?;
        broker.fence(slot);
        drop(broker);
        self.changed();
        Ok(())
    }

    fn reader(&self, isolation: Isolation) -> KResult<Box<dyn Reader>> {
        Ok(Box::new(reader::MemoryReader::new(self.clone(), isolation)))
    }

    fn admin(&self) -> KResult<Box<dyn Admin>> {
        Ok(Box::new(admin::MemoryAdmin(self.clone())))
    }

    fn publish(&self, records: &[OutRecord<'_>], _limit: Duration) -> KResult<Vec<(Partition, NextOffset)>> {
        let mut broker = self.broker();
        broker.faults.gate(Call::Publish, "publishing", "")?;
        let placed = records.iter().map(|r| broker.publish(r)).collect();
        drop(broker);
        self.changed();
        placed
    }
}
