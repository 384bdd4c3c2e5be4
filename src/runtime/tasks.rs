//! The tasks of a thread and which partition belongs to which.

use std::collections::{BTreeMap, HashMap};

use crate::ids::{TaskId, Tp};
use crate::task::{SubtopologyPlan, UnitPlan, Urgency};
use crate::time::MonoTime;

use super::restore::Stores;
use super::running::Running;

/// The tasks of a thread.
#[derive(Default)]
pub(super) struct Tasks {
    running: BTreeMap<TaskId, Running>,
    by_tp: HashMap<Tp, TaskId>,
    /// The partition asked for last: records come in batches of a partition.
    last: Option<(Tp, TaskId)>,
}

impl Tasks {
    pub(super) fn add(&mut self, task: Running) {
        for part in &task.parts {
            self.by_tp.insert(part.tp.clone(), task.id);
        }
        self.running.insert(task.id, task);
    }

    /// Takes out every task that reads one of these partitions.
    pub(super) fn remove(&mut self, partitions: &[Tp]) -> Vec<Running> {
        let ids: Vec<TaskId> = partitions.iter().filter_map(|tp| self.by_tp.get(tp).copied()).collect();
        let gone: Vec<Running> = ids.iter().filter_map(|id| self.running.remove(id)).collect();
        self.by_tp.retain(|_, id| self.running.contains_key(id));
        self.last = None;
        gone
    }

    /// Takes out all.
    pub(super) fn clear(&mut self) -> Vec<Running> {
        self.by_tp.clear();
        self.last = None;
        std::mem::take(&mut self.running).into_values().collect()
    }

    /// The task that reads this partition; `None` for one that was revoked: its records are dropped.
    pub(super) fn of(&mut self, tp: &Tp) -> Option<&mut Running> {
        let id = match &self.last {
            Some((last, id)) if last == tp => *id,
            _ => {
                let id = *self.by_tp.get(tp)?;
                self.last = Some((tp.clone(), id));
                id
            }
        };
        self.running.get_mut(&id)
    }

    pub(super) fn get(&mut self, id: TaskId) -> Option<&mut Running> {
        self.running.get_mut(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Running> {
        self.running.values()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Running> {
        self.running.values_mut()
    }

    /// Those that the open transaction holds something of.
    pub(super) fn touched(&mut self) -> impl Iterator<Item = &mut Running> {
        self.running.values_mut().filter(|t| t.touched)
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// The most urgent wish for a commit among those that the transaction holds something of.
    pub(super) fn urgency(&self) -> Urgency {
        self.running.values().filter(|t| t.touched).map(|t| t.task.urgency()).min().unwrap_or(Urgency::None)
    }

    /// When the first of them has something to do.
    pub(super) fn next_due(&self) -> Option<MonoTime> {
        self.running.values().filter_map(|t| t.stands_until().or_else(|| t.task.next_due())).min()
    }

    /// The stores of these tasks, for a restore.
    pub(super) fn stores(&mut self, of: &[TaskId]) -> Stores<'_> {
        self.running.iter_mut().filter(|(id, _)| of.contains(id)).map(|(id, t)| (*id, &mut t.stores)).collect()
    }
}

/// Groups partitions into tasks: the sub-topology that reads the topic × the partition's number.
pub(super) fn tasks_of<'a>(plan: &'a UnitPlan, partitions: &[Tp]) -> BTreeMap<TaskId, (&'a SubtopologyPlan, Vec<Tp>)> {
    let mut tasks: BTreeMap<TaskId, (&SubtopologyPlan, Vec<Tp>)> = BTreeMap::new();
    for sub in &plan.subtopologies {
        // In the order of the plan: the first source is where a timer-driven transaction takes its offset from.
        for source in &sub.sources {
            for tp in partitions.iter().filter(|tp| tp.topic == source.topic) {
                let id = TaskId { subtopology: sub.id, partition: tp.partition };
                tasks.entry(id).or_insert_with(|| (sub, Vec::new())).1.push(tp.clone());
            }
        }
    }
    tasks
}
