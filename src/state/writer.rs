//! The writer: applies sealed overlays in order, each with its changelog positions in one atomic batch. One thread per process,
//! because an engine under pressure sleeps in its caller; inline for the driver and the simulator.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crate::error::Error;

use super::changes::Changes;
use super::disk::Disk;
use super::table::{Mark, Table};
use super::{StoreResult, failed};

/// What one commit brings to one store.
pub(super) struct Part {
    pub(super) table: Table,
    pub(super) changes: Arc<Changes>,
    pub(super) mark: Option<Mark>,
}

impl Part {
    fn is_nothing(&self) -> bool {
        self.mark.is_none() && self.changes.is_empty()
    }
}

/// What one commit brings to all stores of a task; read by the task until it is applied.
pub(super) struct Sealed {
    pub(super) parts: Vec<Part>,
    applied: AtomicBool,
}

impl Sealed {
    pub(super) fn new(parts: Vec<Part>) -> Arc<Self> {
        Arc::new(Self { parts, applied: AtomicBool::new(false) })
    }
    /// Whether it writes nothing.
    pub(super) fn is_nothing(&self) -> bool {
        self.parts.iter().all(Part::is_nothing)
    }
    /// Whether the engines show it.
    pub(super) fn is_applied(&self) -> bool {
        self.applied.load(Ordering::Acquire)
    }
}

pub(super) enum Job {
    Apply(Arc<Sealed>),
    Wipe(Table),
    /// Answers when everything before it is done, and goes on when the answer is taken.
    Flush(SyncSender<()>),
}

/// Hands work to the writer; shared by all tasks of the process.
#[derive(Clone)]
pub(super) struct Writer(Arc<Inner>);

struct Inner {
    applier: Arc<Applier>,
    queue: Mutex<Option<(Sender<Job>, JoinHandle<()>)>>,
    inline: bool,
}

impl Writer {
    /// Applies in the caller.
    pub(super) fn inline(disk: Option<Disk>) -> Self {
        Self(Arc::new(Inner {
            applier: Arc::new(Applier { disk, broken: OnceLock::new() }),
            queue: Mutex::new(None),
            inline: true,
        }))
    }
    /// Applies on a thread of its own.
    pub(super) fn thread(disk: Option<Disk>) -> StoreResult<Self> {
        let applier = Arc::new(Applier { disk, broken: OnceLock::new() });
        let (send, receive) = channel();
        let theirs = applier.clone();
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || theirs.run(&receive))
            .map_err(|e| failed("starting the store writer").because(e))?;
        Ok(Self(Arc::new(Inner { applier, queue: Mutex::new(Some((send, thread))), inline: false })))
    }

    /// Queues a commit's writes. The caller bounds how many of its own may wait.
    pub(super) fn apply(&self, sealed: Arc<Sealed>) -> StoreResult<()> {
        self.submit(Job::Apply(sealed))
    }
    /// Drops everything of a table, and returns when it is gone.
    pub(super) fn wipe(&self, table: Table) -> StoreResult<()> {
        self.submit(Job::Wipe(table))?;
        self.flush()
    }
    /// Waits until everything queued before is applied.
    pub(super) fn flush(&self) -> StoreResult<()> {
        if !self.0.inline {
            let (send, receive) = sync_channel(0);
            self.submit(Job::Flush(send))?;
            receive.recv().map_err(|_| self.broken())?;
        }
        self.check()
    }
    /// An error once a batch has failed: nothing is written any more until the directory is opened anew.
    pub(super) fn check(&self) -> StoreResult<()> {
        if self.0.applier.broken.get().is_some() { Err(self.broken()) } else { Ok(()) }
    }
    /// Finishes what is queued, ends the thread, brings all to the disk.
    pub(super) fn close(&self) -> StoreResult<()> {
        self.0.end();
        self.check()?;
        self.0.applier.disk.as_ref().map_or(Ok(()), Disk::sync)
    }

    pub(super) fn submit(&self, job: Job) -> StoreResult<()> {
        self.check()?;
        if self.0.inline {
            self.0.applier.take(job);
            return self.check();
        }
        let queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = queue.as_ref().is_some_and(|(send, _)| send.send(job).is_ok());
        if sent { Ok(()) } else { Err(self.broken()) }
    }
    fn broken(&self) -> Error {
        let why = self.0.applier.broken.get().map_or("the store writer has ended", String::as_str);
        failed("writing state").because(why).next("restart: the directory is opened anew and caught up from the changelog")
    }
}

impl Inner {
    /// Lets the thread finish what is queued. A panic there has poisoned nothing but itself: later jobs are refused.
    fn end(&self) {
        if let Some((send, thread)) = self.queue.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(send);
            if thread.join().is_err() {
                let _ = self.applier.broken.set("the store writer panicked".into());
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

/// What runs a job, on whichever thread.
struct Applier {
    disk: Option<Disk>,
    broken: OnceLock<String>,
}

impl Applier {
    fn run(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            self.take(job);
        }
    }

    /// Runs one job; after a failure it does nothing but answer, so that no later batch overtakes a lost one.
    fn take(&self, job: Job) {
        if let Job::Flush(done) = job {
            // Whoever asked may have gone.
            let _ = done.send(());
            return;
        }
        if self.broken.get().is_some() {
            return;
        }
        let result = match &job {
            Job::Apply(sealed) => self.apply(&sealed.parts).inspect(|()| sealed.applied.store(true, Ordering::Release)),
            Job::Wipe(Table::Disk(t)) => t.wipe(),
            Job::Wipe(Table::Small(t)) => t.wipe(),
            Job::Wipe(Table::Memory(t)) => {
                t.wipe();
                Ok(())
            }
            Job::Flush(_) => Ok(()),
        };
        if let Err(e) = result {
            tracing::error!(error = %e, "state can't be written; tasks stop at their next commit");
            let _ = self.broken.set(e.to_string());
        }
    }

    fn apply(&self, parts: &[Part]) -> StoreResult<()> {
        let mut batch = self.disk.as_ref().map(Disk::batch);
        for part in parts.iter().filter(|p| !p.is_nothing()) {
            match (&part.table, &mut batch) {
                (Table::Disk(t), Some(batch)) => t.add_to(batch, &part.changes, part.mark),
                (Table::Disk(_), None) => return Err(failed("writing state").because("a table on disk without a database")),
                (Table::Small(t), _) => t.apply(&part.changes, part.mark)?,
                (Table::Memory(t), _) => t.apply(&part.changes, part.mark),
            }
        }
        match batch {
            Some(batch) => batch.commit().map_err(|e| failed("writing a batch of state").because(e)),
            None => Ok(()),
        }
    }
}
