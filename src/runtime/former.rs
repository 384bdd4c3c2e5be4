//! What a slot had under a former topology. The group gives a static member that comes back within its session what it had before it
//! went, whatever it subscribes to now: topics that it does not read any more, and nothing of those that it reads newly. It is silent
//! until the group has forgotten the slot, and joins as what it is now.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::{TopicName, Tp};
use crate::kafka::{Cluster, Source};

use super::Step;
use super::thread::StreamThread;

/// How long after a session the group takes at most to forget who was silent.
const FORGETS_WITHIN: Duration = Duration::from_secs(1);

impl<C: Cluster> StreamThread<C> {
    /// Begins to wait where these partitions are those of a former topology. Nothing was claimed yet, so nothing is open.
    pub(super) fn waits_to_be_forgotten(&mut self, given: &[Tp]) -> Step<bool> {
        if !self.seed.options.lists_slots {
            return Ok(false);
        }
        let sources: Vec<TopicName> =
            self.seed.plan.subtopologies.iter().flat_map(|s| &s.sources).map(|s| s.topic.clone()).collect();
        // Members of mixed versions may leave nothing for a slot for good: that is waited out once.
        let fresh = !std::mem::replace(&mut self.settled, true);
        let count = |topic: &TopicName| self.seed.cluster.admin().and_then(|a| a.topic(topic)).ok()?.map(|t| t.partitions);
        let why = match (foreign(&sources, given), fresh) {
            (Some(tp), _) => format!("{tp}, which is not read any more"),
            (None, true) => match left_out(&sources, given, count) {
                Some(topic) => format!("nothing of {topic}"),
                None => return Ok(false),
            },
            (None, false) => return Ok(false),
        };
        let session = self.seed.options.session_timeout;
        if !self.source.stay_away(session + FORGETS_WITHIN)? {
            return Ok(false);
        }
        let why = format!("the group gives {why}, as under a former topology; it forgets the slot after {session:?}");
        tracing::warn!(slot = %self.slot, "{why}");
        self.stuck = Some(why);
        self.assigned = false;
        self.joins.clear();
        Ok(true)
    }
}

/// A partition that no source reads.
fn foreign<'p>(sources: &[TopicName], given: &'p [Tp]) -> Option<&'p Tp> {
    given.iter().find(|tp| !sources.contains(&tp.topic))
}

/// A source that nothing was given of. By range, whoever is given some of one topic is given some of each that has as many partitions.
fn left_out<'s>(sources: &'s [TopicName], given: &[Tp], count: impl Fn(&TopicName) -> Option<u32>) -> Option<&'s TopicName> {
    let there: BTreeSet<&TopicName> = given.iter().map(|tp| &tp.topic).collect();
    let absent: Vec<&TopicName> = sources.iter().filter(|topic| !there.contains(topic)).collect();
    if absent.is_empty() {
        return None;
    }
    let least = there.into_iter().filter_map(&count).min()?;
    absent.into_iter().find(|topic| count(topic).is_some_and(|n| n >= least))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a member that comes back with another topology would read nothing of its new inputs, for ever, or stay away
    /// where its group is only larger than a topic.
    #[test]
    fn what_a_former_topology_had_is_told_from_what_is_now() {
        let topics = ["clicks", "orders", "few"].map(TopicName::from);
        let given = |names: &[&str]| names.iter().map(|t| Tp::new(*t, 2)).collect::<Vec<_>>();
        let count = |topic: &TopicName| Some(if topic.as_str() == "few" { 1 } else { 4 });
        assert_eq!(foreign(&topics, &given(&["clicks", "gone"])), Some(&Tp::new("gone", 2)));
        assert_eq!(foreign(&topics, &given(&["clicks"])), None);
        assert_eq!(left_out(&topics, &given(&["clicks"]), count), Some(&topics[1]), "as many partitions, and none of them");
        assert_eq!(left_out(&topics, &given(&["clicks", "orders"]), count), None, "there are fewer of `few` than members");
        assert_eq!(left_out(&topics, &[], count), None, "there are more members than partitions");
        assert_eq!(left_out(&topics, &given(&["clicks"]), |_| None), None, "nobody answers");
    }
}
