//! A task whose next record needs something that is away: it stands still, alone, and tries the same record again, ever less often.
//! The thread's other tasks go on.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::ids::Tp;
use crate::kafka::{Cluster, Reading, Source};
use crate::offset::Offset;
use crate::time::{MonoTime, Now};

use super::Step;
use super::running::Running;
use super::thread::StreamThread;

/// Between the first tries, and between any two at most.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);
/// Between two words about something that lasts.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Why a task stands still, and until when.
#[derive(Debug)]
pub(super) struct Held {
    /// The record that could not be processed; none where a timer failed.
    record: Option<(Tp, Offset)>,
    tries: u32,
    said: MonoTime,
    /// The next try.
    pub until: MonoTime,
    /// Whether its partitions are paused; not while it is tried again.
    pub still: bool,
    /// For people.
    pub error: Arc<Error>,
}

impl Held {
    /// A try that failed; `before` is the one before it.
    pub fn again(before: Option<Held>, record: Option<(Tp, Offset)>, error: Arc<Error>, now: MonoTime) -> Held {
        let (tries, said) = before.map_or((0, None), |b| (b.tries + 1, Some(b.said)));
        let pause = (FIRST * 2u32.pow(tries.min(16))).min(LONGEST);
        let told = said.filter(|s| now.since(*s) < SAID_EVERY);
        if told.is_none() {
            let place = record.as_ref().map(|(tp, offset)| format!("{tp}@{offset}"));
            tracing::warn!(record = place, tries = tries + 1, %error, "held: tried again until it succeeds; other partitions go on");
        }
        Held { record, tries, said: told.unwrap_or(now), until: now.plus(pause), still: false, error }
    }

    /// Whether this is the record.
    pub fn is_at(&self, tp: &Tp, offset: Offset) -> bool {
        self.record.as_ref().is_some_and(|(at, o)| at == tp && *o == offset)
    }

    /// Whether a commit up to these positions is past the record.
    pub fn is_over(&self, running: &Running) -> bool {
        let past = |(tp, offset): &(Tp, Offset)| running.parts.iter().any(|p| p.tp == *tp && p.committed.0 > offset.0);
        self.record.as_ref().is_none_or(past)
    }
}

impl<C: Cluster> StreamThread<C> {
    /// Takes the transaction back and lets the task that failed stand still.
    pub(super) fn hold(&mut self, error: &Error, now: Now) -> crate::error::Result<()> {
        self.metrics.holds(error.code);
        self.metrics.aborted("held");
        let mut paused = Ok(());
        for task in self.tasks.all_mut() {
            let Some(held) = task.held.as_mut().filter(|h| !h.still && h.until > now.mono) else { continue };
            held.still = true;
            let shared: Vec<Tp> = task.parts.iter().filter(|p| p.reading == Reading::Shared).map(|p| p.tp.clone()).collect();
            if !shared.is_empty() {
                paused = paused.and(self.source.pause(&shared));
            }
        }
        if let Err(fault) = paused {
            // Its records are dropped as they come, and read again from where it goes on.
            tracing::debug!(slot = %self.slot, %fault, "held partitions could not be paused");
        }
        self.abort_and_rewind(now)
    }

    /// Lets tasks whose pause is over try again. What the others did is committed first: the next try may be taken back.
    pub(super) fn try_held_again(&mut self, now: Now) -> Step<()> {
        let due = |t: &Running| t.stands_until().is_some_and(|until| until <= now.mono);
        if !self.tasks.all().any(|t| due(t) || t.wants_commit_first()) {
            return Ok(());
        }
        self.commit_at_once(now)?;
        for task in self.tasks.all_mut().filter(|t| due(t)) {
            let back: Vec<_> = task.parts.iter().filter(|p| p.reading == Reading::Shared).map(|p| (p.tp.clone(), p.next)).collect();
            if !back.is_empty() {
                self.source.resume(&back)?;
            }
            if let Some(held) = &mut task.held {
                held.still = false;
            }
        }
        Ok(())
    }

    /// What this thread, or a task of it, waits for, in one line.
    pub(super) fn waits_for(&self) -> Option<String> {
        if self.recovery.is_some() || !self.joins.is_empty() {
            return self.stuck.clone();
        }
        let told = self.tasks.all().filter_map(|t| {
            let held = t.held.as_ref()?;
            let cause = held.error.source.as_ref().map(|c| format!(": {c}")).unwrap_or_default();
            Some(format!("task {} waits: error[{}] {}{cause}", t.id, held.error.code, held.error.doing))
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}
