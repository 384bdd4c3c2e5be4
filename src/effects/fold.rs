//! What has happened, folded into the status. Pure; what to do next is `decide()`'s.

use std::time::Duration;

use crate::error::{Code, codes};
use crate::ids::DispatchToken;
use crate::intents::{AckLevel, AnswerClass, Command, CommandKind, Flag, Resolution, Status};
use crate::time::WallTime;

use super::rules::{Rule, Rules};
use super::status::{
    Answered, AttemptState, COMMAND_BYTES, COMMANDS_KEPT, LedgerRecord, Phase, READS_KEPT, RECORD_BYTES, Read, Seen,
};

/// How a call came out, whoever saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Which attempt.
    pub attempt: i32,
    /// The token of its dispatch.
    pub token: DispatchToken,
    /// How it read.
    pub class: AnswerClass,
    /// The answer's status.
    pub status: Option<i32>,
    /// Digest of its body.
    pub digest: Option<String>,
    /// The target's reference.
    pub reference: Option<String>,
    /// Not before this, as the target said.
    pub retry_at: Option<WallTime>,
}

/// What a readback showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing of ours, in a complete enumeration.
    Absent,
    /// Exactly one of ours.
    One {
        /// The target's reference.
        reference: Option<String>,
    },
    /// More than one of ours.
    Two,
    /// Under our key, but other content.
    OtherContent,
    /// An error, a truncated list, a throttled read: proves nothing.
    Incomplete(String),
}

/// One thing that happened to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The owner's own call came out.
    Finished(Outcome),
    /// What someone other than the owner saw.
    Hearsay(Outcome),
    /// A new owner, or the same one after losing its memory: attempts that it burned, and those whose calls it still holds.
    TakeOver {
        /// Provably never left: burned in the process-wide registry.
        burned: Vec<i32>,
        /// Still under way in this very task.
        held: Vec<i32>,
    },
    /// A readback is about to start.
    ReadStarted,
    /// A readback came out; `at` is the wall time just before its request was written.
    Read {
        /// When.
        at: WallTime,
        /// What it showed.
        verdict: Verdict,
        /// Digest of its pages.
        digest: Option<String>,
    },
    /// A command; `burned` are queued attempts that were taken back for it.
    Command {
        /// What is ordered.
        command: Box<Command>,
        /// Taken back.
        burned: Vec<i32>,
    },
}

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

/// Folds one event. Answers commands; everything else answers nothing.
pub fn fold(r: &mut LedgerRecord, event: Event, rules: &Rules, now: WallTime) -> Option<Reply> {
    match event {
        Event::Finished(o) => outcome(r, &o, rules, now),
        Event::Hearsay(o) => hearsay(r, &o, rules, now),
        Event::TakeOver { burned, held } => take_over(r, &burned, &held, rules, now),
        Event::ReadStarted => {
            r.reads += 1;
            r.read_at = None;
        }
        Event::Read { at, verdict, digest } => read(r, at, verdict, digest, rules, now),
        Event::Command { command, burned } => return command_in(r, &command, &burned, rules, now),
    }
    None
}

/// Marks queued attempts that were taken back before they were handed to the network.
pub fn burn(r: &mut LedgerRecord, burned: &[i32], now: WallTime) {
    for a in r.attempts.iter_mut().filter(|a| burned.contains(&a.n) && a.state == AttemptState::Journaled) {
        a.state = AttemptState::Unsent;
        a.ended_at = Some(now);
    }
}

fn state_of(class: AnswerClass, rules: &Rules) -> AttemptState {
    match class {
        AnswerClass::Applied => AttemptState::Applied,
        AnswerClass::InProgress if !rules.hold(Rule::AcceptedIsNotDone) => AttemptState::Applied,
        AnswerClass::InProgress => AttemptState::InProgress,
        AnswerClass::Rejected => AttemptState::Rejected,
        AnswerClass::NotSent => AttemptState::Unsent,
        AnswerClass::NotApplied | AnswerClass::RetryLater if rules.no_intermediaries => AttemptState::RetryLater,
        AnswerClass::MaybeSent | AnswerClass::Unknown if !rules.hold(Rule::SilenceIsNotNo) => AttemptState::RetryLater,
        // A copy made on the way may still be applied, whatever this answer says.
        AnswerClass::NotApplied | AnswerClass::RetryLater => AttemptState::Maybe,
        AnswerClass::KeyConflict | AnswerClass::MaybeSent | AnswerClass::Unknown => AttemptState::Maybe,
    }
}

