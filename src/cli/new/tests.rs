#![allow(clippy::unwrap_used)]
use super::*;
use crate::app::check::Report;
use crate::config::ProcessConfig;
use serde_json::Value;

/// The states of an operation in the order of the results topic.
fn states(dir: &Path, operation: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("expected.jsonl")).unwrap();
    let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let own = lines.filter(|l| l["value"]["operation_id"] == operation && l["value"]["kind"] == "state");
    own.map(|l| l["value"]["status"].as_str().unwrap().to_owned()).collect()
}

fn last(dir: &Path, operation: &str) -> String {
    states(dir, operation).pop().unwrap_or_default()
}

fn dead(dir: &Path) -> usize {
    std::fs::read_to_string(dir.join("expected.jsonl")).unwrap().matches("\"rb_dead_code\"").count()
}

/// What was written is checked and played anew, as a person does next.
fn passes(dir: &Path) {
    let declared = load::offline(dir).unwrap_or_else(|e| panic!("{e}"));
    // What a contract says of itself stands; the topology around it must add nothing.
    let told = declared.warnings.to_string();
    assert!(!told.contains("topology.yaml"), "{told}");
    assert_eq!(declared.application.policies.len(), 1, "the policy that was written is asked");
    let report = Report::offline(&declared.application, &ProcessConfig::default(), &declared.warnings);
    let guarded = report.edges.iter().flat_map(|e| &e.promises).filter(|p| p.promise == "only what policy permits");
    assert_eq!(guarded.count(), 1, "the edge that it guards names it");
    assert!(report.contradictions.is_empty() && !report.edges.is_empty());
    recorded::run(&declared.application, dir, false).unwrap_or_else(|e| panic!("{e}"));
}

/// If this broke, the first thing that a new user makes would not pass the product's own checks, or would show a lost answer that
/// doubles.
#[test]
fn every_ready_contract_becomes_a_topology_that_passes() {
    let shipped = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/contracts")).unwrap().flatten();
    let shipped = shipped.filter(|f| f.path().extension().is_some_and(|e| e == "yaml")).count();
    assert_eq!(shipped, ready::ALL.len(), "each file of topology/contracts is in the table");
    for ready in ready::ALL {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "shop", ready, &own("shop", ready)).unwrap_or_else(|e| panic!("{}: {e}", ready.name));
        passes(dir.path());
        let call = ready.call;
        let of = |n: usize| last(dir.path(), &format!("{call}-{n}"));
        assert_eq!((of(1).as_str(), of(2).as_str()), ("confirmed", "refused"), "{}", ready.name);
        let by_a_person = matches!(ready.name, "brevo" | "square" | "plain-webhook");
        assert_eq!(of(3), if by_a_person { "parked" } else { "confirmed" }, "{}", ready.name);
        assert_eq!(dead(dir.path()), 1, "{}", ready.name);
        assert_eq!(of(5), "denied", "{}: by its policy", ready.name);
        assert!(!ready.variables().is_empty(), "{}: a secret is named by a variable", ready.name);
    }
}

const SHIPMENTS: &str = r#"{"type":"record","name":"Shipment","fields":[
    {"name":"shipment_id","type":"string"}, {"name":"merchant","type":"string"}, {"name":"to","type":"string"},
    {"name":"lines","type":{"type":"array","items":"string"}},
    {"name":"sent_at","type":{"type":"long","logicalType":"timestamp-millis"}}]}"#;

/// If this broke, a topology for a topic that exists would read other fields than its schema has, or not run at all.
#[test]
fn a_topics_schema_becomes_a_topology_that_passes() {
    for name in ["plain-webhook", "resend", "checkout"] {
        let (dir, ready) = (tempfile::tempdir().unwrap(), ready::find(name).unwrap());
        let fields = avro::fields(SHIPMENTS).unwrap();
        let mapping = Mapping::of_schema(ready, "logistics.shipments.v2", &fields, &Given::default()).unwrap();
        let source = Source { topic: "logistics.shipments.v2".into(), formats: ("string", "avro"), key: None, mapping };
        write(dir.path(), "shop", ready, &source).unwrap_or_else(|e| panic!("{name}: {e}"));
        passes(dir.path());
        let text = std::fs::read_to_string(dir.path().join("topology.yaml")).unwrap();
        for part in
            ["string(value", "value.shipment_id", "tenant: value.merchant", "timestamp(value.sent_at)", "# value.lines: array"]
        {
            assert_eq!(text.contains(part), part != "string(value", "{part} in\n{text}");
        }
        assert_eq!(text.contains("to: value.to"), name == "resend", "{text}");
        let of = |id: &str| last(dir.path(), &format!("{}-{id}", ready.call));
        assert_eq!((of("1").as_str(), of("5").as_str()), ("confirmed", "denied"), "{name}: policy reads the topic's tenant");
    }
}

/// If this broke, a deadline would be made up, and a late effect sent.
#[test]
fn a_schema_without_a_time_needs_a_deadline() {
    let fields = avro::fields(r#"{"type":"record","name":"A","fields":[{"name":"n","type":"long"}]}"#).unwrap();
    let ready = ready::find("plain-webhook").unwrap();
    let refused = Mapping::of_schema(ready, "t", &fields, &Given::default()).err().unwrap();
    assert_eq!(refused, "n (long)");
    let given = Given { id: None, deadline: Some("value.n + 5".into()) };
    assert_eq!(Mapping::of_schema(ready, "t", &fields, &given).unwrap().deadline, "value.n + 5");
}

/// If this broke, a folder with somebody's work in it would be overwritten.
#[test]
fn what_is_there_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    must_be_empty(dir.path()).unwrap();
    std::fs::write(dir.path().join("topology.yaml"), "mine").unwrap();
    let refused = must_be_empty(dir.path()).unwrap_err();
    assert_eq!((refused.code, refused.fault.exit_code()), (codes::USAGE, 2));
}
