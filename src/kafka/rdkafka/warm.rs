//! Clients of a slot that were made before it is taken: they know their brokers, and have joined and fenced nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, Producer as _};

use super::context::Context;
use super::{RdCluster, convert};
use crate::ids::{SlotName, TopicName, Tp};
use crate::kafka::{KResult, Slot, TxLimits};

/// What waits, by slot.
#[derive(Default)]
pub(super) struct Warm(Mutex<HashMap<SlotName, Clients>>);

#[derive(Default)]
struct Clients {
    consumer: Option<BaseConsumer<Context>>,
    producer: Option<BaseProducer<Context>>,
}

impl std::fmt::Debug for Warm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Warm")
    }
}

impl Warm {
    pub(super) fn consumer(&self, slot: &SlotName) -> Option<BaseConsumer<Context>> {
        self.of(slot, |clients| clients.consumer.take())
    }

    pub(super) fn producer(&self, slot: &SlotName) -> Option<BaseProducer<Context>> {
        self.of(slot, |clients| clients.producer.take())
    }

    fn of<T>(&self, slot: &SlotName, take: impl FnOnce(&mut Clients) -> Option<T>) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(slot).and_then(take)
    }

    fn keep(&self, slot: SlotName, clients: Clients) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, clients);
    }
}

impl RdCluster {
    /// Makes both clients of `slot`. Metadata opens their connections, the positions one to the group's coordinator; what is answered is
    /// read again by whoever takes the slot, since the owner goes on.
    pub(super) fn warm(&self, slot: &Slot, topics: &[TopicName], limits: TxLimits) -> KResult<()> {
        let (name, limit) = (slot.name(), self.config().request);
        let consumer = self.make_member(slot)?;
        let producer = self.make_sender(&name, limits)?;
        for topic in topics {
            let fault = |e| convert::fault(consumer.client(), "looking at", topic, &e);
            consumer.fetch_metadata(Some(topic.as_str()), limit).map_err(fault)?;
            producer.client().fetch_metadata(Some(topic.as_str()), limit).map_err(fault)?;
        }
        if let Some(topic) = topics.first() {
            // The owner may have a transaction open there: then the answer does not matter, and the connection is made.
            let _ = consumer.committed_offsets(convert::partitions(&[Tp::new(topic.clone(), 0)]), self.config().offsets);
        }
        self.0.warm.keep(name, Clients { consumer: Some(consumer), producer: Some(producer) });
        Ok(())
    }
}
