//! The index in memory: open operations by lane, due times, and who waits for a permit. Rebuilt from the store at assignment.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use crate::ids::{OrderingKey, Tenant};
use crate::intents::Status;
use crate::time::WallTime;

use super::ledger::Op;
use super::standing::Standing;

type Lane = (String, OrderingKey);

#[derive(Debug)]
struct Place {
    lane: Lane,
    sequence: i64,
    due: Option<WallTime>,
    status: Option<Status>,
    unknown_since: Option<WallTime>,
}

/// Who waits at one gate, by tenant.
#[derive(Debug, Default)]
struct Line {
    limit: usize,
    turns: VecDeque<Tenant>,
    queues: HashMap<Tenant, VecDeque<Op>>,
}

/// Open operations of one partition.
#[derive(Debug, Default)]
pub struct Index {
    lanes: HashMap<Lane, BTreeMap<(i64, Op), bool>>,
    places: HashMap<Op, Place>,
    due: BTreeSet<(WallTime, Op)>,
    starved: BTreeMap<String, Line>,
    starving: HashSet<Op>,
    standing: Standing,
}

impl Index {
    /// How many operations are open.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether an operation is in here.
    pub fn holds(&self, op: &str) -> bool {
        self.places.contains_key(op)
    }

    /// Enters an operation or moves its due time; `passable` = those behind it may go on. Answers who may go on now.
    pub fn put(&mut self, op: &str, lane: Lane, sequence: i64, passable: bool, due: Option<WallTime>) -> Option<Op> {
        self.set_due(op, due, &lane, sequence);
        let was = self.lanes.entry(lane.clone()).or_default().insert((sequence, op.to_owned()), passable);
        (passable && was != Some(true)).then(|| self.after(&lane, sequence, op)).flatten()
    }

    /// Takes an operation out. Answers who may go on now.
    pub fn remove(&mut self, op: &str) -> Option<Op> {
        let place = self.places.remove(op)?;
        if let Some(due) = place.due {
            self.due.remove(&(due, op.to_owned()));
        }
        if let Some(status) = place.status {
            self.standing.count(&place.lane.0, status, -1);
        }
        if let Some(since) = place.unknown_since {
            self.standing.known(&place.lane.0, since, place.sequence);
        }
        self.starving.remove(op);
        let lane = self.lanes.get_mut(&place.lane)?;
        lane.remove(&(place.sequence, op.to_owned()));
        if lane.is_empty() {
            self.lanes.remove(&place.lane);
            return None;
        }
        self.after(&place.lane, i64::MIN, "")
    }

    /// Notes where an operation stands, to be counted, and since when it is unknown.
    pub fn stands(&mut self, op: &str, status: Status, unknown_since: Option<WallTime>) {
        let Some(place) = self.places.get_mut(op) else { return };
        let unknown_since = unknown_since.filter(|_| status == Status::Unknown);
        let target = &place.lane.0;
        if place.unknown_since != unknown_since {
            if let Some(old) = std::mem::replace(&mut place.unknown_since, unknown_since) {
                self.standing.known(target, old, place.sequence);
            }
            if let Some(since) = unknown_since {
                self.standing.unknown(target, since, place.sequence);
            }
        }
        if let Some(old) = place.status.replace(status) {
            self.standing.count(target, old, -1);
        }
        self.standing.count(target, status, 1);
    }

    /// How many operations stand where, by target.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Whether everything before this operation in its lane lets it pass. An unreadable intent stands in the lane of no
    /// target and holds back every target's lane under its key.
    pub fn free(&self, op: &str) -> bool {
        let Some(place) = self.places.get(op) else { return true };
        let upto = (place.sequence, op.to_owned());
        let pass = |lane: &Lane| self.lanes.get(lane).is_none_or(|l| l.range(..upto.clone()).all(|(_, passable)| *passable));
        pass(&place.lane) && pass(&(String::new(), place.lane.1.clone()))
    }

    /// The place of the last one behind `sequence` of which something may have left, ended or not.
    pub fn begun_behind(&self, lane: &Lane, sequence: i64, op: &str) -> Option<i64> {
        let begun = |op: &Op| self.places.get(op).and_then(|p| p.status).is_some_and(|status| status != Status::Approved);
        let mut behind = self.lanes.get(lane)?.range((sequence, op.to_owned())..);
        behind.rfind(|((_, other), _)| other != op && begun(other)).map(|((sequence, _), _)| *sequence)
    }

    /// The first one behind `sequence` that does not let others pass.
    fn after(&self, lane: &Lane, sequence: i64, op: &str) -> Option<Op> {
        let behind = self.lanes.get(lane)?.range((sequence, op.to_owned())..);
        behind.filter(|((_, o), passable)| o != op && !**passable).map(|((_, o), _)| o.clone()).next()
    }

