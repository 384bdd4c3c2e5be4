//! Two versions of the orders topology under the same recorded input.

use std::path::{Path, PathBuf};

use crate::config::yaml;
use crate::driver::compare::{Comparison, Kind, compare};
use crate::dsl::Application;

fn orders() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/orders")
}

fn application(dir: &Path) -> Application {
    yaml::offline(|| crate::declare::load(dir).unwrap_or_else(|d| panic!("{d}"))).application
}

/// A copy of the topology with one place of one file changed.
fn changed(file: &str, from: &str, to: &str) -> (tempfile::TempDir, Application) {
    let dir = tempfile::tempdir().unwrap();
    for path in ["topology.yaml", "contracts", "policies", "prompts", "schemas"] {
        let from = orders().join(path);
        let files: Vec<PathBuf> =
            if from.is_dir() { from.read_dir().unwrap().flatten().map(|f| f.path()).collect() } else { vec![from] };
        for file in files {
            let to = dir.path().join(file.strip_prefix(orders()).unwrap());
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(&file, to).unwrap();
        }
    }
    let path = dir.path().join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} does not hold `{from}`");
    std::fs::write(path, text.replace(from, to)).unwrap();
    let application = application(dir.path());
    (dir, application)
}

fn compared(file: &str, from: &str, to: &str) -> Comparison {
    let (_dir, new) = changed(file, from, to);
    yaml::offline(|| compare(&application(&orders()), &new, &orders().join("input.jsonl"))).unwrap()
}

fn kinds(found: &Comparison, operation: &str) -> Vec<Kind> {
    let of = |d: &&crate::driver::compare::Difference| d.operation.as_ref().is_some_and(|k| k.operation.as_str() == operation);
    found.differences.iter().filter(of).map(|d| d.kind).collect()
}

/// If this broke, a difference would be shown where there is none, and nobody would look at the next one.
#[test]
fn the_same_version_means_the_same() {
    let found = compared("topology.yaml", "# A model plans", "# A model still plans");
    assert!(found.differences.is_empty() && found.operations > 5, "{found:#?}");
}

/// If this broke, an approval of the old bytes would seem to carry over to new ones.
#[test]
fn other_bytes_void_the_approvals_of_the_old_ones() {
    let found = compared("contracts/orders.yaml", "client_ref: \"{key}\" }", "client_ref: \"{key}\", channel: agent }");
    let approved = kinds(&found, "op-4");
    for kind in [Kind::Plan, Kind::Approval, Kind::Effect, Kind::Outcome] {
        assert!(approved.contains(&kind), "{kind:?}: {found:#?}");
    }
    let plain = found.differences.iter().find(|d| d.kind == Kind::Request).unwrap();
    assert_eq!(plain.parts, ["body.channel (added)"]);
    assert!(kinds(&found, "op-1.plan").is_empty(), "what the model is asked is the same");
    assert!(!format!("{found:?}").contains("SKU-1"), "no payload");
}

/// If this broke, a re-send across a deploy could meet the target under another key, and nobody would have been told.
#[test]
fn another_key_secret_is_another_key() {
    let found = compared("topology.yaml", "application: orders", "application: orders-eu");
    assert!(kinds(&found, "op-1").contains(&Kind::Key), "{found:#?}");
}

/// If this broke, a prompt, a policy, a threshold or a proposal's shape could change what is done, and the deploy would look harmless.
#[test]
fn prompts_policies_and_gates_are_part_of_the_meaning() {
    let prompt = compared("prompts/buyer.v7.md", "\n", "\nPrefer cheap articles.\n");
    let asked = prompt.differences.iter().find(|d| d.kind == Kind::Request).unwrap();
    assert_eq!(asked.operation.as_ref().unwrap().operation.as_str(), "op-1.plan");
    assert!(asked.parts.iter().all(|p| p.starts_with("body.messages[0]")), "{asked:?}");
    let gate = compared("topology.yaml", "double(plan.total) > 500.0", "double(plan.total) > 15.0");
    assert!(kinds(&gate, "op-1").contains(&Kind::Outcome), "it waits for an approval now: {gate:#?}");
    let policy = compared("policies/orders.cedar", "permit", "forbid");
    assert!(kinds(&policy, "op-1").contains(&Kind::Outcome), "{policy:#?}");
    let step = compared("topology.yaml", "name: place-order", "name: order");
    assert!(kinds(&step, "op-1").contains(&Kind::Vanished) && kinds(&step, "op-1").contains(&Kind::New), "{step:#?}");
    let source = compared("topology.yaml", "topic: agent.approvals", "topic: agent.approved");
    assert!(source.unread.contains("agent.approvals"), "{source:#?}");
}
