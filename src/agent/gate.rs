//! Approvals: held when early, bound to the plan's hash, used once, gone when they expire or are taken back. Pure.

use crate::error::codes;
use crate::ids::CommandId;
use crate::intents::{
    AckLevel, Approval, ApprovalUse, Command, CommandKind, Decided, Decision, Deed, ResultKind, ResultRecord, Via, same_person,
};
use crate::outbox::{GateRules, HeldApproval, Output, Role, Rule, Stage, Turn, Why, cut};
use crate::time::WallTime;

/// How many approvals wait at one operation.
const HELD: usize = 16;

/// What the approvals that a record holds say about its plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody decided yet.
    Open,
    /// Someone may say no, and did: who and why, in words.
    Denied(String),
    /// This one may be spent.
    Granted(ApprovalUse),
}

/// Looks through what is held. A denial wins over an approval.
pub fn standing(turn: &Turn<'_>, gate: Option<&GateRules>) -> Standing {
    let r = &turn.record;
    let binds = |a: &&HeldApproval| !turn.settings.on(Rule::ApprovalBinds) || Some(&a.plan_hash) == r.plan_hash.as_ref();
    if let Some(no) = r.approvals.iter().find(|a| a.deny && (a.plan_hash.is_empty() || binds(a))) {
        let said = r.decisions.iter().rfind(|d| d.deed == Deed::Deny && d.approval.as_ref() == Some(&no.id));
        return Standing::Denied(said.map_or_else(|| format!("denied by {}", cut(&no.approver)), Decided::words));
    }
    let usable = |a: &&HeldApproval| {
        !a.deny && binds(a) && !r.is_revoked(&a.id) && turn.now < a.expires_at && may_approve(turn, gate, &a.approver)
    };
    match r.approvals.iter().find(usable) {
        Some(a) => Standing::Granted(ApprovalUse {
            id: a.id.clone(),
            approver: a.approver.clone(),
            plan_hash: a.plan_hash.clone(),
            expires_at: a.expires_at,
            policy_version: a.policy_version.clone(),
        }),
        None => Standing::Open,
    }
}

fn may_approve(turn: &Turn<'_>, gate: Option<&GateRules>, approver: &str) -> bool {
    let other = gate.is_none_or(|g| g.other_than_requester);
    !approver.trim().is_empty() && !(other && same_person(approver, &turn.record.request.requester))
}

/// Takes an approval, denial or revocation before the hand-over, or says why it can't be used. It is kept who gave it, why, and by
/// which way.
pub fn take(turn: &mut Turn<'_>, gate: Option<&GateRules>, approval: &Approval, via: Option<Via>) -> Result<(), Why> {
    let decided = Decided::by_approval(approval, via, turn.now);
    if approval.decision == Decision::Revoke {
        turn.keep(Some(decided));
        turn.revoke_held(&approval.approval_id);
        turn.answer(approval.approval_id.as_str(), None);
        return Ok(());
    }
    acceptable(turn, gate, approval).map_err(|words| Why::new(codes::DENIED, words))?;
    let longest = gate.map_or(approval.expires_at, |g| turn.now.plus(g.expires));
    turn.keep(Some(decided));
    turn.record.approvals.retain(|a| a.id != approval.approval_id);
    turn.record.approvals.push(HeldApproval {
        id: approval.approval_id.clone(),
        approver: approval.approver.clone(),
        plan_hash: approval.plan_hash.clone(),
        expires_at: approval.expires_at.min(longest),
        policy_version: approval.policy_version.clone(),
        deny: approval.decision == Decision::Deny,
    });
    Ok(())
}

