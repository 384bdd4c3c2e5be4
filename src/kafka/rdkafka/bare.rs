//! The least that a correct processor does by hand: poll, produce, flush, offsets, commit. The yardstick of benches; nothing else
//! uses it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};

use super::{RdCluster, convert, raw};
use crate::ids::TopicName;
use crate::kafka::KResult;

const LIMIT: Duration = Duration::from_secs(10);
const COPYING: &str = "copying by a bare client";
const FEEDING: &str = "feeding a topic";

type Plain = ThreadedProducer<DefaultProducerContext>;

/// What a bare loop copies.
#[derive(Clone, Debug)]
pub struct Copy {
    /// From here, to its group's name.
    pub input: TopicName,
    /// How many partitions that has.
    pub partitions: u32,
    /// To here; also the name of group and transactional id.
    pub output: TopicName,
    /// So many records.
    pub total: u64,
    /// Commits so long after the last commit ended.
    pub interval: Duration,
}

/// A plain producer that places keys as Java does.
pub struct Feed(Plain);

impl Feed {
    /// Queues one record, waiting while the queue is full.
    ///
    /// # Errors
    /// What the client says.
    pub fn send(&self, topic: &str, key: &str, value: &str) -> KResult<()> {
        let mut record = BaseRecord::to(topic).key(key).payload(value);
        loop {
            match self.0.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((e, _)) => return Err(convert::clientless(FEEDING, topic, &e)),
            }
        }
    }
    /// Waits until all are written.
    ///
    /// # Errors
    /// What the client says.
    pub fn flush(&self, limit: Duration) -> KResult<()> {
        self.0.flush(limit).map_err(|e| convert::clientless(FEEDING, "the broker", &e))
    }
}

impl RdCluster {
    /// A plain producer that waits so long for more to send together.
    ///
    /// # Errors
    /// Where the client can't be made.
    pub fn feed(&self, linger: Duration) -> KResult<Feed> {
        let mut settings = self.base("readback-feed");
        settings.set("linger.ms", linger.as_millis().to_string()).set("partitioner", "murmur2_random");
        settings.set("delivery.report.only.error", "true");
        settings.create().map(Feed).map_err(|e| super::creation("creating a producer", "readback-feed", &e))
    }

    /// Copies records from topic to topic in transactions by a hand-written loop; `done` counts what is committed.
    ///
    /// # Errors
    /// What the client says.
    pub fn copy_bare(&self, copy: &Copy, done: &AtomicU64) -> KResult<()> {
        let (consumer, producer) = self.bare_clients(copy)?;
        let said = |e: KafkaError| convert::clientless(COPYING, &copy.output, &e);
        consumer.subscribe(&[copy.input.as_str()]).map_err(said)?;
        producer.init_transactions(LIMIT).map_err(said)?;
        let mut next: Vec<i64> = vec![-1; copy.partitions as usize];
        let (mut since, mut ended, mut through) = (0, Instant::now(), 0);
        while through < copy.total {
            match consumer.poll(Duration::from_millis(if since == 0 { 100 } else { 0 })) {
                Some(Ok(message)) => {
                    if since == 0 {
                        producer.begin_transaction().map_err(said)?;
                    }
                    one(&producer, &copy.output, &message).map_err(said)?;
                    if let Some(at) = next.get_mut(usize::try_from(message.partition()).unwrap_or(usize::MAX)) {
                        *at = message.offset() + 1;
                    }
                    since += 1;
                }
                Some(Err(e)) => return Err(said(e)),
                None => {}
            }
            let last = through + since == copy.total;
            if since > 0 && (last || (since % 256 == 0 && ended.elapsed() >= copy.interval)) {
                commit(&consumer, &producer, &copy.input, &next).map_err(said)?;
                through += since;
                (since, ended) = (0, Instant::now());
                done.store(through, Ordering::Release);
            }
        }
        Ok(())
    }

    fn bare_clients(&self, copy: &Copy) -> KResult<(BaseConsumer, Plain)> {
        let name = copy.output.as_str();
        let made = |e: KafkaError| super::creation("creating a bare client", name, &e);
        let consumer = self
            .base(name)
            .set("group.id", name)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", "read_committed")
            .set("fetch.queue.backoff.ms", "1")
            .set("queued.min.messages", "5000")
            .set("queued.max.messages.kbytes", "4096")
            .create()
            .map_err(made)?;
        let producer = self
            .base(name)
            .set("transactional.id", name)
            .set("linger.ms", "5")
            .set("partitioner", "murmur2_random")
            .set("delivery.report.only.error", "true")
            .create()
            .map_err(made)?;
        Ok((consumer, producer))
    }
}

fn one(producer: &Plain, output: &TopicName, message: &BorrowedMessage<'_>) -> Result<(), KafkaError> {
    loop {
        let mut out: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(output.as_str());
        out.key = message.key();
        out.payload = message.payload();
        out.timestamp = message.timestamp().to_millis();
        match producer.send(out) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => std::thread::sleep(Duration::from_micros(200)),
            Err((e, _)) => return Err(e),
        }
    }
}

/// The wrapper's own flush and commit wait in slices of 100 ms; a raw flush first makes both quick.
fn commit(consumer: &BaseConsumer, producer: &Plain, input: &TopicName, next: &[i64]) -> Result<(), KafkaError> {
    raw::flush(producer.client(), LIMIT);
    let mut list = TopicPartitionList::new();
    for (partition, at) in next.iter().enumerate().filter(|(_, at)| **at >= 0) {
        list.add_partition_offset(input.as_str(), i32::try_from(partition).unwrap_or(i32::MAX), Offset::Offset(*at))?;
    }
    let stamp = consumer.group_metadata().ok_or(KafkaError::Canceled)?;
    producer.send_offsets_to_transaction(&list, &stamp, LIMIT)?;
    producer.commit_transaction(LIMIT)
}
