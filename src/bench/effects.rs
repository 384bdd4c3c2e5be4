//! What it costs in time to have an effect journalled, sent and read back, against the bare HTTP call, at one steady rate and against
//! one target.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::Process;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::Tp;
use crate::intents::{ResultKind, ResultRecord, Status};
use crate::kafka::{Cluster, Isolation};
use crate::offset::NextOffset;
use crate::runtime::error_of;
use crate::serdes::internal;

use super::Ground;
use super::ground::PARTITIONS;
use super::measure::{Told, quantile};
use super::passthrough::runtime;

/// A topology with one effect; `APP`, `INPUT`, `RESULTS` and `DEAD` are to be replaced.
pub const TOPOLOGY: &str = r#"application: APP
version: 1
sources:
  orders: { topic: INPUT, key: string, value: json }
steps:
  - name: place-order
    from: orders
    effect:
      contract: contracts/orders.yaml#create
      request:
        operation_id: key
        tenant: '"acme"'
        requester: '"service:bench"'
        resource: '"order/" + key'
        deadline: timestamp(value.at) + duration("2h")
      parameters: { sku: value.sku, quantity: value.quantity }
results: RESULTS
dead_letters: DEAD
"#;

/// Its contract; `TARGET`, `CONFIRM` and `AT_ONCE` are to be replaced.
pub const CONTRACT: &str = r#"contract: orders
version: 1
verified_on: 2026-11-20
target:
  base_url: TARGET
  hosts: [127.0.0.1]
  private: true
  intermediaries: none
calls:
  create:
    parameters:
      sku:      { type: string, pattern: "[A-Z0-9-]{1,32}" }
      quantity: { type: integer, min: 1, max: 1000 }
    request:
      method: POST
      path: /orders
      json: { sku: "{sku}", quantity: "{quantity}", client_ref: "{key}" }
    key: { carrier: body, format: uuid }
    dedupe: none
    confirm: CONFIRM
    readback:
      request: { method: GET, path: /orders, query: { ref: "{key}" } }
      complete: body.next == null
      ours: body.items.filter(o, o.client_ref == key && o.sku == sku && o.quantity == quantity)
      same_key: body.items.filter(o, o.client_ref == key)
      evidence: item.id
      lag: 1s
    in_flight: { bound: 5s, because: "one process, no proxy" }
    answers:
      - { status: 201, means: applied, evidence: body.id }
      - { status: [400, 404, 422], means: rejected }
    policy: { concurrency: AT_ONCE, deadline: 2h, timeout: 3s, attempts: 5 }
    person: { look_at: "TARGET/orders?ref={key}" }
"#;

/// Writes the application into a directory; answers it.
///
/// # Errors
/// Where it can't be written.
pub fn write(dir: &Path, app: &str, topics: [&str; 3], target: &str, confirm: &str, at_once: usize) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(dir.join("contracts"))?;
    let [input, results, dead] = topics;
    let topology = TOPOLOGY.replace("APP", app).replace("INPUT", input).replace("RESULTS", results).replace("DEAD", dead);
    let contract = CONTRACT.replace("TARGET", target).replace("CONFIRM", confirm).replace("AT_ONCE", &at_once.to_string());
    std::fs::write(dir.join("topology.yaml"), topology)?;
    std::fs::write(dir.join("contracts/orders.yaml"), contract)?;
    Ok(dir.to_owned())
}

type Books = Arc<Mutex<HashMap<String, Vec<Value>>>>;

/// A target that takes every order and lists them by reference.
pub fn target() -> axum::Router {
    axum::Router::new().route("/orders", post(create).get(list)).with_state(Books::default())
}

async fn create(State(books): State<Books>, Json(mut order): Json<Value>) -> (StatusCode, Json<Value>) {
    let key = order["client_ref"].as_str().unwrap_or_default().to_owned();
    let mut books = books.lock().unwrap_or_else(PoisonError::into_inner);
    let id = format!("o-{}", books.len() + 1);
    order["id"] = json!(id);
    books.entry(key).or_default().push(order);
    (StatusCode::CREATED, Json(json!({ "id": id })))
}

async fn list(State(books): State<Books>, Query(asked): Query<HashMap<String, String>>) -> Json<Value> {
    let books = books.lock().unwrap_or_else(PoisonError::into_inner);
    let items = asked.get("ref").and_then(|r| books.get(r).cloned()).unwrap_or_default();
    Json(json!({ "items": items, "next": null }))
}

/// How long one took, over many.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Took {
    /// How many were measured.
    pub count: usize,
    /// The median, in milliseconds.
    pub p50_ms: f64,
    /// Only one of a hundred took longer.
    pub p99_ms: f64,
}

impl Took {
    fn of(mut seconds: Vec<f64>) -> Self {
        let [p50_ms, p99_ms] = [0.5, 0.99].map(|q| quantile(&mut seconds, q) * 1e3);
        Self { count: seconds.len(), p50_ms, p99_ms }
    }
}

