//! The client's statistics as metrics: a few of its hundreds of numbers, bound to the slot whose client it is. Brokers, topics and
//! partitions are those of the cluster and the topology; what is not read here is skipped by the parser.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use serde::Deserialize;

use crate::error::{Error, Fault, Result, codes};
use crate::events::{self, Metric};

/// Which of a slot's two clients it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Client {
    /// The group's member.
    Consumer,
    /// The transactional producer.
    Producer,
}

impl Client {
    fn word(self) -> &'static str {
        match self {
            Client::Consumer => "consumer",
            Client::Producer => "producer",
        }
    }
}

/// The client metrics of a process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<All>);

#[derive(Debug)]
struct All {
    rtt: GaugeVec,
    throttle: GaugeVec,
    waiting: IntGaugeVec,
    sent: IntCounterVec,
    received: IntCounterVec,
    errors: IntCounterVec,
    queued: IntGaugeVec,
    lag: IntGaugeVec,
    unstable: IntGaugeVec,
    transaction: IntGaugeVec,
}

impl Metrics {
    /// Makes the metrics and registers them. A name that is registered already is an error.
    pub fn new(registry: &Registry) -> Result<Self> {
        Self::made(registry).map_err(|e| Error::new(codes::BUG, Fault::Bug, "registering the client's metrics").because(e))
    }

    fn made(registry: &Registry) -> prometheus::Result<Self> {
        let opts = |m: Metric| Opts::new(m.name, m.help);
        let counter = |m: Metric| {
            let made = IntCounterVec::new(opts(m), m.labels)?;
            registry.register(Box::new(made.clone())).map(|()| made)
        };
        let whole = |m: Metric| {
            let made = IntGaugeVec::new(opts(m), m.labels)?;
            registry.register(Box::new(made.clone())).map(|()| made)
        };
        let gauge = |m: Metric| {
            let made = GaugeVec::new(opts(m), m.labels)?;
            registry.register(Box::new(made.clone())).map(|()| made)
        };
        Ok(Self(Arc::new(All {
            rtt: gauge(events::KAFKA_RTT)?,
            throttle: gauge(events::KAFKA_THROTTLE)?,
            waiting: whole(events::KAFKA_WAITING)?,
            sent: counter(events::KAFKA_SENT)?,
            received: counter(events::KAFKA_RECEIVED)?,
            errors: counter(events::KAFKA_ERRORS)?,
            queued: whole(events::KAFKA_QUEUED)?,
            lag: whole(events::KAFKA_LAG)?,
            unstable: whole(events::KAFKA_UNSTABLE)?,
            transaction: whole(events::KAFKA_TRANSACTION)?,
        })))
    }

    /// The watch over one client of a slot.
    pub fn watch(&self, client: Client, slot: &str) -> Watch {
        Watch { all: self.0.clone(), client, slot: slot.to_owned(), seen: Mutex::default() }
    }
}

/// The statistics of one client instance; what stands only for it is gone when it is dropped.
#[derive(Debug)]
pub struct Watch {
    all: Arc<All>,
    client: Client,
    slot: String,
    seen: Mutex<Seen>,
}

/// What was seen of this instance so far.
#[derive(Debug, Default)]
struct Seen {
    queued: Option<IntGauge>,
    brokers: HashMap<i32, Broker>,
    parts: HashMap<(String, i32), [IntGauge; 2]>,
    state: Option<String>,
}

/// A broker's handles, and the client's own counts as they were: they start at zero with each instance, ours go on.
#[derive(Debug)]
struct Broker {
    rtt: Gauge,
    throttle: Gauge,
    waiting: IntGauge,
    counters: [IntCounter; 5],
    counted: [u64; 5],
}

const ERRORS: [&str; 3] = ["send", "receive", "timeout"];

