//! Plans that can't be whole, where the step chose that what was done of them is undone.

use super::calls::{call, diamond, several};
use super::*;
use crate::agent::replay::{Again, again};
use crate::error::codes;

fn compensating() -> Pipeline {
    let mut all = several();
    if let Does::Proposed(tools) = &mut all.effect.does {
        tools.on_partial = OnPartial::Compensate;
    }
    all
}

/// A plan under way; what needs nothing has begun.
fn begun(plan: &str, weakened: Option<Rule>) -> Bed {
    let mut bed = Bed::without(compensating(), weakened);
    bed.ask(request("{}"));
    bed.plan(plan);
    let yes = approval("a-1", &bed.plan_hash(), Decision::Approve);
    bed.send(Event::Approval(yes));
    assert_eq!(bed.stage(), Some(Stage::Executing));
    bed
}

/// The diamond with these calls confirmed.
fn confirmed(calls: &[u32]) -> Bed {
    let mut bed = begun(&diamond(700.0), None);
    for n in calls {
        bed.call_closed(*n, Status::Confirmed);
    }
    bed
}

/// Whose owners were told to undo them, and what was told to stop.
fn ordered(out: &[Output], kind: ControlKind) -> Vec<&str> {
    let of = |o: &Output| matches!(o, Output::Control(c, _) if c.kind == kind);
    out.iter()
        .filter(|o| of(o))
        .filter_map(|o| if let Output::Control(c, _) = o { Some(c.operation_id.as_str()) } else { None })
        .collect()
}

fn undos(out: &[Output]) -> Vec<&str> {
    ordered(out, ControlKind::Undo)
}

impl Bed {
    fn undo_closed(&mut self, n: u32, end: Status, why: Option<&str>) -> Vec<Output> {
        let (hash, at) = (self.hash(), self.now);
        let id = format!("op-1.{n}.undo");
        self.send(Event::Return(Return { at, ..back(ReturnKind::Closed, &id, "place-order", hash, Some(end), 3, why) }))
    }
    fn undone(&self) -> Vec<UndoState> {
        self.last().undo.as_ref().expect("how it is undone").iter().map(|u| u.state).collect()
    }
    fn words(&self) -> &str {
        self.last().detail.as_deref().unwrap_or_default()
    }
}

/// If this broke, a plan that can't be whole would stay half done, be undone in an order that takes away what others stand on, or end before
/// it is undone.
#[test]
fn what_was_done_of_a_plan_is_undone_in_reverse() {
    let mut bed = confirmed(&[1, 2, 3]);
    let out = bed.call_closed(4, Status::Refused);
    assert_eq!(undos(&out), ["op-1.3", "op-1.2"], "both stand on a");
    assert_eq!(states(&out), [Status::Dispatched]);
    assert_eq!(bed.words(), "1 to be undone: a · 2 being undone: b, c · 1 not done: d (refused)");
    assert!(undos(&bed.undo_closed(3, Status::Confirmed, None)).is_empty(), "a waits for b");
    assert_eq!(bed.stage(), Some(Stage::Executing));
    assert_eq!(undos(&bed.undo_closed(2, Status::Confirmed, None)), ["op-1.1"]);
    let out = bed.undo_closed(1, Status::Confirmed, None);
    assert_eq!((states(&out), bed.stage()), (vec![Status::Partial], Some(Stage::Ended)));
    assert_eq!((bed.last().code.as_deref(), bed.words()), (Some("RB0715"), "3 undone: a, b, c · 1 not done: d (refused)"));
    assert_eq!(bed.undone(), [UndoState::Undone, UndoState::Undone, UndoState::Undone, UndoState::NotOrdered]);
    let order =
        bed.all.iter().find_map(|o| if let Output::Control(c, _) = o { (c.kind == ControlKind::Undo).then_some(c) } else { None });
    assert_eq!(order.and_then(|c| c.identity_hash.clone()), Some(bed.hash()), "the owner can see whose call is meant");
}

/// If this broke, what one call stands on would be undone before it: by the rule's absence it is.
#[test]
fn the_order_is_a_rule() {
    needed(Rule::UndoReversed, |off| {
        let mut bed = begun(&diamond(700.0), off);
        (1..=3).for_each(|n| drop(bed.call_closed(n, Status::Confirmed)));
        undos(&bed.call_closed(4, Status::Refused)).contains(&"op-1.1")
    });
}

