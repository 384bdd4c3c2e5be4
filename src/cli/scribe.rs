//! What is ordered on the command line stands on the audit topic, as what is ordered at the console does: first the record, then the
//! order, then what came of it. What can't be written down is not done. Names are as they were given: nobody signs in here.

use crate::console::audit::{Came, Entry, Trail};
use crate::error::{Error, Result};
use crate::ids::ApplicationId;
use crate::kafka::Cluster;
use crate::time::{Clock, SystemClock, WallTime};

/// Who orders, and where it is written down.
pub(super) struct Scribe<C: Cluster> {
    trail: Trail<C>,
    by: String,
    reason: String,
}

fn now() -> WallTime {
    SystemClock.now().wall
}

fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl<C: Cluster> Scribe<C> {
    /// Of what `by` orders about `app`.
    pub fn new(cluster: &C, app: &ApplicationId, by: &str, reason: &str) -> Self {
        Self { trail: Trail::new(cluster.clone(), app.clone()), by: by.to_owned(), reason: reason.trim().to_owned() }
    }

    /// A record of what is about to be ordered.
    pub fn entry(&self, action: &str) -> Entry {
        let entry = Entry::typed(now(), &self.by, &machine(), action, Came::Ordered);
        Entry { reason: self.reason.clone(), ..entry }
    }

    /// Before it is done.
    ///
    /// # Errors
    /// What keeps the record from being written: then it must not be done.
    pub fn begin(&self, entry: &Entry) -> Result<()> {
        self.trail.write(entry)
    }

    /// It was refused before anything was written: that is on the topic, too.
    pub fn refused<T>(&self, mut entry: Entry, e: Error) -> Result<T> {
        entry.refuse(&e);
        self.note(&entry);
        Err(e)
    }

    /// What came of it.
    pub fn came(&self, mut entry: Entry, came: Came, code: Option<String>, detail: &str) {
        (entry.came, entry.code, entry.detail) = (came, code, crate::outbox::cut(detail));
        entry.at = now().to_string();
        self.note(&entry);
    }

    /// It is over already: that it can't be written down must not undo it.
    fn note(&self, entry: &Entry) {
        if let Err(e) = self.trail.write(entry) {
            tracing::error!(error = %e, action = entry.action, came = ?entry.came, "an audit record is not written");
        }
    }
}
