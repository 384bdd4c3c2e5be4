//! What has happened, folded into the status. Pure; what to do next is `decide()`'s.

use std::time::Duration;

use crate::contract::same_version;
use crate::intents::{AckLevel, AnswerClass, Command, Flag, Hearsay, Status};
use crate::time::WallTime;

use super::attempt::AttemptState;
use super::commands::{self, Reply};
use super::rules::{Rule, Rules};
use super::status::{LedgerRecord, Phase, READS_KEPT, Read, Seen, VersionRead, VersionState};

/// How a call came out: what its owner or anyone else saw, and when the target wants to be asked again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What was seen; published as it is where the owner is gone.
    pub said: Hearsay,
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
    Hearsay(Hearsay),
    /// What the target told by itself; `burned` are queued attempts that were taken back for it.
    Webhook {
        /// What it told, of the operation as a whole.
        said: Hearsay,
        /// Taken back.
        burned: Vec<i32>,
    },
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
    /// The resource's version is about to be read, before a send.
    VersionAsked,
    /// It was read; `at` is the wall time just before its request was written.
    Version {
        /// When.
        at: WallTime,
        /// What was shown; `None` = the resource is not there. The error says why nothing was.
        shown: Result<Option<String>, String>,
    },
    /// A command; `burned` are queued attempts that were taken back for it.
    Command {
        /// What is ordered.
        command: Box<Command>,
        /// Taken back.
        burned: Vec<i32>,
    },
}

