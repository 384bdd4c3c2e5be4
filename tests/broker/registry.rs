//! The registry client against a real, Confluent-compatible registry.

use readback::error::codes;
use readback::ids::TopicName;
use readback::registry::{Ensure, Registry, RegistryAuth};
use readback::serdes::{AvroCodec, SchemaSource};
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
    assert!(registry.by_id(id).expect("by id").canonical().contains("\"Op\""));
    assert_eq!(registry.by_id(4_000_000).expect_err("no such id").code, codes::SCHEMA_MISSING);
    let bytes = registry.encode(&topic, &json!({"id": "op-1"})).expect("encodes");
    assert_eq!(registry.decode(&topic, &bytes).expect("decodes"), json!({"id": "op-1"}));
    assert!(!registry.check_compatible(&subject, other).expect("answers"), "the registry runs with BACKWARD");
}
