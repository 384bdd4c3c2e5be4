//! life.md 1, 3, 7–10: from the plan to the intent, and what comes back.

use super::*;
use crate::error::codes;

/// Checks a whole story for what a reader of results may assume, and that nothing is handed over and ended here as well.
pub(super) fn faults(bed: &Bed) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut version, mut end, mut handed) = (0, None, None);
    for output in &bed.all {
        match output {
            Output::Result(r) if r.kind == ResultKind::State => {
                let v = r.version.unwrap_or_default();
                if v <= version {
                    faults.push(format!("version {v} after {version}"));
                }
                if let Some(end) = end {
                    faults.push(format!("{:?} after the end {end:?}", r.status));
                }
                if handed.is_some() {
                    faults.push(format!("{:?} written here after the hand-over", r.status));
                }
                version = v;
                end = r.status.is_end().then_some(r.status);
            }
            Output::Intent(i, _) if i.kind == IntentKind::Effect => {
                if handed.is_some() {
                    faults.push("handed over twice".into());
                }
                if let Some(end) = end {
                    faults.push(format!("handed over after {end:?}"));
                }
                if i.version != version {
                    faults.push(format!("the intent carries version {}, results stand at {version}", i.version));
                }
                if i.approval.as_ref().is_some_and(|a| Some(&a.plan_hash) != i.plan_hash.as_ref()) {
                    faults.push("spent an approval of another plan".into());
                }
                handed = Some(i);
            }
            _ => {}
        }
    }
    faults
}

/// If this broke, a model's answer would not become an order, or without the states that a reader waits for.
#[test]
fn a_plan_below_the_limit_goes_through_without_a_person() {
    let mut bed = Bed::new(gated());
    let out = bed.ask(request(INPUT));
    let call = intents(&out)[0];
    assert_eq!((call.kind, call.operation_id.as_str(), call.version), (IntentKind::Proposal, "op-1.plan", 0));
    let out = bed.plan(SMALL);
    assert_eq!(states(&out), [Status::Planned, Status::Approved]);
    let effect = effects(&out)[0];
    assert_eq!((effect.version, effect.parameters.as_str()), (3, SMALL));
    assert_eq!(effect.plan_hash, Some(bed.plan_hash()));
    assert_eq!(faults(&bed), Vec::<String>::new());
}

/// Rule 7 (shortest trace 7): if the intent did not carry the record's version, the ledger would start a second count and
/// readers would drop its results as repeats.
#[test]
fn life_07_one_counter() {
    needed(Rule::OneCounter, |off| {
        let mut bed = Bed::without(planned(), off);
        bed.ask(request(INPUT));
        bed.plan(SMALL);
        !faults(&bed).is_empty()
    });
}

/// Rule 7 (shortest trace 8): if the record kept its deadline after the hand-over, it would say `expired` while the effect
/// runs on.
#[test]
fn life_07_silent_after_the_hand_over() {
    needed(Rule::SilentAfterHandOver, |off| {
        let mut bed = Bed::without(plain(), off);
        bed.ask(request(INPUT));
        bed.at(DEADLINE.plus(Duration::from_secs(1)));
        !faults(&bed).is_empty()
    });
    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    assert_eq!(bed.record.as_ref().and_then(|r| r.due(&bed.desk.settings)), None);
}

/// Rule 8 (shortest trace 24): if the record went before the ledger's, a late copy of the request would be new, meet the old
/// ledger record, or run twice after it.
#[test]
fn life_08_the_record_outlives_what_it_handed_over() {
    needed(Rule::GoneFirst, |off| {
        let mut bed = Bed::without(plain(), off);
        bed.ask(request(INPUT));
        bed.now = WallTime(9_000);
        bed.closed(Status::Confirmed, 4);
        bed.at(DEADLINE.plus(AUDIT).plus(Duration::from_secs(2)));
        bed.record.is_none()
    });
    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    bed.closed(Status::Confirmed, 4);
    bed.gone("op-1", "place-order");
    bed.at(DEADLINE.plus(AUDIT));
    assert!(bed.record.is_some(), "its own life counts too, clock error included");
    bed.at(DEADLINE.plus(AUDIT).plus(Duration::from_secs(1)));
    assert!(bed.record.is_none());
}

/// Rule 8 (shortest trace 14): if retention started at the deadline instead of the close, an operation that stayed unknown for
/// long would lose its identity while it lived.
#[test]
fn life_08_retention_starts_at_the_close() {
    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    bed.at(WallTime(90_000_000));
    assert_eq!(bed.stage(), Some(Stage::HandedOver));
    bed.closed(Status::Confirmed, 4);
    bed.gone("op-1", "place-order");
    bed.at(WallTime(90_000_000).plus(AUDIT));
    assert!(bed.record.is_some());
    bed.at(WallTime(90_000_000).plus(AUDIT).plus(Duration::from_secs(1)));
    assert!(bed.record.is_none());
}