/// Attempts only learn: an outcome never takes back what is known better.
fn learns(from: AttemptState, to: AttemptState) -> bool {
    use AttemptState::{Applied, InProgress, Journaled, Maybe};
    match from {
        Journaled => true,
        Maybe | InProgress => to != Maybe,
        Applied => false,
        _ => to == Applied,
    }
}

fn outcome(r: &mut LedgerRecord, o: &Outcome, rules: &Rules, now: WallTime) {
    let Some(at) = r.attempts.iter().position(|a| a.n == o.attempt && a.token == o.token) else { return };
    let to = state_of(o.class, rules);
    if !learns(r.attempts[at].state, to) {
        return;
    }
    let tries = r.attempts.len();
    let a = &mut r.attempts[at];
    (a.state, a.class, a.status, a.digest) = (to, Some(o.class), o.status, o.digest.clone());
    a.ended_at = Some(now);
    if to == AttemptState::Applied {
        r.reference = o.reference.clone().or(r.reference.take());
        r.evidence = o.digest.clone().or(r.evidence.take());
        r.ack = r.ack.max(AckLevel::Answered);
    }
    if r.phase == Phase::Ended {
        late(r, to == AttemptState::Applied);
        return;
    }
    let due = if o.class == AnswerClass::NotApplied { now } else { now.plus(backoff(tries, Duration::from_millis(200))) };
    r.retry_at = Some(o.retry_at.unwrap_or(due));
    unsettled(r, now);
}

/// After an outcome: what is not decided by it is unknown, and is read soon.
fn unsettled(r: &mut LedgerRecord, now: WallTime) {
    if r.phase == Phase::Ended || r.open() {
        return;
    }
    if r.clean() {
        if r.phase == Phase::InFlight && !r.any(AttemptState::Rejected) {
            r.phase = Phase::Queued;
        }
        return;
    }
    r.read_at = Some(r.read_at.unwrap_or(now));
    if r.phase != Phase::Parked {
        r.phase = Phase::Unknown;
    }
    r.unknown_since = r.unknown_since.or(Some(now));
}

/// Positive evidence on an ended operation never changes it, and is never silent.
fn late(r: &mut LedgerRecord, positive: bool) {
    match r.end {
        Some(Status::Confirmed) if positive && r.attempts.len() > 1 => r.raise(Flag::DuplicateSuspected),
        Some(Status::Confirmed | Status::ResolvedApplied) | None => {}
        Some(_) if positive => r.raise(Flag::Contradiction),
        Some(_) => {}
    }
}

fn hearsay(r: &mut LedgerRecord, o: &Outcome, rules: &Rules, now: WallTime) {
    let known = r.attempts.iter().any(|a| a.n == o.attempt && a.token == o.token);
    if known {
        return outcome(r, o, rules, now);
    }
    if !rules.hold(Rule::HearsayNeedsToken) {
        let token = r.attempts.iter().find(|a| a.n == o.attempt).map(|a| a.token.clone());
        if let Some(token) = token {
            return outcome(r, &Outcome { token, ..o.clone() }, rules, now);
        }
    }
    r.read_at = Some(now);
}

fn take_over(r: &mut LedgerRecord, burned: &[i32], held: &[i32], rules: &Rules, now: WallTime) {
    burn(r, burned, now);
    let other = if rules.hold(Rule::TakeOverIsMaybe) { AttemptState::Maybe } else { AttemptState::Unsent };
    for a in r.attempts.iter_mut().filter(|a| a.state == AttemptState::Journaled && !held.contains(&a.n)) {
        a.state = other;
        a.ended_at = Some(now);
    }
    unsettled(r, now);
}

/// Longer with every try, from `base` to a minute.
pub(super) fn backoff(tries: usize, base: Duration) -> Duration {
    base.saturating_mul(1 << tries.min(12)).min(Duration::from_secs(60))
}

