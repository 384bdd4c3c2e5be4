//! `cargo bench --bench passthrough [-- --records N --rounds R]`: topic to topic in transactions, Readback against a bare client
//! loop with the same client settings, on the same broker and input, in turns.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Arguments, Ground, child, keep, machine, median, steady, table};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};
use readback::app::Process;
use readback::config::ProcessConfig;
use readback::dsl::{Consumed, Produced, StreamsBuilder};
use readback::serdes::Serdes;
use serde_json::json;

/// Both sides commit so long after the last commit ended.
const INTERVAL: Duration = Duration::from_millis(100);

fn main() {
    let arguments = Arguments::read();
    match arguments.text("child") {
        Some("bare") => bare(&arguments),
        Some("readback") => ours(&arguments),
        Some(other) => panic!("no such child: {other}"),
        None => compare(&arguments),
    }
}

fn compare(arguments: &Arguments) {
    let (records, rounds) = (arguments.number("records", 2_000_000), arguments.number("rounds", 2));
    let machine = machine();
    let ground = Ground::prepare("passthrough");
    let input = ground.topic("in");
    ground.fill(&input, records, &|i| {
        let key = format!("key-{:06}", i.wrapping_mul(2_654_435_761) % 100_000);
        let value = format!(r#"{{"id":{i},"customer":"{key}","amount":{},"note":"{}"}}"#, i % 977, "x".repeat(130));
        (key, value)
    });
    let total = records.to_string();
    let sides = ["bare", "readback"];
    let only = arguments.text("only");
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (side, runs) in sides.iter().zip(&mut runs).filter(|(s, _)| only.is_none_or(|o| o == **s)) {
            let output = ground.topic(&format!("out-{side}-{round}"));
            let dir = ground.dir.join(format!("{side}-{round}"));
            let run = child(&[
                ("child", side),
                ("brokers", &ground.brokers),
                ("input", &input),
                ("output", &output),
                ("records", &total),
                ("dir", &dir.display().to_string()),
            ]);
            println!("{side}: {run}");
            keep("passthrough", &json!({ "side": side, "round": round, "machine": machine, "run": run }));
            runs.push(run);
        }
    }
    let row = |name: &str, member: &str, unit: f64, digits: usize| {
        let [bare, ours] = [median(&runs[0], member), median(&runs[1], member)];
        vec![
            name.to_owned(),
            format!("{:.digits$}", bare / unit),
            format!("{:.digits$}", ours / unit),
            format!("{:.2}", ours / bare),
        ]
    };
    println!("\n{records} records, {rounds} runs of each in turns, medians; {machine}");
    table(
        &["passthrough, 1 thread", "bare client loop", "Readback", "ratio"],
        &[row("k records/s", "per_second", 1e3, 0), row("CPU µs a record", "cpu_us", 1.0, 2), row("peak RSS MB", "rss_mb", 1.0, 0)],
    );
}

/// Readback as a user runs it: built, composed, run; counted by its own metric of what was committed.
fn ours(arguments: &Arguments) {
    let (input, output) = (arguments.need("input").to_owned(), arguments.need("output").to_owned());
    let builder = StreamsBuilder::new(output.as_str());
    let key = || Serdes::optional(Serdes::bytes());
    builder.stream(input, Consumed::with(key(), Serdes::bytes())).to(output, Produced::with(key(), Serdes::bytes()));
    let application = builder.build().unwrap_or_else(|d| panic!("{d}"));
    let mut config = ProcessConfig { brokers: arguments.need("brokers").to_owned(), ..ProcessConfig::default() };
    config.state.dir = arguments.need("dir").into();
    config.slots.ordinal = Some(0);
    config.group.commit_interval.0 = INTERVAL;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let metrics = prometheus::Registry::new();
    let stop = Arc::new(AtomicBool::new(false));
    let process = Process::start(&application, &config, &metrics, runtime.handle(), &stop, &|e| eprintln!("{e}"));
    let process = process.unwrap_or_else(|e| panic!("{e}")).expect("it was not told to stop");
    let told = stop.clone();
    let running = std::thread::spawn(move || drop(process.run(&told, &|_, _| {})));
    let written = || {
        let families = metrics.gather();
        let of = families.iter().filter(|f| f.name() == "readback_records_written_total");
        of.flat_map(|f| f.get_metric()).map(|m| m.get_counter().get_value() as u64).sum()
    };
    println!("{}", steady(arguments.number("records", 0), &written));
    stop.store(true, Ordering::Release);
    running.join().expect("it stops");
}

