//! A call of a plan that is undone after it was confirmed: by its owner, once, behind what has begun since, and not before every copy of it
//! is dead.

use super::bench::{Bench, command, intent, rules, sec};
use crate::effects::{Rule, Rules};
use crate::error::codes;
use crate::http::Wire;
use crate::intents::{CommandKind, Resolution, ResultKind, ResultRecord, Return, Status};

/// The hash of the envelope that the bench's intents are of.
const OURS: &str = "0123456789abcdef";

fn undoing() -> Rules {
    Rules { compensates: true, ..rules() }
}

/// `op` is sent as the `n`th request and confirmed.
fn confirm(b: &mut Bench, at: usize) {
    assert!(b.network.leave(at));
    b.network.answer(at, 201, "order-7");
    b.step();
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.step();
}

fn confirmed(rules: Rules) -> Bench {
    let mut b = Bench::new(rules);
    b.outbox(&intent("op-1"));
    b.commit();
    confirm(&mut b, 0);
    assert_eq!(last(&b, "op-1").status, Status::Confirmed);
    b
}

fn last(b: &Bench, op: &str) -> ResultRecord {
    let of = b.results().into_iter().filter(|r| r.operation_id.as_str() == op && r.kind == ResultKind::State);
    of.last().unwrap_or_else(|| panic!("nothing was said of {op}"))
}

fn posts(b: &Bench) -> Vec<String> {
    b.network.seen().into_iter().filter(|s| s.starts_with("POST")).collect()
}

fn ends(b: &Bench) -> Vec<(String, Status)> {
    b.returns().into_iter().filter_map(|r| Some((r.operation_id.to_string(), r.end?))).collect()
}

/// Why a call was not undone, as its plan is told.
fn why_not(b: &Bench) -> String {
    let told: Vec<Return> = b.returns().into_iter().filter(|r| r.end == Some(Status::Invalid)).collect();
    assert_eq!(told.len(), 1, "told once: {told:?}");
    assert_eq!((told[0].operation_id.as_str(), told[0].step.as_str()), ("op-1.undo", "place-order"));
    told[0].body.clone().unwrap_or_default()
}

/// If this broke, what a plan has done would be undone twice, or its end would change after it was told.
#[test]
fn a_confirmed_call_is_undone_once_and_its_end_stays() {
    let mut b = confirmed(undoing());
    b.undo("op-1", OURS);
    b.turn();
    b.abort();
    assert!(b.ledger("op-1.undo").is_none() && b.network.posts() == 1, "taken back: nothing was written, nothing left");
    for _ in 0..2 {
        b.undo("op-1", OURS);
        b.step();
    }
    b.replace(true);
    b.undo("op-1", OURS);
    b.step();
    b.after(sec(30));
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.step();
    assert_eq!(posts(&b), ["POST /orders", "POST /undo/order-7"]);
    assert_eq!(ends(&b), [("op-1".to_owned(), Status::Confirmed), ("op-1.undo".to_owned(), Status::Confirmed)]);
    b.undo("op-1", OURS);
    b.after(sec(60));
    assert_eq!((posts(&b).len(), b.story("op-1").as_str()), (2, "dispatched unknown confirmed"));
    let undone = b.ledger("op-1.undo").expect("in the ledger");
    assert_eq!((undone.plan_hash.as_ref().map(|p| p.as_str()), undone.wire_key.as_str()), (Some("plan-1"), "undo-key-op-1"));
}

