//! One question to the registry: whoever asks first starts it, all who ask wait for a moment only, and the answer is taken note of
//! whenever it comes. So a registry that is slow or away holds up nobody for longer than that moment.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Patience;
use super::client::Failure;

/// How long a good answer that came too late for whoever asked is kept for who asks again.
const KEPT: Duration = Duration::from_secs(30);

/// What an answer is.
pub(super) type Answer<T> = Result<T, Failure>;

/// Takes the answer, once, on whichever thread it comes.
pub(super) type Answered<T> = Box<dyn FnOnce(Answer<T>) + Send>;

/// A question and its latest answer.
pub(super) struct Question<T> {
    last: Mutex<Last<T>>,
    changed: Condvar,
}

enum Last<T> {
    Nothing,
    /// Since when it is being asked.
    Asking(Instant),
    Known(Answer<T>, Instant),
}

impl<T> Default for Question<T> {
    fn default() -> Self {
        Self { last: Mutex::new(Last::Nothing), changed: Condvar::new() }
    }
}

impl<T: Clone + Send + 'static> Question<T> {
    /// The answer: a remembered failure as long as its class allows, else what `start` brings within [`Patience::wait`] of its
    /// start. What comes later is there for the next one who asks.
    pub(super) fn ask(self: &Arc<Self>, patience: Patience, start: impl FnOnce(Answered<T>)) -> Answer<T> {
        let since = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match &*last {
                Last::Known(Err(failure), at) if at.elapsed() < patience.remembers(failure) => return Err(failure.clone()),
                Last::Known(Ok(answer), at) if at.elapsed() < KEPT => return Ok(answer.clone()),
                Last::Asking(since) => *since,
                Last::Known(..) | Last::Nothing => {
                    let now = Instant::now();
                    *last = Last::Asking(now);
                    drop(last);
                    let this = Arc::clone(self);
                    start(Box::new(move |answer| this.answered(answer)));
                    now
                }
            }
        };
        self.await_until(since + patience.wait)
    }

    fn answered(&self, answer: Answer<T>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Last::Known(answer, Instant::now());
        self.changed.notify_all();
    }

    fn await_until(&self, until: Instant) -> Answer<T> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Last::Known(answer, _) = &*last {
                return answer.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::Passing("no answer yet".into()));
            }
            last = self.changed.wait_timeout(last, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Patience {
    /// How long this failure stands for an answer.
    fn remembers(&self, failure: &Failure) -> Duration {
        match failure {
            Failure::Missing | Failure::Unfit(_) => self.missing,
            Failure::Refused(_) | Failure::Passing(_) => self.failed,
        }
    }
}
