//! What people order about an operation that has been handed over. The owner of its ledger record is the only writer. Pure.

use crate::error::{Code, codes};
use crate::intents::{ApprovalUse, Command, CommandKind, Decided, Resolution, Status, keep, same_person};
use crate::policy::{Uses, approval_fault};
use crate::time::WallTime;

use super::attempt::AttemptState;
use super::fold::{burn, take_over, unsettled};
use super::permission::{Forbidden, forbidden};
use super::rules::{Rule, Rules};
use super::status::{Answered, COMMAND_BYTES, COMMANDS_KEPT, LedgerRecord, Phase, RECORD_BYTES};

/// What the fold has to say to the sender of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Why not, where it was refused.
    pub code: Option<Code>,
    /// In words.
    pub detail: String,
}

impl Reply {
    /// The answer to a command whose operation never came.
    pub fn unknown() -> Self {
        Self::refused(codes::UNKNOWN_OPERATION, "nobody knows this operation")
    }
    fn done(detail: &str) -> Self {
        Self { code: None, detail: detail.to_owned() }
    }
    fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self { code: Some(code), detail: detail.into() }
    }
}

/// Folds a command; a repeat gets the same answer.
pub(super) fn command(r: &mut LedgerRecord, c: &Command, burned: &[i32], rules: &Rules, now: WallTime) -> Option<Reply> {
    if let Some(a) = r.answered.iter().find(|a| a.command_id == c.command_id) {
        let code = a.code.and_then(|c| u16::try_from(c).ok()).map(Code);
        return Some(Reply { code, detail: a.detail.clone() });
    }
    if c.weight() > COMMAND_BYTES {
        return Some(Reply::refused(codes::COMMAND_REFUSED, format!("a command takes {COMMAND_BYTES} bytes at most")));
    }
    if r.phase == Phase::Held {
        let room = r.held.len() < COMMANDS_KEPT && r.weight() + c.weight() <= RECORD_BYTES;
        if rules.hold(Rule::HoldEarlyCommands) && room {
            r.held.push(c.clone());
            return None;
        }
        return Some(Reply::unknown());
    }
    burn(r, burned, now);
    let reply = order(r, c, rules, now);
    if reply.code.is_none()
        && let Some(decided) = Decided::by_command(c, now)
    {
        keep(&mut r.decisions, decided);
    }
    if c.kind != CommandKind::Query {
        let code = reply.code.map(|c| i32::from(c.0));
        r.answered.push(Answered { command_id: c.command_id.clone(), code, detail: reply.detail.clone() });
        if r.answered.len() > COMMANDS_KEPT {
            r.answered.remove(0);
        }
    }
    Some(reply)
}

fn order(r: &mut LedgerRecord, c: &Command, rules: &Rules, now: WallTime) -> Reply {
    let ended = r.phase == Phase::Ended;
    // An approval from the topic saw a plan, not a version: the plan's hash binds it. One by hand may name a version too.
    let compares = match c.kind {
        CommandKind::Resolve | CommandKind::Force => true,
        CommandKind::ApproveLate => c.seen.is_some(),
        _ => false,
    };
    if ended && !matches!(c.kind, CommandKind::ReleaseLane | CommandKind::Query) {
        return Reply::refused(codes::COMMAND_REFUSED, format!("it has ended: {}", r.shown().word()));
    }
    if compares && c.seen != Some(r.version) {
        return Reply::refused(codes::STALE_VERSION, format!("it stands at version {}", r.version));
    }
    if r.operation_id.is_undo() && matches!(c.kind, CommandKind::Cancel | CommandKind::Revoke) {
        return Reply::refused(codes::COMMAND_REFUSED, "a compensation is not taken back: ask for the effect anew");
    }
    match c.kind {
        CommandKind::Query => Reply::done(r.shown().word()),
        CommandKind::Cancel => {
            r.cancelled = true;
            unsettled(r, now);
            Reply::done("no further send")
        }
        CommandKind::Revoke => revoke(r, c, now),
        CommandKind::ReleaseLane => {
            r.lane_released = true;
            Reply::done("lane opened")
        }
        CommandKind::ApproveLate => approve_late(r, c, now),
        CommandKind::Resolve => resolve(r, c, rules, now),
        CommandKind::Force => force(r, c, rules, now),
    }
}