/// The effect happens, its answer is lost, and its readback finds it.
fn read_back_after_a_lost_answer(b: &mut Bench) {
    b.outbox(&intent("op-1"));
    b.commit();
    assert!(b.network.leave(0));
    b.network.end(0, Wire::MaybeSent("no answer in 2 s".into()));
    b.step();
    b.network.answer_reads(r#"{"ours": 1}"#);
    b.step();
}

/// If this broke, a copy of the effect that arrives late would do again what was undone: the lane had opened, since the target makes one thing
/// under its key, but then that thing is gone.
#[test]
fn it_waits_until_no_copy_of_the_effect_can_arrive() {
    let sent_early = |weakened: Option<Rule>| {
        let mut b = Bench::new(Rules { creates_once: true, no_intermediaries: false, weakened, ..undoing() });
        read_back_after_a_lost_answer(&mut b);
        assert_eq!(last(&b, "op-1").status, Status::Confirmed);
        b.undo("op-1", OURS);
        b.step();
        b.after(sec(2));
        let early = posts(&b).len();
        b.after(sec(20));
        b.step();
        assert_eq!(posts(&b).last().map(String::as_str), Some("POST /undo/order-7"), "{:?}", posts(&b));
        early == 2
    };
    assert!(!sent_early(None));
    assert!(sent_early(Some(Rule::UndoWaits)), "the rule is what holds it back");
}

/// If this broke, where nothing bounds how late a copy may arrive something would be undone that is then made again; or nobody would be asked.
#[test]
fn where_nothing_bounds_a_copy_a_person_decides() {
    let mut b = Bench::new(Rules { creates_once: true, in_flight: None, no_intermediaries: false, ..undoing() });
    read_back_after_a_lost_answer(&mut b);
    b.undo("op-1", OURS);
    b.step();
    b.after(sec(601));
    assert_eq!((last(&b, "op-1.undo").status, last(&b, "op-1.undo").code), (Status::Parked, Some(codes::UNPROVABLE.to_string())));
    assert_eq!(b.network.posts(), 1);
    let mut word = command(CommandKind::Resolve, "op-1.undo", "c-1");
    (word.seen, word.resolution) = (last(&b, "op-1.undo").version, Some(Resolution::Applied));
    b.order(word);
    b.step();
    assert_eq!(ends(&b).last(), Some(&("op-1.undo".to_owned(), Status::ResolvedApplied)));
}

/// If this broke, a plan would wait for ever for what can't be undone, or something would be undone by guess.
#[test]
fn what_cannot_be_undone_is_told_to_its_plan() {
    let mut none = Bench::new(undoing());
    none.undo("op-1", OURS);
    none.step();
    assert_eq!(why_not(&none), "its ledger record is gone");
    assert_eq!(none.returns()[0].identity_hash.as_str(), OURS, "or its plan would not listen");

    let mut other = confirmed(undoing());
    other.undo("op-1", "another");
    other.step();
    assert_eq!(why_not(&other), "the ledger holds another content under this operation ID");

    let mut open = Bench::new(undoing());
    open.outbox(&intent("op-1"));
    open.commit();
    open.undo("op-1", OURS);
    open.step();
    assert_eq!(why_not(&open), "it stands at dispatched");

    let mut twice = Bench::new(undoing());
    twice.outbox(&intent("op-1"));
    twice.commit();
    assert!(twice.network.leave(0));
    twice.network.answer(0, 201, "order-7");
    twice.step();
    twice.network.answer_reads(r#"{"ours": 2}"#);
    twice.step();
    twice.undo("op-1", OURS);
    twice.step();
    assert!(why_not(&twice).starts_with("more than one of it may exist"));

    // A person said that it happened; under which reference the target knows it, nobody said.
    let mut by_word = Bench::new(undoing());
    by_word.outbox(&intent("op-1"));
    by_word.commit();
    assert!(by_word.network.leave(0));
    by_word.network.end(0, Wire::MaybeSent("no answer in 2 s".into()));
    by_word.step();
    let mut word = command(CommandKind::Resolve, "op-1", "c-1");
    (word.seen, word.resolution) = (last(&by_word, "op-1").version, Some(Resolution::Applied));
    by_word.order(word);
    by_word.undo("op-1", OURS);
    by_word.step();
    assert_eq!(why_not(&by_word), "its compensation can't be filled in: no reference");
    for b in [none, other, open, twice, by_word] {
        assert!(posts(&b).len() <= 1, "nothing was sent to undo it");
    }
}

/// If this broke, a compensation and a later effect of its lane would be under way together, or each would wait for the other.
#[test]
fn it_goes_behind_what_has_begun_since_and_before_what_waits() {
    let mut b = Bench::new(undoing());
    for op in ["op-1", "op-2", "op-3"] {
        let mut i = intent(op);
        i.ordering_key = "lane".into();
        b.outbox(&i);
    }
    b.commit();
    confirm(&mut b, 0);
    let second = b.network.seen().len() - 1;
    b.undo("op-1", OURS);
    b.step();
    assert_eq!(posts(&b), ["POST /orders", "POST /orders"], "op-2 is under way");
    confirm(&mut b, second);
    assert_eq!(posts(&b), ["POST /orders", "POST /orders", "POST /undo/order-7"], "op-3 waits for it");
    let third = b.network.seen().len() - 1;
    confirm(&mut b, third);
    assert_eq!(posts(&b).len(), 4, "{:?}", ends(&b));
    assert_eq!(ends(&b).last().map(|(op, _)| op.as_str()), Some("op-1.undo"));
}
