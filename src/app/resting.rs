//! How many dead letters rest, and since when: an application's own topic of them is read along, once in a while, by each process. Only
//! places and times are held.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::ids::{Partition, TopicName, Tp};
use crate::intents::{dead, headers};
use crate::kafka::{Class, Cluster, Isolation, KResult, Reader};
use crate::offset::NextOffset;
use crate::record::InRecord;
use crate::runtime::Metrics;
use crate::time::WallTime;

/// How often.
const EVERY: Duration = Duration::from_secs(15);
/// How long one round may read.
const ROUND: Duration = Duration::from_secs(10);
/// Most letters that are held; of more than this only so many are counted.
const MOST: usize = 1_000_000;

/// The watch of one process; stops when dropped.
pub struct Resting {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Resting {
    /// Starts it on a thread of its own.
    pub fn start<C: Cluster>(cluster: C, topic: TopicName, metrics: Metrics) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let run = move || {
            let (mut letters, mut reader) = (Letters::default(), None);
            while !told.load(Ordering::Acquire) {
                match round(&cluster, &topic, &mut reader, &mut letters, &told) {
                    Ok(()) => metrics.resting(&topic, letters.at.len(), letters.oldest()),
                    Err(fault) => {
                        // Begun anew: where reading stood is not known any more.
                        (letters, reader) = (Letters::default(), None);
                        tracing::debug!(%fault, "counting dead letters; tried again later");
                    }
                }
                std::thread::park_timeout(EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("dead-letters".into()).spawn(run);
        if let Err(e) = &thread {
            tracing::warn!(error = %e, "dead letters are not counted: the thread did not start");
        }
        Self { stop, thread: thread.ok() }
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Reads what came since the last round.
fn round<C: Cluster>(
    cluster: &C,
    topic: &TopicName,
    reader: &mut Option<(Box<dyn Reader>, Vec<Tp>)>,
    letters: &mut Letters,
    stop: &AtomicBool,
) -> KResult<()> {
    if reader.is_none() {
        let Some(info) = cluster.admin()?.topic(topic)? else { return Ok(()) };
        let mut made = cluster.reader(Isolation::Committed)?;
        let tps: Vec<Tp> = (0..info.partitions).map(|p| Tp::new(topic.clone(), p as i32)).collect();
        let start: Vec<(Tp, NextOffset)> =
            tps.iter().map(|tp| Ok((tp.clone(), made.ends(tp, Isolation::Committed)?.0))).collect::<KResult<_>>()?;
        made.assign(&start)?;
        *reader = Some((made, tps));
    }
    let Some((reader, tps)) = reader else { return Ok(()) };
    let mut ends = Vec::new();
    for tp in tps.iter() {
        let (first, end) = reader.ends(tp, Isolation::Committed)?;
        letters.expired(tp.partition, first);
        if end > first {
            ends.push((tp.clone(), end));
        }
    }
    let until = Instant::now() + ROUND;
    let behind = |reader: &dyn Reader| ends.iter().any(|(tp, end)| reader.position(tp).is_none_or(|at| at < *end));
    while behind(reader.as_ref()) && Instant::now() < until && !stop.load(Ordering::Acquire) {
        match reader.poll(Duration::from_millis(100)) {
            Ok(Some(record)) => letters.take(&record),
            Ok(None) => {}
            Err(fault) if fault.class == Class::Retry => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// The letters that rest, by where they lie, with their time of death.
#[derive(Debug, Default)]
struct Letters {
    at: BTreeMap<(Partition, i64), WallTime>,
}

impl Letters {
    /// A letter, or the mark that one was replayed, which lies in the letter's own partition behind it.
    fn take(&mut self, record: &InRecord) {
        let place = record.tp.partition;
        if let Some(of) = record.headers.text(headers::REPLAYED) {
            if let Ok(offset) = of.parse() {
                self.at.remove(&(place, offset));
            }
            return;
        }
        if record.headers.get(headers::DEAD_CODE).is_some() && self.at.len() < MOST {
            let died = dead::moment(&record.headers, headers::DEAD_AT).or(record.timestamp).unwrap_or_default();
            self.at.insert((place, record.offset.0), died);
        }
    }

    /// The topic's retention took what lies before this.
    fn expired(&mut self, partition: Partition, first: NextOffset) {
        let gone: Vec<_> = self.at.range((partition, 0)..(partition, first.0)).map(|(place, _)| *place).collect();
        for place in gone {
            self.at.remove(&place);
        }
    }

    fn oldest(&self) -> Option<WallTime> {
        self.at.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offset::Offset;
    use crate::record::Headers;

    fn record(offset: i64, headers: Headers) -> InRecord {
        let tp = Tp::new("orders.dead", 1);
        InRecord { tp, offset: Offset(offset), timestamp: Some(WallTime(7_000)), key: None, value: None, headers }
    }

    /// If this broke, letters that were replayed or that retention took would page somebody for ever.
    #[test]
    fn what_was_replayed_or_expired_does_not_rest() {
        let mut letters = Letters::default();
        let dead = |at: &'static str| Headers::new().with(headers::DEAD_CODE, "RB0501").with(headers::DEAD_AT, at);
        letters.take(&record(3, dead("5000")));
        letters.take(&record(4, dead("6000")));
        letters.take(&record(5, Headers::new().with(headers::DEAD_CODE, "RB0501")));
        letters.take(&record(6, Headers::new()));
        assert_eq!((letters.at.len(), letters.oldest()), (3, Some(WallTime(5_000))));
        letters.take(&record(7, Headers::new().with(headers::REPLAYED, "3")));
        assert_eq!((letters.at.len(), letters.oldest()), (2, Some(WallTime(6_000))));
        letters.expired(Partition(1), NextOffset(5));
        assert_eq!((letters.at.len(), letters.oldest()), (1, Some(WallTime(7_000))));
        letters.expired(Partition(0), NextOffset(99));
        assert_eq!(letters.at.len(), 1, "another partition's");
    }
}
