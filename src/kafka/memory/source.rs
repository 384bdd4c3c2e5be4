//! A consumer in a slot, in a group, reading committed records.

#![allow(clippy::result_large_err)] // An input that ends the poll is the error; it is made once and moved once.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{GroupId, SlotName, TopicName, Tp};
use crate::kafka::{
    Assigned, Class, Committed, Input, Isolation, KResult, KafkaFault, Reading, Revoked, Slot, SlotMark, Source, Wake,
};
use crate::offset::NextOffset;

use super::MemoryCluster;
use super::broker::Broker;
use super::faults::{Call, Lie};
use super::group::{MemberId, Standing};
use super::log::Read;

/// Group metadata as a consumer knows it at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryStamp {
    pub(super) group: GroupId,
    pub(super) slot: SlotName,
    pub(super) member: u64,
    pub(super) generation: i32,
}

/// What the owner of the source owes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owed {
    Nothing,
    /// `confirm` of an assignment.
    Confirm,
    /// `released` of what was revoked or lost.
    Release,
    /// Nothing any more: closed.
    Closed,
}

/// How one partition is read.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    at: NextOffset,
    reading: Reading,
    /// Whether the owner knows that there is nothing more.
    drained: bool,
    /// Whether the position is out of range and was reported.
    stuck: bool,
    /// Whether its owner wants none of it now.
    paused: bool,
}

/// A consumer of the in-process log.
#[derive(Debug)]
pub struct MemorySource {
    cluster: MemoryCluster,
    stamp: MemoryStamp,
    topics: BTreeSet<TopicName>,
    wake: Wake,
    owed: Owed,
    owned: Vec<Tp>,
    cursors: BTreeMap<Tp, Cursor>,
    /// The shared partition that was served last.
    last: Option<Tp>,
}

impl MemorySource {
    pub(super) fn join(cluster: MemoryCluster, slot: &Slot, topics: &[TopicName], wake: Wake) -> Self {
        let stamp = MemoryStamp { group: slot.group.clone(), slot: slot.name(), member: 0, generation: -1 };
        let topics = topics.iter().cloned().collect();
        let (owned, cursors) = (Vec::new(), BTreeMap::new());
        let mut source = Self { cluster: cluster.clone(), stamp, topics, wake, owed: Owed::Nothing, owned, cursors, last: None };
        source.enter(&mut cluster.broker());
        source
    }

    /// Joins the group as a new incarnation.
    fn enter(&mut self, broker: &mut Broker) {
        self.stamp.member = broker.number();
        self.stamp.generation = -1;
        let (id, now) = (MemberId(self.stamp.member), broker.now());
        let group = broker.groups.entry(self.stamp.group.clone()).or_default();
        group.join(&self.stamp.slot, id, self.topics.clone(), self.wake.clone(), now);
        broker.settle();
    }

    fn standing(&self, broker: &mut Broker) -> Standing {
        let now = broker.now();
        let group = broker.groups.entry(self.stamp.group.clone()).or_default();
        group.hear(&self.stamp.slot, MemberId(self.stamp.member), now)
    }

    /// Sends a heartbeat and follows its answer; `Ok(true)` = reading may go on.
    fn follow(&mut self, broker: &mut Broker) -> Result<bool, Input> {
        let standing = self.standing(broker);
        if self.owed != Owed::Nothing {
            return Ok(false);
        }
        match standing {
            Standing::Replaced => {
                let detail = "another member has this instance id";
                Err(Input::Fault(KafkaFault::new(Class::SlotTaken, "keeping the slot", &self.stamp.slot, detail)))
            }
            Standing::Unknown if self.owned.is_empty() => {
                self.enter(broker);
                self.follow_joined(broker)
            }
            Standing::Rejoin if self.owned.is_empty() => {
                self.rejoin(broker);
                self.follow_joined(broker)
            }
            Standing::Unknown => Err(Input::Lost(self.give_back())),
            Standing::Rejoin => Err(Input::Revoked(self.give_back())),
            Standing::Waiting => Ok(false),
            Standing::Stable(generation) => self.take(broker, generation),
        }
    }

