//! `cargo bench --bench streams [-- --records N --rounds R --rows a,b,…]`: Readback against Kafka Streams 4.4 under exactly_once_v2,
//! as it comes and as its users tune it: the same topologies, broker and input, in turns, each side a process watched from outside.
//!
//! Rows: passthrough, count, windowed, latency, start (with idle), kill.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod apps;
mod side;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::flow::{Feed, Watch, now, watching};
use common::process::{cpu_of, idle_cpu, status_mb};
use common::{Arguments, Ground, bars, keep, machine, median, producer, quantile, send, send_at, table};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use readback::bench::passthrough;
use serde_json::{Value, json};
use side::{App, Running, Side};

const ROWS: &str = "passthrough,count,windowed,latency,start,kill";

fn main() {
    let arguments = Arguments::read();
    if arguments.text("app").is_some() {
        return apps::run(&arguments);
    }
    let (records, rounds) = (arguments.number("records", 12_000_000), arguments.number("rounds", 1));
    let machine = machine();
    let ground = Ground::prepare("streams");
    println!("Readback, one stream thread, against Kafka Streams 4.4.0 (exactly_once_v2), one thread; {machine}");
    let mut input = None;
    for row in arguments.text("rows").unwrap_or(ROWS).split(',') {
        let mut bench = Bench { ground: &ground, machine: &machine, rounds, row };
        match row {
            "passthrough" | "count" | "windowed" => {
                let input = input.get_or_insert_with(|| fill(&ground, records, 100_000));
                bench.throughput(input, records);
            }
            "latency" => bench.latency(arguments.number("seconds", 20)),
            "start" => bench.start(),
            "kill" => bench.kill(arguments.number("keys", 2_000_000)),
            other => panic!("no such row: {other}; there are {ROWS}"),
        }
    }
}

/// Records of about 200 bytes over ten minutes of event time, keys in no order.
fn fill(ground: &Ground, records: u64, keys: u64) -> String {
    let topic = ground.topic(&format!("in-{keys}"));
    let producer = producer(&ground.brokers, 20);
    let began = chrono::Utc::now().timestamp_millis() - 600_000;
    for i in 0..records {
        let (_, value) = passthrough::record(i);
        let key = format!("key-{:08}", i.wrapping_mul(2_654_435_761) % keys);
        send_at(&producer, &topic, &key, &value, began + (i * 600_000 / records) as i64);
    }
    rdkafka::producer::Producer::flush(&producer, Duration::from_secs(60)).expect("all are written");
    topic
}

struct Bench<'a> {
    ground: &'a Ground,
    machine: &'a str,
    rounds: u64,
    row: &'a str,
}

