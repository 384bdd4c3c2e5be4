//! life.md 14, 15 and effects.md 22: approvals.

use super::hand_over::faults;
use super::*;

fn waiting(off: Option<Rule>) -> Bed {
    let mut bed = Bed::without(gated(), off);
    bed.ask(request(INPUT));
    bed.plan(BIG);
    bed
}

fn other() -> PlanHash {
    PlanHash::new("another")
}

/// If this broke, an approver would not learn that a plan waits, or its approval would not set it free.
#[test]
fn a_plan_waits_for_its_approval() {
    let mut bed = waiting(None);
    assert_eq!(states(&bed.all), [Status::Accepted, Status::Planned, Status::AwaitingApproval]);
    let ok = approval("a-1", &bed.plan_hash(), Decision::Approve);
    let out = bed.send(Event::Approval(ok));
    assert_eq!(states(&out), [Status::Approved]);
    let spent = effects(&out)[0].approval.clone().expect("the approval it spends");
    assert_eq!((spent.id.as_str(), spent.approver.as_str()), ("a-1", "approver"));
    assert_eq!(spent.expires_at, WallTime(121_000), "no longer than the gate allows");
    assert_eq!(faults(&bed), Vec::<String>::new());
}

/// effects.md 22: if an approval did not bind to the plan hash, it would set another plan free than was looked at.
#[test]
fn an_approval_binds_to_its_plan() {
    needed(Rule::ApprovalBinds, |off| {
        let mut bed = waiting(off);
        bed.send(Event::Approval(approval("a-1", &other(), Decision::Approve)));
        !effects(&bed.all).is_empty()
    });
}

/// If an approval that came before its plan were dropped, a person would have to give it twice.
#[test]
fn an_early_approval_is_held() {
    let hash = waiting(None).plan_hash();
    let mut bed = Bed::new(gated());
    let early = vec![Signal::Approval(approval("a-1", &hash, Decision::Approve))];
    bed.send(Event::Intake(Box::new(intake(request(INPUT))), early));
    let out = bed.plan(BIG);
    assert_eq!(states(&out), [Status::Planned, Status::Approved]);
    assert_eq!(effects(&out).len(), 1);
}

/// If this broke, the one who asks would approve its own request, or nobody at all.
#[test]
fn the_approver_is_another_than_the_requester() {
    for approver in ["agent:buyer", "Agent:Buyer ", "", " "] {
        let mut bed = waiting(None);
        let own = Approval { approver: approver.into(), ..approval("a-1", &bed.plan_hash(), Decision::Approve) };
        let out = bed.send(Event::Approval(own));
        assert!(effects(&bed.all).is_empty());
        assert_eq!(answers(&out)[0].answers.as_deref(), Some("a-1"));
    }
}

/// If this broke, an approval would be used after its time, or an operation would wait for one for ever without a word.
#[test]
fn approvals_and_the_wait_for_them_expire() {
    let mut bed = waiting(None);
    let old = Approval { expires_at: WallTime(1_000), ..approval("a-1", &bed.plan_hash(), Decision::Approve) };
    bed.send(Event::Approval(old));
    assert!(effects(&bed.all).is_empty());
    let out = bed.at(WallTime(121_000));
    assert_eq!(states(&out), [Status::Expired]);
    assert_eq!(results(&out)[0].detail.as_deref(), Some("nobody approved it within 2 min"));
}

/// Rule 14 (shortest trace 9): if a revoked approval did not stay revoked, its redelivery would set the plan free.
#[test]
fn life_14_a_revoked_approval_stays_revoked() {
    needed(Rule::RevokedStays, |off| {
        let hash = waiting(None).plan_hash();
        let mut bed = Bed::without(gated(), off);
        bed.ask(request(INPUT));
        let yes = approval("a-1", &hash, Decision::Approve);
        bed.send(Event::Approval(yes.clone()));
        let out = bed.send(Event::Approval(approval("a-1", &hash, Decision::Revoke)));
        assert_eq!(answers(&out).len(), 1, "a revoke is answered at once");
        bed.send(Event::Approval(yes));
        bed.plan(BIG);
        !effects(&bed.all).is_empty()
    });
}

/// Rule 14 (shortest trace 8): if this unit answered a revoke after the hand-over, it would be "in time" while the effect runs.
#[test]
fn life_14_after_the_hand_over_the_owner_answers() {
    needed(Rule::RevokeForwarded, |off| {
        let mut bed = waiting(off);
        let hash = bed.plan_hash();
        bed.send(Event::Approval(approval("a-1", &hash, Decision::Approve)));
        let taken = Some(approval("a-1", &hash, Decision::Revoke));
        let out = bed.send(Event::Command(Command { approval: taken, ..command("c-1", CommandKind::Revoke) }));
        !answers(&out).is_empty() || forwarded(&out).len() != 1
    });
}