impl Watch {
    /// Takes one report of the client, the JSON that it makes. One that can't be read is passed over.
    pub fn take(&self, report: &[u8]) {
        match serde_json::from_slice::<Report<'_>>(report) {
            Ok(report) => self.note(&report),
            Err(e) => tracing::debug!(slot = self.slot, error = %e, "the client's statistics can't be read"),
        }
    }

    fn note(&self, report: &Report<'_>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = seen.queued.get_or_insert_with(|| self.all.queued.with_label_values(&[self.client.word(), &*self.slot]));
        queued.set(report.msg_cnt + report.replyq);
        // Bootstrap addresses are numbered below zero; they stand for brokers that are told of by their own number, too.
        for told in report.brokers.values().filter(|b| b.nodeid >= 0) {
            seen.brokers.entry(told.nodeid).or_insert_with(|| self.broker(told.nodeid)).note(told);
        }
        if self.client == Client::Consumer {
            self.partitions(&mut seen, report);
        }
        if let Some(eos) = &report.eos {
            self.transaction(&mut seen, &eos.txn_state);
        }
    }

    fn broker(&self, id: i32) -> Broker {
        let id = id.to_string();
        let labels = [self.client.word(), &*self.slot, &*id];
        let [send, receive, timeout] = ERRORS.map(|of| self.all.errors.with_label_values(&[labels[0], labels[1], labels[2], of]));
        let (sent, received) = (self.all.sent.with_label_values(&labels), self.all.received.with_label_values(&labels));
        Broker {
            rtt: self.all.rtt.with_label_values(&labels),
            throttle: self.all.throttle.with_label_values(&labels),
            waiting: self.all.waiting.with_label_values(&labels),
            counters: [sent, received, send, receive, timeout],
            counted: [0; 5],
        }
    }

    /// Of the partitions that the client reads; one that it gave back is forgotten.
    fn partitions(&self, seen: &mut Seen, report: &Report<'_>) {
        let mut gone = std::mem::take(&mut seen.parts);
        for (topic, told) in &report.topics {
            for part in told.partitions.values().filter(|p| p.partition >= 0 && p.fetch_state == "active") {
                let key = ((*topic).to_owned(), part.partition);
                let gauges = gone.remove(&key).unwrap_or_else(|| self.part(topic, part.partition));
                gauges[0].set(part.consumer_lag.max(0));
                let known = part.hi_offset >= 0 && part.ls_offset >= 0;
                gauges[1].set(if known { (part.hi_offset - part.ls_offset).max(0) } else { 0 });
                seen.parts.insert(key, gauges);
            }
        }
        gone.into_keys().for_each(|(topic, partition)| self.forget_part(&topic, partition));
    }

    fn part(&self, topic: &str, partition: i32) -> [IntGauge; 2] {
        let partition = partition.to_string();
        let labels = [&*self.slot, topic, &*partition];
        [self.all.lag.with_label_values(&labels), self.all.unstable.with_label_values(&labels)]
    }

    fn forget_part(&self, topic: &str, partition: i32) {
        let partition = partition.to_string();
        let labels = [&*self.slot, topic, &*partition];
        let _ = self.all.lag.remove_label_values(&labels);
        let _ = self.all.unstable.remove_label_values(&labels);
    }

    fn transaction(&self, seen: &mut Seen, state: &str) {
        if seen.state.as_deref() == Some(state) {
            return;
        }
        if let Some(before) = seen.state.replace(state.to_owned()) {
            let _ = self.all.transaction.remove_label_values(&[&*self.slot, &*before]);
        }
        self.all.transaction.with_label_values(&[&*self.slot, state]).set(1);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let seen = std::mem::take(self.seen.get_mut().unwrap_or_else(PoisonError::into_inner));
        seen.parts.into_keys().for_each(|(topic, partition)| self.forget_part(&topic, partition));
        if let Some(state) = seen.state {
            let _ = self.all.transaction.remove_label_values(&[&*self.slot, &*state]);
        }
        if let Some(queued) = seen.queued {
            queued.set(0);
        }
        seen.brokers.into_values().for_each(|b| b.waiting.set(0));
    }
}

impl Broker {
    fn note(&mut self, told: &BrokerReport) {
        self.rtt.set(told.rtt.avg as f64 / 1e6);
        self.throttle.set(told.throttle.avg as f64 / 1e3);
        self.waiting.set(told.outbuf_cnt + told.waitresp_cnt);
        let now = [told.txbytes, told.rxbytes, told.txerrs, told.rxerrs, told.req_timeouts];
        for ((counter, counted), now) in self.counters.iter().zip(&mut self.counted).zip(now) {
            counter.inc_by(now.saturating_sub(*counted));
            *counted = now;
        }
    }
}

// ---- what is read of a report: see STATISTICS.md of librdkafka; round trips in microseconds, throttling in milliseconds ----

#[derive(Deserialize)]
struct Report<'a> {
    #[serde(default)]
    msg_cnt: i64,
    #[serde(default)]
    replyq: i64,
    #[serde(borrow, default)]
    brokers: BTreeMap<&'a str, BrokerReport>,
    #[serde(borrow, default)]
    topics: BTreeMap<&'a str, TopicReport<'a>>,
    #[serde(borrow)]
    eos: Option<Eos<'a>>,
}

