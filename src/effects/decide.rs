//! The state machine: from status, facts and rules to the next action. Pure: no clock, no socket, no store. The checker, the
//! simulator and the program run this same function.

use crate::contract::{Completion, Confirm};
use crate::error::{Code, codes};
use crate::ids::DispatchToken;
use crate::intents::{AckLevel, AnswerClass, Deed, Flag, IntentKind, Status};
use crate::time::WallTime;

use super::attempt::{Attempt, AttemptState, Warrant, WarrantKind};
use super::permission::{Denial, Forbidden, Version, forbidden, version};
use super::rules::{Rule, Rules};
use super::status::{LedgerRecord, Phase, RECORD_BYTES, Seen};
use super::warrants::{cover_all, drifting, exhausted, proof, used};

/// What the owner knows besides the status, right now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Nothing before it in its lane holds it back.
    pub lane_free: bool,
    /// A call may be started: concurrency, rate and breaker allow.
    pub permit: bool,
    /// A readback may be started; has limits of its own.
    pub read_permit: bool,
    /// A readback is under way.
    pub reading: bool,
    /// Our clock and the target's disagree by more than `ε`.
    pub drift: bool,
    /// The last look before a send said no.
    pub denied: Option<Denial>,
}

/// What is to be done next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing before the next event, or this time.
    Wait(Option<WallTime>),
    /// Nothing before a permit is free, at the latest at this time.
    WaitForPermit(Option<WallTime>),
    /// Journal an attempt, with one warrant for each earlier one; send it after the commit.
    Journal(Vec<Warrant>),
    /// Ask the target for the version of the resource, before a send.
    AskVersion,
    /// Ask the target.
    Read,
    /// Everything that may have left is proven absent.
    Settle,
    /// A person must decide.
    Park(Code, &'static str),
    /// The end.
    End(End),
    /// Delete the record.
    Forget,
}

/// An end with what it rests on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Which.
    pub status: Status,
    /// How far it provably got, where that changes.
    pub ack: Option<AckLevel>,
    /// Why.
    pub code: Option<Code>,
    /// In words, without payload.
    pub detail: Option<String>,
    /// What must not pass silently.
    pub flags: Vec<Flag>,
}

fn end(status: Status, code: Option<Code>, detail: Option<String>) -> Action {
    Action::End(End { status, ack: None, code, detail, flags: Vec::new() })
}

/// The next action for one operation. A compensation has one end by itself, that it is confirmed: all others are a person's.
pub fn decide(r: &LedgerRecord, f: &Facts, rules: &Rules, now: WallTime) -> Action {
    match next(r, f, rules, now) {
        Action::End(e) if r.operation_id.is_undo() && e.status != Status::Confirmed => {
            if r.phase == Phase::Parked {
                return Action::Wait(None);
            }
            let words = match e.status {
                Status::Refused => "the target refused the compensation",
                Status::Expired => "the time for the compensation is over, and it was not made",
                _ => "the compensation can't be made",
            };
            Action::Park(e.code.unwrap_or(codes::UNPROVABLE), words)
        }
        action => action,
    }
}

fn next(r: &LedgerRecord, f: &Facts, rules: &Rules, now: WallTime) -> Action {
    match r.phase {
        Phase::Held => return forget(r, rules, now),
        Phase::Ended if rules.lag.is_some() && r.read_at.is_some_and(|t| t <= now) && !f.reading => {
            return if f.read_permit { Action::Read } else { Action::WaitForPermit(None) };
        }
        Phase::Ended => return forget(r, rules, now),
        _ => {}
    }
    if let Some(action) = proven(r, rules) {
        return action;
    }
    if let Some(action) = weakened(r, f, rules, now) {
        return action;
    }
    if r.open() {
        return Action::Wait(None);
    }
    if r.phase != Phase::Parked && r.weight() > RECORD_BYTES {
        return Action::Park(codes::LEDGER_TOO_LARGE, "its record has grown beyond its limit");
    }
    match (r.phase, r.clean()) {
        (Phase::Parked, clean) => parked(r, f, rules, now, clean),
        (_, true) => when_clean(r, f, rules, now),
        (_, false) => when_unsure(r, f, rules, now),
    }
}

