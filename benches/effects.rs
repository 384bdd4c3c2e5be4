//! `cargo bench --bench effects [-- --effects N --rounds R]`: CPU of our process per confirmed effect (operations and effect
//! unit, journal included), against a bare HTTP loop that does the same calls with nothing around them. The target is a process
//! of its own, so neither side pays for it. *Effect stage alone*: sends are paused until every request is admitted and its intent
//! written, and what counts is from there on.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::process::{Member, cpu_of, free_port, status_mb};
use common::{Arguments, Ground, child, cpu_of_self, keep, machine, median, table};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use readback::bench::effects as bench;
use serde_json::{Value, json};

/// Calls at once, on both sides.
const AT_ONCE: usize = 64;

fn main() {
    let arguments = Arguments::read();
    match arguments.text("child") {
        Some("target") => target(arguments.number("port", 0) as u16),
        Some("bare") => bare(&arguments),
        Some(other) => panic!("no such child: {other}"),
        None => compare(&arguments),
    }
}

/// A side: its name, and how it is run.
enum Side {
    Bare { kept: bool },
    Readback { confirm: &'static str, counts: Counts },
}

/// What of our process counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    /// From request to confirmation, both units.
    Whole,
    /// From the intent to the confirmation and its return.
    Stage,
}

fn compare(arguments: &Arguments) {
    let (effects, rounds) = (arguments.number("effects", 20_000), arguments.number("rounds", 2));
    let machine = machine();
    let ground = Ground::prepare("effects");
    let sides = [
        ("bare loop, connections kept", Side::Bare { kept: true }),
        ("bare loop, a connection per call", Side::Bare { kept: false }),
        ("Readback, confirm: answer", Side::Readback { confirm: "answer", counts: Counts::Whole }),
        ("the same, effect stage alone", Side::Readback { confirm: "answer", counts: Counts::Stage }),
        ("Readback, confirm: readback", Side::Readback { confirm: "readback", counts: Counts::Whole }),
        ("the same, effect stage alone", Side::Readback { confirm: "readback", counts: Counts::Stage }),
    ];
    let mut runs: Vec<Vec<Value>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for ((name, side), runs) in sides.iter().zip(&mut runs) {
            let target = Target::start();
            let run = match side {
                Side::Bare { kept } => child(&[
                    ("child", "bare"),
                    ("port", &target.port.to_string()),
                    ("effects", &effects.to_string()),
                    ("kept", &kept.to_string()),
                ]),
                Side::Readback { confirm, counts } => ours(&ground, (confirm, *counts), round, effects, &target),
            };
            println!("{name}: {run}");
            keep("effects", &json!({ "side": name, "round": round, "machine": machine, "run": run }));
            runs.push(run);
        }
    }
    println!("\n{effects} effects, {AT_ONCE} at once, {rounds} runs of each in turns, medians; {machine}");
    let base = [median(&runs[0], "cpu_us"), median(&runs[1], "cpu_us")];
    let rows: Vec<Vec<String>> = sides
        .iter()
        .zip(&runs)
        .map(|((name, _), runs)| {
            let cpu = median(runs, "cpu_us");
            vec![
                (*name).to_owned(),
                format!("{:.0}", median(runs, "per_second")),
                format!("{cpu:.0}"),
                format!("{:.1}", cpu / base[0]),
                format!("{:.1}", cpu / base[1]),
                format!("{:.0}", median(runs, "rss_mb")),
            ]
        })
        .collect();
    let head = ["", "effects/s", "CPU µs an effect", "× kept connections", "× a connection per call", "peak RSS MB"];
    table(&head, &rows);
}