#[derive(Deserialize)]
struct BrokerReport {
    nodeid: i32,
    #[serde(default)]
    outbuf_cnt: i64,
    #[serde(default)]
    waitresp_cnt: i64,
    #[serde(default)]
    txbytes: u64,
    #[serde(default)]
    rxbytes: u64,
    #[serde(default)]
    txerrs: u64,
    #[serde(default)]
    rxerrs: u64,
    #[serde(default)]
    req_timeouts: u64,
    #[serde(default)]
    rtt: Window,
    #[serde(default)]
    throttle: Window,
}

#[derive(Deserialize, Default)]
struct Window {
    avg: i64,
}

#[derive(Deserialize)]
struct TopicReport<'a> {
    #[serde(borrow)]
    partitions: BTreeMap<&'a str, PartReport<'a>>,
}

#[derive(Deserialize)]
struct PartReport<'a> {
    partition: i32,
    fetch_state: &'a str,
    hi_offset: i64,
    ls_offset: i64,
    consumer_lag: i64,
}

#[derive(Deserialize)]
struct Eos<'a> {
    txn_state: std::borrow::Cow<'a, str>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn report(sent: u64, high: i64, state: &str) -> String {
        let broker = |id: i32| {
            serde_json::json!({ "name": "b", "nodeid": id, "outbuf_cnt": 1, "waitresp_cnt": 2, "txbytes": sent, "rxbytes": 5, "txerrs": 0,
                "rxerrs": 1, "req_timeouts": 0, "rtt": { "avg": 1500, "p99": 9 }, "throttle": { "avg": 250 }, "unknown": [1, 2] })
        };
        let part = |n: i32, fetch: &str| serde_json::json!({ "partition": n, "fetch_state": fetch, "hi_offset": high, "ls_offset": 90, "consumer_lag": 7 });
        serde_json::json!({
            "name": "rdkafka#1", "type": "consumer", "msg_cnt": 4, "replyq": 6,
            "brokers": { "b:1/1": broker(1), "b:1/bootstrap": broker(-1) },
            "topics": { "in": { "topic": "in", "partitions": { "0": part(0, "active"), "1": part(1, "none"), "-1": part(-1, "none") } } },
            "eos": { "txn_state": state, "idemp_state": "Assigned" },
        })
        .to_string()
    }

    fn text(registry: &Registry) -> String {
        prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    /// If this broke, the client's health would be a guess, a client that is made anew would count its bytes twice or backwards, and a
    /// partition that went elsewhere would be shown with its last lag for ever.
    #[test]
    fn a_report_becomes_metrics_of_its_slot() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let watch = metrics.watch(Client::Consumer, "app-000");
        watch.take(report(100, 93, "Ready").as_bytes());
        watch.take(report(140, 95, "InTransaction").as_bytes());
        let said = text(&registry);
        for line in [
            r#"readback_kafka_rtt_seconds{broker="1",client="consumer",slot="app-000"} 0.0015"#,
            r#"readback_kafka_throttle_seconds{broker="1",client="consumer",slot="app-000"} 0.25"#,
            r#"readback_kafka_requests_waiting{broker="1",client="consumer",slot="app-000"} 3"#,
            r#"readback_kafka_sent_bytes_total{broker="1",client="consumer",slot="app-000"} 140"#,
            r#"readback_kafka_errors_total{broker="1",client="consumer",of="receive",slot="app-000"} 1"#,
            r#"readback_kafka_queued_messages{client="consumer",slot="app-000"} 10"#,
            r#"readback_kafka_lag_offsets{partition="0",slot="app-000",topic="in"} 7"#,
            r#"readback_kafka_unstable_offsets{partition="0",slot="app-000",topic="in"} 5"#,
            r#"readback_kafka_transaction_state{slot="app-000",state="InTransaction"} 1"#,
        ] {
            assert!(said.contains(line), "no {line} in\n{said}");
        }
        assert!(!said.contains(r#"broker="-1""#) && !said.contains(r#"partition="1""#) && !said.contains("\"Ready\""), "{said}");
        drop(watch);
        metrics.watch(Client::Consumer, "app-000").take(report(10, 90, "Ready").as_bytes());
        assert!(text(&registry).contains(r#"sent_bytes_total{broker="1",client="consumer",slot="app-000"} 150"#));
        metrics.watch(Client::Consumer, "app-000").take(b"{ not json");
        assert!(!text(&registry).contains("readback_kafka_lag_offsets{"), "gone with the client");
    }
}
