//! Why an earlier attempt can't make a re-send a second effect: one warrant for each, or no re-send. Pure.

use crate::time::WallTime;

use super::attempt::{Attempt, AttemptState, Warrant, WarrantKind};
use super::decide::Facts;
use super::rules::{Rule, Rules};
use super::status::LedgerRecord;

/// What is proven of one attempt by itself.
pub(super) fn proof(a: &Attempt, rules: &Rules) -> Option<WarrantKind> {
    match a.state {
        AttemptState::Unsent => Some(WarrantKind::Unsent),
        AttemptState::RetryLater => Some(WarrantKind::RejectedEarly),
        // What could still arrive is refused by the target, whatever bounds its arrival.
        AttemptState::SettledAbsent if rules.max_age.is_some() => Some(WarrantKind::TargetFence),
        AttemptState::SettledAbsent => Some(WarrantKind::SettledAbsent),
        _ => None,
    }
}

/// A warrant for every earlier attempt, or none at all.
pub fn cover_all(r: &LedgerRecord, f: &Facts, rules: &Rules, now: WallTime) -> Option<Vec<Warrant>> {
    let drift = drifting(f, rules);
    let keyed = !drift && rules.key_holds(r, now);
    let fenced = !drift && (rules.refuses_copies || rules.creates_once);
    let accepted = (rules.duplicates && useless(r, rules)) || !rules.hold(Rule::DuplicatesByChoice);
    let cover = |a: &Attempt| {
        let kind = match a.state {
            AttemptState::Maybe | AttemptState::InProgress if keyed => Some(WarrantKind::Dedupe),
            AttemptState::Maybe | AttemptState::InProgress if fenced => Some(WarrantKind::TargetFence),
            AttemptState::Maybe | AttemptState::InProgress if accepted => Some(WarrantKind::DuplicatesAccepted),
            _ => proof(a, rules),
        };
        kind.map(|kind| Warrant { covers: a.n, kind, by: None })
    };
    r.attempts.iter().map(cover).collect()
}

/// Whether clocks disagree so that nothing that rests on time is believed (rule 26).
pub(super) fn drifting(f: &Facts, rules: &Rules) -> bool {
    f.drift && rules.hold(Rule::DriftSuspends)
}

/// Whether reading can prove nothing more: there is no readback, its budget is used, or what is absent may still arrive.
pub(super) fn useless(r: &LedgerRecord, rules: &Rules) -> bool {
    if rules.lag.is_none() {
        return true;
    }
    let settle = rules.settle_at(r);
    let absent = settle.is_none() && r.absent_at.is_some_and(|at| at >= rules.shown_at(r));
    absent || exhausted(r, rules, settle)
}

/// Whether the budget of readbacks is used. It never ends before the first read that may be believed.
pub(super) fn exhausted(r: &LedgerRecord, rules: &Rules, settle: Option<WallTime>) -> bool {
    let last = settle.unwrap_or_else(|| rules.shown_at(r));
    used(r, rules) && r.last_reads.iter().any(|read| read.at >= last)
}

/// Whether as many readbacks were started as the contract allows.
pub(super) fn used(r: &LedgerRecord, rules: &Rules) -> bool {
    usize::try_from(r.reads).unwrap_or(usize::MAX) >= rules.readbacks
}
