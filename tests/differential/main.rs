//! The same graph and input in Kafka Streams and here: what is written must be the same, record by record.
//!
//! `cargo test` replays what Kafka Streams 4.4 gave (`captured.jsonl`). `dev/differential/run` asks it anew, about other seeds.

mod case;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use case::{Case, Input, Op, Written};
use readback::declare;
use readback::driver::TopologyTestDriver;
use readback::record::Headers;
use readback::time::WallTime;
use serde::{Deserialize, Serialize};

/// A case and what Kafka Streams wrote.
#[derive(Serialize, Deserialize)]
struct Captured {
    case: Case,
    written: Vec<Written>,
}

fn captured() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/captured.jsonl")
}

/// What this library writes.
fn ours(case: &Case) -> Vec<Written> {
    let yaml = case.yaml();
    let declared = declare::parse("topology.yaml", &yaml).unwrap_or_else(|d| panic!("seed {}: {d}\n{yaml}", case.seed));
    let first = case.input.first().expect("a case has input");
    let mut driver = TopologyTestDriver::at(&declared.application, WallTime(first.ts)).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
    for Input { topic, key, value, ts } in &case.input {
        let value = value.map(|v| v.to_string());
        let (key, value) = (key.as_deref().map(str::as_bytes), value.as_deref().map(str::as_bytes));
        driver
            .pipe(topic, key, value, Headers::default(), Some(WallTime(*ts)))
            .unwrap_or_else(|e| panic!("seed {}: {e}\n{yaml}", case.seed));
    }
    let dead = driver.read_output("dead");
    assert!(dead.is_empty(), "seed {}: {:?}\n{yaml}", case.seed, dead[0].headers);
    let mut written = Vec::new();
    for step in case.steps.iter().filter(|s| s.out) {
        let topic = format!("out-{}", step.name);
        for r in driver.read_output(&topic) {
            let text = |b: &[u8]| String::from_utf8(b.to_vec()).expect("text");
            let value = r.value.as_ref().map(|v| text(v).parse().expect("a number"));
            written.push(Written {
                topic: topic.clone(),
                key: r.key.as_ref().map(|k| text(k)),
                value,
                ts: r.timestamp.expect("written with a time").0,
            });
        }
    }
    written
}

/// Order counts among the records of a key, but for pairs of streams: those of one moment come as the two sides are read.
fn by_key(case: &Case, mut written: Vec<Written>) -> Vec<Written> {
    let pairs =
        |topic: &str| case.steps.iter().any(|s| matches!(s.op, Op::JoinStream { .. }) && topic == format!("out-{}", s.name));
    written.sort_by(|a, b| {
        let place = (&a.topic, &a.key).cmp(&(&b.topic, &b.key));
        if pairs(&a.topic) { place.then_with(|| a.cmp(b)) } else { place }
    });
    written
}

/// A listed difference: a session that gets a record within its bounds is taken back and told anew by Kafka Streams, and only told
/// anew here.
fn without_steps_back(written: &[Written]) -> Vec<Written> {
    let again = |n: usize, w: &Written| {
        let next = written.get(n + 1);
        w.value.is_none() && next.is_some_and(|next| next.value.is_some() && (&next.topic, &next.key) == (&w.topic, &w.key))
    };
    written.iter().enumerate().filter(|(n, w)| !again(*n, w)).map(|(_, w)| w.clone()).collect()
}

