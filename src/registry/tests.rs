//! The client against a registry with faults.

use std::collections::VecDeque;
use std::sync::Mutex;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::runtime::Runtime;

use super::*;
use crate::config::Secret;
use crate::ids::TopicName;
use crate::serdes::AvroCodec;

const OP: &str = r#"{\"type\":\"record\",\"name\":\"Op\",\"fields\":[{\"name\":\"id\",\"type\":\"string\"}]}"#;

/// One answer of the fake.
#[derive(Clone, Copy)]
enum Say {
    Schema,
    Newest(u32),
    Id(u32),
    Status(u16),
    Html,
    Nothing,
}

/// A registry that gives its answers in order, the last one for ever, and writes down what it was asked.
struct Fake {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    _runtime: Runtime,
}

impl Fake {
    fn saying(answers: &[Say]) -> Self {
        let runtime = Runtime::new().expect("starts");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answers, log) = (Arc::new(Mutex::new(VecDeque::from(answers.to_vec()))), asked.clone());
        let app = Router::new().fallback(move |uri: Uri, headers: HeaderMap| {
            let auth = headers.get("authorization").map(|v| v.to_str().unwrap_or("?").to_owned()).unwrap_or_default();
            log.lock().expect("log").push(format!("{} {auth}", uri.path()));
            let mut answers = answers.lock().expect("answers");
            let say = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
            answer(say.expect("one answer at least"))
        });
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { url, asked, _runtime: runtime }
    }
    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("log").clone()
    }
    fn registry(&self, patience: Patience) -> Registry {
        Registry::with(&self.url, RegistryAuth::None, patience).expect("a client")
    }
}

async fn answer(say: Say) -> Response {
    match say {
        Say::Schema => format!("{{\"schema\":\"{OP}\"}}").into_response(),
        Say::Newest(id) => format!("{{\"id\":{id},\"version\":1,\"schema\":\"{OP}\"}}").into_response(),
        Say::Id(id) => format!("{{\"id\":{id}}}").into_response(),
        Say::Status(status) => {
            let code = StatusCode::from_u16(status).expect("a status");
            (code, "a sentence, not JSON").into_response()
        }
        Say::Html => "<html>log in</html>".into_response(),
        Say::Nothing => std::future::pending().await,
    }
}

fn quick() -> Patience {
    let moments = |n| Duration::from_millis(n);
    Patience { request: moments(300), backoff: moments(1), wait: moments(30_000), ..Patience::default() }
}

/// C016: if this broke, ten thousand records of an unknown id would be ten thousand requests; or the id stay unknown for ever.
#[test]
fn an_unknown_id_is_asked_for_once_in_a_while() {
    let fake = Fake::saying(&[Say::Status(404), Say::Schema]);
    let registry = fake.registry(quick());
    for _ in 0..10_000 {
        assert_eq!(registry.by_id(9).err().map(|e| (e.code, e.fault)), Some((codes::SCHEMA_MISSING, Fault::Data)));
    }
    assert_eq!(fake.asked().len(), 1);
    let fake = Fake::saying(&[Say::Status(404), Say::Schema]);
    let registry = fake.registry(Patience { missing: Duration::ZERO, ..quick() });
    assert!(registry.by_id(9).is_err());
    assert!(registry.by_id(9).is_ok(), "known by now");
}

/// C017: if this broke, one 503, 500, 429 or silence would make good records bad until a restart.
#[test]
fn a_passing_failure_is_not_remembered() {
    for fault in [Say::Status(503), Say::Status(500), Say::Status(429), Say::Nothing] {
        let fake = Fake::saying(&[fault, Say::Schema]);
        let registry = fake.registry(quick());
        for _ in 0..100 {
            assert!(registry.by_id(7).is_ok(), "within the tries of the first call");
        }
        assert_eq!(fake.asked().len(), 2, "a known schema is not asked for again");
    }
}

/// C019 and C118: if this broke, wrong credentials would look like bad records, or be printed.
#[test]
fn a_refusal_is_no_bad_record_and_shows_no_secret() {
    for refusal in [Say::Status(401), Say::Status(403), Say::Html] {
        let fake = Fake::saying(&[refusal, Say::Schema]);
        let password = SecretRef::Literal(Secret::new("hunter2"));
        let auth = RegistryAuth::Basic { user: "key".into(), password };
        let registry = Registry::with(&fake.url, auth, Patience { failed: Duration::ZERO, ..quick() }).expect("a client");
        let e = registry.by_id(7).expect_err("refused");
        assert_eq!((e.code, e.fault), (codes::REGISTRY_REFUSED, Fault::Configuration));
        let shown = format!("{e} {e:?}");
        assert!(shown.contains("127.0.0.1") && !shown.contains("hunter2") && !shown.contains("http://"), "{shown}");
        assert!(fake.asked()[0].contains("Basic a2V5Omh1bnRlcjI="), "the credential is sent");
        assert!(registry.by_id(7).is_ok(), "after the credentials were put right");
    }
    assert!(Registry::new("http://key:hunter2@host", RegistryAuth::None).is_err_and(|e| !e.to_string().contains("hunter2")));
}

