//! What must not pass for new: a changelog, outbox or control topic that is missing, empty or cut short while the group's positions
//! or the local store say that there was more. A start that makes it anew would forget what was sent to targets.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Fault, Result, codes};
use crate::ids::{TaskId, TopicName, Tp};
use crate::kafka::{Admin, Cluster, Isolation};
use crate::offset::NextOffset;
use crate::task::{StartAt, SubtopologyPlan, UnitPlan};

use super::error_of;

/// Refuses a start of this unit where a topic of its state, or one whose positions must not be guessed, is missing although its
/// sub-topology has run before; `accepted` are topics that a person gave up.
pub(super) fn refuse_missing<C: Cluster>(cluster: &C, plan: &UnitPlan, accepted: &BTreeSet<TopicName>) -> Result<()> {
    let admin = cluster.admin().map_err(error_of)?;
    for sub in &plan.subtopologies {
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for topic in kept(sub).filter(|t| !accepted.contains(*t)) {
            match admin.topic(topic).map_err(error_of)? {
                Some(info) => there.push((topic, info.partitions)),
                None => missing.push(topic),
            }
        }
        let Some(first) = missing.first() else { continue };
        if let Some(trace) = trace(cluster, &*admin, plan, sub, &there)? {
            let names: Vec<&str> = missing.iter().map(|t| t.as_str()).collect();
            return Err(lost(first, format!("looking for {}", names.join(", ")), format!("it is missing, yet {trace}")));
        }
    }
    Ok(())
}

/// Changelogs, and sources whose position must not be guessed.
fn kept(sub: &SubtopologyPlan) -> impl Iterator<Item = &TopicName> {
    let changelogs = sub.stores.iter().filter_map(|s| s.changelog.as_ref()).map(|c| &c.topic);
    sub.sources.iter().filter(|s| s.start == StartAt::Refuse).map(|s| &s.topic).chain(changelogs)
}

/// What shows that this sub-topology has run before, in words.
fn trace<C: Cluster>(
    cluster: &C,
    admin: &dyn Admin,
    plan: &UnitPlan,
    sub: &SubtopologyPlan,
    there: &[(&TopicName, u32)],
) -> Result<Option<String>> {
    let mut read = Vec::new();
    for source in &sub.sources {
        let partitions = admin.topic(&source.topic).map_err(error_of)?.map_or(0, |t| t.partitions);
        read.extend((0..partitions).map(|p| Tp::new(source.topic.clone(), p as i32)));
    }
    if !read.is_empty()
        && let Some((tp, at)) = admin.committed(&plan.group, &read).map_err(error_of)?.first()
    {
        return Ok(Some(format!("group {} has read {tp} up to {at}", plan.group)));
    }
    let mut reader = cluster.reader(Isolation::Committed).map_err(error_of)?;
    for (topic, partitions) in there {
        for p in 0..*partitions {
            let tp = Tp::new((*topic).clone(), p as i32);
            let (_, end) = reader.ends(&tp, Isolation::Uncommitted).map_err(error_of)?;
            if end.0 > 0 {
                return Ok(Some(format!("{tp} has been written up to {end}")));
            }
        }
    }
    Ok(None)
}

/// What changelogs must look like before stores are restored from them.
pub(super) struct Expected<'a> {
    accepted: &'a BTreeSet<TopicName>,
    /// Tasks whose positions must not be guessed, with whether they have read anything before.
    guarded: BTreeMap<TaskId, bool>,
    starts: &'a [(Tp, NextOffset)],
}

impl<'a> Expected<'a> {
    /// Of these tasks, which stand at `starts`.
    pub fn of(plan: &UnitPlan, accepted: &'a BTreeSet<TopicName>, starts: &'a [(Tp, NextOffset)]) -> Self {
        let mut guarded = BTreeMap::new();
        for sub in &plan.subtopologies {
            for source in sub.sources.iter().filter(|s| s.start == StartAt::Refuse) {
                for (tp, at) in starts.iter().filter(|(tp, _)| tp.topic == source.topic) {
                    let id = TaskId { subtopology: sub.id, partition: tp.partition };
                    *guarded.entry(id).or_default() |= at.0 > 0;
                }
            }
        }
        Self { accepted, guarded, starts }
    }

    /// How far a changelog that is also a source has been processed.
    pub fn processed(&self, tp: &Tp) -> Option<NextOffset> {
        self.starts.iter().find(|(s, _)| s == tp).map(|(_, at)| *at)
    }

    /// Refuses a changelog `[earliest, end)` that is not all there, for a store that has read it up to `local`.
    pub fn check(&self, task: TaskId, tp: &Tp, (earliest, end): (NextOffset, NextOffset), local: Option<NextOffset>) -> Result<()> {
        let guarded = self.guarded.get(&task);
        let why = match local {
            _ if self.accepted.contains(&tp.topic) => return Ok(()),
            Some(at) if at > end => format!("it ends at {end}, and the local store has read it up to {at}"),
            _ if end.0 == 0 && guarded == Some(&true) => "it is empty, and its task has read inputs before".to_owned(),
            local if earliest.0 > 0 && guarded.is_some() && local.is_none_or(|at| at < earliest) => {
                format!("it begins at {earliest}: what stood before was deleted, and no local store has it")
            }
            _ => return Ok(()),
        };
        Err(lost(&tp.topic, format!("opening the state behind {tp}"), why))
    }
}

/// A topic that is not what it was.
pub(super) fn lost(topic: &TopicName, doing: String, why: String) -> Error {
    Error::new(codes::TOPIC_LOST, Fault::Configuration, doing).because(why).next(format!(
        "stop all members and read `Lost topics` in the operating page before anything else; only then, to go on without what is lost: topics.accept_loss: {topic}"
    ))
}
