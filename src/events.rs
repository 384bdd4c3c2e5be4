//! Names, labels and help of every metric, in one list. A member adds the label [`APPLICATION`] to all. Labels are bounded: units, slots, topics, classes, brokers; never keys, and of
//! the tenants only those that the configuration declares (`metrics.tenants`), all others under one name.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Tenants that metrics tell apart; whoever else comes in records counts under [`Tenants::OTHER`].
#[derive(Clone, Debug, Default)]
pub struct Tenants(Arc<BTreeSet<String>>);

impl Tenants {
    /// The label of all that are not declared.
    pub const OTHER: &'static str = "other";
    /// Most tenants that may be declared: each is a series of its own for every metric that has the label.
    pub const MOST: usize = 50;

    /// Tells these apart, up to [`MOST`](Self::MOST) of them.
    pub fn declared(names: impl IntoIterator<Item = String>) -> Self {
        Self(Arc::new(names.into_iter().take(Self::MOST).collect()))
    }
    /// The label of a tenant.
    pub fn label(&self, tenant: &str) -> &str {
        self.0.get(tenant).map_or(Self::OTHER, String::as_str)
    }
}

/// The label that a member puts on every metric: one Prometheus watches many applications.
pub const APPLICATION: &str = "application";

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
    STANDBY_TASKS = Gauge "readback_standby_tasks" ["unit"] "Tasks of other processes whose stores are copied here.";
    STANDBY_RECORDS = Counter "readback_standby_records_total" ["unit"] "Changelog records applied to copies.";
    REBALANCES = Counter "readback_rebalances_total" ["unit", "slot", "event"] "Assignments, revocations and losses of partitions.";
    DROPPED = Counter "readback_records_dropped_total" ["unit", "step", "reason"] "Records that a step gave up: late for every window, or without key or value.";
    DEAD_LETTERS = Counter "readback_dead_letters_total" ["unit", "code"] "Records that went to the dead letters, by error code.";
    HELD = Gauge "readback_tasks_held" ["unit", "slot"] "Tasks that stand still because what their next record needs is away.";
    HOLDS = Counter "readback_holds_total" ["unit", "slot", "code"] "Tries of a record that ended in waiting, by error code.";
    INPUT_LOST = Counter "readback_input_lost_offsets_total" ["unit", "topic"] "Offsets that a topic's retention deleted before they were read.";
    BEHIND = Gauge "readback_input_behind_offsets" ["unit", "topic", "partition"] "Offsets between reading and the end of the last fetch.";
    LEFT = Gauge "readback_input_left_records" ["unit", "topic", "partition"] "Records between reading and the end: the offsets, by the share of them that were records so far; 0 once all is read.";
    RESTING = Gauge "readback_dead_letters_resting" ["topic"] "Dead letters that nobody has replayed.";
    OLDEST_RESTING = Gauge "readback_dead_letters_oldest_timestamp_seconds" ["topic"] "Since when the oldest of them rests, Unix time; not there where none does.";
}

metrics! {
    /// What the client's statistics tell of one slot's consumer and producer.
    KAFKA:
    KAFKA_RTT = Gauge "readback_kafka_rtt_seconds" ["client", "slot", "broker"] "Round trip to a broker, average of the latest interval.";
    KAFKA_THROTTLE = Gauge "readback_kafka_throttle_seconds" ["client", "slot", "broker"] "Time by which a broker throttled requests, average of the latest interval.";
    KAFKA_WAITING = Gauge "readback_kafka_requests_waiting" ["client", "slot", "broker"] "Requests to a broker that wait to be sent or answered.";
    KAFKA_SENT = Counter "readback_kafka_sent_bytes_total" ["client", "slot", "broker"] "Bytes sent to a broker.";
    KAFKA_RECEIVED = Counter "readback_kafka_received_bytes_total" ["client", "slot", "broker"] "Bytes received from a broker.";
    KAFKA_ERRORS = Counter "readback_kafka_errors_total" ["client", "slot", "broker", "of"] "Requests to a broker that failed: sending, receiving, timing out.";
    KAFKA_QUEUED = Gauge "readback_kafka_queued_messages" ["client", "slot"] "Messages and events in the client's queues: of a producer not delivered yet, of a consumer not taken yet.";
    KAFKA_LAG = Gauge "readback_kafka_lag_offsets" ["slot", "topic", "partition"] "Offsets between what was read and the last stable offset, as the client counts them.";
    KAFKA_UNSTABLE = Gauge "readback_kafka_unstable_offsets" ["slot", "topic", "partition"] "Offsets between the last stable offset and the end: held back by open transactions.";
    KAFKA_TRANSACTION = Gauge "readback_kafka_transaction_state" ["slot", "state"] "1 for the state that the producer's transaction is in, as the client names it.";
}