/// C020: if this broke, an outage would be a fault of the record, and good records dead letters.
#[test]
fn an_outage_is_unreachable() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let registry = Registry::with(&format!("http://{closed}"), RegistryAuth::None, quick()).expect("a client");
    let e = registry.by_id(7).expect_err("nobody is there");
    assert_eq!((e.code, e.fault), (codes::REGISTRY_UNREACHABLE, Fault::Unreachable));
}

/// C020: if this broke, a registry that takes connections and says nothing would hold up every partition of the thread that has one
/// record of a new schema; or the answer, once it comes, would be asked for again.
#[test]
fn a_silent_registry_keeps_nobody_waiting() {
    let fake = Fake::saying(&[Say::Nothing, Say::Schema]);
    let patience = Patience { wait: Duration::from_millis(5), failed: Duration::ZERO, ..quick() };
    let registry = fake.registry(patience);
    let e = registry.by_id(7).expect_err("no answer yet");
    assert_eq!((e.code, e.fault), (codes::REGISTRY_UNREACHABLE, Fault::Unreachable));
    while registry.by_id(7).is_err() {}
    let asked = fake.asked().len();
    assert!(asked >= 2, "the client asks again by itself after its own limit");
    assert!(registry.by_id(7).is_ok());
    assert_eq!(fake.asked().len(), asked, "what has come is not asked for again");
}

/// C025: if this broke, schemas would be registered under names that no other client looks for.
#[test]
fn subjects_are_named_as_others_name_them() {
    let names = |s: SubjectNames| s.subject("rb.out", "demo.Res", false);
    assert_eq!(names(SubjectNames::Topic), "rb.out-value");
    assert_eq!(names(SubjectNames::Record), "demo.Res");
    assert_eq!(names(SubjectNames::TopicRecord), "rb.out-demo.Res");
    assert_eq!(SubjectNames::Topic.subject("rb.out", "demo.Res", true), "rb.out-key");
}

/// C025: if this broke, a start without its schema would go on, or register what it must not.
#[test]
fn a_schema_is_registered_only_where_allowed() {
    let fake = Fake::saying(&[Say::Id(12)]);
    assert_eq!(fake.registry(quick()).ensure("rb.out-value", r#""string""#, Ensure::Register).expect("an id"), 12);
    assert!(fake.asked()[0].starts_with("/subjects/rb.out-value/versions "), "{:?}", fake.asked());
    let fake = Fake::saying(&[Say::Status(404)]);
    let e = fake.registry(quick()).ensure("rb.out-value", r#""string""#, Ensure::MustExist).expect_err("not there");
    assert_eq!(e.code, codes::SCHEMA_MISSING);
    assert!(fake.asked()[0].starts_with("/subjects/rb.out-value "), "{:?}", fake.asked());
    let fake = Fake::saying(&[Say::Status(409)]);
    let e = fake.registry(quick()).register("rb.out-value", r#""string""#).expect_err("incompatible");
    assert_eq!(e.code, codes::SCHEMA_INCOMPATIBLE);
}

/// If this broke, the DSL would write under another schema than the topic's newest, or read past the reader's schema.
#[test]
fn topics_are_written_by_their_newest_schema_and_read_as_asked() {
    let fake = Fake::saying(&[Say::Newest(5), Say::Schema]);
    let registry = fake.registry(quick());
    let (topic, value) = (TopicName::new("rb.out"), json!({"id": "op-1"}));
    let bytes = registry.encode(&topic, &value).expect("encodes");
    assert_eq!(bytes, [&[0, 0, 0, 0, 5, 8][..], b"op-1"].concat());
    assert_eq!(registry.encode(&topic, &value).expect("encodes"), bytes);
    assert_eq!(registry.decode(&topic, &bytes).expect("decodes"), value);
    let reader = r#"{"type":"record","name":"Op","fields":[{"name":"name","aliases":["id"],"type":"string"},{"name":"n","type":"int","default":3}]}"#;
    registry.read_as(&topic, ParsedSchema::parse(reader).expect("a schema"));
    assert_eq!(registry.decode(&topic, &bytes).expect("decodes"), json!({"name": "op-1", "n": 3}));
    let paths: Vec<_> = fake.asked().iter().map(|a| a.trim().to_owned()).collect();
    assert_eq!(paths, ["/subjects/rb.out-value/versions/latest", "/schemas/ids/5"]);
}
