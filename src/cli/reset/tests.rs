//! The whole of it on the in-process log.
#![allow(clippy::unwrap_used)]
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::agent::intake_topic;
use crate::app::deployed::{Deployed, Fact};
use crate::config::ProcessConfig;
use crate::dsl::{Application, Consumed, Grouped, Produced, StreamsBuilder};
use crate::ids::{GroupId, TopicName, Tp};
use crate::intents::topics;
use crate::kafka::memory::{Call, MemoryCluster};
use crate::kafka::{Class, Cluster, NewTopic, Slot, Wake};
use crate::offset::NextOffset;
use crate::record::OutRecord;
use crate::serdes::{Serdes, internal};
use crate::time::{ManualClock, MonoTime, Now};

fn counting() -> Application {
    let builder = StreamsBuilder::new("shop");
    builder
        .stream("orders", Consumed::with(Serdes::string(), Serdes::string()))
        .group_by_key(Grouped::with(Serdes::string(), Serdes::string()))
        .count("counts")
        .to_stream()
        .to("totals", Produced::with(Serdes::string(), Serdes::optional(Serdes::long())));
    builder.build().unwrap()
}

/// If this broke, a reset would leave state behind, delete what is not its own, or begin elsewhere than it says.
#[test]
fn an_application_begins_anew_and_nothing_else_is_touched() {
    let now = Now { wall: WallTime(1_000), mono: MonoTime(1_000) };
    let cluster = MemoryCluster::new(Arc::new(ManualClock::at(now)));
    let admin = cluster.admin().unwrap();
    let topic = |name: &str| NewTopic { name: TopicName::new(name), partitions: 1, replication: 1, config: Default::default() };
    let all = ["orders", "totals", "shop-counts-changelog", "shop-prices", "shopping-counts-changelog"];
    admin.create(&all.map(topic)).unwrap();
    let orders = TopicName::new("orders");
    for n in 0..5 {
        let at = Some(WallTime(100 * n));
        let record =
            OutRecord { topic: &orders, partition: None, timestamp: at, key: Some(b"k"), value: Some(b"v"), headers: None };
        cluster.publish(&[record], Duration::from_secs(1)).unwrap();
    }
    let (group, tp) = (GroupId::new("shop"), Tp::new("orders", 0));
    admin.reposition(&group, &[(tp.clone(), NextOffset(4))]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut config = ProcessConfig::default();
    config.state.dir = dir.path().to_owned();
    std::fs::create_dir(dir.path().join("shop-000")).unwrap();
    let application = counting();
    let look = |to| look::look(&cluster, &application, &config, to, now.wall).unwrap();
    let to = |to| look(to).moves[0].to.0;
    assert_eq!((to(To::Earliest), to(To::Latest), to(To::At(WallTime(250))), to(To::At(WallTime(9_999)))), (0, 5, 3, 5));
    let plan = look(To::At(WallTime(250)));
    assert!(plan.refusals(false).is_empty());
    let shown = table(&plan, false);
    for part in ["4 → 3", "delete shop-counts-changelog (1 partitions)", "left       shop-prices", "shop-000", "nothing is changed"]
    {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
    assert!(!shown.contains("shopping"), "{shown}");
    let order = Order { by: "kim", reason: "begins anew", note: &json!({}) };
    carry_out(&cluster, &application.id, &plan, &order).unwrap();
    let audit = topics::audit(&application.id);
    let told = cluster.records(&audit, crate::kafka::Isolation::Committed);
    let told: Vec<Value> = told.iter().map(|r| serde_json::from_slice(r.value.as_deref().unwrap()).unwrap()).collect();
    let came: Vec<_> = told.iter().map(|a| (a["action"].as_str().unwrap(), a["came"].as_str().unwrap())).collect();
    assert_eq!(came, [("reset", "ordered"), ("reset", "answered")]);
    assert_eq!((&told[0]["who"], &told[0]["via"], &told[0]["reason"]), (&json!("kim"), &json!("cli"), &json!("begins anew")));
    // It outlives the reset, and the next one, too.
    assert!(!look(To::Latest).left.contains(&audit));
    admin.delete(&[audit]).unwrap();
    let names: Vec<_> = admin.topics().unwrap().into_iter().map(|t| t.name.to_string()).collect();
    assert_eq!(names, ["orders", "shop-prices", "shopping-counts-changelog", "totals"]);
    assert_eq!(admin.committed(&group, std::slice::from_ref(&tp)).unwrap(), [(tp, NextOffset(3))]);
    assert!(!dir.path().join("shop-000").exists());
    // What can't be written down is not done.
    cluster.fail_next(Call::Publish, None, Class::Config);
    assert!(carry_out(&cluster, &application.id, &look(To::Latest), &order).is_err());
    assert_eq!(look(To::Latest).moves[0].from, Some(NextOffset(3)));
    act::act(&cluster, &application.id, &look(To::Latest), &json!({})).unwrap();
}

/// If this broke, a version whose effects were taken out would delete the ledger of the one before unseen, with what was sent.
#[test]
fn the_ledger_of_an_older_version_is_looked_at_before_it_goes() {
    let now = Now { wall: WallTime(1_000), mono: MonoTime(1_000) };
    let cluster = MemoryCluster::new(Arc::new(ManualClock::at(now)));
    let application = counting();
    let ledger = topics::ledger_changelog(&application.id);
    deployed_with(&cluster, &application, std::slice::from_ref(&ledger));
    let plan = look::look(&cluster, &application, &ProcessConfig::default(), To::Latest, now.wall).unwrap();
    assert!(plan.topics.iter().any(|(t, _)| *t == ledger), "{plan:?}");
    assert!(plan.refusals(false).iter().any(|r| r.contains("the ledger is not there")), "{plan:?}");
}

/// If this broke, requests that stand in no source any more, and in no ledger yet, would be gone without a word.
#[test]
fn requests_on_their_way_forbid_it() {
    let now = Now { wall: WallTime(1_000), mono: MonoTime(1_000) };
    let cluster = MemoryCluster::new(Arc::new(ManualClock::at(now)));
    let (admin, application) = (cluster.admin().unwrap(), counting());
    let app = &application.id;
    let intake = intake_topic(app);
    deployed_with(&cluster, &application, &[topics::ledger_changelog(app), topics::changelog(app, "operations"), intake.clone()]);
    let refused = || {
        let plan = look::look(&cluster, &application, &ProcessConfig::default(), To::Latest, now.wall).unwrap();
        plan.refusals(false)
    };
    assert!(refused().is_empty(), "{:?}", refused());
    let record = OutRecord { topic: &intake, partition: None, timestamp: None, key: None, value: Some(b"v"), headers: None };
    cluster.publish(&[record], Duration::from_secs(1)).unwrap();
    assert!(refused().len() == 1 && refused()[0].contains("wait in the intake"), "{:?}", refused());
    admin.reposition(&GroupId::new("shop"), &[(Tp::new(intake, 0), NextOffset(1))]).unwrap();
    assert!(refused().is_empty(), "{:?}", refused());
}

/// Topics that an older version had and made, beside a source.
fn deployed_with(cluster: &MemoryCluster, application: &Application, own: &[TopicName]) {
    let deployed = topics::deployed(&application.id);
    let topic = |name: &TopicName| NewTopic { name: name.clone(), partitions: 1, replication: 1, config: Default::default() };
    let all: Vec<_> = own.iter().chain([&TopicName::new("orders"), &deployed]).map(topic).collect();
    cluster.admin().unwrap().create(&all).unwrap();
    let mut before = Deployed::of(application, None, WallTime(1_000));
    let made = |name: &TopicName| Fact { kind: "internal".into(), name: name.to_string(), value: "1".into() };
    before.facts.extend(own.iter().map(made));
    let value = internal::encode(&before).unwrap();
    let record = OutRecord {
        topic: &deployed,
        partition: None,
        timestamp: None,
        key: Some(b"topology"),
        value: Some(&value),
        headers: None,
    };
    cluster.publish(&[record], Duration::from_secs(1)).unwrap();
}

/// If this broke, a member that starts while somebody reads the plan would lose its topics at work.
#[test]
fn a_member_that_joined_since_the_look_forbids_it() {
    let now = Now { wall: WallTime(1_000), mono: MonoTime(1_000) };
    let cluster = MemoryCluster::new(Arc::new(ManualClock::at(now)));
    let admin = cluster.admin().unwrap();
    let topic = |name: &str| NewTopic { name: TopicName::new(name), partitions: 1, replication: 1, config: Default::default() };
    admin.create(&["orders", "shop-counts-changelog"].map(topic)).unwrap();
    let application = counting();
    let plan = look::look(&cluster, &application, &ProcessConfig::default(), To::Earliest, now.wall).unwrap();
    assert!(plan.refusals(false).is_empty(), "{plan:?}");
    // The effect unit's group: the broker itself would not refuse to move the other group's positions.
    let unit = topics::effects_unit(&application.id);
    let slot = Slot { group: GroupId::new(unit.as_str()), unit, number: 0 };
    let _member = cluster.source(&slot, &[TopicName::new("orders")], Wake::none()).unwrap();
    let e = act::act(&cluster, &application.id, &plan, &json!({})).unwrap_err();
    assert_eq!((e.code, e.fault), (codes::SILENT_RESET, Fault::Verdict), "{e}");
    assert!(admin.topic(&TopicName::new("shop-counts-changelog")).unwrap().is_some());
}

/// If this broke, requests would be sent a second time after a stop that was longer than positions are kept.
#[test]
fn a_position_that_ran_out_counts_as_read() {
    let now = Now { wall: WallTime(1_000), mono: MonoTime(1_000) };
    let cluster = MemoryCluster::new(Arc::new(ManualClock::at(now)));
    let (admin, orders) = (cluster.admin().unwrap(), TopicName::new("orders"));
    admin.create(&[NewTopic { name: orders.clone(), partitions: 1, replication: 1, config: Default::default() }]).unwrap();
    let record = OutRecord { topic: &orders, partition: None, timestamp: None, key: None, value: Some(b"v"), headers: None };
    cluster.publish(&[record], Duration::from_secs(1)).unwrap();
    let refused = |to| {
        let mut plan = look::look(&cluster, &counting(), &ProcessConfig::default(), to, now.wall).unwrap();
        plan.operations.due = 1;
        plan.refusals(false).len()
    };
    assert_eq!((refused(To::Earliest), refused(To::Latest)), (1, 0));
}