/// Takes back the approval in use. Another one may have replaced it: that one was not taken back.
fn revoke(r: &mut LedgerRecord, c: &Command, now: WallTime) -> Reply {
    if let (Some(used), Some(named)) = (&r.approval, &c.approval)
        && used.id != named.approval_id
    {
        return Reply::refused(codes::COMMAND_REFUSED, format!("approval {} is in use, not {}", used.id, named.approval_id));
    }
    r.revoked = true;
    unsettled(r, now);
    Reply::done("approval taken back; no further send")
}

/// An approval after the hand-over: only for the intent's plan, only where one was spent, and never by the requester.
fn approve_late(r: &mut LedgerRecord, c: &Command, now: WallTime) -> Reply {
    let (Some(approval), Some(plan_hash)) = (&c.approval, &r.plan_hash) else {
        return Reply::refused(codes::COMMAND_REFUSED, "no approval was named, or it came of no plan");
    };
    let Some(used) = &r.approval else { return Reply::refused(codes::COMMAND_REFUSED, "it needs no approval") };
    let again = used.id == approval.approval_id;
    let uses = Uses {
        tenant: &r.tenant,
        operation: &r.operation_id,
        plan_hash,
        requester: &r.requester,
        other_than_requester: r.other_approver,
        revoked: r.revoked && again,
        spent: !r.revoked && again,
        now,
    };
    if let Some(fault) = approval_fault(approval, &uses) {
        return Reply::refused(codes::COMMAND_REFUSED, fault.words());
    }
    r.approval = Some(ApprovalUse {
        id: approval.approval_id.clone(),
        approver: approval.approver.clone(),
        plan_hash: approval.plan_hash.clone(),
        expires_at: approval.expires_at,
        policy_version: approval.policy_version.clone(),
    });
    r.revoked = false;
    Reply::done("approved")
}

/// Whether one person may say that nothing happened, or order another send: only after settle.
fn alone(r: &LedgerRecord, rules: &Rules, now: WallTime) -> bool {
    r.clean() || rules.settle_at(r).is_some_and(|s| now >= s) || !rules.hold(Rule::PersonAfterSettle)
}

fn two(c: &Command) -> bool {
    c.second.as_deref().is_some_and(|s| !s.trim().is_empty() && !same_person(s, &c.by))
}

fn resolve(r: &mut LedgerRecord, c: &Command, rules: &Rules, now: WallTime) -> Reply {
    if !matches!(r.phase, Phase::InFlight | Phase::Unknown | Phase::Parked) {
        return Reply::refused(codes::COMMAND_REFUSED, "nothing is unknown about it");
    }
    let Some(resolution) = c.resolution else { return Reply::refused(codes::COMMAND_REFUSED, "neither applied nor not-applied") };
    if r.open() && rules.hold(Rule::CloseBurns) {
        // What could not be burned may have left: it counts as maybe sent from here on.
        take_over(r, &[], &[], rules, now);
    }
    if resolution == Resolution::NotApplied && !alone(r, rules, now) && !two(c) {
        return Reply::refused(codes::COMMAND_REFUSED, "before settle a second person must agree");
    }
    let end = match resolution {
        Resolution::Applied => Status::ResolvedApplied,
        Resolution::NotApplied => Status::ResolvedNotApplied,
    };
    let why = Decided::by_command(c, now).map(|d| d.words());
    super::decide::close(r, end, None, why, now);
    r.evidence = c.evidence.clone().or(r.evidence.take());
    Reply::done(end.word())
}

/// One more send by order of a person. What may not be sent at all may not be forced either.
fn force(r: &mut LedgerRecord, c: &Command, rules: &Rules, now: WallTime) -> Reply {
    let refused = |why: &str| Reply::refused(codes::COMMAND_REFUSED, why);
    if r.phase != Phase::Parked || r.any(AttemptState::Applied) || r.any(AttemptState::Rejected) {
        return refused("only a parked operation without a final answer can be sent again");
    }
    match forbidden(r, now) {
        Some(Forbidden::Cancelled) => return refused("it was cancelled"),
        Some(Forbidden::Expired) => return refused("its deadline is over"),
        Some(Forbidden::Denied(d)) => return refused(&d.detail),
        None => {}
    }
    if !alone(r, rules, now) && !two(c) {
        return refused("before settle a second person must agree");
    }
    r.forced_by = Some(match &c.second {
        Some(second) => format!("{} and {second}", c.by),
        None => c.by.clone(),
    });
    Reply::done("one more send")
}
