//! Brings local stores to where their changelogs stood when the offsets were stable: by position, in slices, never by count.
//!
//! The target is the high watermark, read *after* the committed offsets: those turn stable when their marker is written, the
//! changelog's own marker may come later, so its last stable offset could miss a committed transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Error, Fault, codes};
use crate::ids::{TaskId, Tp};
use crate::kafka::{Class, Cluster, Isolation, KafkaFault, Reader};
use crate::offset::NextOffset;
use crate::record::InRecord;
use crate::state::TaskStores;
use crate::task::TaskError;

use super::Step;
use super::failpoint;
use super::lost::Expected;

/// Records of one slice, and how long one poll waits.
const SLICE: usize = 2_000;
const WAIT: Duration = Duration::from_millis(5);
/// Before the next slice, after one that brought nothing: an open transaction may stand before the target.
pub(super) const STANDSTILL: Duration = Duration::from_millis(5);

struct Goal {
    task: TaskId,
    tp: Tp,
    at: NextOffset,
    target: NextOffset,
}

/// Stores that are being restored, by task.
pub(super) type Stores<'a> = BTreeMap<TaskId, &'a mut TaskStores>;

/// One restore of any number of tasks.
pub(super) struct Restore {
    reader: Option<Box<dyn Reader>>,
    goals: Vec<Goal>,
}

impl Restore {
    /// Reads where the changelogs end now, refuses those that were lost, and drops local data that is no prefix of the others. A
    /// changelog that is also a source of the task ends where the group stands: what comes after is still to be processed.
    pub(super) fn begin<C: Cluster>(cluster: &C, stores: &mut Stores<'_>, expected: &Expected<'_>) -> Step<Self> {
        let mut goals = Vec::new();
        let mut reader = None;
        for (task, stores) in stores.iter_mut() {
            for (tp, local) in stores.changelogs() {
                let reader = match &mut reader {
                    Some(r) => r,
                    none => none.insert(cluster.reader(Isolation::Committed)?),
                };
                let (earliest, target) = reader.ends(&tp, Isolation::Uncommitted)?;
                expected.check(*task, &tp, (earliest, target), local)?;
                let target = expected.processed(&tp).map_or(target, |at| at.max(earliest));
                let at = match local {
                    Some(at) if earliest <= at && at <= target => at,
                    Some(at) => {
                        tracing::warn!(%task, changelog = %tp, %at, %earliest, end = %target, "local store does not fit its changelog: restoring all of it");
                        stores.wipe(&tp)?;
                        earliest
                    }
                    None => earliest,
                };
                if at < target {
                    goals.push(Goal { task: *task, tp, at, target });
                } else {
                    stores.restore(&tp, Vec::new(), target)?;
                }
            }
        }
        if let Some(reader) = &mut reader {
            let start: Vec<_> = goals.iter().map(|g| (g.tp.clone(), g.at)).collect();
            reader.assign(&start)?;
        }
        Ok(Self { reader, goals })
    }

    /// One slice. Answers how many records it applied, and whether everything is there.
    pub(super) fn step(&mut self, stores: &mut Stores<'_>) -> Step<(usize, bool)> {
        let Some(reader) = self.reader.as_mut().filter(|_| !self.goals.is_empty()) else { return Ok((0, true)) };
        failpoint!("restore.slice");
        let mut batches: BTreeMap<Tp, Vec<InRecord>> = BTreeMap::new();
        let mut applied = 0;
        while applied < SLICE {
            match reader.poll(WAIT) {
                Ok(Some(record)) => {
                    applied += 1;
                    batches.entry(record.tp.clone()).or_default().push(record);
                }
                Ok(None) => break,
                Err(f) if f.class == Class::Retry => break,
                Err(f) => return Err(failed(f)),
            }
        }
        for goal in &mut self.goals {
            // What comes after the target of a source is there already, and not processed yet.
            let mut batch = batches.remove(&goal.tp).unwrap_or_default();
            batch.retain(|r| r.offset.0 < goal.target.0);
            let at = reader.position(&goal.tp).unwrap_or(goal.at).max(goal.at).min(goal.target);
            if (at > goal.at || !batch.is_empty())
                && let Some(stores) = stores.get_mut(&goal.task)
            {
                stores.restore(&goal.tp, batch, at)?;
                goal.at = at;
            }
        }
        self.goals.retain(|g| g.at < g.target && stores.contains_key(&g.task));
        Ok((applied, self.goals.is_empty()))
    }

    /// What is still missing, for a log line.
    pub(super) fn left(&self) -> String {
        self.goals.iter().map(|g| format!("{} at {} of {}", g.tp, g.at, g.target)).collect::<Vec<_>>().join(", ")
    }
}

fn failed(f: KafkaFault) -> TaskError {
    TaskError::Failed(
        Error::new(codes::RESTORE_FAILED, Fault::Unreachable, format!("restoring from {}", f.to))
            .because(f)
            .next("start again; what is restored is kept"),
    )
}
