//! What was deleted, cut short or grown under the product's feet.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use readback::error::codes;
use readback::ids::{GroupId, Partition, TopicName, Tp};
use readback::kafka::rdkafka::{RdCluster, RdConfig};
use readback::kafka::{Cluster, Isolation, Reading};
use readback::offset::NextOffset;
use readback::record::OutRecord;
use readback::runtime::{KafkaStreams, Metrics, UnitRun};
use readback::state::{StateConfig, StateManager};
use readback::task::{InternalTopic, TopicUse};
use readback::testing::scenarios::{Bench, Script, numbers};
use readback::time::{Clock, SystemClock, WallTime};

use crate::notices::{Service, ask, topology};
use crate::processes::{Running, orders};
use crate::scenarios::bench;
use crate::story::program;
use crate::wire::{add_partitions, delete_topic};
use crate::{cluster_at, shared, stack, until};

/// Clients that look at the cluster's topics often.
fn attentive() -> RdCluster {
    let settings = [("topic.metadata.refresh.interval.ms".to_owned(), "300".to_owned())].into();
    let config = RdConfig { session: Duration::from_secs(6), settings, ..RdConfig::new(stack().brokers()) };
    RdCluster::new(config).expect("settings")
}

fn gone(c: &RdCluster, topic: &TopicName) {
    delete_topic(topic.as_str());
    let admin = c.admin().expect("admin");
    until("the topic is gone", || admin.topic(topic).ok()?.is_none().then_some(()));
}

fn ends(member: &mut Running) -> (Option<i32>, String) {
    let ended = until("it ends", || member.try_wait());
    (ended.code(), member.said())
}

/// If this broke, a deleted ledger would be made anew and forget what was sent; and a deleted outbox what was to be sent.
#[test]
fn a_lost_ledger_or_outbox_is_refused_until_a_person_accepts_it() {
    let shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let (topology, state) = (orders(work.path(), "lost"), work.path().join("state"));
    let start = |name: &str, accepted: &str| Running::with(&topology, &state, name, &[("READBACK_TOPICS__ACCEPT_LOSS", accepted)]);
    let mut first = start("first", "");
    first.until_running();
    assert_eq!(first.terminate().code(), Some(0), "{}", first.said());

    let app = std::fs::read_to_string(topology.join("topology.yaml")).expect("is there");
    let app = app.lines().find_map(|l| l.strip_prefix("application: ")).and_then(|l| l.split_whitespace().next()).expect("a name");
    for lost in [format!("{app}.effects-ledger-changelog"), format!("{app}-outbox"), format!("{app}-operations-changelog")] {
        let topic = TopicName::from(lost.as_str());
        gone(&shared.cluster, &topic);
        let (code, said) = ends(&mut start("refused", ""));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("RB0312") && said.contains(&lost) && said.contains("accept_loss"), "{said}");
        assert!(shared.cluster.admin().expect("admin").topic(&topic).expect("answers").is_none(), "{lost} was made all the same");
        let mut accepted = start("accepted", &lost);
        accepted.until_running();
        assert_eq!(accepted.terminate().code(), Some(0), "{}", accepted.said());
    }

    // Cut short: three records, of which two are deleted before anybody read them.
    let outbox = TopicName::from(format!("{app}-outbox"));
    let record =
        OutRecord { topic: &outbox, partition: Some(Partition(0)), timestamp: None, key: None, value: Some(b"x"), headers: None };
    shared.cluster.publish(&[record; 3], Duration::from_secs(10)).expect("publishes");
    let admin = shared.cluster.admin().expect("admin");
    admin.delete_records(&[(Tp::new(outbox.clone(), 0), NextOffset(2))]).expect("deletes");
    let (code, said) = ends(&mut start("cut", ""));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("RB0312") && said.contains("2 records were deleted unread"), "{said}");
}

