//! What people order while an operation is under way: cancel, resolve, force.

use super::bench::{Bench, command, intent, rules, sec};
use super::stage::{lost, sent};
use crate::effects::{Phase, WarrantKind};
use crate::error::codes;
use crate::intents::{AnswerClass, CommandKind, Flag, Resolution, ResultKind, Status};

/// If this broke, a cancel would be ignored, or would claim that nothing happened while something may have.
#[test]
fn cancel_ends_what_is_clean_and_waits_otherwise() {
    let mut b = Bench::new(rules());
    b.outbox(&intent("op-1"));
    b.order(command(CommandKind::Cancel, "op-1", "c-1"));
    b.commit();
    assert_eq!(b.ledger("op-1").unwrap().end, Some(Status::Cancelled), "burned while queued");
    assert!(b.network.seen().is_empty());

    let mut b = sent();
    b.order(command(CommandKind::Cancel, "op-1", "c-1"));
    b.commit();
    assert_eq!(b.ledger("op-1").unwrap().end, None);
    b.network.end(0, lost());
    b.step();
    b.network.answer(1, 200, r#"{"ours": 1}"#);
    b.step();
    let r = b.ledger("op-1").unwrap();
    assert_eq!((r.end, r.flags), (Some(Status::Confirmed), vec![Flag::CancelTooLate]));
}

/// If this broke, a cancel that overtook its intent would be lost, and the order placed (model 13).
#[test]
fn a_cancel_that_comes_first_is_held() {
    let mut b = Bench::new(rules());
    b.order(command(CommandKind::Cancel, "op-1", "c-1"));
    b.commit();
    assert_eq!(b.ledger("op-1").unwrap().phase, Phase::Held);
    b.outbox(&intent("op-1"));
    b.commit();
    assert_eq!(b.ledger("op-1").unwrap().end, Some(Status::Cancelled));
    assert!(b.network.seen().is_empty());
    let answer = b.results().into_iter().find(|r| r.kind == ResultKind::Answer).unwrap();
    assert_eq!(answer.answers.as_deref(), Some("c-1"));
}

/// If this broke, a command for an operation that never comes would be dropped in silence (life.md 12).
#[test]
fn a_held_command_expires_with_an_answer() {
    let mut b = Bench::new(rules());
    b.order(command(CommandKind::Cancel, "op-9", "c-9"));
    b.commit();
    b.after(sec(4_000_000));
    let answer = b.results().pop().unwrap();
    assert_eq!((answer.answers.as_deref(), answer.code.as_deref()), (Some("c-9"), Some("RB0708")));
    assert_eq!(b.ledger("op-9"), None);
}

/// If this broke, one person could close an operation as not applied while its request is still on its way (C24, model 10).
#[test]
fn not_applied_before_settle_needs_a_second_person() {
    let mut b = sent();
    b.network.end(0, lost());
    b.step();
    let seen = b.ledger("op-1").unwrap().version;
    let resolve = |id: &str, seen, second: Option<&str>| {
        let mut c = command(CommandKind::Resolve, "op-1", id);
        (c.seen, c.resolution, c.second) = (Some(seen), Some(Resolution::NotApplied), second.map(str::to_owned));
        c
    };
    b.order(resolve("r-1", seen - 1, None));
    b.order(resolve("r-2", seen, None));
    b.order(resolve("r-2", seen, None));
    // The first person in another spelling, and nobody.
    b.order(resolve("r-4", seen, Some(" APPROVER ")));
    b.order(resolve("r-5", seen, Some(" ")));
    b.commit();
    let codes: Vec<_> = b.results().into_iter().filter(|r| r.kind == ResultKind::Answer).map(|r| r.code.unwrap()).collect();
    assert_eq!(codes, ["RB0709", "RB0710", "RB0710", "RB0710", "RB0710"], "stale, alone, the same answer again, and still alone");
    b.order(resolve("r-3", seen, Some("second")));
    b.commit();
    assert_eq!(b.ledger("op-1").unwrap().end, Some(Status::ResolvedNotApplied));
    let token = b.ledger("op-1").unwrap().attempts[0].token.to_string();
    b.hear("op-1", 1, &token, AnswerClass::Applied);
    b.commit();
    let r = b.ledger("op-1").unwrap();
    assert_eq!(
        (r.end, r.flags),
        (Some(Status::ResolvedNotApplied), vec![Flag::Contradiction]),
        "an end stays, and late proof is not silent"
    );
}

/// If this broke, a person could not order one more send, or it would leave without a record of who did.
#[test]
fn force_sends_a_parked_operation_once_more() {
    let mut rules = rules();
    (rules.lag, rules.in_flight) = (None, None);
    let mut b = Bench::new(rules);
    b.outbox(&intent("op-1"));
    b.commit();
    b.network.end(0, lost());
    b.step();
    let r = b.ledger("op-1").unwrap();
    assert_eq!((r.phase, r.code), (Phase::Parked, Some(i32::from(codes::UNPROVABLE.0))));
    let mut c = command(CommandKind::Force, "op-1", "f-1");
    (c.seen, c.second) = (Some(r.version), Some("second".into()));
    b.order(c);
    b.commit();
    assert_eq!(b.network.posts(), 2);
    let r = b.ledger("op-1").unwrap();
    assert_eq!(r.attempts[1].warrants[0].kind, WarrantKind::Operator);
    assert_eq!(r.attempts[1].warrants[0].by.as_deref(), Some("approver and second"));
}
