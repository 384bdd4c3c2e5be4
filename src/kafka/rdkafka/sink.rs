//! A transactional producer in a slot. It has no polling thread: its owner serves the reports while it flushes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, Producer as _};

use super::context::Context;
use super::patience::Patience;
use super::raw::{self, Outlet, Report, Reports};
use super::{RdCluster, convert};
use crate::ids::{Partition, SlotName, Tp};
use crate::kafka::{Class, KResult, KafkaFault, SlotMark, TxLimits, TxSink};
use crate::offset::NextOffset;
use crate::record::OutRecord;
use crate::time::{Clock as _, SystemClock, WallTime};

/// How long one call to become the only producer of the slot waits.
const INIT_SLICE: Duration = Duration::from_millis(500);
/// How long the client is told to send without lingering. Its shortest time.
const NUDGE: Duration = Duration::from_millis(1);
/// How long the first answer is waited for before the client is told again: it may not have been allowed to send yet, while the broker
/// did not know of the partition's part in the transaction.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest of these waits; each is twice the one before.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);
/// So few are with the broker already: one request of a partition holds more.
const FEW: i32 = 1_000;
/// How often it is looked whether something was acknowledged, where nobody reports it.
const LOOK: Duration = Duration::from_micros(500);
/// Reports are served at least every so many records, so that the client's own count stays low.
const SERVE_EVERY: u32 = 1024;
/// How much longer than the client's own limit its calls are waited for.
const GRACE: Duration = Duration::from_secs(1);

/// A transactional producer.
pub struct RdSink {
    name: SlotName,
    limits: TxLimits,
    sent: u32,
    seen: Seen,
    reports: Reports,
    outlet: Outlet,
    producer: Arc<BaseProducer<Context>>,
    patience: Patience,
}

/// What the reports said.
#[derive(Default)]
struct Seen {
    written: Vec<(Tp, NextOffset)>,
    /// Where the last report was noted: reports come in batches of a partition.
    last: usize,
    /// The first refusal since the transaction began.
    refused: Option<(Class, String)>,
    /// Whether some topic refused the time of a record since the transaction began.
    time_refused: bool,
    /// Topics that refused the time of some record.
    times: Vec<(String, Times)>,
}

/// Which times of records a topic gets; the others are replaced by the time of sending. A record's time comes from its input, which
/// may have been written under other limits (C032).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Times {
    /// Those that have passed.
    Past,
    /// None.
    Sending,
}

impl Seen {
    fn take(&mut self, report: &Report<'_>) {
        match report.error {
            Some(code) => {
                let why = || (convert::class_of_report(code), format!("{}-{}: {code:?}", report.topic, report.partition));
                // Once a transaction, and not only where it comes first: the good records of its batch are reported as refused, too. A
                // refused time is told by either code, as the batch falls.
                let of_time = matches!(code, RDKafkaErrorCode::InvalidTimestamp | RDKafkaErrorCode::InvalidRecord);
                if of_time && !self.time_refused {
                    self.time_refused = true;
                    self.refuses_time(report.topic);
                }
                self.refused.get_or_insert_with(why);
            }
            None if report.offset >= 0 => {
                let next = NextOffset(report.offset + 1);
                let at = self.noted(report.topic, report.partition);
                *at = next.max(*at);
            }
            None => {}
        }
    }

    fn refuses_time(&mut self, topic: &str) {
        match self.times.iter_mut().find(|(t, _)| t == topic) {
            Some((_, times)) => *times = Times::Sending,
            None => self.times.push((topic.to_owned(), Times::Past)),
        }
        tracing::warn!(topic, times = ?self.times.last(), "the topic refuses the time of a record; it is sent with its time of sending");
    }

    /// The time that a record is sent with.
    fn time_of(&self, record: &OutRecord<'_>) -> Option<WallTime> {
        match self.times.iter().find(|(t, _)| *t == record.topic.as_str()) {
            None => record.timestamp,
            Some((_, Times::Past)) => record.timestamp.filter(|t| *t <= SystemClock.now().wall),
            Some((_, Times::Sending)) => None,
        }
    }

    /// What is known of a partition; a topic's name is allocated at the first report only.
    fn noted(&mut self, topic: &str, partition: i32) -> &mut NextOffset {
        let here = |(tp, _): &(Tp, NextOffset)| tp.partition.0 == partition && tp.topic.as_str() == topic;
        if !self.written.get(self.last).is_some_and(here) {
            self.last = self.written.iter().position(here).unwrap_or_else(|| {
                self.written.push((Tp::new(topic, partition), NextOffset(0)));
                self.written.len() - 1
            });
        }
        &mut self.written[self.last].1
    }
}

