//! Reading outside any group.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;

use super::context::Context;
use super::{RdCluster, convert, raw};
use crate::ids::Tp;
use crate::kafka::{Isolation, KResult, Reader};
use crate::offset::NextOffset;
use crate::record::InRecord;

/// The client wants a group's name even where it never joins; nothing is committed under it.
const NAME: &str = "readback-reader";
/// How long the partitions of a new topic may take to be known.
const NEW_TOPIC: Duration = Duration::from_secs(3);

/// A consumer with an assignment of its own.
pub struct RdReader {
    cluster: RdCluster,
    isolation: Isolation,
    /// How long a request waits at the broker for more records; `None`: as the client does.
    wait: Option<Duration>,
    start: Vec<(Tp, NextOffset)>,
    consumer: BaseConsumer<Context>,
    /// Made when the ends by the other isolation are asked for.
    other: Option<BaseConsumer<Context>>,
}

fn consumer(cluster: &RdCluster, isolation: Isolation, wait: Option<Duration>) -> KResult<BaseConsumer<Context>> {
    let mut config = cluster.consumer(NAME, NAME, isolation);
    if let Some(wait) = wait {
        config.set("fetch.wait.max.ms", wait.as_millis().to_string());
    }
    cluster.make_consumer("creating a reader", NAME, &config, None)
}

impl RdReader {
    pub(super) fn new(cluster: RdCluster, isolation: Isolation, wait: Option<Duration>) -> KResult<Self> {
        let consumer = consumer(&cluster, isolation, wait)?;
        Ok(Self { cluster, isolation, wait, start: Vec::new(), consumer, other: None })
    }

    /// Signs in with what holds now; where certificates changed, by a new client that goes on where this one stands.
    fn keep(&mut self) -> KResult<()> {
        self.consumer.context().keep(self.consumer.client());
        if !self.consumer.context().is_outdated() {
            return Ok(());
        }
        let here: Vec<_> = self.start.iter().filter_map(|(tp, _)| Some((tp.clone(), self.position(tp)?))).collect();
        match consumer(&self.cluster, self.isolation, self.wait) {
            Ok(next) => (self.consumer, self.other) = (next, None),
            Err(fault) => {
                tracing::warn!(%fault, "the replaced certificate can't be used; the reader stays as it is");
                return Ok(());
            }
        }
        self.assign(&here)
    }
}

impl Reader for RdReader {
    fn assign(&mut self, start: &[(Tp, NextOffset)]) -> KResult<()> {
        let list = convert::positions(start.iter().map(|(tp, next)| (tp, *next)))?;
        self.start = start.to_vec();
        self.consumer.assign(&list).map_err(|e| convert::fault(self.consumer.client(), "assigning", NAME, &e))
    }

    fn poll(&mut self, limit: Duration) -> KResult<Option<InRecord>> {
        self.keep()?;
        match self.consumer.poll(limit) {
            // At an end the caller looks at the position before it waits on.
            None | Some(Err(KafkaError::PartitionEOF(_))) => Ok(None),
            Some(Ok(message)) => {
                let (topic, partition) = (message.topic(), message.partition());
                let known = self.start.iter().find(|(tp, _)| tp.partition.0 == partition && tp.topic.as_str() == topic);
                Ok(known.map(|(tp, _)| convert::in_record(tp.clone(), &message)))
            }
            Some(Err(e)) => Err(convert::fault(self.consumer.client(), "reading", NAME, &e)),
        }
    }

    fn position(&self, tp: &Tp) -> Option<NextOffset> {
        let (_, put) = self.start.iter().find(|(at, _)| at == tp)?;
        Some(raw::position(self.consumer.client(), tp.topic.as_str(), tp.partition.0).map_or(*put, NextOffset))
    }

    fn ends(&mut self, tp: &Tp, isolation: Isolation) -> KResult<(NextOffset, NextOffset)> {
        self.keep()?;
        if isolation != self.isolation && self.other.is_none() {
            self.other = Some(consumer(&self.cluster, isolation, None)?);
        }
        let asked = match &self.other {
            Some(other) if isolation != self.isolation => other,
            _ => &self.consumer,
        };
        asked.context().keep(asked.client());
        ends(asked, tp, self.cluster.config().request).map_err(|e| convert::fault(asked.client(), "asking for the ends", tp, &e))
    }
}

/// Where a partition begins and ends. A topic that was just created is known before its partitions are: those are asked for again.
pub(super) fn ends<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    tp: &Tp,
    limit: Duration,
) -> Result<(NextOffset, NextOffset), KafkaError> {
    let until = Instant::now() + NEW_TOPIC;
    loop {
        match consumer.fetch_watermarks(tp.topic.as_str(), tp.partition.0, limit) {
            Ok((low, high)) => return Ok((NextOffset(low), NextOffset(high))),
            Err(e) if e.rdkafka_error_code() == Some(RDKafkaErrorCode::UnknownPartition) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(e) => return Err(e),
        }
    }
}