metrics! {
    /// What the effect stage records.
    EFFECTS:
    EFFECTS_ATTEMPTS = Counter "readback_effects_attempts_total" ["target", "answer"] "Calls that came out, by how the answer read.";
    EFFECTS_READBACKS = Counter "readback_effects_readbacks_total" ["target", "found"] "Readbacks, by what they showed.";
    EFFECTS_WARRANTS = Counter "readback_effects_warrants_total" ["target", "kind"] "Warrants under which earlier attempts allowed a re-send.";
    EFFECTS_ENDS = Counter "readback_effects_ends_total" ["status"] "Operations that ended.";
    EFFECTS_FLAGS = Counter "readback_effects_flags_total" ["target", "flag"] "Suspected duplicates, contradictions, cancels that came too late.";
    EFFECTS_OPERATIONS = Gauge "readback_effects_operations" ["partition", "target", "status"] "Open operations of a target by where they stand.";
    OLDEST_UNKNOWN = Gauge "readback_effects_oldest_unknown_timestamp_seconds" ["partition", "target"] "Since when the oldest unknown operation of a target is unknown, Unix time; not there where none is.";
    SERVICE_SECONDS = Histogram "readback_effects_service_seconds" ["step", "tenant", "of"] "Time that an effect or a proposal took from its first attempt to its end: calls, readbacks, and what lay between them.";
    TARGET_CALLS = Gauge "readback_target_calls_running" ["target"] "Calls to a target that are under way.";
    TARGET_LIMIT = Gauge "readback_target_calls_limit" ["target"] "Calls to a target that may be under way at once.";
    WEBHOOKS = Counter "readback_webhooks_total" ["contract", "outcome"] "Posts of targets, by what became of them.";
    TARGET_SECONDS = Histogram "readback_target_call_seconds" ["target", "of"] "Time of a call, and of a readback's request, from its first byte to the end.";
    TARGET_BREAKER = Gauge "readback_target_breaker" ["target"] "1 while the breaker is open: calls fail in a row, and one at a time is tried.";
    TARGET_REMAINING = Gauge "readback_target_remaining" ["target", "of"] "What the target says is left of its limit: requests, tokens.";
    TARGET_CLOSED = Counter "readback_target_closed_total" ["target", "why"] "Times that calls to a target were deferred: by the breaker, or because the target asked to wait.";
}

metrics! {
    /// What the operation records record.
    OPERATIONS:
    ADMITTED = Counter "readback_operations_admitted_total" ["step", "tenant"] "Operations admitted.";
    REFUSED = Counter "readback_operations_refused_total" ["step", "code"] "Requests that admission refused, by error code.";
    REDELIVERED = Counter "readback_operations_redelivered_total" ["step", "tenant"] "Requests for an operation that was known already.";
    ENDED = Counter "readback_operations_ended_total" ["step", "tenant", "status"] "Operations that ended, by outcome.";
    SECONDS = Histogram "readback_operations_seconds" ["step", "tenant"] "Time from admission to the end of an operation.";
    OPEN = Gauge "readback_operations_open" ["step", "tenant", "stage"] "Operations that have not ended, by where they stand.";
    OLDEST_OPEN = Gauge "readback_operations_oldest_timestamp_seconds" ["step", "tenant"] "When the oldest operation that has not ended was admitted, Unix time; not there where none is open.";
    COST_ADMITTED = Counter "readback_operations_cost_admitted_total" ["step", "tenant", "of"] "Estimated cost of admitted operations: tokens, bytes, tool calls.";
    COST_USED = Counter "readback_operations_cost_used_total" ["step", "tenant", "of"] "Cost that calls reported.";
    COST_IN_FLIGHT = Gauge "readback_operations_cost_in_flight" ["step", "tenant", "of"] "Estimated cost that operations hold and have not used or given back: tokens, bytes, tool calls.";
}