    fn set_due(&mut self, op: &str, due: Option<WallTime>, lane: &Lane, sequence: i64) {
        let new = || Place { lane: lane.clone(), sequence, due: None, status: None, unknown_since: None };
        let place = self.places.entry(op.to_owned()).or_insert_with(new);
        if place.due == due {
            return;
        }
        if let Some(old) = place.due.take() {
            self.due.remove(&(old, op.to_owned()));
        }
        place.due = due;
        if let Some(due) = due {
            self.due.insert((due, op.to_owned()));
        }
    }

    /// An operation that is due, if there is one.
    pub fn pop_due(&mut self, now: WallTime) -> Option<Op> {
        let (at, op) = self.due.first()?.clone();
        if at > now {
            return None;
        }
        self.due.pop_first();
        if let Some(place) = self.places.get_mut(&op) {
            place.due = None;
        }
        Some(op)
    }

    /// When the next one is due.
    pub fn next_due(&self) -> Option<WallTime> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Every operation is to be looked at again.
    pub fn all_due(&mut self, now: WallTime) {
        for (op, place) in &mut self.places {
            if place.due.is_none_or(|at| at > now) {
                if let Some(old) = place.due.replace(now) {
                    self.due.remove(&(old, op.clone()));
                }
                self.due.insert((now, op.clone()));
            }
        }
    }

    /// Queues an operation for a permit of this gate, behind others of its tenant.
    pub fn starve(&mut self, op: &str, tenant: Tenant, gate: (String, usize)) {
        if self.starving.insert(op.to_owned()) {
            let line = self.starved.entry(gate.0).or_default();
            line.limit = gate.1;
            let of = line.queues.entry(tenant.clone()).or_default();
            if of.is_empty() {
                line.turns.push_back(tenant);
            }
            of.push_back(op.to_owned());
        }
    }

    /// Gates that somebody waits at, with their limits.
    pub fn gates(&self) -> Vec<(String, usize)> {
        self.starved.iter().map(|(gate, line)| (gate.clone(), line.limit)).collect()
    }

    /// Who goes on next at a gate: tenants take turns, each in its own order.
    pub fn feed(&mut self, gate: &str) -> Option<Op> {
        let line = self.starved.get_mut(gate)?;
        while let Some(tenant) = line.turns.pop_front() {
            let Some(of) = line.queues.get_mut(&tenant) else { continue };
            let op = of.pop_front();
            match of.is_empty() {
                true => {
                    line.queues.remove(&tenant);
                }
                false => line.turns.push_back(tenant),
            }
            if let Some(op) = op.filter(|op| self.starving.remove(op)) {
                return Some(op);
            }
        }
        self.starved.remove(gate);
        None
    }

    /// Whether an operation waits for a permit.
    pub fn starves(&self, op: &str) -> bool {
        self.starving.contains(op)
    }

    /// Whether somebody waits for a permit.
    pub fn hungry(&self) -> bool {
        !self.starving.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, nobody would be told which target's operations wait for a person, nor for how long.
    #[test]
    fn the_oldest_unknown_of_each_target_is_known() {
        let mut index = Index::default();
        for (op, target, sequence) in [("a", "shop", 1), ("b", "shop", 2), ("c", "shop", 3), ("d", "mail", 4)] {
            index.put(op, (target.to_owned(), OrderingKey::new("k")), sequence, false, None);
        }
        let at = |index: &Index, target: &str| {
            let found = index.standing().targets().find(|(name, _)| *name == target);
            found.map(|(_, at)| (at.counts().find(|(s, _)| *s == Status::Unknown).map_or(0, |(_, n)| n), at.oldest_unknown()))
        };
        let [at_1, at_2] = [Some(WallTime(1_000)), Some(WallTime(2_000))];
        index.stands("a", Status::Dispatched, None);
        assert_eq!(at(&index, "shop"), Some((0, None)));
        index.stands("b", Status::Unknown, at_2);
        index.stands("c", Status::Unknown, at_1);
        index.stands("d", Status::Dispatched, None);
        assert_eq!(at(&index, "shop"), Some((2, at_1)));
        assert_eq!(at(&index, "mail"), Some((0, None)), "another target's are not its own");
        index.stands("c", Status::Confirmed, at_1);
        assert_eq!(at(&index, "shop"), Some((1, at_2)), "what is decided is not unknown any more");
        index.remove("b");
        assert_eq!(at(&index, "shop"), Some((0, None)));
    }
}