/// The least that a correct processor does by hand: poll, produce, flush, offsets, commit.
fn bare(arguments: &Arguments) {
    let total = arguments.number("records", 0);
    let done = Arc::new(AtomicU64::new(0));
    let (counted, brokers) = (done.clone(), arguments.need("brokers").to_owned());
    let (input, output) = (arguments.need("input").to_owned(), arguments.need("output").to_owned());
    let running = std::thread::spawn(move || bare_loop(&brokers, &input, &output, total, &counted));
    println!("{}", steady(total, &|| done.load(Ordering::Acquire)));
    running.join().expect("it ends");
}

fn bare_loop(brokers: &str, input: &str, output: &str, total: u64, done: &AtomicU64) {
    let (consumer, producer) = bare_clients(brokers, output);
    consumer.subscribe(&[input]).expect("subscribed");
    producer.init_transactions(Duration::from_secs(10)).expect("initialised");
    let mut next: Vec<i64> = vec![-1; 4];
    let (mut since, mut ended, mut through) = (0, Instant::now(), 0);
    while through < total {
        match consumer.poll(Duration::from_millis(if since == 0 { 100 } else { 0 })) {
            Some(Ok(message)) => {
                if since == 0 {
                    producer.begin_transaction().expect("begun");
                }
                copy(&producer, output, &message);
                next[message.partition() as usize] = message.offset() + 1;
                since += 1;
            }
            Some(Err(e)) => panic!("{e}"),
            None => {}
        }
        let last = through + since == total;
        if since > 0 && (last || (since % 256 == 0 && ended.elapsed() >= INTERVAL)) {
            commit(&consumer, &producer, input, &next);
            through += since;
            (since, ended) = (0, Instant::now());
            done.store(through, Ordering::Release);
        }
    }
}

fn bare_clients(brokers: &str, name: &str) -> (BaseConsumer, ThreadedProducer<DefaultProducerContext>) {
    let consumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", name)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        .set("fetch.queue.backoff.ms", "1")
        .set("queued.min.messages", "5000")
        .set("queued.max.messages.kbytes", "4096")
        .create()
        .expect("a consumer");
    let producer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("transactional.id", name)
        .set("linger.ms", "5")
        .set("partitioner", "murmur2_random")
        .set("delivery.report.only.error", "true")
        .create()
        .expect("a producer");
    (consumer, producer)
}

fn copy(producer: &ThreadedProducer<DefaultProducerContext>, output: &str, message: &rdkafka::message::BorrowedMessage<'_>) {
    loop {
        let mut out: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(output);
        out.key = message.key();
        out.payload = message.payload();
        out.timestamp = message.timestamp().to_millis();
        match producer.send(out) {
            Ok(()) => return,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => std::thread::sleep(Duration::from_micros(200)),
            Err((e, _)) => panic!("{e}"),
        }
    }
}

/// The wrapper's own flush and commit wait in slices of 100 ms; a raw flush first makes both quick.
fn commit(consumer: &BaseConsumer, producer: &ThreadedProducer<DefaultProducerContext>, input: &str, next: &[i64]) {
    // SAFETY: the client lives during the call, which is thread-safe.
    #[allow(unsafe_code)]
    unsafe {
        rdkafka::bindings::rd_kafka_flush(producer.client().native_ptr(), 10_000);
    }
    let mut list = TopicPartitionList::new();
    for (partition, at) in next.iter().enumerate().filter(|(_, at)| **at >= 0) {
        list.add_partition_offset(input, partition as i32, Offset::Offset(*at)).expect("a position");
    }
    let stamp = consumer.group_metadata().expect("a member");
    producer.send_offsets_to_transaction(&list, &stamp, Duration::from_secs(10)).expect("offsets");
    producer.commit_transaction(Duration::from_secs(10)).expect("committed");
}
