//! The task over a scripted network.

use super::bench::{Bench, intent, rules, sec};
use crate::effects::{AttemptState, Denial, Phase, Rules, WarrantKind};
use crate::error::codes;
use crate::http::{NotSent, Wire};
use crate::intents::{AckLevel, AnswerClass, ResultKind, ReturnKind, Status};
use crate::record::Headers;

pub(super) fn lost() -> Wire {
    Wire::MaybeSent("no answer in 2 s".into())
}

/// One order, journalled and on its way.
pub(super) fn sent() -> Bench {
    let mut b = Bench::new(rules());
    b.outbox(&intent("op-1"));
    b.commit();
    assert!(b.network.leave(0));
    b
}

/// If this broke, nothing would be confirmed, or something would count as done without having been read back.
#[test]
fn an_order_is_confirmed_by_reading_it_back() {
    let mut b = sent();
    b.network.answer(0, 201, "order-7");
    b.step();
    assert_eq!(b.ledger("op-1").unwrap().phase, Phase::Unknown, "an answer is not a confirmation");
    b.network.answer(1, 200, r#"{"ours": 1}"#);
    b.step();
    assert_eq!(b.story("op-1"), "dispatched unknown confirmed");
    let last = b.results().pop().unwrap();
    assert_eq!((last.ack_level, last.reference.as_deref(), last.version), (AckLevel::Confirmed, Some("order-7"), Some(6)));
    let closed = b.returns().pop().unwrap();
    assert_eq!((closed.kind, closed.end), (ReturnKind::Closed, Some(Status::Confirmed)));
}

/// If this broke, a call would leave before its journal record is committed (C1), or although that was taken back (C2).
#[test]
fn nothing_leaves_before_the_commit() {
    let mut b = Bench::new(rules());
    b.outbox(&intent("op-1"));
    assert!(b.network.seen().is_empty());
    b.abort();
    assert!(b.network.seen().is_empty(), "its transaction was taken back");
    b.outbox(&intent("op-1"));
    b.commit();
    assert_eq!(b.network.posts(), 1);
}

/// If this broke, a lost answer would place a second order, or leave the first unknown for ever.
#[test]
fn a_lost_answer_is_read_back_and_sent_again_only_after_settle() {
    let mut b = sent();
    b.network.end(0, lost());
    b.step();
    for _ in 0..14 {
        b.network.answer_reads(r#"{"ours": 0}"#);
        b.after(sec(1));
        assert_eq!(b.network.posts(), 1, "not before settle: window 5 + cut 2 + P 2 + L 5 + V 1 + 2ε");
    }
    for _ in 0..6 {
        b.network.answer_reads(r#"{"ours": 0}"#);
        b.after(sec(1));
    }
    assert_eq!(b.network.posts(), 2);
    let r = b.ledger("op-1").unwrap();
    assert_eq!(r.attempts[1].warrants[0].kind, WarrantKind::SettledAbsent);
}

/// If this broke, an incomplete list would be taken for absence (C9), or a second page overlooked (research 4.4 f).
#[test]
fn pages_are_followed_and_errors_prove_nothing() {
    let mut b = sent();
    b.network.end(0, lost());
    b.step();
    b.after(sec(30));
    b.network.answer(1, 200, r#"{"ours": 0, "next": "2"}"#);
    b.network.answer(2, 502, "<html>");
    b.step();
    assert_eq!(b.ledger("op-1").unwrap().absent_at, None);
    b.after(sec(60));
    b.network.answer(3, 200, r#"{"ours": 0, "next": "2"}"#);
    b.network.answer(4, 200, r#"{"ours": 1}"#);
    b.step();
    assert_eq!(b.story("op-1"), "dispatched unknown confirmed");
}

/// If this broke, a target that says "come again" would be asked at once, or never.
#[test]
fn retry_later_waits_and_is_sent_again() {
    let mut b = sent();
    b.network.answer(0, 429, "");
    b.step();
    assert_eq!(b.network.posts(), 1);
    b.after(sec(2));
    assert_eq!(b.network.posts(), 2);
    assert_eq!(b.ledger("op-1").unwrap().attempts[1].warrants[0].kind, WarrantKind::RejectedEarly);
}

/// If this broke, a refusal would be hidden, or sent again.
#[test]
fn a_refusal_ends_it() {
    let mut b = sent();
    b.network.answer(0, 422, "");
    b.step();
    assert_eq!(b.story("op-1"), "dispatched refused");
    b.after(sec(100));
    assert_eq!(b.network.posts(), 1);
}

/// If this broke, a call that never left would need a readback, or would burn the operation.
#[test]
fn what_never_left_is_sent_again_at_once() {
    let mut b = sent();
    b.network.end(0, Wire::NotSent(NotSent::Unconnected));
    b.step();
    b.after(sec(1));
    assert_eq!(b.network.seen(), ["POST /orders", "POST /orders"]);
}

/// If this broke, an answer would be lost with its transaction, and the operation parked although it was heard (model 8).
#[test]
fn an_answer_is_folded_again_after_an_abort() {
    let mut b = sent();
    b.network.answer(0, 422, "");
    b.turn();
    b.abort();
    assert_eq!(b.ledger("op-1").unwrap().phase, Phase::InFlight);
    b.step();
    assert_eq!(b.story("op-1"), "dispatched refused");
}

/// If this broke, a new owner would send again what the old one may have sent (C11, model 4).
#[test]
fn a_new_process_reads_before_anything_else() {
    let mut b = sent();
    b.replace(true);
    b.step();
    assert_eq!(b.ledger("op-1").unwrap().attempts[0].state, AttemptState::Maybe);
    assert_eq!(b.network.seen(), ["POST /orders", "GET /orders"]);
}

/// If this broke, a process would take "I have not sent it" for a proof, although another of its threads may still do so.
#[test]
fn within_a_process_the_burn_decides() {
    let mut b = Bench::new(rules());
    b.outbox(&intent("op-1"));
    b.commit();
    b.replace(false);
    b.step();
    assert_eq!(b.ledger("op-1").unwrap().attempts[0].state, AttemptState::Unsent);
    assert!(!b.network.leave(0), "burned: its first byte must not leave any more");
    let mut b = sent();
    b.replace(false);
    b.step();
    assert_eq!(b.ledger("op-1").unwrap().attempts[0].state, AttemptState::Maybe, "handed over: no proof");
}

/// If this broke, a call that never left would be unknown to the next owner, and would wait for settle and a readback before it is made.
#[test]
fn what_has_not_left_yet_is_recorded_as_unsent_when_the_partition_goes() {
    let mut b = sent();
    b.outbox(&intent("op-2"));
    b.commit();
    b.leave();
    b.commit();
    assert!(!b.network.leave(1), "it was taken back before its first byte");
    assert_eq!(b.ledger("op-2").unwrap().attempts[0].state, AttemptState::Unsent);
    assert_eq!(b.ledger("op-1").unwrap().attempts[0].state, AttemptState::Journaled, "that one has left");
    b.replace(true);
    b.step();
    assert_eq!(b.network.posts(), 3, "the next owner, another process, makes it at once");
    let again = b.ledger("op-2").unwrap();
    assert_eq!(again.attempts[1].warrants[0].kind, WarrantKind::Unsent);
    assert_eq!(b.ledger("op-1").unwrap().attempts.len(), 1);

    // Journalled in the very transaction that is the last one.
    let mut b = Bench::new(rules());
    b.outbox(&intent("op-1"));
    b.leave();
    b.commit();
    assert!(b.network.seen().is_empty());
    assert_eq!(b.ledger("op-1").unwrap().attempts[0].state, AttemptState::Unsent);
}

/// C055: if this broke, an effect that ended while its partition was handed over would be thrown away, and the next owner send it again.
#[test]
fn c055_what_ends_during_the_hand_over_reaches_the_next_owner() {
    let mut b = sent();
    b.leave();
    b.commit();
    b.replace(false);
    b.step();
    b.network.answer(0, 201, "order-7");
    b.step();
    b.loop_control();
    b.commit();
    assert_eq!(b.ledger("op-1").unwrap().attempts[0].state, AttemptState::Applied, "by the former owner's word");
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.step();
    assert_eq!((b.ledger("op-1").unwrap().end, b.network.posts()), (Some(Status::Confirmed), 1));
}

/// C109: what a former owner saw must not be lost, and without its token it must not count: it can neither send nor mark (C14,
/// rule 13).
#[test]
fn hearsay_counts_by_its_token_only() {
    let mut b = sent();
    b.replace(false);
    b.step();
    b.hear("op-1", 1, "forged", AnswerClass::Rejected);
    b.commit();
    assert_eq!(b.ledger("op-1").unwrap().phase, Phase::Unknown);
    b.network.answer(0, 422, "");
    b.step();
    b.loop_control();
    b.commit();
    assert_eq!(b.ledger("op-1").unwrap().end, Some(Status::Refused), "the former owner's own word, by its token");
}

/// If this broke, order within a key would be lost (C16), or one unknown would hold back everything.
#[test]
fn an_unknown_holds_back_its_own_lane_only() {
    let mut b = Bench::new(rules());
    let lane = |op: &str, key: &str| {
        let mut i = intent(op);
        i.ordering_key = key.into();
        i
    };
    b.outbox(&lane("op-1", "a"));
    b.outbox(&lane("op-2", "a"));
    b.commit();
    assert_eq!(b.network.posts(), 1);
    b.network.end(0, lost());
    b.step();
    b.outbox(&lane("op-3", "b"));
    b.commit();
    assert_eq!(b.network.posts(), 2, "another lane goes on");
    b.network.answer(1, 200, r#"{"ours": 1}"#);
    b.step();
    assert_eq!(b.ledger("op-1").unwrap().end, Some(Status::Confirmed));
    assert_eq!(b.network.posts(), 3, "read back: its only copy has arrived");
}

/// If this broke, more calls would run against a target than its contract allows, or those that wait would starve.
#[test]
fn permits_bound_calls_and_tenants_take_turns() {
    let mut b = Bench::new(rules());
    for op in ["op-1", "op-2", "op-3", "op-4"] {
        b.outbox(&intent(op));
    }
    let mut other = intent("op-5");
    other.tenant = "globex".into();
    b.outbox(&other);
    b.commit();
    assert_eq!(b.network.posts(), 2);
    b.network.answer(0, 422, "");
    b.network.answer(1, 422, "");
    b.step();
    assert_eq!(b.network.posts(), 4);
    assert!(b.ledger("op-3").unwrap().open() && !b.ledger("op-4").unwrap().open(), "globex had its turn before op-4");
}

/// If this broke, an intent would be sent although policy says no, or a first send would leave after the deadline (C20, C21).
#[test]
fn checks_are_made_again_right_before_the_journal() {
    let mut b = Bench::new(rules());
    *b.guard.0.lock().unwrap() = Some(Denial { code: codes::DENIED, detail: "policy".into() });
    b.outbox(&intent("op-1"));
    b.commit();
    assert_eq!(b.ledger("op-1").unwrap().end, Some(Status::Denied));
    *b.guard.0.lock().unwrap() = None;
    let mut late = intent("op-2");
    late.deadline = crate::time::WallTime(0);
    b.outbox(&late);
    let mut just = intent("op-3");
    just.deadline = super::bench::now().wall.minus(sec(1));
    b.outbox(&just);
    b.commit();
    assert_eq!(b.ledger("op-2"), None, "older than its record's life: stale, a dead letter");
    assert!(b.log.iter().any(|s| s.topic == "dead"));
    assert_eq!(b.ledger("op-3").unwrap().end, Some(Status::Expired));
    assert!(b.network.seen().is_empty());
}

/// If this broke, the same ID with other content would be merged (C3), or a redelivered intent would be sent twice.
#[test]
fn a_second_intent_is_a_duplicate_or_a_conflict() {
    let mut b = sent();
    b.outbox(&intent("op-1"));
    let mut other = intent("op-1");
    other.identity_hash = "another".into();
    b.outbox(&other);
    b.commit();
    assert_eq!(b.network.posts(), 1);
    assert_eq!(b.returns().pop().unwrap().end, Some(Status::Conflict));
    assert!(b.log.iter().any(|s| s.topic == "dead"));
}

/// If this broke, an intent that can't be read would be skipped, and what stands behind it overtake it (rule 29).
#[test]
fn an_unreadable_intent_holds_back_its_lane() {
    let mut b = Bench::new(rules());
    let h = Headers::new().with("rb_operation_id", "op-1").with("rb_ordering_key", "k");
    b.try_outbox(b"\xff\xff".to_vec(), h).expect("its headers say where it belongs");
    let mut behind = intent("op-2");
    behind.ordering_key = "k".into();
    b.outbox(&behind);
    b.commit();
    assert!(b.network.seen().is_empty());
    assert!(b.try_outbox(b"\xff\xff".to_vec(), Headers::new()).is_err(), "without headers the task refuses");
}

/// If this broke, closed records would be kept for ever, or deleted while their intent may come again (C23, model 11).
#[test]
fn closed_records_are_deleted_after_their_life() {
    let mut b = sent();
    b.network.answer(0, 422, "");
    b.step();
    b.after(sec(900 + 1_000 - 10));
    assert!(b.ledger("op-1").is_some());
    b.after(sec(20));
    assert_eq!(b.ledger("op-1"), None);
    assert_eq!(b.returns().pop().unwrap().kind, ReturnKind::Gone);
    b.hear("op-1", 1, "t", AnswerClass::Applied);
    b.commit();
    assert_eq!(b.results().pop().unwrap().kind, ResultKind::OrphanHearsay);
}

/// If this broke, attempts would be repeated without end, or given up while one may have happened.
#[test]
fn a_used_budget_parks() {
    let mut b = sent();
    for i in 0..3 {
        b.network.answer(i, 503, "");
        b.step();
        b.after(sec(60));
    }
    let r = b.ledger("op-1").unwrap();
    assert_eq!((r.attempts.len(), r.phase, r.clean()), (3, Phase::Parked, true));
    assert_eq!(r.code, Some(i32::from(codes::BUDGET_EXHAUSTED.0)));
}

/// If this broke, an early reader of results could meet two records under one CloudEvents id, or a version that goes back.
#[test]
fn versions_rise_and_ids_are_never_used_twice() {
    let mut b = sent();
    b.network.answer(0, 429, "");
    b.step();
    b.after(sec(2));
    b.network.answer(1, 201, "x");
    b.step();
    b.network.answer(2, 200, r#"{"ours": 1}"#);
    b.step();
    let states: Vec<_> = b.results().into_iter().filter(|r| r.kind == ResultKind::State).map(|r| r.version.unwrap()).collect();
    assert!(states.is_sorted_by(|a, b| a < b) && states.len() >= 4, "{states:?}");
    let mut ids: Vec<_> = b.log.iter().filter_map(|s| s.headers.text("ce_id").map(str::to_owned)).collect();
    let n = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), n);
    assert!(b.log.iter().all(|s| s.partition == 0));
}

/// If this broke, a target that looks at the age of a request would get none, or another one than the record has; or what signs it
/// would stand in a record (C26).
#[test]
fn an_attempt_carries_the_time_of_its_record_and_its_signature() {
    let mut b = Bench::new(Rules { max_age: Some(sec(60)), ..rules() });
    b.outbox(&intent("op-1"));
    b.commit();
    let at = b.ledger("op-1").unwrap().attempts[0].journalled_at;
    assert_eq!(b.network.header(0, "x-sent-at"), Some(at.0.to_string()));
    assert_eq!(b.network.secrets(0), [("x-signature".to_owned(), format!("signed {} key-op-1", at.0))]);
    let holds = |bytes: &[u8]| bytes.windows(6).any(|w| w == b"signed");
    assert!(!b.log.iter().any(|s| holds(&s.value)));
}
