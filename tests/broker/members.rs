//! Members that come back as something else, and members without slots (KIP-848).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use readback::ids::{GroupId, TopicName};
use readback::kafka::rdkafka::RdCluster;
use readback::kafka::{Cluster as _, Isolation, NewTopic, Reading};
use readback::record::OutRecord;
use readback::testing::scenarios::{Script, numbers};

use crate::processes::Running;
use crate::scenarios::bench;
use crate::{shared, until};

/// If this broke, a deploy that changes a topology's inputs would end each member that is back within its session, or leave it with what
/// its former self read: the new inputs would wait for ever.
#[test]
fn a_slot_that_is_back_with_other_inputs_is_forgotten_and_reads_them() {
    let shared = shared();
    for (name, inputs) in [("other", &["more"][..]), ("further", &["in", "more"])] {
        let b = bench(name, shared.cluster.clone());
        let (from, more, to) = (b.topic("in"), b.topic("more"), b.topic("out"));
        [&from, &more, &to].into_iter().for_each(|t| b.create(t, 2, &[]));
        let unit = |topics: &[&TopicName]| {
            let parts = topics.iter().zip(0..).map(|(topic, id)| Script::copy(&to).plan(id, &[(topic, Reading::Shared)]));
            b.unit(parts.collect())
        };
        let mut former = b.thread(&unit(&[&from]), 0);
        b.feed(&from, 0, &numbers(1, 10, &["k"]));
        b.run_until_count(&mut [&mut former], &to, 10).expect("runs");
        b.stop(former);

        // Within its session, before the group has forgotten what the slot had.
        let topics: Vec<TopicName> = inputs.iter().map(|t| b.topic(t)).collect();
        let mut now = b.thread(&unit(&topics.iter().collect::<Vec<_>>()), 0);
        b.feed(&more, 1, &numbers(11, 10, &["k"]));
        b.run_until_count(&mut [&mut now], &to, 20).expect("the slot goes on");
        assert_eq!(now.running().len(), 2 * inputs.len(), "{name}");
        b.stop(now);
        let mut values: Vec<String> = b.values(&to, Isolation::Committed).into_values().flatten().collect();
        values.sort_by_key(|v| v.parse::<u32>().expect("a number"));
        assert_eq!(values, (1..=20).map(|n| n.to_string()).collect::<Vec<_>>(), "{name}");
    }
}

/// `<app>.in` to `<app>.out`, as far as `step` says; with more in `step` it has a store.
fn topology(work: &Path, app: &str, step: &str) -> PathBuf {
    let dir = work.join("topology");
    std::fs::create_dir_all(&dir).expect("a directory");
    let graph = format!(
        "application: {app}\nversion: 1\nsources:\n  asked: {{ topic: {app}.in, key: string, value: json }}\nsteps:\n\
         {step}  - name: tell\n    from: step\n    to: {{ topic: {app}.out }}\ndead_letters: {app}.dead\n"
    );
    std::fs::write(dir.join("topology.yaml"), graph).expect("writes");
    dir
}

const FILTER: &str = "  - name: step\n    from: asked\n    filter: value.n > 0\n";
const COUNT: &str = "  - name: step\n    from: asked\n    group: { by: key, count: true }\n";

fn feed(cluster: &RdCluster, topic: &TopicName, numbers: std::ops::Range<usize>) {
    let texts: Vec<(String, String)> = numbers.map(|n| (format!("k{n}"), format!("{{\"n\":{n}}}"))).collect();
    let records = texts.iter().map(|(key, value)| OutRecord {
        topic,
        partition: None,
        timestamp: None,
        key: Some(key.as_bytes()),
        value: Some(value.as_bytes()),
        headers: None,
    });
    cluster.publish(&records.collect::<Vec<_>>(), Duration::from_secs(20)).expect("published");
}

/// If this broke, `group.protocol: consumer` would not be spoken, would lose or repeat records while members come and go, or would be
/// taken by a unit whose stores need slots.
#[test]
fn members_without_slots_share_a_topic_by_kip_848_and_units_with_stores_are_refused() {
    let shared = shared();
    let cluster = &shared.cluster;
    let app = format!("kip848-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let topic = |short: &str| TopicName::from(format!("{app}.{short}"));
    let new = ["in", "out", "dead"].map(|t| NewTopic { name: topic(t), partitions: 4, replication: -1, config: BTreeMap::new() });
    let admin = cluster.admin().expect("an admin client");
    admin.create(&new).expect("created");
    let work = tempfile::tempdir().expect("a directory");
    let more = [("READBACK_GROUP__PROTOCOL", "consumer")];
    let dir = topology(work.path(), &app, FILTER);
    let start = |ordinal: u32, name: &str| {
        let mut member = Running::numbered(ordinal, &dir, &work.path().join(name), name, &more);
        member.until_running();
        member
    };
    let out = bench("kip848", cluster.clone());
    let until_there = |count: usize| until("all is there", || (out.count(&topic("out")) >= count).then_some(()));

    let mut first = start(0, "first");
    feed(cluster, &topic("in"), 1..101);
    until_there(100);
    assert!(admin.members(&GroupId::from(app.as_str())).expect("asked").is_empty(), "the classic protocol lists its members");
    let mut second = start(1, "second");
    until("partitions move", || second.said().contains("tasks run").then_some(()));
    feed(cluster, &topic("in"), 101..201);
    until_there(200);
    assert_eq!(first.terminate().code(), Some(0), "{}", first.said());
    feed(cluster, &topic("in"), 201..301);
    until_there(300);
    assert_eq!(second.terminate().code(), Some(0), "{}", second.said());
    let mut values: Vec<String> = out.values(&topic("out"), Isolation::Committed).into_values().flatten().collect();
    values.sort();
    let mut expected: Vec<String> = (1..301).map(|n| format!("{{\"n\":{n}}}")).collect();
    expected.sort();
    assert_eq!(values, expected);

    let mut refused = Running::with(&topology(work.path(), &app, COUNT), &work.path().join("refused"), "refused", &more);
    assert_eq!(until("it ends", || refused.try_wait()).code(), Some(2), "{}", refused.said());
    assert!(refused.said().contains("RB0316") && refused.said().contains("the store step"), "{}", refused.said());
}
