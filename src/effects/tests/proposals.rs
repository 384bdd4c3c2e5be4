//! Proposals over a scripted network: a model's answer is data, and never ends its operation without a body.

use super::bench::{Bench, command, intent, rules, sec};
use crate::contract::Confirm;
use crate::effects::Rules;
use crate::http::Wire;
use crate::intents::{Command, CommandKind, Intent, IntentKind, ResultKind, ReturnKind};

/// A model that was asked.
fn asked() -> Bench {
    let mut b = Bench::new(Rules { confirm: Confirm::Answer, lag: None, duplicates: true, ..rules() });
    b.outbox(&Intent { kind: IntentKind::Proposal, ..intent("op-1.plan") });
    b.commit();
    b
}

/// If this broke, a plan would be lost, or its cost not counted.
#[test]
fn a_proposal_goes_back_as_data() {
    let mut b = asked();
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
    let mut b = asked();
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

/// If this broke, readers of results would meet answers to commands that nobody gave: the cancel of a model call whose operation
/// has ended.
#[test]
fn a_members_own_cancel_is_answered_to_nobody() {
    let mut b = asked();
    b.order(Command { by: String::new(), ..command(CommandKind::Cancel, "op-1.plan", "op-1/end") });
    b.commit();
    assert!(b.ledger("op-1.plan").unwrap().cancelled);
    assert!(b.results().iter().all(|r| r.kind != ResultKind::Answer));
    b.order(command(CommandKind::Cancel, "op-1.plan", "c-1"));
    b.commit();
    assert_eq!(b.results().iter().filter(|r| r.kind == ResultKind::Answer).count(), 1, "a person's is");
}
