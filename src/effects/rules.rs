//! What `decide()` may rely on: the contract's facts and the declared assumptions. The worst over the versions that an
//! operation's attempts lived under is taken from the attempts themselves.

use std::time::Duration;

use crate::contract::{Call, Completion, Confirm, LaneRule, Retention, Unprovable};
use crate::intents::Status;
use crate::time::WallTime;

use super::attempt::{Attempt, AttemptState, millis};
use super::status::LedgerRecord;

/// A rule of `effects.md` that a test can switch off, to see that something then goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// 1: an attempt is sent only after its record is committed.
    JournalBeforeCall,
    /// 3: every earlier attempt is covered, not only the last.
    CoverEveryAttempt,
    /// 4: a negative answer speaks for its own attempt only.
    NegativeSpeaksForItself,
    /// 5: no answer is not a negative answer.
    SilenceIsNotNo,
    /// 6: absence is believed only when read at or after settle.
    SettleBeforeAbsent,
    /// 6: settle counts from the last possible send, not from the journal time.
    SettleFromLastSend,
    /// 6: absence is believed only from a complete enumeration.
    CompleteReads,
    /// 7: the key is still remembered when the last byte of the re-send may arrive.
    KeyOutlivesSend,
    /// 7: a finite memory needs a bound on arrival.
    FiniteKeyNeedsBound,
    /// 3: duplicates are accepted only where the contract chose so, and nothing else proves the outcome.
    DuplicatesByChoice,
    /// 7: a target that says that the ID is taken is read back: it may hold other content.
    ExistsIsRead,
    /// 6: an attempt under an age limit is dead when the target refuses it, and not before.
    FenceBeforeNew,
    /// 26: while the clocks disagree nothing that rests on time is believed.
    DriftSuspends,
    /// 9: other content under a known ID is a conflict.
    OneContent,
    /// 10: a failed check removes only the permission to send.
    ChecksOnlyForbid,
    /// 11: a journalled attempt of another epoch is maybe sent unless it was burned.
    TakeOverIsMaybe,
    /// 12: a completion leaves its buffer only after a confirmed commit.
    KeepCompletions,
    /// 13: hearsay counts only with the right token.
    HearsayNeedsToken,
    /// A webhook's word is about one attempt, and no reason to send again.
    WebhookIsNoWarrant,
    /// 14: a closed operation has no queued attempts.
    CloseBurns,
    /// 14: an end never changes.
    EndsStay,
    /// 14: evidence after the end is never silent.
    LateIsFlagged,
    /// 15: the next one starts when the one before it has ended.
    LaneInOrder,
    /// 15: the lane opens only when no old copy can arrive.
    QuietLane,
    /// 16: cancel never un-happens what may have left.
    CancelWaits,
    /// 16: only what provably happened is undone.
    UndoOnlyApplied,
    /// 16: a compensation starts when no copy of what it undoes can arrive any more.
    UndoWaits,
    /// 18: accepted for later is not an effect.
    AcceptedIsNotDone,
    /// 20: a command that overtakes its intent is held.
    HoldEarlyCommands,
    /// 21: "not applied" by one person only after settle.
    PersonAfterSettle,
    /// 22: the approval that was spent is asked again at each send.
    ApprovalAtSend,
    /// 23: closed records outlive every redelivery of their intent.
    RecordsOutliveIntents,
    /// After a restore open operations are gone on with.
    RestoreReopens,
    /// 24: what the target says about when to come again is obeyed.
    RetryAfter,
    /// 30: an unknown that stays so goes to a person.
    UnknownsEnd,
}

