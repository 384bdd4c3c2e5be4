//! What the group gives and takes, and what the client has to say.

use crate::kafka::{Class, Cluster, Input, KafkaFault, Revoked, Source};
use crate::task::{Close, TaskError};
use crate::time::Now;

use super::Step;
use super::failpoint;
use super::join::Join;
use super::running::client_failed;
use super::thread::StreamThread;

impl<C: Cluster> StreamThread<C> {
    /// What the group or the client says.
    pub(super) fn rebalanced(&mut self, input: Input, now: Now) -> Step<()> {
        match input {
            Input::Assigned(assigned) => {
                self.metrics.rebalanced("assigned");
                self.assigned = true;
                self.joins.push_back(Join::new(assigned, now.mono));
                Ok(())
            }
            Input::Revoked(revoked) => self.revoked(revoked, Close::Revoked, now),
            Input::Lost(lost) => self.revoked(lost, Close::Lost, now),
            Input::Fault(fault) => self.heard(fault),
            Input::Record(_) | Input::Drained(_) => Ok(()),
        }
    }

    /// Transport faults are noise: the client mends them by itself.
    fn heard(&mut self, fault: KafkaFault) -> Step<()> {
        match fault.class {
            Class::Retry | Class::Blocked => {
                tracing::debug!(slot = %self.slot, %fault, "the client says");
                Ok(())
            }
            Class::SlotTaken | Class::Config | Class::Gone => Err(fault.into()),
            _ => Err(client_failed(fault)),
        }
    }

    /// Partitions go. In order: what is open is committed first, then the tasks close. Lost: their tasks close at once, and what
    /// is open is taken back. Only then the partitions are given back.
    fn revoked(&mut self, gone: Revoked, how: Close, now: Now) -> Step<()> {
        self.metrics.rebalanced(if how == Close::Lost { "lost" } else { "revoked" });
        tracing::info!(slot = %self.slot, partitions = ?gone.partitions, ?how, "partitions go");
        if how == Close::Lost {
            self.close_tasks_of(&gone, how)?;
            if self.tx.open().is_some() {
                self.metrics.aborted("lost");
                self.abort_and_rewind(now).map_err(TaskError::Failed)?;
            }
        } else {
            if let Err(error) = self.hand_over(&gone, now) {
                self.meet(error, now).map_err(TaskError::Failed)?;
            }
            self.close_tasks_of(&gone, how)?;
        }
        self.releasing = Some(gone);
        self.release()
    }

    fn hand_over(&mut self, gone: &Revoked, now: Now) -> Step<()> {
        failpoint!("revoke.before-commit");
        for task in self.tasks.all_mut().filter(|t| t.parts.iter().any(|p| gone.partitions.contains(&p.tp))) {
            task.leave(&mut self.tx, now)?;
        }
        self.commit_at_once(now)
    }

    fn close_tasks_of(&mut self, gone: &Revoked, how: Close) -> Step<()> {
        self.joins.retain_mut(|j| j.without(&gone.partitions));
        let mut closed = Ok(());
        for task in self.tasks.remove(&gone.partitions) {
            task.parts.iter().for_each(|p| self.metrics.gone(&p.tp));
            closed = closed.and(task.close(how));
        }
        self.metrics.tasks.set(self.tasks.len() as i64);
        closed
    }

    /// Gives back what was taken, again at each turn until the source has it.
    pub(super) fn release(&mut self) -> Step<()> {
        if let Some(gone) = &self.releasing {
            failpoint!("revoke.before-release");
            self.source.released(gone)?;
            self.releasing = None;
            failpoint!("revoke.after-release");
        }
        Ok(())
    }
}