/// A copy of one topic.
fn copy(name: &str, cluster: RdCluster, partitions: u32) -> (Bench<RdCluster>, Script, TopicName, readback::task::UnitPlan) {
    let b = bench(name, cluster);
    let (from, to) = (b.topic("in"), b.topic("out"));
    b.create(&from, partitions, &[]);
    b.create(&to, 6, &[]);
    let script = Script::copy(&to);
    let plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
    (b, script, from, plan)
}

/// C038: if this broke, what is written to a new partition before the group knows of it would be skipped.
#[test]
fn c038_partitions_added_while_running_are_read_from_their_start() {
    let _shared = shared();
    let (b, script, from, plan) = copy("grown", attentive(), 3);
    let mut thread = b.thread(&plan, 0);
    (0..3).for_each(|p| b.feed(&from, p, &numbers(1, 10, &["k"])));
    b.run_until_count(&mut [&mut thread], &script.to, 30).expect("runs");
    add_partitions(from.as_str(), 6);
    let admin = b.cluster.admin().expect("admin");
    until("the new partitions are listed", || (admin.topic(&from).ok()??.partitions == 6).then_some(()));
    (0..6).for_each(|p| b.feed(&from, p, &numbers(11, 10, &["k"])));
    b.run_until_count(&mut [&mut thread], &script.to, 90).expect("runs");
    assert_eq!(thread.running().len(), 6);
    b.stop(thread);
}

/// C041: if this broke, a topic in a common codec could not be read.
#[test]
fn c041_every_codec_of_a_broker_is_read() {
    let _shared = shared();
    let b = bench("codecs", cluster_at(stack().brokers()));
    let to = b.topic("out");
    b.create(&to, 1, &[]);
    let codecs = ["zstd", "lz4", "snappy", "gzip", "uncompressed"];
    let topics: Vec<TopicName> = codecs.iter().map(|c| b.topic(c)).collect();
    for (topic, codec) in topics.iter().zip(codecs) {
        b.create(topic, 1, &[("compression.type", codec)]);
        b.feed(topic, 0, &numbers(1, 100, &["a common text that compresses well"]));
    }
    let sources: Vec<_> = topics.iter().map(|t| (t, Reading::Shared)).collect();
    let plan = b.unit(vec![Script::copy(&to).plan(0, &sources)]);
    let mut thread = b.thread(&plan, 0);
    b.run_until_count(&mut [&mut thread], &to, 500).expect("runs");
    b.stop(thread);
}