fn read(r: &mut LedgerRecord, at: WallTime, verdict: Verdict, digest: Option<String>, rules: &Rules, now: WallTime) {
    let found = match &verdict {
        Verdict::Absent => "absent",
        Verdict::One { .. } => "present",
        Verdict::Two => "two",
        Verdict::OtherContent => "other_content",
        Verdict::Incomplete(why) => why,
    };
    r.last_reads.push(Read { at, found: found.chars().take(200).collect(), digest: digest.clone() });
    if r.last_reads.len() > READS_KEPT {
        r.last_reads.remove(0);
    }
    let verdict = match verdict {
        Verdict::Incomplete(_) if !rules.hold(Rule::CompleteReads) => Verdict::Absent,
        v => v,
    };
    let positive = matches!(verdict, Verdict::One { .. } | Verdict::Two);
    match verdict {
        Verdict::Absent => r.absent_at = Some(r.absent_at.unwrap_or(at).max(at)),
        Verdict::One { reference } => {
            r.seen = if r.seen == Seen::Twice { Seen::Twice } else { Seen::Present };
            r.reference = reference.or(r.reference.take());
        }
        Verdict::Two => r.seen = Seen::Twice,
        Verdict::OtherContent => r.seen = Seen::OtherContent,
        Verdict::Incomplete(_) => {}
    }
    if positive {
        r.evidence = digest;
    }
    if r.phase == Phase::Ended {
        if r.seen == Seen::Twice {
            r.raise(Flag::DuplicateSuspected);
        }
        let confirmed = r.end == Some(Status::Confirmed);
        return late(r, positive && !confirmed);
    }
    if !positive && r.phase != Phase::Parked {
        let next = now.plus(backoff(
            usize::try_from(r.reads).unwrap_or(0),
            rules.lag.unwrap_or_default().max(Duration::from_millis(100)) / 4,
        ));
        // A read right at settle ends the wait as early as the rules allow.
        r.read_at = Some(match rules.settle_at(r) {
            Some(settle) if settle > now => next.min(settle),
            _ => next,
        });
    }
}

fn command_in(r: &mut LedgerRecord, c: &Command, burned: &[i32], rules: &Rules, now: WallTime) -> Option<Reply> {
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

fn approve_late(r: &mut LedgerRecord, c: &Command, now: WallTime) -> Reply {
    let Some(approval) = &c.approval else { return Reply::refused(codes::COMMAND_REFUSED, "no approval was named") };
    if r.plan_hash.as_ref() != Some(&approval.plan_hash) {
        return Reply::refused(codes::COMMAND_REFUSED, "the approval is for another plan");
    }
    if now >= approval.expires_at {
        return Reply::refused(codes::COMMAND_REFUSED, "the approval has expired");
    }
    r.approval = Some(crate::intents::ApprovalUse {
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
    c.second.as_deref().is_some_and(|s| !s.is_empty() && s != c.by)
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
    super::decide::close(r, end, None, Some(format!("by {}", c.by)), now);
    r.evidence = c.evidence.clone().or(r.evidence.take());
    Reply::done(end.word())
}

fn force(r: &mut LedgerRecord, c: &Command, rules: &Rules, now: WallTime) -> Reply {
    if r.phase != Phase::Parked || r.any(AttemptState::Applied) || r.any(AttemptState::Rejected) {
        return Reply::refused(codes::COMMAND_REFUSED, "only a parked operation without a final answer can be sent again");
    }
    if !alone(r, rules, now) && !two(c) {
        return Reply::refused(codes::COMMAND_REFUSED, "before settle a second person must agree");
    }
    r.forced_by = Some(match &c.second {
        Some(second) => format!("{} and {second}", c.by),
        None => c.by.clone(),
    });
    Reply::done("one more send")
}

/// An outcome as a former owner publishes it.
pub fn as_hearsay(o: &Outcome, seen_at: WallTime) -> crate::intents::Hearsay {
    crate::intents::Hearsay {
        attempt: o.attempt,
        token: o.token.clone(),
        class: o.class,
        status: o.status,
        digest: o.digest.clone(),
        reference: o.reference.clone(),
        seen_at,
    }
}
