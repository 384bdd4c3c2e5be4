//! What is promised of a call beside its contract's own promise, each with what it rests on.

use crate::contract::{Call, Promise};
use crate::dsl::Application;
use crate::ids::{CallName, ContractName};
use crate::outbox::{Does, EffectRules, Pipeline};
use crate::time::show_duration;

use super::Promised;

/// What keeps an effect off a resource that has changed.
pub(super) fn on_version(call: &Call) -> Option<Promised> {
    let precondition = call.precondition?;
    let because = match (precondition.sent, precondition.read) {
        (true, false) => "the request carries the version, and the target compares it",
        (true, true) => "read before each send; the request carries the version, and the target compares it",
        (false, _) => "read before each send; what changes it in between is not seen",
    };
    Some(Promised { promise: "only on the version that the requester saw".into(), because: because.into() })
}

/// What becomes of an effect that is cancelled when it has happened already.
pub(super) fn on_cancel(contract: &ContractName, call: &Call) -> Option<Promised> {
    let undo = call.compensate.as_ref()?;
    let because = format!(
        "by {contract}#{}, ordered once, sent when no copy of the effect can arrive any more; not confirmed in {}: a person",
        undo.call,
        show_duration(undo.deadline)
    );
    Some(Promised { promise: "undone when it is cancelled too late".into(), because })
}

/// How an accepted call is known to be done, where its target tells by itself.
pub(super) fn on_webhook(call: &Call) -> Option<Promised> {
    let webhook = call.webhook.as_ref()?;
    let because = format!(
        "posted by the target to {} within {}, signed; else read back, or a person",
        webhook.path,
        show_duration(webhook.within)
    );
    Some(Promised { promise: "accepted is not done: the target tells".into(), because })
}

/// What keeps back a request that means the same as an earlier one.
pub(super) fn on_likeness(application: &Application, contract: &ContractName, call: &CallName) -> Option<Promised> {
    let steps = application.pipelines.iter().map(|p| &p.effect);
    let rules = steps.filter(|e| makes(e, contract, call)).find_map(|e| e.duplicates.as_ref())?;
    let because = format!(
        "same meaning as one under way, or ended less than {} ago: a person says whether it is meant",
        show_duration(rules.within)
    );
    Some(Promised { promise: "look-alikes wait for a person".into(), because })
}

/// What policy has to say to it.
pub(super) fn on_policy(application: &Application, contract: &ContractName, call: &CallName) -> Option<Promised> {
    let policies = guards(application, contract, call).filter_map(|p| p.effect.policy.as_deref());
    let because = format!("{} is asked when its intent is written, and again right before every send", joined(policies)?);
    Some(Promised { promise: "only what policy permits".into(), because })
}

/// Who has to agree to it.
pub(super) fn on_approval(application: &Application, contract: &ContractName, call: &CallName) -> Option<Promised> {
    let gates: Vec<_> = guards(application, contract, call).filter_map(|p| p.gate.as_ref()).collect();
    let named = joined(gates.iter().map(|g| g.step.as_str()))?;
    let by = if gates.iter().all(|g| g.other_than_requester) { "by another than the requester, " } else { "" };
    let ends = show_duration(gates.iter().map(|g| g.expires).max()?);
    let because = format!("{by}bound to the plan's hash, used once, ends after {ends}; looked at again right before every send");
    Some(Promised { promise: format!("only as approved, where step {named} asks"), because })
}

/// The pipelines that may make this call as their effect.
fn guards<'a>(application: &'a Application, contract: &'a ContractName, call: &'a CallName) -> impl Iterator<Item = &'a Pipeline> {
    application.pipelines.iter().filter(move |p| makes(&p.effect, contract, call))
}

/// Each once; `None` where there is none.
fn joined<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut all: Vec<&str> = names.collect();
    all.sort_unstable();
    all.dedup();
    (!all.is_empty()).then(|| all.join(" and "))
}

fn makes(effect: &EffectRules, contract: &ContractName, call: &CallName) -> bool {
    effect.calls().iter().any(|(_, c)| c.contract == *contract && c.call == *call)
}

/// What a plan of several calls keeps to.
pub(super) fn on_plan(application: &Application, contract: &ContractName, call: &CallName) -> Option<Promised> {
    let mut steps = application.pipelines.iter().map(|p| &p.effect).filter(|e| matches!(e.does, Does::Proposed(_)));
    steps.find(|e| makes(e, contract, call))?;
    let because = "its intent is written when all that it needs is confirmed; else it is left out, and the plan's result says so";
    Some(Promised { promise: "in a plan, only after what it needs".into(), because: because.into() })
}

/// What becomes of it in a plan that can't be whole, where its step chose that this is undone.
pub(super) fn on_partial(application: &Application, contract: &ContractName, call: &CallName, spec: &Call) -> Option<Promised> {
    let undo = spec.compensate.as_ref()?;
    application.pipelines.iter().map(|p| &p.effect).find(|e| e.compensates() && makes(e, contract, call))?;
    let because = format!(
        "by {contract}#{}, once, after all that needed it is undone; not confirmed in {}: a person; the plan's result tells of each call",
        undo.call,
        show_duration(undo.deadline)
    );
    Some(Promised { promise: "undone where its plan can't be whole".into(), because })
}

pub(super) fn because(call: &Call) -> String {
    match (call.promise(), &call.in_flight, &call.readback) {
        (Promise::AtMostOneReadback, Some(l), Some(v)) => format!(
            "complete readback; re-send only when absent {} (L) + {} (V) after the last possible send",
            show_duration(l.within),
            show_duration(v.lag)
        ),
        _ if call.proposal => "a proposal: asked again freely, its cost counted".to_owned(),
        (promise, _, _) => promise.because(),
    }
}
