//! One partition as a broker keeps it: records and control markers by offset, open and aborted transactions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::ids::Tp;
use crate::kafka::Isolation;
use crate::offset::{NextOffset, Offset};
use crate::record::{Headers, InRecord};
use crate::time::WallTime;

/// A transaction's number within the cluster; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct TxSeq(pub u64);

/// A record's content, without its place.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub timestamp: WallTime,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Headers,
}

#[derive(Clone, Debug)]
enum What {
    Data(Body),
    /// Ends a transaction in this partition; `true` = committed. Takes an offset and is never shown.
    Marker(bool),
}

#[derive(Clone, Debug)]
struct Entry {
    what: What,
    by: Option<TxSeq>,
}

/// What reading at a position gives.
pub(super) enum Read {
    /// A record; its place is in it.
    Record(Box<InRecord>),
    /// Nothing visible up to here.
    UpTo(NextOffset),
    /// The position is before the start or beyond the end.
    OutOfRange,
}

/// The log of one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    start: i64,
    end: i64,
    entries: BTreeMap<i64, Entry>,
    /// Unfinished transactions with their first offset here.
    open: BTreeMap<TxSeq, i64>,
    aborted: BTreeSet<TxSeq>,
}

impl Log {
    /// The position of the first record of this time or later.
    pub fn at(&self, time: WallTime) -> Option<NextOffset> {
        let late = |e: &Entry| matches!(&e.what, What::Data(body) if body.timestamp >= time);
        self.entries.range(self.start..).find(|(_, e)| late(e)).map(|(offset, _)| NextOffset(*offset))
    }

    /// Appends a record; `by` is its transaction.
    pub fn append(&mut self, body: Body, by: Option<TxSeq>) -> Offset {
        if let Some(tx) = by {
            self.open.entry(tx).or_insert(self.end);
        }
        self.push(Entry { what: What::Data(body), by })
    }

    /// Ends a transaction here by a marker.
    pub fn mark(&mut self, tx: TxSeq, commit: bool) {
        self.open.remove(&tx);
        if !commit {
            self.aborted.insert(tx);
        }
        self.push(Entry { what: What::Marker(commit), by: Some(tx) });
    }

    fn push(&mut self, entry: Entry) -> Offset {
        let at = self.end;
        self.entries.insert(at, entry);
        self.end += 1;
        Offset(at)
    }

    /// The oldest position.
    pub fn start(&self) -> NextOffset {
        NextOffset(self.start)
    }

    /// The high watermark.
    pub fn end(&self) -> NextOffset {
        NextOffset(self.end)
    }

    /// The last stable offset: nothing at or after it is shown to readers of committed records.
    pub fn stable(&self) -> NextOffset {
        NextOffset(self.open.values().min().copied().unwrap_or(self.end))
    }

    /// The end as a reader of this isolation sees it.
    pub fn end_for(&self, isolation: Isolation) -> NextOffset {
        match isolation {
            Isolation::Committed => self.stable(),
            Isolation::Uncommitted => self.end(),
        }
    }

    /// The first visible record at or after `from`.
    pub fn read(&self, tp: &Tp, from: NextOffset, isolation: Isolation) -> Read {
        if from.0 < self.start || from.0 > self.end {
            return Read::OutOfRange;
        }
        let end = self.end_for(isolation);
        if from >= end {
            return Read::UpTo(from);
        }
        let visible = self.entries.range(from.0..end.0).find_map(|(at, entry)| match &entry.what {
            What::Data(body) if self.shows(entry, isolation) => Some(record(tp, *at, body)),
            _ => None,
        });
        visible.map_or(Read::UpTo(end), |r| Read::Record(Box::new(r)))
    }

    fn shows(&self, entry: &Entry, isolation: Isolation) -> bool {
        isolation == Isolation::Uncommitted || entry.by.is_none_or(|tx| !self.aborted.contains(&tx))
    }

    /// Drops everything from `end` on.
    pub fn cut_after(&mut self, end: NextOffset) {
        self.entries.split_off(&end.0);
        self.end = self.end.min(end.0);
    }

    /// Deletes what lies before `to`; `false` where that is beyond the end.
    pub fn delete_before(&mut self, to: NextOffset) -> bool {
        if to.0 > self.end {
            return false;
        }
        self.start = self.start.max(to.0);
        self.entries = self.entries.split_off(&self.start);
        true
    }

    /// Keeps the last committed record of each key below the last stable offset; offsets stay, so gaps appear.
    pub fn compact(&mut self) {
        let stable = self.stable().0;
        let mut last: BTreeMap<Bytes, i64> = BTreeMap::new();
        for (at, entry) in self.entries.range(..stable) {
            if let What::Data(Body { key: Some(key), .. }) = &entry.what
                && self.shows(entry, Isolation::Committed)
            {
                last.insert(key.clone(), *at);
            }
        }
        self.entries.retain(|at, entry| {
            *at >= stable || matches!(&entry.what, What::Data(b) if b.key.as_ref().is_some_and(|k| last.get(k) == Some(at)))
        });
    }

    /// One line an entry, for failing tests.
    pub fn dump(&self) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().map(|(at, e)| {
            let fate = match e.by {
                None => String::new(),
                Some(tx) if self.open.contains_key(&tx) => format!(" open tx {}", tx.0),
                Some(tx) if self.aborted.contains(&tx) => format!(" aborted tx {}", tx.0),
                Some(tx) => format!(" tx {}", tx.0),
            };
            match &e.what {
                What::Marker(commit) => format!("{at} {}{fate}", if *commit { "COMMIT" } else { "ABORT" }),
                What::Data(b) => format!("{at} {} = {}{fate}", show(b.key.as_ref()), show(b.value.as_ref())),
            }
        })
    }
}

fn record(tp: &Tp, at: i64, body: &Body) -> InRecord {
    InRecord {
        tp: tp.clone(),
        offset: Offset(at),
        timestamp: (body.timestamp.0 >= 0).then_some(body.timestamp),
        key: body.key.clone(),
        value: body.value.clone(),
        headers: body.headers.clone(),
    }
}

fn show(bytes: Option<&Bytes>) -> String {
    bytes.map_or_else(|| "null".to_owned(), |b| String::from_utf8_lossy(&b[..b.len().min(60)]).into_owned())
}
