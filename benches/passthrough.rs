//! `cargo bench --bench passthrough [-- --records N --rounds R]`: topic to topic in transactions, Readback against a bare client
//! loop with the same client settings, on the same broker and input, in turns.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Arguments, Ground, child, keep, machine, median, table};
use readback::bench::measure::Run;
use readback::bench::passthrough;
use readback::config::ProcessConfig;
use readback::ids::TopicName;
use readback::kafka::rdkafka::{RdCluster, RdConfig};
use serde_json::json;

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
    ground.fill(&input, records, &passthrough::record);
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

/// Readback as a user runs it, in a process of its own.
fn ours(arguments: &Arguments) {
    let mut config = ProcessConfig { brokers: arguments.need("brokers").to_owned(), ..ProcessConfig::default() };
    config.state.dir = arguments.need("dir").into();
    let (input, output) = (TopicName::new(arguments.need("input")), TopicName::new(arguments.need("output")));
    shown(passthrough::ours(config, &input, &output, arguments.number("records", 0), &()));
}

/// The least that a correct processor does by hand.
fn bare(arguments: &Arguments) {
    let cluster = RdCluster::new(RdConfig::new(arguments.need("brokers"))).unwrap_or_else(|e| panic!("{e}"));
    let (input, output) = (TopicName::new(arguments.need("input")), TopicName::new(arguments.need("output")));
    shown(passthrough::bare(&cluster, &input, &output, arguments.number("records", 0), &()));
}

fn shown(run: readback::error::Result<Run>) {
    let run = run.unwrap_or_else(|e| panic!("{e}"));
    println!("{}", serde_json::to_value(run).expect("numbers"));
}
