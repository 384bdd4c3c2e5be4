//! Compensation on the stage: what is cancelled too late, what undoes it, and what may not be done to either.

use super::bench::{Bench, command, intent, rules, sec};
use crate::effects::{Rules, ledger};
use crate::error::codes;
use crate::http::Wire;
use crate::intents::{CommandKind, Flag, ResultKind, ResultRecord, Status};

fn undoing() -> Rules {
    Rules { compensates: true, ..rules() }
}

/// `op-1` as it stands when it was cancelled in flight and then turned out to be applied.
fn superseded(rules: Rules) -> Bench {
    let mut b = Bench::new(rules);
    b.outbox(&intent("op-1"));
    b.commit();
    assert!(b.network.leave(0));
    b.order(command(CommandKind::Cancel, "op-1", "c-1"));
    b.commit();
    b.network.answer(0, 201, "order-7");
    b.step();
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.step();
    b
}

fn last(b: &Bench, op: &str) -> ResultRecord {
    let of = b.results().into_iter().filter(|r| r.operation_id.as_str() == op && r.kind == ResultKind::State);
    of.last().unwrap_or_else(|| panic!("nothing was said of {op}"))
}

/// If this broke, a cancel that came too late would be lost, an effect undone twice, or by a call that names another effect; or its
/// sender would not be told which operation undoes it.
#[test]
fn what_is_cancelled_too_late_is_undone_once() {
    let mut b = superseded(undoing());
    assert_eq!(last(&b, "op-1").status, Status::Superseded);
    assert!(last(&b, "op-1").detail.is_some_and(|d| d.contains("op-1.undo")));
    assert_eq!(b.network.seen().last().map(String::as_str), Some("POST /undo/order-7"));
    assert_eq!(b.returns().iter().filter(|r| r.end == Some(Status::Superseded)).count(), 1);
    let at = b.network.seen().len() - 1;
    assert!(b.network.leave(at));
    b.network.answer(at, 201, "undo-1");
    b.step();
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.step();
    assert_eq!((last(&b, "op-1.undo").status, last(&b, "op-1").status), (Status::Confirmed, Status::Superseded));
    b.after(sec(60));
    assert_eq!(b.network.posts(), 2, "the effect and its compensation");
    let ends: Vec<_> = b.returns().into_iter().filter_map(|r| Some((r.operation_id.to_string(), r.end?))).collect();
    assert_eq!(ends, [("op-1".to_owned(), Status::Superseded), ("op-1.undo".to_owned(), Status::Confirmed)]);
}

/// If this broke, the transaction that closes the original could be taken back and its compensation stay, or the other way round.
#[test]
fn original_and_compensation_are_one_transaction() {
    let mut b = Bench::new(undoing());
    b.outbox(&intent("op-1"));
    b.commit();
    assert!(b.network.leave(0));
    b.order(command(CommandKind::Cancel, "op-1", "c-1"));
    b.commit();
    b.network.answer(0, 201, "order-7");
    b.step();
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.turn();
    b.abort();
    assert!(b.ledger("op-1").is_some_and(|r| r.end.is_none()) && b.ledger("op-1.undo").is_none());
    assert_eq!(b.network.posts(), 1, "nothing left");
    b.step();
    assert!(b.ledger("op-1.undo").is_some() && b.ledger("op-1").is_some_and(|r| r.end == Some(Status::Superseded)));
    b.step();
    assert_eq!(b.network.posts(), 2);
    b.replace(true);
    b.step();
    assert_eq!(b.network.posts(), 2, "a new owner takes it for maybe sent, as any other");
}

/// If this broke, a compensation that the target refuses, or that comes too late, would end in silence; or could be called off by
/// whoever does not know what it is.
#[test]
fn a_compensation_that_is_not_confirmed_is_a_persons() {
    let mut b = superseded(undoing());
    let at = b.network.seen().len() - 1;
    assert!(b.network.leave(at));
    b.order(command(CommandKind::Cancel, "op-1.undo", "c-2"));
    b.network.answer(at, 422, "no");
    b.step();
    b.after(sec(1));
    assert_eq!(
        (last(&b, "op-1.undo").status, last(&b, "op-1.undo").code),
        (Status::Parked, Some(codes::TARGET_REFUSED.to_string()))
    );
    let answer = b.results().into_iter().find(|r| r.answers.as_deref() == Some("c-2")).expect("answered");
    assert_eq!(answer.code, Some(codes::COMMAND_REFUSED.to_string()));

    let mut b = Bench::new(Rules { in_flight: None, no_intermediaries: false, ..undoing() });
    b.outbox(&intent("op-1"));
    b.commit();
    assert!(b.network.leave(0));
    b.order(command(CommandKind::Cancel, "op-1", "c-1"));
    b.commit();
    b.network.end(0, Wire::MaybeSent("no answer in 2 s".into()));
    b.step();
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.step();
    b.after(sec(601));
    assert_eq!(b.network.posts(), 1, "a copy of the effect may arrive at any time");
    assert_eq!((last(&b, "op-1.undo").status, last(&b, "op-1.undo").code), (Status::Parked, Some(codes::EXPIRED.to_string())));
}

/// If this broke, where nothing undoes an effect, or two of them are there, something would be undone by guess.
#[test]
fn what_cannot_be_undone_says_that_the_cancel_came_too_late() {
    let b = superseded(rules());
    assert_eq!((last(&b, "op-1").status, last(&b, "op-1").flags), (Status::Confirmed, vec![Flag::CancelTooLate]));
    let mut b = Bench::new(undoing());
    b.outbox(&intent("op-1"));
    b.commit();
    assert!(b.network.leave(0));
    b.order(command(CommandKind::Cancel, "op-1", "c-1"));
    b.commit();
    b.network.answer(0, 201, "order-7");
    b.step();
    b.network.answer_reads(r#"{"ours": 2}"#);
    b.step();
    assert_eq!(last(&b, "op-1").flags, [Flag::DuplicateSuspected, Flag::CancelTooLate]);
    assert_eq!(b.network.posts(), 1);
    assert!(!ledger::op(&intent("op-1.undo").key()).is_empty() && b.ledger("op-1.undo").is_none());
}

/// If this broke, a command for a compensation that came before it would be lost, or a later effect of the lane would pass it.
#[test]
fn it_takes_over_the_place_and_the_commands_that_waited() {
    let mut b = Bench::new(Rules { no_intermediaries: false, ..undoing() });
    for op in ["op-1", "op-2"] {
        let mut i = intent(op);
        i.ordering_key = "lane".into();
        b.outbox(&i);
    }
    b.commit();
    assert!(b.network.leave(0));
    b.order(command(CommandKind::Query, "op-1.undo", "q-1"));
    b.order(command(CommandKind::Cancel, "op-1", "c-1"));
    b.commit();
    b.network.end(0, Wire::MaybeSent("no answer in 2 s".into()));
    b.step();
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.step();
    assert!(b.results().iter().any(|r| r.answers.as_deref() == Some("q-1") && r.code.is_none()), "answered when it is there");
    assert_eq!(b.network.posts(), 1, "a proxy may have made a copy of the effect");
    b.after(sec(20));
    assert_eq!(
        b.network.seen().iter().filter(|s| s.starts_with("POST")).collect::<Vec<_>>(),
        ["POST /orders", "POST /undo/order-7"]
    );
    let at = b.network.seen().len() - 1;
    assert!(b.network.leave(at));
    b.network.answer(at, 201, "undo-1");
    b.step();
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.after(sec(20));
    b.step();
    assert_eq!(b.network.posts(), 3, "then the next one of the lane");
}
