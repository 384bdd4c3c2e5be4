//! What is watched of the effect stage: names from [`events`], labels bounded (targets come from contracts, never from records).

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::error::{Error, Fault, Result, codes};
use crate::events::{self, Metric, Tenants};
use crate::http::{Answer, Finished, Wire};
use crate::intents::{AnswerClass, Flag, IntentKind, Status};
use crate::time::WallTime;

use super::attempt::WarrantKind;
use super::fold::Verdict;
use super::status::LedgerRecord;

/// All effect metrics of a process; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    attempts: IntCounterVec,
    readbacks: IntCounterVec,
    warrants: IntCounterVec,
    ends: IntCounterVec,
    flags: IntCounterVec,
    operations: IntGaugeVec,
    oldest_unknown: IntGaugeVec,
    running: IntGaugeVec,
    limit: IntGaugeVec,
    closed: IntCounterVec,
    seconds: HistogramVec,
    service: HistogramVec,
    tenants: Tenants,
    breaker: IntGaugeVec,
    remaining: IntGaugeVec,
}

impl Metrics {
    /// Makes the metrics and registers them; these tenants are told apart. A name that is registered already is an error.
    pub fn new(registry: &Registry, tenants: Tenants) -> Result<Self> {
        Self::made(registry, tenants).map_err(|e| Error::new(codes::BUG, Fault::Bug, "registering the effects' metrics").because(e))
    }

    fn made(registry: &Registry, tenants: Tenants) -> prometheus::Result<Self> {
        let counter = |m: Metric| {
            let made = IntCounterVec::new(Opts::new(m.name, m.help), m.labels)?;
            registry.register(Box::new(made.clone())).map(|()| made)
        };
        let gauge = |m: Metric| {
            let made = IntGaugeVec::new(Opts::new(m.name, m.help), m.labels)?;
            registry.register(Box::new(made.clone())).map(|()| made)
        };
        let histogram = |m: Metric| {
            let buckets = vec![0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1_000.0];
            let made = HistogramVec::new(HistogramOpts::new(m.name, m.help).buckets(buckets), m.labels)?;
            registry.register(Box::new(made.clone())).map(|()| made)
        };
        Ok(Self {
            tenants,
            seconds: histogram(events::TARGET_SECONDS)?,
            service: histogram(events::SERVICE_SECONDS)?,
            breaker: gauge(events::TARGET_BREAKER)?,
            remaining: gauge(events::TARGET_REMAINING)?,
            attempts: counter(events::EFFECTS_ATTEMPTS)?,
            readbacks: counter(events::EFFECTS_READBACKS)?,
            warrants: counter(events::EFFECTS_WARRANTS)?,
            ends: counter(events::EFFECTS_ENDS)?,
            flags: counter(events::EFFECTS_FLAGS)?,
            operations: gauge(events::EFFECTS_OPERATIONS)?,
            oldest_unknown: gauge(events::OLDEST_UNKNOWN)?,
            running: gauge(events::TARGET_CALLS)?,
            limit: gauge(events::TARGET_LIMIT)?,
            closed: counter(events::TARGET_CLOSED)?,
        })
    }

    /// A call came out.
    pub(super) fn answered(&self, target: &str, class: AnswerClass) {
        self.attempts.with_label_values(&[target, answer_word(class)]).inc();
    }

    /// An exchange with a target is over: `of` is `call` or `read`.
    pub(super) fn exchanged(&self, target: &str, of: &str, f: &Finished) {
        let Wire::Answered(answer) = &f.wire else { return };
        self.seconds.with_label_values(&[target, of]).observe(f.ended.since(f.began).as_secs_f64());
        for (of, left) in remaining(answer) {
            self.remaining.with_label_values(&[target, of]).set(left);
        }
    }

    /// The breaker of a target is open, or closed again.
    pub(super) fn breaker(&self, target: &str, open: bool) {
        self.breaker.with_label_values(&[target]).set(i64::from(open));
    }

    /// A readback came out.
    pub(super) fn read(&self, target: &str, verdict: &Verdict) {
        self.readbacks.with_label_values(&[target, verdict_word(verdict)]).inc();
    }

    /// A re-send was journalled under a warrant.
    pub(super) fn warranted(&self, target: &str, kind: WarrantKind) {
        let word = match kind {
            WarrantKind::Unsent => "unsent",
            WarrantKind::RejectedEarly => "rejected_early",
            WarrantKind::Dedupe => "dedupe",
            WarrantKind::TargetFence => "target_fence",
            WarrantKind::SettledAbsent => "settled_absent",
            WarrantKind::Operator => "operator",
            WarrantKind::DuplicatesAccepted => "duplicates_accepted",
        };
        self.warrants.with_label_values(&[target, word]).inc();
    }

