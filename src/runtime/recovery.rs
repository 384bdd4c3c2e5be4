//! What follows a fault: abort and rewind, or a new producer and back to what the group and the changelogs say.

use std::time::Duration;

use crate::error::{Error, Fault, codes};
use crate::ids::{TaskId, Tp};
use crate::kafka::{Class, Cluster, Isolation, KafkaFault, Source, TxLimits};
use crate::offset::NextOffset;
use crate::task::TaskError;
use crate::time::{MonoTime, Now};

use super::Step;
use super::error_of;
use super::lost::Expected;
use super::restore::{Restore, STANDSTILL};
use super::thread::StreamThread;

/// Faults in a row, without one commit between them, after which the thread gives up: so many, over at least so long. A group that is
/// long in taking a member back, on a broker or a machine that is too busy, refuses every commit until then.
const GIVE_UP: u32 = 30;
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);
/// Fencings in a row, without one commit between them, after which another process must be using the slot's name. One that lives shows in
/// the group as well; a few in a row come of transactions that timed out, or of others that took this slot for dead, on a busy machine.
const FENCED_BY_SOMEBODY: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);

/// A producer is being made anew; the thread reads nothing meanwhile.
pub(super) struct Recovery {
    /// Tasks that the lost transaction held something of.
    rewind: Vec<TaskId>,
    since: MonoTime,
    not_before: MonoTime,
    stage: Stage,
}

enum Stage {
    /// Make and initialise the producer: this fences and resolves what was open.
    Init,
    /// Read where the group stands, once that is stable.
    Offsets,
    /// Bring the stores to it.
    Restore(Restore),
}

impl Recovery {
    /// From the beginning; at start nothing is to be rewound.
    pub(super) fn new(rewind: Vec<TaskId>, now: MonoTime) -> Self {
        Self { rewind, since: now, not_before: now, stage: Stage::Init }
    }

    /// When it can go on.
    pub(super) fn not_before(&self) -> MonoTime {
        self.not_before
    }
}

impl<C: Cluster> StreamThread<C> {
    /// Acts on a fault by its class. An error means that the thread can't go on.
    pub(super) fn recover_from(&mut self, fault: KafkaFault, now: Now) -> crate::error::Result<()> {
        self.faults += 1;
        let since = now.mono.since(*self.faulty.get_or_insert(now.mono));
        let gives_up = self.faults >= GIVE_UP && since >= GIVE_UP_AFTER;
        if fault.class == Class::Gone && self.faults < GIVE_UP {
            return self.look_for_what_is_gone(&fault, now);
        }
        tracing::warn!(slot = %self.slot, %fault, in_a_row = self.faults, "the transaction is taken back");
        if self.tx.open().is_some() {
            self.metrics.aborted(fault.class.label());
        }
        match fault.class {
            Class::SlotTaken | Class::Config | Class::Gone => Err(error_of(fault)),
            Class::Fenced if self.fenced + 1 >= FENCED_BY_SOMEBODY => Err(error_of(fault)),
            _ if gives_up => Err(error_of(fault)),
            Class::Retry | Class::Abort | Class::Blocked if self.recovery.is_none() => self.abort_and_rewind(now),
            class => {
                self.fenced += u32::from(class == Class::Fenced);
                self.rebuild(class, now);
                Ok(())
            }
        }
    }

    /// Takes the open transaction back and goes on from where the group stands; a fault on the way means a new producer.
    pub(super) fn abort_and_rewind(&mut self, now: Now) -> crate::error::Result<()> {
        let aborted = self.tx.abort().and_then(|()| {
            let back: Vec<_> = self.tasks.touched().flat_map(|t| &t.parts).map(|p| (p.tp.clone(), p.committed)).collect();
            if back.is_empty() { Ok(()) } else { self.source.seek(&back) }
        });
        if let Err(fault) = aborted {
            tracing::warn!(slot = %self.slot, %fault, "the abort failed too");
            self.rebuild(fault.class, now);
            return Ok(());
        }
        self.paused_until = now.mono.plus(self.backoff());
        for task in self.tasks.touched() {
            task.drop_open();
            task.task.aborted();
            task.restored(now).map_err(for_people)?;
        }
        Ok(())
    }

    /// Grows with faults in a row: an endless loop of aborts must not burn a core.
    fn backoff(&self) -> Duration {
        Duration::from_millis(1 << self.faults.min(10)).min(Duration::from_secs(1))
    }

    fn rebuild(&mut self, class: Class, now: Now) {
        self.metrics.rebuilt(class.label());
        self.tx.drop_sink();
        let mut rewind: Vec<TaskId> = self.recovery.take().map_or_else(Vec::new, |r| r.rewind);
        rewind.extend(self.tasks.touched().map(|t| t.id));
        let start = Recovery::new(rewind, now.mono);
        self.recovery = Some(Recovery { not_before: now.mono.plus(self.backoff()), ..start });
    }

