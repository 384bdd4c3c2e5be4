//! Names, labels and help of every metric, in one list. Labels are bounded: units, slots, topics, classes; never keys or tenants
//! that come from records.

/// How a metric behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Goes both ways.
    Gauge,
    /// A distribution.
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its full name, with unit and `_total` as Prometheus has it.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its label names.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub help: &'static str,
}

macro_rules! metrics {
    ($(#[$doc:meta])* $list:ident: $($name:ident = $kind:ident $text:literal [$($label:literal),*] $help:literal;)*) => {
        $(#[doc = $help] pub const $name: Metric =
            Metric { name: $text, kind: Kind::$kind, labels: &[$($label),*], help: $help };)*
        $(#[$doc])*
        pub const $list: &[Metric] = &[$($name),*];
    };
}

metrics! {
    /// What stream threads record.
    RUNTIME:
    TASKS = Gauge "readback_tasks" ["unit", "slot"] "Tasks that run on a stream thread.";
    RECORDS_READ = Counter "readback_records_read_total" ["unit", "slot"] "Records handed to tasks.";
    RECORDS_WRITTEN = Counter "readback_records_written_total" ["unit", "slot"] "Records put into transactions, changelogs included.";
    COMMITS = Counter "readback_commits_total" ["unit", "slot"] "Transactions committed.";
    ABORTS = Counter "readback_aborts_total" ["unit", "slot", "class"] "Transactions taken back, by the class of what went wrong.";
    COMMIT_SECONDS = Histogram "readback_commit_seconds" ["unit", "slot"] "Time from the flush to the end of a commit.";
    OPEN_SECONDS = Gauge "readback_transaction_open_seconds" ["unit", "slot"] "Age of the open transaction; 0 without one.";
    REBUILDS = Counter "readback_producer_rebuilds_total" ["unit", "slot", "class"] "Producers made anew under the same transactional id.";
    BLOCKED = Counter "readback_offsets_blocked_total" ["unit", "slot"] "Reads of committed offsets that an open transaction blocked.";
    RESTORED = Counter "readback_restored_records_total" ["unit", "slot"] "Changelog records applied to local stores.";
    REBALANCES = Counter "readback_rebalances_total" ["unit", "slot", "event"] "Assignments, revocations and losses of partitions.";
    DROPPED = Counter "readback_records_dropped_total" ["unit", "step", "reason"] "Records that a step gave up: late for every window, or without key or value.";
    BEHIND = Gauge "readback_input_behind_offsets" ["unit", "topic", "partition"] "Offsets between reading and the end of the last fetch.";
}

metrics! {
    /// What the effect stage records.
    EFFECTS:
    EFFECTS_ATTEMPTS = Counter "readback_effects_attempts_total" ["target", "answer"] "Calls that came out, by how the answer read.";
    EFFECTS_READBACKS = Counter "readback_effects_readbacks_total" ["target", "found"] "Readbacks, by what they showed.";
    EFFECTS_WARRANTS = Counter "readback_effects_warrants_total" ["kind"] "Warrants under which earlier attempts allowed a re-send.";
    EFFECTS_ENDS = Counter "readback_effects_ends_total" ["status"] "Operations that ended.";
    EFFECTS_FLAGS = Counter "readback_effects_flags_total" ["flag"] "Suspected duplicates, contradictions, cancels that came too late.";
    EFFECTS_OPERATIONS = Gauge "readback_effects_operations" ["partition", "status"] "Open operations by where they stand.";
}

/// All lists.
pub const ALL: &[&[Metric]] = &[RUNTIME, EFFECTS];

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, two parts would write one metric, or Prometheus would refuse a name.
    #[test]
    fn names_are_well_formed_and_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for m in ALL.iter().copied().flatten() {
            assert!(seen.insert(m.name), "{} twice", m.name);
            assert!(m.name.starts_with("readback_"), "{}", m.name);
            assert_eq!(m.kind == Kind::Counter, m.name.ends_with("_total"), "{}", m.name);
        }
    }
}
