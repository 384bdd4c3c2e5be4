//! What the client calls back: rebalances, which only queue here, its log and its statistics.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;
use rdkafka::types::RDKafkaRespErr;

use super::convert;
use crate::kafka::{Assigned, Input, Revoked, Watch};

/// Shared by a client and its owner.
pub(super) struct Context {
    name: String,
    rebalances: Mutex<VecDeque<Input>>,
    /// How many of them wait: asked before every record, so without the lock.
    waiting: AtomicUsize,
    closing: AtomicBool,
    /// When it was last told that a broker refuses us.
    refused: Mutex<Option<Instant>>,
    /// Where its statistics go; nowhere for clients that live for one question.
    watch: Option<Watch>,
}

/// How often a refusal is told.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Whether the client could not even begin to talk: names, certificates, logins. Trying again will not help, and calls only say that the
/// broker could not be reached.
fn is_refusal(facility: &str, message: &str) -> bool {
    facility == "FAIL" && ["uthentication", "SSL", "ertificate", "Failed to resolve"].iter().any(|sign| message.contains(sign))
}

impl Context {
    pub fn new(name: impl Into<String>) -> Self {
        let (waiting, closing) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { name: name.into(), rebalances: Mutex::default(), waiting, closing, refused: Mutex::default(), watch: None }
    }
    /// With its statistics measured, where somebody measures.
    pub fn watched(self, watch: Option<Watch>) -> Self {
        Self { watch, ..self }
    }
    /// A report of the client's statistics, as JSON.
    pub fn statistics(&self, report: &[u8]) {
        if let Some(watch) = &self.watch {
            watch.take(report);
        }
    }
    /// Whether a refusal is to be told now.
    fn is_news(&self) -> bool {
        let mut told = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let news = told.is_none_or(|at| at.elapsed() >= TOLD_EVERY);
        if news {
            *told = Some(Instant::now());
        }
        news
    }
    /// The oldest rebalance that the owner has not seen.
    pub fn rebalance_event(&self) -> Option<Input> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut waiting = self.rebalances.lock().unwrap_or_else(PoisonError::into_inner);
        let event = waiting.pop_front();
        self.waiting.store(waiting.len(), Ordering::Release);
        event
    }
    /// From now on partitions are given back at once: nobody looks at events any more, and closing would wait for ever.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }
}

/// Gives up everything that is assigned, by whichever protocol.
pub(super) fn unassign_all(consumer: &BaseConsumer<Context>) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(&consumer.assignment()?),
        _ => consumer.unassign(),
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let name = &self.name;
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::warn!(target: "kafka", client = %name, facility, "{message}");
            }
            _ if is_refusal(facility, message) && self.is_news() => {
                tracing::warn!(target: "kafka", client = %name, "the broker can't be talked to: {message}");
            }
            // A lost connection is the client's daily business; what matters comes as a fault of some call.
            _ => tracing::debug!(target: "kafka", client = %name, facility, "{message}"),
        }
    }
    /// As the client made them: only the few numbers that are metrics are read.
    fn stats_raw(&self, report: &[u8]) {
        self.statistics(report);
    }
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "kafka", client = %self.name, "{error}: {reason}");
    }
}

impl ConsumerContext for Context {
    /// Runs inside `poll`, on the owner's thread. The owner commits or aborts first and then (un)assigns by itself.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, list: &mut TopicPartitionList) {
        if self.closing.load(Ordering::Acquire) {
            if let Err(e) = unassign_all(consumer) {
                tracing::debug!(target: "kafka", client = %self.name, "giving back at close: {e}");
            }
            return;
        }
        let partitions = convert::tps(list);
        let event = match err {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Input::Assigned(Assigned { partitions }),
            _ if consumer.assignment_lost() => Input::Lost(Revoked { partitions }),
            _ => Input::Revoked(Revoked { partitions }),
        };
        let mut waiting = self.rebalances.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(event);
        self.waiting.store(waiting.len(), Ordering::Release);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;
    /// Reports are taken from the queue by their owner; only a drop still comes here.
    fn delivery(&self, _: &DeliveryResult<'_>, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a wrong password would look like a broker that is away, or each try would be a line in the log.
    #[test]
    fn what_refuses_us_is_told_once_a_minute() {
        let message =
            "sasl_plaintext://b:1/bootstrap: SASL authentication error: Authentication failed: Invalid username or password";
        assert!(is_refusal("FAIL", message) && is_refusal("FAIL", "b:1: Failed to resolve 'b:1': Name or service not known"));
        assert!(!is_refusal("FAIL", "b:1: Connect to ipv4#127.0.0.1:1 failed: Connection refused"));
        let context = Context::new("a");
        assert!(context.is_news() && !context.is_news());
    }
}
