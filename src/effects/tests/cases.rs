//! Public cases of the effect stage, on the pure code and on the task over a scripted network.

use super::bench::{Bench, intent, rules, sec};
use super::decide::{out, queued, rest, send, t};
use crate::contract::Retention;
use crate::effects::{Action, Phase, Rules, fold};
use crate::error::codes;
use crate::http::Wire;
use crate::intents::{AnswerClass, Intent, Status};

fn of(tenant: &str, op: &str) -> Intent {
    Intent { tenant: tenant.into(), ..intent(op) }
}

/// C070: a target that answers each repeat with its stored 500 must not be asked without end; and once it may have forgotten the
/// key, nothing is sent again by itself.
#[test]
fn c070_a_replayed_error_is_not_asked_for_ever_nor_after_the_keys_life() {
    let keyed = |life| Rules { dedupe: Some(Retention::For(sec(life))), lag: None, ..rules() };
    let mut r = queued();
    let mut at = 0;
    while rest(&mut r, &keyed(3_600), t(at)) != Action::Wait(None) {
        if matches!(rest(&mut r, &keyed(3_600), t(at)), Action::Journal(_)) {
            send(&mut r, &keyed(3_600), t(at));
            let last = r.attempts.len() as i32;
            fold(&mut r, out(last, AnswerClass::Unknown), &keyed(3_600), t(at + 1));
        }
        at += 2;
    }
    assert_eq!((r.attempts.len(), r.phase, r.code), (3, Phase::Parked, Some(i32::from(codes::BUDGET_EXHAUSTED.0))));

    let mut r = queued();
    send(&mut r, &keyed(60), t(0));
    fold(&mut r, out(1, AnswerClass::Unknown), &keyed(60), t(1));
    assert_eq!(rest(&mut r, &keyed(60), t(120)), Action::Wait(None));
    assert_eq!((r.attempts.len(), r.phase), (1, Phase::Parked), "the key may be forgotten: a person looks");
}

/// C104: one tenant's flood must not starve another, and what holds back one tenant's target must not hold back another's.
#[test]
fn c104_a_flood_leaves_every_tenant_its_turn() {
    let mut b = Bench::with_targets(rules(), &["orders", "mails"]);
    for n in 0..500 {
        b.outbox(&of("flood", &format!("op-{n}")));
    }
    b.outbox(&of("quiet", "op-quiet"));
    b.outbox(&Intent { contract: "mails".into(), ..of("quiet", "op-mail") });
    b.commit();
    assert!(b.ledger_of(&Intent { contract: "mails".into(), ..of("quiet", "op-mail") }).open(), "its target is not the slow one");
    assert_eq!(b.network.posts(), 3, "two for the flooded target, one for the other");
    b.network.answer(0, 422, "");
    b.network.answer(1, 422, "");
    b.step();
    assert!(b.ledger_of(&of("quiet", "op-quiet")).open(), "its turn came with the first two that were free");
    b.network.answer_with(3, 429, &[("retry-after", "3600")]);
    b.step();
    b.outbox(&Intent { contract: "mails".into(), ..of("quiet", "op-mail-2") });
    b.commit();
    assert!(b.ledger_of(&Intent { contract: "mails".into(), ..of("quiet", "op-mail-2") }).open(), "another target's pause");
}

/// C106: short work must not wait behind one call that takes long; a restart repeats none of what is finished.
#[test]
fn c106_short_work_goes_on_beside_a_long_call() {
    let mut b = Bench::new(rules());
    b.outbox(&intent("op-long"));
    b.commit();
    assert!(b.network.leave(0));
    for n in 0..50 {
        b.outbox(&intent(&format!("op-{n}")));
    }
    b.commit();
    let mut next = 1;
    while next < b.network.seen().len() {
        let read = b.network.seen()[next].starts_with("GET");
        b.network.answer(next, if read { 200 } else { 201 }, r#"{"ours": 1}"#);
        b.step();
        next += 1;
    }
    let done = |b: &mut Bench, n: usize| b.ledger(&format!("op-{n}")).unwrap().end == Some(Status::Confirmed);
    assert!((0..50).all(|n| done(&mut b, n)));
    assert!(b.ledger("op-long").unwrap().open());
    let posts = b.network.posts();
    b.replace(true);
    b.step();
    assert_eq!(b.network.posts(), posts, "nothing is sent again");
    assert_eq!(b.ledger("op-long").unwrap().phase, Phase::Unknown, "it is read back");
}

/// C107: a holder that was paused must not send once another may have taken over and sent again: its window closes first, and who
/// takes over reads before all else.
#[test]
fn c107_the_paused_holders_window_closes_before_anyone_sends_again() {
    let mut b = Bench::new(rules());
    b.outbox(&intent("op-1"));
    b.commit();
    let closes = b.network.window(0).expect("every effect has one");
    b.replace(true);
    b.step();
    assert_eq!(b.network.seen(), ["POST /orders", "GET /orders"]);
    while b.network.posts() < 2 {
        b.network.answer_reads(r#"{"ours": 0}"#);
        b.after(sec(1));
    }
    let again = b.ledger("op-1").unwrap().attempts[1].journalled_at;
    assert!(again > closes.wall.plus(rules().cut + rules().pause), "not while the first may still leave");
}

/// C110: what was being sent when its sender died is neither "done" nor "not sent": it is unknown, and is read back.
#[test]
fn c110_sending_without_an_outcome_turns_unknown_and_is_read_back() {
    for left in [false, true] {
        let mut b = Bench::new(rules());
        b.outbox(&intent("op-1"));
        b.commit();
        assert!(!left || b.network.leave(0));
        b.replace(true);
        b.step();
        assert_eq!(b.story("op-1"), "dispatched unknown");
        b.network.answer(1, 200, r#"{"ours": 1}"#);
        b.step();
        assert_eq!(b.ledger("op-1").unwrap().end, Some(Status::Confirmed));
    }
    let mut b = Bench::new(rules());
    b.outbox(&intent("op-1"));
    b.commit();
    b.network.end(0, Wire::MaybeSent("no answer in 2 s".into()));
    b.step();
    assert_eq!(b.ledger("op-1").unwrap().phase, Phase::Unknown, "no answer is not a \"no\"");
}
