//! What the page, the API and the overview tell of who decided, and of the calls of models.

use serde_json::json;

use crate::effects::LedgerRecord;
use crate::ids::Partition;
use crate::intents::{Decided, Deed, IntentKind, PolicyWord, Status, Via};
use crate::outbox::{Derived, OperationRecord, Role, Stage};

use super::served::{Served, awaiting, key, parked};

fn decided(deed: Deed, via: Option<Via>, r: &OperationRecord) -> Decided {
    Decided {
        at: r.changed_at,
        deed,
        by: "mira@acme".into(),
        second: None,
        via,
        reason: "too dear".into(),
        evidence: None,
        approval: None,
    }
}

fn denied(id: &str) -> OperationRecord {
    let mut r = awaiting(id);
    (r.stage, r.status, r.code) = (Stage::Ended, Status::Denied, Some("RB0240".into()));
    r
}

/// If this broke, the page would say that policy refused where a person did, or show a name that somebody typed like a proven one.
#[test]
fn whose_no_it_was_and_how_their_name_is_known_is_shown() {
    let s = Served::new();
    let mut by_hand = denied("op-1");
    by_hand.decisions = vec![decided(Deed::Deny, Some(Via::CommandLine), &by_hand)];
    let mut signed_in = denied("op-2");
    signed_in.decisions = vec![decided(Deed::Deny, Some(Via::Console), &signed_in)];
    let mut policy = denied("op-3");
    policy.policy = Some(PolicyWord { at: policy.changed_at, version: Some("1f2e3d".into()), allowed: false });
    [&by_hand, &signed_in, &policy].into_iter().for_each(|r| s.record(r));
    let cookie = s.sign_in("vera");
    let page = |id: &str| s.page(&cookie, &format!("/operations/{id}?tenant=acme&step=place-order")).body;
    for (id, beside) in [("op-1", "mira@acme (given on the command line, not verified)"), ("op-2", "mira@acme (signed in)")] {
        let page = page(id);
        assert!(page.contains("<dt>denied by</dt>") && page.contains(beside) && page.contains("too dear"), "{page}");
        assert!(!page.contains("said no"), "policy was not asked: {page}");
    }
    let page = page("op-3");
    assert!(page.contains("said no") && page.contains("1f2e3d") && page.contains("policy; its words stand above"), "{page}");
    let one = s.api("vera", "/operations/op-1").json();
    let last = one["timeline"].as_array().and_then(|all| all.last()).expect("a step");
    assert_eq!((&last["kind"], &last["label"], &last["at"]), (&json!("end"), &json!("denied"), &json!(by_hand.changed_at.0)));
    assert_eq!((&one["decisions"][0]["verified"], &one["decisions"][0]["reason"]), (&json!(false), &json!("too dear")));
    assert_eq!(s.api("vera", "/operations/op-2").json()["decisions"][0]["verified"], true);
}

fn model_call(of: &str, confirmed: bool) -> LedgerRecord {
    let mut l = parked(&format!("{of}.plan"));
    (l.step, l.kind, l.contract, l.call) = ("plan".into(), IntentKind::Proposal, "model".into(), "chat".into());
    if confirmed {
        (l.phase, l.end, l.closed_at, l.code) = (crate::effects::Phase::Ended, Some(Status::Confirmed), l.unknown_since, None);
    }
    l
}

/// If this broke, an operation whose model call waits for a person would show nothing of it; or answers of a model would be counted as
/// work that was done.
#[test]
fn a_parked_model_call_shows_at_its_operation_and_counts_apart() {
    let s = Served::new();
    let mut r = awaiting("op-1");
    (r.stage, r.status, r.plan_hash, r.proposal) = (Stage::Planning, Status::Accepted, None, None);
    r.derived.push(Derived {
        role: Role::Plan,
        operation_id: key("op-1").operation.plan(),
        step: "plan".into(),
        partition: Partition(0),
        end: None,
        closed_at: None,
        gone: false,
    });
    s.record(&r);
    s.ledger(&model_call("op-1", false));
    s.ledger(&model_call("op-2", true));
    let cookie = s.sign_in("vera");
    let page = s.page(&cookie, "/operations/op-1?tenant=acme&step=place-order").body;
    for part in ["href=\"/operations/op-1.plan?tenant=acme&amp;step=plan\"", "nothing can prove what happened", "RB0235"] {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
    let call = &s.api("vera", "/operations/op-1").json()["model_call"];
    assert_eq!((&call["status"], &call["code"], &call["operation"]), (&json!("parked"), &json!("RB0235"), &json!("op-1.plan")));
    let overview = s.api("vera", "/overview").json();
    assert_eq!(
        (&overview["by_status"], &overview["proposals"]),
        (&json!({ "accepted": 1 }), &json!({ "confirmed": 1, "parked": 1 }))
    );
    let home = s.page(&cookie, "/").body;
    assert!(home.contains("1 parked: a person must decide"), "a parked model call needs somebody: {home}");
    assert!(home.contains("counted apart: 1 confirmed") && !home.contains("How they ended"), "{home}");
}