fn forget(r: &LedgerRecord, rules: &Rules, now: WallTime) -> Action {
    let at = rules.forget_at(r);
    if now >= at { Action::Forget } else { Action::Wait(Some(at)) }
}

/// What a readback or an answer has proven already.
fn proven(r: &LedgerRecord, rules: &Rules) -> Option<Action> {
    let applied = r.any(AttemptState::Applied);
    let answer_suffices =
        rules.confirm == Confirm::Answer && (rules.completion != Completion::Poll || !rules.hold(Rule::AcceptedIsNotDone));
    let (ack, twice) = match r.seen {
        Seen::OtherContent if r.phase == Phase::Parked => return None,
        Seen::OtherContent => return Some(Action::Park(codes::EFFECT_CONFLICT, "the target shows other content under our key")),
        Seen::Present => (AckLevel::Confirmed, false),
        Seen::Twice => (AckLevel::Confirmed, true),
        Seen::Nothing if applied && answer_suffices => (AckLevel::Answered, false),
        Seen::Nothing => return None,
    };
    let mut flags = Vec::new();
    if twice {
        flags.push(Flag::DuplicateSuspected);
    }
    // "It has changed" after a lost answer is what a target says of a second copy.
    if r.attempts.iter().any(|a| a.state == AttemptState::Rejected && a.class != Some(AnswerClass::PreconditionFailed)) {
        flags.push(Flag::Contradiction);
    }
    if r.cancelled && rules.compensates && !twice {
        let detail = Some(format!("cancelled too late; its compensation is {}", r.operation_id.undo()));
        return Some(Action::End(End { status: Status::Superseded, ack: Some(ack), code: None, detail, flags }));
    }
    if r.cancelled {
        flags.push(Flag::CancelTooLate);
    }
    let code = twice.then_some(codes::DUPLICATE_SUSPECTED);
    Some(Action::End(End { status: Status::Confirmed, ack: Some(ack), code, detail: sent_more_than_once(r), flags }))
}

/// How often an effect was sent whose contract accepts duplicates, where that was made use of.
fn sent_more_than_once(r: &LedgerRecord) -> Option<String> {
    let accepted = r.attempts.iter().flat_map(|a| &a.warrants).any(|w| w.kind == WarrantKind::DuplicatesAccepted);
    let sent = r.attempts.iter().filter(|a| a.state != AttemptState::Unsent).count();
    (accepted && r.kind == IntentKind::Effect)
        .then(|| format!("sent {sent} times; it may have happened as often, which its contract accepts"))
}

/// What goes wrong with a rule switched off; never anything in the program.
fn weakened(r: &LedgerRecord, f: &Facts, rules: &Rules, now: WallTime) -> Option<Action> {
    if !rules.hold(Rule::NegativeSpeaksForItself) && r.any(AttemptState::Rejected) {
        return Some(end(Status::Refused, Some(codes::TARGET_REFUSED), None));
    }
    if !rules.hold(Rule::UndoOnlyApplied) && rules.compensates && r.cancelled && !r.attempts.is_empty() {
        return Some(end(Status::Superseded, None, None));
    }
    if !rules.hold(Rule::CancelWaits) && r.cancelled {
        return Some(end(Status::Cancelled, None, r.said(Deed::Cancel)));
    }
    if !rules.hold(Rule::ChecksOnlyForbid) && !r.open() {
        if now > r.deadline {
            return Some(end(Status::Expired, Some(codes::EXPIRED), None));
        }
        if let Some(d) = &f.denied {
            return Some(end(Status::Denied, Some(d.code), Some(d.detail.clone())));
        }
    }
    if !rules.hold(Rule::CoverEveryAttempt) && !r.open() && r.attempts.len() < rules.attempts {
        let last = r.attempts.last()?;
        let proof = matches!(last.state, AttemptState::Unsent | AttemptState::RetryLater);
        return proof.then(|| Action::Journal(vec![Warrant { covers: last.n, kind: WarrantKind::Unsent, by: None }]));
    }
    None
}

