//! The conditions of `src/docs/guarantees.md` that no counter-example of the searches stands for: each is switched off once, and
//! seen. Where the whole stage is needed it runs on a scripted network.

use super::bench::{Bench, command, intent, rules, sec};
use super::traces::found;
use crate::config::{Secret, SecretRef};
use crate::effects::{Rule, Rules, Verdict};
use crate::http::Wire;
use crate::intents::AnswerClass::{Applied, MaybeSent, Rejected};
use crate::intents::{ApprovalUse, CommandKind, Pair, Status};
use crate::testing::checkers::{Violation, lost};

/// Plays it on the stage with all rules, then with one switched off: only then may, and must, it go wrong.
fn needed(rule: Rule, goes_wrong: impl Fn(Bench) -> bool) {
    assert!(!goes_wrong(Bench::new(rules())), "with all rules");
    assert!(goes_wrong(Bench::new(Rules { weakened: Some(rule), ..rules() })), "{rule:?} prevents nothing here");
}

fn silence() -> Wire {
    Wire::MaybeSent("no answer in 2 s".into())
}

/// C3: other content under a known ID is taken for a repeat, and its sender gets the first one's success (model 16).
#[test]
fn c03_m16_other_content_is_taken_for_a_repeat() {
    needed(Rule::OneContent, |mut b| {
        b.outbox(&intent("op-1"));
        let mut other = intent("op-1");
        (other.identity_hash, other.ordering_key) = ("another".into(), "another-lane".into());
        b.outbox(&other);
        b.commit();
        assert_eq!(b.network.posts(), 1);
        b.returns().iter().all(|r| r.end != Some(Status::Conflict))
    });
}

/// C13: proof that comes after the end rewrites it.
#[test]
fn c13_an_end_is_rewritten() {
    found(Rule::EndsStay, &rules(), "a terminal status changed", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, Rejected);
        w.hearsay(1, "t-1", Applied);
    });
}

/// C14: proof that comes after the end changes nothing, and nobody is told.
#[test]
fn c14_late_proof_is_silent() {
    found(Rule::LateIsFlagged, &rules(), "ended as not applied, but applied", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.resolve(true);
        w.arrive(1);
        // Two persons erred, which nobody can know before there is proof.
        w.bad.remove("ended as not applied, but applied");
        w.read(Verdict::One { reference: None });
    });
}

/// C16: the next one of a lane does not wait for the one before it.
#[test]
fn c16_the_next_one_does_not_wait() {
    needed(Rule::LaneInOrder, |mut b| {
        for op in ["op-1", "op-2"] {
            let mut i = intent(op);
            i.ordering_key = "a".into();
            b.outbox(&i);
        }
        b.commit();
        b.network.end(0, silence());
        b.step();
        b.network.posts() > 1
    });
}

/// C18, research i: a compensation overtakes a copy of what it undoes, which then does it again. The ID is free once it is undone, so
/// no fence helps: it must be sure that nothing of the original can arrive.
#[test]
fn c18_a_compensation_overtakes_its_original() {
    let overtakes = |rule: Option<Rule>| {
        let base = Rules { creates_once: true, compensates: true, ..rules() };
        let mut b = Bench::new(Rules { weakened: rule, ..base });
        b.outbox(&intent("op-1"));
        b.commit();
        assert!(b.network.leave(0), "the first is on its way for as long as it may be");
        b.network.end(0, silence());
        b.step();
        b.after(sec(1));
        assert_eq!(b.network.posts(), 2, "sent again: the target makes one thing only");
        b.order(command(CommandKind::Cancel, "op-1", "c-1"));
        b.commit();
        let second = b.network.seen().iter().rposition(|s| s.starts_with("POST")).expect("a second one");
        b.network.answer(second, 201, "order-7");
        b.step();
        b.network.answer_reads(r#"{"ours": 1}"#);
        b.step();
        b.after(sec(1));
        assert!(b.story("op-1").ends_with("superseded"), "{}", b.story("op-1"));
        let undone = |b: &Bench| b.network.seen().iter().filter(|s| *s == "POST /undo/order-7").count();
        let early = undone(&b) > 0;
        // Journalled at 0: window 5, cut 2, pause 2, L 5, 2 x 0.5.
        b.after(sec(20));
        assert_eq!(undone(&b), 1, "it is made in the end, and once");
        early
    };
    assert!(!overtakes(None), "with all rules");
    assert!(overtakes(Some(Rule::UndoWaits)), "UndoWaits prevents nothing here");
}

/// C18: what nobody has seen happen is undone.
#[test]
fn c18_something_is_undone_that_did_not_happen() {
    let base = Rules { compensates: true, ..rules() };
    found(Rule::UndoOnlyApplied, &base, "superseded without an effect", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.cancel();
    });
}