fn acceptable(turn: &Turn<'_>, gate: Option<&GateRules>, approval: &Approval) -> Result<(), &'static str> {
    let r = &turn.record;
    if r.approvals.len() >= HELD {
        return Err("too many decisions wait at this operation");
    }
    let other_plan = r.plan_hash.as_ref().is_some_and(|p| *p != approval.plan_hash) && turn.settings.on(Rule::ApprovalBinds);
    if approval.decision == Decision::Deny {
        return if other_plan && !approval.plan_hash.is_empty() { Err("it names another plan") } else { Ok(()) };
    }
    if r.is_revoked(&approval.approval_id) {
        return Err("this approval was taken back");
    }
    if other_plan {
        return Err("it names another plan");
    }
    if turn.now >= approval.expires_at {
        return Err("this approval has expired");
    }
    if !may_approve(turn, gate, &approval.approver) {
        return Err("the approver must be named and another than the requester");
    }
    Ok(())
}

/// After the hand-over only the ledger's owner can say what a decision still changes: an approval counts as *approve late* for
/// the intent's plan hash, a denial as a revoke of what was spent. The approval that was spent is a repeat.
pub fn after_hand_over(turn: &mut Turn<'_>, approval: &Approval) {
    let r = &turn.record;
    let Some(owner) = r.derived(Role::Effect).cloned() else { return };
    let spent = r.spent.as_ref().is_some_and(|s| s.id == approval.approval_id);
    let kind = match approval.decision {
        Decision::Approve if spent && turn.settings.on(Rule::SpentOnce) => CommandKind::Query,
        Decision::Approve if !r.is_revoked(&approval.approval_id) && Some(&approval.plan_hash) == r.plan_hash.as_ref() => {
            CommandKind::ApproveLate
        }
        Decision::Approve => {
            let taken_back = r.is_revoked(&approval.approval_id);
            let words =
                if taken_back { "this approval was taken back" } else { "it names another plan than the one that was handed over" };
            let why = Why::new(codes::DENIED, words);
            let note = note(turn, approval, &why);
            return turn.out.push(note);
        }
        Decision::Deny | Decision::Revoke => CommandKind::Revoke,
    };
    let mut named = approval.clone();
    if let (Decision::Deny, Some(spent)) = (approval.decision, &r.spent) {
        named.approval_id = spent.id.clone();
    }
    let word = match kind {
        CommandKind::Revoke => "revoke",
        CommandKind::ApproveLate => "approve",
        _ => "query",
    };
    let command = Command {
        command_id: CommandId::from(format!("{word}/{}", approval.approval_id)),
        kind,
        tenant: r.request.tenant.clone(),
        operation_id: owner.operation_id.clone(),
        step: Some(owner.step.clone()),
        seen: None,
        by: approval.approver.clone(),
        second: None,
        reason: approval.reason.clone().unwrap_or_default(),
        evidence: None,
        resolution: None,
        approval: Some(named),
        issued_at: turn.now,
        not_after: turn.hold_until(),
        via: Some(Via::ApprovalsTopic),
    };
    if kind == CommandKind::Revoke && !turn.record.is_revoked(&approval.approval_id) {
        turn.record.revoked.push(approval.approval_id.clone());
    }
    turn.forward(&owner, command);
}

/// While calls of the plan are under way: the approval is spent, once, and covers them all. A denial takes it back.
pub fn while_executing(turn: &mut Turn<'_>, approval: &Approval) -> Option<Why> {
    let refused = |words: &str| Some(Why::new(codes::DENIED, words));
    let r = &turn.record;
    let spent = r.spent.as_ref().is_some_and(|s| s.id == approval.approval_id);
    match approval.decision {
        Decision::Approve if spent => turn.answer(approval.approval_id.as_str(), None),
        Decision::Approve => return refused("its plan is under way already; an approval is used once"),
        Decision::Deny if !approval.plan_hash.is_empty() && Some(&approval.plan_hash) != r.plan_hash.as_ref() => {
            return refused("it names another plan");
        }
        Decision::Revoke if !spent => {
            turn.keep(Some(Decided::by_approval(approval, Some(Via::ApprovalsTopic), turn.now)));
            turn.revoke_held(&approval.approval_id);
            turn.answer(approval.approval_id.as_str(), None);
        }
        Decision::Deny | Decision::Revoke if r.spent.is_none() => return refused("it needed no approval; cancel it instead"),
        Decision::Deny | Decision::Revoke => {
            let command = revoke(turn, approval);
            turn.revoke_spent(&command);
            turn.answer(approval.approval_id.as_str(), None);
        }
    }
    None
}

fn revoke(turn: &Turn<'_>, approval: &Approval) -> Command {
    let r = &turn.record;
    Command {
        command_id: CommandId::from(format!("revoke/{}", approval.approval_id)),
        kind: CommandKind::Revoke,
        tenant: r.request.tenant.clone(),
        operation_id: r.request.operation_id.clone(),
        step: Some(r.step.clone()),
        seen: None,
        by: approval.approver.clone(),
        second: None,
        reason: approval.reason.clone().unwrap_or_default(),
        evidence: None,
        resolution: None,
        approval: Some(approval.clone()),
        issued_at: turn.now,
        not_after: turn.hold_until(),
        via: Some(Via::ApprovalsTopic),
    }
}

/// An answer that tells no state, since only the owner knows it now.
fn note(turn: &Turn<'_>, approval: &Approval, why: &Why) -> Output {
    let r = &turn.record;
    Output::Result(Box::new(ResultRecord {
        kind: ResultKind::Message,
        tenant: r.request.tenant.clone(),
        operation_id: r.request.operation_id.clone(),
        step: Some(r.step.clone()),
        resource: Some(r.request.resource.clone()),
        status: crate::intents::Status::Invalid,
        ack_level: AckLevel::Received,
        version: None,
        identity_hash: Some(r.identity_hash.clone()),
        code: Some(why.code.to_string()),
        detail: Some(why.words.clone()),
        flags: Vec::new(),
        attempts: 0,
        evidence: None,
        reference: None,
        plan_hash: r.plan_hash.clone(),
        calls: None,
        answers: Some(approval.approval_id.to_string()),
        at: turn.now,
        undo: None,
    }))
}

/// Whether the gate's wait is over.
pub fn waited_out(turn: &Turn<'_>) -> bool {
    turn.record.stage == Stage::Waiting && turn.record.waiting_until.is_some_and(|w: WallTime| turn.now >= w)
}