/// If this broke, a redelivered return, request, order or tick would undo a call a second time.
#[test]
fn nothing_that_comes_again_undoes_a_call_again() {
    let mut bed = confirmed(&[1, 2, 3]);
    bed.call_closed(4, Status::Refused);
    for again in 0..2 {
        bed.ask(request("{}"));
        bed.cancel(&format!("c-{again}"));
        bed.call_closed(4, Status::Refused);
        bed.at(DEADLINE);
        bed.undo_closed(3, Status::Confirmed, None);
    }
    bed.undo_closed(2, Status::Confirmed, None);
    bed.undo_closed(2, Status::Confirmed, None);
    bed.undo_closed(1, Status::Confirmed, None);
    bed.undo_closed(1, Status::Confirmed, None);
    let mut all = undos(&bed.all);
    all.sort_unstable();
    assert_eq!(all, ["op-1.1", "op-1.2", "op-1.3"]);
    let told: Vec<_> = answers(&bed.all)
        .iter()
        .filter(|r| r.answers.as_deref().is_some_and(|a| a.starts_with("c-")))
        .map(|r| r.code.clone())
        .collect();
    assert_eq!(
        told,
        [Some("RB0715".to_owned()), Some("RB0715".to_owned())],
        "both cancels are answered at the end, with what it came to"
    );
}

/// If this broke, every end of a call that is none would leave the rest done, or a plan that is whole would be undone.
#[test]
fn every_end_that_spoils_a_plan_undoes_it() {
    for not in [
        Status::Refused,
        Status::Denied,
        Status::Expired,
        Status::Cancelled,
        Status::ResolvedNotApplied,
        Status::Stale,
        Status::Conflict,
    ] {
        assert_eq!(undos(&confirmed(&[1, 2, 3]).call_closed(4, not)), ["op-1.3", "op-1.2"], "{not:?}");
    }
    for done in [Status::Confirmed, Status::ResolvedApplied] {
        let mut whole = confirmed(&[1, 2, 3]);
        assert!(undos(&whole.call_closed(4, done)).is_empty());
        assert_eq!(whole.stage(), Some(Stage::Ended));
        assert!(whole.undone().iter().all(|u| *u == UndoState::NotOrdered));
    }
}

/// If this broke, what is left would be begun to be undone at once, or the plan would be undone while a call may still happen.
#[test]
fn a_plan_that_is_given_up_begins_nothing_and_waits_for_what_is_under_way() {
    let mut bed = confirmed(&[1]);
    let out = bed.call_closed(2, Status::Refused);
    assert_eq!(ordered(&out, ControlKind::Command), ["op-1.3"], "c is told to stop");
    assert_eq!(forwarded(&out)[0].kind, CommandKind::Cancel);
    assert!(undos(&out).is_empty(), "whether c happened nobody knows, and it stands on a");
    assert_eq!(bed.ends(), [Some(Status::Confirmed), Some(Status::Refused), None, Some(Status::Cancelled)]);
    let d = bed.record.as_ref().expect("a record").calls[3].clone();
    assert_eq!(d.code.as_deref(), Some("RB0713"));
    assert_eq!(d.detail.as_deref(), Some("b (op-1.2) ended as refused, so the plan can't be whole and is undone"));
    assert!(bed.at(DEADLINE).is_empty(), "an unknown call has no end");
    assert_eq!(undos(&bed.call_closed(3, Status::Confirmed)), ["op-1.3"], "it had happened after all");
    assert_eq!(undos(&bed.undo_closed(3, Status::ResolvedApplied, None)), ["op-1.1"]);
    bed.undo_closed(1, Status::Confirmed, None);
    assert_eq!((bed.last().status, bed.last().code.as_deref()), (Status::Partial, Some("RB0715")));
}

/// If this broke, a call whose owner undoes it by itself, since it was cancelled too late, would be undone twice, or not be waited for.
#[test]
fn what_its_owner_undoes_by_itself_is_waited_for() {
    let mut bed = confirmed(&[1]);
    bed.call_closed(2, Status::Refused);
    let out = bed.call_closed(3, Status::Superseded);
    assert!(undos(&out).is_empty(), "its owner has written its compensation, and a waits for that");
    assert_eq!(bed.words(), "1 to be undone: a · 1 being undone: c · 2 not done: b (refused), d (cancelled)");
    assert_eq!(undos(&bed.undo_closed(3, Status::Confirmed, None)), ["op-1.1"]);
    bed.undo_closed(1, Status::Confirmed, None);
    assert_eq!(bed.words(), "2 undone: a, c · 2 not done: b (refused), d (cancelled)");
}

