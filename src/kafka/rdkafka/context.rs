//! What the client calls back: rebalances, which only queue here, its log and its statistics.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;
use rdkafka::types::RDKafkaRespErr;

use super::login::{Credentials, Login};
use super::refusal::Refusals;
use super::{convert, raw};
use crate::kafka::{Assigned, Input, Refusal, Revoked, Watch};

/// Shared by a client and its owner.
pub(super) struct Context {
    name: String,
    rebalances: Mutex<VecDeque<Input>>,
    /// How many of them wait: asked before every record, so without the lock.
    waiting: AtomicUsize,
    closing: AtomicBool,
    /// When it was last told that a broker refuses us.
    refused: Mutex<Option<Instant>>,
    refusals: Arc<Refusals>,
    login: Option<Arc<Login>>,
    /// What the client was handed last, and the certificates it was made with.
    handed: AtomicU64,
    certificates: u64,
    /// Where its statistics go; nowhere for clients that live for one question.
    watch: Option<Watch>,
}

/// How often a refusal is told.
const TOLD_EVERY: Duration = Duration::from_secs(60);

impl Context {
    /// Of a client that is made now: its certificates are those of this moment, or younger.
    pub fn of(name: impl Into<String>, refusals: Arc<Refusals>, login: Option<Arc<Login>>) -> Self {
        let (waiting, closing) = (AtomicUsize::new(0), AtomicBool::new(false));
        let certificates = login.as_ref().map_or(0, |l| l.certificates());
        let (rebalances, refused, handed) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Self { name: name.into(), rebalances, waiting, closing, refused, refusals, login, handed, certificates, watch: None }
    }
    /// What we were refused for lately.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusals.fresh()
    }
    /// Hands the client the password or token of now where it is a new one. One load where it is not.
    pub fn keep(&self, client: &Client<Self>) {
        let Some(login) = &self.login else { return };
        let version = login.version();
        if self.handed.load(Ordering::Acquire) == version {
            return;
        }
        self.handed.store(version, Ordering::Release);
        let handed = match login.credentials() {
            Some(Credentials::Password(user, password)) => raw::set_password(client, &user, password.expose()),
            Some(Credentials::Token(t)) => raw::set_token(client, t.value.expose(), t.until_ms, &t.principal),
            None => Ok(()),
        };
        if let Err(why) = handed {
            tracing::warn!(target: "kafka", client = %self.name, "the client does not take its new login: {why}");
        }
    }
    /// Whether certificates have changed since the client was made.
    pub fn is_outdated(&self) -> bool {
        self.login.as_ref().is_some_and(|l| l.certificates() != self.certificates)
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
        let refusal = self.refusals.note(facility, message);
        if let (Some(Refusal::Login(_)), Some(login)) = (&refusal, &self.login) {
            login.doubt();
        }
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::warn!(target: "kafka", client = %name, facility, "{message}");
            }
            _ if refusal.is_some() && self.is_news() => {
                let why = refusal.as_ref().map_or(message, Refusal::why);
                tracing::warn!(target: "kafka", client = %name, "the broker can't be talked to: {why}");
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

    /// If this broke, each try of a client that is refused would be a line in the log.
    #[test]
    fn what_refuses_us_is_told_once_a_minute() {
        let context = Context::of("a", Arc::default(), None);
        assert!(context.is_news() && !context.is_news());
    }
}
