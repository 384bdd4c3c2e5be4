//! A consumer group with static members: generations, range assignment, sessions, committed and pending offsets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::{SlotName, TopicName, Tp};
use crate::kafka::{Isolation, SlotMark, Wake};
use crate::offset::NextOffset;
use crate::time::MonoTime;

/// One incarnation of a member; a static member that comes back gets a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemberId(pub u64);

/// How a member stands, as its heartbeat is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// The group does not know it (any more).
    Unknown,
    /// Another member came with its instance id.
    Replaced,
    /// A rebalance is on: give back and join again.
    Rejoin,
    /// It has joined; others have not yet.
    Waiting,
    /// It has this generation's assignment.
    Stable(i32),
}

/// Why a transactional offset commit is refused; all of class abort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stale {
    UnknownMemberId,
    FencedInstanceId,
    IllegalGeneration,
}

type Positions = BTreeMap<Tp, (NextOffset, SlotMark)>;

#[derive(Debug)]
struct Member {
    id: MemberId,
    topics: BTreeSet<TopicName>,
    heard: MonoTime,
    joined: bool,
    assignment: Vec<Tp>,
    wake: Wake,
}

/// How long a group waits for its members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub session: Duration,
    pub rebalance: Duration,
}

/// The coordinator's side of one group.
#[derive(Debug, Default)]
pub(super) struct Group {
    generation: i32,
    members: BTreeMap<SlotName, Member>,
    /// Since when a rebalance waits for members.
    preparing: Option<MonoTime>,
    committed: Positions,
    pending: BTreeMap<SlotName, Positions>,
}

impl Group {
    /// A member comes, or a static one comes back: then it takes over its place and assignment without a rebalance.
    pub fn join(&mut self, slot: &SlotName, id: MemberId, topics: BTreeSet<TopicName>, wake: Wake, now: MonoTime) {
        if let Some(member) = self.members.get_mut(slot)
            && member.topics == topics
        {
            member.id = id;
            member.heard = now;
            member.wake = wake;
            member.joined = true;
            return;
        }
        let member = Member { id, topics, heard: now, joined: true, assignment: Vec::new(), wake };
        self.members.insert(slot.clone(), member);
        self.prepare(now);
        if let Some(m) = self.members.get_mut(slot) {
            m.joined = true;
        }
    }

    /// Starts a rebalance, unless one is on.
    pub fn prepare(&mut self, now: MonoTime) {
        if self.preparing.is_none() {
            self.preparing = Some(now);
            for m in self.members.values_mut() {
                m.joined = false;
            }
        }
        self.wake();
    }

    /// A heartbeat.
    pub fn hear(&mut self, slot: &SlotName, id: MemberId, now: MonoTime) -> Standing {
        match self.members.get_mut(slot) {
            None => Standing::Unknown,
            Some(m) if m.id != id => Standing::Replaced,
            Some(m) => {
                m.heard = now;
                match self.preparing {
                    Some(_) if m.joined => Standing::Waiting,
                    Some(_) => Standing::Rejoin,
                    None => Standing::Stable(self.generation),
                }
            }
        }
    }

    /// A member has given everything back and joins the next generation.
    pub fn rejoin(&mut self, slot: &SlotName, id: MemberId) {
        if let Some(m) = self.members.get_mut(slot).filter(|m| m.id == id) {
            m.joined = true;
        }
    }

    /// Ends the rebalance once all members have joined.
    pub fn complete(&mut self, partitions: &dyn Fn(&TopicName) -> u32) {
        if self.preparing.is_some() && self.members.values().all(|m| m.joined) {
            self.preparing = None;
            self.generation += 1;
            self.assign(partitions);
            self.wake();
        }
    }

    /// Range per topic over members sorted by instance id.
    fn assign(&mut self, partitions: &dyn Fn(&TopicName) -> u32) {
        let topics: BTreeSet<TopicName> = self.members.values().flat_map(|m| m.topics.iter().cloned()).collect();
        for m in self.members.values_mut() {
            m.assignment.clear();
        }
        for topic in topics {
            let count = partitions(&topic);
            let takers: Vec<&mut Member> = self.members.values_mut().filter(|m| m.topics.contains(&topic)).collect();
            let (each, extra) = (count / takers.len() as u32, count % takers.len() as u32);
            let mut next = 0;
            for (i, m) in takers.into_iter().enumerate() {
                let take = each + u32::from((i as u32) < extra);
                m.assignment.extend((next..next + take).map(|p| Tp::new(topic.clone(), p as i32)));
                next += take;
            }
        }
    }

