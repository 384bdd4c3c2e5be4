//! From an assignment to running tasks: committed offsets, claim, restore, confirm. In slices, so that the thread's other tasks
//! go on.
//!
//! Order matters. The producer is initialised first; then offsets are read as far as they are stable, retried while an open
//! transaction blocks them; then a *claim*, a transaction that commits the same offsets again with this slot's name as mark, so
//! that whoever finds them blocked knows by whom; only then the changelogs' ends are read and restored to.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Error, Fault, codes};
use crate::ids::{SlotName, TaskId, Tp};
use crate::kafka::{Assigned, Class, Cluster, Committed, Isolation, KafkaFault, Reading, Source};
use crate::offset::NextOffset;
use crate::state::TaskStores;
use crate::task::{StartAt, TaskBuilder, TaskError, TaskSeed};
use crate::time::{MonoTime, Now};

use super::Step;
use super::failpoint;
use super::lost::{Expected, lost};
use super::restore::{Restore, STANDSTILL};
use super::running::{Part, Running};
use super::tasks::tasks_of;
use super::thread::StreamThread;

/// How long blocked offsets are waited for before the blocker is looked for, and between two looks.
const BLOCKED_PATIENCE: Duration = Duration::from_millis(300);
const BLOCKED_PAUSE: Duration = Duration::from_millis(50);

/// Between two words about something that lasts.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// An assignment on its way.
pub(super) struct Join {
    pub assigned: Assigned,
    since: MonoTime,
    not_before: MonoTime,
    asked_who: bool,
    stage: Stage,
}

enum Stage {
    /// Read the committed offsets and claim them.
    Offsets,
    /// Bring the stores up.
    Restore(Box<Opening>),
}

struct Opening {
    tasks: BTreeMap<TaskId, Pending>,
    restore: Restore,
    said: MonoTime,
}

/// A task whose stores are being restored.
struct Pending {
    stores: TaskStores,
    parts: Vec<Part>,
    build: TaskBuilder,
}

impl Join {
    pub(super) fn new(assigned: Assigned, now: MonoTime) -> Self {
        Self { assigned, since: now, not_before: now, asked_who: false, stage: Stage::Offsets }
    }

    /// When it can go on.
    pub(super) fn not_before(&self) -> MonoTime {
        self.not_before
    }

    /// Forgets partitions that are taken away before they were confirmed. Answers whether anything is left.
    pub(super) fn without(&mut self, gone: &[Tp]) -> bool {
        let before = self.assigned.partitions.len();
        self.assigned.partitions.retain(|tp| !gone.contains(tp));
        if self.assigned.partitions.len() != before {
            self.stage = Stage::Offsets;
        }
        before == 0 || !self.assigned.partitions.is_empty()
    }
}

impl<C: Cluster> StreamThread<C> {
    /// Moves the first assignment on by one slice. Answers whether something was done.
    pub(super) fn step_join(&mut self, now: Now) -> Step<bool> {
        let Some(mut join) = self.joins.pop_front() else { return Ok(false) };
        if now.mono < join.not_before {
            self.joins.push_front(join);
            return Ok(false);
        }
        let done = self.advance(&mut join, now);
        if !matches!(done, Ok(true)) {
            self.joins.push_front(join);
        }
        done.map(|_| true)
    }

    fn advance(&mut self, join: &mut Join, now: Now) -> Step<bool> {
        match std::mem::replace(&mut join.stage, Stage::Offsets) {
            Stage::Offsets if join.assigned.partitions.is_empty() => {
                self.source.confirm(&join.assigned, &[])?;
                Ok(true)
            }
            Stage::Offsets => {
                if self.waits_to_be_forgotten(&join.assigned.partitions)? {
                    return Ok(true);
                }
                if let Some(committed) = self.stable_offsets(join, now)? {
                    let starts = self.starts(&join.assigned.partitions, &committed)?;
                    self.claim(&starts, now)?;
                    join.stage = Stage::Restore(Box::new(self.open(&starts, now)?));
                }
                Ok(false)
            }
            Stage::Restore(mut opening) => {
                let mut stores = opening.tasks.iter_mut().map(|(id, p)| (*id, &mut p.stores)).collect();
                let (applied, ready) = opening.restore.step(&mut stores)?;
                self.metrics.restored.inc_by(applied as u64);
                if ready {
                    self.confirm(join, *opening, now)?;
                    return Ok(true);
                }
                if now.mono.since(opening.said) > Duration::from_secs(10) {
                    tracing::info!(slot = %self.slot, left = %opening.restore.left(), "restoring");
                    opening.said = now.mono;
                }
                if applied == 0 {
                    join.not_before = now.mono.plus(STANDSTILL);
                }
                join.stage = Stage::Restore(opening);
                Ok(false)
            }
        }
    }

