//! A new consumer in the same slot, because a certificate was replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::{RdSource, joined};
use crate::kafka::rdkafka::context::Context;
use crate::kafka::{Input, KResult, Revoked, Source as _};

/// After a new certificate could not be used, before it is tried again.
const RENEW_AGAIN: Duration = Duration::from_secs(1);

/// Certificates are read when a client is made. Where they changed, one with the new ones follows: the partitions are given back in
/// order, as in a rebalance, and the new consumer joins in the same slot.
#[derive(Default)]
pub(super) struct Renewal {
    /// Made, and not joined yet.
    pub(super) next: Option<BaseConsumer<Context>>,
    /// When it could not be made: a pair of files may be half replaced.
    failed: Option<Instant>,
}

impl RdSource {
    /// Begins to replace a consumer whose certificates are no longer those of now.
    pub(super) fn renew(&mut self, consumer: &BaseConsumer<Context>) -> Option<Input> {
        let waits = self.renewal.failed.is_some_and(|at| at.elapsed() < RENEW_AGAIN);
        if self.pending || waits || !consumer.context().is_outdated() {
            return None;
        }
        let name = self.slot.name();
        match self.cluster.make_member(&self.slot) {
            Ok(next) => {
                tracing::info!(slot = %name, "a certificate was replaced: a new consumer takes over");
                self.renewal = Renewal { next: Some(next), failed: None };
                Some(Input::Revoked(Revoked { partitions: self.parts.iter().map(|p| p.tp.clone()).collect() }))
            }
            Err(fault) => {
                tracing::warn!(slot = %name, %fault, "the replaced certificate can't be used; the consumer stays as it is");
                self.renewal.failed = Some(Instant::now());
                None
            }
        }
    }

    /// The new consumer takes the place of the old one.
    pub(super) fn succeed(&mut self, next: BaseConsumer<Context>) -> KResult<()> {
        self.close();
        self.paused.clear();
        self.ready.clear();
        self.consumer = Some(Arc::new(joined(next, &self.slot, &self.topics, &self.wake)?));
        Ok(())
    }
}
