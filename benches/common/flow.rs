//! Records at a steady rate, and when they come out: from outside, by committed records only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::{Ground, producer, send};

/// Microseconds since the run began.
pub fn now(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}

/// Sends at a steady rate until dropped; each record carries when it was sent.
pub struct Feed {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    pub fn start(ground: &Ground, topic: &str, rate: u64, began: Instant) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, producer, topic) = (stop.clone(), producer(&ground.brokers, 0), topic.to_owned());
        let run = move || {
            let (start, mut sent) = (Instant::now(), 0);
            while !told.load(Ordering::Acquire) {
                let due = (start.elapsed().as_secs_f64() * rate as f64) as u64;
                while sent < due {
                    send(
                        &producer,
                        &topic,
                        &format!("k-{}", sent % 1000),
                        &format!(r#"{{"at":{},"n":{sent}}}"#, now(began) as u64),
                    );
                    sent += 1;
                }
                std::thread::sleep(Duration::from_micros(500));
            }
        };
        Self { stop, thread: Some(std::thread::spawn(run)) }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// One record that was seen: partition, when it was sent (0 where it does not say), when it came.
type Sighting = (i32, f64, f64);

/// Reads a topic, committed records only, and notes when each record came.
pub struct Watch {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Sighting>>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub fn start(ground: &Ground, topic: &str, began: Instant) -> Self {
        Self::of(watching(ground, topic, Offset::Beginning), began)
    }
    /// Of what comes from now on.
    pub fn from_here(ground: &Ground, topic: &str, began: Instant) -> Self {
        Self::of(watching(ground, topic, Offset::End), began)
    }

    fn of(consumer: BaseConsumer, began: Instant) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (told, kept) = (stop.clone(), seen.clone());
        let run = move || {
            while !told.load(Ordering::Acquire) {
                let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) else { continue };
                let came = now(began);
                let value: serde_json::Value = serde_json::from_slice(message.payload().unwrap_or_default()).unwrap_or_default();
                let sent = value["at"].as_f64().unwrap_or_default();
                kept.lock().expect("sightings").push((message.partition(), sent, came));
            }
        };
        Self { stop, seen, thread: Some(std::thread::spawn(run)) }
    }

    /// How long the records took that were sent in between, in microseconds.
    pub fn took(&self, from: f64, to: f64) -> Vec<f64> {
        let seen = self.seen.lock().expect("sightings");
        seen.iter().filter(|(_, sent, _)| *sent > 0.0 && (from..to).contains(sent)).map(|(_, sent, came)| came - sent).collect()
    }

    /// The longest time between two records of a partition, in microseconds.
    pub fn longest_gap(&self, partition: i32, from: f64, to: f64) -> f64 {
        let seen = self.seen.lock().expect("sightings");
        let came = seen.iter().filter(|(p, _, came)| *p == partition && (from..to).contains(came)).map(|(_, _, came)| *came);
        let points: Vec<f64> = [from].into_iter().chain(came).chain([to]).collect();
        points.windows(2).map(|w| w[1] - w[0]).fold(0.0, f64::max)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Reads a topic, committed records only.
pub fn watching(ground: &Ground, topic: &str, from: Offset) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &ground.brokers)
        .set("group.id", format!("{topic}-watch"))
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("fetch.wait.max.ms", "50")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..4 {
        list.add_partition_offset(topic, partition, from).expect("a position");
    }
    consumer.assign(&list).expect("assigned");
    consumer
}