    /// The committed offsets, as soon as no open transaction blocks them.
    fn stable_offsets(&mut self, join: &mut Join, now: Now) -> Step<Option<Vec<Committed>>> {
        match self.source.committed(&join.assigned.partitions, Isolation::Committed) {
            Ok(committed) => Ok(Some(committed)),
            Err(f) if matches!(f.class, Class::Blocked | Class::Retry) => {
                self.blocked(&f, join.since, now);
                join.not_before = now.mono.plus(BLOCKED_PAUSE);
                if f.class == Class::Blocked && !join.asked_who && now.mono.since(join.since) >= BLOCKED_PATIENCE {
                    join.asked_who = true;
                    self.fence_the_dead(&join.assigned.partitions)?;
                }
                Ok(None)
            }
            Err(f) => Err(f.into()),
        }
    }

    /// Takes note of something that must be waited for, and says so now and then. There is no end to it: the metric and the state
    /// show it, and whoever can end it is not us.
    pub(super) fn blocked(&mut self, fault: &KafkaFault, since: MonoTime, now: Now) {
        if fault.class == Class::Blocked {
            self.metrics.blocked.inc();
        }
        self.stuck = Some(fault.to_string());
        let waited = now.mono.since(since);
        if waited >= SAID_EVERY && now.mono.since(self.said) >= SAID_EVERY {
            self.said = now.mono;
            tracing::warn!(slot = %self.slot, %fault, ?waited, "waiting before work can go on");
        }
    }

    /// Fences the slot that the offsets' marks name, where it is one of this unit's and no longer in the group.
    /// Where the group does not list slots nobody can be called dead: the transaction's own timeout ends it.
    fn fence_the_dead(&mut self, partitions: &[Tp]) -> Step<()> {
        if !self.seed.options.lists_slots {
            return Ok(());
        }
        let Ok(claims) = self.source.committed(partitions, Isolation::Uncommitted) else { return Ok(()) };
        let Ok(live) = self.seed.cluster.admin().and_then(|a| a.members(&self.seed.plan.group)) else { return Ok(()) };
        let ours = format!("{}-", self.seed.plan.unit);
        let mut marks: Vec<String> = claims.into_iter().map(|(_, _, mark)| mark.0).collect();
        marks.sort();
        marks.dedup();
        for mark in marks.into_iter().filter(|m| m.starts_with(&ours) && *m != self.slot.as_str()) {
            if live.iter().any(|m| m.client_id == mark) {
                continue;
            }
            tracing::warn!(slot = %self.slot, dead = %mark, "fencing a dead slot whose transaction blocks our offsets");
            if let Err(fault) = self.seed.cluster.fence(&SlotName::from(mark)) {
                tracing::warn!(slot = %self.slot, %fault, "the dead slot could not be fenced; waiting for its timeout");
            }
        }
        Ok(())
    }

    /// Where each partition starts: where the group stands, else by its source's rule.
    fn starts(&mut self, partitions: &[Tp], committed: &[Committed]) -> Step<Vec<(Tp, NextOffset, Reading)>> {
        let mut starts = Vec::with_capacity(partitions.len());
        for tp in partitions {
            let known = committed.iter().find(|(c, ..)| c == tp).and_then(|(_, at, _)| *at);
            let spec = self.seed.plan.subtopologies.iter().flat_map(|s| &s.sources).find(|s| s.topic == tp.topic);
            let (rule, reading) = spec.map_or((StartAt::Earliest, Reading::Shared), |s| (s.start, s.reading));
            let at = match (known, rule) {
                (Some(at), StartAt::Earliest | StartAt::Latest) => at,
                (known, rule) => {
                    let (earliest, latest) = self.source.ends(tp)?;
                    match (known, rule) {
                        (Some(at), _) if earliest <= at && at <= latest => at,
                        (None, StartAt::Earliest) => earliest,
                        (None, StartAt::Latest) => latest,
                        (None, StartAt::Refuse) if earliest.0 == 0 => earliest,
                        _ if self.seed.options.accept_loss.contains(&tp.topic) => earliest,
                        (Some(at), _) => return Err(not_in_log(tp, at, (earliest, latest)).into()),
                        (None, StartAt::Refuse) => return Err(no_position(tp, earliest).into()),
                    }
                }
            };
            starts.push((tp.clone(), at, reading));
        }
        Ok(starts)
    }

