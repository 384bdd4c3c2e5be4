//! A consumer in a slot.

mod anew;
mod renewal;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Offset as RdOffset;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerGroupMetadata, RebalanceProtocol};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};

use super::context::{Context, unassign_all};
use super::ghost::Ours;
use super::{RdCluster, convert, raw};
use crate::ids::{TopicName, Tp};
use crate::kafka::{
    Assigned, Class, Committed, Input, Isolation, KResult, KafkaFault, Reading, Revoked, Slot, SlotMark, Source, Wake,
};
use crate::offset::NextOffset;
use crate::record::InRecord;
use renewal::Renewal;

/// An assigned partition.
struct Part {
    tp: Tp,
    /// Where reading was last put; it stands there until the client has read something.
    put: NextOffset,
    /// Its own queue, where it is read split.
    queue: Option<PartitionQueue<Context>>,
    /// Records of a split partition that still came by the shared queue; they go before its own queue.
    strays: VecDeque<InRecord>,
}

/// A consumer in a slot of its group.
pub struct RdSource {
    cluster: RdCluster,
    slot: Slot,
    topics: Vec<TopicName>,
    wake: Wake,
    parts: Vec<Part>,
    ready: VecDeque<Input>,
    ours: Ours,
    /// Since when the consumer is fenced, and by whom is not known yet.
    fenced: Option<Instant>,
    /// Lost with a former consumer: there is nothing to unassign any more.
    bygone: Vec<Tp>,
    /// Paused. The client remembers that beyond an assignment; we don't.
    paused: Vec<Tp>,
    consumer: Option<Arc<BaseConsumer<Context>>>,
    /// An assignment was handed out and is not confirmed yet.
    pending: bool,
    renewal: Renewal,
    /// Until when the group is to forget the slot.
    away: Option<Instant>,
}

/// What one look at the shared queue gave.
enum Polled {
    /// There is nothing.
    Nothing,
    /// A record of a shared partition.
    Record(InRecord),
    /// Something else for the owner.
    Event(Input),
    /// Something that was put aside: look again.
    Kept,
}

/// Records put aside at most while their owner takes none.
const KEPT: usize = 2_000;
impl RdSource {
    pub(super) fn join(cluster: RdCluster, slot: &Slot, topics: &[TopicName], wake: Wake) -> KResult<Self> {
        let consumer = match cluster.0.warm.consumer(&slot.name()) {
            Some(warm) => joined(warm, slot, topics, &wake)?,
            None => subscribed(&cluster, slot, topics, &wake)?,
        };
        Ok(Self {
            cluster,
            slot: slot.clone(),
            topics: topics.to_vec(),
            wake,
            parts: Vec::new(),
            ready: VecDeque::new(),
            ours: Ours::default(),
            fenced: None,
            bygone: Vec::new(),
            paused: Vec::new(),
            consumer: Some(Arc::new(consumer)),
            pending: false,
            renewal: Renewal::default(),
            away: None,
        })
    }

    fn consumer(&self) -> KResult<&Arc<BaseConsumer<Context>>> {
        self.consumer
            .as_ref()
            .ok_or_else(|| KafkaFault::new(Class::Rebuild, "using the consumer", self.slot.name(), "it is closed"))
    }

    fn fault(&self, doing: &'static str, to: impl std::fmt::Display, e: &KafkaError) -> KafkaFault {
        match &self.consumer {
            Some(c) => convert::fault(c.client(), doing, to, e),
            None => convert::clientless(doing, to, e),
        }
    }

    fn part(&self, tp: &Tp) -> Option<&Part> {
        self.parts.iter().find(|p| p.tp == *tp)
    }

    /// A message of the shared queue: a record, or a stray of a split partition, or of one that is gone.
    fn take(parts: &mut [Part], message: &BorrowedMessage<'_>) -> Option<InRecord> {
        let (topic, partition) = (message.topic(), message.partition());
        let part = parts.iter_mut().find(|p| p.tp.partition.0 == partition && p.tp.topic.as_str() == topic)?;
        let record = convert::in_record(part.tp.clone(), message);
        match part.queue {
            None => Some(record),
            Some(_) => {
                part.strays.push_back(record);
                None
            }
        }
    }

