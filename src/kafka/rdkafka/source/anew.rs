//! Joining anew in the same slot: fenced by a former membership, or back after the group has forgotten the slot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Polled, RdSource, subscribed};
use crate::ids::Tp;
use crate::kafka::rdkafka::ghost::Holder;
use crate::kafka::{Input, KResult, KafkaFault, Revoked, Source as _};

/// Between two questions who holds the slot.
const ASK_AGAIN: Duration = Duration::from_millis(300);

impl RdSource {
    /// The consumer is fenced: by another holder of the slot, or by its own ghost; then it joins anew.
    pub(super) fn fenced(&mut self, fault: KafkaFault) -> Polled {
        let now = Instant::now();
        if self.fenced.is_some_and(|asked| now.duration_since(asked) < ASK_AGAIN) {
            return Polled::Nothing;
        }
        self.fenced = Some(now);
        match self.ours.holder(&self.cluster, &self.slot) {
            Holder::Unknown => Polled::Nothing,
            Holder::Other => Polled::Event(Input::Fault(fault)),
            Holder::Ghost => {
                tracing::warn!(slot = %self.slot.name(), "the group fenced this consumer's former membership; joining anew");
                match self.join_anew() {
                    Ok(()) => self.ready.pop_front().map_or(Polled::Nothing, Polled::Event),
                    Err(fault) => Polled::Event(Input::Fault(fault)),
                }
            }
        }
    }

    fn join_anew(&mut self) -> KResult<()> {
        let lost: Vec<Tp> = self.parts.iter().map(|p| p.tp.clone()).collect();
        self.close();
        self.paused.clear();
        self.ready.clear();
        self.consumer = Some(Arc::new(subscribed(&self.cluster, &self.slot, &self.topics, &self.wake)?));
        self.fenced = None;
        if !lost.is_empty() {
            self.bygone.clone_from(&lost);
            self.ready.push_back(Input::Lost(Revoked { partitions: lost }));
        }
        Ok(())
    }

    /// Joins again once the group has forgotten the slot.
    pub(super) fn come_back(&mut self) -> Polled {
        if self.away.is_none_or(|until| Instant::now() < until) {
            return Polled::Nothing;
        }
        match subscribed(&self.cluster, &self.slot, &self.topics, &self.wake) {
            Ok(consumer) => {
                (self.consumer, self.away) = (Some(Arc::new(consumer)), None);
                Polled::Kept
            }
            Err(fault) => Polled::Event(Input::Fault(fault)),
        }
    }

    /// Closes for so long that the group forgets the slot.
    pub(super) fn go_away(&mut self, time: Duration) {
        self.close();
        self.paused.clear();
        self.ready.clear();
        self.pending = false;
        self.away = Some(Instant::now() + time);
    }
}