impl Bench<'_> {
    /// Runs every side in turns, keeps what was measured, and gives the runs of each.
    fn in_turns(&mut self, run: impl Fn(Side, u64) -> Value) -> BTreeMap<&'static str, Vec<Value>> {
        let mut runs: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for round in 0..self.rounds {
            for side in Side::ALL {
                let run = run(side, round);
                println!("{} {}: {run}", self.row, side.name());
                keep(
                    "streams",
                    &json!({ "row": self.row, "side": side.name(), "round": round, "machine": self.machine, "run": run }),
                );
                runs.entry(side.name()).or_default().push(run);
            }
        }
        runs
    }

    /// A table of some members, one line a side; in brackets how Readback stands to it, as it comes to one that is as it comes.
    fn shown(&self, head: &str, members: &[(&str, &str, usize)], runs: &BTreeMap<&str, Vec<Value>>) {
        let line = |side: Side| {
            let cell = |(_, member, digits): &(&str, &str, usize)| {
                let value = median(&runs[side.name()], member);
                let digits = *digits;
                match side.against() {
                    None => format!("{value:.digits$}"),
                    Some(ours) => format!("{value:.digits$} (× {:.2})", median(&runs[ours.name()], member) / value),
                }
            };
            std::iter::once(side.name().to_owned()).chain(members.iter().map(cell)).collect::<Vec<_>>()
        };
        let columns: Vec<&str> = std::iter::once(head).chain(members.iter().map(|m| m.0)).collect();
        table(&columns, &Side::ALL.map(line));
        let (drawn, member, _) = members[0];
        bars(drawn, &Side::ALL.map(|side| (side.name(), median(&runs[side.name()], member))));
        println!("× = Readback against it, medians of {}; {}\n", self.rounds, self.machine);
    }

    fn throughput(&mut self, input: &str, records: u64) {
        let topology: &'static str =
            ["passthrough", "count", "windowed"].into_iter().find(|t| *t == self.row).expect("one of them");
        let ground = self.ground;
        let runs = self.in_turns(|side, round| {
            let app = App::new(ground, side, topology, &format!("{topology}-{round}"), input);
            let mut running = app.start(ground);
            let measured = steady(&app, &mut running, ground, records);
            drop(running);
            ground.forget(&app.output);
            measured
        });
        let members = [
            ("k records/s", "k_per_second", 0),
            ("steady", "steady_k_per_second", 0),
            ("CPU µs a record", "cpu_us", 2),
            ("steady", "steady_cpu_us", 2),
            ("peak RSS MB", "rss_mb", 0),
        ];
        self.shown(&format!("{topology}, {records} records"), &members, &runs);
    }

    fn latency(&mut self, seconds: u64) {
        let ground = self.ground;
        let runs = self.in_turns(|side, round| {
            let input = ground.topic(&format!("latency-in-{round}-{side:?}"));
            let app = App { commit_ms: 20, ..App::new(ground, side, "passthrough", &format!("latency-{round}"), &input) };
            let began = Instant::now();
            let _running = app.start(ground);
            let after = Watch::start(ground, &app.output, began);
            let _feed = Feed::start(ground, &input, 500, began);
            // A virtual machine is warm after some time.
            std::thread::sleep(Duration::from_secs(15));
            let from = now(began);
            std::thread::sleep(Duration::from_secs(seconds));
            let to = now(began);
            std::thread::sleep(Duration::from_secs(1));
            let mut took = after.took(from, to);
            let [p50, p99] = [0.5, 0.99].map(|q| quantile(&mut took, q) / 1e3);
            json!({ "p50_ms": p50, "p99_ms": p99, "records": took.len() })
        });
        self.shown("end to end at 500 records/s", &[("p50 ms", "p50_ms", 1), ("p99 ms", "p99_ms", 1)], &runs);
    }

    /// From the start of a process in a new group to its first committed record; then what it takes while nothing happens.
    fn start(&mut self) {
        let ground = self.ground;
        let input = ground.topic("start-in");
        send(&producer(&ground.brokers, 0), &input, "k", "v");
        let runs = self.in_turns(|side, round| {
            let app = App::new(ground, side, "count", &format!("start-{round}"), &input);
            let reader = watching(ground, &app.output, Offset::Beginning);
            let began = Instant::now();
            let mut running = app.start(ground);
            while !matches!(reader.poll(Duration::from_millis(10)), Some(Ok(_))) {
                assert!(!running.ended(), "it ended; its log is in {:?}", app.dir);
            }
            let seconds = began.elapsed().as_secs_f64();
            std::thread::sleep(Duration::from_secs(5));
            let idle = idle_cpu(running.pid());
            json!({ "start_s": seconds, "idle_percent": idle * 100.0, "idle_rss_mb": status_mb(running.pid(), "VmRSS") })
        });
        let members =
            [("first output s", "start_s", 2), ("idle % of a core", "idle_percent", 2), ("idle RSS MB", "idle_rss_mb", 0)];
        self.shown("one store, new group", &members, &runs);
    }

    /// `kill -9` with a store of so many keys, the same again at once: how long nothing comes out, and what is read to restore.
    fn kill(&mut self, keys: u64) {
        let ground = self.ground;
        let input = fill(ground, keys, keys);
        let runs = self.in_turns(|side, round| {
            let app = App::new(ground, side, "count", &format!("kill-{round}"), &input);
            let mut running = app.start(ground);
            let filled = Instant::now();
            while committed(&position(ground, &app.id), &input) < keys {
                assert!(!running.ended() && filled.elapsed() < Duration::from_secs(600), "stuck; its log is in {:?}", app.dir);
                std::thread::sleep(Duration::from_millis(100));
            }
            let began = Instant::now();
            let after = Watch::from_here(ground, &app.output, began);
            let _feed = Feed::start(ground, &input, 200, began);
            std::thread::sleep(Duration::from_secs(10));
            let from = now(began);
            drop(running);
            let _running = app.start(ground);
            std::thread::sleep(Duration::from_secs(45));
            let worst = (0..4).map(|p| after.longest_gap(p, from, now(began))).fold(0.0, f64::max);
            json!({ "gap_s": worst / 1e6 })
        });
        self.shown(&format!("kill -9, restart at once, {keys} keys"), &[("longest time without output, s", "gap_s", 2)], &runs);
    }
}

/// From the first committed offset to the last, and the same without its first third.
fn steady(app: &App, running: &mut Running, ground: &Ground, total: u64) -> Value {
    let consumer = position(ground, &app.id);
    let look = || (Instant::now(), committed(&consumer, &app.input), cpu_of(running.pid()));
    let (mut first, mut third, mut moved) = (None, None, (Instant::now(), 0));
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let at = look();
        if at.1 > moved.1 {
            moved = (at.0, at.1);
        }
        assert!(moved.0.elapsed() < Duration::from_secs(120), "stuck at {} of {total}; its log is in {:?}", moved.1, app.dir);
        if at.1 > 0 && first.is_none() {
            first = Some(at);
        }
        if at.1 >= total / 3 && third.is_none() {
            third = Some(at);
        }
        let (Some(first), Some(third), true) = (first, third, at.1 >= total) else { continue };
        let rates = |from: (Instant, u64, Duration)| {
            let records = (at.1 - from.1) as f64;
            (records / (at.0 - from.0).as_secs_f64() / 1e3, (at.2 - from.2).as_secs_f64() * 1e6 / records)
        };
        let (whole, steady) = (rates(first), rates(third));
        return json!({
            "k_per_second": whole.0, "cpu_us": whole.1, "steady_k_per_second": steady.0, "steady_cpu_us": steady.1,
            "rss_mb": status_mb(running.pid(), "VmHWM"),
        });
    }
}

/// A client that sees what a group has committed, without waiting for what it is about to commit.
fn position(ground: &Ground, group: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &ground.brokers).set("group.id", group).set("isolation.level", "read_uncommitted");
    config.create().expect("a consumer")
}

/// The sum of a group's committed offsets in a topic of four partitions.
fn committed(consumer: &BaseConsumer, topic: &str) -> u64 {
    let mut list = TopicPartitionList::new();
    (0..4).for_each(|p| drop(list.add_partition(topic, p)));
    let Ok(found) = consumer.committed_offsets(list, Duration::from_secs(5)) else { return 0 };
    found.elements().iter().filter_map(|e| e.offset().to_raw().and_then(|o| u64::try_from(o).ok())).sum()
}