    /// The client names only the partition's number at the end of a partition; the topic is found by position.
    fn drained(&mut self, partition: i32) {
        let shared: Vec<&Part> = self.parts.iter().filter(|p| p.tp.partition.0 == partition && p.queue.is_none()).collect();
        let at_end = |p: &&&Part| self.position(&p.tp).zip(self.known_end(&p.tp)).is_some_and(|(at, end)| at >= end);
        let sure: Vec<Tp> = shared.iter().filter(at_end).map(|p| p.tp.clone()).collect();
        // Behind an open transaction none is at its end: then all of that number have nothing for now.
        let drained = if sure.is_empty() { shared.iter().map(|p| p.tp.clone()).collect() } else { sure };
        self.ready.extend(drained.into_iter().map(Input::Drained));
    }

    /// One look at the shared queue.
    fn poll(&mut self) -> Polled {
        let Some(consumer) = self.consumer.clone() else { return self.come_back() };
        if self.renewal.next.is_some() {
            return Polled::Nothing;
        }
        consumer.context().keep(consumer.client());
        // A rebalance goes before records that were fetched under the old assignment.
        if let Some(event) = consumer.context().rebalance_event() {
            return self.rebalance(event);
        }
        if let Some(event) = self.renew(&consumer) {
            return Polled::Event(event);
        }
        if self.fenced.is_some() {
            let detail = "the group calls this consumer fenced";
            return self.fenced(KafkaFault::new(Class::SlotTaken, "keeping the slot", self.slot.name(), detail));
        }
        match consumer.poll(Duration::ZERO) {
            None => match consumer.context().rebalance_event() {
                Some(event) => self.rebalance(event),
                None => Polled::Nothing,
            },
            Some(Ok(message)) => Self::take(&mut self.parts, &message).map_or(Polled::Kept, Polled::Record),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                self.drained(partition);
                Polled::Kept
            }
            Some(Err(e)) => match self.fault("reading", self.slot.name(), &e) {
                fault if fault.class == Class::SlotTaken => self.fenced(fault),
                fault => Polled::Event(Input::Fault(fault)),
            },
        }
    }

    fn rebalance(&mut self, event: Input) -> Polled {
        self.pending = matches!(event, Input::Assigned(_));
        Polled::Event(event)
    }

    fn committed_list(&self, tps: &[Tp], isolation: Isolation) -> Result<rdkafka::TopicPartitionList, KafkaError> {
        let list = convert::partitions(tps);
        let limit = self.cluster.config().offsets;
        match (isolation, &self.consumer) {
            (Isolation::Committed, Some(consumer)) => consumer.committed_offsets(list, limit),
            _ => {
                let name = self.slot.name();
                let config = self.cluster.consumer(name.as_str(), self.slot.group.as_str(), Isolation::Uncommitted);
                let asking: BaseConsumer<Context> = config.create_with_context(self.cluster.context(name.as_str()))?;
                asking.context().keep(asking.client());
                asking.committed_offsets(list, self.cluster.config().request)
            }
        }
    }
}

impl Source for RdSource {
    type Stamp = Arc<ConsumerGroupMetadata>;

    fn next(&mut self) -> Option<Input> {
        loop {
            if let Some(input) = self.ready.pop_front() {
                return Some(input);
            }
            match self.poll() {
                Polled::Nothing => return None,
                Polled::Event(input) => return Some(input),
                Polled::Record(record) => return Some(Input::Record(record)),
                Polled::Kept => {}
            }
        }
    }

    fn heed(&mut self) -> Option<Input> {
        while self.ready.len() < KEPT {
            match self.poll() {
                Polled::Nothing => return None,
                Polled::Event(Input::Fault(fault)) if fault.class == Class::Retry => {}
                Polled::Event(input) => return Some(input),
                Polled::Record(record) => self.ready.push_back(Input::Record(record)),
                Polled::Kept => {}
            }
        }
        None
    }

    fn next_of(&mut self, tp: &Tp) -> Option<Input> {
        let part = self.parts.iter_mut().find(|p| p.tp == *tp)?;
        if let Some(stray) = part.strays.pop_front() {
            return Some(Input::Record(stray));
        }
        let failed = match part.queue.as_ref()?.poll(Duration::ZERO)? {
            Ok(message) => return Some(Input::Record(convert::in_record(part.tp.clone(), &message))),
            Err(KafkaError::PartitionEOF(_)) => return Some(Input::Drained(tp.clone())),
            Err(e) => e,
        };
        Some(Input::Fault(self.fault("reading", tp, &failed)))
    }

