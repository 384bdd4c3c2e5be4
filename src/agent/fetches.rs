//! Inputs on their way: started after the commit that notes them, folded in a later transaction, folded again after an abort.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::intents::Input;
use crate::kafka::Wake;
use crate::time::WallTime;

use super::fetch::{FetchEnd, InputFetcher};

/// How long a fetch that failed for now waits.
const RETRY: Duration = Duration::from_secs(5);

type Ended = Arc<Mutex<VecDeque<(Vec<u8>, FetchEnd)>>>;

/// The fetches of one task.
pub(super) struct Fetches {
    fetcher: Option<Arc<dyn InputFetcher>>,
    wake: Wake,
    /// Noted in the open transaction.
    wanted: Vec<Vec<u8>>,
    /// All that is noted and not folded by a committed transaction.
    open: BTreeMap<Vec<u8>, (Input, usize)>,
    /// To be tried again.
    later: BTreeMap<Vec<u8>, WallTime>,
    ended: Ended,
    /// Folded since the last commit.
    folded: Vec<(Vec<u8>, FetchEnd)>,
}

impl Fetches {
    pub(super) fn new(fetcher: Option<Arc<dyn InputFetcher>>, wake: Wake) -> Self {
        Self {
            fetcher,
            wake,
            wanted: Vec::new(),
            open: BTreeMap::new(),
            later: BTreeMap::new(),
            ended: Ended::default(),
            folded: Vec::new(),
        }
    }

    /// Notes a fetch, to be started after the commit.
    pub(super) fn want(&mut self, key: Vec<u8>, input: Input, max: usize) {
        self.open.insert(key.clone(), (input, max));
        self.wanted.push(key);
    }

    /// A fetch that the store has noted: started where it is not on its way already.
    pub(super) fn restored(&mut self, key: Vec<u8>, input: Input, max: usize) {
        if self.open.insert(key.clone(), (input, max)).is_none() {
            self.start(&key);
        }
    }

    /// What has ended by now; what failed for now is tried again by itself.
    pub(super) fn ended(&mut self, now: WallTime) -> Vec<(Vec<u8>, FetchEnd)> {
        let ended: Vec<_> = self.ended.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        for (key, end) in &ended {
            if *end == FetchEnd::Later {
                self.later.insert(key.clone(), now.plus(RETRY));
            }
        }
        let due: Vec<Vec<u8>> = self.later.iter().filter(|(_, at)| **at <= now).map(|(k, _)| k.clone()).collect();
        for key in due {
            self.later.remove(&key);
            self.start(&key);
        }
        let ended: Vec<_> = ended.into_iter().filter(|(_, end)| *end != FetchEnd::Later).collect();
        self.folded.extend(ended.iter().cloned());
        ended
    }

    pub(super) fn any_ended(&self, now: WallTime) -> bool {
        !self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_empty() || self.later.values().any(|at| *at <= now)
    }

    pub(super) fn next_due(&self) -> Option<WallTime> {
        self.later.values().min().copied()
    }

    pub(super) fn committed(&mut self) {
        for (key, _) in self.folded.drain(..) {
            self.open.remove(&key);
        }
        for key in std::mem::take(&mut self.wanted) {
            self.start(&key);
        }
    }

    /// What was noted comes again with its request, what was folded is folded again.
    pub(super) fn aborted(&mut self) {
        for key in self.wanted.drain(..) {
            self.open.remove(&key);
        }
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        for folded in self.folded.drain(..).rev() {
            ended.push_front(folded);
        }
    }

    fn start(&self, key: &[u8]) {
        let (Some(fetcher), Some((input, max))) = (&self.fetcher, self.open.get(key)) else { return };
        let (ended, wake, key) = (Arc::clone(&self.ended), self.wake.clone(), key.to_vec());
        let done = move |end| {
            ended.lock().unwrap_or_else(PoisonError::into_inner).push_back((key, end));
            wake.wake();
        };
        fetcher.fetch(input, *max, Box::new(done));
    }
}
