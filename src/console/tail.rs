//! The background tail of an application's two changelogs: keeps the [`Index`] and tells who waits that a command was answered. It reads
//! once a second, and at once where somebody looks or waits: what a busy member writes within a second is mostly replaced within it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::admin::views::{CommandAnswer, Half, News, Seen, changelogs};
use crate::error::Result;
use crate::ids::{ApplicationId, CommandId, OperationKey, TopicName, Tp};
use crate::intents::topics;
use crate::kafka::{Cluster, Isolation, Reader};
use crate::record::InRecord;

use super::flow::Flow;
use super::index::{Index, Place};

/// How far the tail is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Records read.
    pub read: u64,
    /// Whether everything that was there when it began is read: only then are lists whole.
    pub whole: bool,
    /// Records that could not be read.
    pub unreadable: u64,
    /// Partitions of the operations.
    pub partitions: u32,
    /// Why it does not go on, where it does not.
    pub problem: Option<String>,
}

/// What the tail keeps; shared with whoever asks.
#[derive(Default)]
pub struct Kept {
    index: RwLock<Index>,
    flow: Mutex<Flow>,
    progress: Mutex<Progress>,
    waiting: Mutex<HashMap<CommandId, Waiting>>,
    answered: Condvar,
    /// Who reads; woken by whoever looks.
    reads: OnceLock<Thread>,
}

/// Who waits for the answer to a command.
#[derive(Default)]
struct Waiting {
    who: usize,
    answer: Option<CommandAnswer>,
}

/// A running tail; ends when dropped.
pub struct Tail {
    /// What it keeps.
    pub kept: Arc<Kept>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Records that are read at once. Of those with one key only the last is looked at: the more come together, the less there is to do.
const BATCH: usize = 4_000;
/// Records that are applied under one lock.
const APPLIED: usize = 500;
/// While nobody looks and nobody waits, it reads so often.
const EVERY: Duration = Duration::from_secs(1);
/// A tail that failed begins anew after this.
const AGAIN: Duration = Duration::from_secs(1);

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// The index as it stands. Who looks wakes the tail: the next look sees what is there now.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.wake();
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// How far the tail is.
    pub fn progress(&self) -> Progress {
        held(&self.progress).clone()
    }
    fn wake(&self) {
        if let Some(thread) = self.reads.get() {
            thread.unpark();
        }
    }
    /// Whether somebody waits for an answer.
    fn is_awaited(&self) -> bool {
        held(&self.waiting).values().any(|w| w.answer.is_none())
    }
    /// Says that somebody will wait for the answer to this command; to be called before it is written.
    pub fn expect(&self, command: &CommandId) {
        held(&self.waiting).entry(command.clone()).or_default().who += 1;
        self.wake();
    }
    /// The answer to a command that was expected, waiting at most for `limit`.
    pub fn answer(&self, command: &CommandId, limit: Duration) -> Option<CommandAnswer> {
        let waiting = held(&self.waiting);
        let open = |w: &mut HashMap<CommandId, Waiting>| w.get(command).is_some_and(|w| w.answer.is_none());
        let (mut waiting, _) = self.answered.wait_timeout_while(waiting, limit, open).unwrap_or_else(PoisonError::into_inner);
        let mine = waiting.get_mut(command)?;
        let answer = mine.answer.clone();
        mine.who -= 1;
        if mine.who == 0 {
            waiting.remove(command);
        }
        answer
    }

    /// How many operations came to each status within the last minute.
    pub fn flow(&self) -> MutexGuard<'_, Flow> {
        held(&self.flow)
    }

    fn fold(&self, news: Vec<(News, Place)>, whole: bool) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        for (news, place) in news {
            match news {
                News::Stands(half, seen) => {
                    self.tell(&seen);
                    let Some(key) = seen.key() else { continue };
                    let came = index.put(&key, half, &seen, place);
                    // What is read at the start happened long ago.
                    if whole && !came.is_empty() {
                        let mut flow = held(&self.flow);
                        came.into_iter().for_each(|status| flow.came(status, now));
                    }
                }
                News::Gone(half, key) => index.forget(&key, half),
                News::Body(key) => index.put_body(&key, Some(place.offset)),
                News::BodyGone(key) => index.put_body(&key, None),
                News::Paused(scope, switch) => index.put_switch(scope, place.partition, switch),
                News::Purse(tenant, purse) => index.put_purse(&tenant, place.partition, purse),
            }
        }
    }

    fn tell(&self, seen: &Seen) {
        let mut waiting = held(&self.waiting);
        let mut told = false;
        for (command, waiting) in waiting.iter_mut().filter(|(_, w)| w.answer.is_none()) {
            waiting.answer = seen.answer(command);
            told |= waiting.answer.is_some();
        }
        if told {
            self.answered.notify_all();
        }
    }
}

