//! Commands around an application on a real cluster: `new --topic`, `diff`, `reset`, and the metrics of a running member.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use readback::events;
use readback::ids::{GroupId, TopicName, Tp};
use readback::kafka::{Cluster, NewTopic};
use readback::record::OutRecord;
use readback::registry::{Registry, RegistryAuth};
use readback::time::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::processes::Running;
use crate::story::program;
use crate::{Shared, shared, stack, until};

/// Runs the program beside the test's cluster: exit code, stdout, stderr.
fn readback(args: &[&str]) -> (Option<i32>, String, String) {
    let out = Command::new(program())
        .args(args)
        .env("READBACK_BROKERS", stack().brokers())
        .env("READBACK_REGISTRY", stack().registry())
        .envs(TARGET)
        .output()
        .expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// Nobody listens there: an operation stays open.
const TARGET: [(&str, &str); 2] = [("WEBHOOK_URL", "http://localhost:9"), ("WEBHOOK_TOKEN", "t")];

fn unique(name: &str) -> String {
    format!("{name}-{}", &uuid::Uuid::new_v4().simple().to_string()[..6])
}

/// A topology of `readback new` for any webhook: its directory and application.
fn webhook(work: &Path) -> (String, String) {
    let app = unique("tools");
    let dir = work.join("topology").to_str().expect("text").to_owned();
    let (exit, _, error) = readback(&["new", &dir, "--contract", "plain-webhook", "--name", &app]);
    assert_eq!(exit, Some(0), "{error}");
    (dir, app)
}

/// A request that is due in ten minutes.
fn ask(shared: &Shared, app: &str, id: &str) {
    let value = json!({
        "id": id, "tenant": "acme", "requested_at": chrono::Utc::now().to_rfc3339(), "event": "order.placed", "payload": { "n": 1 },
    });
    let (topic, value) = (TopicName::from(format!("{app}.requests")), value.to_string());
    let record = OutRecord {
        topic: &topic,
        partition: None,
        timestamp: Some(SystemClock.now().wall),
        key: Some(id.as_bytes()),
        value: Some(value.as_bytes()),
        headers: None,
    };
    shared.cluster.publish(&[record], Duration::from_secs(20)).expect("published");
}

fn start(dir: &str, work: &Path, name: &str, listen: &str) -> Running {
    let more = [TARGET[0], TARGET[1], ("READBACK_ADMIN__LISTEN", listen)];
    let mut member = Running::with(Path::new(dir), &work.join("state"), name, &more);
    member.until_running();
    member
}

/// Waits until the group's coordinator has forgotten a member that was stopped.
fn nobody_is_left(shared: &Shared, app: &str) {
    let admin = shared.cluster.admin().expect("admin");
    for group in [app.to_owned(), format!("{app}.effects")] {
        let group = GroupId::new(&group);
        until("its members are forgotten", || admin.members(&group).ok()?.is_empty().then_some(()));
    }
}

/// If this broke, a deploy or a reset would lose what was sent without a word; or a reset would leave something behind that the next
/// start trips over.
#[test]
fn diff_and_reset_know_what_is_open_and_what_was_deployed() {
    let shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let (dir, app) = webhook(work.path());
    let admin = shared.cluster.admin().expect("admin");
    let (exit, told, error) = readback(&["diff", &dir]);
    assert!(exit == Some(1) && told.contains("no member has stored"), "{told}{error}");
    assert!(told.contains(&format!("{app}.requests")) && told.contains("RB0302"), "{told}");
    let mut member = start(&dir, work.path(), "first", "");
    ask(&shared, &app, "1");
    let listed = || readback(&["ops", "list", "--app", &app, "--output", "json"]).1;
    until("the operation is known", || listed().contains("deliver-1").then_some(()));

    until("what runs is stored", || readback(&["diff", &dir]).1.contains("that readback").then_some(()));

    let (exit, told, error) = readback(&["reset", &dir, "--execute", "--forget-operations", "--reason", "test"]);
    assert!(exit == Some(1) && error.contains("members are alive"), "{told}{error}");
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
    nobody_is_left(&shared, &app);
    // Nobody has read it when everything begins behind it.
    ask(&shared, &app, "unread");

    // The same again loses nothing; without its step, the open operation would be lost.
    let (exit, told, error) = readback(&["diff", &dir]);
    assert!(exit == Some(0) && told.contains("compared with version 1 that readback"), "{told}{error}");
    assert!(told.contains("open operations: "), "{told}");
    let file = Path::new(&dir).join("topology.yaml");
    let text = std::fs::read_to_string(&file).expect("is there");
    std::fs::write(&file, text.replace("name: deliver", "name: send")).expect("written");
    let (exit, told, _) = readback(&["diff", &dir]);
    assert!(exit == Some(1) && told.contains("lost    operations") && told.contains("no such step"), "{told}");
    std::fs::write(&file, &text).expect("written");

    let state = work.path().join("state");
    let base = ["reset", &dir, "--to-latest", "--state-dir", state.to_str().expect("text")];
    let (exit, told, error) = readback(&[&base[..], &["--execute"]].concat());
    assert!(exit == Some(1) && error.contains("operations are open"), "{told}{error}");
    let ledger = TopicName::from(format!("{app}.effects-ledger-changelog"));
    assert!(admin.topic(&ledger).expect("asked").is_some(), "a refused reset touches nothing");
    let forced = [&base[..], &["--forget-operations", "--reason", "the test ends"]].concat();
    let (exit, told, error) = readback(&forced);
    assert!(exit == Some(0) && told.contains("nothing is changed") && told.contains(&format!("delete {ledger}")), "{told}{error}");
    assert!(admin.topic(&ledger).expect("asked").is_some(), "a dry run touches nothing");
    let (exit, told, error) = readback(&[&forced[..], &["--execute"]].concat());
    assert_eq!(exit, Some(0), "{told}{error}");

    let left: Vec<String> =
        admin.topics().expect("asked").into_iter().map(|t| t.name.to_string()).filter(|t| t.starts_with(&app)).collect();
    let kept = ["-audit", "-deployed", ".dead", ".requests", ".results"].map(|end| format!("{app}{end}"));
    assert_eq!(left.iter().filter(|t| !kept.contains(t)).count(), 0, "{left:?}");
    assert!(std::fs::read_dir(&state).map_or(0, Iterator::count) == 0, "the state directory is empty");
    let tps: Vec<Tp> = (0..4).map(|p| Tp::new(format!("{app}.requests").as_str(), p)).collect();
    let at: i64 = admin.committed(&GroupId::new(&app), &tps).expect("asked").iter().map(|(_, at)| at.0).sum();
    assert_eq!(at, 2, "behind both requests");

    // It starts, knows nothing, and takes what comes from now on.
    let mut member = start(&dir, work.path(), "second", "");
    ask(&shared, &app, "2");
    until("the new operation is known", || listed().contains("deliver-2").then_some(()));
    assert!(!listed().contains("deliver-1") && !listed().contains("unread"), "{}", listed());
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}

/// If this broke, a dashboard would be built on a list that no member keeps to, or an unbounded label would come in unseen.
#[test]
fn a_running_member_exposes_what_the_catalogue_says() {
    let shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let (dir, app) = webhook(work.path());
    let mut member = start(&dir, work.path(), "member", "127.0.0.1:0");
    ask(&shared, &app, "1");
    let said = member.said();
    let address =
        said.lines().find(|l| l.contains("metrics and health")).and_then(|l| l.split("address=").nth(1)).expect("it listens");
    let address = address.split_whitespace().next().expect("an address").to_owned();
    let scrape = || {
        let mut to = TcpStream::connect(&address).ok()?;
        write!(to, "GET /metrics HTTP/1.1\r\nHost: readback\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        to.read_to_string(&mut answer).ok()?;
        // Metrics show once something has been counted under them.
        let listed = answer.matches("# TYPE readback_").count();
        (answer.contains("readback_effects_operations") && listed > 15).then_some(answer)
    };
    let text = until("the operation is counted", scrape);
    let mut seen = 0;
    for line in text.lines() {
        assert!(!line.starts_with("readback_") || line.contains("application=\""), "{line} does not say whose it is");
        if let Some((name, kind)) = line.strip_prefix("# TYPE readback_").and_then(|l| l.split_once(' ')) {
            let name = format!("readback_{name}");
            let known =
                events::ALL.iter().copied().flatten().find(|m| m.name == name).unwrap_or_else(|| panic!("{name} is not listed"));
            assert_eq!(format!("{:?}", known.kind).to_lowercase(), kind, "{name}");
            assert!(text.contains(&format!("# HELP {name} {}", known.help)), "{name}");
            seen += 1;
        }
        let labels =
            line.strip_prefix("readback_").and_then(|l| l.split_once('{')).and_then(|(name, l)| Some((name, l.split_once('}')?.0)));
        let Some((name, labels)) = labels else { continue };
        let bare = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let known = events::ALL.iter().copied().flatten().find(|m| [name, bare].iter().any(|n| m.name == format!("readback_{n}")));
        let known = known.unwrap_or_else(|| panic!("{name} is not listed"));
        for label in labels.split("\",").filter_map(|l| l.split_once('=')).map(|(name, _)| name).filter(|l| *l != "le") {
            assert!(label == events::APPLICATION || known.labels.contains(&label), "{name} has the label {label}");
        }
    }
    assert!(seen > 15, "{text}");
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}

/// If this broke, a topology made from a topic would not read what stands on it.
#[test]
fn new_reads_the_schema_of_a_topic_that_exists() {
    let shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let topic = unique("shipments");
    let admin = shared.cluster.admin().expect("admin");
    let new = NewTopic { name: TopicName::new(&topic), partitions: 2, replication: 1, config: Default::default() };
    let dir = work.path().join("made");
    let dir = dir.to_str().expect("text");
    let make = || readback(&["new", dir, "--contract", "plain-webhook", "--topic", &topic]);
    let (exit, _, error) = make();
    assert!(exit == Some(2) && error.contains("RB0302"), "{error}");
    admin.create(&[new]).expect("created");
    until("the topic is there", || admin.topic(&TopicName::new(&topic)).ok()?.map(drop));
    let (exit, _, error) = make();
    assert!(exit == Some(2) && error.contains("RB0502"), "{error}");
    let avsc = r#"{"type":"record","name":"Shipment","fields":[{"name":"shipment_id","type":"string"},
        {"name":"sent_at","type":{"type":"long","logicalType":"timestamp-millis"}}]}"#;
    let registry = Registry::new(stack().registry(), RegistryAuth::None).expect("a client");
    registry.register(&format!("{topic}-value"), avsc).expect("registered");
    let (exit, told, error) = make();
    assert_eq!(exit, Some(0), "{error}");
    assert!(told.contains("input.jsonl"), "{told}");
    let text = std::fs::read_to_string(Path::new(dir).join("topology.yaml")).expect("is there");
    for part in [topic.as_str(), "value: avro", "value.shipment_id", "timestamp(value.sent_at)"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    for command in ["check", "test"] {
        let (exit, _, error) = readback(&[command, dir]);
        assert_eq!(exit, Some(0), "{command}: {error}");
    }
    let (exit, told, error) = readback(&["check", dir, "--live", "--output", "json"]);
    let report: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{exit:?} {told}{error}"));
    assert_eq!(report["schema"], "readback.check/1");
    let seen = |t: &&Value| t["name"] == topic.as_str() && t["partitions"] == 2 && t["settings"]["min.insync.replicas"].is_string();
    assert!(report["topics"].as_array().is_some_and(|all| all.iter().any(|t| seen(&t))), "{told}");
    assert!(report["broker"]["transaction.max.timeout.ms"].is_string(), "{told}");
    assert_eq!(report["compatibility"][format!("{topic}-value")], "BACKWARD", "the source's, too: {told}");
    let of_edge = |e: &Value| e["edge"] == format!("{topic} → outbox") && e["standing"] == "weak";
    assert!(report["edges"].as_array().is_some_and(|all| all.iter().any(of_edge)), "one replica is less than it wants: {told}");
    let (_, told, _) = readback(&["check", dir, "--live"]);
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        " · cluster ",
        " · Kafka ",
        "limits of the brokers",
        "transaction.max.timeout.ms",
        "on less than it wants",
        "replication 1, min.insync.replicas 1",
        &format!("{topic}-value BACKWARD"),
        "policies/plain-webhook.cedar is asked",
    ] {
        assert!(told.contains(part), "no {part} in\n{told}");
    }
}