/// If this broke, what nothing undoes, or what a person says was not undone, would be called undone; or it would keep the rest.
#[test]
fn what_stays_done_is_told() {
    let mut invoice = call("mail", &["a"]);
    invoice["tool"] = json!("invoice");
    let plan = json!({"total": 700.0, "calls": [call("a", &[]), invoice, call("c", &["mail"]), call("d", &["c"])]}).to_string();
    let mut bed = begun(&plan, None);
    let shown = bed.last().undo.clone().expect("whoever approves sees how it would be undone");
    assert_eq!(shown[0].by, Some(CallName::new("cancel")));
    assert_eq!((shown[1].by.clone(), shown[1].operation_id.as_str()), (None, "op-1.2.undo"));
    (1..=3).for_each(|n| drop(bed.call_closed(n, Status::Confirmed)));
    assert_eq!(undos(&bed.call_closed(4, Status::Refused)), ["op-1.3"], "c stands on a by way of the mail");
    assert_eq!(undos(&bed.undo_closed(3, Status::ResolvedNotApplied, None)), ["op-1.1"]);
    let out = bed.undo_closed(1, Status::Invalid, Some("its compensation can't be filled in: no evidence"));
    assert_eq!(states(&out), [Status::Partial]);
    assert_eq!(bed.last().code.as_deref(), Some("RB0714"));
    assert_eq!(
        bed.words(),
        "3 stays done: a (its compensation can't be filled in: no evidence), mail, c (a person said that it was not undone) · 1 not done: d (refused)"
    );
    assert_eq!(bed.undone(), [UndoState::Stays, UndoState::NotOrdered, UndoState::Stays, UndoState::NotOrdered]);
}

/// If this broke, a person could not call a plan off that is partly done, would not hear of it, or a cancel that met every call too late would
/// leave it done.
#[test]
fn a_cancelled_or_revoked_plan_is_undone() {
    let mut bed = confirmed(&[1, 2]);
    let out = bed.cancel("c-1");
    assert_eq!((forwarded(&out).len(), undos(&out)), (1, vec!["op-1.2"]), "c is told to stop; b has nothing on it");
    assert!(answers(&out).is_empty());
    bed.call_closed(3, Status::Cancelled);
    bed.undo_closed(2, Status::Confirmed, None);
    let out = bed.undo_closed(1, Status::Confirmed, None);
    assert_eq!((bed.last().status, answers(&out).len()), (Status::Partial, 1));
    assert_eq!(bed.words(), "2 undone: a, b · 2 not done: c (cancelled), d (cancelled)");

    let mut late = confirmed(&[1, 2, 3]);
    late.cancel("c-2");
    assert_eq!(undos(&late.call_closed(4, Status::Confirmed)), ["op-1.4"], "it was called off before it was whole");
    for n in [4, 3, 2] {
        late.undo_closed(n, Status::Confirmed, None);
    }
    let out = late.undo_closed(1, Status::Confirmed, None);
    assert_eq!((late.last().status, late.words()), (Status::Superseded, "4 undone: a, b, c, d"));
    assert_eq!(answers(&out)[0].code, None, "the cancel did what it was for");

    let mut revoked = confirmed(&[1, 2]);
    let back = approval("a-1", &revoked.plan_hash(), Decision::Revoke);
    assert_eq!(undos(&revoked.send(Event::Approval(back))), ["op-1.2"]);
    let by_command =
        Command { approval: Some(approval("a-1", &revoked.plan_hash(), Decision::Revoke)), ..command("c-3", CommandKind::Revoke) };
    assert_eq!(undos(&confirmed(&[1, 2]).send(Event::Command(by_command))), ["op-1.2"]);
}

/// If this broke, a plan would be undone in part when its deadline comes, or not at all.
#[test]
fn the_deadline_undoes_what_was_done() {
    let mut bed = confirmed(&[1, 2]);
    let out = bed.at(DEADLINE);
    assert_eq!((undos(&out), ordered(&out, ControlKind::Command)), (vec!["op-1.2"], vec!["op-1.3"]));
    assert_eq!(bed.ends(), [Some(Status::Confirmed), Some(Status::Confirmed), None, Some(Status::Expired)]);
}

/// effects.md 22: if this broke, somebody would approve a plan without the choice that what was done of it may be undone, or a deploy that makes
/// that choice would take effect for what was approved without it. A plan that leaves what was done keeps the hash that it had.
#[test]
fn the_choice_is_under_the_plans_hash_and_is_kept_as_approved() {
    let hash = |pipeline: Pipeline| {
        let mut bed = Bed::new(pipeline);
        bed.ask(request("{}"));
        bed.plan(&diamond(700.0));
        bed.plan_hash()
    };
    assert_ne!(hash(several()), hash(compensating()));

    let mut bed = confirmed(&[1, 2]);
    bed.desk = Desk::new(bed.desk.settings, vec![several()], bed.fill.clone(), bed.forbid.clone()).expect("a good pipeline");
    let out = bed.call_closed(3, Status::Confirmed);
    assert_eq!(bed.ends()[3], Some(Status::Denied), "the plan is another one by now");
    assert_eq!(undos(&out), ["op-1.3", "op-1.2"], "what was approved is that it is undone");
}