/// C040: if this broke, an application whose group was forgotten while it stood still would read everything again and do it all once
/// more.
#[test]
fn c040_forgotten_positions_repeat_no_effect() {
    let shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("forgotten-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let (service, topology) = (Service::start(), topology(work.path(), &app));
    let start = |name: &str| {
        let mut member = Running::with(&topology, &work.path().join("state"), name, &[("NOTICES_URL", &service.url)]);
        member.until_running();
        member
    };
    let all_of = |n: usize| (1..=n).map(|i| (format!("op-{i}"), 1)).collect::<BTreeMap<_, _>>();
    let mut first = start("first");
    (1..=5).for_each(|i| ask(&app, &format!("op-{i}")));
    until("five notices", || (service.posts() == all_of(5)).then_some(()));
    assert_eq!(first.terminate().code(), Some(0), "{}", first.said());

    let admin = shared.cluster.admin().expect("admin");
    // The effect unit refuses to start without its positions (RB0309); the stream unit reads from the start. A static member that left
    // is waited for until its session is over.
    until("the group is forgotten", || admin.forget(&GroupId::from(app.as_str())).ok());
    ask(&app, "op-6");
    let mut second = start("second");
    let watched = Command::new(program())
        .args(["ops", "watch", "op-6", "--app", &app, "--for", "2m", "--brokers", stack().brokers()])
        .output()
        .expect("the program runs");
    let shown = String::from_utf8_lossy(&watched.stdout).into_owned();
    assert!(watched.status.success() && shown.contains("confirmed"), "{shown}{}", String::from_utf8_lossy(&watched.stderr));
    let input = Tp::new(format!("{app}.in").as_str(), 0);
    let source = GroupId::from(app.clone());
    until("all partitions are read again", || {
        let tps: Vec<Tp> = (0..4).map(|p| Tp { partition: Partition(p), ..input.clone() }).collect();
        let at = admin.committed(&source, &tps).ok()?;
        let mut reader = shared.cluster.reader(Isolation::Committed).ok()?;
        let behind = |tp: &Tp| reader.ends(tp, Isolation::Committed).ok().map(|(_, end)| (tp.clone(), end));
        let ends: Vec<_> = tps.iter().filter_map(behind).filter(|(_, end)| end.0 > 0).collect();
        ends.iter().all(|(tp, end)| at.iter().any(|(t, n)| t == tp && n >= end)).then_some(())
    });
    assert_eq!(second.terminate().code(), Some(0), "{}", second.said());
    assert_eq!(service.posts(), all_of(6));
}

/// C047: if this broke, a misspelt topic would be made by the broker with one partition, or waited for without a word; and a
/// misspelt topic of dead letters would be found out with the first bad record.
#[test]
fn c047_a_misspelt_topic_is_named_at_start_and_never_made() {
    let _shared = shared();
    for misspelt in ["inn", "daed"] {
        let (b, _, from, mut plan) = copy("misspelt", cluster_at(stack().brokers()), 1);
        let wrong = b.topic(misspelt);
        let topic = |name: &TopicName| InternalTopic {
            name: name.clone(),
            partitions: None,
            config: BTreeMap::new(),
            usage: TopicUse::External,
        };
        plan.topics = vec![topic(&from), topic(&wrong)];
        let state = StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true }).expect("state");
        let clock: readback::time::SharedClock = Arc::new(SystemClock);
        let units = vec![UnitRun { plan, threads: 1 }];
        let started = KafkaStreams::start(&b.cluster, units, &state, &clock, &b.options, &Metrics::unread().expect("metrics"));
        let refused = started.err().expect("it is missing");
        assert_eq!(refused.code, codes::TOPIC_MISSING);
        assert!(refused.to_string().contains(&format!("--create --topic {wrong}")), "{refused}");
        assert!(b.cluster.admin().expect("admin").topics().expect("topics").iter().all(|t| t.name != wrong), "the broker made it");
    }
}

/// C032: if this broke, one record with a time that the output topic does not take would stop the unit for ever, over and over.
#[test]
fn c032_a_time_that_the_output_refuses_costs_one_try_and_no_record() {
    let _shared = shared();
    let (b, script, ..) = copy("times", cluster_at(stack().brokers()), 1);
    let from = b.topic("odd");
    let any = i64::MAX.to_string();
    b.create(&from, 1, &[("message.timestamp.after.max.ms", &any), ("message.timestamp.before.max.ms", &any)]);
    let narrow = b.topic("narrow");
    b.create(&narrow, 6, &[("message.timestamp.after.max.ms", "3600000"), ("message.timestamp.before.max.ms", "604800000")]);
    let plan = b.unit(vec![Script { to: narrow.clone(), keeps_time: true, ..script }.plan(0, &[(&from, Reading::Shared)])]);
    let now = SystemClock.now().wall;
    let day = Duration::from_secs(86_400);
    let odd = [now.plus(2 * day), WallTime(now.0 * 1_000), WallTime(now.0 - 30 * 86_400_000)];
    for (n, at) in odd.into_iter().enumerate() {
        b.feed(&from, 0, &numbers(n * 10, 9, &["k"]));
        let text = (n * 10 + 9).to_string();
        let record = OutRecord { timestamp: Some(at), ..readback::testing::scenarios::record(&from, 0, "k", &text) };
        b.cluster.publish(&[record], Duration::from_secs(10)).expect("publishes");
    }
    let mut thread = b.thread(&plan, 0);
    b.run_until_count(&mut [&mut thread], &narrow, 30).expect("goes on");
    b.stop(thread);
    let found: Vec<String> = b.values(&narrow, Isolation::Committed).into_values().flatten().collect();
    assert_eq!(found, (0..30).map(|n| n.to_string()).collect::<Vec<_>>());
}
