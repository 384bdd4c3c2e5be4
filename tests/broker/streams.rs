//! A topology with windows, sessions and a join of streams on the real broker, stopped in order, restarted on its disk, and
//! restored from its changelogs onto an empty one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use readback::app::{Process, ProcessEnd};
use readback::config::ProcessConfig;
use readback::dsl::{
    Application, Consumed, EmitStrategy, Grouped, JoinWindows, KTable, Produced, SessionWindows, StreamJoined, StreamsBuilder,
    TimeWindows,
};
use readback::ids::TopicName;
use readback::kafka::rdkafka::RdCluster;
use readback::kafka::{Cluster, Isolation, NewTopic};
use readback::offset::NextOffset;
use readback::record::OutRecord;
use readback::serdes::{Serdes, Windowed};
use readback::time::{Clock, SystemClock, WallTime};

use crate::{shared, stack, until};

const PARTITIONS: u32 = 2;

/// Counts in tumbling windows and in sessions, each told once; orders with their payments, or alone.
fn application(name: &str) -> Application {
    let b = StreamsBuilder::new(name);
    let topic = |short: &str| TopicName::from(format!("{name}-{short}"));
    let (text, ms) = (Serdes::string, Duration::from_millis);
    let orders = b.stream(topic("orders"), Consumed::with(text(), text()));
    let payments = b.stream(topic("payments"), Consumed::with(text(), text()));
    let shown = |table: &KTable<Windowed<String>, i64>, to: &str| {
        let lines = table.to_stream().map(|k, n| (k.key.clone(), format!("{k}={}", n.unwrap_or(0))));
        lines.to(topic(to), Produced::with(text(), text()));
    };
    let grouped = orders.group_by_key(Grouped::with(text(), text()));
    let windows = TimeWindows::of_size_and_grace(ms(1_000), ms(500));
    shown(&grouped.windowed_by(windows).emit_strategy(EmitStrategy::OnWindowClose).count("windows"), "windows");
    let sessions = SessionWindows::of_inactivity_gap_and_grace(ms(700), ms(500));
    shown(&grouped.windowed_by(sessions).emit_strategy(EmitStrategy::OnWindowClose).count("sessions"), "sessions");
    let within = JoinWindows::of_time_difference_and_grace(ms(300), ms(500));
    let how = StreamJoined::named("paid", text(), text(), text());
    let or = |v: Option<String>| v.unwrap_or("-".to_owned());
    orders
        .outer_join(&payments, within, how, move |_, o, p| format!("{}+{}", or(o), or(p)))
        .to(topic("paid"), Produced::with(text(), text()));
    b.build().expect("a topology")
}

/// A process, on a thread of its own.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn start(name: &str, dir: &Path) -> Running {
    let name = name.to_owned();
    started(move || application(&name), dir)
}

/// Starts what `make` gives.
pub fn started(make: impl FnOnce() -> Application + Send + 'static, dir: &Path) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let (dir, told) = (dir.to_owned(), stop.clone());
    let thread = std::thread::spawn(move || {
        let mut config = ProcessConfig { brokers: stack().brokers().to_owned(), ..ProcessConfig::default() };
        config.state.dir = dir;
        let tokio = tokio::runtime::Runtime::new().expect("a runtime");
        let waiting = |e: &readback::error::Error| panic!("{e}");
        let application = make();
        let process = Process::start(&application, &config, &prometheus::Registry::new(), tokio.handle(), &told, &waiting);
        match process.unwrap_or_else(|e| panic!("{e}")).expect("not stopped").run(&told, &|_, _| ()) {
            ProcessEnd::Stopped => {}
            ProcessEnd::Failed(e) => panic!("{e}"),
        }
    });
    Running { stop, thread }
}

impl Running {
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("ends in order");
    }
}

pub fn feed(cluster: &RdCluster, topic: &TopicName, records: &[(&str, &str, WallTime)]) {
    let out = records.iter().map(|(key, value, at)| OutRecord {
        topic,
        partition: None,
        timestamp: Some(*at),
        key: Some(key.as_bytes()),
        value: Some(value.as_bytes()),
        headers: None,
    });
    cluster.publish(&out.collect::<Vec<_>>(), Duration::from_secs(10)).expect("published");
}