    /// After joining: the others may all be there already.
    fn follow_joined(&mut self, broker: &mut Broker) -> Result<bool, Input> {
        match self.standing(broker) {
            Standing::Stable(generation) => self.take(broker, generation),
            _ => Ok(false),
        }
    }

    fn take(&mut self, broker: &Broker, generation: i32) -> Result<bool, Input> {
        if generation == self.stamp.generation {
            return Ok(true);
        }
        self.stamp.generation = generation;
        self.owned = broker.groups.get(&self.stamp.group).map(|g| g.assignment(&self.stamp.slot)).unwrap_or_default();
        self.owed = Owed::Confirm;
        Err(Input::Assigned(Assigned { partitions: self.owned.clone() }))
    }

    fn give_back(&mut self) -> Revoked {
        self.owed = Owed::Release;
        Revoked { partitions: self.owned.clone() }
    }

    fn rejoin(&self, broker: &mut Broker) {
        if let Some(group) = broker.groups.get_mut(&self.stamp.group) {
            group.rejoin(&self.stamp.slot, MemberId(self.stamp.member));
        }
        broker.settle();
    }

    /// Reads one partition: a record, or once that there is none.
    fn fetch(&mut self, broker: &Broker, tp: &Tp) -> Option<Input> {
        let cursor = self.cursors.get_mut(tp)?;
        if cursor.stuck || cursor.paused {
            return None;
        }
        let dirty = broker.faults.lie == Some(Lie::DirtyReads);
        let isolation = if dirty { Isolation::Uncommitted } else { Isolation::Committed };
        let read = broker.log(tp).map_or(Read::OutOfRange, |log| log.read(tp, cursor.at, isolation));
        match read {
            Read::Record(record) => {
                cursor.at = record.offset.next();
                cursor.drained = false;
                Some(Input::Record(*record))
            }
            Read::UpTo(end) => {
                cursor.at = end;
                let news = !std::mem::replace(&mut cursor.drained, true);
                news.then(|| Input::Drained(tp.clone()))
            }
            Read::OutOfRange => {
                cursor.stuck = true;
                let detail = format!("offset {} is out of range", cursor.at);
                Some(Input::Fault(KafkaFault::new(Class::Gone, "fetching", tp, detail)))
            }
        }
    }

    /// The shared partitions in turn, beginning after the one that was served last.
    fn fetch_shared(&mut self, broker: &Broker) -> Option<Input> {
        let shared = |c: &(&Tp, &Cursor)| c.1.reading == Reading::Shared && !c.1.stuck && !c.1.paused;
        let mut turn: Vec<Tp> = self.cursors.iter().filter(shared).map(|(tp, _)| tp.clone()).collect();
        if let Some(last) = &self.last {
            let after = turn.partition_point(|tp| tp <= last);
            turn.rotate_left(after);
        }
        turn.into_iter().find_map(|tp| {
            let input = self.fetch(broker, &tp)?;
            self.last = Some(tp);
            Some(input)
        })
    }

    fn assigned(&self, doing: &'static str, tp: &Tp) -> KResult<()> {
        match self.owned.contains(tp) {
            true => Ok(()),
            false => Err(KafkaFault::new(Class::Config, doing, tp, "not assigned to this member")),
        }
    }
}

impl Source for MemorySource {
    type Stamp = MemoryStamp;

    fn next(&mut self) -> Option<Input> {
        let cluster = self.cluster.clone();
        let mut broker = cluster.broker();
        if broker.faults.down || self.owed == Owed::Closed {
            return None;
        }
        match self.follow(&mut broker) {
            Err(event) => Some(event),
            Ok(false) => None,
            Ok(true) => self.fetch_shared(&broker),
        }
    }

    fn next_of(&mut self, tp: &Tp) -> Option<Input> {
        let cluster = self.cluster.clone();
        let broker = cluster.broker();
        if broker.faults.down || self.owed != Owed::Nothing || self.cursors.get(tp).is_none_or(|c| c.reading != Reading::Split) {
            return None;
        }
        self.fetch(&broker, tp)
    }

