//! A declared topology with a suppression and a global table on the real broker, restored from its changelogs onto an empty disk.

use std::collections::BTreeMap;
use std::time::Duration;

use readback::ids::TopicName;
use readback::kafka::{Cluster as _, NewTopic};
use readback::time::{Clock, SystemClock, WallTime};

use crate::streams::{feed, started, values};
use crate::{shared, until};

fn text(name: &str) -> String {
    format!(
        r#"
application: {name}
sources:
  sales: {{ topic: {name}-sales, value: json }}
global_tables:
  products: {{ topic: {name}-products, value: json }}
steps:
  - {{ name: per-second, from: sales, group: {{ by: value.sku, count: true, window: {{ size: 1s, grace: 500ms }} }} }}
  - {{ name: finals, from: per-second, suppress: {{ until_window_closes: true }} }}
  - name: named
    from: finals
    join: {{ global: products, by: key.key, kind: left, value: {{ n: value, name: "table == null ? '?' : table.name" }} }}
  - {{ name: keyed, from: named, map: {{ key: key.key }} }}
  - {{ name: tell, from: keyed, to: {{ topic: {name}-told }} }}
dead_letters: {name}-dead
"#
    )
}

/// If this broke, a window that is held back would be told early, twice or never after its process is gone with its disk, or meet
/// another product than the table has.
#[test]
fn what_is_held_back_outlives_its_disk_and_meets_the_global_table() {
    let shared = shared();
    let cluster = &shared.cluster;
    let name = format!("declared-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let topic = |short: &str| TopicName::from(format!("{name}-{short}"));
    let new = ["sales", "products", "told", "dead"].map(|t| {
        let config = if t == "products" { [("cleanup.policy".to_owned(), "compact".to_owned())].into() } else { BTreeMap::new() };
        NewTopic { name: topic(t), partitions: 2, replication: -1, config }
    });
    let admin = cluster.admin().expect("an admin client");
    admin.create(&new).expect("created");
    until("the topics", || new.iter().all(|t| matches!(admin.topic(&t.name), Ok(Some(_)))).then_some(()));
    let base = WallTime(SystemClock.now().wall.0 / 1_000 * 1_000 - 60_000);
    let at = |ms: u64| base.plus(Duration::from_millis(ms));
    let start = |dir: &tempfile::TempDir| {
        let text = text(&name);
        started(move || readback::declare::parse("t.yaml", &text).unwrap_or_else(|d| panic!("{d}")).application, dir.path())
    };
    let sold = |sku: &str| format!(r#"{{"sku": "{sku}"}}"#);
    let (tea, cup) = (sold("tea"), sold("cup"));

    feed(cluster, &topic("products"), &[("tea", r#"{"name": "Green tea"}"#, at(0))]);
    let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let running = start(&dirs[0]);
    // The first window of each is closed by its second; the second one is held back when the process goes.
    let first =
        [("a", tea.as_str(), at(100)), ("b", &tea, at(200)), ("c", &cup, at(300)), ("d", &tea, at(2_000)), ("e", &cup, at(2_000))];
    feed(cluster, &topic("sales"), &first);
    let told = |n: usize| {
        let there = values(cluster, &topic("told"));
        (there.values().map(Vec::len).sum::<usize>() >= n).then_some(there)
    };
    let there = until("the first windows", || told(2));
    assert_eq!(
        (there["tea"].as_slice(), there["cup"].as_slice()),
        ([r#"{"n":2,"name":"Green tea"}"#.to_owned()].as_slice(), [r#"{"n":1,"name":"?"}"#.to_owned()].as_slice())
    );
    running.stop();

    feed(cluster, &topic("products"), &[("cup", r#"{"name": "Cup"}"#, at(3_000))]);
    let running = start(&dirs[1]);
    let later = [("f", tea.as_str(), at(2_100)), ("g", &tea, at(4_000)), ("h", &cup, at(4_000))];
    feed(cluster, &topic("sales"), &later);
    let there = until("the windows that were held back", || told(4));
    assert_eq!(there["tea"], [r#"{"n":2,"name":"Green tea"}"#, r#"{"n":2,"name":"Green tea"}"#]);
    assert_eq!(there["cup"], [r#"{"n":1,"name":"?"}"#, r#"{"n":1,"name":"Cup"}"#]);
    running.stop();
    assert!(values(cluster, &topic("dead")).is_empty(), "no record was refused");
}

/// If this broke, a cached count would lose what it held back when its process goes, or write each step on the way.
#[test]
fn a_cached_count_goes_on_over_a_lost_disk() {
    let shared = shared();
    let cluster = &shared.cluster;
    let name = format!("cached-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let topic = |short: &str| TopicName::from(format!("{name}-{short}"));
    let new = ["in", "out", "dead"].map(|t| NewTopic { name: topic(t), partitions: 2, replication: -1, config: BTreeMap::new() });
    let admin = cluster.admin().expect("an admin client");
    admin.create(&new).expect("created");
    until("the topics", || new.iter().all(|t| matches!(admin.topic(&t.name), Ok(Some(_)))).then_some(()));
    let text = format!(
        "application: {name}\nsources: {{ in: {{ topic: {name}-in, value: json }} }}\ndead_letters: {name}-dead\nsteps:\n  \
         - {{ name: counts, from: in, group: {{ count: true, caching: true }} }}\n  \
         - {{ name: tell, from: counts, to: {{ topic: {name}-out }} }}\n"
    );
    let start = |dir: &tempfile::TempDir| {
        let text = text.clone();
        started(move || readback::declare::parse("t.yaml", &text).unwrap_or_else(|d| panic!("{d}")).application, dir.path())
    };
    let burst: Vec<_> = (0..2_000).map(|i| (["a", "b", "c", "d"][i % 4], "{}", SystemClock.now().wall)).collect();
    let counted = |each: &str| {
        let there = values(cluster, &topic("out"));
        ["a", "b", "c", "d"].iter().all(|k| there.get(*k).is_some_and(|v| v.last().is_some_and(|n| n == each))).then_some(there)
    };
    let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    for (dir, each) in dirs.iter().zip(["500", "1000"]) {
        feed(cluster, &topic("in"), &burst);
        let running = start(dir);
        let there = until("the counts", || counted(each));
        running.stop();
        for (key, counts) in &there {
            let counts: Vec<i64> = counts.iter().map(|n| n.parse().expect("a number")).collect();
            assert!(counts.is_sorted_by(|a, b| a < b), "{key}: {counts:?}");
        }
        let (written, logged) =
            [&there, &values(cluster, &topic("counts-changelog"))].map(|t| t.values().map(Vec::len).sum::<usize>()).into();
        println!("{written} records written and {logged} logged, of 2,000 a round");
        assert_eq!(written, logged, "one of each for each change");
        assert!(written < 1_000, "{written}");
    }
}
