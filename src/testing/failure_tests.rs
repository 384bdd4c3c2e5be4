//! What is away, lost or cut short, on the in-process log: what waits, what goes on, and what is refused.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Fault, codes};
use crate::ids::{TopicName, Tp};
use crate::kafka::{Cluster, Reading};
use crate::offset::NextOffset;
use crate::runtime::{KafkaStreams, Metrics, RuntimeOptions, UnitRun};
use crate::serdes::AvroCodec;
use crate::state::{StateConfig, StateManager};
use crate::task::StartAt;

use super::runtime_tests::{Copying, bench, copying};
use super::scenarios::{self, numbers};

/// A codec as a registry client would be: `new…` needs a registry that answers, `lost` is of no schema.
struct Flaky(Arc<AtomicBool>);

impl AvroCodec for Flaky {
    fn decode(&self, _: &TopicName, framed: &[u8]) -> crate::error::Result<serde_json::Value> {
        let text = String::from_utf8_lossy(framed).into_owned();
        match text.split_once('-') {
            Some(("new", _)) if self.0.load(Ordering::SeqCst) => {
                Err(Error::new(codes::REGISTRY_UNREACHABLE, Fault::Unreachable, "asking for schema 7"))
            }
            Some((_, n)) => Ok(serde_json::json!({ "n": n.parse::<u64>().unwrap() })),
            None => Err(Error::new(codes::SCHEMA_MISSING, Fault::Data, "asking for schema 9")),
        }
    }
    fn encode(&self, _: &TopicName, _: &serde_json::Value) -> crate::error::Result<Vec<u8>> {
        unreachable!("nothing is written as Avro")
    }
}

/// C020: if this broke, a registry outage would end the process, stop every partition, or make dead letters of good records.
#[test]
fn a_registry_outage_holds_up_only_the_partition_that_needs_it() {
    for reading in [Reading::Shared, Reading::Split] {
        let down = Arc::new(AtomicBool::new(false));
        let switch = down.clone();
        let registry = scenarios::Away {
            codec: Arc::new(Flaky(down)),
            away: Box::new(move |away| switch.store(away, Ordering::SeqCst)),
            known: Box::new(|n| format!("known-{n}").into_bytes()),
            new: Box::new(|n| format!("new-{n}").into_bytes()),
            lost: b"lost".to_vec(),
        };
        scenarios::a_record_without_its_schema_waits_alone(&bench(&format!("held-{reading:?}")), &registry, reading);
    }
}

/// Starts a process of the unit and stops it; with state of its own, which begins empty.
fn start(c: &Copying, accepted: &[&TopicName]) -> crate::error::Result<()> {
    let state = StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true }).unwrap();
    let accept_loss: BTreeSet<TopicName> = accepted.iter().map(|t| (*t).clone()).collect();
    let options = RuntimeOptions { accept_loss, ..c.b.options.clone() };
    let units = vec![UnitRun { plan: c.plan.clone(), threads: 1 }];
    let streams = KafkaStreams::start(&c.b.cluster, units, &state, &c.b.clock, &options, &Metrics::unread().unwrap())?;
    streams.stop(Duration::from_secs(20))
}

/// If this broke, a deleted changelog would be made anew and the sums, or a ledger, would start from nothing without a word.
#[test]
fn a_changelog_that_is_missing_is_refused_once_the_group_has_read() {
    let c = copying("missing", true);
    c.b.cluster.delete(&c.script.changelog());
    start(&c, &[]).expect("a first start makes it");
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 20);
    c.b.stop(thread);
    c.b.cluster.delete(&c.script.changelog());
    let refused = start(&c, &[]).expect_err("its sums are lost");
    assert_eq!((refused.code, refused.fault.exit_code()), (codes::TOPIC_LOST, 2), "{refused}");
    assert!(refused.to_string().contains("missing-in-0 up to"), "{refused}");
    assert!(c.b.cluster.admin().unwrap().topic(&c.script.changelog()).unwrap().is_none(), "and it was not made");
    start(&c, &[&c.script.changelog()]).expect("a person has accepted it");
}

/// If this broke, an outbox that was deleted would pass for a new one as long as the ledger stands: its intents would be gone unseen.
#[test]
fn a_source_whose_position_must_not_be_guessed_is_refused_while_its_changelog_stands() {
    let mut c = copying("outbox", true);
    c.plan.subtopologies[0].sources[0].start = StartAt::Refuse;
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 20);
    c.b.stop(thread);
    c.b.cluster.delete(&c.from);
    let refused = start(&c, &[]).expect_err("its positions are gone with it");
    assert_eq!(refused.code, codes::TOPIC_LOST, "{refused}");
    assert!(refused.to_string().contains("looking for outbox-in"), "{refused}");
}