/// The committed values of a topic, by key, in order.
pub fn values(cluster: &RdCluster, topic: &TopicName) -> BTreeMap<String, Vec<String>> {
    let mut reader = cluster.reader(Isolation::Committed).expect("a reader");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for p in 0..PARTITIONS {
        let tp = readback::ids::Tp::new(topic.clone(), p as i32);
        let Ok((_, end)) = reader.ends(&tp, Isolation::Committed) else { continue };
        reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assign");
        until("the end", || {
            while let Some(r) = reader.poll(Duration::from_millis(50)).ok()? {
                let text = |b: Option<bytes::Bytes>| String::from_utf8_lossy(&b.unwrap_or_default()).into_owned();
                found.entry(text(r.key)).or_default().push(text(r.value));
            }
            (reader.position(&tp)? >= end).then_some(())
        });
    }
    found
}

/// If this broke, windows, sessions or joins would lose, double or change results when a process stops, restarts, or is restored
/// from its changelogs.
#[test]
fn windows_sessions_and_joins_go_on_over_a_restart_and_a_restore() {
    let shared = shared();
    let cluster = &shared.cluster;
    let name = format!("windowed-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let topic = |short: &str| TopicName::from(format!("{name}-{short}"));
    let new = ["orders", "payments", "windows", "sessions", "paid"].map(|t| NewTopic {
        name: topic(t),
        partitions: PARTITIONS,
        replication: -1,
        config: BTreeMap::new(),
    });
    let admin = cluster.admin().expect("an admin client");
    admin.create(&new).expect("created");
    until("the topics", || new.iter().all(|t| matches!(admin.topic(&t.name), Ok(Some(_)))).then_some(()));
    // Whole seconds, so that windows begin where the records say.
    let base = WallTime(SystemClock.now().wall.0 / 1_000 * 1_000 - 60_000);
    let at = |ms: u64| base.plus(Duration::from_millis(ms));
    let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let keys = ["a", "b", "c", "d"];
    let all = |value: &'static str, ms: u64| keys.map(|k| (k, value, at(ms)));

    // Each phase ends when what can be told by then is there.
    let running = start(&name, dirs[0].path());
    feed(cluster, &topic("orders"), &[all("o1", 100), all("o2", 700), all("o3", 2_000)].concat());
    let closed = |topic: &TopicName, n: usize| {
        let there = values(cluster, topic);
        keys.iter().all(|k| there.get(*k).is_some_and(|v| v.len() >= n)).then_some(there)
    };
    until("the first window", || closed(&topic("windows"), 1));
    until("the orders without a payment", || closed(&topic("paid"), 2));
    running.stop();

    let running = start(&name, dirs[0].path());
    feed(cluster, &topic("payments"), &all("p3", 2_200));
    until("the pair", || closed(&topic("paid"), 3));
    feed(cluster, &topic("orders"), &all("late", 750));
    until("the late order", || closed(&topic("paid"), 4));
    running.stop();

    let running = start(&name, dirs[1].path());
    feed(cluster, &topic("orders"), &all("o4", 9_000));
    let windows = until("the second window", || closed(&topic("windows"), 2));
    let sessions = until("the second session", || closed(&topic("sessions"), 2));
    running.stop();
    let paid = values(cluster, &topic("paid"));

    let window = |key: &str, from: u64, to: u64, n: u32| format!("[{key}@{}/{}]={n}", at(from).0, at(to).0);
    for key in keys {
        assert_eq!(windows[key], [window(key, 0, 1_000, 2), window(key, 2_000, 3_000, 1)]);
        assert_eq!(sessions[key], [window(key, 100, 700, 2), window(key, 2_000, 2_000, 1)]);
        assert_eq!(paid[key], ["o1+-", "o2+-", "o3+p3", "late+-"], "the late order is past its window: alone at once");
    }
}
