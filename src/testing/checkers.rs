//! Checkers that look only at what anybody can see: results as they stand on the topic, and the target's books. Pure; they know
//! nothing of how the stage works, so they cannot share its mistakes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ids::{OperationId, OrderingKey, StepName, Tenant, WireKey};
use crate::intents::{AckLevel, ResultKind, ResultRecord, Status};
use crate::time::WallTime;

pub use super::shop::BookEntry;

/// An operation as results name it.
pub type OpKey = (Tenant, OperationId);

/// A result as it was read, in the order of its partition.
#[derive(Clone, PartialEq, Debug)]
pub struct Seen {
    /// Its `ce_id`, where the header was there.
    pub ce_id: Option<String>,
    /// The record.
    pub record: ResultRecord,
}

/// An intent as far as the books can know it. Of kind `effect` only: a proposal leaves nothing at the target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Intended {
    /// Whose effect.
    pub operation: OpKey,
    /// The key that goes with it.
    pub wire_key: WireKey,
    /// The digest of its content as the books have it, where that is known.
    pub digest: Option<String>,
    /// What orders it among others.
    pub lane: OrderingKey,
}

/// What is not as it was promised.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Violation {
    /// A version does not rise.
    VersionNotRising {
        /// Which operation.
        op: OpKey,
        /// The version before.
        before: i64,
        /// This one.
        then: i64,
    },
    /// A state without a version.
    NoVersion(OpKey),
    /// Something other than a flag follows an end.
    AfterEnd {
        /// Which operation.
        op: OpKey,
        /// Its end.
        end: Status,
        /// What followed.
        then: Status,
    },
    /// A `ce_id` of another form than its kind has.
    BadId {
        /// Which operation.
        op: OpKey,
        /// What it says.
        ce_id: String,
    },
    /// Two states under one `ce_id`.
    IdTwice(String),
    /// A status with an ack level that cannot carry it.
    AckTooLow(OpKey),
    /// More than one effect.
    Doubled {
        /// Which operation.
        op: OpKey,
        /// How many effects.
        effects: usize,
    },
    /// An effect of another content than was intended.
    OtherContent(OpKey),
    /// Called confirmed, and the books have nothing.
    ConfirmedButAbsent(OpKey),
    /// Called ended without effect, and the books have one.
    AbsentButPresent {
        /// Which operation.
        op: OpKey,
        /// Its end.
        end: Status,
    },
    /// An effect that nobody intended.
    Stray(WireKey),
    /// An effect that came to be before one that was intended earlier in its lane.
    OutOfOrder {
        /// The earlier one.
        first: OpKey,
        /// Who overtook it.
        then: OpKey,
    },
    /// Asked for, and nothing was ever said.
    Unheard(OpKey),
    /// Neither an end nor a person: what it was last.
    Lost {
        /// Which operation.
        op: OpKey,
        /// Its last status.
        last: Status,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Everything below, in one: the verdict over a run that has come to rest.
pub fn judge(requested: &[OpKey], results: &[Seen], intents: &[Intended], books: &[BookEntry]) -> Vec<Violation> {
    let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
    let mut found = histories(&records);
    found.extend(ids(results));
    found.extend(effects(&records, intents, books));
    found.extend(order(intents, books));
    found.extend(lost(requested, &records));
    found
}

/// Versions rise strictly, and nothing follows an end but flags on the same state, one version on.
pub fn histories(results: &[&ResultRecord]) -> Vec<Violation> {
    let mut found = Vec::new();
    for ((tenant, operation, _), states) in by_step(results) {
        let op = (tenant, operation);
        found.extend(states.iter().filter(|r| r.version.is_none()).map(|_| Violation::NoVersion(op.clone())));
        found.extend(states.iter().filter(|r| too_low(r)).map(|_| Violation::AckTooLow(op.clone())));
        for pair in states.windows(2) {
            let (Some(before), Some(then)) = (pair[0].version, pair[1].version) else { continue };
            if then <= before {
                found.push(Violation::VersionNotRising { op: op.clone(), before, then });
            }
            let flag_only = pair[1].status == pair[0].status && pair[1].flags.len() > pair[0].flags.len() && then == before + 1;
            if pair[0].status.is_end() && !flag_only {
                found.push(Violation::AfterEnd { op: op.clone(), end: pair[0].status, then: pair[1].status });
            }
        }
    }
    found
}

fn too_low(r: &ResultRecord) -> bool {
    r.status == Status::Confirmed && r.ack_level < AckLevel::Answered
}

/// State records of each operation and step; those from before there is a step belong to every one.
fn by_step<'a>(results: &[&'a ResultRecord]) -> BTreeMap<(Tenant, OperationId, Option<StepName>), Vec<&'a ResultRecord>> {
    let states = results.iter().filter(|r| r.kind == ResultKind::State);
    let mut steps: BTreeMap<OpKey, BTreeSet<StepName>> = BTreeMap::new();
    for r in states.clone() {
        steps.entry(key(r)).or_default().extend(r.step.clone());
    }
    let mut grouped: BTreeMap<_, Vec<&'a ResultRecord>> = BTreeMap::new();
    for r in states {
        let of = &steps[&key(r)];
        let belongs: Vec<Option<StepName>> = match &r.step {
            None if of.is_empty() => vec![None],
            None => of.iter().cloned().map(Some).collect(),
            Some(step) => vec![Some(step.clone())],
        };
        for step in belongs {
            grouped.entry((r.tenant.clone(), r.operation_id.clone(), step)).or_default().push(r);
        }
    }
    grouped
}

