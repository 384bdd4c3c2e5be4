//! Dead letters on a real broker: read, shown and replayed by the program, each once, whoever else tries at the same time.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::Duration;

use readback::admin::dead_letters::{DeadLetters, Place};
use readback::admin::replay::{Known, ReplayOrder, Replayer};
use readback::ids::{ApplicationId, GroupId, Partition, TopicName, Tp, UnitName};
use readback::intents::headers;
use readback::kafka::rdkafka::RdCluster;
use readback::kafka::{Cluster as _, Isolation, NewTopic, Slot, TxLimits, TxSink as _};
use readback::offset::NextOffset;
use readback::record::{Headers, OutRecord};
use readback::time::{Clock as _, SystemClock, WallTime};

use crate::story::program;
use crate::{shared, stack, until};

/// The time of records that died: older than any topic's retention.
const OLD: WallTime = WallTime(1_767_225_600_000);

/// A source and its dead letters.
struct Ground {
    cluster: RdCluster,
    app: ApplicationId,
    source: TopicName,
    dead: TopicName,
}

impl Ground {
    fn new(cluster: RdCluster) -> Self {
        let name = format!("dlq-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
        let (source, dead) = (TopicName::from(format!("{name}.in")), TopicName::from(format!("{name}.dead")));
        let topic = |name: &TopicName, config| NewTopic { name: name.clone(), partitions: 2, replication: 1, config };
        // What goes back has its old time: the source keeps it. The letters are safe under the usual retention.
        let keeps = BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]);
        let topics = [topic(&source, keeps), topic(&dead, BTreeMap::new())];
        cluster.admin().and_then(|a| a.create(&topics)).expect("topics");
        Self { cluster, app: ApplicationId::from(name), source, dead }
    }

    /// `n` records that a step gave up, from the second partition of the source.
    fn bury(&self, n: usize) {
        let died = SystemClock.now().wall;
        let letters: Vec<(String, Headers)> = (0..n)
            .map(|i| {
                let headers = Headers::new()
                    .with("theirs", "kept")
                    .with(headers::DEAD_CODE, "RB0501")
                    .with(headers::DEAD_REASON, "no JSON")
                    .with(headers::DEAD_ORIGIN, format!("{}/1/{i}", self.source))
                    .with(headers::DEAD_AT, died.0.to_string())
                    .with(headers::DEAD_TIME, OLD.0.to_string());
                (format!("card 4242-{i}"), headers)
            })
            .collect();
        let records: Vec<OutRecord<'_>> = letters
            .iter()
            .map(|(value, headers)| OutRecord {
                topic: &self.dead,
                partition: Some(Partition(0)),
                timestamp: Some(died),
                key: Some(b"k"),
                value: Some(value.as_bytes()),
                headers: Some(headers),
            })
            .collect();
        self.cluster.publish(&records, Duration::from_secs(20)).expect("published");
    }

    fn resting(&self) -> Vec<Place> {
        DeadLetters::read(&self.cluster, &self.dead).expect("reads").resting().map(|l| l.place.clone()).collect()
    }

    /// What of the source is committed: partition, value, time and headers.
    fn source(&self) -> Vec<(i32, String, Option<WallTime>, Headers)> {
        let mut found = Vec::new();
        for p in 0..2 {
            let tp = Tp::new(self.source.clone(), p);
            let mut reader = self.cluster.reader(Isolation::Committed).expect("a reader");
            let (_, end) = reader.ends(&tp, Isolation::Uncommitted).expect("ends");
            reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assign");
            until("the end", || {
                while let Some(r) = reader.poll(Duration::from_millis(50)).ok()? {
                    let text = String::from_utf8_lossy(r.value.as_deref().unwrap_or_default()).into_owned();
                    found.push((p, text, r.timestamp, r.headers));
                }
                (end.0 == 0 || reader.position(&tp).is_some_and(|at| at >= end)).then_some(())
            });
        }
        found
    }

    fn program(&self, args: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.arg("dlq").args(args).args(["--brokers", stack().brokers(), "--app", self.app.as_str()]);
        command.env("USER", "person@acme").output().expect("the program starts")
    }
}

fn lines(out: &Output) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

