//! The check right before every journalled attempt. A "no" removes the permission to send and decides nothing else: what an
//! earlier attempt may have done stays to be found out.

use serde_json::Value;

use super::{Ask, PolicySet, Verdict};
use crate::error::{Code, codes};
use crate::intents::Intent;
use crate::time::WallTime;

/// What a send depends on besides the intent itself.
#[derive(Clone, Copy, Debug)]
pub struct SendFacts<'a> {
    /// The intent.
    pub intent: &'a Intent,
    /// The policies of its step, where there are any.
    pub policy: Option<&'a PolicySet>,
    /// Whether the operation was cancelled.
    pub cancelled: bool,
    /// Whether its approval was revoked.
    pub approval_revoked: bool,
    /// The resource's version as the target shows it now, where that was asked.
    pub target_version: Option<&'a str>,
}

/// Whether a call may be sent now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum May {
    /// It may.
    Yes,
    /// It may not.
    No(Refusal),
}

/// Why a call may not be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It was cancelled.
    Cancelled,
    /// Its deadline is over.
    Deadline,
    /// Its approval was taken back.
    ApprovalRevoked,
    /// Its approval is over.
    ApprovalExpired,
    /// Its approval was given for another plan.
    ApprovalForOtherPlan,
    /// The resource has changed since the request.
    TargetChanged,
    /// Policies say no; which.
    Policy(Vec<String>),
}

impl Refusal {
    /// The code that results show.
    pub fn code(&self) -> Code {
        match self {
            Refusal::Deadline => codes::EXPIRED,
            _ => codes::DENIED,
        }
    }

    /// A bounded word for results and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Refusal::Cancelled => "cancelled",
            Refusal::Deadline => "deadline",
            Refusal::ApprovalRevoked => "approval_revoked",
            Refusal::ApprovalExpired => "approval_expired",
            Refusal::ApprovalForOtherPlan => "approval_for_other_plan",
            Refusal::TargetChanged => "target_changed",
            Refusal::Policy(_) => "policy",
        }
    }
}

/// May this be sent now? Cancel and deadline come first: they end an operation, the others deny it.
pub fn may_send(now: WallTime, facts: &SendFacts<'_>) -> May {
    match refusal(now, facts) {
        None => May::Yes,
        Some(refusal) => May::No(refusal),
    }
}

fn refusal(now: WallTime, facts: &SendFacts<'_>) -> Option<Refusal> {
    let intent = facts.intent;
    if facts.cancelled {
        return Some(Refusal::Cancelled);
    }
    if now > intent.deadline {
        return Some(Refusal::Deadline);
    }
    if let Some(approval) = &intent.approval {
        if facts.approval_revoked {
            return Some(Refusal::ApprovalRevoked);
        }
        if intent.plan_hash.as_ref() != Some(&approval.plan_hash) {
            return Some(Refusal::ApprovalForOtherPlan);
        }
        if now >= approval.expires_at {
            return Some(Refusal::ApprovalExpired);
        }
    }
    if let (Some(seen), Some(current)) = (&intent.resource_version, facts.target_version)
        && seen != current
    {
        return Some(Refusal::TargetChanged);
    }
    let policy = facts.policy?;
    let Ok(plan) = serde_json::from_str::<Value>(&intent.parameters) else {
        return Some(Refusal::Policy(vec!["the intent's parameters are not JSON".into()]));
    };
    match policy.allows(&Ask::of(intent, &plan, now)) {
        Verdict::Allow => None,
        Verdict::Deny(reasons) => Some(Refusal::Policy(reasons)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intents::{ApprovalUse, Cost, IntentKind, RenderedRequest};

    fn intent() -> Intent {
        Intent {
            tenant: "acme".into(),
            operation_id: "op-1".into(),
            step: "place-order".into(),
            identity_hash: "h".into(),
            version: 1,
            kind: IntentKind::Effect,
            contract: "orders".into(),
            contract_version: 3,
            call: "create".into(),
            ordering_key: "op-1".into(),
            wire_key: "k".into(),
            request: RenderedRequest::default(),
            parameters: r#"{"quantity":3}"#.into(),
            deadline: WallTime(1_000),
            created_at: WallTime(0),
            requester: "agent:buyer".into(),
            action: "order.create".into(),
            resource: "order/A-1".into(),
            resource_version: Some("4".into()),
            required_permissions: Vec::new(),
            plan_hash: Some("p-1".into()),
            approval: Some(ApprovalUse {
                id: "a-1".into(),
                approver: "approver@acme".into(),
                plan_hash: "p-1".into(),
                expires_at: WallTime(500),
                policy_version: "v".into(),
            }),
            cost: Cost::default(),
            traceparent: None,
        }
    }

    /// C20, C21: whatever changed between the hand-over and the send must be seen right before the send.
    #[test]
    fn every_permission_is_asked_for_again() {
        let small =
            PolicySet::parse("p", "permit(principal, action, resource) when { context.plan.quantity < 3 };").expect("parses");
        let good = intent();
        let facts = SendFacts { intent: &good, policy: None, cancelled: false, approval_revoked: false, target_version: None };
        let no = |now: i64, facts: SendFacts<'_>| match may_send(WallTime(now), &facts) {
            May::Yes => "yes",
            May::No(refusal) => refusal.word(),
        };
        assert_eq!(no(499, facts), "yes");
        assert_eq!(no(499, SendFacts { cancelled: true, ..facts }), "cancelled");
        assert_eq!(no(1_001, facts), "deadline");
        assert_eq!(no(500, facts), "approval_expired");
        assert_eq!(no(1, SendFacts { approval_revoked: true, ..facts }), "approval_revoked");
        let rendered_again = Intent { plan_hash: Some("p-2".into()), ..intent() };
        assert_eq!(no(1, SendFacts { intent: &rendered_again, ..facts }), "approval_for_other_plan");
        assert_eq!(no(1, SendFacts { target_version: Some("4"), ..facts }), "yes");
        assert_eq!(no(1, SendFacts { target_version: Some("5"), ..facts }), "target_changed");
        assert_eq!(no(1, SendFacts { policy: Some(&small), ..facts }), "policy");
        let unapproved = Intent { approval: None, ..intent() };
        assert_eq!(no(600, SendFacts { intent: &unapproved, ..facts }), "yes");
    }
}
