//! The registry client against a real, Confluent-compatible registry.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use readback::error::codes;
use readback::ids::TopicName;
use readback::kafka::Reading;
use readback::registry::{Ensure, Registry, RegistryAuth};
use readback::serdes::{AvroCodec, ParsedSchema, SchemaSource};
use readback::testing::scenarios::{self, Away};
use serde_json::json;

/// If this broke, the client would work with its own fake only: register, look up, check, read by id, write by the newest.
#[test]
fn schemas_are_registered_found_and_checked() {
    let _shared = super::shared();
    let registry = Registry::new(super::stack().registry(), RegistryAuth::None).expect("a client");
    let topic = TopicName::from(format!("registry-test-{}", std::process::id()));
    let subject = format!("{topic}-value");
    let first = r#"{"type":"record","name":"Op","fields":[{"name":"id","type":"string"}]}"#;
    let other = r#"{"type":"record","name":"Op","fields":[{"name":"id","type":"int"}]}"#;
    let missing = registry.ensure(&subject, first, Ensure::MustExist).expect_err("nobody registered it");
    assert_eq!(missing.code, codes::SCHEMA_MISSING);
    let id = registry.ensure(&subject, first, Ensure::Register).expect("registers");
    assert_eq!(registry.register(&subject, first).expect("again"), id);
    assert_eq!(registry.id_of(&subject, first).expect("is there"), id);
    assert!(registry.check_compatible(&subject, first).expect("answers"));
    assert_eq!(registry.by_id(id).expect("by id").canonical(), ParsedSchema::parse(first).expect("Avro").canonical());
    assert_eq!(registry.by_id(4_000_000).expect_err("no such id").code, codes::SCHEMA_MISSING);
    let bytes = registry.encode(&topic, &json!({"id": "op-1"})).expect("encodes");
    assert_eq!(registry.decode(&topic, &bytes).expect("decodes"), json!({"id": "op-1"}));
    assert!(!registry.check_compatible(&subject, other).expect("answers"), "the registry runs with BACKWARD");
}

/// A way to the registry that can be shut.
struct Way {
    url: String,
    shut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(registry: &str) -> Self {
        let target = registry.trim_start_matches("http://").trim_end_matches('/').split('/').next().expect("a host").to_owned();
        let path = registry.trim_start_matches("http://").trim_start_matches(target.as_str()).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}{path}", listener.local_addr().expect("bound"));
        let (shut, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (closed, streams) = (shut.clone(), open.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten().filter(|_| !closed.load(Ordering::SeqCst)) {
                let Ok(server) = TcpStream::connect(&target) else { continue };
                for (mut from, mut to) in [(&client, &server), (&server, &client)].map(|(a, b)| (clone(a), clone(b))) {
                    streams.lock().expect("no panic").push(clone(&from));
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
            }
        });
        Self { url, shut, open }
    }
    fn shut(&self, shut: bool) {
        self.shut.store(shut, Ordering::SeqCst);
        for stream in self.open.lock().expect("no panic").drain(..) {
            // It may be gone already.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a handle")
}

/// C020: if this broke, a registry that is away while a new schema comes would end the process, stop every partition, or make dead
/// letters of good records. With the real client, registry and broker.
#[test]
fn c020_a_registry_that_is_away_holds_up_only_what_needs_it() {
    let _shared = super::shared();
    let direct = Registry::new(super::stack().registry(), RegistryAuth::None).expect("a client");
    let way = Way::to(super::stack().registry());
    let client = Registry::new(&way.url, RegistryAuth::None).expect("a client");
    let id = |name: &str| {
        let schema = format!(r#"{{"type":"record","name":"{name}","fields":[{{"name":"n","type":"long"}}]}}"#);
        let subject = format!("held-{name}-{}-value", uuid::Uuid::new_v4().simple());
        direct.register(&subject, &schema).expect("registers")
    };
    // Small numbers are one byte in Avro, twice as large.
    let framed = |id: u32| move |n: usize| [&[0][..], &id.to_be_bytes(), &[2 * n as u8]].concat();
    let registry = Away {
        codec: Arc::new(client),
        away: Box::new(move |away| way.shut(away)),
        known: Box::new(framed(id("Known"))),
        new: Box::new(framed(id("New"))),
        lost: framed(4_000_000)(1),
    };
    let b = super::scenarios::bench("held", super::cluster_at(super::stack().brokers()));
    scenarios::a_record_without_its_schema_waits_alone(&b, &registry, Reading::Shared);
}