/// If this broke, a changelog that was deleted and made anew by hand would wipe the local copy, the last that there is.
#[test]
fn a_changelog_that_ends_before_the_local_store_is_refused() {
    let mut c = copying("recreated", true);
    c.plan.subtopologies[0].stores[0].engine = crate::state::EngineKind::Disk;
    let state = StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true }).unwrap();
    let mut thread = c.b.thread_over(&c.plan, 0, &state);
    c.run(&mut thread, 20);
    c.b.stop(thread);
    c.b.cluster.delete(&c.script.changelog());
    c.b.create(&c.script.changelog(), 1, &[("cleanup.policy", "compact")]);
    let mut thread = c.b.thread_over(&c.plan, 0, &state);
    let refused = c.b.run(&mut [&mut thread], |_| false).expect_err("the changelog was cut short");
    assert_eq!(refused.code, codes::TOPIC_LOST, "{refused}");
    assert!(refused.to_string().contains("it ends at 0"), "{refused}");
}

/// If this broke, a ledger that was deleted and made anew by hand would pass for new on a machine without a local copy.
#[test]
fn an_empty_changelog_is_refused_where_positions_must_not_be_guessed() {
    let mut c = copying("emptied", true);
    c.plan.subtopologies[0].sources[0].start = StartAt::Refuse;
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 20);
    c.b.stop(thread);
    c.b.cluster.delete(&c.script.changelog());
    c.b.create(&c.script.changelog(), 1, &[("cleanup.policy", "compact")]);
    let mut thread = c.b.thread(&c.plan, 0);
    let refused = c.b.run(&mut [&mut thread], |_| false).expect_err("it was emptied");
    assert_eq!(refused.code, codes::TOPIC_LOST, "{refused}");
    let mut options = c.b.clone();
    options.options.accept_loss = [c.script.changelog()].into();
    c.b.feed(&c.from, 0, &numbers(21, 1, &["k"]));
    let mut thread = options.thread(&c.plan, 0);
    options.run_until_count(&mut [&mut thread], &c.to, 21).expect("a person has accepted it");
    options.stop(thread);
}

/// If this broke, intents that were deleted before they were read would be skipped without a word.
#[test]
fn a_log_that_begins_after_the_position_is_refused_where_it_must_not_be_guessed() {
    let mut c = copying("cut", false);
    c.plan.subtopologies[0].sources[0].start = StartAt::Refuse;
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 20);
    c.b.stop(thread);
    c.b.feed(&c.from, 0, &numbers(21, 20, &["k"]));
    c.b.cluster.admin().unwrap().delete_records(&[(Tp::new(c.from.clone(), 0), NextOffset(30))]).unwrap();
    let mut thread = c.b.thread(&c.plan, 0);
    let refused = c.b.run(&mut [&mut thread], |_| false).expect_err("ten were deleted unread");
    assert_eq!(refused.code, codes::TOPIC_LOST, "{refused}");
    assert!(refused.to_string().contains("10 records were deleted unread"), "{refused}");
}

/// C037: if this broke, a source that was deleted and made anew would be read from an old position, or from its end: a silent gap.
/// While it runs and while it stands still, everything that is in the new topic is handled, or the process ends with the reason.
#[test]
fn c037_a_source_that_was_made_anew_is_read_from_its_start() {
    let c = copying("anew", false);
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 20);
    c.b.cluster.delete(&c.from);
    c.b.create(&c.from, 1, &[]);
    c.b.feed(&c.from, 0, &numbers(21, 5, &["k"]));
    // It may have been told by a rebalance first, or by a fetch beyond the end.
    if let Err(refused) = c.b.run_until_count(&mut [&mut thread], &c.to, 25) {
        assert_eq!(refused.code, codes::TOPIC_LOST, "{refused}");
        assert!(refused.to_string().contains("it ends at 5") || refused.to_string().contains("its log ends at 5"), "{refused}");
    }
    c.b.stop(thread);
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 25);
    c.b.stop(thread);
    c.expect(25);
}

/// C058: if this broke, a log that an unclean election made shorter than what was read would be read on from nowhere, or from its end.
#[test]
fn c058_a_log_shorter_than_what_was_read_is_refused_with_both_numbers() {
    let c = copying("shorter", false);
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 20);
    c.b.stop(thread);
    c.b.cluster.cut_after(&Tp::new(c.from.clone(), 0), NextOffset(12));
    let mut thread = c.b.thread(&c.plan, 0);
    let refused = c.b.run(&mut [&mut thread], |_| false).expect_err("eight are missing");
    assert_eq!(refused.code, codes::TOPIC_LOST, "{refused}");
    let said = refused.to_string();
    assert!(said.contains("from 20") && said.contains("its log ends at 12"), "{said}");
}

/// If this broke, an application that was stopped for longer than a topic keeps its records would never start again, or would not
/// say what it has missed.
#[test]
fn records_that_retention_deleted_unread_are_counted_and_reading_goes_on() {
    let c = copying("retention", false);
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 20);
    c.b.stop(thread);
    c.b.feed(&c.from, 0, &numbers(21, 20, &["k"]));
    c.b.cluster.admin().unwrap().delete_records(&[(Tp::new(c.from.clone(), 0), NextOffset(30))]).unwrap();
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 30);
    c.b.stop(thread);
    assert_eq!(c.b.count(&c.to), 30, "20 and the last 10");
}
