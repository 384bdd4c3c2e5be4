//! Deletes outbox records that the ledger has taken over: behind the ledger's commit, never by time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::effects::Shared;
use crate::ids::{ApplicationId, Partition, Tp};
use crate::intents::topics;
use crate::kafka::Cluster;
use crate::offset::NextOffset;

/// How often.
const EVERY: Duration = Duration::from_secs(30);

/// The purge of one process; stops when dropped.
pub struct Purge {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Purge {
    /// Starts it on a thread of its own.
    pub fn start<C: Cluster>(cluster: C, app: ApplicationId, shared: Arc<Shared>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let run = move || {
            let mut done = BTreeMap::new();
            while !told.load(Ordering::Acquire) {
                std::thread::park_timeout(EVERY);
                once(&cluster, &app, &shared, &mut done);
            }
        };
        let thread = std::thread::Builder::new().name("outbox-purge".into()).spawn(run);
        if let Err(e) = &thread {
            tracing::warn!(error = %e, "the outbox is not purged: its thread did not start");
        }
        Self { stop, thread: thread.ok() }
    }
}

impl Drop for Purge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn once<C: Cluster>(cluster: &C, app: &ApplicationId, shared: &Shared, done: &mut BTreeMap<Partition, NextOffset>) {
    let outbox = topics::outbox(app);
    let due: Vec<(Tp, NextOffset)> = shared
        .purgeable()
        .into_iter()
        .filter(|(p, to)| done.get(p).is_none_or(|d| d < to))
        .map(|(partition, to)| (Tp { topic: outbox.clone(), partition }, to))
        .collect();
    if due.is_empty() {
        return;
    }
    match cluster.admin().and_then(|a| a.delete_records(&due)) {
        Ok(()) => done.extend(due.into_iter().map(|(tp, to)| (tp.partition, to))),
        Err(fault) => tracing::debug!(%fault, "purging the outbox; tried again later"),
    }
}