/// Whether a send is still permitted.
fn may(r: &LedgerRecord, f: &Facts, now: WallTime) -> bool {
    forbidden(r, now).is_none() && f.denied.is_none()
}

/// An attempt, as soon as nothing but the target version stands before it.
fn send(r: &LedgerRecord, f: &Facts, rules: &Rules, now: WallTime, warrants: Vec<Warrant>) -> Action {
    match version(r, rules, now) {
        Version::Holds => Action::Journal(warrants),
        Version::Ask(at) if at > now => Action::Wait(Some(at.min(past(r.deadline)))),
        Version::Ask(_) if f.reading => Action::Wait(Some(past(r.deadline))),
        Version::Ask(_) if f.read_permit => Action::AskVersion,
        Version::Ask(_) => Action::WaitForPermit(Some(past(r.deadline))),
    }
}

fn parked(r: &LedgerRecord, f: &Facts, rules: &Rules, now: WallTime, clean: bool) -> Action {
    if r.cancelled && clean {
        return end(Status::Cancelled, None, r.said(Deed::Cancel));
    }
    if let Some(by) = r.forced_by.as_ref().filter(|_| may(r, f, now) && r.weight() <= RECORD_BYTES) {
        let warrants = r.attempts.iter().map(|a| proof(a, rules).unwrap_or(WarrantKind::Operator));
        let named = |(a, kind): (&Attempt, WarrantKind)| Warrant {
            covers: a.n,
            by: (kind == WarrantKind::Operator).then(|| by.clone()),
            kind,
        };
        let warrants = r.attempts.iter().zip(warrants).map(named).collect();
        return if f.permit { send(r, f, rules, now, warrants) } else { Action::WaitForPermit(Some(past(r.deadline))) };
    }
    if r.forced_by.is_some() {
        return Action::Park(
            codes::COMMAND_REFUSED,
            "what was ordered is not permitted any more: approval, policy or target version",
        );
    }
    match r.read_at.filter(|_| rules.lag.is_some() && !f.reading) {
        Some(at) if at <= now && f.read_permit => Action::Read,
        Some(at) if at <= now => Action::WaitForPermit(None),
        at => Action::Wait(at),
    }
}

fn when_clean(r: &LedgerRecord, f: &Facts, rules: &Rules, now: WallTime) -> Action {
    let refused = refused(r);
    if let Some(refused) = refused.clone().filter(|_| r.phase != Phase::Unknown) {
        return refused;
    }
    let forbidden = forbidden(r, now).or(r.retry_at.filter(|t| *t > r.deadline).map(|_| Forbidden::Expired));
    match (forbidden, refused) {
        (Some(Forbidden::Cancelled), _) => return end(Status::Cancelled, None, r.said(Deed::Cancel)),
        (Some(Forbidden::Expired), _) => return end(Status::Expired, Some(codes::EXPIRED), None),
        (_, Some(refused)) => return refused,
        (Some(Forbidden::Denied(d)), None) => return end(Status::Denied, Some(d.code), Some(d.detail)),
        (None, None) => {}
    }
    if let Some(d) = &f.denied {
        return end(Status::Denied, Some(d.code), Some(d.detail.clone()));
    }
    if conflict_answered(r) {
        return Action::Park(codes::EFFECT_CONFLICT, "the target knows the key with other content");
    }
    if r.attempts.len() >= rules.attempts {
        return Action::Park(codes::BUDGET_EXHAUSTED, "all attempts are used; proven not applied");
    }
    match r.retry_at {
        Some(at) if at > now => Action::Wait(Some(at.min(past(r.deadline)))),
        _ if !f.lane_free => Action::Wait(Some(past(r.deadline))),
        _ if !f.permit => Action::WaitForPermit(Some(past(r.deadline))),
        _ => match cover_all(r, f, rules, now) {
            Some(warrants) => send(r, f, rules, now, warrants),
            None => Action::Park(codes::UNPROVABLE, "an earlier attempt is not covered"),
        },
    }
}

/// The first moment at which a deadline has passed.
fn past(deadline: WallTime) -> WallTime {
    deadline.plus(std::time::Duration::from_millis(1))
}