    /// Expels members that were not heard within the session, or did not join a rebalance in time.
    pub fn expire(&mut self, now: MonoTime, waits: Waits) {
        let late = self.preparing.is_some_and(|since| now.since(since) > waits.rebalance);
        let gone: Vec<SlotName> = self
            .members
            .iter()
            .filter(|(_, m)| now.since(m.heard) > waits.session || (late && !m.joined))
            .map(|(slot, _)| slot.clone())
            .collect();
        for slot in gone {
            self.expel(&slot, now);
        }
    }

    /// Removes a member; the others rebalance.
    pub fn expel(&mut self, slot: &SlotName, now: MonoTime) {
        if let Some(m) = self.members.remove(slot) {
            m.wake.wake();
            self.prepare(now);
        }
    }

    /// What a member was given.
    pub fn assignment(&self, slot: &SlotName) -> Vec<Tp> {
        self.members.get(slot).map(|m| m.assignment.clone()).unwrap_or_default()
    }

    /// Members as the coordinator lists them.
    pub fn slots(&self) -> impl Iterator<Item = &SlotName> {
        self.members.keys()
    }

    /// Whether any member subscribes to the topic.
    pub fn reads(&self, topic: &TopicName) -> bool {
        self.members.values().any(|m| m.topics.contains(topic))
    }

    /// Wakes the members that read the topic.
    pub fn wake_readers(&self, topic: &TopicName) {
        self.members.values().filter(|m| m.topics.contains(topic)).for_each(|m| m.wake.wake());
    }

    fn wake(&self) {
        self.members.values().for_each(|m| m.wake.wake());
    }

    /// What the broker checks of an offset commit: member, instance and generation, but not who owns the partitions.
    pub fn check(&self, slot: &SlotName, id: MemberId, generation: i32) -> Result<(), Stale> {
        match self.members.get(slot) {
            None => Err(Stale::UnknownMemberId),
            Some(m) if m.id != id => Err(Stale::FencedInstanceId),
            Some(_) if generation != self.generation => Err(Stale::IllegalGeneration),
            Some(_) => Ok(()),
        }
    }

    /// Offsets of an open transaction: pending until it ends.
    pub fn hold(&mut self, tx: &SlotName, next: &[(Tp, NextOffset)], mark: &SlotMark) {
        let held = self.pending.entry(tx.clone()).or_default();
        held.extend(next.iter().map(|(tp, at)| (tp.clone(), (*at, mark.clone()))));
    }

    /// The transaction ended: its offsets count, or never were.
    pub fn resolve(&mut self, tx: &SlotName, commit: bool) {
        if let Some(held) = self.pending.remove(tx)
            && commit
        {
            self.committed.extend(held);
        }
    }

    /// The committed position of a partition; `Err` = blocked by this transaction.
    pub fn position(&self, tp: &Tp, isolation: Isolation) -> Result<Option<(NextOffset, SlotMark)>, SlotName> {
        let blocks = self.pending.iter().find(|(_, held)| held.contains_key(tp));
        match blocks {
            Some((tx, _)) if isolation == Isolation::Committed => Err(tx.clone()),
            _ => Ok(self.committed.get(tp).cloned()),
        }
    }

    /// Sets positions from outside.
    pub fn put(&mut self, to: &[(Tp, NextOffset)]) {
        self.committed.extend(to.iter().map(|(tp, at)| (tp.clone(), (*at, SlotMark::default()))));
    }

    /// Drops all positions in a topic.
    pub fn forget(&mut self, topic: &TopicName) {
        self.committed.retain(|tp, _| tp.topic != *topic);
    }

    /// All committed positions.
    pub fn positions(&self) -> BTreeMap<Tp, NextOffset> {
        self.committed.iter().map(|(tp, (at, _))| (tp.clone(), *at)).collect()
    }
}