    /// Moves the recovery on by one slice. Answers whether something was done.
    pub(super) fn step_recovery(&mut self, now: Now) -> Step<bool> {
        self.look_after_the_group(now)?;
        let Some(mut recovery) = self.recovery.take() else { return Ok(false) };
        if now.mono < recovery.not_before {
            self.recovery = Some(recovery);
            return Ok(false);
        }
        match self.recover(&mut recovery, now) {
            Ok(true) => Ok(true),
            Ok(false) => {
                self.recovery = Some(recovery);
                Ok(true)
            }
            Err(TaskError::Kafka(f)) if matches!(f.class, Class::Retry | Class::Blocked) => {
                self.blocked(&f, recovery.since, now);
                recovery.not_before = now.mono.plus(PAUSE);
                self.recovery = Some(recovery);
                Ok(true)
            }
            Err(e) => {
                self.recovery = Some(recovery);
                Err(e)
            }
        }
    }

    /// Rebalances go on while a producer is made: what the group takes must be given back in time.
    pub(super) fn look_after_the_group(&mut self, now: Now) -> Step<()> {
        while let Some(input) = self.source.heed() {
            self.rebalanced(input, now)?;
        }
        Ok(())
    }

    fn recover(&mut self, recovery: &mut Recovery, now: Now) -> Step<bool> {
        if !matches!(recovery.stage, Stage::Init) && self.gone(recovery) {
            return Ok(true);
        }
        match &mut recovery.stage {
            Stage::Init => {
                if !self.tx.has_sink() {
                    let limits =
                        TxLimits { transaction: self.seed.options.transaction_timeout, reports: self.seed.plan.has_changelogs() };
                    self.tx.replace(self.seed.cluster.sink(&self.seed.slot, limits)?);
                }
                self.tx.init()?;
                recovery.stage = Stage::Offsets;
                Ok(self.gone(recovery))
            }
            Stage::Offsets => {
                let tps: Vec<Tp> = self.parts_of(&recovery.rewind);
                let committed = self.source.committed(&tps, Isolation::Committed)?;
                for task in self.tasks.all_mut().filter(|t| recovery.rewind.contains(&t.id)) {
                    for part in &mut task.parts {
                        let at = committed.iter().find(|(tp, ..)| *tp == part.tp).and_then(|(_, at, _)| *at);
                        part.committed = at.unwrap_or(part.committed);
                    }
                    task.drop_open();
                }
                let positions = self.positions_of(&recovery.rewind);
                let expected = Expected::of(&self.seed.plan, &self.seed.options.accept_loss, &positions);
                let restore = Restore::begin(&self.seed.cluster, &mut self.tasks.stores(&recovery.rewind), &expected)?;
                recovery.stage = Stage::Restore(restore);
                Ok(false)
            }
            Stage::Restore(restore) => {
                let (applied, ready) = restore.step(&mut self.tasks.stores(&recovery.rewind))?;
                self.metrics.restored.inc_by(applied as u64);
                if ready {
                    self.rewound(&recovery.rewind, now)?;
                } else if applied == 0 {
                    recovery.not_before = now.mono.plus(STANDSTILL);
                }
                Ok(ready)
            }
        }
    }

    /// Whether nothing is to be rewound: no task, or all of them went to others meanwhile.
    fn gone(&mut self, recovery: &mut Recovery) -> bool {
        recovery.rewind.retain(|id| self.tasks.get(*id).is_some());
        recovery.rewind.is_empty()
    }

    fn positions_of(&self, ids: &[TaskId]) -> Vec<(Tp, NextOffset)> {
        let parts = self.tasks.all().filter(|t| ids.contains(&t.id)).flat_map(|t| &t.parts);
        parts.map(|p| (p.tp.clone(), p.committed)).collect()
    }

    fn parts_of(&self, ids: &[TaskId]) -> Vec<Tp> {
        self.tasks.all().filter(|t| ids.contains(&t.id)).flat_map(|t| &t.parts).map(|p| p.tp.clone()).collect()
    }

    fn rewound(&mut self, ids: &[TaskId], now: Now) -> Step<()> {
        let of = |t: &&mut super::running::Running| ids.contains(&t.id);
        let back: Vec<_> = self.tasks.all_mut().filter(of).flat_map(|t| &t.parts).map(|p| (p.tp.clone(), p.committed)).collect();
        self.source.seek(&back)?;
        for task in self.tasks.all_mut().filter(of) {
            task.task.aborted();
            task.restored(now)?;
        }
        self.stuck = None;
        tracing::info!(slot = %self.slot, tasks = ids.len(), "recovered: going on from committed state");
        Ok(())
    }
}

/// What people see of a task's error.
pub(super) fn for_people(error: TaskError) -> Error {
    match error {
        TaskError::Failed(e) => e,
        TaskError::Held(e) => Error::new(e.code, e.fault, e.doing.clone()).because(e.to_string()),
        TaskError::Kafka(f) if f.class == Class::Abort => {
            Error::new(codes::TRANSACTION_ABORTED, Fault::Unreachable, f.doing).because(f)
        }
        TaskError::Kafka(f) => error_of(f),
    }
}
