//! The whole of it on the in-process log.
#![allow(clippy::unwrap_used)]
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::ProcessConfig;
use crate::dsl::{Application, Consumed, Grouped, Produced, StreamsBuilder};
use crate::ids::{GroupId, TopicName, Tp};
use crate::kafka::memory::MemoryCluster;
use crate::kafka::{Cluster, NewTopic};
use crate::offset::NextOffset;
use crate::record::OutRecord;
use crate::serdes::Serdes;
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
    act::act(&cluster, &application.id, &plan, &json!({})).unwrap();
    let names: Vec<_> = admin.topics().unwrap().into_iter().map(|t| t.name.to_string()).collect();
    assert_eq!(names, ["orders", "shop-prices", "shopping-counts-changelog", "totals"]);
    assert_eq!(admin.committed(&group, std::slice::from_ref(&tp)).unwrap(), [(tp, NextOffset(3))]);
    assert!(!dir.path().join("shop-000").exists());
    act::act(&cluster, &application.id, &look(To::Latest), &json!({})).unwrap();
}
