//! `readback bench`: what this installation does, beside the least that could be written by hand.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::bench::effects::{self, Took};
use crate::bench::measure::{Run, Told, machine, quantile};
use crate::bench::{Ground, passthrough, recorded};
use crate::config::{environment, provenance};
use crate::error::Result;

use super::progress::Progress;
use super::{Connection, Format, load};

/// Measure this installation: records a second and the time of an effect, each beside a bare loop in the same run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback bench --brokers kafka-1:9092             both, on these brokers
  readback bench --passthrough --records 2000000    topic to topic in transactions, one thread
  readback bench --effects --rate 100               request to confirmed result, beside the bare HTTP call
  readback bench topology/orders                    CPU of a record of its input.jsonl, beside reading the lines alone
Without brokers from a flag, a file or the environment it starts the local stack. Read the ratios: figures of one side say more of
the machine and its brokers than of either. Its topics are named readback-bench-… and deleted at the end; the target of the
effects runs in this process.")]
pub struct BenchArgs {
    #[command(flatten)]
    connection: Connection,
    /// Only what this topology costs: its recorded input through the real code, without a broker.
    #[arg(conflicts_with_all = ["passthrough", "effects"])]
    topology: Option<PathBuf>,
    /// Only topic to topic.
    #[arg(long, conflicts_with = "effects")]
    passthrough: bool,
    /// Only effects.
    #[arg(long)]
    effects: bool,
    /// Records from topic to topic.
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// Runs of each side, in turns.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..100))]
    rounds: u64,
    /// Effects that are measured.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Effects a second.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..10_000))]
    rate: u64,
}

/// Measures and tells.
pub fn run(args: &BenchArgs, format: Format) -> Result<ExitCode> {
    if let Some(topology) = &args.topology {
        return offline(topology, format);
    }
    let (file, flags) = (args.connection.config.as_deref(), args.connection.flags());
    let settings = provenance(file, environment()?, &flags)?;
    let local = settings.iter().any(|s| s.key == "brokers" && s.from == "default");
    let machine = machine();
    let ground = Ground::prepare(args.connection.load()?, local)?;
    let head = format!("{machine} · {}{}", ground.config.brokers, if local { " (local stack)" } else { "" });
    eprintln!("readback bench · {head}");
    let mut report = json!({ "schema": "readback.bench/1", "machine": machine, "brokers": ground.config.brokers, "local": local });
    if !args.effects {
        eprintln!("topic to topic: {} records, {} runs of each side", args.records, args.rounds);
        let rounds = usize::try_from(args.rounds).unwrap_or(1);
        let [bare, ours] = passthrough::compare(&ground, args.records, rounds, &Bars::default())?.map(|runs| medians(&runs));
        report["passthrough"] = pair(&bare, &ours, &["per_second", "cpu_us"]);
        report["passthrough"]["records"] = args.records.into();
    }
    if !args.passthrough {
        eprintln!("effects: {} at {} a second, on each side", args.count, args.rate);
        let [bare, ours] = effects::compare(&ground, args.count, args.rate, &Bars::default())?;
        report["effects"] = pair(&took(&bare), &took(&ours), &["p50_ms", "p99_ms"]);
        report["effects"]["count"] = args.count.into();
        report["effects"]["rate"] = args.rate.into();
    }
    match format {
        Format::Json => println!("{report}"),
        Format::Table => print!("{}", table(&report)),
    }
    Ok(ExitCode::SUCCESS)
}

/// A bar for each part, one after the other; a line for each run.
#[derive(Default)]
struct Bars(RefCell<Option<(String, Progress)>>);

impl Told for Bars {
    fn at(&self, part: &str, done: u64, all: u64) {
        let mut shown = self.0.borrow_mut();
        if shown.as_ref().is_none_or(|(of, _)| of != part) {
            *shown = None;
            *shown = Some((part.to_owned(), Progress::of(part)));
        }
        if let Some((_, progress)) = shown.as_mut() {
            progress.at(done, all);
        }
    }
    fn ran(&self, side: &str, run: &Run) {
        // The bar is gone before its line comes.
        *self.0.borrow_mut() = None;
        eprintln!("  {side}: {:.0} records/s", run.per_second);
    }
}

/// What a topology costs by itself.
fn offline(topology: &Path, format: Format) -> Result<ExitCode> {
    let application = load::offline(topology)?.application;
    let dir = if topology.is_dir() { topology.to_owned() } else { topology.with_file_name("") };
    let ([bare, ours], inputs) = recorded::compare(&application, &dir, Duration::from_secs(3), &Bars::default())?;
    let cost = |c: &recorded::Cost| json!({ "cpu_us": c.cpu_us });
    let mut report = json!({ "schema": "readback.bench/1", "machine": machine(), "application": application.id });
    report["recorded"] = pair(&cost(&bare), &cost(&ours), &["cpu_us"]);
    report["recorded"]["records"] = inputs.into();
    report["recorded"]["runs"] = ours.runs.into();
    match format {
        Format::Json => println!("{report}"),
        Format::Table => print!("{}", table(&report)),
    }
    Ok(ExitCode::SUCCESS)
}

fn medians(runs: &[Run]) -> Value {
    let median = |of: &dyn Fn(&Run) -> f64| quantile(&mut runs.iter().map(of).collect::<Vec<_>>(), 0.5);
    json!({ "per_second": median(&|r| r.per_second), "cpu_us": median(&|r| r.cpu_us) })
}

fn took(took: &Took) -> Value {
    json!({ "p50_ms": took.p50_ms, "p99_ms": took.p99_ms })
}

fn pair(bare: &Value, ours: &Value, members: &[&str]) -> Value {
    let ratio = |m: &&str| ((*m).to_owned(), json!(ours[*m].as_f64().unwrap_or(f64::NAN) / bare[*m].as_f64().unwrap_or(f64::NAN)));
    json!({ "bare": bare, "readback": ours, "ratio": members.iter().map(ratio).collect::<serde_json::Map<_, _>>() })
}

fn table(report: &Value) -> String {
    let mut text = String::new();
    let parts = [
        ("recorded", "the recorded input on the in-process log, with every call, commit and a start each time", "the lines alone"),
        ("passthrough", "topic to topic in transactions, one thread", "bare client loop"),
        ("effects", "an effect, from request to confirmed result", "bare HTTP call"),
    ];
    let rows = [("per_second", "records/s", 0), ("cpu_us", "CPU µs a record", 2), ("p50_ms", "p50 ms", 1), ("p99_ms", "p99 ms", 1)];
    for (part, title, bare) in parts {
        let Some(part) = report.get(part) else { continue };
        text += &format!("\n {title}\n {:<16} {bare:>18} {:>12} {:>8}\n", "", "Readback", "ratio");
        for (member, name, digits) in rows.iter().filter(|(m, ..)| part["ratio"].get(*m).is_some()) {
            let number = |side: &str| part[side][*member].as_f64().unwrap_or(f64::NAN);
            let (bare, ours, ratio) = (number("bare"), number("readback"), number("ratio"));
            text += &format!(" {name:<16} {bare:>18.digits$} {ours:>12.digits$} {ratio:>8.2}\n");
        }
    }
    text
}