fn answered(r: &LedgerRecord, class: AnswerClass) -> bool {
    r.attempts.iter().any(|a| a.class == Some(class))
}

fn conflict_answered(r: &LedgerRecord) -> bool {
    answered(r, AnswerClass::KeyConflict)
}

/// The end of an operation that the target has refused, once nothing else can have happened.
fn refused(r: &LedgerRecord) -> Option<Action> {
    if answered(r, AnswerClass::PreconditionFailed) {
        let version = r.resource_version.as_deref().unwrap_or_default();
        let detail = format!("the resource no longer stands at version {version}");
        return Some(end(Status::Refused, Some(codes::PRECONDITION_FAILED), Some(detail)));
    }
    r.any(AttemptState::Rejected).then(|| end(Status::Refused, Some(codes::TARGET_REFUSED), None))
}

fn when_unsure(r: &LedgerRecord, f: &Facts, rules: &Rules, now: WallTime) -> Action {
    let absent = r.absent_at.is_some_and(|at| !rules.hold(Rule::SettleBeforeAbsent) || rules.settle_at(r).is_some_and(|s| at >= s));
    if absent && !drifting(f, rules) {
        return match r.any(AttemptState::Applied) {
            true => Action::Park(codes::CONTRADICTION, "the target said it did it, and does not show it"),
            false => Action::Settle,
        };
    }
    let too_old = r.unknown_since.map(|t| t.plus(rules.unknown_max_age)).filter(|_| rules.hold(Rule::UnknownsEnd));
    if too_old.is_some_and(|t| t <= now) {
        return Action::Park(codes::UNKNOWN_TOO_LONG, "unknown for longer than allowed");
    }
    let final_answer = conflict_answered(r) || answered(r, AnswerClass::PreconditionFailed);
    // The target has it and will tell: nothing is sent again before that.
    let told = r.any(AttemptState::InProgress) && rules.told_by(r).is_some_and(|by| by > now);
    let resend = match may(r, f, now) && r.attempts.len() < rules.attempts && !final_answer && !told {
        true => cover_all(r, f, rules, now),
        false => None,
    };
    let due = r.retry_at.filter(|t| *t > now);
    match (resend, due) {
        (Some(warrants), None) if f.permit && f.lane_free => match send(r, f, rules, now, warrants) {
            // No version to send on is no reason not to read either.
            Action::Wait(until) => read_on(r, f, rules, now, until.into_iter().chain(too_old).min(), true),
            other => other,
        },
        // No permit to send is no reason not to read.
        (Some(_), None) => match read_on(r, f, rules, now, too_old, true) {
            Action::Wait(until) => Action::WaitForPermit(until),
            other => other,
        },
        (Some(_), due) => read_on(r, f, rules, now, due.into_iter().chain(too_old).min(), true),
        (None, _) => read_on(r, f, rules, now, too_old, false),
    }
}

/// Goes on reading, or parks where reading can prove nothing more. `resend` = a re-send will be allowed at `until`.
fn read_on(r: &LedgerRecord, f: &Facts, rules: &Rules, now: WallTime, until: Option<WallTime>, resend: bool) -> Action {
    if rules.lag.is_none() {
        let told_by = rules.told_by(r).filter(|by| *by > now && !conflict_answered(r));
        return match resend {
            true => Action::Wait(until),
            false if told_by.is_some() => Action::Wait(told_by.into_iter().chain(until).min()),
            false if conflict_answered(r) => Action::Park(codes::EFFECT_CONFLICT, "the target knows the key with other content"),
            false if r.attempts.len() >= rules.attempts => Action::Park(codes::BUDGET_EXHAUSTED, "all attempts are used; unknown"),
            false => Action::Park(codes::UNPROVABLE, "nothing can prove what happened"),
        };
    }
    if f.reading {
        return Action::Wait(until);
    }
    let settle = rules.settle_at(r);
    if settle.is_none() && !resend && r.absent_at.is_some_and(|at| at >= rules.shown_at(r)) {
        return match conflict_answered(r) && rules.creates_once {
            true => Action::Park(codes::EFFECT_CONFLICT, "the target says that the ID is taken, and shows nothing under it"),
            false => Action::Park(codes::UNPROVABLE, "absent, but nothing bounds how late the request may arrive"),
        };
    }
    if exhausted(r, rules, settle) {
        return Action::Park(codes::READBACK_INCONCLUSIVE, "readbacks stayed inconclusive; their budget is used");
    }
    let last = settle.unwrap_or_else(|| rules.shown_at(r));
    let at = if used(r, rules) { last.max(r.read_at.unwrap_or(now)) } else { r.read_at.unwrap_or(now) };
    match at <= now {
        true if f.read_permit => Action::Read,
        true => Action::WaitForPermit(until),
        false => Action::Wait(Some(until.map_or(at, |u| u.min(at)))),
    }
}