/// C20: an approval that has run out lets a second send go.
#[test]
fn c20_an_approval_is_not_asked_again() {
    needed(Rule::ApprovalAtSend, |mut b| {
        let mut i = intent("op-1");
        i.approval = Some(ApprovalUse {
            id: "a-1".into(),
            approver: "approver".into(),
            plan_hash: "plan-1".into(),
            expires_at: i.created_at.plus(sec(10)),
            policy_version: "1".into(),
        });
        b.outbox(&i);
        b.commit();
        assert!(b.network.leave(0), "within its time");
        b.network.end(0, silence());
        b.step();
        for _ in 0..20 {
            b.network.answer_reads(r#"{"ours": 0}"#);
            b.after(sec(1));
        }
        b.network.posts() > 1
    });
}

/// C26: the target's secret goes out with the call, and stands nowhere else: not in ledger, results, returns or dead letters. Where
/// a request is rendered with it, this sees it.
#[test]
fn c26_a_secret_stands_in_no_record() {
    const SECRET: &str = "s3cr3t-of-the-shop";
    let leaked = |rendered: bool| {
        let secret = SecretRef::Literal(Secret::new(SECRET));
        let credentials = crate::contract::Credentials { header: "authorization".into(), prefix: "Bearer ".into(), secret };
        let mut b = Bench::with_credentials(rules(), vec![credentials]);
        let mut i = intent("op-1");
        if rendered {
            i.request.headers.push(Pair { name: "authorization".into(), value: format!("Bearer {SECRET}") });
        }
        b.outbox(&i);
        b.outbox(&crate::intents::Intent { identity_hash: "another".into(), ..i });
        b.commit();
        assert_eq!(b.network.secrets(0), [("authorization".to_owned(), format!("Bearer {SECRET}"))]);
        b.network.answer(0, 201, "order-7");
        b.step();
        b.network.answer(1, 200, r#"{"ours": 1}"#);
        b.step();
        assert!(b.story("op-1").ends_with("confirmed"));
        let holds = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|w| w == SECRET.as_bytes());
        b.log.iter().any(|s| holds(&s.value) || s.headers.0.iter().any(|h| h.value.as_deref().is_some_and(holds)))
    };
    assert!(!leaked(false));
    assert!(leaked(true), "it would have been seen");
}

/// L1: after a restore nobody goes on with what was open, and it is forgotten without an end.
#[test]
fn l1_an_open_operation_is_forgotten() {
    needed(Rule::RestoreReopens, |mut b| {
        b.outbox(&intent("op-1"));
        b.commit();
        assert!(b.network.leave(0));
        b.replace(true);
        b.step();
        for _ in 0..60 {
            b.network.answer_reads(r#"{"ours": 1}"#);
            b.after(sec(60));
        }
        let results = b.results();
        let found = lost(&[("acme".into(), "op-1".into())], &results.iter().collect::<Vec<_>>());
        matches!(found[..], [Violation::Lost { .. }])
    });
}

/// L2: an unknown that no readback can decide stays one, and nobody is told.
#[test]
fn l2_an_unknown_rots() {
    let base = Rules { readbacks: 1_000, ..rules() };
    found(Rule::UnknownsEnd, &base, "it stays unknown, and nobody is told", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        for _ in 0..11 {
            w.read(Verdict::Incomplete("503".into()));
            w.after(60);
        }
    });
}

/// L3: an unknown stops other keys. That the check would see it, the same two in one lane show.
#[test]
fn l3_an_unknown_stops_no_other_key() {
    let both_left = |keys: [&str; 2]| {
        let mut b = Bench::new(rules());
        for (op, key) in ["op-1", "op-2"].into_iter().zip(keys) {
            let mut i = intent(op);
            i.ordering_key = key.into();
            b.outbox(&i);
        }
        b.commit();
        b.network.end(0, silence());
        b.step();
        b.network.posts() == 2
    };
    assert!(both_left(["a", "b"]));
    assert!(!both_left(["a", "a"]), "the check sees who waits");
}

/// L4: a target that asks to come again in a minute is asked at once; with the rule it is asked then, and not never.
#[test]
fn l4_it_comes_again_too_early() {
    found(Rule::RetryAfter, &rules(), "it left earlier than the target allowed", |w| {
        w.deliver();
        w.leave(1);
        w.come_again(1, 60);
        w.after(5);
        w.leave(2);
        w.after(56);
        w.leave(2);
        assert_eq!(w.ledger.as_ref().map(|r| r.attempts.len()), Some(2), "sent again after that");
    });
}
