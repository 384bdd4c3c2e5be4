//! What is checked again right before every send, all in one place: cancel, deadline, approval, target version, policy. A "no"
//! takes away the permission to send and decides nothing else: what an earlier attempt may have done stays to be found out.

use crate::contract::Parameters;
use crate::error::{Code, codes};
use crate::intents::{Deed, PolicyWord};
use crate::time::WallTime;

use super::config::Guard;
use super::fold::backoff;
use super::rules::{Rule, Rules};
use super::status::{LedgerRecord, VersionState};

/// Why policy, approval or target version say no.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// The code.
    pub code: Code,
    /// In words, without payload.
    pub detail: String,
}

/// What forbids every further send, as the record has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Forbidden {
    /// It was cancelled.
    Cancelled,
    /// Its deadline is over, or will be when it may be tried again.
    Expired,
    /// Its approval was taken back, or its resource has changed.
    Denied(Denial),
}

/// What the record itself forbids. Cancel and deadline come first: they end an operation as such.
pub(super) fn forbidden(r: &LedgerRecord, now: WallTime) -> Option<Forbidden> {
    if r.cancelled {
        return Some(Forbidden::Cancelled);
    }
    if now > r.deadline {
        return Some(Forbidden::Expired);
    }
    if r.revoked {
        let detail = r.said(Deed::Revoke).unwrap_or_else(|| "the approval was taken back".to_owned());
        return Some(Forbidden::Denied(Denial { code: codes::DENIED, detail }));
    }
    let read = r.version_read.as_ref().filter(|v| v.state == VersionState::Other)?;
    let found = read.shown.as_ref().map_or("it is not there".to_owned(), |v| format!("it stands at version {v}"));
    let detail = format!("made for version {} of the resource; {found}", r.resource_version.as_deref().unwrap_or_default());
    Some(Forbidden::Denied(Denial { code: codes::PRECONDITION_FAILED, detail }))
}

/// The last look, right before the journal: what must be asked anew each time, and what policy said is kept. The target version is
/// asked before it ([`version`]), since that takes a call.
pub(super) fn last_look(
    r: &mut LedgerRecord,
    parameters: &Parameters,
    guard: &dyn Guard,
    rules: &Rules,
    now: WallTime,
) -> Result<(), Denial> {
    if rules.hold(Rule::ApprovalAtSend) {
        approval(r, now)?;
    }
    let said = guard.may_send(r, parameters, now);
    if guard.asks(r) {
        r.policy = Some(PolicyWord { at: now, version: guard.version(r), allowed: said.is_ok() });
    }
    said
}

/// The spent approval: one that has run out, or that names another plan, forbids the send.
fn approval(r: &LedgerRecord, now: WallTime) -> Result<(), Denial> {
    let Some(approval) = &r.approval else { return Ok(()) };
    let why = match r.plan_hash.as_ref() == Some(&approval.plan_hash) {
        false => "is for another plan",
        true if now >= approval.expires_at => "has expired",
        true => return Ok(()),
    };
    Err(Denial { code: codes::DENIED, detail: format!("approval {} {why}", approval.id) })
}

/// Whether the resource's version has been read for the next send, where the contract wants that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    /// There is nothing to read, or it was read just now.
    Holds,
    /// It must be read, not before this.
    Ask(WallTime),
}

/// What stands between the next attempt and its permission, as to the target version. One that has changed is [`forbidden`].
pub(super) fn version(r: &LedgerRecord, rules: &Rules, now: WallTime) -> Version {
    if !rules.version_read {
        return Version::Holds;
    }
    let next = i32::try_from(r.attempts.len() + 1).unwrap_or(i32::MAX);
    match r.version_read.as_ref().filter(|v| v.attempt == next) {
        Some(v) if v.state == VersionState::Same && now <= v.at.plus(rules.window) => Version::Holds,
        Some(v) if v.state == VersionState::Unclear => {
            let tries = usize::try_from(v.tries).unwrap_or(0);
            Version::Ask(v.at.plus(backoff(tries, std::time::Duration::from_millis(200))))
        }
        _ => Version::Ask(now),
    }
}
