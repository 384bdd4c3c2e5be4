//! Logins and permissions of a real broker.

use std::collections::BTreeMap;
use std::process::Command;

use crate::notices::{Service, ask, topology};
use crate::processes::Running;
use crate::story::program;
use crate::wire::deny;
use crate::{shared, stack, until};

/// Kafka's numbers: the resource and the operation.
const TRANSACTIONAL_ID: i8 = 5;
const WRITE: i8 = 4;

/// Settings of a login.
pub fn signed_in<'a>(user: &'a str, password: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("READBACK_BROKERS", stack().sasl().expect("this test needs a local stack: unset READBACK_BROKERS")),
        ("READBACK_KAFKA__SECURITY_PROTOCOL", "sasl_plaintext"),
        ("READBACK_KAFKA__SASL_MECHANISM", "PLAIN"),
        ("READBACK_KAFKA__SASL_USERNAME", user),
        ("READBACK_KAFKA__SASL_PASSWORD", password),
    ]
}

fn named(name: &str) -> String {
    format!("{name}-{}", &uuid::Uuid::new_v4().simple().to_string()[..6])
}

/// If this broke, no cluster that asks for a login could be used.
#[test]
fn a_member_signs_in_and_does_its_work() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let (app, service) = (named("sasl"), Service::start());
    let mut more = signed_in("readback", "readback");
    more.push(("NOTICES_URL", &service.url));
    let mut member = Running::with(&topology(work.path(), &app), &work.path().join("state"), "member", &more);
    member.until_running();
    ask(&app, "op-1");
    until("a notice", || (service.posts() == BTreeMap::from([("op-1".to_owned(), 1)])).then_some(()));
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
    assert!(!member.said().contains("password"), "{}", member.said());
}

/// If this broke, a wrong password would look like a broker that is away.
#[test]
fn a_wrong_password_is_told_as_what_it_is() {
    let _shared = shared();
    let out = Command::new(program()).args(["ops", "list"]).envs(signed_in("readback", "wrong")).output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("Authentication failed") && !said.contains("wrong"), "{said}");
}

/// C046: if this broke, a missing permission on the transactional id would be a hang or an endless retry.
#[test]
fn c046_a_missing_permission_on_the_transactional_id_ends_the_start() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = named("denied");
    deny("User:limited", TRANSACTIONAL_ID, &format!("{app}-"), WRITE);
    let mut more = signed_in("limited", "limited");
    more.push(("NOTICES_URL", "http://127.0.0.1:9"));
    let mut member = Running::with(&topology(work.path(), &app), &work.path().join("state"), "member", &more);
    let ended = until("it ends", || member.try_wait());
    let said = member.said();
    assert_eq!(ended.code(), Some(2), "{said}");
    for part in ["RB0308", "allow Write and Describe on this transactional id", &format!("init_transactions {app}-000")] {
        assert!(said.contains(part), "no {part} in {said}");
    }
}
