//! What people order, from the commands topic through the identity step to the owner of the ledger record.

use super::*;
use crate::error::codes;
use crate::ids::{ApplicationId, OperationId};
use crate::intents::{Command, Resolution, Status};
use crate::outbox::commands::{self, CommandRecord, Order};

/// A target that remembers nothing and shows nothing: whatever is lost goes to a person.
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
    person: { look_at: "https://mail.internal/sent?ref={key}" }
"#;

/// One message whose answer is lost, parked, and its version; those after it are taken.
fn parked() -> (TopologyTestDriver, i64) {
    let mut driver = application(MAIL, "send");
    let mut lost = false;
    driver.serve(move |_, _| if std::mem::replace(&mut lost, true) { says(202, &json!({})) } else { Scripted::Lost });
    ask(&mut driver, &parameters("op-1", None, &json!({ "to": "a@example.org" })));
    driver.advance(std::time::Duration::from_secs(5)).unwrap();
    let last = states(&mut driver).pop().unwrap();
    assert_eq!(last.status, Status::Parked);
    (driver, last.version.unwrap())
}

fn order(driver: &TopologyTestDriver, seen: i64, second: Option<&str>) -> Order {
    Order {
        tenant: None,
        operation_id: OperationId::new("op-1"),
        step: None,
        seen: Some(seen),
        by: "person@acme".into(),
        second: second.map(str::to_owned),
        via: None,
        reason: "looked at the outbox".into(),
        evidence: None,
        at: driver.now(),
        hold: std::time::Duration::from_secs(60),
    }
}

/// Gives a command and reads its answer: code and words; states that follow stay to be read.
fn give(driver: &mut TopologyTestDriver, command: &Command) -> (Option<String>, Vec<Status>) {
    let record = CommandRecord::new(&ApplicationId::new("asked"), 1, command).unwrap();
    driver.pipe(record.topic.as_str(), Some(&record.key), Some(&record.value), record.headers.clone(), None).unwrap();
    driver.advance(std::time::Duration::from_secs(5)).unwrap();
    let all: Vec<ResultRecord> =
        driver.read_output("results").into_iter().map(|o| internal::decode(&o.value.unwrap()).unwrap()).collect();
    let answer = all.iter().find(|r| r.answers.as_deref() == Some(command.command_id.as_str()));
    let answer = answer.unwrap_or_else(|| panic!("never answered: {all:?}"));
    let states = all.iter().filter(|r| r.kind == ResultKind::State).map(|r| r.status).collect();
    (answer.code.clone(), states)
}

/// If this broke, one person could send again what may still arrive, or nobody could; or a command given on an old screen would
/// be carried out on what has changed since.
#[test]
fn a_forced_send_needs_the_version_that_was_seen_and_a_second_person() {
    let (mut driver, version) = parked();
    let stale = commands::force(order(&driver, version - 1, Some("other@acme")));
    assert_eq!(give(&mut driver, &stale).0, Some(codes::STALE_VERSION.to_string()));
    let alone = commands::force(order(&driver, version, None));
    assert_eq!(give(&mut driver, &alone).0, Some(codes::COMMAND_REFUSED.to_string()));
    let same = commands::force(order(&driver, version, Some("person@acme")));
    assert_eq!(give(&mut driver, &same).0, Some(codes::COMMAND_REFUSED.to_string()), "a second person is another one");
    let both = commands::force(order(&driver, version, Some("other@acme")));
    let (code, states) = give(&mut driver, &both);
    assert_eq!((code, states.last()), (None, Some(&Status::Confirmed)));
}

/// If this broke, one person could close as not done what may still be on its way.
#[test]
fn not_applied_before_settle_needs_a_second_person_too() {
    let (mut driver, version) = parked();
    let alone = commands::resolve(order(&driver, version, None), Resolution::NotApplied);
    assert_eq!(give(&mut driver, &alone).0, Some(codes::COMMAND_REFUSED.to_string()));
    let both = commands::resolve(order(&driver, version, Some("other@acme")), Resolution::NotApplied);
    let (code, states) = give(&mut driver, &both);
    assert_eq!((code, states), (None, vec![Status::ResolvedNotApplied]));
}

/// If this broke, a command that names nobody would be carried out, and the record would show nobody.
#[test]
fn a_command_names_who_gives_it() {
    let (mut driver, version) = parked();
    let mut nobody = commands::cancel(order(&driver, version, None));
    nobody.by = String::new();
    assert_eq!(give(&mut driver, &nobody).0, Some(codes::COMMAND_REFUSED.to_string()));
}