metrics! {
    /// What becomes of traces.
    TRACES:
    SPANS = Counter "readback_traces_spans_total" ["outcome"] "Spans by what became of them: exported, dropped because the queue was full, failed to export.";
}

metrics! {
    /// What the watch over settings records.
    SETTINGS:
    SETTINGS_CHANGED = Counter "readback_settings_changed_total" ["setting"] "Settings of topics and brokers that were changed while the member ran.";
    SETTINGS_WEAK = Gauge "readback_settings_weak" ["of"] "Weak settings of the application's topics, as `check --live` lists them.";
}

/// All lists.
pub const ALL: &[&[Metric]] = &[RUNTIME, KAFKA, EFFECTS, OPERATIONS, SETTINGS, TRACES];

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATING: &str = include_str!("docs/operating.md");

    /// If this broke, a metric would be there that nobody is told of, or an alert or a panel would watch one that does not exist.
    #[test]
    fn docs_alerts_and_dashboard_name_the_metrics_there_are() {
        let known: BTreeSet<&str> = ALL.iter().copied().flatten().map(|m| m.name).collect();
        for name in &known {
            assert!(OPERATING.contains(&format!("`{name}`")), "operating.md does not tell of {name}");
        }
        let word = regex::Regex::new(r"readback_(?:tasks|records|dead_letters|kafka|traces|settings|standby|commits?|aborts|transaction|producer|offsets|restored|rebalances|holds|input|effects|target|operations|webhooks)_?[a-z_]*").expect("a good pattern");
        let alerts = include_str!("../deploy/alerts.yml");
        let dashboard = include_str!("../deploy/readback-dashboard.json");
        let mut seen = 0;
        for text in [OPERATING, alerts, dashboard] {
            for found in word.find_iter(text) {
                let name =
                    ["_bucket", "_sum", "_count"].iter().find_map(|s| found.as_str().strip_suffix(s)).unwrap_or(found.as_str());
                assert!(known.contains(name), "{name} is no metric");
                seen += 1;
            }
        }
        assert!(seen > known.len(), "the pattern finds them");
        let chart = include_str!("../deploy/helm/files/alerts.yml");
        assert_eq!((alerts, dashboard), (chart, include_str!("../deploy/helm/readback-dashboard.json")), "the chart has its own");
        for metric in &known {
            assert!(dashboard.contains(metric), "no panel shows {metric}");
        }
    }

    /// If this broke, records could name so many tenants that the metrics alone would fill the memory of whoever scrapes them.
    #[test]
    fn tenants_that_are_not_declared_share_one_label() {
        let many = (0..10_000).map(|n| format!("tenant-{n}"));
        let tenants = Tenants::declared(many.clone());
        let names: Vec<String> = many.collect();
        let labels: BTreeSet<&str> = names.iter().map(|t| tenants.label(t)).collect();
        assert_eq!(labels.len(), Tenants::MOST + 1);
        assert!(labels.contains(Tenants::OTHER));
        assert_eq!(Tenants::default().label("acme"), Tenants::OTHER);
    }

    /// If this broke, two parts would write one metric, or Prometheus would refuse a name.
    #[test]
    fn names_are_well_formed_and_unique() {
        let mut seen = BTreeSet::new();
        for m in ALL.iter().copied().flatten() {
            assert!(seen.insert(m.name), "{} twice", m.name);
            assert!(m.name.starts_with("readback_"), "{}", m.name);
            assert_eq!(m.kind == Kind::Counter, m.name.ends_with("_total"), "{}", m.name);
        }
    }
}
