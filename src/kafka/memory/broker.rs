//! The broker: topics, groups and transactions under one lock. Every call first looks at the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::ids::{GroupId, Partition, SlotName, TopicName, Tp, partition_of};
use crate::kafka::{Class, KResult, KafkaFault, SlotMark};
use crate::offset::{NextOffset, Offset};
use crate::record::OutRecord;
use crate::time::{MonoTime, SharedClock};

use super::Limits;
use super::faults::{Faults, HeldMarkers, Lie};
use super::group::{Group, MemberId, Waits};
use super::log::{Body, Log, TxSeq};

/// A topic: one log a partition.
#[derive(Debug, Default)]
pub(super) struct Topic {
    pub logs: Vec<Log>,
    pub config: BTreeMap<String, String>,
    /// Where the next record without key and partition goes.
    turn: u32,
}

/// A transaction that has touched something.
#[derive(Clone, Debug)]
struct Txn {
    seq: TxSeq,
    since: MonoTime,
    partitions: BTreeSet<Tp>,
    groups: BTreeSet<GroupId>,
}

/// The coordinator's side of one transactional id.
#[derive(Debug, Default)]
struct Producer {
    epoch: i32,
    timeout: Duration,
    open: Option<Txn>,
    /// Ended, markers not all written yet.
    ending: Option<(Txn, bool)>,
}

/// An EndTxn that is still on its way.
#[derive(Debug)]
struct LateEnd {
    tx: SlotName,
    epoch: i32,
}

/// All state of the cluster.
pub(super) struct Broker {
    pub clock: SharedClock,
    pub limits: Limits,
    pub topics: BTreeMap<TopicName, Topic>,
    pub groups: BTreeMap<GroupId, Group>,
    pub faults: Faults,
    producers: BTreeMap<SlotName, Producer>,
    late: Vec<LateEnd>,
    last_number: u64,
    ticked: MonoTime,
}

fn fenced(doing: &'static str, tx: &SlotName) -> KafkaFault {
    KafkaFault::new(Class::Fenced, doing, tx, "a newer producer has this transactional id, or the transaction timed out")
}

impl Broker {
    pub fn new(clock: SharedClock, limits: Limits) -> Self {
        let ticked = clock.now().mono;
        let (topics, groups, producers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { clock, limits, topics, groups, faults: Faults::default(), producers, late: Vec::new(), last_number: 0, ticked }
    }

    /// A number that was never given before.
    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub fn now(&self) -> MonoTime {
        self.ticked
    }

    /// Lets time do its work: transactions and sessions run out.
    pub fn tick(&mut self) {
        let now = self.clock.now().mono;
        if now == self.ticked {
            return;
        }
        self.ticked = now;
        if !self.limits.expire {
            return;
        }
        let out = |p: &Producer| p.open.as_ref().is_some_and(|t| now.since(t.since) > p.timeout);
        let over: Vec<SlotName> = self.producers.iter().filter(|(_, p)| out(p)).map(|(tx, _)| tx.clone()).collect();
        for tx in over {
            self.fence(&tx);
        }
        let waits = Waits { session: self.limits.session, rebalance: self.limits.rebalance };
        for group in self.groups.values_mut() {
            group.expire(now, waits);
        }
        self.settle();
    }

    /// Ends rebalances whose members have all joined.
    pub fn settle(&mut self) {
        let topics = &self.topics;
        let partitions = |t: &TopicName| topics.get(t).map_or(0, |t| t.logs.len() as u32);
        for group in self.groups.values_mut() {
            group.complete(&partitions);
        }
    }

    // Topics.

    pub fn create(&mut self, name: &TopicName, partitions: u32, config: BTreeMap<String, String>) {
        if !self.topics.contains_key(name) {
            self.topics.insert(name.clone(), Topic { config, ..Topic::default() });
            self.grow(name, partitions);
        }
    }

    /// Adds partitions; groups that read the topic rebalance.
    pub fn grow(&mut self, name: &TopicName, to: u32) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        let len = topic.logs.len().max(to as usize);
        topic.logs.resize_with(len, Log::default);
        let now = self.now();
        self.groups.values_mut().filter(|g| g.reads(name)).for_each(|g| g.prepare(now));
        self.settle();
    }

