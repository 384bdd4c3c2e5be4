//! Proposals over a scripted network: a model's answer is data, and never ends its operation without a body.

use super::bench::{Bench, intent, rules, sec};
use crate::http::Wire;
use crate::intents::{IntentKind, ReturnKind};

/// If this broke, a plan would be lost, or its cost not counted.
#[test]
fn a_proposal_goes_back_as_data() {
    let mut rules = rules();
    (rules.confirm, rules.lag, rules.duplicates) = (crate::contract::Confirm::Answer, None, true);
    let mut b = Bench::new(rules);
    let mut ask = intent("op-1.plan");
    ask.kind = IntentKind::Proposal;
    b.outbox(&ask);
    b.commit();
    b.network.end(0, Wire::MaybeSent("no answer in 2 s".into()));
    b.step();
    b.after(sec(5));
    assert_eq!(b.network.posts(), 2, "may be asked twice");
    b.network.answer(1, 200, "{\"sku\":\"A\"}");
    b.step();
    let said = b.returns();
    assert_eq!((said[0].kind, said[0].body.as_deref()), (ReturnKind::PlanAnswer, Some("{\"sku\":\"A\"}")));
    assert_eq!((said[1].kind, said[1].cost.tool_calls), (ReturnKind::Closed, 2));
}

/// If this broke, a plan whose answer came home to a former owner would end confirmed without a proposal, and so as plan_failed:
/// hearsay holds no proposal. The new owner asks again.
#[test]
fn what_others_heard_of_a_proposal_does_not_end_it() {
    let mut rules = rules();
    (rules.confirm, rules.lag, rules.duplicates) = (crate::contract::Confirm::Answer, None, true);
    let mut b = Bench::new(rules);
    let mut ask = intent("op-1.plan");
    ask.kind = IntentKind::Proposal;
    b.outbox(&ask);
    b.commit();
    assert!(b.network.leave(0), "the model was asked");
    b.replace(false);
    b.step();
    b.network.answer(0, 200, "{\"sku\":\"A\"}");
    b.step();
    b.loop_control();
    b.commit();
    assert!(b.returns().iter().all(|r| r.kind != ReturnKind::Closed), "closed without a proposal");
    b.after(sec(5));
    assert_eq!(b.network.posts(), 2, "asked again");
}