    /// An operation ended.
    pub(super) fn ended(&self, r: &LedgerRecord, now: WallTime) {
        self.ends.with_label_values(&[r.shown().word()]).inc();
        let Some(first) = r.attempts.first() else { return };
        let of = match r.kind {
            IntentKind::Effect => "effect",
            IntentKind::Proposal => "proposal",
        };
        let labels = [r.step.as_str(), self.tenants.label(r.tenant.as_str()), of];
        self.service.with_label_values(&labels).observe(now.since(first.journalled_at).as_secs_f64());
    }

    /// Something that must not pass silently.
    pub(super) fn flagged(&self, target: &str, flag: Flag) {
        let word = match flag {
            Flag::DuplicateSuspected => "duplicate_suspected",
            Flag::Contradiction => "contradiction",
            Flag::CancelTooLate => "cancel_too_late",
        };
        self.flags.with_label_values(&[target, word]).inc();
    }

    /// How many operations of a partition and target stand where.
    pub(super) fn standing(&self, partition: &str, target: &str, status: Status, count: i64) {
        self.operations.with_label_values(&[partition, target, status.word()]).set(count);
    }

    /// Since when the oldest unknown operation of a partition and target is unknown.
    pub(super) fn oldest_unknown(&self, partition: &str, target: &str, since: Option<WallTime>) {
        let labels = [partition, target];
        match since {
            Some(since) => self.oldest_unknown.with_label_values(&labels).set(since.0 / 1000),
            // Refused where it was never set: then it is not there either way.
            None => drop(self.oldest_unknown.remove_label_values(&labels)),
        }
    }

    /// How many calls to a target are under way, of how many.
    pub(super) fn calls(&self, target: &str, running: usize, limit: usize) {
        self.running.with_label_values(&[target]).set(running as i64);
        self.limit.with_label_values(&[target]).set(limit as i64);
    }

    /// Calls to a target are deferred.
    pub(super) fn closed(&self, target: &str, why: &str) {
        self.closed.with_label_values(&[target, why]).inc();
    }
}

/// An answer's class as labels and spans have it.
pub(super) fn answer_word(class: AnswerClass) -> &'static str {
    match class {
        AnswerClass::Applied => "applied",
        AnswerClass::NotApplied => "not_applied",
        AnswerClass::InProgress => "in_progress",
        AnswerClass::KeyConflict => "key_conflict",
        AnswerClass::PreconditionFailed => "precondition_failed",
        AnswerClass::Rejected => "rejected",
        AnswerClass::RetryLater => "retry_later",
        AnswerClass::Unknown => "unknown",
        AnswerClass::NotSent => "not_sent",
        AnswerClass::MaybeSent => "maybe_sent",
    }
}

/// What a readback showed, likewise.
pub(super) fn verdict_word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Absent => "absent",
        Verdict::One { .. } => "present",
        Verdict::Two => "two",
        Verdict::OtherContent => "other_content",
        Verdict::Incomplete(_) => "inconclusive",
    }
}

/// What an answer says is left of the target's limit: the draft's `RateLimit` (`"default";r=50;t=30`) and the headers that were there
/// before it.
fn remaining(answer: &Answer) -> impl Iterator<Item = (&'static str, i64)> {
    const PLAIN: [(&str, &str); 5] = [
        ("ratelimit-remaining", "requests"),
        ("x-ratelimit-remaining", "requests"),
        ("x-ratelimit-remaining-requests", "requests"),
        ("x-ratelimit-remaining-tokens", "tokens"),
        ("anthropic-ratelimit-tokens-remaining", "tokens"),
    ];
    let plain = PLAIN.into_iter().filter_map(|(name, of)| Some((of, answer.header(name)?.trim().parse().ok()?)));
    let draft =
        answer.header("ratelimit").and_then(|text| text.split([';', ',']).find_map(|p| p.trim().strip_prefix("r=")?.parse().ok()));
    plain.chain(draft.map(|left| ("requests", left))).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, nobody would see that a target's limit is nearly used up before it refuses calls.
    #[test]
    fn what_a_target_says_is_left_is_read() {
        let of = |name: &str, value: &str| {
            let headers = vec![(name.to_owned(), value.to_owned())];
            remaining(&Answer { status: 200, headers, body: Default::default() }).collect::<Vec<_>>()
        };
        assert_eq!(of("ratelimit", "\"default\";r=50;t=30"), [("requests", 50)]);
        assert_eq!(of("ratelimit", "limit=100, r=7"), [("requests", 7)]);
        assert_eq!(of("x-ratelimit-remaining-tokens", " 1200 "), [("tokens", 1200)]);
        assert_eq!(of("x-ratelimit-remaining", "plenty"), []);
        assert_eq!(of("retry-after", "3"), []);
    }
}
