//! `cargo bench --bench console [-- --effects N --rounds R]`: what the console costs the member that serves it: CPU per confirmed effect
//! without it, with it, and while somebody follows its first page as a browser does; and how long its metrics take to be scraped. One after
//! the other in turns, on the same broker.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::process::{Member, cpu_of, status_mb};
use common::{Arguments, Ground, keep, machine, median, table};
use readback::bench::effects as bench;
use serde_json::{Value, json};

/// Calls at once.
const AT_ONCE: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Without,
    Served,
    Followed,
}

fn main() {
    let arguments = Arguments::read();
    let (effects, rounds) = (arguments.number("effects", 20_000), arguments.number("rounds", 3));
    let machine = machine();
    let ground = Ground::prepare("console");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let sides = [
        ("without the console", Side::Without),
        ("with it, and nobody looks", Side::Served),
        ("with it, and its first page followed", Side::Followed),
    ];
    let mut runs: Vec<Vec<Value>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for ((name, side), runs) in sides.iter().zip(&mut runs) {
            let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("bound"));
            let target = runtime.spawn(async { axum::serve(listener, bench::target()).await });
            let run = run(&ground, &format!("{}-{round}", *side as u8), *side, effects, &url);
            target.abort();
            println!("{name}: {run}");
            keep("console", &json!({ "side": name, "round": round, "machine": machine, "run": run }));
            runs.push(run);
        }
    }
    println!("\n{effects} effects, {AT_ONCE} at once, {rounds} runs of each in turns, medians; {machine}");
    let base = median(&runs[0], "cpu_us");
    let row = |(name, runs): (&str, &Vec<Value>)| {
        let cpu = median(runs, "cpu_us");
        vec![
            name.to_owned(),
            format!("{:.0}", median(runs, "per_second")),
            format!("{cpu:.0}"),
            format!("{:+.1} %", (cpu / base - 1.0) * 100.0),
            format!("{:.0}", median(runs, "pages")),
            format!("{:.0}", median(runs, "rss_mb")),
            format!("{:.1}", median(runs, "scrape_ms")),
        ]
    };
    let rows: Vec<Vec<String>> = sides.iter().map(|(name, _)| *name).zip(&runs).map(row).collect();
    table(&["", "effects/s", "CPU µs an effect", "over the first", "pages shown", "peak RSS MB", "scrape, ms"], &rows);
}

/// Everything is in the input before the process starts; its CPU counts from the first confirmed effect to the last.
fn run(ground: &Ground, name: &str, side: Side, effects: u64, target: &str) -> Value {
    let [input, results, dead] = ["in", "results", "dead"].map(|t| ground.topic(&format!("{name}-{t}")));
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    ground.fill(&input, effects, &|i| {
        (format!("op-{i:07}"), json!({ "sku": format!("A-{}", i % 100), "quantity": i % 9 + 1, "at": now }).to_string())
    });
    let app = format!("{}-{name}", ground.run);
    let dir = bench::write(&ground.dir.join(name), &app, [&input, &results, &dead], target, "readback", AT_ONCE).expect("written");
    let env = [
        ("READBACK_BROKERS", ground.brokers.clone()),
        ("READBACK_EFFECTS__MAX_OPEN", "1000000".to_owned()),
        ("READBACK_ADMIN__CONSOLE", (side != Side::Without).to_string()),
    ];
    let member = Member::start(&dir, &dir, &env, 0);
    let viewer = (side == Side::Followed).then(|| Viewer::start(member.port()));
    let confirmed = || member.metric("readback_effects_ends_total", "status=\"confirmed\"");
    let (mut first, mut moved) = (None, (Instant::now(), 0.0));
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let (done, cpu, at) = (confirmed(), cpu_of(member.pid()), Instant::now());
        if done > moved.1 {
            moved = (at, done);
        }
        assert!(moved.0.elapsed() < Duration::from_secs(60), "stuck at {} of {effects}; logs are in {dir:?}", moved.1);
        if first.is_none() && done > 0.0 {
            first = Some((done, cpu, at));
        }
        let Some((from, cpu_from, began)) = first.filter(|_| done >= effects as f64) else { continue };
        let scrapes = (0..20).map(|_| json!({ "ms": scraped(&member) })).collect::<Vec<_>>();
        let (count, seconds) = (done - from, (at - began).as_secs_f64());
        return json!({
            "effects": count, "seconds": seconds, "per_second": count / seconds,
            "cpu_us": (cpu - cpu_from).as_secs_f64() * 1e6 / count, "rss_mb": status_mb(member.pid(), "VmHWM"),
            "scrape_ms": median(&scrapes, "ms"), "pages": viewer.as_ref().map_or(0, |v| v.shown.load(Ordering::Acquire)),
        });
    }
}

/// Milliseconds that all metrics take, over HTTP.
fn scraped(member: &Member) -> f64 {
    let began = Instant::now();
    member.metric("readback_effects_ends_total", "status=\"confirmed\"");
    began.elapsed().as_secs_f64() * 1e3
}

/// Follows the first page, as the script of the console does.
struct Viewer {
    shown: Arc<AtomicU64>,
    gone: Arc<AtomicBool>,
}

impl Viewer {
    fn start(port: u16) -> Self {
        let viewer = Self { shown: Arc::default(), gone: Arc::default() };
        let (shown, gone) = (viewer.shown.clone(), viewer.gone.clone());
        std::thread::spawn(move || {
            while !gone.load(Ordering::Acquire) {
                let _ = follow(port, &shown);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        viewer
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
    }
}

fn follow(port: u16, shown: &AtomicU64) -> std::io::Result<()> {
    let open = |path: &str, more: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{more}\r\n")?;
        std::io::Result::Ok(stream)
    };
    for line in BufReader::new(open("/events", "")?).lines() {
        if line?.starts_with("data: ") {
            let mut page = String::new();
            open("/", "connection: close\r\n")?.read_to_string(&mut page)?;
            assert!(page.starts_with("HTTP/1.1 200"), "{page}");
            shown.fetch_add(1, Ordering::AcqRel);
        }
    }
    Ok(())
}