impl Tail {
    /// Starts reading; what is away is waited for, with the reason in the progress.
    pub fn start<C: Cluster>(cluster: C, app: ApplicationId) -> Self {
        let kept = Arc::<Kept>::default();
        let stop = Arc::<AtomicBool>::default();
        let (to, ended) = (kept.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("console".into()).spawn(move || {
            while !ended.load(Ordering::Acquire) {
                if let Err(e) = follow(&cluster, &app, &to, &ended) {
                    let before = held(&to.progress).problem.replace(e.to_string());
                    // Said once: at its first start an application has no operations until its members have made the topics.
                    if before.as_deref() != Some(e.to_string().as_str()) {
                        tracing::warn!(error = %e, "operations are not read; it is tried again");
                    }
                    std::thread::park_timeout(AGAIN);
                }
            }
        });
        if let Err(e) = &thread {
            tracing::error!(error = %e, "the console has no thread to read operations");
        }
        Self { kept, stop, thread: thread.ok() }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Reads from the start until it fails or is stopped. What was kept before is kept until its operations are read again.
fn follow<C: Cluster>(cluster: &C, app: &ApplicationId, kept: &Kept, stop: &AtomicBool) -> Result<()> {
    let (mut reader, tps) = changelogs(cluster, app)?;
    let unread = |e| crate::error::Error::new(crate::error::codes::BROKER_UNREACHABLE, crate::error::Fault::Unreachable, e);
    let mut ends = Vec::new();
    for tp in &tps {
        let (_, end) = reader.ends(tp, Isolation::Committed).map_err(|f| unread("reading operations").because(f))?;
        ends.push((tp.clone(), end));
    }
    *kept.index.write().unwrap_or_else(PoisonError::into_inner) = Index::default();
    let ledger = topics::ledger_changelog(app);
    let partitions = tps.iter().filter(|tp| tp.topic != ledger).count() as u32;
    *held(&kept.progress) = Progress { partitions, ..Progress::default() };
    let mut whole = false;
    let _ = kept.reads.set(std::thread::current());
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        let records = batch(reader.as_mut()).map_err(|f| unread("reading operations").because(f))?;
        if records.is_empty() && begun.elapsed() < Duration::from_millis(5) {
            // A reader that never waits would spin.
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let (read, mut unreadable) = (records.len() as u64, 0);
        let mut news = Vec::with_capacity(APPLIED);
        for record in last_of_each(&records) {
            match news_of(record, &ledger) {
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
        whole |= ends.iter().all(|(tp, end)| end.0 == 0 || reader.position(tp).is_some_and(|at| at >= *end));
        let mut progress = held(&kept.progress);
        progress.read += read;
        progress.unreadable += unreadable;
        progress.whole = whole;
        drop(progress);
        if whole && records.len() < BATCH && !kept.is_awaited() {
            std::thread::park_timeout(EVERY);
        }
    }
    Ok(())
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

fn batch(reader: &mut dyn Reader) -> crate::kafka::KResult<Vec<InRecord>> {
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

/// The changelog partition of a half.
pub fn changelog(app: &ApplicationId, half: Half, place: Place) -> Tp {
    let topic = match half {
        Half::Ledger => topics::ledger_changelog(app),
        Half::Record => topics::changelog(app, "operations"),
    };
    Tp::new(topic, place.partition)
}

/// Whether `seen` is of `key`: a place may hold something else after a topic was made anew.
pub fn is_of(seen: &Seen, key: &OperationKey) -> bool {
    seen.key().is_some_and(|k| k == *key)
}
