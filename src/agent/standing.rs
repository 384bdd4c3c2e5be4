//! What stands open in one partition: operations by stage and age, and the cost that they hold. Kept up with each commit; at an
//! assignment the records that are there are counted in small portions, since there may be many that have long ended.

use std::collections::{BTreeMap, HashMap};

use crate::outbox::OperationRecord;
use crate::task::{TaskError, TxCx};
use crate::time::WallTime;

use super::metrics::{Line, Metrics, STAGES, parts};
use super::shelf;

/// Records that are counted in one turn.
const PORTION: usize = 500;

/// What one record adds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    line: Line,
    /// Where it stands and since when it is known, while it has not ended.
    open: Option<(usize, WallTime)>,
    cost: [i64; 3],
}

/// What a line comes to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Sum {
    stages: [i64; 6],
    ages: BTreeMap<WallTime, i64>,
    cost: [i64; 3],
}

impl Sum {
    fn add(&mut self, piece: &Piece, times: i64) {
        if let Some((stage, since)) = piece.open {
            self.stages[stage] += times;
            *self.ages.entry(since).or_default() += times;
        }
        self.cost.iter_mut().zip(piece.cost).for_each(|(sum, n)| *sum += times * n);
    }
}

/// How far the records that were there at the assignment are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Counted {
    /// Up to this key, itself included.
    To(Vec<u8>),
    All,
}

/// What stands open in one partition; nothing where nobody measures.
pub(super) struct Standing {
    metrics: Option<Metrics>,
    counted: Counted,
    /// As of the last commit.
    was: Counted,
    /// Of the open transaction.
    changes: HashMap<Line, Sum>,
    /// What this partition has added in all, to be taken off when it goes.
    added: HashMap<Line, Sum>,
}

impl Standing {
    pub fn new(metrics: Option<Metrics>) -> Self {
        let counted = Counted::All;
        Self { metrics, was: counted.clone(), counted, changes: HashMap::new(), added: HashMap::new() }
    }

    /// The store is as it was left: what lies there is to be counted.
    pub fn restored(&mut self) {
        self.closed();
        if self.metrics.is_some() {
            (self.counted, self.was) = (Counted::To(Vec::new()), Counted::To(Vec::new()));
        }
    }

    /// Whether there is something left to count.
    pub fn wants_turn(&self) -> bool {
        self.counted != Counted::All
    }

    /// Counts some more of what was there.
    pub fn turn(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Counted::To(from) = &self.counted else { return Ok(()) };
        // The keys after this one: it itself and a zero byte is the least of them.
        let after: Vec<u8> = if from.is_empty() { shelf::RECORDS.to_vec() } else { [from.as_slice(), &[0]].concat() };
        let portion = shelf::records_from(cx, &after, PORTION)?;
        self.counted = match portion.last() {
            Some((key, _)) if portion.len() == PORTION => Counted::To(key.clone()),
            _ => Counted::All,
        };
        portion.iter().for_each(|(_, record)| self.add(record, 1));
        Ok(())
    }

    /// A record changes. One that is not counted yet will be as it is by then.
    pub fn note(&mut self, key: &[u8], before: Option<&OperationRecord>, after: Option<&OperationRecord>) {
        if self.metrics.is_none() || matches!(&self.counted, Counted::To(to) if key > to.as_slice()) {
            return;
        }
        before.into_iter().for_each(|r| self.add(r, -1));
        after.into_iter().for_each(|r| self.add(r, 1));
    }

    fn add(&mut self, record: &OperationRecord, times: i64) {
        let Some(metrics) = &self.metrics else { return };
        let (charged, used) = (parts(record.charged), parts(record.used));
        let held = |i: usize| if record.settled { 0 } else { (charged[i] - used[i]).max(0) };
        let stage = STAGES.iter().position(|(stage, _)| *stage == record.stage);
        let cost = [held(0), held(1), held(2)];
        if stage.is_none() && cost == [0; 3] {
            return;
        }
        let line = metrics.line(&record.step, &record.request.tenant);
        let piece = Piece { line, open: stage.map(|s| (s, record.admitted_at)), cost };
        self.changes.entry(piece.line.clone()).or_default().add(&piece, times);
    }

    /// The transaction is committed.
    pub fn committed(&mut self) {
        self.was = self.counted.clone();
        let Some(metrics) = &self.metrics else { return };
        for (line, mut sum) in self.changes.drain() {
            sum.ages.retain(|_, n| *n != 0);
            metrics.stand(&line, sum.stages, &sum.ages, sum.cost);
            let added = self.added.entry(line).or_default();
            added.stages.iter_mut().zip(sum.stages).for_each(|(a, n)| *a += n);
            added.cost.iter_mut().zip(sum.cost).for_each(|(a, n)| *a += n);
            for (at, n) in sum.ages {
                let count = added.ages.entry(at).or_default();
                *count += n;
                if *count == 0 {
                    added.ages.remove(&at);
                }
            }
        }
    }

    /// The transaction is taken back.
    pub fn aborted(&mut self) {
        self.counted = self.was.clone();
        self.changes.clear();
    }

    /// The partition goes elsewhere: its operations are counted there.
    pub fn closed(&mut self) {
        self.changes.clear();
        let Some(metrics) = &self.metrics else { return };
        for (line, sum) in self.added.drain() {
            let ages = sum.ages.into_iter().map(|(at, n)| (at, -n)).collect();
            metrics.stand(&line, sum.stages.map(|n| -n), &ages, sum.cost.map(|n| -n));
        }
    }
}
