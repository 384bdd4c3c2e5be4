//! A member that is gone for good, and another one that has kept copies of its stores.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use prometheus::Registry;
use readback::app::{Process, ProcessEnd};
use readback::config::{ProcessConfig, Span};
use readback::dsl::{Application, Consumed, Grouped, StreamsBuilder};
use readback::events;
use readback::ids::TopicName;
use readback::kafka::{Cluster, NewTopic};
use readback::record::OutRecord;
use readback::serdes::Serdes;

use crate::{shared, stack, until};

/// Records before one member goes; each is one in the changelog.
const RECORDS: usize = 8_000;
const KEYS: usize = 500;

fn application(name: &str) -> Application {
    let b = StreamsBuilder::new(name);
    let words = b.stream(TopicName::from(format!("{name}-words")), Consumed::with(Serdes::string(), Serdes::string()));
    words.group_by_key(Grouped::with(Serdes::string(), Serdes::string())).count("seen");
    b.build().expect("a topology")
}

/// A member on a thread of its own.
struct Member {
    metrics: Registry,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    stores: readback::app::Stores,
}

fn start(name: &str, dir: &Path, ordinal: u32, standby: bool) -> Member {
    let mut config = ProcessConfig { brokers: stack().brokers().to_owned(), ..ProcessConfig::default() };
    config.state.dir = dir.to_owned();
    config.state.standby = standby;
    config.slots.ordinal = Some(ordinal);
    config.group.session_timeout = Span(Duration::from_secs(6));
    config.group.transaction_timeout = Span(Duration::from_secs(5));
    let (metrics, stop) = (Registry::new(), Arc::new(AtomicBool::new(false)));
    let (name, told, registry) = (name.to_owned(), stop.clone(), metrics.clone());
    let (ready, stores) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let tokio = tokio::runtime::Runtime::new().expect("a runtime");
        let waiting = |e: &readback::error::Error| panic!("{e}");
        let process = Process::start(&application(&name), &config, &registry, tokio.handle(), &told, &waiting);
        let process = process.unwrap_or_else(|e| panic!("{e}")).expect("not stopped");
        ready.send(process.stores().clone()).expect("told");
        match process.run(&told, &|_, _| ()) {
            ProcessEnd::Stopped => {}
            ProcessEnd::Failed(e) => panic!("{e}"),
        }
    });
    Member { metrics, stop, thread, stores: stores.recv().expect("it starts") }
}

impl Member {
    /// All series of a metric together.
    fn total(&self, metric: events::Metric) -> u64 {
        let families = self.metrics.gather();
        let of = families.iter().filter(|f| f.name() == metric.name).flat_map(|f| f.get_metric());
        of.map(|m| (m.get_counter().get_value() + m.get_gauge().get_value()) as u64).sum()
    }
    /// What its part of the store has counted, all keys together.
    fn counted(&self) -> u64 {
        let seen = self.stores.store("seen").expect("the store").typed(Serdes::string(), Serdes::long());
        let counts = seen.entries(KEYS).unwrap_or_default();
        counts.iter().map(|(_, n)| u64::try_from(*n).expect("a count")).sum()
    }
    fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("ends in order");
    }
}

fn feed(cluster: &impl Cluster, topic: &TopicName, count: usize) {
    let keys: Vec<String> = (0..count).map(|n| format!("k{}", n % KEYS)).collect();
    let record = |key| OutRecord {
        topic,
        partition: None,
        timestamp: None,
        key: Some(str::as_bytes(key)),
        value: Some(b"."),
        headers: None,
    };
    let records: Vec<_> = keys.iter().map(|k| record(k.as_str())).collect();
    cluster.publish(&records, Duration::from_secs(20)).expect("published");
}

/// If this broke, whoever is given the partitions of a dead member would read their whole changelogs before it goes on, or would
/// go on with counts of its copy that were never committed, or without some that were.
#[test]
fn the_partitions_of_a_member_that_is_gone_are_warm_where_they_go() {
    let shared = shared();
    let restored_by_the_survivor = |standby: bool| {
        let name = format!("standby-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let topic = TopicName::from(format!("{name}-words"));
        let new = NewTopic { name: topic.clone(), partitions: 4, replication: -1, config: BTreeMap::new() };
        shared.cluster.admin().and_then(|a| a.create(&[new])).expect("created");
        let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
        let survivor = start(&name, dirs[0].path(), 0, standby);
        let gone = start(&name, dirs[1].path(), 1, standby);
        until("both have two tasks", || (survivor.total(events::TASKS) == 2 && gone.total(events::TASKS) == 2).then_some(()));
        feed(&shared.cluster, &topic, RECORDS);
        until("all is counted", || (survivor.counted() + gone.counted() == RECORDS as u64).then_some(()));
        if standby {
            until("each follows the other", || {
                let follows = |m: &Member, other: &Member| {
                    m.total(events::STANDBY_TASKS) == 2 && m.total(events::STANDBY_RECORDS) >= other.total(events::RECORDS_READ)
                };
                (follows(&survivor, &gone) && follows(&gone, &survivor)).then_some(())
            });
        }
        let before = survivor.total(events::RESTORED);
        gone.stop();
        feed(&shared.cluster, &topic, KEYS);
        until("the survivor has counted all", || (survivor.counted() == (RECORDS + KEYS) as u64).then_some(()));
        until("nothing is left to follow", || (survivor.total(events::STANDBY_TASKS) == 0).then_some(()));
        let restored = survivor.total(events::RESTORED) - before;
        survivor.stop();
        crate::wire::delete_topics_of(&name);
        restored
    };
    let (cold, warm) = (restored_by_the_survivor(false), restored_by_the_survivor(true));
    assert!(cold > RECORDS as u64 / 4, "without copies the changelogs are read: {cold}");
    assert!(warm < 100, "with copies only their tails are: {warm} of {cold}");
}