/// Differences, for people: what only one side wrote, and what both wrote in another order.
fn difference(case: &Case, theirs: &[Written]) -> Option<String> {
    let ours = ours(case);
    if std::env::var_os("READBACK_SHOW").is_some() {
        for (a, b) in ours.iter().zip(theirs) {
            let line = |w: &Written| format!("{} {:?}={:?}@{}", w.topic, w.key, w.value, w.ts - 1_700_000_000_000);
            eprintln!("{:60} {}", line(a), line(b));
        }
    }
    let ours = by_key(case, ours);
    let theirs = by_key(case, without_steps_back(theirs));
    if ours == theirs {
        return None;
    }
    let mut counts: BTreeMap<&Written, i64> = BTreeMap::new();
    ours.iter().for_each(|w| *counts.entry(w).or_default() += 1);
    theirs.iter().for_each(|w| *counts.entry(w).or_default() -= 1);
    let shown: Vec<String> = counts
        .iter()
        .filter(|(_, n)| **n != 0)
        .map(|(w, n)| {
            let who = if *n > 0 { "only here " } else { "only there" };
            format!("  {who} {} {:?} = {:?} at {}", w.topic, w.key.as_deref().unwrap_or("-"), w.value, w.ts)
        })
        .collect();
    let what = if shown.is_empty() { "  the same records, of a key in another order".to_owned() } else { shown.join("\n") };
    Some(format!("seed {}\n{}{what}", case.seed, case.yaml()))
}

/// If this broke, a topology that was moved from Kafka Streams would give other results here.
#[test]
fn what_kafka_streams_writes_is_written_here() {
    let text = std::fs::read_to_string(captured()).expect("captured.jsonl is committed");
    let all: Vec<Captured> = text.lines().map(|l| serde_json::from_str(l).expect("a captured case")).collect();
    assert!(all.len() >= 200, "{} cases", all.len());
    let wrong: Vec<String> = all.iter().filter_map(|c| difference(&c.case, &c.written)).collect();
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), all.len(), wrong[..wrong.len().min(5)].join("\n"));
}

/// If this broke, captured cases would be of other topologies than the generator makes now.
#[test]
fn a_seed_is_a_case_for_good() {
    let text = std::fs::read_to_string(captured()).expect("captured.jsonl is committed");
    let first: Captured = serde_json::from_str(text.lines().next().expect("a line")).expect("a captured case");
    assert_eq!(Case::of(first.case.seed), first.case);
}

/// Asks Kafka Streams itself.
#[test]
#[ignore = "needs the jars of Kafka Streams: dev/differential/run"]
fn kafka_streams_is_asked_anew() {
    let jars = std::env::var_os("READBACK_DIFFERENTIAL").expect("the directory of the jars; dev/differential/run sets it");
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or);
    let (first, count) = (number("READBACK_SEED", 1), number("READBACK_SEEDS", 200));
    let cases: Vec<Case> = (first..first + count).map(Case::of).collect();
    let all = ask(Path::new(&jars), cases);
    if std::env::var_os("READBACK_CAPTURE").is_some() {
        let lines: Vec<String> = all.iter().map(|c| serde_json::to_string(c).expect("writes")).collect();
        std::fs::write(captured(), lines.join("\n") + "\n").expect("is written");
    }
    let differs = |c: &Captured| {
        let found = std::panic::catch_unwind(|| difference(&c.case, &c.written));
        found.unwrap_or_else(|_| Some(format!("seed {} can't be run", c.case.seed)))
    };
    let wrong: Vec<String> = all.iter().filter_map(differs).collect();
    let records: usize = all.iter().map(|c| c.written.len()).sum();
    eprintln!("{} cases, {records} records, {} differ", all.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong[..wrong.len().min(8)].join("\n"));
}

fn ask(jars: &Path, cases: Vec<Case>) -> Vec<Captured> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("dev/differential/KafkaStreams.java");
    let mut java = Command::new("java")
        .arg("-cp")
        .arg(jars.join("*"))
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("java starts");
    let mut stdin = java.stdin.take().expect("is piped");
    let lines: Vec<String> = cases.iter().map(|c| serde_json::to_string(c).expect("writes")).collect();
    let fed = std::thread::spawn(move || stdin.write_all((lines.join("\n") + "\n").as_bytes()));
    let out = java.wait_with_output().expect("java ends");
    fed.join().expect("no panic").expect("java reads");
    assert!(out.status.success(), "Kafka Streams failed: {}", out.status);
    let text = String::from_utf8(out.stdout).expect("text");
    let written: Vec<Vec<Written>> = text.lines().map(|l| serde_json::from_str(l).expect("records")).collect();
    assert_eq!(written.len(), cases.len());
    cases.into_iter().zip(written).map(|(case, written)| Captured { case, written }).collect()
}