    /// Deletes a topic, and with it every group's positions in it.
    pub fn delete(&mut self, name: &TopicName) {
        self.topics.remove(name);
        let now = self.now();
        for group in self.groups.values_mut() {
            group.forget(name);
            if group.reads(name) {
                group.prepare(now);
            }
        }
        self.settle();
    }

    pub fn log(&self, tp: &Tp) -> Option<&Log> {
        self.topics.get(&tp.topic)?.logs.get(usize::try_from(tp.partition.0).ok()?)
    }

    pub fn log_mut(&mut self, tp: &Tp) -> Option<&mut Log> {
        self.topics.get_mut(&tp.topic)?.logs.get_mut(usize::try_from(tp.partition.0).ok()?)
    }

    pub fn existing(&self, doing: &'static str, tp: &Tp) -> KResult<&Log> {
        self.log(tp).ok_or_else(|| KafkaFault::new(Class::Config, doing, tp, "unknown topic or partition"))
    }

    /// Where the client's partitioner puts a record.
    fn place(&mut self, record: &OutRecord<'_>) -> KResult<Tp> {
        let unknown = || KafkaFault::new(Class::Config, "producing", record.topic, "unknown topic or partition");
        let topic = self.topics.get_mut(record.topic).ok_or_else(unknown)?;
        let count = topic.logs.len() as u32;
        let partition = match (record.partition, record.key) {
            (Some(p), _) => p,
            (None, Some(key)) => partition_of(key, count),
            (None, None) => {
                topic.turn = (topic.turn + 1) % count.max(1);
                Partition(topic.turn as i32)
            }
        };
        let tp = Tp { topic: record.topic.clone(), partition };
        self.log(&tp).map(|_| ()).ok_or_else(unknown)?;
        Ok(tp)
    }

    fn append(&mut self, tp: &Tp, record: &OutRecord<'_>, by: Option<TxSeq>) -> Offset {
        let body = Body {
            timestamp: record.timestamp.unwrap_or_else(|| self.clock.now().wall),
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers: record.headers.cloned().unwrap_or_default(),
        };
        self.log_mut(tp).map_or(Offset(0), |log| log.append(body, by))
    }

    /// Appends outside any transaction.
    pub fn publish(&mut self, record: &OutRecord<'_>) -> KResult<(Partition, NextOffset)> {
        let tp = self.place(record)?;
        let at = self.append(&tp, record, None);
        self.wake_readers(&tp.topic);
        Ok((tp.partition, at.next()))
    }

    fn wake_readers(&self, topic: &TopicName) {
        self.groups.values().for_each(|g| g.wake_readers(topic));
    }

    // Transactions.

    /// InitProducerId: aborts what the id has open and gives the next epoch.
    pub fn init(&mut self, tx: &SlotName, timeout: Duration) -> i32 {
        let epoch = self.fence(tx);
        if let Some(p) = self.producers.get_mut(tx) {
            p.timeout = timeout;
        }
        epoch
    }

    /// Raises the epoch and aborts what is open: initialisation, expiry and fencing alike.
    pub fn fence(&mut self, tx: &SlotName) -> i32 {
        self.end(tx, false);
        self.write_markers(tx);
        let p = self.producers.entry(tx.clone()).or_default();
        p.epoch += 1;
        p.epoch
    }

    fn producer(&mut self, doing: &'static str, tx: &SlotName, epoch: i32) -> KResult<&mut Producer> {
        self.producers.get_mut(tx).filter(|p| p.epoch == epoch).ok_or_else(|| fenced(doing, tx))
    }

    /// The open transaction of a producer; begun at the broker by its first record or offset.
    fn txn(&mut self, doing: &'static str, tx: &SlotName, epoch: i32) -> KResult<&mut Txn> {
        let (seq, since) = (TxSeq(self.number()), self.now());
        self.producer(doing, tx, epoch)?;
        self.write_markers(tx);
        let fresh = || Txn { seq, since, partitions: BTreeSet::new(), groups: BTreeSet::new() };
        Ok(self.producer(doing, tx, epoch)?.open.get_or_insert_with(fresh))
    }

    /// Appends inside the producer's transaction.
    pub fn send(&mut self, tx: &SlotName, epoch: i32, record: &OutRecord<'_>) -> KResult<(Tp, NextOffset)> {
        let tp = self.place(record)?;
        let txn = self.txn("producing", tx, epoch)?;
        txn.partitions.insert(tp.clone());
        let seq = txn.seq;
        let at = self.append(&tp, record, Some(seq));
        Ok((tp, at.next()))
    }

