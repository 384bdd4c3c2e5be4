//! How often the hot path allocates: one effect from its request to its confirmation, with journal, results and return, on the
//! in-process log. A count says more than a time: it is the same on each machine, and the allocator was half of a stream thread's time.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use allocation_counter::measure;
use readback::bench::effects as bench;
use readback::driver::{Piped, Scripted, TopologyTestDriver};
use readback::http::Answer;
use readback::ids::TopicName;
use readback::intents::RenderedRequest;
use readback::kafka::Cluster as _;
use readback::record::{Headers, OutRecord};
use serde_json::{Value, json};

/// Effects that are counted; as many run before, so that what is made once does not count.
const EFFECTS: usize = 1_000;

/// If this broke, each effect would cost more than it was measured to, and nobody would see it before production does.
#[test]
fn an_effect_allocates_no_more_than_it_did() {
    for (confirm, most) in [("answer", 800), ("readback", 1_420)] {
        let mut driver = started(confirm);
        run(&mut driver, 0);
        let counted = measure(|| run(&mut driver, EFFECTS));
        let each = counted.count_total / EFFECTS as u64;
        println!("confirm: {confirm}: {each} allocations, {} bytes an effect", counted.bytes_total / EFFECTS as u64);
        assert!(each <= most, "confirm: {confirm}: {each} allocations an effect, {most} are known");
    }
}

fn started(confirm: &str) -> TopologyTestDriver {
    let dir = tempfile::tempdir().unwrap();
    let topics = ["orders", "results", "dead"];
    let written = bench::write(dir.path(), "counted", topics, "http://127.0.0.1:1", confirm, 64).unwrap();
    let application = readback::declare::load(&written).map_err(|e| e.to_string()).unwrap().application;
    let mut driver = TopologyTestDriver::new(&application).unwrap();
    driver.serve(target);
    driver
}

/// Takes every order, and shows it when it is asked for its key.
fn target(call: &str, request: &RenderedRequest) -> Scripted {
    let (status, body) = match request.query.strip_prefix("ref=") {
        Some(key) => (200, json!({ "items": [{ "client_ref": key, "sku": "A-7", "quantity": 3, "id": "o-1" }], "next": null })),
        None if call == "orders#create" => (201, json!({ "id": "o-1" })),
        None => panic!("{call}"),
    };
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Scripted::Answer(Answer { status, headers, body: body.to_string().into() })
}

/// Feeds so many requests at once, and sees them all confirmed.
fn run(driver: &mut TopologyTestDriver, from: usize) {
    let (topic, headers) = (TopicName::new("orders"), Headers::default());
    let value = json!({ "sku": "A-7", "quantity": 3, "at": "2026-01-01T00:00:00Z" }).to_string();
    for i in from..from + EFFECTS {
        let key = format!("op-{i:07}");
        let timestamp = Some(driver.now());
        let record = OutRecord {
            topic: &topic,
            partition: None,
            timestamp,
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: Some(&headers),
        };
        driver.cluster().publish(&[record], Duration::ZERO).unwrap();
    }
    driver.advance(Duration::from_millis(100)).unwrap();
    let confirmed = |value: &Value| value["status"] == "confirmed";
    let results = driver.read_output("results");
    assert_eq!(results.iter().filter(|r| confirmed(&r.json())).count(), EFFECTS);
}

/// Records of one transaction, over so many keys.
const COUNTED: usize = 10_000;
const KEYS: usize = 10;

/// If this broke, a cached count would write more than a record a key, or cost more than one that passes each change on.
#[test]
fn a_cached_count_writes_a_record_a_key_and_allocates_less() {
    let [plain, cached] = [false, true].map(|caching| {
        let text = format!(
            "application: counted\nsources: {{ in: {{ topic: in, value: json }} }}\ndead_letters: dead\nsteps:\n  \
             - {{ name: counts, from: in, group: {{ count: true, caching: {caching} }} }}\n  \
             - {{ name: tell, from: counts, to: {{ topic: out }} }}\n"
        );
        let application = readback::declare::parse("t.yaml", &text).map_err(|e| e.to_string()).unwrap().application;
        let mut driver = TopologyTestDriver::new(&application).unwrap();
        let keys: Vec<String> = (0..KEYS).map(|k| format!("key-{k}")).collect();
        let record = |i: usize| Piped { key: Some(keys[i % KEYS].as_bytes()), value: Some(b"{}"), timestamp: None };
        let records: Vec<_> = (0..COUNTED).map(record).collect();
        driver.pipe_together("in", &records).unwrap();
        let before = driver.read_output("out").len();
        let counted = measure(|| driver.pipe_together("in", &records).unwrap());
        let (written, each) = (driver.read_output("out").len(), counted.count_total / COUNTED as u64);
        println!(
            "caching: {caching}: {each} allocations, {} bytes a record; {written} records written",
            counted.bytes_total / COUNTED as u64
        );
        assert_eq!(before, written);
        (written, each)
    });
    assert_eq!((plain.0, cached.0), (COUNTED, KEYS));
    assert!(cached.1 < plain.1, "{} and {} allocations a record", cached.1, plain.1);
}
