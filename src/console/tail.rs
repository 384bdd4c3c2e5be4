//! What the background tail of an application's two changelogs keeps: the [`Index`], and who waits for the answer to a command.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::admin::views::{CommandAnswer, Half, News, Seen};
use crate::ids::{ApplicationId, CommandId, OperationKey, Tp};
use crate::intents::topics;
use crate::kafka::Cluster;

use super::flow::Flow;
use super::follow::{self, Follow};
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
    /// Whether it rests, since nobody looks.
    pub rests: bool,
}

/// What the tail keeps; shared with whoever asks.
#[derive(Default)]
pub struct Kept {
    index: RwLock<Index>,
    flow: Mutex<Flow>,
    progress: Mutex<Progress>,
    /// Told when all is read.
    whole: Condvar,
    waiting: Mutex<HashMap<CommandId, Waiting>>,
    answered: Condvar,
    /// Who reads; woken by whoever looks.
    reads: OnceLock<Thread>,
    /// When somebody looked last.
    looked: Mutex<Option<Instant>>,
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

/// Who looks at a tail that has rested waits at most so long for what came since; what is not read by then is shown as being read.
const CATCH_UP: Duration = Duration::from_secs(2);
/// A tail that failed begins anew after this.
const AGAIN: Duration = Duration::from_secs(1);

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// The index as it stands. Who looks wakes the tail: the next look sees what is there now. Where it rested, this look does, as far
    /// as that takes no longer than a person waits.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.look();
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// How far the tail is.
    pub fn progress(&self) -> Progress {
        self.look();
        held(&self.progress).clone()
    }
    /// How far the tail is, without looking.
    #[cfg(test)]
    pub(super) fn unseen(&self) -> Progress {
        held(&self.progress).clone()
    }
    fn look(&self) {
        if self.wake() {
            let rests = |p: &mut Progress| !p.whole && p.problem.is_none();
            drop(self.whole.wait_timeout_while(held(&self.progress), CATCH_UP, rests));
        }
    }
    /// Answers whether it rested.
    fn wake(&self) -> bool {
        let looked = held(&self.looked).replace(Instant::now());
        if let Some(thread) = self.reads.get() {
            thread.unpark();
        }
        let mut progress = held(&self.progress);
        let rested = std::mem::take(&mut progress.rests) || (looked.is_none() && !progress.whole);
        drop(progress);
        rested
    }
    /// How long nobody has looked, where anybody ever did.
    pub(super) fn idle(&self) -> Option<Duration> {
        held(&self.looked).map(|at| at.elapsed())
    }
    /// Whose thread is woken by whoever looks.
    pub(super) fn read_by(&self, thread: Thread) {
        let _ = self.reads.set(thread);
    }
    /// Changes how far it is.
    pub(super) fn reached(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = held(&self.progress);
        change(&mut progress);
        if progress.whole || progress.problem.is_some() {
            self.whole.notify_all();
        }
    }
    /// Forgets all operations: they are read anew.
    pub(super) fn clear(&self) {
        *self.index.write().unwrap_or_else(PoisonError::into_inner) = Index::default();
    }
    /// Whether somebody waits for an answer.
    pub(super) fn is_awaited(&self) -> bool {
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

    pub(super) fn fold(&self, news: Vec<(News, Place)>, whole: bool) {
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
    pub fn start<C: Cluster>(cluster: C, app: ApplicationId, how: Follow) -> Self {
        let kept = Arc::<Kept>::default();
        let stop = Arc::<AtomicBool>::default();
        let (to, ended) = (kept.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("console".into()).spawn(move || {
            to.read_by(std::thread::current());
            while !ended.load(Ordering::Acquire) {
                if let Err(e) = follow::follow(&cluster, &app, &to, &ended, how) {
                    let mut before = None;
                    to.reached(|p| before = p.problem.replace(e.to_string()));
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