/// The facts behind every decision on one operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// What makes an effect confirmed.
    pub confirm: Confirm,
    /// Whether an applied answer is the effect at once.
    pub completion: Completion,
    /// How long after a send its webhook may come, where the target posts one.
    pub webhook: Option<Duration>,
    /// `R`, where the target drops a second request under a key.
    pub dedupe: Option<Retention>,
    /// Safety subtracted from a finite `R`.
    pub margin: Duration,
    /// `L`; `None` = unbounded.
    pub in_flight: Option<Duration>,
    /// `V`; `None` = there is no readback.
    pub lag: Option<Duration>,
    /// Nothing on the way repeats requests.
    pub no_intermediaries: bool,
    /// The resource's version is read before each send.
    pub version_read: bool,
    /// The target refuses every copy of a request but one, for ever.
    pub refuses_copies: bool,
    /// The target makes at most one thing under the operation's key, for ever.
    pub creates_once: bool,
    /// The target refuses an attempt beyond this age, counted from its record.
    pub max_age: Option<Duration>,
    /// What was cancelled too late is undone.
    pub compensates: bool,
    /// Duplicates are accepted and counted.
    pub duplicates: bool,
    /// What waits behind a parked operation.
    pub lane: LaneRule,
    /// Attempts per operation.
    pub attempts: usize,
    /// Readbacks per operation.
    pub readbacks: usize,
    /// A call's own limit.
    pub cut: Duration,
    /// From journal to first byte.
    pub window: Duration,
    /// After this an unknown is parked.
    pub unknown_max_age: Duration,
    /// `ε`: wall-clock error of a host.
    pub epsilon: Duration,
    /// `P`: longest pause between the last check and the write.
    pub pause: Duration,
    /// How long identities and closed records live beyond close or deadline.
    pub audit: Duration,
    /// The rule that a test has switched off.
    #[cfg(feature = "test-util")]
    pub weakened: Option<Rule>,
}

/// What a host is assumed to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assumptions {
    /// `ε`: wall-clock error of a host.
    pub epsilon: Duration,
    /// `P`: longest pause between the last check and the write.
    pub pause: Duration,
    /// How long identities and closed records live beyond close or deadline.
    pub audit: Duration,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self { epsilon: Duration::from_millis(500), pause: Duration::from_secs(2), audit: Duration::from_secs(30 * 86_400) }
    }
}

impl Rules {
    /// The facts of one call under these assumptions.
    pub fn of(call: &Call, host: Assumptions) -> Self {
        Self {
            confirm: call.confirm,
            completion: call.completion,
            webhook: call.webhook.as_ref().map(|w| w.within),
            dedupe: call.dedupe.as_ref().map(|d| d.retention),
            margin: Duration::from_secs(1),
            in_flight: call.in_flight.as_ref().map(|b| b.within),
            lag: call.readback.as_ref().map(|r| r.lag),
            no_intermediaries: call.no_intermediaries,
            version_read: call.precondition.is_some_and(|p| p.read),
            refuses_copies: call.refuses_copies(),
            creates_once: call.creates_once(),
            max_age: call.max_age(),
            compensates: call.compensate.is_some(),
            duplicates: call.proposal || call.unprovable == Unprovable::DuplicatesAccepted,
            lane: call.lane,
            attempts: (call.budget.attempts as usize).min(super::status::ATTEMPTS_KEPT),
            readbacks: call.budget.readbacks as usize,
            cut: call.budget.timeout,
            window: call.budget.window,
            unknown_max_age: call.budget.unknown_max_age,
            epsilon: host.epsilon,
            pause: host.pause,
            audit: host.audit,
            #[cfg(feature = "test-util")]
            weakened: None,
        }
    }

    /// For a record whose contract version is not loaded: nothing may be sent, nothing can be proven.
    pub fn unknown(host: Assumptions) -> Self {
        Self {
            confirm: Confirm::Readback,
            completion: Completion::Poll,
            webhook: None,
            dedupe: None,
            margin: Duration::ZERO,
            in_flight: None,
            lag: None,
            no_intermediaries: false,
            version_read: false,
            refuses_copies: false,
            creates_once: false,
            max_age: None,
            compensates: false,
            duplicates: false,
            lane: LaneRule::Block,
            attempts: 0,
            readbacks: 0,
            cut: Duration::ZERO,
            window: Duration::ZERO,
            unknown_max_age: Duration::MAX,
            epsilon: host.epsilon,
            pause: host.pause,
            audit: host.audit,
            #[cfg(feature = "test-util")]
            weakened: None,
        }
    }

    /// Whether a rule holds: always, but for the one that a test has switched off.
    pub fn hold(&self, rule: Rule) -> bool {
        #[cfg(feature = "test-util")]
        return self.weakened != Some(rule);
        #[cfg(not(feature = "test-util"))]
        {
            let _ = rule;
            true
        }
    }

    /// When absence may be believed: the last moment at which anything that may have left can still become visible. `None`
    /// where nothing bounds it.
    pub fn settle_at(&self, r: &LedgerRecord) -> Option<WallTime> {
        let lag = self.lag?;
        let mut at = WallTime(i64::MIN);
        for a in r.attempts.iter().filter(|a| a.state != AttemptState::Unsent) {
            at = at.max(self.dead_by(a)?.plus(lag.max(millis(a.lag_ms)) + 2 * self.epsilon));
        }
        Some(at)
    }