fn key(r: &ResultRecord) -> OpKey {
    (r.tenant.clone(), r.operation_id.clone())
}

/// Every `ce_id` has the form of its kind, and no two states share one.
pub fn ids(results: &[Seen]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut states = BTreeSet::new();
    for seen in results {
        let ce_id = seen.ce_id.clone().unwrap_or_default();
        if !well_formed(&ce_id, &seen.record) {
            found.push(Violation::BadId { op: key(&seen.record), ce_id: ce_id.clone() });
        }
        if seen.record.kind == ResultKind::State
            && !states.insert((seen.record.tenant.clone(), seen.record.step.clone(), ce_id.clone()))
        {
            found.push(Violation::IdTwice(ce_id));
        }
    }
    found
}

/// `<op>/<hash prefix>/<version>`, `<op>/<version>/<answered id>`, `<op>/m/<message>`, `<op>/orphan/<token>`.
fn well_formed(ce_id: &str, r: &ResultRecord) -> bool {
    let Some(rest) = ce_id.strip_prefix(r.operation_id.as_str()).and_then(|s| s.strip_prefix('/')) else { return false };
    let Some((middle, last)) = rest.split_once('/') else { return false };
    let version = r.version.map(|v| v.to_string());
    match r.kind {
        ResultKind::State => {
            let hash = r.identity_hash.as_ref().map_or("", |h| h.as_str());
            !middle.is_empty() && hash.starts_with(middle) && version.as_deref() == Some(last)
        }
        ResultKind::Answer => version.as_deref() == Some(middle) && r.answers.as_deref() == Some(last),
        ResultKind::Message => middle == "m" && !last.is_empty() && r.version.is_none(),
        ResultKind::OrphanHearsay => middle == "orphan" && !last.is_empty() && r.version.is_none(),
    }
}

/// At most one effect per operation, the outcome as the books have it, and no effect that nobody intended.
pub fn effects(results: &[&ResultRecord], intents: &[Intended], books: &[BookEntry]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut held: BTreeMap<&WireKey, Vec<&BookEntry>> = BTreeMap::new();
    for entry in books {
        held.entry(&entry.wire_key).or_default().push(entry);
    }
    let ends = last_states(results);
    let mut known = BTreeSet::new();
    for intent in intents {
        if !known.insert(&intent.wire_key) {
            continue; // The same intent, read twice.
        }
        let (op, effects) = (intent.operation.clone(), held.get(&intent.wire_key).map_or(0, Vec::len));
        if effects > 1 {
            found.push(Violation::Doubled { op: op.clone(), effects });
        }
        let other = |e: &&BookEntry| intent.digest.as_ref().is_some_and(|d| *d != e.digest);
        if held.get(&intent.wire_key).into_iter().flatten().any(other) {
            found.push(Violation::OtherContent(op.clone()));
        }
        match ends.get(&op).map(|r| r.status) {
            Some(Status::Confirmed | Status::Superseded) if effects == 0 => found.push(Violation::ConfirmedButAbsent(op)),
            Some(end) if effects > 0 && says_absent(end) => found.push(Violation::AbsentButPresent { op, end }),
            _ => {}
        }
    }
    found.extend(held.keys().filter(|k| !known.contains(*k)).map(|k| Violation::Stray((*k).clone())));
    let without = ends
        .iter()
        .filter(|(op, r)| says_present(r.status) && !op.1.is_derived() && !intents.iter().any(|i| same_root(&i.operation, op)));
    found.extend(without.map(|(op, _)| Violation::ConfirmedButAbsent(op.clone())));
    found
}

