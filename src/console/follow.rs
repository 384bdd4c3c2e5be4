//! Reads the two changelogs of an application for its console. It reads once a second, and at once where somebody looks or waits: what a
//! busy member writes within a second is mostly replaced within it. In a member that works it reads only while somebody looks.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::admin::views::{Half, News, changelogs};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, TopicName, Tp};
use crate::intents::topics;
use crate::kafka::{Cluster, Isolation, KResult, KafkaFault, Reader};
use crate::offset::NextOffset;
use crate::record::InRecord;

use super::index::Place;
use super::tail::{Kept, Progress};

/// When it reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Follow {
    /// All the time: whoever looks finds everything. For a process that has nothing else to do.
    #[default]
    Always,
    /// From the first look on, until nobody has looked for so long: a member pays nothing for a console that nobody looks at.
    WhileLookedAt(Duration),
}

/// How long a member's console goes on reading after the last look.
pub const RESTS_AFTER: Duration = Duration::from_secs(600);

/// Records that are read at once. Of those with one key only the last is looked at: the more come together, the less there is to do.
const BATCH: usize = 4_000;
/// Records that are applied under one lock.
const APPLIED: usize = 500;
/// While nobody looks and nobody waits, it reads so often.
const EVERY: Duration = Duration::from_secs(1);
/// After a longer rest everything is read anew: tombstones may be gone by then, well before the `delete.retention.ms` of a day.
const LONG: Duration = Duration::from_secs(12 * 3_600);

/// Where it stood when it went to rest.
struct Mark {
    at: Instant,
    positions: Vec<(Tp, NextOffset)>,
}

impl Mark {
    /// Whether reading can go on there: in the same partitions, of which none was cut or made anew.
    fn is_within(&self, ends: &[(Tp, NextOffset, NextOffset)]) -> bool {
        let lies = |(tp, first, end): &(Tp, NextOffset, NextOffset)| {
            self.positions.iter().any(|(of, at)| of == tp && (first..=end).contains(&at))
        };
        ends.iter().all(lies)
    }
}

/// Reads until it fails or is stopped, with rests.
pub fn follow<C: Cluster>(cluster: &C, app: &ApplicationId, kept: &Kept, stop: &AtomicBool, how: Follow) -> Result<()> {
    let mut mark = None;
    while !stop.load(Ordering::Acquire) {
        while rests(how, kept) && !stop.load(Ordering::Acquire) {
            std::thread::park();
        }
        mark = read(cluster, app, kept, stop, how, mark.filter(|m: &Mark| m.at.elapsed() < LONG))?;
    }
    Ok(())
}

fn rests(how: Follow, kept: &Kept) -> bool {
    match how {
        Follow::Always => false,
        Follow::WhileLookedAt(after) => !kept.is_awaited() && kept.idle().is_none_or(|idle| idle >= after),
    }
}

fn unread(fault: KafkaFault) -> Error {
    Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, "reading operations").because(fault)
}

/// Reads on from a mark, or from the start, until it may rest or is stopped. What was kept before is kept until its operations are read
/// again.
fn read<C: Cluster>(
    cluster: &C,
    app: &ApplicationId,
    kept: &Kept,
    stop: &AtomicBool,
    how: Follow,
    mark: Option<Mark>,
) -> Result<Option<Mark>> {
    let (mut reader, tps) = changelogs(cluster, app)?;
    let ends = ends(reader.as_mut(), &tps)?;
    let ledger = topics::ledger_changelog(app);
    let partitions = tps.iter().filter(|tp| tp.topic != ledger).count() as u32;
    match mark.filter(|m| m.is_within(&ends)) {
        Some(mark) => {
            reader.assign(&mark.positions).map_err(unread)?;
            kept.reached(|p| *p = Progress { whole: false, rests: false, problem: None, ..p.clone() });
        }
        None => {
            kept.clear();
            kept.reached(|p| *p = Progress { partitions, ..Progress::default() });
        }
    }
    let mut whole = false;
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        let records = batch(reader.as_mut()).map_err(unread)?;
        if records.is_empty() && begun.elapsed() < Duration::from_millis(5) {
            // A reader that never waits would spin.
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let unreadable = apply(&records, &ledger, kept, whole);
        whole |= ends.iter().all(|(tp, _, end)| end.0 == 0 || reader.position(tp).is_some_and(|at| at >= *end));
        kept.reached(|p| {
            p.read += records.len() as u64;
            p.unreadable += unreadable;
            p.whole = whole;
        });
        let drained = whole && records.len() < BATCH && !kept.is_awaited();
        if drained && rests(how, kept) {
            let at = |tp: &Tp, first| (tp.clone(), reader.position(tp).unwrap_or(first));
            let positions = ends.iter().map(|(tp, first, _)| at(tp, *first)).collect();
            kept.reached(|p| (p.rests, p.whole) = (true, false));
            return Ok(Some(Mark { at: Instant::now(), positions }));
        }
        if drained {
            std::thread::park_timeout(EVERY);
        }
    }
    Ok(None)
}

/// First position and end of each partition, as they are now.
fn ends(reader: &mut dyn Reader, tps: &[Tp]) -> Result<Vec<(Tp, NextOffset, NextOffset)>> {
    let of = |tp: &Tp| {
        let (first, end) = reader.ends(tp, Isolation::Committed).map_err(unread)?;
        Ok((tp.clone(), first, end))
    };
    tps.iter().map(of).collect()
}

/// Applies what records say; answers how many can't be read.
fn apply(records: &[InRecord], ledger: &TopicName, kept: &Kept, whole: bool) -> u64 {
    let mut unreadable = 0;
    let mut news = Vec::with_capacity(APPLIED);
    for record in last_of_each(records) {
        match news_of(record, ledger) {
            Ok(Some(n)) => news.push((n, Place { partition: record.tp.partition.0, offset: record.offset.0 })),
            Ok(None) => {}
            Err(e) => {
                unreadable += 1;
                tracing::warn!(error = %e, record = %record.tp, offset = record.offset.0, "an operation can't be read");
            }
        }
        if news.len() == APPLIED {
            kept.fold(std::mem::take(&mut news), whole);
        }
    }
    kept.fold(news, whole);
    unreadable
}

fn news_of(record: &InRecord, ledger: &TopicName) -> Result<Option<News>> {
    let half = if record.tp.topic == *ledger { Half::Ledger } else { Half::Record };
    News::read(record, half)
}

/// The last record of each key: what it has replaced is nowhere to be seen any more.
fn last_of_each(records: &[InRecord]) -> impl Iterator<Item = &InRecord> {
    let mut seen = HashSet::new();
    let mut last: Vec<&InRecord> = records.iter().rev().filter(|r| seen.insert((&r.tp, &r.key))).collect();
    last.reverse();
    last.into_iter()
}

fn batch(reader: &mut dyn Reader) -> KResult<Vec<InRecord>> {
    let mut records = Vec::new();
    let mut limit = Duration::from_millis(100);
    while records.len() < BATCH
        && let Some(record) = reader.poll(limit)?
    {
        records.push(record);
        limit = Duration::ZERO;
    }
    Ok(records)
}
