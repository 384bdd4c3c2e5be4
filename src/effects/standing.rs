//! How many operations stand where at each target, and since when the oldest of them is unknown.

use std::collections::{BTreeMap, BTreeSet};

use crate::intents::Status;
use crate::time::WallTime;

/// All targets of one partition.
#[derive(Debug, Default)]
pub struct Standing(Vec<(String, AtTarget)>);

/// One target. Statuses that nobody has any more count as 0.
#[derive(Debug, Default)]
pub struct AtTarget {
    counts: BTreeMap<Status, i64>,
    /// Unknown operations by since when and their place in the outbox.
    unknown: BTreeSet<(WallTime, i64)>,
}

impl Standing {
    /// One operation more, or less, stands there.
    pub fn count(&mut self, target: &str, status: Status, more: i64) {
        *self.at(target).counts.entry(status).or_default() += more;
    }
    /// The outcome of this one is unknown.
    pub fn unknown(&mut self, target: &str, since: WallTime, sequence: i64) {
        self.at(target).unknown.insert((since, sequence));
    }
    /// It is unknown no more.
    pub fn known(&mut self, target: &str, since: WallTime, sequence: i64) {
        self.at(target).unknown.remove(&(since, sequence));
    }
    /// Each target that has had an operation.
    pub fn targets(&self) -> impl Iterator<Item = (&str, &AtTarget)> {
        self.0.iter().map(|(target, at)| (target.as_str(), at))
    }
    // Targets are few, and their names are copied once.
    fn at(&mut self, target: &str) -> &mut AtTarget {
        let found = self.0.iter().position(|(name, _)| name == target).unwrap_or_else(|| {
            self.0.push((target.to_owned(), AtTarget::default()));
            self.0.len() - 1
        });
        &mut self.0[found].1
    }
}

impl AtTarget {
    /// How many operations stand where.
    pub fn counts(&self) -> impl Iterator<Item = (Status, i64)> {
        self.counts.iter().map(|(status, count)| (*status, *count))
    }
    /// Since when the oldest unknown operation is unknown.
    pub fn oldest_unknown(&self) -> Option<WallTime> {
        self.unknown.first().map(|(since, _)| *since)
    }
}