/// If this broke, an operator could not see what rests or why, would see payload unasked, or could not send it back once and once only.
#[test]
fn the_program_lists_shows_and_replays_once() {
    let there = shared();
    let g = Ground::new(there.cluster.clone());
    g.bury(3);
    let listed = lines(&g.program(&["list", "--topic", g.dead.as_str(), "--output", "json"]));
    assert_eq!(listed.len(), 3);
    assert_eq!((&listed[0]["code"], &listed[0]["back"]["to"]), (&"RB0501".into(), &g.source.as_str().into()));
    let none = lines(&g.program(&["list", "--topic", g.dead.as_str(), "--older-than", "1h", "--output", "json"]));
    assert!(none.is_empty(), "they died just now, whatever the time of their records");

    let letter = format!("{}-0-1", g.dead);
    let shown = String::from_utf8(g.program(&["show", &letter]).stdout).expect("text");
    assert!(shown.contains("theirs: kept") && shown.contains("<text of 11>") && !shown.contains("4242"), "{shown}");
    let whole = String::from_utf8(g.program(&["show", &letter, "--payload"]).stdout).expect("text");
    assert!(whole.contains("card 4242-1"), "{whole}");

    let dry = g.program(&["replay", &letter, "--reason", "try", "--dry-run"]);
    assert_eq!((dry.status.code(), g.source().len()), (Some(0), 0), "a dry run sends nothing");
    let went = g.program(&["replay", &letter, "--reason", "the mapping is fixed", "--output", "json"]);
    assert_eq!((went.status.code(), &lines(&went)[0]["to"]), (Some(0), &g.source.as_str().into()), "{went:?}");
    let again = g.program(&["replay", &letter, "--reason", "once more", "--output", "json"]);
    assert_eq!((again.status.code(), &lines(&again)[0]["code"]), (Some(1), &"RB0721".into()), "{again:?}");

    let no_filter = g.program(&["replay", "--all", "--topic", g.dead.as_str(), "--reason", "all"]);
    assert_eq!(no_filter.status.code(), Some(2), "all of them needs a filter");
    let rest = g.program(&["replay", "--all", "--topic", g.dead.as_str(), "--code", "RB0501", "--reason", "all"]);
    assert_eq!(rest.status.code(), Some(0), "{rest:?}");
    let mut sent = g.source();
    sent.sort_by(|a, b| a.1.cmp(&b.1));
    let values: Vec<&str> = sent.iter().map(|s| s.1.as_str()).collect();
    assert_eq!(values, ["card 4242-0", "card 4242-1", "card 4242-2"]);
    let expected = Headers::new().with("theirs", "kept").with(headers::REPLAY_OF, format!("{}/0/1", g.dead));
    assert_eq!((sent[1].0, sent[1].2, &sent[1].3), (1, Some(OLD), &expected));
    assert!(g.resting().is_empty());
}

/// If this broke, two persons at the same incident would send everything twice, or a killed one would leave letters that were sent and
/// not marked.
#[test]
fn several_at_once_and_a_killed_one_send_each_letter_once() {
    let there = shared();
    let g = Ground::new(there.cluster.clone());
    g.bury(20);
    let letters = g.resting();
    let unit = UnitName::from(format!("{}-dead-letters", g.app));
    let slot = Slot { group: GroupId::from(unit.to_string()), unit, number: 0 };
    let mut killed = g.cluster.sink(&slot, TxLimits { transaction: Duration::from_secs(30), reports: false }).expect("a producer");
    until("it is the only one", || killed.init().ok());
    killed.begin().expect("begins");
    let half = OutRecord {
        topic: &g.source,
        partition: Some(Partition(1)),
        timestamp: None,
        key: None,
        value: Some(b"card 4242-0"),
        headers: None,
    };
    killed.send(half).expect("sends");
    killed.flush(Duration::from_secs(20)).expect("it is in the log, uncommitted");

    let order = ReplayOrder { by: "p".into(), reason: "r".into(), at: SystemClock.now().wall, deadline: None };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let nothing = BTreeMap::new();
                let known = Known { operations: &nothing, partitions: &|_| Some(2) };
                // Whoever is shut out by another one tries again, as a person would.
                until("it had its turn", || {
                    Replayer::open(&g.cluster, &g.app).ok()?.replay(&g.dead, &letters, &known, &order).ok()
                });
            });
        }
    });
    assert!(killed.commit(Duration::from_secs(20)).is_err(), "it wakes up, and is shut out");
    let mut values: Vec<String> = g.source().into_iter().map(|s| s.1).collect();
    values.sort();
    let mut expected: Vec<String> = (0..20).map(|i| format!("card 4242-{i}")).collect();
    expected.sort();
    assert_eq!(values, expected);
    assert!(g.resting().is_empty());
}
