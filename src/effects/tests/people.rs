//! What people order while an operation is under way: cancel, resolve, force.

use super::bench::{Bench, command, intent, rules, sec};
use super::stage::{lost, sent};
use crate::effects::{Phase, WarrantKind};
use crate::error::codes;
use crate::intents::{AnswerClass, Command, CommandKind, Deed, Flag, REASON_KEPT, Resolution, ResultKind, Status, Via};

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

/// An operation whose first call was lost, at a target that can prove nothing.
fn unprovable() -> Bench {
    let mut rules = rules();
    (rules.lag, rules.in_flight) = (None, None);
    let mut b = Bench::new(rules);
    b.outbox(&intent("op-1"));
    b.commit();
    b.network.end(0, lost());
    b.step();
    b
}

/// If this broke, a person could not order one more send, or it would leave without a record of who did.
#[test]
fn force_sends_a_parked_operation_once_more() {
    let mut b = unprovable();
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

/// If this broke, nobody could read later why a person decided what nothing else could prove, or on whose word, or that it had been parked.
#[test]
fn who_decided_and_why_stays_in_ledger_and_results() {
    let mut b = unprovable();
    let r = b.ledger("op-1").unwrap();
    assert_eq!(r.parkings.iter().map(|p| p.code).collect::<Vec<_>>(), [i32::from(codes::UNPROVABLE.0)]);
    let order = |kind, id: &str, seen: i64, reason: &str| Command {
        seen: Some(seen),
        second: Some("second".into()),
        reason: reason.into(),
        via: Some(Via::Console),
        ..command(kind, "op-1", id)
    };
    b.order(order(CommandKind::Force, "f-1", r.version, "restored from a backup"));
    b.order(order(CommandKind::Force, "f-2", r.version - 1, "refused, and so it decides nothing"));
    b.commit();
    let sent = b.results().into_iter().rfind(|r| r.kind == ResultKind::State).unwrap();
    let words = "sent once more by order of approver and second: restored from a backup";
    assert_eq!((sent.attempts, sent.detail.as_deref()), (2, Some(words)));
    b.network.end(1, lost());
    b.step();
    let mut resolve = order(CommandKind::Resolve, "r-1", b.ledger("op-1").unwrap().version, &"x".repeat(REASON_KEPT + 1));
    (resolve.resolution, resolve.via) = (Some(Resolution::Applied), None);
    b.order(resolve);
    b.commit();
    let r = b.ledger("op-1").unwrap();
    let kept: Vec<_> = r.decisions.iter().map(|d| (d.deed, d.via, d.reason.len())).collect();
    assert_eq!(kept, [(Deed::Force, Some(Via::Console), 22), (Deed::ResolveApplied, None, REASON_KEPT)], "{r:#?}");
    assert_eq!((r.end, r.parkings.len()), (Some(Status::ResolvedApplied), 2));
    let told = b.results().into_iter().rfind(|r| r.kind == ResultKind::State).unwrap();
    let words = format!("resolved as applied by approver and second: {}", "x".repeat(REASON_KEPT));
    assert_eq!((told.status, told.detail), (Status::ResolvedApplied, Some(words)));
}

/// If this broke, it could not be read which policy let a request go, or that one did not; nor what was sent.
#[test]
fn what_policy_said_and_what_is_sent_stay_in_the_ledger() {
    let mut b = sent();
    let r = b.ledger("op-1").unwrap();
    assert_eq!(r.policy.map(|p| p.allowed), Some(true));
    let sends = r.sends.unwrap();
    assert_eq!((sends.method.as_str(), sends.body_sha256.len()), ("POST", 64));
    assert_eq!(r.handed_over_at, Some(intent("op-1").created_at));
}