/// Rule 14: if an approval that was taken back counted as a late one after the hand-over, its redelivery would set sends free.
#[test]
fn life_14_a_revoked_approval_is_no_late_one() {
    let mut bed = waiting(None);
    let hash = bed.plan_hash();
    bed.send(Event::Approval(approval("a-1", &hash, Decision::Approve)));
    bed.send(Event::Approval(approval("a-2", &hash, Decision::Revoke)));
    let out = bed.send(Event::Approval(approval("a-2", &hash, Decision::Approve)));
    assert!(forwarded(&out).is_empty(), "{out:?}");
}

/// Rule 15: if the spend were not in the hand-over's record, a redelivered approval would be taken for a new one.
#[test]
fn life_15_an_approval_is_spent_once() {
    needed(Rule::SpentOnce, |off| {
        let mut bed = waiting(off);
        let yes = approval("a-1", &bed.plan_hash(), Decision::Approve);
        bed.send(Event::Approval(yes.clone()));
        let out = bed.send(Event::Approval(yes));
        forwarded(&out)[0].kind != CommandKind::Query
    });
}

/// Rule 15: a denial ends before the hand-over, and is a revoke of what was spent after it.
#[test]
fn life_15_denials() {
    let mut bed = waiting(None);
    let no = approval("a-2", &bed.plan_hash(), Decision::Deny);
    assert_eq!(states(&bed.send(Event::Approval(no.clone()))), [Status::Denied]);
    let out = bed.send(Event::Approval(approval("a-1", &bed.plan_hash(), Decision::Approve)));
    assert!(effects(&bed.all).is_empty());
    assert_eq!(answers(&out)[0].status, Status::Denied);

    let mut bed = Bed::new(gated());
    bed.ask(request(INPUT));
    let out = bed.send(Event::Approval(Approval { plan_hash: PlanHash::new(""), ..no.clone() }));
    assert_eq!(states(&out), [Status::Denied], "without a plan hash it denies whatever comes");

    let mut bed = waiting(None);
    let hash = bed.plan_hash();
    bed.send(Event::Approval(approval("a-1", &hash, Decision::Approve)));
    let out = bed.send(Event::Approval(no));
    let revoke = forwarded(&out)[0];
    let named = revoke.approval.as_ref().expect("an approval");
    assert_eq!((revoke.kind, named.approval_id.as_str()), (CommandKind::Revoke, "a-1"));
    assert!(states(&out).is_empty());
}

/// Rule 15: an approval after the hand-over counts only as *approve late*, for the intent's plan hash.
#[test]
fn life_15_late_approvals() {
    let mut bed = waiting(None);
    let hash = bed.plan_hash();
    bed.send(Event::Approval(approval("a-1", &hash, Decision::Approve)));
    let out = bed.send(Event::Approval(approval("a-2", &hash, Decision::Approve)));
    assert_eq!(forwarded(&out)[0].kind, CommandKind::ApproveLate);
    let out = bed.send(Event::Approval(approval("a-3", &other(), Decision::Approve)));
    assert!(forwarded(&out).is_empty());
    assert_eq!((answers(&out)[0].kind, answers(&out)[0].version), (ResultKind::Message, None), "it tells no state");
}