    fn confirm(&mut self, assigned: &Assigned, start: &[(Tp, NextOffset, Reading)]) -> KResult<()> {
        let consumer = Arc::clone(self.consumer()?);
        let cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
        if !cooperative {
            self.parts.clear();
        }
        let mut list = Vec::with_capacity(start.len());
        for tp in &assigned.partitions {
            let (_, next, reading) = start
                .iter()
                .find(|(at, _, _)| at == tp)
                .ok_or_else(|| KafkaFault::new(Class::Config, "taking an assignment", tp, "no start position was given"))?;
            // Before the assignment, or its first records would come by the shared queue.
            let queue = match reading {
                Reading::Shared => None,
                Reading::Split => {
                    let mut queue = consumer.split_partition_queue(tp.topic.as_str(), tp.partition.0).ok_or_else(|| {
                        KafkaFault::new(Class::Rebuild, "splitting the queue", tp, "the client knows no such partition")
                    })?;
                    let waker = self.wake.clone();
                    queue.set_nonempty_callback(move || waker.wake());
                    Some(queue)
                }
            };
            self.parts.push(Part { tp: tp.clone(), put: *next, queue, strays: VecDeque::new() });
            list.push((tp, *next));
        }
        let list = convert::positions(list)?;
        let done = if cooperative { consumer.incremental_assign(&list) } else { consumer.assign(&list) };
        done.map_err(|e| self.fault("taking an assignment", self.slot.name(), &e))?;
        self.pending = false;
        self.ours.note(&consumer);
        let again: Vec<Tp> = std::mem::take(&mut self.paused).into_iter().filter(|tp| assigned.partitions.contains(tp)).collect();
        consumer.resume(&convert::partitions(&again)).map_err(|e| self.fault("resuming", self.slot.name(), &e))
    }