    fn confirm(&mut self, assigned: &Assigned, start: &[(Tp, NextOffset, Reading)]) -> KResult<()> {
        if self.owed != Owed::Confirm {
            let partitions = format!("{:?}", assigned.partitions);
            return Err(KafkaFault::new(Class::Config, "confirming", partitions, "no assignment is pending"));
        }
        start.iter().try_for_each(|(tp, ..)| self.assigned("confirming", tp))?;
        let cursor = |at, reading| Cursor { at, reading, drained: false, stuck: false, paused: false };
        self.cursors = start.iter().map(|(tp, at, reading)| (tp.clone(), cursor(*at, *reading))).collect();
        self.owed = Owed::Nothing;
        Ok(())
    }

    fn released(&mut self, revoked: &Revoked) -> KResult<()> {
        if self.owed != Owed::Release {
            let partitions = format!("{:?}", revoked.partitions);
            return Err(KafkaFault::new(Class::Config, "giving back", partitions, "nothing is being revoked"));
        }
        (self.owed, self.last) = (Owed::Nothing, None);
        self.owned.clear();
        self.cursors.clear();
        let cluster = self.cluster.clone();
        self.rejoin(&mut cluster.broker());
        Ok(())
    }

    fn committed(&mut self, tps: &[Tp], isolation: Isolation) -> KResult<Vec<Committed>> {
        const DOING: &str = "reading committed offsets";
        let mut broker = self.cluster.broker();
        broker.faults.gate(Call::Committed, DOING, self.stamp.slot.as_str())?;
        let group = broker.groups.entry(self.stamp.group.clone()).or_default();
        let one = |tp: &Tp| match group.position(tp, isolation) {
            Ok(Some((at, mark))) => Ok((tp.clone(), Some(at), mark)),
            Ok(None) => Ok((tp.clone(), None, SlotMark::default())),
            Err(tx) => Err(KafkaFault::new(Class::Blocked, DOING, tp, format!("the transaction of {tx} is open"))),
        };
        tps.iter().map(one).collect()
    }

    fn seek(&mut self, to: &[(Tp, NextOffset)]) -> KResult<()> {
        for (tp, at) in to {
            self.assigned("seeking", tp)?;
            if let Some(c) = self.cursors.get_mut(tp) {
                (c.at, c.drained, c.stuck) = (*at, false, false);
            }
        }
        Ok(())
    }

    fn pause(&mut self, tps: &[Tp]) -> KResult<()> {
        for tp in tps {
            self.assigned("pausing", tp)?;
            self.cursors.get_mut(tp).into_iter().for_each(|c| c.paused = true);
        }
        Ok(())
    }

    fn resume(&mut self, from: &[(Tp, NextOffset)]) -> KResult<()> {
        for (tp, _) in from {
            self.cursors.get_mut(tp).into_iter().for_each(|c| c.paused = false);
        }
        self.seek(from)
    }

    fn position(&self, tp: &Tp) -> Option<NextOffset> {
        self.cursors.get(tp).map(|c| c.at)
    }

    fn known_end(&self, tp: &Tp) -> Option<NextOffset> {
        self.cluster.broker().log(tp).map(super::log::Log::end)
    }

    fn ends(&mut self, tp: &Tp) -> KResult<(NextOffset, NextOffset)> {
        let mut broker = self.cluster.broker();
        broker.faults.gate(Call::Ends, "reading ends", self.stamp.slot.as_str())?;
        broker.existing("reading ends", tp).map(|log| (log.start(), log.stable()))
    }

    fn stamp(&mut self) -> KResult<MemoryStamp> {
        self.cluster.broker().faults.gate(Call::Stamp, "reading group metadata", self.stamp.slot.as_str())?;
        Ok(self.stamp.clone())
    }

    fn close(&mut self) {
        self.owed = Owed::Closed;
        self.owned.clear();
        self.cursors.clear();
    }
}
