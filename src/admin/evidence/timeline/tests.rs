//! Times, places and words of steps, for records of today and for those of the version before.

use super::*;
use crate::admin::evidence::{Denier, Stands, decisions, denier};
use crate::effects::{Parking, Phase};
use crate::ids::{OperationKey, Partition, PlanHash};
use crate::intents::{Input, PolicyWord, WorkRequest};
use crate::outbox::{Derived, Planning};

const T: fn(i64) -> WallTime = WallTime;

fn record() -> OperationRecord {
    let request = WorkRequest {
        operation_id: "op-1".into(),
        message_id: "m-1".into(),
        attempt_id: None,
        tenant: "acme".into(),
        requester: "agent:buyer".into(),
        resource: "order/A-1".into(),
        resource_version: None,
        action: "order.create".into(),
        input: Input::default(),
        deadline: T(90_000),
        required_permissions: vec![],
        approval_ref: None,
        cost_estimate: Cost::default(),
        written_for: Default::default(),
        traceparent: None,
    };
    let mut r = OperationRecord::admitted(request, "place-order".into(), None, "t/0/1".into(), T(1_000));
    r.plan_hash = Some(PlanHash::new("b71c000000000000009"));
    r.spent = Some(ApprovalUse {
        id: "a-1".into(),
        approver: "mira@acme".into(),
        plan_hash: PlanHash::new("b71c000000000000009"),
        expires_at: T(80_000),
        policy_version: String::new(),
    });
    r.changed_at = T(50_000);
    r
}

fn ledger() -> LedgerRecord {
    let mut l = LedgerRecord::held(record().key(), T(90_000));
    (l.phase, l.wire_key) = (Phase::Unknown, "5be2aaaa-0000".into());
    l.attempts.push(Attempt {
        n: 1,
        epoch: "e".into(),
        token: "t".into(),
        journalled_at: T(5_000),
        send_not_after: T(9_000),
        tail_ms: 0,
        in_flight_ms: None,
        lag_ms: 0,
        state: AttemptState::Maybe,
        class: None,
        status: None,
        digest: None,
        ended_at: Some(T(6_000)),
        warrants: vec![],
    });
    l
}

fn decided(deed: Deed, at: i64) -> Decided {
    Decided {
        at: T(at),
        deed,
        by: "mira@acme".into(),
        second: None,
        via: Some(Via::CommandLine),
        reason: "checked with the buyer".into(),
        evidence: None,
        approval: (deed == Deed::Approve).then(|| "a-1".into()),
    }
}

fn both(record: OperationRecord, ledger: LedgerRecord) -> Vec<Step> {
    steps(&Seen { record: Some(record), ledger: Some(ledger) }, &Around::default())
}

fn place(steps: &[Step], label: &str) -> usize {
    steps.iter().position(|s| s.label == label).unwrap_or_else(|| panic!("no {label} in {steps:#?}"))
}

/// If this broke, an approval would stand behind the send that it allowed: with the time of the last change, where its own is not
/// recorded; or because the clocks of two hosts differ by a moment.
#[test]
fn an_approval_stands_before_the_send_that_it_allowed_with_its_own_time_or_none() {
    let old = both(record(), ledger());
    assert!(place(&old, "approved") < place(&old, "attempt 1") && place(&old, "planned") < place(&old, "approved"), "{old:#?}");
    assert_eq!([old[place(&old, "planned")].at, old[place(&old, "approved")].at], [None, None], "nobody has recorded it");
    let mut r = record();
    (r.planned_at, r.approved_at) = (Some(T(2_000)), Some(T(3_000)));
    r.decisions = vec![decided(Deed::Approve, 2_900)];
    let new = both(r.clone(), ledger());
    assert_eq!((new[place(&new, "planned")].at, new[place(&new, "approved")].at), (Some(T(2_000)), Some(T(3_000))));
    let said = &new[place(&new, "approved")].text;
    assert!(
        said.starts_with("by mira@acme (given on the command line, not verified): checked with the buyer · binds b71c…09"),
        "{said}"
    );
    assert!(new.iter().all(|s| s.kind != Kind::Order), "an approval that was spent is told once: {new:#?}");
    r.approved_at = Some(T(5_040));
    let ahead = both(r, ledger());
    assert!(place(&ahead, "approved") < place(&ahead, "attempt 1"), "{ahead:#?}");
}

/// If this broke, nobody could read from an operation that it was parked and why, what a person then decided, and on whose word.
#[test]
fn being_parked_and_what_a_person_decided_stand_in_the_timeline() {
    let mut l = ledger();
    l.parkings = vec![Parking { at: T(20_000), code: 235, detail: "nothing can prove what happened".into() }];
    l.decisions = vec![decided(Deed::Force, 25_000), decided(Deed::ResolveApplied, 30_000)];
    l.decisions[1].second = Some("otto@acme".into());
    (l.phase, l.end, l.closed_at) = (Phase::Ended, Some(Status::ResolvedApplied), Some(T(30_000)));
    let all = both(record(), l);
    let text = |label: &str| all[place(&all, label)].text.as_str();
    assert_eq!(text("parked"), "nothing can prove what happened · RB0235");
    assert_eq!(text("force"), "by mira@acme (given on the command line, not verified): checked with the buyer");
    let end = "applied · by mira@acme and otto@acme (given on the command line, not verified): checked with the buyer";
    assert_eq!(text("resolved_applied"), end);
    assert!(all.iter().all(|s| s.label != "resolve"), "the order that ended it is told with the end: {all:#?}");
    let old = LedgerRecord { phase: Phase::Parked, code: Some(235), detail: Some("nobody knows".into()), ..ledger() };
    let old = both(record(), old);
    assert_eq!((old.last().map(|s| (s.at, s.text.as_str()))), Some((None, "nobody knows · RB0235")));
}