/// Folds one event. Answers commands; everything else answers nothing.
pub fn fold(r: &mut LedgerRecord, event: Event, rules: &Rules, now: WallTime) -> Option<Reply> {
    match event {
        Event::Finished(o) => outcome(r, &o.said, o.retry_at, rules, now),
        Event::Hearsay(o) => hearsay(r, &o, rules, now),
        Event::Webhook { said, burned } => webhook(r, &said, &burned, rules, now),
        Event::TakeOver { burned, held } => take_over(r, &burned, &held, rules, now),
        Event::ReadStarted => {
            r.reads += 1;
            r.read_at = None;
        }
        Event::Read { at, verdict, digest } => read(r, at, verdict, digest, rules, now),
        Event::VersionAsked => version_asked(r, now),
        Event::Version { at, shown } => version(r, at, shown),
        Event::Command { command, burned } => return commands::command(r, &command, &burned, rules, now),
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
        AnswerClass::PreconditionFailed if rules.no_intermediaries => AttemptState::Rejected,
        AnswerClass::NotSent => AttemptState::Unsent,
        AnswerClass::NotApplied | AnswerClass::RetryLater if rules.no_intermediaries => AttemptState::RetryLater,
        AnswerClass::MaybeSent | AnswerClass::Unknown if !rules.hold(Rule::SilenceIsNotNo) => AttemptState::RetryLater,
        AnswerClass::KeyConflict if !rules.hold(Rule::ExistsIsRead) => AttemptState::Applied,
        // A copy made on the way may still be applied, whatever this answer says.
        AnswerClass::NotApplied | AnswerClass::RetryLater | AnswerClass::PreconditionFailed => AttemptState::Maybe,
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

fn outcome(r: &mut LedgerRecord, o: &Hearsay, retry_at: Option<WallTime>, rules: &Rules, now: WallTime) {
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
        late(r, to == AttemptState::Applied, rules);
        return;
    }
    let due = if o.class == AnswerClass::NotApplied { now } else { now.plus(backoff(tries, Duration::from_millis(200))) };
    r.retry_at = Some(retry_at.filter(|_| rules.hold(Rule::RetryAfter)).unwrap_or(due));
    if matches!(o.class, AnswerClass::Applied | AnswerClass::KeyConflict) {
        // Something is there: what, is read now, however long reads before it had to wait.
        r.read_at = Some(now);
    }
    unsettled(r, now);
}

/// After an outcome: what is not decided by it is unknown, and is read soon.
pub(super) fn unsettled(r: &mut LedgerRecord, now: WallTime) {
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
fn late(r: &mut LedgerRecord, positive: bool, rules: &Rules) {
    if positive && !rules.hold(Rule::EndsStay) {
        r.end = Some(Status::Confirmed);
    }
    if !rules.hold(Rule::LateIsFlagged) {
        return;
    }
    match r.end {
        Some(Status::Confirmed | Status::Superseded) if positive && r.attempts.len() > 1 => r.raise(Flag::DuplicateSuspected),
        Some(Status::Confirmed | Status::Superseded | Status::ResolvedApplied) | None => {}
        Some(_) if positive => r.raise(Flag::Contradiction),
        Some(_) => {}
    }
}

fn hearsay(r: &mut LedgerRecord, o: &Hearsay, rules: &Rules, now: WallTime) {
    let known = r.attempts.iter().any(|a| a.n == o.attempt && a.token == o.token);
    if known {
        return outcome(r, o, None, rules, now);
    }
    if !rules.hold(Rule::HearsayNeedsToken) {
        let token = r.attempts.iter().find(|a| a.n == o.attempt).map(|a| a.token.clone());
        if let Some(token) = token {
            return outcome(r, &Hearsay { token, ..o.clone() }, None, rules, now);
        }
    }
    r.read_at = Some(now);
}

/// The target's word about the operation. It names no attempt: that it happened is credited to one that may have left; that it never
/// will is believed of the only such one. With several it is a reason to look, and never one to send.
fn webhook(r: &mut LedgerRecord, said: &Hearsay, burned: &[i32], rules: &Rules, now: WallTime) {
    burn(r, burned, now);
    let done = matches!(r.end, Some(Status::Confirmed | Status::Superseded | Status::ResolvedApplied));
    if r.any(AttemptState::Applied) || done {
        return;
    }
    let rank = |state| match state {
        AttemptState::InProgress => Some(3),
        AttemptState::Maybe => Some(2),
        AttemptState::Journaled => Some(1),
        _ => None,
    };
    let open: Vec<(i32, usize)> = r.attempts.iter().enumerate().filter_map(|(i, a)| rank(a.state).map(|rank| (rank, i))).collect();
    let of = match said.class {
        AnswerClass::Applied => open.iter().max().map(|(_, i)| *i).or(r.attempts.len().checked_sub(1)),
        _ if open.len() == 1 || !rules.hold(Rule::WebhookIsNoWarrant) => open.first().map(|(_, i)| *i),
        _ => None,
    };
    match of.and_then(|i| r.attempts.get(i)) {
        Some(a) => {
            let class = if rules.hold(Rule::WebhookIsNoWarrant) { said.class } else { AnswerClass::RetryLater };
            let class = if said.class == AnswerClass::Applied { AnswerClass::Applied } else { class };
            let said = Hearsay { attempt: a.n, token: a.token.clone(), class, ..said.clone() };
            outcome(r, &said, None, rules, now);
        }
        None => r.read_at = Some(now),
    }
}

pub(super) fn take_over(r: &mut LedgerRecord, burned: &[i32], held: &[i32], rules: &Rules, now: WallTime) {
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
        let confirmed = matches!(r.end, Some(Status::Confirmed | Status::Superseded));
        return late(r, positive && !confirmed, rules);
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

fn version_asked(r: &mut LedgerRecord, now: WallTime) {
    let attempt = i32::try_from(r.attempts.len() + 1).unwrap_or(i32::MAX);
    let tries = r.version_read.as_ref().filter(|v| v.attempt == attempt).map_or(1, |v| v.tries.saturating_add(1));
    r.version_read = Some(VersionRead { attempt, tries, at: now, state: VersionState::Asked, shown: None });
}

/// What was read speaks for the send that it was asked for, and for no other.
fn version(r: &mut LedgerRecord, at: WallTime, shown: Result<Option<String>, String>) {
    let seen = r.resource_version.clone().unwrap_or_default();
    let Some(read) = r.version_read.as_mut().filter(|v| v.state == VersionState::Asked) else { return };
    read.at = at;
    (read.state, read.shown) = match shown {
        Ok(Some(found)) if same_version(&seen, &found) => (VersionState::Same, Some(found)),
        Ok(found) => (VersionState::Other, found),
        Err(why) => (VersionState::Unclear, Some(why)),
    };
}