/// If this broke, the parent's record would go while its compensations could still need it, or stay for ever for one that never was.
#[test]
fn the_parent_outlives_its_compensations() {
    let mut bed = confirmed(&[1]);
    bed.call_closed(2, Status::Refused);
    bed.call_closed(3, Status::Cancelled);
    bed.undo_closed(1, Status::Invalid, Some("no"));
    let life = WallTime(DEADLINE.0 + 100 * 60_000 * 1_000);
    bed.gone("op-1.plan", "plan");
    (1..=2).for_each(|n| drop(bed.gone(&format!("op-1.{n}"), "place-order")));
    bed.at(life);
    assert!(bed.record.is_some(), "op-1.3 is in the ledger");
    bed.gone("op-1.3", "place-order");
    bed.at(life);
    assert!(bed.record.is_none());

    let mut gone = confirmed(&[1, 2]);
    gone.gone("op-1.1", "place-order");
    gone.call_closed(3, Status::Cancelled);
    let out = gone.undo_closed(2, Status::Confirmed, None);
    assert!(undos(&out).is_empty());
    assert!(gone.words().starts_with("1 stays done: a (its ledger record is gone) · 1 undone: b"), "{}", gone.words());
}

/// If this broke, a person could not decide on a compensation that is parked.
#[test]
fn commands_reach_a_compensation_by_its_own_id() {
    let mut bed = confirmed(&[1, 2, 3]);
    bed.call_closed(4, Status::Refused);
    let resolve = Command { operation_id: OperationId::new("op-1.3.undo"), ..command("c-1", CommandKind::Resolve) };
    let out = bed.send(Event::Command(resolve));
    assert_eq!(forwarded(&out).iter().map(|c| c.operation_id.as_str()).collect::<Vec<_>>(), ["op-1.3.undo"]);
}

/// If this broke, a plan that came to nothing could not go back, would go back without what it was asked for, or a plan that a person called
/// off, or of which something stands, would rest among what is to be repaired.
#[test]
fn a_plan_that_is_wholly_undone_is_a_dead_letter_that_can_go_back() {
    let mut bed = confirmed(&[1, 2, 3]);
    let asked = request("{}");
    assert!(dead(&bed.call_closed(4, Status::Refused)).is_empty(), "it is not undone yet");
    (2..=3).for_each(|n| assert!(dead(&bed.undo_closed(n, Status::Confirmed, None)).is_empty()));
    let out = bed.undo_closed(1, Status::Confirmed, None);
    let [letter] = dead(&out)[..] else { panic!("{out:?}") };
    assert_eq!((letter.code, letter.reason.as_str()), (codes::PLAN_UNDONE, "3 undone: a, b, c · 1 not done: d (refused)"));
    assert_eq!(letter.request.identity(), asked.identity(), "with its input");
    let record = bed.record.clone().expect("a record");
    assert_eq!(record.request.input.inline, None, "the record keeps it no longer");
    let (hash, ask) = (bed.hash(), Some(Status::Confirmed));
    bed.send(Event::Return(back(ReturnKind::Closed, "op-1.plan", "plan", hash, ask, 3, None)));
    let record = OperationRecord { derived: bed.record.clone().expect("a record").derived, ..record };

    let sent = WorkRequest { message_id: "replay-1".into(), deadline: WallTime(DEADLINE.0 + 1), ..letter.request.clone() };
    assert_eq!(again(&record, &[], &sent), Again::As("op-1.r1".into()));
    let once =
        OperationRecord { request: WorkRequest { operation_id: "op-1.r1".into(), ..record.request.clone() }, ..record.clone() };
    assert_eq!(again(&record, std::slice::from_ref(&once), &sent), Again::As("op-1.r2".into()), "the replay was undone, too");
    let half = OperationRecord { code: Some(codes::PLAN_PARTIAL.to_string()), ..once };
    assert!(
        matches!(again(&record, &[half], &sent), Again::No(why) if why.code == codes::REPLAY_REFUSED),
        "something of it stands"
    );

    let mut off = confirmed(&[1]);
    off.cancel("c-1");
    (2..=3).for_each(|n| drop(off.call_closed(n, Status::Cancelled)));
    let out = off.undo_closed(1, Status::Confirmed, None);
    assert_eq!((off.last().code.as_deref(), dead(&out).len()), (Some("RB0715"), 0), "a person wanted that");
    let mut stays = confirmed(&[1, 2, 3]);
    stays.call_closed(4, Status::Refused);
    (2..=3).for_each(|n| drop(stays.undo_closed(n, Status::Confirmed, None)));
    assert!(dead(&stays.undo_closed(1, Status::ResolvedNotApplied, None)).is_empty(), "a stands");
}
