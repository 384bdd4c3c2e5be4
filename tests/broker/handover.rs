//! Planned hand-over between two processes of the program: a successor that is ready asks the owner of its slots to leave.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use readback::ids::{TopicName, Tp};
use readback::kafka::rdkafka::RdCluster;
use readback::kafka::{Cluster as _, Isolation, NewTopic};
use readback::offset::NextOffset;
use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{Running, orders, started};
use crate::{shared, stack, until};

/// Members 0 and 1 have two partitions each, by range.
const PARTITIONS: i32 = 4;
const KEYS: usize = 40;

/// Every request goes through as it is, and is counted by its key in a store with a changelog.
struct App {
    name: String,
    topology: PathBuf,
    work: tempfile::TempDir,
    producer: ThreadedProducer<DefaultProducerContext>,
}

impl App {
    fn new(name: &str, cluster: &RdCluster) -> Self {
        let name = format!("{name}-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
        let work = tempfile::tempdir().expect("a directory");
        let topology = work.path().join("topology");
        std::fs::create_dir_all(&topology).expect("a directory");
        let graph = format!(
            "application: {name}\nversion: 1\nsources:\n  asked: {{ topic: {name}.in, key: string, value: json }}\nsteps:\n\
             \x20 - name: passed\n    from: asked\n    filter: value.n > 0\n\
             \x20 - name: told\n    from: passed\n    to: {{ topic: {name}.out }}\n\
             \x20 - name: counted\n    from: asked\n    group: {{ by: key, count: true }}\n\
             \x20 - name: counts\n    from: counted\n    to: {{ topic: {name}.counts }}\n\
             dead_letters: {name}.dead\n"
        );
        std::fs::write(topology.join("topology.yaml"), graph).expect("writes");
        let producer = ClientConfig::new()
            .set("bootstrap.servers", stack().brokers())
            .set("enable.idempotence", "true")
            .set("partitioner", "murmur2_random")
            .create()
            .expect("a producer");
        let app = Self { name, topology, work, producer };
        let new = ["in", "out", "counts", "dead"].map(|t| NewTopic {
            name: app.topic(t),
            partitions: PARTITIONS as u32,
            replication: -1,
            config: BTreeMap::new(),
        });
        cluster.admin().and_then(|a| a.create(&new)).expect("created");
        app
    }
    fn topic(&self, short: &str) -> TopicName {
        TopicName::from(format!("{}.{short}", self.name))
    }
    /// The member of this ordinal. All share a state directory, as on one host.
    fn member(&self, ordinal: u32, name: &str, flags: &[&str]) -> Running {
        Running::flagged(ordinal, &self.topology, &self.state(), name, &[], flags)
    }
    fn state(&self) -> PathBuf {
        self.work.path().join("state")
    }
    /// Sends the `n`th record of each key: in the input a key stands in the partition that it has in the output.
    fn feed(&self, n: usize) {
        let (topic, value) = (self.topic("in"), format!("{{\"n\":{n}}}"));
        for k in 0..KEYS {
            let key = format!("k{k}");
            let record = BaseRecord::to(topic.as_str()).key(&key).payload(&value);
            self.producer.send(record).map_err(|(e, _)| e).expect("sent");
        }
        self.producer.flush(Duration::from_secs(20)).expect("acknowledged");
    }
}

/// What a read_committed reader saw of a topic, and when.
#[derive(Default)]
struct Seen {
    values: BTreeMap<String, Vec<String>>,
    at: BTreeMap<i32, Vec<Instant>>,
}

impl Seen {
    /// The longest time without a record on any of these partitions that ended after `since`.
    fn longest_gap(&self, partitions: std::ops::Range<i32>, since: Instant) -> Duration {
        let gaps = partitions.filter_map(|p| self.at.get(&p)).flat_map(|at| at.windows(2));
        gaps.filter(|w| w[1] > since).map(|w| w[1].duration_since(w[0])).max().unwrap_or_default()
    }
}

/// Reads a topic until it has `wanted` records; says how many there are.
fn watch(cluster: &RdCluster, topic: &TopicName, wanted: &AtomicUsize, seen: &std::sync::Mutex<Seen>) {
    let mut reader = cluster.reader(Isolation::Committed).expect("a reader");
    let start: Vec<_> = (0..PARTITIONS).map(|p| (Tp::new(topic.clone(), p), NextOffset(0))).collect();
    reader.assign(&start).expect("assigned");
    let (mut count, began) = (0, Instant::now());
    while count < wanted.load(Ordering::SeqCst) {
        assert!(began.elapsed() < Duration::from_secs(240), "{topic} has {count} records");
        let Ok(Some(record)) = reader.poll(Duration::from_millis(100)) else { continue };
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let mut seen = seen.lock().expect("no panic");
        seen.values.entry(text(record.key.as_deref())).or_default().push(text(record.value.as_deref()));
        seen.at.entry(record.tp.partition.0).or_default().push(Instant::now());
        count += 1;
    }
}

fn until_ended(member: &mut Running) -> ExitStatus {
    until("it ends", || member.try_wait())
}

/// If this broke, a planned hand-over would lose records or process them again, change their order by key or a count, or make the other
/// members stand still; or the owner would not end in order.
#[test]
fn hand_overs_back_and_forth_lose_and_repeat_nothing_and_move_nobody_else() {
    const HAND_OVERS: usize = 5;
    let shared = shared();
    let app = App::new("handover", &shared.cluster);
    let (mut owner, mut other) = (app.member(0, "owner-0", &[]), app.member(1, "other", &[]));
    owner.until_running();
    other.until_running();
    let (feeding, wanted) = (AtomicBool::new(true), AtomicUsize::new(usize::MAX));
    let (passed, counted) = (std::sync::Mutex::new(Seen::default()), std::sync::Mutex::new(Seen::default()));
    let records = std::thread::scope(|s| {
        s.spawn(|| watch(&shared.cluster, &app.topic("out"), &wanted, &passed));
        s.spawn(|| watch(&shared.cluster, &app.topic("counts"), &wanted, &counted));
        let feeder = s.spawn(|| {
            let mut n = 0;
            while feeding.load(Ordering::SeqCst) {
                n += 1;
                app.feed(n);
                std::thread::sleep(Duration::from_millis(5));
            }
            n
        });
        // Both members have their share when every partition has moved on.
        until("both have their share", || {
            (other.said().contains("tasks run") && passed.lock().expect("no panic").at.len() == PARTITIONS as usize).then_some(())
        });
        std::thread::sleep(Duration::from_secs(3));
        let before = other.said().len();
        let mut gaps = Vec::new();
        let gap = |since: Instant| {
            std::thread::sleep(Duration::from_secs(2));
            let passed = passed.lock().expect("no panic");
            (passed.longest_gap(0..2, since).as_millis(), passed.longest_gap(2..4, since).as_millis())
        };
        let steady = gap(Instant::now());
        for n in 1..=HAND_OVERS {
            let since = Instant::now();
            let mut successor = app.member(0, &format!("owner-{n}"), &["--take-over"]);
            successor.until_running();
            let ended = until_ended(&mut owner);
            assert_eq!(ended.code(), Some(0), "{}", owner.said());
            assert!(successor.said().contains("the owner has handed over"), "{}", successor.said());
            gaps.push(gap(since));
            owner = successor;
        }
        // For comparison: stopped, then started.
        let since = Instant::now();
        assert_eq!(owner.terminate().code(), Some(0), "{}", owner.said());
        owner = app.member(0, "restarted", &[]);
        owner.until_running();
        let restart = gap(since);
        eprintln!(
            "longest ms without output, on partitions that move and on the others: steady {steady:?}, {HAND_OVERS} hand-overs {gaps:?}, stop and start {restart:?}"
        );
        let since = &other.said()[before..];
        for moved in ["tasks run", "Rebalancing", "the transaction is taken back"] {
            assert!(!since.contains(moved), "the other member was disturbed: {since}");
        }
        feeding.store(false, Ordering::SeqCst);
        let n = feeder.join().expect("fed");
        wanted.store(n * KEYS, Ordering::SeqCst);
        n
    });
    assert_eq!(owner.terminate().code(), Some(0), "{}", owner.said());
    assert_eq!(other.terminate().code(), Some(0), "{}", other.said());
    let (passed, counted) = (passed.into_inner().expect("no panic"), counted.into_inner().expect("no panic"));
    let expected: Vec<String> = (1..=records).map(|n| format!("{{\"n\":{n}}}")).collect();
    let counts: Vec<String> = (1..=records).map(|n| n.to_string()).collect();
    assert_eq!(passed.values.len(), KEYS);
    for (key, values) in &passed.values {
        assert!(values == &expected, "{key}: {} of {records} records, or not in order", values.len());
    }
    for (key, values) in &counted.values {
        assert!(values == &counts, "{key}: {} of {records} counts, ending {:?}", values.len(), values.last());
    }
}

/// If this broke, a successor that can't take over would stop a member that runs well; or one without an owner, or with one that hangs,
/// would wait for ever or not say what is so.
#[test]
fn an_owner_stays_where_the_successor_is_not_for_its_slots_or_does_not_get_so_far() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let (topology, state) = (orders(work.path(), "stays"), work.path().join("state"));
    let start = |name: &str, more: &[(&str, &str)], flags: &[&str]| Running::flagged(0, &topology, &state, name, more, flags);
    // Nobody is there to be asked.
    let mut owner = start("owner", &[], &["--take-over"]);
    owner.until_running();
    assert!(owner.said().contains("no owner can be asked"), "{}", owner.said());
    // Other slots.
    let mut other = start("other", &[("READBACK_THREADS__EFFECTS", "2")], &["--take-over"]);
    assert_eq!(until_ended(&mut other).code(), Some(2), "{}", other.said());
    assert!(other.said().contains("RB0606") && other.said().contains("effect threads"), "{}", other.said());
    // It fails before it asks.
    let broken = [("READBACK_GROUP__TRANSACTION_TIMEOUT", "20m"), ("READBACK_GROUP__SESSION_TIMEOUT", "25m")];
    let mut early = start("early", &broken, &["--take-over"]);
    assert_eq!(until_ended(&mut early).code(), Some(2), "{}", early.said());
    // The owner hangs: it is not pushed aside, and stays when it comes to itself.
    let pid = Pid::from_raw(owner.id()).expect("a process");
    kill_process(pid, Signal::STOP).expect("is there");
    let mut late = start("late", &[], &["--take-over"]);
    let refused = until_ended(&mut late);
    kill_process(pid, Signal::CONT).expect("is there");
    assert_eq!(refused.code(), Some(2), "{}", late.said());
    assert!(late.said().contains("does not answer") && late.said().contains("RB0602"), "{}", late.said());
    assert_eq!(owner.try_wait(), None, "{}", owner.said());
    // And hands over to one that is right: effect unit, ledger and all.
    let mut successor = start("successor", &[], &["--take-over"]);
    successor.until_running();
    assert_eq!(until_ended(&mut owner).code(), Some(0), "{}", owner.said());
    assert_eq!(successor.terminate().code(), Some(0), "{}", successor.said());
}

