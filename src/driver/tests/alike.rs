//! Two operations that mean the same, in partitions of their own: the second waits for a person, whatever crashes between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::error::codes;
use crate::ids::{ApplicationId, ApprovalId, OperationId, PlanHash, partition_of};
use crate::intents::{Approval, Decision, Status};
use crate::outbox::commands::{self, CommandRecord, Order};

const MAIL: &str = r#"contract: mail
version: 1
verified_on: 2026-11-20
target: { base_url: "https://mail.internal", hosts: [mail.internal] }
calls:
  send:
    parameters: { to: { type: string } }
    request: { method: POST, path: /messages, json: { to: "{to}", ref: "{key}" } }
    key: { carrier: body }
    answers: [{ status: 202, means: applied }]
"#;

fn guarded() -> (TopologyTestDriver, Arc<AtomicUsize>) {
    let contract = contract::parse("contracts/under-test.yaml", MAIL).unwrap_or_else(|d| panic!("{d}"));
    let mut driver = TopologyTestDriver::new(&built_as(contract, "send", |e| e.duplicates(Duration::from_secs(300)))).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    driver.serve(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        says(202, &json!({}))
    });
    (driver, sent)
}

fn asked(driver: &mut TopologyTestDriver, id: &str, to: &str) {
    ask(driver, &parameters(id, None, &json!({ "to": to })));
    driver.advance(Duration::from_secs(3)).unwrap();
}

fn last(driver: &mut TopologyTestDriver, id: &str, seen: &mut Vec<ResultRecord>) -> ResultRecord {
    seen.extend(states(driver));
    seen.iter().rev().find(|r| r.operation_id.as_str() == id).unwrap_or_else(|| panic!("no result of {id}")).clone()
}

fn decide(driver: &mut TopologyTestDriver, of: &ResultRecord, decision: Decision) {
    let approval = Approval {
        approval_id: ApprovalId::new(format!("a-{}", of.operation_id)),
        tenant: of.tenant.clone(),
        operation_id: of.operation_id.clone(),
        plan_hash: of.plan_hash.clone().unwrap_or_else(|| PlanHash::new("")),
        approver: "person@acme".into(),
        decision,
        expires_at: driver.now().plus(Duration::from_secs(60)),
        policy_version: String::new(),
        reason: Some("both are meant".into()),
    };
    let order = Order {
        tenant: None,
        operation_id: OperationId::new(of.operation_id.as_str()),
        step: None,
        seen: of.version,
        by: "person@acme".into(),
        second: None,
        via: None,
        reason: "both are meant".into(),
        evidence: None,
        at: driver.now(),
        hold: Duration::from_secs(60),
    };
    let command = commands::approve(order, approval);
    let record = CommandRecord::new(&ApplicationId::new("asked"), 1, &command).unwrap();
    driver.pipe(record.topic.as_str(), Some(&record.key), Some(&record.value), record.headers.clone(), None).unwrap();
    driver.advance(Duration::from_secs(3)).unwrap();
}

/// If this broke, the same mail would go out twice under two IDs; or the second would never go, though somebody meant it.
#[test]
fn the_second_of_one_meaning_waits_and_goes_when_it_is_meant() {
    let (mut driver, sent) = guarded();
    let mut seen = Vec::new();
    asked(&mut driver, "op-1", "a@example.org");
    asked(&mut driver, "op-2", " a@example.org ");
    asked(&mut driver, "op-3", "b@example.org");
    assert_eq!(sent.load(Ordering::SeqCst), 2);
    driver.lose_process().unwrap();
    driver.advance(Duration::from_secs(5)).unwrap();
    let waits = last(&mut driver, "op-2", &mut seen);
    assert_eq!((waits.status, waits.code.clone()), (Status::AwaitingApproval, Some(codes::SAME_MEANING.to_string())));
    assert!(waits.detail.as_deref().is_some_and(|d| d.contains("op-1")), "{waits:?}");
    decide(&mut driver, &waits, Decision::Approve);
    assert_eq!(last(&mut driver, "op-2", &mut seen).status, Status::Confirmed);
    assert_eq!(sent.load(Ordering::SeqCst), 3);
}

/// If this broke, a meaning would be remembered for ever, or forgotten with the process that kept it.
#[test]
fn the_window_ends_and_outlives_the_process() {
    let (mut driver, sent) = guarded();
    let mut seen = Vec::new();
    asked(&mut driver, "op-1", "a@example.org");
    driver.lose_process().unwrap();
    driver.advance(Duration::from_secs(200)).unwrap();
    asked(&mut driver, "op-2", "a@example.org");
    let waits = last(&mut driver, "op-2", &mut seen);
    assert_eq!(waits.status, Status::AwaitingApproval);
    decide(&mut driver, &waits, Decision::Deny);
    assert_eq!(last(&mut driver, "op-2", &mut seen).status, Status::Denied);
    driver.advance(Duration::from_secs(120)).unwrap();
    asked(&mut driver, "op-3", "a@example.org");
    assert_eq!((last(&mut driver, "op-3", &mut seen).status, sent.load(Ordering::SeqCst)), (Status::Confirmed, 2));
}

/// If this broke, these tests would prove nothing about partitions: the three operations would lie in one.
#[test]
fn they_lie_in_partitions_of_their_own() {
    let places: std::collections::BTreeSet<_> = ["op-1", "op-2", "op-3"].iter().map(|id| partition_of(id.as_bytes(), 4)).collect();
    assert!(places.len() > 1);
}