    /// TxnOffsetCommit: checks member, instance and generation; ownership it does not check.
    pub fn offsets(
        &mut self,
        tx: &SlotName,
        epoch: i32,
        next: &[(Tp, NextOffset)],
        mark: &SlotMark,
        by: &super::MemoryStamp,
    ) -> KResult<()> {
        const DOING: &str = "sending offsets";
        self.producer(DOING, tx, epoch)?;
        if next.is_empty() {
            return Ok(());
        }
        let known = self.groups.get(&by.group).map(|g| g.check(&by.slot, MemberId(by.member), by.generation));
        if let Some(Err(stale)) = known {
            return Err(KafkaFault::new(Class::Abort, DOING, &by.group, format!("{stale:?}")));
        }
        self.txn(DOING, tx, epoch)?.groups.insert(by.group.clone());
        if self.faults.lie != Some(Lie::OffsetsDropped) {
            self.groups.entry(by.group.clone()).or_default().hold(tx, next, mark);
        }
        Ok(())
    }

    /// EndTxn of a producer whose epoch still counts.
    pub fn end_txn(&mut self, doing: &'static str, tx: &SlotName, epoch: i32, commit: bool) -> KResult<()> {
        self.producer(doing, tx, epoch)?;
        self.end(tx, commit);
        Ok(())
    }

    fn end(&mut self, tx: &SlotName, commit: bool) {
        let Some(p) = self.producers.get_mut(tx) else { return };
        if let Some(txn) = p.open.take() {
            p.ending = Some((txn, commit));
            self.write_unheld_markers(tx);
        }
    }

    /// Writes the markers that are not held back; the rest stays with the ended transaction.
    fn write_unheld_markers(&mut self, tx: &SlotName) {
        let held = self.faults.held.clone();
        let Some((mut txn, commit)) = self.producers.get_mut(tx).and_then(|p| p.ending.take()) else { return };
        let waits = |topic: &TopicName| match &held {
            HeldMarkers::None => false,
            HeldMarkers::Topics(topics) => topics.contains(topic),
            HeldMarkers::All => true,
        };
        let (keep, write): (BTreeSet<Tp>, BTreeSet<Tp>) = txn.partitions.into_iter().partition(|tp| waits(&tp.topic));
        for tp in write {
            if let Some(log) = self.log_mut(&tp) {
                log.mark(txn.seq, commit);
            }
            self.wake_readers(&tp.topic);
        }
        if held != HeldMarkers::All {
            for group in std::mem::take(&mut txn.groups) {
                self.groups.entry(group).or_default().resolve(tx, commit);
            }
        }
        txn.partitions = keep;
        if let Some(p) = self.producers.get_mut(tx).filter(|_| !txn.partitions.is_empty() || !txn.groups.is_empty()) {
            p.ending = Some((txn, commit));
        }
    }

    /// Writes what is still held of this id: it asks for more, and a broker answers only after that.
    fn write_markers(&mut self, tx: &SlotName) {
        let held = std::mem::take(&mut self.faults.held);
        self.write_unheld_markers(tx);
        self.faults.held = held;
    }

    /// Holds markers from now on; with a lesser hold, writes those that no longer wait.
    pub fn hold_markers(&mut self, what: HeldMarkers) {
        self.faults.held = what;
        let ids: Vec<SlotName> = self.producers.keys().cloned().collect();
        ids.iter().for_each(|tx| self.write_unheld_markers(tx));
    }

    /// Keeps a commit on its way.
    pub fn delay_end(&mut self, tx: &SlotName, epoch: i32) {
        self.late.push(LateEnd { tx: tx.clone(), epoch });
    }

    /// Late commits arrive; a raised epoch refuses them. Whatever is open under the same epoch is committed, as the older protocol has it.
    pub fn deliver_late(&mut self) -> usize {
        let late = std::mem::take(&mut self.late);
        late.into_iter().filter(|l| self.end_txn("committing late", &l.tx, l.epoch, true).is_ok()).count()
    }

    /// Transactional ids with something open or markers to come.
    pub fn unfinished(&self) -> Vec<SlotName> {
        self.producers.iter().filter(|(_, p)| p.open.is_some() || p.ending.is_some()).map(|(tx, _)| tx.clone()).collect()
    }
}
