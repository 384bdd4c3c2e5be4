//! The client says that what it reads is not there: a topic was deleted, or a position lies outside the log. What was deleted by
//! the topic's own retention before it was read is told and counted; anything else ends the thread, since going on would be a gap
//! or a repeat that nobody chose.

use crate::error::{Error, Fault, Result, codes};
use crate::ids::Tp;
use crate::kafka::{Cluster, KResult, KafkaFault, Source};
use crate::offset::NextOffset;
use crate::task::StartAt;
use crate::time::Now;

use super::join::not_in_log;
use super::thread::StreamThread;

impl<C: Cluster> StreamThread<C> {
    /// Looks at every partition that is read here.
    pub(super) fn look_for_what_is_gone(&mut self, fault: &KafkaFault, now: Now) -> Result<()> {
        // What was read before stands, before anything is moved.
        if let Err(crate::task::TaskError::Kafka(fault)) = self.commit_at_once(now) {
            return self.recover_from(fault, now);
        }
        let parts = self.tasks.all().flat_map(|t| t.parts.iter().map(|p| (p.tp.clone(), p.position(&self.source))));
        let mut moved: Vec<(Tp, NextOffset)> = Vec::new();
        for (tp, at) in parts.collect::<Vec<_>>() {
            let there = self.seed.cluster.admin().and_then(|a| a.topic(&tp.topic));
            if matches!(there, Ok(None)) {
                return Err(Error::new(codes::TOPIC_MISSING, Fault::Configuration, format!("reading {tp} from {at}"))
                    .because("the topic does not exist any more")
                    .next("create it again, or take it out of the topology; the group's position in it is gone with it"));
            }
            // A cluster that can't be asked now says so again.
            let Ok((earliest, end)) = self.source.ends(&tp) else { continue };
            if earliest <= at && at <= end {
                continue;
            }
            if at > end || self.must_not_move(&tp) {
                return Err(not_in_log(&tp, at, (earliest, end)));
            }
            let deleted = earliest.0 - at.0;
            tracing::error!(slot = %self.slot, %tp, %at, %earliest, deleted, "records were deleted by the topic's retention before they were read");
            self.metrics.lost(&tp, deleted);
            moved.push((tp, earliest));
        }
        tracing::debug!(slot = %self.slot, %fault, moved = moved.len(), "the client misses something");
        self.go_on_at(&moved).or_else(|fault| self.recover_from(fault, now))
    }

    fn must_not_move(&self, tp: &Tp) -> bool {
        let sources = self.seed.plan.subtopologies.iter().flat_map(|s| &s.sources);
        sources.into_iter().any(|s| s.topic == tp.topic && s.start == StartAt::Refuse)
            && !self.seed.options.accept_loss.contains(&tp.topic)
    }

    fn go_on_at(&mut self, moved: &[(Tp, NextOffset)]) -> KResult<()> {
        for part in self.tasks.all_mut().flat_map(|t| &mut t.parts) {
            if let Some((_, at)) = moved.iter().find(|(tp, _)| *tp == part.tp) {
                part.start_at(*at);
            }
        }
        self.source.seek(moved)
    }
}