/// If this broke, policy would be blamed for a person's no, or a person for policy's.
#[test]
fn whose_no_it_was_is_told_by_what_is_recorded() {
    let denied = |decisions: Vec<Decided>, allowed: Option<bool>| {
        let mut r = OperationRecord { spent: None, status: Status::Denied, code: Some("RB0703".into()), ..record() };
        r.decisions = decisions;
        r.detail = Some("policy: no-large-orders".into());
        r.policy = allowed.map(|allowed| PolicyWord { at: T(4_000), version: Some("1f".into()), allowed });
        Seen { record: Some(r), ledger: None }
    };
    let person = denied(vec![decided(Deed::Deny, 50_000)], None);
    assert!(matches!(denier(&person), Some(Denier::Person(d)) if d.by == "mira@acme"));
    let end = steps(&person, &Around::default()).pop().expect("its end");
    assert_eq!((end.label.as_str(), end.at, end.kind), ("denied", Some(T(50_000)), Kind::End));
    assert_eq!(end.text, "by mira@acme (given on the command line, not verified): checked with the buyer · RB0703");
    let policy = denied(vec![decided(Deed::Approve, 3_000)], Some(false));
    assert!(matches!(denier(&policy), Some(Denier::Policy(_))));
    assert_eq!(steps(&policy, &Around::default()).pop().map(|s| s.text), Some("policy: no-large-orders · RB0703".to_owned()));
    assert_eq!(denier(&denied(vec![], None)), Some(Denier::Other), "an old record does not tell");
    let mut l = ledger();
    (l.phase, l.end, l.closed_at, l.revoked) = (Phase::Ended, Some(Status::Denied), Some(T(60_000)), true);
    l.decisions = vec![decided(Deed::Revoke, 55_000)];
    l.policy = Some(PolicyWord { at: T(4_900), version: None, allowed: true });
    assert!(matches!(denier(&Seen { record: None, ledger: Some(l) }), Some(Denier::Person(_))));
    assert_eq!(
        decisions(&person).iter().map(|d| (d.verified, d.reason.as_str())).collect::<Vec<_>>(),
        [(false, "checked with the buyer")]
    );
}

/// If this broke, an operation whose model call is parked would say nothing but that it was accepted.
#[test]
fn a_model_call_is_told_with_its_status_and_code() {
    let mut r = OperationRecord { plan_hash: None, spent: None, ..record() };
    r.planning = Some(Planning { asked_at: T(1_200), model: Some("m-2".into()), prompt: "buyer.v7.md".into(), cost: None });
    r.derived.push(Derived {
        role: Role::Plan,
        operation_id: "op-1.plan".into(),
        step: "plan".into(),
        partition: Partition(0),
        end: None,
        closed_at: None,
        gone: false,
    });
    let mut seen = Seen { record: Some(r), ledger: None };
    let parked = |key: &OperationKey| {
        let mut l = LedgerRecord::held(key.clone(), T(9));
        (l.phase, l.code, l.detail) = (Phase::Parked, Some(236), Some("all attempts are used".into()));
        Some(Stands::of(&Seen { record: None, ledger: Some(l) }))
    };
    let key = seen.key().expect("a record has one");
    let around = Around::of(&key, &seen, parked);
    let call = around.model.clone().expect("it has one");
    assert_eq!((call.operation.as_str(), call.step.as_str(), call.status.as_str()), ("op-1.plan", "plan", "parked"));
    let all = steps(&seen, &around);
    assert_eq!(
        all[place(&all, "asked")].text,
        "model m-2 · prompt buyer.v7.md · op-1.plan parked · all attempts are used · RB0236"
    );
    // Its ledger record may be forgotten: how it ended is known all the same, and what it did cost stands with the plan.
    let r = seen.record.as_mut().expect("one");
    (r.derived[0].end, r.plan_hash) = (Some(Status::Confirmed), Some(PlanHash::new("b71c000000000000009")));
    r.planning.as_mut().expect("one").cost = Some(Cost { tokens: 812, bytes: 0, tool_calls: 1 });
    let around = Around::of(&key, &seen, |_| None);
    assert_eq!(around.model.as_ref().map(|m| m.status.as_str()), Some("confirmed"));
    let all = steps(&seen, &around);
    assert_eq!(all[place(&all, "planned")].text, "model m-2 · prompt buyer.v7.md · plan b71c…09 · cost 812 tokens, 1 call");
}

/// If this broke, a payload or a whole key would stand where evidence is read; or nobody could compare what was sent.
#[test]
fn of_a_request_its_shape_is_shown_and_never_its_content() {
    let mut l = ledger();
    l.sends = Some(Sends {
        method: "POST".into(),
        path: "/orders".into(),
        body_bytes: 312,
        body_sha256: "9d40000000000000000000000077".into(),
    });
    let all = both(record(), l);
    let at = place(&all, "attempt 1");
    assert_eq!((all[at + 1].kind, all[at + 1].text.as_str()), (Kind::Request, "POST /orders · 312 bytes 9d40…77 · key 5be2…"));
}