/// Effects of one lane come to be in the order of their intents, which is that of the outbox.
pub fn order(intents: &[Intended], books: &[BookEntry]) -> Vec<Violation> {
    let mut latest: BTreeMap<&OrderingKey, (WallTime, &OpKey)> = BTreeMap::new();
    let mut found = Vec::new();
    for intent in intents {
        let of = || books.iter().filter(|b| b.wire_key == intent.wire_key).map(|b| b.applied_at);
        let (Some(first), Some(last)) = (of().min(), of().max()) else { continue };
        let overtaken = latest.get(&intent.lane).filter(|(at, op)| *at > first && **op != intent.operation);
        found.extend(overtaken.map(|(_, op)| Violation::OutOfOrder { first: (*op).clone(), then: intent.operation.clone() }));
        latest.insert(&intent.lane, (last, &intent.operation));
    }
    found
}

/// An operation that was lowered onto children has its effects under their IDs.
fn same_root(a: &OpKey, b: &OpKey) -> bool {
    a.0 == b.0 && a.1.root() == b.1.root()
}

fn says_present(status: Status) -> bool {
    matches!(status, Status::Confirmed | Status::Superseded)
}

/// Ends that say: there is no effect. A person's word is not checked, and an unknown or parked one may be either.
fn says_absent(status: Status) -> bool {
    matches!(
        status,
        Status::Refused
            | Status::Denied
            | Status::Expired
            | Status::Cancelled
            | Status::PlanFailed
            | Status::Stale
            | Status::Throttled
    )
}

/// The last state of each operation.
pub fn last_states<'a>(results: &[&'a ResultRecord]) -> BTreeMap<OpKey, &'a ResultRecord> {
    results.iter().filter(|r| r.kind == ResultKind::State).map(|r| (key(r), *r)).collect()
}