    /// Like `settle_at` but without the bound on arrival: what is visible must be visible by then.
    pub fn shown_at(&self, r: &LedgerRecord) -> WallTime {
        let lag = self.lag.unwrap_or_default();
        let of = |a: &Attempt| self.sent_by(a).plus(lag.max(millis(a.lag_ms)) + 2 * self.epsilon);
        r.attempts.iter().filter(|a| a.state != AttemptState::Unsent).map(of).max().unwrap_or(WallTime(i64::MIN))
    }

    /// The last moment, but for clock errors, at which an attempt that may have left can still take effect: its arrival is bounded,
    /// or the target refuses it from then on. `None` where neither holds.
    fn dead_by(&self, a: &Attempt) -> Option<WallTime> {
        let bound = a.in_flight_ms.zip(self.in_flight);
        let arrived = bound.map(|(then, now)| self.sent_by(a).plus(millis(then).max(now)));
        let refused =
            self.max_age.map(|age| a.journalled_at.plus(if self.hold(Rule::FenceBeforeNew) { age } else { Duration::ZERO }));
        arrived.into_iter().chain(refused).min()
    }

    fn sent_by(&self, a: &Attempt) -> WallTime {
        if self.hold(Rule::SettleFromLastSend) { a.last_possible_send() } else { a.journalled_at }
    }

    /// Whether the key is still remembered whenever a send journalled now can arrive (rule 7).
    pub fn key_holds(&self, r: &LedgerRecord, now: WallTime) -> bool {
        let (Some(retention), Some(first)) = (self.dedupe, r.attempts.first()) else { return false };
        let Retention::For(memory) = retention else { return true };
        let bound = match self.in_flight {
            Some(bound) => bound,
            None if self.hold(Rule::FiniteKeyNeedsBound) => return false,
            None => Duration::ZERO,
        };
        let bound = r.attempts.iter().filter_map(|a| a.in_flight_ms).map(millis).fold(bound, Duration::max);
        let tail = if self.hold(Rule::KeyOutlivesSend) { self.window + self.cut + self.pause + bound } else { Duration::ZERO };
        now.plus(tail + 2 * self.epsilon + self.margin) <= first.journalled_at.plus(memory)
    }

    /// When the lane behind an ended operation opens: for targets without key memory not before the last copy of anything
    /// that may have left has arrived. `None` = only by a person.
    pub fn lane_opens_at(&self, r: &LedgerRecord) -> Option<WallTime> {
        let open = Some(WallTime(i64::MIN));
        // What is undone may leave its ID free, so that a late copy makes it anew.
        let stays = r.end != Some(Status::Superseded);
        let taken = stays && (r.any(AttemptState::Applied) || r.seen != super::status::Seen::Nothing);
        let refused = self.refuses_copies || (self.creates_once && taken);
        // Where nothing bounds arrival and duplicates are accepted, waiting would prove nothing to anybody.
        let loose = stays && self.duplicates && self.in_flight.is_none() && self.max_age.is_none();
        if self.dedupe.is_some() || refused || loose || !self.hold(Rule::QuietLane) {
            return open;
        }
        let may_arrive = |a: &&Attempt| {
            matches!(
                a.state,
                AttemptState::Maybe | AttemptState::InProgress | AttemptState::SettledAbsent | AttemptState::Journaled
            )
        };
        let left: Vec<_> = r.attempts.iter().filter(may_arrive).collect();
        // What is there may be of another attempt that was answered.
        let its_own = left.len() == 1 && !r.any(AttemptState::Applied);
        let arrived = self.no_intermediaries && its_own && r.seen == super::status::Seen::Present;
        if left.is_empty() || arrived {
            return open;
        }
        let mut at = WallTime(i64::MIN);
        for a in left {
            at = at.max(self.dead_by(a)?.plus(2 * self.epsilon));
        }
        Some(at)
    }

    /// Until when the target may tell by itself what became of attempts that may have left.
    pub fn told_by(&self, r: &LedgerRecord) -> Option<WallTime> {
        let within = self.webhook?;
        let waits = r.attempts.iter().filter(|a| matches!(a.state, AttemptState::Maybe | AttemptState::InProgress));
        waits.map(|a| a.last_possible_send().plus(within)).max()
    }

    /// When a record may be deleted.
    pub fn forget_at(&self, r: &LedgerRecord) -> WallTime {
        let closed = r.closed_at.unwrap_or(r.deadline);
        let last = if self.hold(Rule::RecordsOutliveIntents) { closed.max(r.deadline) } else { closed };
        last.plus(self.audit + 2 * self.epsilon)
    }
}
