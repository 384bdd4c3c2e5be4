//! What the benches share: arguments, a real broker, feeding and reading, processes measured from outside, tables and raw data.
//!
//! Every figure is one side of a pair that was measured in the same run on the same machine: read the ratios.
#![allow(dead_code, unused_imports, clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
pub use readback::bench::measure::{cpu_of_self, quantile};
use readback::demo::stack::{Stack, StackOptions};
use readback::ids::TopicName;
use readback::kafka::rdkafka::{RdCluster, RdConfig};
use readback::kafka::{Cluster as _, NewTopic};
use serde_json::Value;

pub mod flow;
pub mod process;

/// As the program has it.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `--name value` pairs; cargo's own `--bench` is skipped.
pub struct Arguments(BTreeMap<String, String>);

impl Arguments {
    pub fn read() -> Self {
        let mut found = BTreeMap::new();
        let mut words = std::env::args().skip(1).filter(|w| w != "--bench");
        while let Some(word) = words.next() {
            if let Some(name) = word.strip_prefix("--") {
                found.insert(name.to_owned(), words.next().unwrap_or_default());
            }
        }
        Self(found)
    }
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
    pub fn need(&self, name: &str) -> &str {
        self.text(name).unwrap_or_else(|| panic!("--{name} is missing"))
    }
    pub fn number(&self, name: &str, default: u64) -> u64 {
        self.text(name).map_or(default, |t| t.replace('_', "").parse().unwrap_or_else(|_| panic!("--{name} {t} is no number")))
    }
}

/// A broker, and names that no earlier run had.
pub struct Ground {
    pub brokers: String,
    pub run: String,
    pub dir: PathBuf,
    pub cluster: RdCluster,
    _stack: Stack,
}

impl Ground {
    pub fn prepare(bench: &str) -> Self {
        let stack = Stack::up(&StackOptions::from_env().expect("the stack's settings")).unwrap_or_else(|e| panic!("{e}"));
        let run = format!("{bench}-{}", SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs());
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&run);
        std::fs::create_dir_all(&dir).expect("a directory");
        let brokers = stack.brokers().to_owned();
        let cluster = RdCluster::new(RdConfig::new(&brokers)).expect("a cluster");
        Self { brokers, run, dir, cluster, _stack: stack }
    }

    /// A new topic of four partitions.
    pub fn topic(&self, short: &str) -> String {
        let name = format!("{}-{short}", self.run);
        let new = NewTopic { name: TopicName::new(&name), partitions: 4, replication: -1, config: BTreeMap::new() };
        self.cluster.admin().and_then(|a| a.create(&[new])).unwrap_or_else(|e| panic!("{e}"));
        name
    }

    /// Deletes a topic that is no longer looked at: what is big does not stay.
    pub fn forget(&self, topic: &str) {
        let _ = self.cluster.admin().and_then(|a| a.delete(&[TopicName::new(topic)]));
    }

    /// Writes `count` records as fast as it goes.
    pub fn fill(&self, topic: &str, count: u64, record: &dyn Fn(u64) -> (String, String)) {
        let producer = producer(&self.brokers, 20);
        for i in 0..count {
            let (key, value) = record(i);
            send(&producer, topic, &key, &value);
        }
        producer.flush(Duration::from_secs(60)).expect("all are written");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // What went wrong stands in the members' logs.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

pub type Producer = ThreadedProducer<DefaultProducerContext>;

/// A plain producer that places keys as Java does.
pub fn producer(brokers: &str, linger_ms: u32) -> Producer {
    ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("linger.ms", linger_ms.to_string())
        .set("partitioner", "murmur2_random")
        .set("delivery.report.only.error", "true")
        .create()
        .expect("a producer")
}

/// Sends one record, waiting while the queue is full.
pub fn send(producer: &Producer, topic: &str, key: &str, value: &str) {
    queue(producer, BaseRecord::to(topic).key(key).payload(value));
}

/// The same with its time, in milliseconds since 1970.
pub fn send_at(producer: &Producer, topic: &str, key: &str, value: &str, at: i64) {
    queue(producer, BaseRecord::to(topic).key(key).payload(value).timestamp(at));
}

fn queue<'a>(producer: &Producer, mut record: BaseRecord<'a, str, str>) {
    while let Err((why, back)) = producer.send(record) {
        match why {
            KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) => std::thread::sleep(Duration::from_millis(1)),
            why => panic!("{why}"),
        }
        record = back;
    }
}

/// Runs this very program with other arguments and answers the JSON of its last line.
pub fn child(arguments: &[(&str, &str)]) -> Value {
    let words = arguments.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]);
    let done = Command::new(std::env::current_exe().expect("this program"))
        .args(words)
        .stderr(Stdio::inherit())
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&done.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{arguments:?} ended with {}: {e}", done.status))
}

/// Keeps raw data under `target/bench/`, one JSON a line.
pub fn keep(bench: &str, data: &Value) {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").join("bench");
    std::fs::create_dir_all(&dir).expect("a directory");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(dir.join(format!("{bench}.jsonl")));
    writeln!(file.expect("raw data"), "{data}").expect("raw data");
}

/// The median of a member over several runs.
pub fn median(runs: &[Value], member: &str) -> f64 {
    quantile(&mut runs.iter().filter_map(|r| r[member].as_f64()).collect::<Vec<_>>(), 0.5)
}

/// Prints a table in Markdown.
pub fn table<T: Display>(head: &[&str], rows: &[Vec<T>]) {
    println!("\n| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        println!("| {} |", row.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "));
    }
}

/// Draws values as bars, the longest one fifty characters.
pub fn bars(title: &str, values: &[(&str, f64)]) {
    let most = values.iter().map(|(_, v)| *v).fold(f64::MIN_POSITIVE, f64::max);
    let wide = values.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    println!("\n{title}");
    for (name, value) in values {
        println!("  {name:wide$} {} {value:.1}", "█".repeat((value / most * 50.0).round() as usize));
    }
}

/// The machine in plain words.
pub fn machine() -> String {
    format!("{}, broker and target on the same machine", readback::bench::measure::machine())
}