/// Every request was answered somehow, and every operation that was taken has an end or waits for a person.
pub fn lost(requested: &[OpKey], results: &[&ResultRecord]) -> Vec<Violation> {
    let heard: BTreeSet<OpKey> = results.iter().map(|r| key(r)).collect();
    let unheard = requested.iter().filter(|op| !heard.contains(*op)).cloned().map(Violation::Unheard);
    let last = last_states(results);
    let parked = |op: &OpKey| last.get(op).is_some_and(|r| r.status == Status::Parked);
    let with_a_person = |op: &OpKey, r: &ResultRecord| {
        let calls = r.calls.iter().flatten();
        let mut undone = r.undo.iter().flatten();
        parked(op)
            || undone.any(|u| parked(&(op.0.clone(), u.operation_id.clone())))
            || calls.filter(|c| c.end.is_none()).any(|c| parked(&(op.0.clone(), c.operation_id.clone())))
    };
    let open = last.iter().filter(|(op, r)| !r.status.is_end() && !with_a_person(op, r)).map(|(op, r)| (op.clone(), *r));
    unheard.chain(open.map(|(op, r)| Violation::Lost { op, last: r.status })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::IdentityHash;
    use crate::intents::Flag;

    fn state(status: Status, version: i64) -> ResultRecord {
        ResultRecord {
            kind: ResultKind::State,
            tenant: "acme".into(),
            operation_id: "op-1".into(),
            step: Some("place".into()),
            resource: None,
            status,
            ack_level: AckLevel::Confirmed,
            version: Some(version),
            identity_hash: Some(IdentityHash::new("abcdef")),
            code: None,
            detail: None,
            flags: Vec::new(),
            attempts: 1,
            evidence: None,
            reference: None,
            plan_hash: None,
            calls: None,
            answers: None,
            at: WallTime(0),
            undo: None,
        }
    }

    fn seen(record: ResultRecord, ce_id: &str) -> Seen {
        Seen { ce_id: Some(ce_id.to_owned()), record }
    }

    fn op() -> OpKey {
        ("acme".into(), "op-1".into())
    }

    fn intended() -> Vec<Intended> {
        vec![Intended { operation: op(), wire_key: "k1".into(), digest: None, lane: "a".into() }]
    }

    fn book(key: &str) -> BookEntry {
        BookEntry { wire_key: key.into(), digest: "d".into(), applied_at: WallTime(0) }
    }

    /// If this broke, a clean run would be called broken, and nobody would believe the checkers.
    #[test]
    fn a_clean_run_has_no_violations() {
        let mut accepted = state(Status::Accepted, 1);
        (accepted.step, accepted.ack_level) = (None, AckLevel::Accepted);
        let mut flagged = state(Status::Confirmed, 4);
        flagged.flags = vec![Flag::CancelTooLate];
        let mut answer = state(Status::Confirmed, 4);
        (answer.kind, answer.answers) = (ResultKind::Answer, Some("m-2".into()));
        let results = [
            seen(accepted, "op-1/abc/1"),
            seen(state(Status::Dispatched, 2), "op-1/abc/2"),
            seen(state(Status::Confirmed, 3), "op-1/abc/3"),
            seen(flagged, "op-1/abc/4"),
            seen(answer, "op-1/4/m-2"),
        ];
        assert_eq!(judge(&[op()], &results, &intended(), &[book("k1")]), []);
    }

    /// If this broke, a reader could see an operation go back, or change after its end, and no run would tell.
    #[test]
    fn histories_that_turn_back_are_found() {
        let falling = [state(Status::Dispatched, 3), state(Status::Unknown, 3)];
        let changed = [state(Status::Refused, 3), state(Status::Confirmed, 4)];
        let repeated = [state(Status::Refused, 3), state(Status::Refused, 4)];
        let all = |r: &[ResultRecord]| histories(&r.iter().collect::<Vec<_>>());
        assert_eq!(all(&falling), [Violation::VersionNotRising { op: op(), before: 3, then: 3 }]);
        assert_eq!(all(&changed), [Violation::AfterEnd { op: op(), end: Status::Refused, then: Status::Confirmed }]);
        assert_eq!(all(&repeated).len(), 1, "an end said twice is a second event for whoever reads it");
    }

    /// If this broke, the version of a record from before the step would not count, and a hand-over could go back unseen.
    #[test]
    fn records_without_a_step_belong_to_the_steps_history() {
        let mut early = state(Status::Accepted, 5);
        early.step = None;
        let late = state(Status::Dispatched, 2);
        assert_eq!(histories(&[&early, &late]).len(), 1);
    }

    /// If this broke, consumers that drop repeated CloudEvents by id would drop news, or see one change twice.
    #[test]
    fn wrong_ids_are_found() {
        for wrong in ["", "op-1", "op-2/abc/1", "op-1/xyz/1", "op-1/abc/2", "op-1//1"] {
            assert_eq!(ids(&[seen(state(Status::Accepted, 1), wrong)]).len(), 1, "{wrong}");
        }
        let twice = [seen(state(Status::Accepted, 1), "op-1/abc/1"), seen(state(Status::Accepted, 1), "op-1/abc/1")];
        assert_eq!(ids(&twice), [Violation::IdTwice("op-1/abc/1".into())]);
    }

    /// If this broke, a doubled, missing, denied-but-present or foreign effect would pass as clean.
    #[test]
    fn books_that_disagree_are_found() {
        let check = |status, books: &[BookEntry]| effects(&[&state(status, 3)], &intended(), books);
        assert_eq!(check(Status::Confirmed, &[book("k1"), book("k1")]), [Violation::Doubled { op: op(), effects: 2 }]);
        assert_eq!(check(Status::Confirmed, &[]), [Violation::ConfirmedButAbsent(op())]);
        for end in [Status::Refused, Status::Denied, Status::Expired, Status::Cancelled] {
            assert_eq!(check(end, &[book("k1")]), [Violation::AbsentButPresent { op: op(), end }]);
            assert_eq!(check(end, &[]), []);
        }
        assert_eq!(check(Status::Parked, &[book("k1")]), [], "a parked one may be either");
        assert_eq!(check(Status::Refused, &[book("k9")]), [Violation::Stray("k9".into())]);
        assert_eq!(effects(&[&state(Status::Confirmed, 3)], &[], &[]), [Violation::ConfirmedButAbsent(op())]);
    }

    /// C16: if this broke, effects could overtake each other in their lane, and no run would tell.
    #[test]
    fn effects_out_of_order_are_found() {
        let next = |lane: &str| Intended {
            operation: ("acme".into(), "op-2".into()),
            wire_key: "k2".into(),
            lane: lane.into(),
            digest: None,
        };
        let at = |key: &str, at: i64| BookEntry { applied_at: WallTime(at), ..book(key) };
        let both = |lane: &str| vec![intended().remove(0), next(lane)];
        assert_eq!(order(&both("a"), &[at("k1", 5), at("k2", 6)]), []);
        assert_eq!(order(&both("b"), &[at("k1", 5), at("k2", 4)]), [], "lanes know nothing of each other");
        assert_eq!(order(&both("a"), &[at("k1", 5), at("k2", 4)]).len(), 1);
        assert_eq!(order(&both("a"), &[at("k1", 3), at("k2", 4), at("k1", 5)]).len(), 1, "an old copy comes after its successor");
    }

    /// If this broke, an operation could vanish without an end, and "lost 0" would be empty words.
    #[test]
    fn the_lost_are_found() {
        assert_eq!(lost(&[op()], &[]), [Violation::Unheard(op())]);
        assert_eq!(lost(&[op()], &[&state(Status::Unknown, 3)]), [Violation::Lost { op: op(), last: Status::Unknown }]);
        assert_eq!(lost(&[op()], &[&state(Status::Parked, 3)]), []);
    }
}