    fn released(&mut self, revoked: &Revoked) -> KResult<()> {
        if !self.bygone.is_empty() && self.bygone == revoked.partitions {
            self.bygone.clear();
            return Ok(());
        }
        if let Some(next) = self.renewal.next.take() {
            return self.succeed(next);
        }
        let consumer = Arc::clone(self.consumer()?);
        let done = if matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative) {
            self.parts.retain(|p| !revoked.partitions.contains(&p.tp));
            consumer.incremental_unassign(&convert::partitions(&revoked.partitions))
        } else {
            self.parts.clear();
            consumer.unassign()
        };
        done.map_err(|e| self.fault("giving partitions back", self.slot.name(), &e))
    }

    fn committed(&mut self, tps: &[Tp], isolation: Isolation) -> KResult<Vec<Committed>> {
        const DOING: &str = "reading committed offsets";
        let blocked = |e: &KafkaError| {
            use RDKafkaErrorCode::{OperationTimedOut, RequestTimedOut, UnstableOffsetCommit};
            matches!(e.rdkafka_error_code(), Some(OperationTimedOut | RequestTimedOut | UnstableOffsetCommit))
        };
        let classed = |e: &KafkaError| match blocked(e) && isolation == Isolation::Committed {
            true => KafkaFault::new(Class::Blocked, DOING, &self.slot.group, e),
            false => self.fault(DOING, &self.slot.group, e),
        };
        let list = self.committed_list(tps, isolation).map_err(|e| classed(&e))?;
        let found = list.elements();
        found
            .iter()
            .map(|e| {
                e.error().map_err(|e| classed(&e))?;
                let next = match e.offset() {
                    RdOffset::Offset(at) => Some(NextOffset(at)),
                    _ => None,
                };
                Ok((Tp::new(e.topic(), e.partition()), next, SlotMark(e.metadata().to_owned())))
            })
            .collect()
    }

    fn seek(&mut self, to: &[(Tp, NextOffset)]) -> KResult<()> {
        const DOING: &str = "moving the position";
        if to.is_empty() {
            return Ok(());
        }
        let consumer = Arc::clone(self.consumer()?);
        for (tp, next) in to {
            if let Some(part) = self.parts.iter_mut().find(|p| p.tp == *tp) {
                part.put = *next;
                part.strays.clear();
            }
        }
        self.ready.retain(|input| !matches!(input, Input::Record(r) if to.iter().any(|(tp, _)| *tp == r.tp)));
        let until = Instant::now() + self.cluster.config().request;
        loop {
            let list = convert::positions(to.iter().map(|(tp, next)| (tp, *next)))?;
            let list = consumer
                .seek_partitions(list, self.cluster.config().request)
                .map_err(|e| KafkaFault::new(Class::Retry, DOING, self.slot.name(), e))?;
            let failed = list.elements().iter().find_map(|e| e.error().err().map(|why| (Tp::new(e.topic(), e.partition()), why)));
            match failed {
                None => return Ok(()),
                // Right after an assignment the client is not ready to move yet.
                Some((_, e)) if e.rdkafka_error_code() == Some(RDKafkaErrorCode::State) && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Some((tp, e)) => return Err(self.fault(DOING, tp, &e)),
            }
        }
    }

    fn pause(&mut self, tps: &[Tp]) -> KResult<()> {
        let done = self.consumer()?.pause(&convert::partitions(tps));
        done.map_err(|e| self.fault("pausing", self.slot.name(), &e))?;
        self.paused.extend(tps.iter().cloned());
        Ok(())
    }

    fn resume(&mut self, from: &[(Tp, NextOffset)]) -> KResult<()> {
        let done = self.consumer()?.resume(&convert::partitions(from.iter().map(|(tp, _)| tp)));
        done.map_err(|e| self.fault("resuming", self.slot.name(), &e))?;
        self.paused.retain(|tp| from.iter().all(|(again, _)| again != tp));
        self.seek(from)
    }

    fn position(&self, tp: &Tp) -> Option<NextOffset> {
        let part = self.part(tp)?;
        let consumer = self.consumer.as_ref()?;
        match part.strays.front() {
            Some(stray) => Some(NextOffset(stray.offset.0)),
            None => Some(raw::position(consumer.client(), tp.topic.as_str(), tp.partition.0).map_or(part.put, NextOffset)),
        }
    }

    fn known_end(&self, tp: &Tp) -> Option<NextOffset> {
        raw::known_end(self.consumer.as_ref()?.client(), tp.topic.as_str(), tp.partition.0).map(NextOffset)
    }

    fn ends(&mut self, tp: &Tp) -> KResult<(NextOffset, NextOffset)> {
        let found = super::reader::ends(self.consumer()?, tp, self.cluster.config().request);
        found.map_err(|e| self.fault("asking for the ends", tp, &e))
    }

    fn stamp(&mut self) -> KResult<Self::Stamp> {
        self.consumer()?
            .group_metadata()
            .map(Arc::new)
            .ok_or_else(|| KafkaFault::new(Class::Rebuild, "taking group metadata", self.slot.name(), "the client has none"))
    }

    fn stay_away(&mut self, time: Duration) -> KResult<bool> {
        self.go_away(time);
        Ok(true)
    }

    fn close(&mut self) {
        self.away = None;
        self.parts.clear();
        let Some(consumer) = self.consumer.take() else { return };
        consumer.context().close();
        // A rebalance that is still pending waits for this one.
        if let Err(e) = unassign_all(&consumer) {
            tracing::debug!(target: "kafka", slot = %self.slot.name(), "giving back at close: {e}");
        }
    }
}

impl Drop for RdSource {
    fn drop(&mut self) {
        self.close();
    }
}

/// A consumer that has joined the slot's group.
fn subscribed(cluster: &RdCluster, slot: &Slot, topics: &[TopicName], wake: &Wake) -> KResult<BaseConsumer<Context>> {
    let consumer = cluster.make_member(slot)?;
    joined(consumer, slot, topics, wake)
}

fn joined(mut consumer: BaseConsumer<Context>, slot: &Slot, topics: &[TopicName], wake: &Wake) -> KResult<BaseConsumer<Context>> {
    let name = slot.name();
    let waker = wake.clone();
    consumer.set_nonempty_callback(move || waker.wake());
    let topics: Vec<&str> = topics.iter().map(TopicName::as_str).collect();
    consumer.subscribe(&topics).map_err(|e| convert::fault(consumer.client(), "subscribing", &name, &e))?;
    Ok(consumer)
}