/// If this broke, a supervisor could not be upgraded without a stop, would end with the member that made room, or would give up a
/// member for a successor that can't start.
#[test]
fn a_supervisor_renews_its_member_on_sigusr2() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let (topology, state) = (orders(work.path(), "renewed"), work.path().join("state"));
    let mut supervisor = Running::flagged(0, &topology, &state, "supervisor", &[], &["--supervise"]);
    supervisor.until_running();
    let renew =
        |supervisor: &Running| kill_process(Pid::from_raw(supervisor.id()).expect("a process"), Signal::USR2).expect("is there");
    renew(&supervisor);
    until("the successor is the member", || {
        let said = supervisor.said();
        let after = said.split("the owner has handed over").nth(1)?;
        (after.contains("Running") && after.contains("the successor is the member now")).then_some(())
    });
    assert_eq!(started(&supervisor).len(), 2);
    // A topology that does not load.
    let file = topology.join("topology.yaml");
    let good = std::fs::read_to_string(&file).expect("a topology");
    std::fs::write(&file, "application: [").expect("writes");
    renew(&supervisor);
    until("the successor fails", || supervisor.said().contains("the successor is gone").then_some(()));
    std::fs::write(&file, good).expect("writes");
    let members = started(&supervisor);
    assert_eq!(members.len(), 3);
    assert!(rustix::process::test_kill_process(members[1]).is_ok(), "the member goes on: {}", supervisor.said());
    assert_eq!(supervisor.terminate().code(), Some(0), "{}", supervisor.said());
}