impl RdSink {
    pub(super) fn new(cluster: &RdCluster, name: &SlotName, limits: TxLimits) -> KResult<Self> {
        let warm = cluster.0.warm.producer(name);
        let producer = warm.map_or_else(|| cluster.make_sender(name, limits), Ok)?;
        let (reports, outlet) = (Reports::of(producer.client()), Outlet::of(producer.client()));
        let (name, producer) = (name.clone(), Arc::new(producer));
        Ok(Self { name, limits, sent: 0, seen: Seen::default(), reports, outlet, producer, patience: Patience::default() })
    }

    fn fault(&self, doing: &'static str, e: &KafkaError) -> KafkaFault {
        convert::fault(self.producer.client(), doing, &self.name, e)
    }

    /// Takes every report that is there.
    fn serve(&mut self) {
        self.producer.context().keep(self.producer.client());
        while self.serve_one(Duration::ZERO) {}
    }

    fn serve_one(&mut self, wait: Duration) -> bool {
        let seen = &mut self.seen;
        self.reports.serve(wait, &mut |r| seen.take(&r))
    }

    /// Sends what is queued without lingering and waits until every record is delivered or refused. False when the time is up.
    ///
    /// The client is told in short nudges, after answers and pauses: while it is told, and one request of a partition is under way, it
    /// looks for the next one without a pause, which took a third of a member's CPU.
    fn settle(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut pause = PAUSE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.serve();
            if self.producer.in_flight_count() == 0 || self.flushed(NUDGE.min(left)) {
                // A refusal may have come while we waited.
                self.serve();
                return true;
            }
            if left.is_zero() {
                return false;
            }
            self.answered(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until all is settled, or until something is while much still waits, at most `limit`.
    fn answered(&mut self, limit: Duration) {
        let (until, open) = (Instant::now() + limit, self.producer.in_flight_count());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match () {
                () if left.is_zero() => return,
                () if self.limits.reports => _ = self.serve_one(left),
                () => std::thread::sleep(LOOK.min(left)),
            }
            let now = self.producer.in_flight_count();
            if now == 0 || (now < open && now > FEW) {
                return;
            }
        }
    }

    fn flushed(&self, limit: Duration) -> bool {
        raw::flush(self.producer.client(), limit)
    }

    /// Repeats a call that can be resumed, until it is done, fails for good, or the time is up.
    fn resumed(
        &self,
        doing: &'static str,
        limit: Duration,
        mut call: impl FnMut(&BaseProducer<Context>, Duration) -> Result<(), KafkaError>,
    ) -> KResult<()> {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let Err(e) = call(&self.producer, left) else { return Ok(()) };
            let fault = self.fault(doing, &e);
            if fault.class != Class::Retry || Instant::now() >= until {
                return Err(fault);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl TxSink for RdSink {
    type Stamp = Arc<ConsumerGroupMetadata>;

    fn init(&mut self) -> KResult<()> {
        // In short slices: the owner must look after its consumer meanwhile. The call resumes where it stood.
        let done = self.producer.init_transactions(INIT_SLICE);
        self.serve();
        done.map_err(|e| self.fault("init_transactions", &e))
    }

    fn begin(&mut self) -> KResult<()> {
        self.serve();
        if self.producer.context().is_outdated() {
            // Between two transactions nothing is lost by it; a connection that breaks later could not be made again.
            return Err(KafkaFault::new(
                Class::Rebuild,
                "begin",
                &self.name,
                "a certificate was replaced: a new client takes over",
            ));
        }
        (self.seen.refused, self.seen.time_refused) = (None, false);
        self.producer.begin_transaction().map_err(|e| self.fault("begin", &e))
    }

    fn send(&mut self, record: OutRecord<'_>) -> KResult<()> {
        self.sent = self.sent.wrapping_add(1);
        if self.sent.is_multiple_of(SERVE_EVERY) {
            self.serve();
        }
        let record = OutRecord { timestamp: self.seen.time_of(&record), ..record };
        let mut sent = self.outlet.send(&record, 0);
        if sent == Err(RDKafkaErrorCode::QueueFull) {
            self.serve_one(Duration::from_millis(100));
            self.serve();
            sent = self.outlet.send(&record, 0);
        }
        sent.map_err(|e| convert::fault(self.producer.client(), "sending", record.topic, &KafkaError::MessageProduction(e)))
    }

    fn flush(&mut self, limit: Duration) -> KResult<()> {
        if !self.settle(limit) {
            let timed_out = KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut);
            let mut fault = self.fault("flush", &timed_out);
            if fault.class == Class::Retry {
                // Records are still under way: the transaction can't be committed in time.
                fault.class = Class::Abort;
            }
            return Err(fault);
        }
        match (self.seen.refused.take(), self.producer.client().fatal_error()) {
            (None, None) => Ok(()),
            (refused, Some((code, _))) => {
                let (class, why) = refused.unwrap_or((Class::Rebuild, String::new()));
                let fault = self.fault("flush", &KafkaError::Flush(code));
                let class = if class == Class::Config { class } else { fault.class };
                Err(KafkaFault { class, detail: format!("{} {why}", fault.detail), ..fault })
            }
            (Some((class, why)), None) => Err(KafkaFault::new(class, "flush", &self.name, why)),
        }
    }

    fn offsets(&mut self, next: &[(Tp, NextOffset)], mark: &SlotMark, by: &Self::Stamp) -> KResult<()> {
        let list = convert::positions(next.iter().map(|(tp, at)| (tp, *at)))?;
        for mut element in list.elements() {
            if !mark.0.is_empty() {
                element.set_metadata(&mark.0);
            }
        }
        let (producer, by, limit) = (Arc::clone(&self.producer), Arc::clone(by), self.limits.transaction);
        let call = move || producer.send_offsets_to_transaction(&list, &by, limit);
        match self.patience.call(limit + GRACE, call) {
            Some(done) => done.map_err(|e| self.fault("send_offsets", &e)),
            // By then the broker has ended the transaction. A new producer fences this one, which stays with its call.
            None => {
                Err(KafkaFault::new(Class::Rebuild, "send_offsets", &self.name, "the client did not come back; it is replaced"))
            }
        }
    }

    fn commit(&mut self, limit: Duration) -> KResult<()> {
        self.flush(limit)?;
        self.resumed("commit", limit, |p, left| p.commit_transaction(left)).map_err(|fault| match fault.class {
            Class::Retry => KafkaFault { class: Class::OutcomeUnknown, ..fault },
            _ => fault,
        })
    }

    fn abort(&mut self, limit: Duration) -> KResult<()> {
        let rebuild = |fault: KafkaFault| match fault.class {
            Class::Retry | Class::Abort => KafkaFault { class: Class::Rebuild, ..fault },
            _ => fault,
        };
        // Never over undelivered messages: with many under way that turns fatal within a few rounds.
        if !self.settle(limit) {
            return Err(rebuild(self.fault("flush before abort", &KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut))));
        }
        self.seen.refused = None;
        self.resumed("abort", limit, |p, left| p.abort_transaction(left)).map_err(rebuild)
    }

    fn written(&self, tp: &Tp) -> Option<NextOffset> {
        self.seen.written.iter().find(|(at, _)| at == tp).map(|(_, next)| *next)
    }
}

/// Sends by a plain idempotent producer and waits for the acknowledgement of all.
pub(super) fn publish(cluster: &RdCluster, records: &[OutRecord<'_>], limit: Duration) -> KResult<Vec<(Partition, NextOffset)>> {
    const DOING: &str = "publishing";
    let name = "readback-publish";
    let producer = cluster.make_producer("creating the producer", name, &cluster.producer(name), None)?;
    let (reports, mut outlet) = (Reports::of(producer.client()), Outlet::of(producer.client()));
    let until = Instant::now() + limit;
    let mut done: Vec<Option<(Partition, NextOffset)>> = vec![None; records.len()];
    let mut open = records.len();
    let mut refused = None;
    let mut serve = |wait: Duration, open: &mut usize| {
        reports.serve(wait, &mut |r| match r.error {
            Some(code) => refused = Some(KafkaFault::new(convert::class_of_report(code), DOING, r.topic, format!("{code:?}"))),
            None => {
                *open = open.saturating_sub(1);
                if let Some(place) = done.get_mut(r.tag) {
                    *place = Some((Partition(r.partition), NextOffset(r.offset + 1)));
                }
            }
        });
        refused.take().map_or(Ok(()), Err)
    };
    let late = |to: &dyn std::fmt::Display| KafkaFault::new(Class::Retry, DOING, to, "not acknowledged in time");
    for (tag, record) in records.iter().enumerate() {
        loop {
            match outlet.send(record, tag) {
                Ok(()) => break,
                Err(RDKafkaErrorCode::QueueFull) if Instant::now() < until => {
                    serve(Duration::from_millis(50), &mut open)?;
                }
                Err(e) => {
                    return Err(convert::fault(producer.client(), DOING, record.topic, &KafkaError::MessageProduction(e)));
                }
            }
        }
    }
    while open > 0 {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(&cluster.config().brokers).refused(producer.context().refusal()));
        }
        serve(left.min(Duration::from_millis(100)), &mut open)?;
    }
    Ok(done.into_iter().flatten().collect())
}