/// Both sides, one after the other: the bare call, then request to confirmed result.
///
/// # Errors
/// Where the cluster or the target does not play along.
pub fn compare(ground: &Ground, count: u64, rate: u64, told: &dyn Told) -> Result<[Took; 2]> {
    let http = runtime(2)?;
    let refused = |e: std::io::Error| Error::new(codes::BUG, Fault::Bug, "starting the target of the measurement").because(e);
    let listener = http.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).map_err(refused)?;
    let port = listener.local_addr().map_err(refused)?.port();
    http.spawn(async move { axum::serve(listener, target()).await });
    let bare = bare(port, count, rate, told)?;
    let ours = ours(ground, http.handle(), port, (count, rate), told)?;
    Ok([bare, ours])
}

/// When the `i`th is due.
fn due(began: Instant, i: u64, rate: u64) -> Instant {
    began + Duration::from_secs_f64(i as f64 / rate as f64)
}

fn until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// The same call by hand, a connection each: no journal, no retry, no confirmation.
fn bare(port: u16, count: u64, rate: u64, told: &dyn Told) -> Result<Took> {
    let began = Instant::now();
    let mut took = Vec::new();
    for i in 0..count {
        told.at("bare HTTP call", i, count);
        until(due(began, i, rate));
        let sent = Instant::now();
        call(port, i)
            .map_err(|e| Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, "calling the target by hand").because(e))?;
        took.push(sent.elapsed().as_secs_f64());
    }
    Ok(Took::of(took))
}

fn call(port: u16, i: u64) -> std::io::Result<()> {
    let body = format!(r#"{{"sku":"A-{}","quantity":{},"client_ref":"bare-{i:07}"}}"#, i % 100, i % 9 + 1);
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    write!(
        stream,
        "POST /orders HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 201") {
        true => Ok(()),
        false => Err(std::io::Error::other("the target did not take it")),
    }
}

/// From the request on its topic to the confirmed result on another.
fn ours(ground: &Ground, http: &tokio::runtime::Handle, port: u16, pace: (u64, u64), told: &dyn Told) -> Result<Took> {
    let topics = [ground.topic("orders")?, ground.topic("results")?, ground.topic("dead")?];
    let app = format!("{}-effects", ground.run);
    ground.group(&app);
    ground.group(&format!("{app}.effects"));
    let names = [topics[0].as_str(), topics[1].as_str(), topics[2].as_str()];
    let dir = write(&ground.dir.join("effects"), &app, names, &format!("http://127.0.0.1:{port}"), "readback", 64);
    let dir =
        dir.map_err(|e| Error::new(codes::FILE_UNREADABLE, Fault::Configuration, "writing the measured application").because(e))?;
    let application = crate::declare::load(&dir).map_err(Error::from)?.application;
    let mut config = ground.config.clone();
    config.state.dir = ground.dir.join("effects-state");
    config.slots.ordinal = Some(0);
    let stop = Arc::new(AtomicBool::new(false));
    let waiting = |e: &Error| tracing::warn!(error = %e, "waiting");
    let Some(process) = Process::start(&application, &config, &prometheus::Registry::new(), http, &stop, &waiting)? else {
        return Err(Error::new(codes::BUG, Fault::Bug, "starting a member that nobody stopped"));
    };
    let stopped = stop.clone();
    let running = std::thread::spawn(move || process.run(&stopped, &|_, _| {}));
    let took = measured(ground, names, pace, told);
    stop.store(true, Ordering::Release);
    let _ = running.join();
    took
}

/// `count` of them at `rate` a second.
fn measured(ground: &Ground, [input, results, _]: [&str; 3], (count, rate): (u64, u64), told: &dyn Told) -> Result<Took> {
    let mut reader = ground.cluster.reader(Isolation::Committed).map_err(error_of)?;
    let start: Vec<(Tp, NextOffset)> = (0..PARTITIONS).map(|p| (Tp::new(results, p as i32), NextOffset(0))).collect();
    reader.assign(&start).map_err(error_of)?;
    let feed = ground.cluster.feed(Duration::ZERO).map_err(error_of)?;
    let at = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let value = |i: u64| json!({ "sku": format!("A-{}", i % 100), "quantity": i % 9 + 1, "at": at }).to_string();
    // One first, so that the start of the member does not count.
    let (mut sent, mut took, mut seen) = (HashMap::new(), Vec::new(), 0);
    let mut next = 0;
    let mut began = None;
    let give_up = Instant::now() + Duration::from_secs(120) + Duration::from_secs(count / rate.max(1));
    while seen <= count {
        if Instant::now() > give_up {
            let doing = format!("measuring effects: {seen} of {count} were confirmed");
            return Err(Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, doing).next("see what `--log info` tells"));
        }
        let first = next == 0;
        let ready = began.is_some_and(|began| next <= count && Instant::now() >= due(began, next - 1, rate));
        if first || ready {
            sent.insert(format!("op-{next:07}"), Instant::now());
            feed.send(input, &format!("op-{next:07}"), &value(next)).map_err(error_of)?;
            next += 1;
        }
        let Some(record) = reader.poll(Duration::from_millis(1)).map_err(error_of)? else { continue };
        let Some(bytes) = record.value else { continue };
        let result: ResultRecord = internal::decode(&bytes)?;
        if result.kind != ResultKind::State || result.status != Status::Confirmed {
            continue;
        }
        if let Some(at) = sent.remove(result.operation_id.as_str()) {
            seen += 1;
            told.at("Readback", seen.min(count), count);
            match began {
                None => began = Some(Instant::now()),
                Some(_) => took.push(at.elapsed().as_secs_f64()),
            }
        }
    }
    Ok(Took::of(took))
}