/// If this broke, people would be told figures of an installation that nobody measured, or find a bench's topics on their cluster.
#[test]
fn bench_measures_both_sides_and_cleans_up() {
    let shared = shared();
    let args = ["bench", "--records", "300000", "--rounds", "1", "--count", "20", "--rate", "20", "--output", "json"];
    let (exit, told, error) = readback(&args);
    assert_eq!(exit, Some(0), "{error}");
    let report: Value = serde_json::from_str(&told).expect("one object");
    assert_eq!((report["schema"].as_str(), report["local"].as_bool()), (Some("readback.bench/1"), Some(false)));
    for (part, member) in [("passthrough", "per_second"), ("passthrough", "cpu_us"), ("effects", "p50_ms"), ("effects", "p99_ms")] {
        for side in ["bare", "readback"] {
            assert!(report[part][side][member].as_f64().is_some_and(|n| n > 0.0), "{part} {side} {member}: {told}");
        }
        let number = |side: &str| report[part][side][member].as_f64().expect("a number");
        let ratio = report[part]["ratio"][member].as_f64().expect("a ratio");
        assert!((ratio - number("readback") / number("bare")).abs() < 1e-9, "{told}");
    }
    let admin = shared.cluster.admin().expect("admin");
    let mine = |t: &str| t.starts_with("readback-bench-");
    until("its topics are gone", || (!admin.topics().ok()?.iter().any(|t| mine(t.name.as_str()))).then_some(()));
}
