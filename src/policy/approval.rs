//! Whether an approval may be used: it binds to one plan, is used once, and ends.

use crate::ids::{OperationId, PlanHash, Tenant};
use crate::intents::{Approval, Decision, same_person};
use crate::time::WallTime;

/// What an approval is to be used for.
#[derive(Clone, Copy, Debug)]
pub struct Uses<'a> {
    /// Whose operation.
    pub tenant: &'a Tenant,
    /// Which.
    pub operation: &'a OperationId,
    /// The plan as it will be sent.
    pub plan_hash: &'a PlanHash,
    /// Who asked.
    pub requester: &'a str,
    /// Whether the approver must be another.
    pub other_than_requester: bool,
    /// Whether this approval's ID was revoked; it stays so, redelivered or not.
    pub revoked: bool,
    /// Whether this approval was spent by an earlier hand-over.
    pub spent: bool,
    /// When.
    pub now: WallTime,
}

/// Why an approval can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ApprovalFault {
    /// It is a denial or a revocation.
    NoApproval,
    /// It is another operation's.
    OtherOperation,
    /// It was given for another plan: another proposal, call, request or tool.
    OtherPlan,
    /// It was taken back.
    Revoked,
    /// It was used.
    Spent,
    /// It is over.
    Expired,
    /// The requester approved the own request.
    OwnRequest,
}

impl ApprovalFault {
    /// Why, for people.
    pub fn words(self) -> &'static str {
        match self {
            ApprovalFault::NoApproval => "it is no approval",
            ApprovalFault::OtherOperation => "the approval is another operation's",
            ApprovalFault::OtherPlan => "the approval is for another plan",
            ApprovalFault::Revoked => "this approval was taken back",
            ApprovalFault::Spent => "this approval is in use already",
            ApprovalFault::Expired => "the approval has expired",
            ApprovalFault::OwnRequest => "the approver must be named and another than the requester",
        }
    }
}

/// Why `approval` can't be used so; `None` where it can.
pub fn approval_fault(approval: &Approval, uses: &Uses<'_>) -> Option<ApprovalFault> {
    let own = uses.other_than_requester && same_person(&approval.approver, uses.requester);
    let faults = [
        (approval.decision != Decision::Approve, ApprovalFault::NoApproval),
        (approval.tenant != *uses.tenant || approval.operation_id != *uses.operation, ApprovalFault::OtherOperation),
        (approval.plan_hash != *uses.plan_hash || approval.plan_hash.is_empty(), ApprovalFault::OtherPlan),
        (uses.revoked, ApprovalFault::Revoked),
        (uses.spent, ApprovalFault::Spent),
        (approval.expires_at <= uses.now, ApprovalFault::Expired),
        (approval.approver.trim().is_empty() || own, ApprovalFault::OwnRequest),
    ];
    faults.into_iter().find(|(wrong, _)| *wrong).map(|(_, fault)| fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval() -> Approval {
        Approval {
            approval_id: "a-1".into(),
            tenant: "acme".into(),
            operation_id: "op-1".into(),
            plan_hash: "p-1".into(),
            approver: "approver@acme".into(),
            decision: Decision::Approve,
            expires_at: WallTime(1_000),
            policy_version: "v".into(),
            reason: None,
        }
    }

    /// C092, C094, C095, C20: an approval given for one plan, or used, taken back or over, must not send anything else.
    #[test]
    fn an_approval_is_for_one_plan_once_and_not_for_ever() {
        let (tenant, operation, plan, other) = ("acme".into(), "op-1".into(), "p-1".into(), "op-2".into());
        let (changed, empty) = ("p-2".into(), "".into());
        let uses = Uses {
            tenant: &tenant,
            operation: &operation,
            plan_hash: &plan,
            requester: "agent:buyer",
            other_than_requester: true,
            revoked: false,
            spent: false,
            now: WallTime(999),
        };
        let fault = |a: &Approval, u: Uses<'_>| approval_fault(a, &u);
        let good = approval();
        assert_eq!(fault(&good, uses), None);
        assert_eq!(fault(&good, Uses { operation: &other, ..uses }), Some(ApprovalFault::OtherOperation));
        assert_eq!(fault(&good, Uses { plan_hash: &changed, ..uses }), Some(ApprovalFault::OtherPlan));
        assert_eq!(fault(&good, Uses { revoked: true, ..uses }), Some(ApprovalFault::Revoked));
        assert_eq!(fault(&good, Uses { spent: true, ..uses }), Some(ApprovalFault::Spent));
        assert_eq!(fault(&good, Uses { now: WallTime(1_000), ..uses }), Some(ApprovalFault::Expired));
        assert_eq!(fault(&good, Uses { requester: "approver@acme", ..uses }), Some(ApprovalFault::OwnRequest));
        assert_eq!(
            fault(&good, Uses { requester: " Approver@Acme", ..uses }),
            Some(ApprovalFault::OwnRequest),
            "spelling makes no other person"
        );
        assert_eq!(fault(&good, Uses { requester: "approver@acme", other_than_requester: false, ..uses }), None);
        let denial = Approval { decision: Decision::Deny, ..approval() };
        assert_eq!(fault(&denial, uses), Some(ApprovalFault::NoApproval));
        let blank = Approval { plan_hash: "".into(), ..approval() };
        assert_eq!(fault(&blank, Uses { plan_hash: &empty, ..uses }), Some(ApprovalFault::OtherPlan));
    }
}