/// CPU counts from the first confirmed effect to the last. Everything is in the input before the process starts; or, for the effect
/// stage alone, everything is in the outbox before the first call is made.
fn ours(ground: &Ground, (confirm, counts): (&str, Counts), round: u64, effects: u64, target: &Target) -> Value {
    let name = &format!("{confirm}-{}-{round}", if counts == Counts::Whole { "whole" } else { "stage" });
    let topics = ["in", "results", "dead"].map(|t| ground.topic(&format!("{name}-{t}")));
    let app = format!("{}-{name}", ground.run);
    let url = format!("http://127.0.0.1:{}", target.port);
    let names = topics.each_ref().map(String::as_str);
    let dir = bench::write(&ground.dir.join(name), &app, names, &url, confirm, AT_ONCE).expect("written");
    let open = if counts == Counts::Whole { "1000000" } else { "500" };
    let env = [("READBACK_BROKERS", ground.brokers.clone()), ("READBACK_EFFECTS__MAX_OPEN", open.to_owned())];
    if counts == Counts::Whole {
        fill(ground, &topics[0], effects);
    }
    let mut member = Member::start(&dir, &dir, &env, 0);
    if counts == Counts::Stage {
        member.wait_for_tasks(1.0);
        let order = |verb| ["ops", verb, "--app", app.as_str(), "--everything", "--reason", "measuring", "--by", "bench"];
        member.command(&order("pause"));
        fill(ground, &topics[0], effects);
        let give_up = Instant::now() + Duration::from_secs(600);
        while member.metric("readback_operations_admitted_total", "") < effects as f64 {
            assert!(Instant::now() < give_up, "not all are admitted; logs are in {dir:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
        member.command(&order("resume"));
    }
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
        return figures(done - from, cpu - cpu_from, at - began, status_mb(member.pid(), "VmHWM"));
    }
}

fn fill(ground: &Ground, input: &str, effects: u64) {
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    ground.fill(input, effects, &|i| {
        (format!("op-{i:07}"), json!({ "sku": format!("A-{}", i % 100), "quantity": i % 9 + 1, "at": now }).to_string())
    });
}

fn figures(effects: f64, cpu: Duration, took: Duration, rss_mb: f64) -> Value {
    json!({
        "effects": effects, "seconds": took.as_secs_f64(), "per_second": effects / took.as_secs_f64(),
        "cpu_us": cpu.as_secs_f64() * 1e6 / effects, "rss_mb": rss_mb,
    })
}

/// The same calls by hand: no journal, no retry, no confirmation.
fn bare(arguments: &Arguments) {
    let (port, effects) = (arguments.number("port", 0) as u16, arguments.number("effects", 0));
    let kept = arguments.need("kept") == "true";
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (began, cpu) = (Instant::now(), cpu_of_self());
    runtime.block_on(async {
        let workers: Vec<_> = (0..AT_ONCE as u64).map(|w| tokio::spawn(calls(port, w, effects, kept))).collect();
        for worker in workers {
            worker.await.expect("a worker ends");
        }
    });
    let figures = figures(effects as f64, cpu_of_self() - cpu, began.elapsed(), status_mb(std::process::id(), "VmHWM"));
    println!("{figures}");
}

async fn calls(port: u16, worker: u64, effects: u64, kept: bool) {
    let mut sender = connect(port).await;
    for i in (worker..effects).step_by(AT_ONCE) {
        if !kept {
            sender = connect(port).await;
        }
        let body = format!(r#"{{"sku":"A-{}","quantity":{},"client_ref":"bare-{i:07}"}}"#, i % 100, i % 9 + 1);
        let request = hyper::Request::post("/orders")
            .header("host", "127.0.0.1")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        sender.ready().await.expect("ready");
        let answer = sender.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), 201);
        answer.into_body().collect().await.expect("a body");
    }
}

async fn connect(port: u16) -> SendRequest<Full<Bytes>> {
    let tcp = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
    tcp.set_nodelay(true).expect("a socket");
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await.expect("a connection");
    tokio::spawn(connection);
    sender
}

/// The target, in a process of its own.
struct Target {
    port: u16,
    child: Child,
}

impl Target {
    fn start() -> Self {
        let port = free_port();
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--child", "target", "--port", &port.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .expect("the target starts");
        let until = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "the target does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { port, child }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn target(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
        axum::serve(listener, bench::target()).await.expect("served");
    });
}