/// C092: an approval given for one call must not be spent on another with other arguments; key order changes nothing.
#[test]
fn c092_other_arguments_need_another_approval() {
    let hash_of = |plan: &str| {
        let mut bed = Bed::new(gated());
        bed.ask(request(INPUT));
        bed.plan(plan);
        bed.plan_hash()
    };
    let approved = hash_of(r#"{"sku":"A","total":700}"#);
    assert_ne!(approved, hash_of(r#"{"sku":"A","total":70000}"#));
    assert_ne!(approved, hash_of(r#"{"sku":"B","total":700}"#));
    assert_eq!(approved, hash_of(r#"{ "total": 700, "sku": "A" }"#));
}

/// C094: a spent approval must not come back for a second operation: the plan hash covers the operation.
#[test]
fn c094_an_approval_is_good_for_one_operation() {
    let first = waiting(None).plan_hash();
    let mut bed = Bed::new(gated());
    bed.ask(WorkRequest { operation_id: OperationId::new("op-2"), ..request(INPUT) });
    let hash = bed.hash();
    bed.send(Event::Return(back(ReturnKind::PlanAnswer, "op-2.plan", "plan", hash, None, 2, Some(BIG))));
    assert_eq!(bed.stage(), Some(Stage::Waiting));
    assert_ne!(bed.plan_hash(), first);
    bed.send(Event::Approval(Approval { operation_id: OperationId::new("op-2"), ..approval("a-1", &first, Decision::Approve) }));
    assert!(effects(&bed.all).is_empty());
}

/// C095: if the tool changed after the approval, in any field, the approval is void and the new plan waits for its own.
#[test]
fn c095_a_changed_tool_voids_the_approval() {
    let mut bed = waiting(None);
    let before = bed.plan_hash();
    *bed.fill.definition.lock().expect("no panic") = "another endpoint".into();
    let out = bed.send(Event::Approval(approval("a-1", &before, Decision::Approve)));
    assert!(effects(&bed.all).is_empty());
    assert_eq!(states(&out), [Status::Planned, Status::AwaitingApproval]);
    assert_ne!(bed.plan_hash(), before);
    let now = approval("a-2", &bed.plan_hash(), Decision::Approve);
    assert_eq!(effects(&bed.send(Event::Approval(now))).len(), 1);
    assert_eq!(faults(&bed), Vec::<String>::new());
}

/// C097: resuming after a person's pause must not run the steps before it again, however often the approval comes.
#[test]
fn c097_one_model_call_and_one_effect_whatever_resumes() {
    let mut bed = waiting(None);
    let yes = approval("a-1", &bed.plan_hash(), Decision::Approve);
    for _ in 0..3 {
        bed.send(Event::Approval(yes.clone()));
        bed.plan(BIG);
        bed.ask(request(INPUT));
    }
    assert_eq!(intents(&bed.all).len(), 2);
    assert_eq!(effects(&bed.all).len(), 1);
    assert_eq!(faults(&bed), Vec::<String>::new());
}

/// If this broke, a person who approves by hand would be told "done" although the approval was not taken, or an approval that was
/// given on another plan than the one on the screen would set that free.
#[test]
fn an_approval_by_hand_says_whether_it_counts() {
    let by_hand = |id: &str, seen: i64, approval: Approval| {
        let c = command(id, CommandKind::ApproveLate);
        Event::Command(Command { seen: Some(seen), approval: Some(approval), ..c })
    };
    let mut bed = waiting(None);
    let (hash, version) = (bed.plan_hash(), bed.record.as_ref().map_or(0, |r| r.version));
    let own = Approval { approver: "agent:buyer".into(), ..approval("a-1", &hash, Decision::Approve) };
    let code = |out: &[Output]| answers(out)[0].code.clone();
    assert_eq!(code(&bed.send(by_hand("c-1", version, own))), Some(crate::error::codes::DENIED.to_string()));
    let stale = by_hand("c-2", version - 1, approval("a-2", &hash, Decision::Approve));
    assert_eq!(code(&bed.send(stale)), Some(crate::error::codes::STALE_VERSION.to_string()));
    assert!(effects(&bed.all).is_empty());
    let out = bed.send(by_hand("c-3", version, approval("a-3", &hash, Decision::Approve)));
    assert_eq!((answers(&out)[0].answers.as_deref(), code(&out)), (Some("c-3"), None));
    let intent = effects(&out)[0];
    assert!(intent.other_approver && intent.approval.as_ref().is_some_and(|a| a.id.as_str() == "a-3"));
}

/// If this broke, a policy that asks for an approver would deny what somebody has approved.
#[test]
fn policy_sees_who_approved() {
    struct Asks(Mutex<Vec<Option<String>>>);
    impl PolicyCheck for Asks {
        fn allows(&self, _: &str, ask: &Ask<'_>) -> Result<(), String> {
            self.0.lock().expect("no panic").push(ask.approver.map(str::to_owned));
            Ok(())
        }
    }
    let asks = Arc::new(Asks(Mutex::default()));
    let mut bed = Bed::new(gated());
    bed.desk.policy = asks.clone();
    bed.ask(request(INPUT));
    bed.plan(BIG);
    let ok = approval("a-1", &bed.plan_hash(), Decision::Approve);
    bed.send(Event::Approval(ok));
    assert_eq!(*asks.0.lock().expect("no panic"), [Some("approver".to_owned())]);
}

/// If this broke, nobody could read when a plan was made and approved, by whom and why; or the results topic would not say it.
#[test]
fn a_decision_is_kept_with_its_time_its_reason_and_the_way_it_came() {
    let mut bed = waiting(None);
    let asked = bed.record.as_ref().expect("a record").planning.clone().expect("a model was asked");
    assert_eq!((asked.prompt.as_str(), asked.cost.is_some()), ("buyer.v7", true));
    let planned = bed.record.as_ref().expect("a record").planned_at.expect("it was planned");
    let yes = Approval { reason: Some("within the budget".into()), ..approval("a-1", &bed.plan_hash(), Decision::Approve) };
    let out = bed.send(Event::Approval(yes));
    assert_eq!(results(&out)[0].detail.as_deref(), Some("approved by approver: within the budget"));
    let r = bed.record.as_ref().expect("a record");
    assert!(r.approved_at.is_some_and(|at| at >= planned), "{r:#?}");
    let kept: Vec<_> = r.decisions.iter().map(|d| (d.deed, d.via, d.reason.as_str())).collect();
    assert_eq!(kept, [(Deed::Approve, Some(Via::ApprovalsTopic), "within the budget")]);

    let mut bed = waiting(None);
    let no = Approval { reason: Some("too dear".into()), ..approval("a-2", &bed.plan_hash(), Decision::Deny) };
    let by_hand = Command { approval: Some(no), via: Some(Via::CommandLine), ..command("c-1", CommandKind::ApproveLate) };
    let out = bed.send(Event::Command(by_hand));
    assert_eq!(results(&out)[0].detail.as_deref(), Some("denied by approver: too dear"));
    assert_eq!(bed.record.as_ref().expect("a record").decisions.last().and_then(|d| d.via), Some(Via::CommandLine));
}