/// Under which name and when an attempt is journalled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Process incarnation and assignment.
    pub epoch: String,
    /// The attempt's secret.
    pub token: DispatchToken,
    /// Wall time read before the record is built.
    pub at: WallTime,
}

/// Adds the attempt that `decide` asked for. The window is fixed here.
pub fn journal(r: &mut LedgerRecord, warrants: Vec<Warrant>, stamp: Stamp, rules: &Rules) {
    debug_assert!(!r.open(), "one attempt open at a time");
    debug_assert!(
        warrants.len() == r.attempts.len() || !rules.hold(Rule::CoverEveryAttempt),
        "a warrant for every earlier attempt"
    );
    debug_assert!(r.phase != Phase::Ended && !r.any(AttemptState::Applied), "nothing is sent after a positive end");
    let ms = |d: std::time::Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
    r.attempts.push(Attempt {
        n: i32::try_from(r.attempts.len() + 1).unwrap_or(i32::MAX),
        epoch: stamp.epoch,
        token: stamp.token,
        journalled_at: stamp.at,
        send_not_after: stamp.at.plus(rules.window),
        tail_ms: ms(rules.cut + rules.pause),
        in_flight_ms: rules.in_flight.map(ms),
        lag_ms: ms(rules.lag.unwrap_or_default()),
        state: AttemptState::Journaled,
        class: None,
        status: None,
        digest: None,
        ended_at: None,
        warrants,
    });
    r.phase = Phase::InFlight;
    r.ack = r.ack.max(AckLevel::Dispatched);
    // What a person ordered stands beside the send that came of it.
    let ordered = r.forced_by.take().and_then(|_| r.said(Deed::Force));
    (r.retry_at, r.code, r.detail) = (None, None, ordered);
}

/// Carries out an action that needs nothing but the record; the others are the stage's.
pub fn apply(r: &mut LedgerRecord, action: &Action, now: WallTime) {
    match action {
        Action::Settle => {
            for a in r.attempts.iter_mut().filter(|a| matches!(a.state, AttemptState::Maybe | AttemptState::InProgress)) {
                a.state = AttemptState::SettledAbsent;
            }
            r.retry_at = None;
        }
        Action::Park(code, detail) => {
            r.phase = Phase::Parked;
            r.note_parking(now, i32::from(code.0), detail);
            (r.code, r.detail) = (Some(i32::from(code.0)), Some((*detail).to_owned()));
            (r.read_at, r.forced_by) = (None, None);
        }
        Action::End(e) => {
            for flag in &e.flags {
                r.raise(*flag);
            }
            r.ack = e.ack.map_or(r.ack, |a| r.ack.max(a));
            close(r, e.status, e.code, e.detail.clone(), now);
        }
        Action::Wait(_) | Action::WaitForPermit(_) | Action::Journal(_) | Action::AskVersion | Action::Read | Action::Forget => {}
    }
}

/// Ends an operation, once and for ever.
pub(super) fn close(r: &mut LedgerRecord, status: Status, code: Option<Code>, detail: Option<String>, now: WallTime) {
    debug_assert!(r.phase != Phase::Ended, "an end never changes");
    debug_assert!(status.is_end());
    r.phase = Phase::Ended;
    r.end = Some(status);
    (r.code, r.detail) = (code.map(|c| i32::from(c.0)), detail);
    (r.read_at, r.retry_at, r.unknown_since) = (None, None, None);
    r.closed_at = Some(now);
}