/// What a successor says that dies right after it has asked.
fn ask_and_die(dir: &Path, place: &str) {
    use std::io::{BufRead as _, Write as _};
    let mut stream = std::os::unix::net::UnixStream::connect(dir.join("handover.sock")).expect("it listens");
    stream.write_all(format!("{{\"version\":1,\"place\":{place}}}\n").as_bytes()).expect("written");
    let mut answer = String::new();
    std::io::BufReader::new(&stream).read_line(&mut answer).expect("an answer");
    assert!(answer.contains("leaves"), "{answer}");
}

/// If this broke, a successor that dies after it has asked would leave something behind: partitions that wait for a session, or a
/// directory that is locked.
#[test]
fn after_a_successor_that_dies_the_slots_are_as_after_a_stop() {
    let shared = shared();
    let app = App::new("dies", &shared.cluster);
    let mut owner = app.member(0, "owner", &[]);
    owner.until_running();
    app.feed(1);
    let place = format!("{{\"application\":\"{}\",\"first\":0,\"stream\":1,\"effects\":1}}", app.name);
    ask_and_die(&app.state().join(format!("{}-000", app.name)), &place);
    assert_eq!(until_ended(&mut owner).code(), Some(0), "{}", owner.said());
    let mut next = app.member(0, "next", &["--take-over"]);
    next.until_running();
    app.feed(2);
    let (wanted, seen) = (AtomicUsize::new(2 * KEYS), std::sync::Mutex::new(Seen::default()));
    watch(&shared.cluster, &app.topic("counts"), &wanted, &seen);
    let seen = seen.into_inner().expect("no panic");
    assert!(seen.values.values().all(|counts| counts == &["1", "2"]), "{:?}", seen.values);
    assert_eq!(next.terminate().code(), Some(0), "{}", next.said());
}