/// Rule 8: if a conflict found by the ledger did not close its sender's operation as such, that one would hang for ever.
#[test]
fn life_08_a_conflict_at_the_ledger_ends_its_sender() {
    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    let out = bed.closed(Status::Conflict, 4);
    assert_eq!(states(&out), [Status::Conflict]);
    assert_eq!(bed.stage(), Some(Stage::Ended));
}

/// Rule 9 (shortest trace 17): if the root's record did not route for what is derived of it, a parked compensation could never
/// be resolved.
#[test]
fn life_09_commands_reach_a_compensation() {
    needed(Rule::RootRoutes, |off| {
        let mut bed = Bed::without(plain(), off);
        bed.ask(request(INPUT));
        bed.closed(Status::Superseded, 5);
        let resolve = Command { operation_id: OperationId::new("op-1.undo"), ..command("c-1", CommandKind::Resolve) };
        forwarded(&bed.send(Event::Command(resolve))).is_empty()
    });
}

/// Rule 9: if the record did not wait for its compensation, `<id>.undo` would be an orphan.
#[test]
fn life_09_the_record_outlives_its_compensation() {
    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    bed.closed(Status::Superseded, 5);
    bed.gone("op-1", "place-order");
    bed.at(WallTime(90_000_000));
    assert!(bed.record.is_some());
    bed.gone("op-1.undo", "place-order");
    bed.at(WallTime(900_000_000));
    assert!(bed.record.is_none());
}

/// Rule 4 and effects.md 22 (shortest trace 5): if a plan answer were not bound to the content, a plan of earlier content would
/// be used for a new one.
#[test]
fn life_04_a_plan_answer_carries_the_identity_hash() {
    needed(Rule::PlanHashChecked, |off| {
        let mut bed = Bed::without(planned(), off);
        bed.ask(request(INPUT));
        let foreign = request(r#"{"sku":"B"}"#).identity();
        bed.send(Event::Return(back(ReturnKind::PlanAnswer, "op-1.plan", "plan", foreign, None, 2, Some(SMALL))));
        !effects(&bed.all).is_empty()
    });
}

/// effects.md 22: if a later answer replaced the first committed plan, an approver would decide on a plan that changes.
#[test]
fn the_first_committed_plan_wins() {
    needed(Rule::FirstPlanWins, |off| {
        let mut bed = Bed::without(gated(), off);
        bed.ask(request(INPUT));
        bed.plan(BIG);
        let first = bed.plan_hash();
        bed.plan(r#"{"sku":"B","total":900}"#);
        bed.plan_hash() != first
    });
}

/// Rule 4 (shortest trace 9): if a failed plan did not use up the ID, the operation would be planned again under the same
/// `<id>.plan`, whose ledger record answers with the old failure for ever.
#[test]
fn life_04_a_failed_plan_uses_up_the_id() {
    needed(Rule::PlanFailedUsesId, |off| {
        let mut bed = Bed::without(planned(), off);
        bed.ask(request(INPUT));
        bed.plan("I would rather not.");
        bed.ask(request(INPUT));
        intents(&bed.all).len() > 1
    });
    let mut bed = Bed::new(planned());
    bed.ask(request(INPUT));
    let out = bed.plan(r#"{"sku":"A","rm":"-rf"}"#);
    assert_eq!(states(&out), [Status::PlanFailed]);
    assert_eq!(results(&out)[0].code, Some(codes::PLAN_FAILED.to_string()));
}

/// If this broke, an operation whose model call ended without an answer would wait until its deadline for nothing.
#[test]
fn a_lost_model_call_fails_the_plan() {
    let mut bed = Bed::new(planned());
    bed.ask(request(INPUT));
    let hash = bed.hash();
    let out = bed.send(Event::Return(back(ReturnKind::Closed, "op-1.plan", "plan", hash, Some(Status::Refused), 3, None)));
    assert_eq!(states(&out), [Status::PlanFailed]);
}

/// Rule 10: if the parent's end did not cancel its model call, money would be spent on a plan that nobody wants; and its late
/// answer must change nothing.
#[test]
fn life_10_the_end_cancels_the_model_call() {
    let mut bed = Bed::new(planned());
    bed.ask(request(INPUT));
    let out = bed.cancel("c-1");
    assert_eq!(states(&out), [Status::Cancelled]);
    let command = forwarded(&out)[0];
    assert_eq!((command.kind, command.operation_id.as_str()), (CommandKind::Cancel, "op-1.plan"));
    assert!(bed.plan(SMALL).is_empty());
}

/// If this broke, policy would be asked only once, long before the effect, or a denial would not end the operation.
#[test]
fn policy_is_asked_when_the_intent_is_written() {
    let mut bed = Bed::new(gated());
    bed.ask(request(INPUT));
    bed.plan(BIG);
    *bed.forbid.0.lock().expect("no panic") = Some("policy orders: forbid-large".into());
    let ok = approval("a-1", &bed.plan_hash(), Decision::Approve);
    let out = bed.send(Event::Approval(ok));
    assert_eq!(states(&out), [Status::Approved, Status::Denied]);
    assert!(effects(&bed.all).is_empty());
    assert_eq!(faults(&bed), Vec::<String>::new());
}
