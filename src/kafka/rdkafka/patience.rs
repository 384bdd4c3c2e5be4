//! Calls into the client that may never come back. They are made on a thread of their own, so that their owner can go on without them:
//! `send_offsets_to_transaction` was seen to wait without end, past its own time limit, while a broker came back.

use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that makes one call at a time. A call that is given up keeps the thread, and whatever the call holds, for as long as it
/// takes; the next call gets a new thread.
#[derive(Default)]
pub(super) struct Patience {
    jobs: Option<Sender<Job>>,
}

impl Patience {
    /// Makes the call and gives its result; `None` when it has not come back after `limit`, or no thread could be started.
    pub fn call<T: Send + 'static>(&mut self, limit: Duration, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (tell, told): (SyncSender<T>, _) = sync_channel(1);
        let job: Job = Box::new(move || {
            // What the call holds is dropped before its owner hears: the owner may be about to drop the rest.
            let done = call();
            // A failure means that the owner has given up.
            let _ = tell.send(done);
        });
        self.jobs()?.send(job).ok()?;
        let done = told.recv_timeout(limit).ok();
        if done.is_none() {
            self.jobs = None;
        }
        done
    }

    fn jobs(&mut self) -> Option<&Sender<Job>> {
        if self.jobs.is_none() {
            let (jobs, todo) = channel::<Job>();
            let work = move || todo.iter().for_each(|job| job());
            match std::thread::Builder::new().name("client-call".into()).spawn(work) {
                Ok(_) => self.jobs = Some(jobs),
                Err(e) => tracing::warn!(error = %e, "a thread for calls of the client did not start"),
            }
        }
        self.jobs.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, one call that never comes back would take its thread of the application with it.
    #[test]
    fn a_call_that_never_comes_back_is_given_up_and_the_next_one_is_made() {
        let mut patience = Patience::default();
        let (_held, never) = channel::<()>();
        assert_eq!(patience.call(Duration::from_millis(20), move || never.recv().is_ok()), None);
        assert_eq!(patience.call(Duration::from_secs(60), || 7), Some(7));
    }

    /// If this broke, the client's last handle could be dropped on the wrong thread, after its queue.
    #[test]
    fn what_a_call_holds_is_gone_when_its_result_is_there() {
        let held = std::sync::Arc::new(());
        let theirs = held.clone();
        Patience::default().call(Duration::from_secs(60), move || std::sync::Arc::strong_count(&theirs)).expect("comes back");
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}
