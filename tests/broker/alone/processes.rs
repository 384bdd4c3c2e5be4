//! The program as a user runs it where the broker goes away, and the demo, which breaks what it can.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::processes::{Running, orders};
use crate::story::program;
use crate::{alone, stack};

/// C059: if this broke, a member would hang in its client when it is told to stop while no broker answers, until it is killed.
#[test]
fn c059_sigterm_ends_a_member_whose_broker_is_away() {
    let _alone = alone();
    let work = tempfile::tempdir().expect("a directory");
    let mut member = Running::start(&orders(work.path(), "away"), &work.path().join("state"), "member");
    member.until_running();
    stack().stop_broker().expect("stops");
    let ended = member.terminate();
    stack().start_broker().expect("starts");
    assert_eq!(ended.code(), Some(0), "{}", member.said());
}

/// The demo at a quarter of its size. If this broke, the first thing that a user runs would fail, or report without its figures.
#[test]
fn the_demo_with_120_operations_ends_with_books_that_agree() {
    // As on a fresh machine: it starts a stack of its own, and stops it. Others wait, since it measures itself by the clock.
    let _alone = alone();
    let own = tempfile::tempdir().expect("a directory");
    let run = Command::new(program())
        .args(["demo", "--output", "json", "--operations", "120"])
        .env("READBACK_STACK_DIR", own.path())
        .env_remove("READBACK_BROKERS")
        .env_remove("READBACK_REGISTRY")
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let (out, said) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.status.code(), Some(0), "{out}\n{said}");
    let last = out.lines().last().expect("one line of JSON");
    let report: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(report["operations"], 120);
    assert_eq!((&report["lost"], &report["doubled"]), (&0.into(), &0.into()), "{report}");
    assert_eq!(report["unknown"], report["undecidable"]);
    assert!(report["effects_at_target"].as_u64().is_some_and(|n| n > 60), "{report}");
    assert_eq!(report["faults"]["kill_9"], 3);
    let faults = [
        "answers_lost",
        "requests_lost",
        "errors_after_applying",
        "late_answers",
        "applied_after_leaving",
        "too_many_requests",
        "readbacks_incomplete",
    ];
    for fault in faults {
        assert!(report["faults"][fault].as_u64().is_some_and(|n| n > 0), "{fault}: {report}");
    }
    // A cluster that was given from outside is not ours to break.
    let given = std::env::var_os("READBACK_BROKERS").is_some();
    assert_eq!(report["faults"]["broker_restarts"], u64::from(!given));
}
