//! `cargo bench --bench latency [-- --seconds S --rate R --kills K]`: how long a record takes through a member at a steady rate,
//! what a commit takes, memory idle and under load, and how long partitions stand still when their member is killed with `-9` and
//! started again in its slot.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::flow::{Feed, Watch, now};
use common::process::{Member, idle_cpu, status_mb};
use common::{Arguments, Ground, keep, machine, quantile, table};
use serde_json::json;

const TOPOLOGY: &str = r#"application: APP
version: 1
sources:
  in: { topic: INPUT, key: string, value: json }
steps:
  - name: out
    from: in
    to: { topic: OUTPUT, key: string, value: json }
"#;

fn main() {
    let arguments = Arguments::read();
    let (seconds, rate) = (arguments.number("seconds", 20), arguments.number("rate", 500));
    let machine = machine();
    let ground = Ground::prepare("latency");
    let app = App::write(&ground);
    let mut members = [app.member(&ground, 0), app.member(&ground, 1)];
    // Two tasks each, by range.
    members.iter_mut().for_each(|m| m.wait_for_tasks(2.0));
    std::thread::sleep(Duration::from_secs(3));
    let idle = (status_mb(members[0].pid(), "VmRSS"), idle_cpu(members[0].pid()));
    println!("idle: {:.0} MB, {:.2} % of a core", idle.0, idle.1 * 100.0);

    let began = Instant::now();
    let [before, after] = [Watch::start(&ground, &app.input, began), Watch::start(&ground, &app.output, began)];
    let feed = Feed::start(&ground, &app.input, rate, began);
    std::thread::sleep(Duration::from_secs(2));
    let from = (now(began), commits(&members[0]));
    std::thread::sleep(Duration::from_secs(seconds));
    let to = (now(began), commits(&members[0]));
    // The last of them must have come through before they are counted.
    std::thread::sleep(Duration::from_millis(500));
    let [direct, through] = [&before, &after].map(|w| w.took(from.0, to.0));
    let commit_ms = (to.1.1 - from.1.1) / (to.1.0 - from.1.0) * 1e3;
    latency_table(&machine, rate, seconds, direct, through, commit_ms);

    let gaps = kills(&mut members, &after, began, arguments.number("kills", 5));
    drop(feed);
    gap_table(gaps);

    ground
        .fill(&app.input, 500_000, &|i| (format!("k-{}", i % 1000), format!(r#"{{"at":0,"n":{i},"note":"{}"}}"#, "x".repeat(150))));
    while members.iter().any(|m| m.metric("readback_input_behind_offsets", "") > 0.0) {
        std::thread::sleep(Duration::from_millis(500));
    }
    let loaded = status_mb(members[1].pid(), "VmHWM");
    table(
        &["a member's memory", "MB"],
        &[vec!["idle".to_owned(), format!("{:.0}", idle.0)], vec!["peak under load".to_owned(), format!("{loaded:.0}")]],
    );
    println!("\nidle CPU: {:.2} % of a core", idle.1 * 100.0);
    keep("latency", &json!({ "memory_mb": { "idle": idle.0, "load": loaded }, "idle_cpu": idle.1, "machine": machine }));
}

/// Commits so far and the seconds they took together.
fn commits(member: &Member) -> (f64, f64) {
    (member.metric("readback_commit_seconds_count", ""), member.metric("readback_commit_seconds_sum", ""))
}

fn latency_table(machine: &str, rate: u64, seconds: u64, direct: Vec<f64>, through: Vec<f64>, commit_ms: f64) {
    let row = |name: &str, mut v: Vec<f64>| {
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|q| quantile(&mut v, q) / 1e3);
        keep(
            "latency",
            &json!({ "what": name, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "records": v.len(), "machine": machine }),
        );
        let ms = |x: f64| format!("{x:.1}");
        vec![name.to_owned(), v.len().to_string(), ms(p50), ms(p95), ms(p99)]
    };
    println!("\n{rate} records/s for {seconds} s, two members; mean commit {commit_ms:.1} ms; {machine}");
    let rows = [row("producer → broker → reader", direct), row("the same through Readback", through)];
    table(&["ms", "records", "p50", "p95", "p99"], &rows);
    keep("latency", &json!({ "commit_ms": commit_ms, "machine": machine }));
}

/// Kills member 0 again and again; the longest stand-still after each kill, on its partitions and on its peer's, in seconds.
fn kills(members: &mut [Member; 2], after: &Watch, began: Instant, times: u64) -> [Vec<f64>; 2] {
    let mut gaps = [Vec::new(), Vec::new()];
    for _ in 0..times {
        let from = now(began) - 1e6;
        members[0].kill_and_restart();
        std::thread::sleep(Duration::from_secs(15));
        // Range gives the first two partitions to the first slot.
        for (gaps, own) in gaps.iter_mut().zip([[0, 1], [2, 3]]) {
            let worst = own.iter().map(|p| after.longest_gap(*p, from, now(began))).fold(0.0, f64::max);
            gaps.push(worst / 1e6);
        }
        println!("killed: stood still {:.2} s, its peer {:.2} s", gaps[0].last().unwrap(), gaps[1].last().unwrap());
    }
    gaps
}

fn gap_table(gaps: [Vec<f64>; 2]) {
    let mut rows = Vec::new();
    for (name, mut values) in ["the killed member's partitions", "its peer's partitions"].into_iter().zip(gaps) {
        let worst = quantile(&mut values, 1.0);
        let median = quantile(&mut values, 0.5);
        keep("latency", &json!({ "what": name, "gaps_s": values }));
        rows.push(vec![name.to_owned(), format!("{median:.2}"), format!("{worst:.2}")]);
    }
    table(&["seconds without output after kill -9, restart at once", "median", "worst"], &rows);
}

struct App {
    dir: PathBuf,
    input: String,
    output: String,
}

impl App {
    fn write(ground: &Ground) -> Self {
        let (input, output) = (ground.topic("in"), ground.topic("out"));
        let dir = ground.dir.join("app");
        std::fs::create_dir_all(&dir).expect("a directory");
        let text = TOPOLOGY.replace("APP", &ground.run).replace("INPUT", &input).replace("OUTPUT", &output);
        std::fs::write(dir.join("topology.yaml"), text).expect("written");
        Self { dir, input, output }
    }
    fn member(&self, ground: &Ground, ordinal: u32) -> Member {
        Member::start(&self.dir, &self.dir, &[("READBACK_BROKERS", ground.brokers.clone())], ordinal)
    }
}