    /// Commits the start positions again under this slot's name.
    fn claim(&mut self, starts: &[(Tp, NextOffset, Reading)], now: Now) -> Step<()> {
        self.commit(now)?;
        failpoint!("claim.before");
        let next: Vec<_> = starts.iter().map(|(tp, at, _)| (tp.clone(), *at)).collect();
        self.tx.ensure_open(now.mono)?;
        self.tx.commit(&next, &mut self.source)?;
        failpoint!("claim.after");
        Ok(())
    }

    fn open(&mut self, starts: &[(Tp, NextOffset, Reading)], now: Now) -> Step<Opening> {
        let partitions: Vec<Tp> = starts.iter().map(|(tp, ..)| tp.clone()).collect();
        let mut tasks = BTreeMap::new();
        for (id, (sub, tps)) in tasks_of(&self.seed.plan, &partitions) {
            let part = |tp: Tp| starts.iter().find(|(s, ..)| *s == tp).map(|(_, at, reading)| Part::new(tp, *reading, *at));
            let stores = self.seed.state.task_stores(&self.seed.plan.unit, id, &sub.stores)?;
            tasks.insert(id, Pending { stores, parts: tps.into_iter().filter_map(part).collect(), build: sub.build.clone() });
        }
        let mut stores = tasks.iter_mut().map(|(id, p): (&TaskId, &mut Pending)| (*id, &mut p.stores)).collect();
        let positions: Vec<_> = starts.iter().map(|(tp, at, _)| (tp.clone(), *at)).collect();
        let expected = Expected::of(&self.seed.plan, &self.seed.options.accept_loss, &positions);
        let restore = Restore::begin(&self.seed.cluster, &mut stores, &expected)?;
        Ok(Opening { tasks, restore, said: now.mono })
    }

    /// Everything is there: takes the partitions and lets the tasks run.
    fn confirm(&mut self, join: &Join, opening: Opening, now: Now) -> Step<()> {
        let start: Vec<_> = opening.tasks.values().flat_map(|t| &t.parts).map(|p| (p.tp.clone(), p.committed, p.reading)).collect();
        failpoint!("confirm.before");
        self.source.confirm(&join.assigned, &start)?;
        failpoint!("confirm.after");
        for (id, Pending { stores, parts, build }) in opening.tasks {
            let seed = TaskSeed {
                id,
                wake: self.seed.wake.clone(),
                clock: self.seed.clock.clone(),
                assignment: super::next_assignment(),
                dropped: self.seed.metrics.count_dropped(&self.seed.plan.unit),
            };
            let task = build(seed).map_err(TaskError::Failed)?;
            let mut running = Running { id, task, stores, parts, touched: false, held: None };
            running.restored(now)?;
            self.tasks.add(running);
        }
        self.metrics.tasks.set(self.tasks.len() as i64);
        self.stuck = None;
        tracing::info!(slot = %self.slot, partitions = ?join.assigned.partitions, "tasks run");
        Ok(())
    }
}

fn no_position(tp: &Tp, earliest: NextOffset) -> Error {
    let doing = format!("starting {tp}: the group has no position and its log begins at {earliest}, not at 0");
    Error::new(codes::OFFSET_MISSING, Fault::Configuration, doing).next(format!(
        "intents would be skipped or repeated: read `Lost topics` in the operating page, then set the group's position, or say topics.accept_loss: {}",
        tp.topic
    ))
}

/// A position that the log does not reach, on either side.
pub(super) fn not_in_log(tp: &Tp, at: NextOffset, (earliest, end): (NextOffset, NextOffset)) -> Error {
    let why = match at < earliest {
        true => format!("its log begins at {earliest} now: {} records were deleted unread", earliest.0 - at.0),
        false => format!("its log ends at {end}: it was cut short, or deleted and made anew"),
    };
    lost(&tp.topic, format!("reading {tp} from {at}, where the group stands"), why)
}
