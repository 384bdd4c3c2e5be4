//! Stores against a plain map, and what they keep over restarts and crashes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::Bytes;
use proptest::prelude::*;

use super::writer::Job;
use super::*;
use crate::ids::{Partition, TaskId, UnitName};
use crate::offset::{NextOffset, Offset};
use crate::record::InRecord;

const STORE: StoreId = StoreId(0);

pub(super) fn specs(engine: EngineKind) -> Vec<StoreSpec> {
    vec![StoreSpec {
        name: StoreName::new("counts"),
        engine,
        cached: false,
        changelog: Some(ChangelogSpec { topic: TopicName::new("app-counts-changelog"), config: BTreeMap::new() }),
    }]
}

fn manager(dir: Option<&Path>, inline: bool) -> StateManager {
    StateManager::open(StateConfig { dir: dir.map(Path::to_owned), cache: 10_000, inline }).expect("opens")
}

fn stores(manager: &StateManager, engine: EngineKind, partition: i32) -> TaskStores {
    let task = TaskId { subtopology: 0, partition: Partition(partition) };
    manager.task_stores(&UnitName::new("app"), task, &specs(engine)).expect("opens")
}

fn position(stores: &TaskStores) -> Option<NextOffset> {
    stores.changelogs()[0].1
}

fn put(stores: &mut TaskStores, key: &str, value: Option<&str>) {
    let value = value.map(|v| Stored::bytes(v.to_owned()));
    stores.put(STORE, Bytes::copy_from_slice(key.as_bytes()), value).expect("writes");
}

fn get(stores: &mut TaskStores, key: &str) -> Option<String> {
    let found = stores.get(STORE, key.as_bytes()).expect("reads")?;
    Some(String::from_utf8(found.value.to_vec()).expect("text"))
}

fn commit(stores: &mut TaskStores, at: i64) {
    stores.committed(&|_| Some(NextOffset(at))).expect("hands over");
}

type Map = BTreeMap<Vec<u8>, Bytes>;

fn all(scan: Scan) -> Map {
    let entries: Vec<_> = scan.map(|e| e.expect("reads")).collect();
    assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "each key once, in order");
    entries.into_iter().map(|(k, v)| (k.to_vec(), v.value)).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, u8),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    Range(Option<Vec<u8>>, Option<Vec<u8>>),
    Prefix(Vec<u8>),
    Commit,
    Abort,
    /// The writer stands still until the next of these.
    Hold,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)], 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (key(), any::<u8>()).prop_map(|(k, v)| Step::Put(k, v)),
        3 => key().prop_map(Step::Delete),
        4 => key().prop_map(Step::Get),
        2 => (prop::option::of(key()), prop::option::of(key())).prop_map(|(a, b)| Step::Range(a, b)),
        2 => key().prop_map(Step::Prefix),
        3 => Just(Step::Commit),
        1 => Just(Step::Abort),
        2 => Just(Step::Hold),
        1 => Just(Step::Reopen),
    ]
}

/// The store under test beside a map of what is committed and one of what is seen.
struct Side {
    engine: EngineKind,
    dir: Option<tempfile::TempDir>,
    inline: bool,
    manager: StateManager,
    stores: TaskStores,
    committed: Map,
    seen: Map,
    at: i64,
    held: Option<Receiver<()>>,
}

impl Side {
    fn new(engine: EngineKind, on_disk: bool, inline: bool) -> Self {
        let dir = on_disk.then(|| tempfile::tempdir().expect("a directory"));
        let manager = manager(dir.as_ref().map(|d| d.path()), inline);
        let stores = stores(&manager, engine, 3);
        Self { engine, dir, inline, manager, stores, committed: Map::new(), seen: Map::new(), at: 0, held: None }
    }
    fn run(&mut self, step: Step) {
        match step {
            Step::Put(k, v) => {
                let value = Bytes::from(vec![v; usize::from(v % 5)]);
                self.stores.put(STORE, Bytes::from(k.clone()), Some(Stored::bytes(value.clone()))).expect("writes");
                self.seen.insert(k, value);
            }
            Step::Delete(k) => {
                self.stores.put(STORE, Bytes::from(k.clone()), None).expect("writes");
                self.seen.remove(&k);
            }
            Step::Get(k) => {
                let found = self.stores.get(STORE, &k).expect("reads").map(|v| v.value);
                assert_eq!(found.as_ref(), self.seen.get(&k));
            }
            Step::Range(from, to) => {
                let inside = |k: &Vec<u8>| from.as_ref().is_none_or(|f| k >= f) && to.as_ref().is_none_or(|t| k < t);
                let right: Map = self.seen.iter().filter(|(k, _)| inside(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_eq!(all(self.stores.range(STORE, from.as_deref(), to.as_deref()).expect("scans")), right);
                let back = self.stores.range_back(STORE, from.as_deref(), to.as_deref()).expect("scans");
                let back: Vec<_> = back.map(|e| e.expect("reads")).map(|(k, v)| (k.to_vec(), v.value)).collect();
                assert_eq!(back, right.into_iter().rev().collect::<Vec<_>>(), "the other way round");
            }
            Step::Prefix(p) => {
                let right: Map = self.seen.iter().filter(|(k, _)| k.starts_with(&p)).map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_eq!(all(self.stores.prefix(STORE, &p).expect("scans")), right);
            }
            Step::Commit => {
                if !self.stores.ready_to_commit() {
                    self.held = None;
                    self.stores.writer.flush().expect("applies");
                }
                self.at += 1;
                commit(&mut self.stores, self.at);
                self.committed = self.seen.clone();
            }
            Step::Abort => {
                self.stores.aborted();
                self.seen = self.committed.clone();
                assert_eq!(self.stores.open_bytes(), 0);
            }
            Step::Hold if self.inline => {}
            Step::Hold => {
                self.held = None;
                let (send, receive) = sync_channel(0);
                self.stores.writer.submit(Job::Flush(send)).expect("queues");
                self.held = Some(receive);
            }
            Step::Reopen => self.reopen(),
        }
    }
    fn reopen(&mut self) {
        self.held = None;
        if self.dir.is_some() {
            self.manager.close().expect("closes");
            let empty = manager(None, true);
            self.stores = stores(&empty, self.engine, 3);
            self.manager = empty;
            self.manager = manager(self.dir.as_ref().map(|d| d.path()), self.inline);
        } else {
            self.stores.writer.flush().expect("applies");
        }
        self.stores = stores(&self.manager, self.engine, 3);
        self.seen = self.committed.clone();
        assert_eq!(position(&self.stores), (self.at > 0).then_some(NextOffset(self.at)));
        assert_eq!(all(self.stores.range(STORE, None, None).expect("scans")), self.committed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// If this broke, a task would read something else than it wrote: through overlays, queue, cache, engine, aborts and restarts.
    #[test]
    fn stores_are_a_map(
        steps in prop::collection::vec(step(), 1..60),
        engine in prop_oneof![Just(EngineKind::Disk), Just(EngineKind::Small)],
        on_disk: bool,
        inline: bool,
    ) {
        let mut side = Side::new(engine, on_disk, inline);
        for step in steps {
            side.run(step);
        }
        side.reopen();
    }
}

/// If this broke, an abort would cost a restore: committed data, queued data and position must stay.
#[test]
fn an_abort_takes_back_the_open_transaction_only() {
    let mut s = stores(&manager(None, true), EngineKind::Disk, 0);
    put(&mut s, "a", Some("1"));
    commit(&mut s, 1);
    put(&mut s, "a", Some("2"));
    put(&mut s, "b", Some("2"));
    s.aborted();
    assert_eq!((get(&mut s, "a"), get(&mut s, "b"), position(&s)), (Some("1".into()), None, Some(NextOffset(1))));
}

/// If this broke, a writer that falls behind would let uncommitted memory grow without bound.
#[test]
fn two_commits_wait_for_the_writer_and_no_third() {
    let dir = tempfile::tempdir().expect("a directory");
    let manager = manager(Some(dir.path()), false);
    let mut s = stores(&manager, EngineKind::Disk, 0);
    let (send, held) = sync_channel(0);
    s.writer.submit(Job::Flush(send)).expect("queues");
    for n in 1..=2 {
        assert!(s.ready_to_commit(), "before commit {n}");
        put(&mut s, "a", Some(&n.to_string()));
        commit(&mut s, n);
    }
    assert!(!s.ready_to_commit());
    assert_eq!(get(&mut s, "a"), Some("2".into()), "read from the queue, the newer one first");
    drop(held);
    s.drain().expect("applies");
    assert!(s.ready_to_commit());
}

/// If this broke, a partition that moves away would take its neighbours' data with it, or leave its own behind.
#[test]
fn a_wipe_takes_one_partition() {
    for engine in [EngineKind::Disk, EngineKind::Small] {
        let dir = tempfile::tempdir().expect("a directory");
        let manager = manager(Some(dir.path()), false);
        let mut parts: Vec<_> = (0..3).map(|p| stores(&manager, engine, p)).collect();
        for (p, s) in parts.iter_mut().enumerate() {
            for n in 0..200 {
                put(s, &format!("k{n}"), Some(&p.to_string()));
            }
            commit(s, 1);
        }
        let changelog = parts[1].changelogs()[0].0.clone();
        parts[1].wipe(&changelog).expect("wipes");
        for (p, s) in parts.iter_mut().enumerate() {
            let left = all(s.range(STORE, None, None).expect("scans")).len();
            assert_eq!((left, position(s)), if p == 1 { (0, None) } else { (200, Some(NextOffset(1))) }, "{engine:?} {p}");
        }
    }
}

fn changelog_record(tp: &Tp, offset: i64, key: &str, value: Option<&str>) -> InRecord {
    InRecord {
        tp: tp.clone(),
        offset: Offset(offset),
        timestamp: Some(WallTime(1_000 + offset)),
        key: Some(Bytes::copy_from_slice(key.as_bytes())),
        value: value.map(|v| Bytes::copy_from_slice(v.as_bytes())),
        headers: Headers::new().with("h", "1"),
    }
}

/// If this broke, a restored store would differ from the one that was lost: values, times, headers, deletions, position.
#[test]
fn restoring_replays_absolute_values() {
    let dir = tempfile::tempdir().expect("a directory");
    let manager = manager(Some(dir.path()), false);
    for engine in [EngineKind::Disk, EngineKind::Small, EngineKind::Memory] {
        let mut s = stores(&manager, engine, 5);
        let tp = s.changelogs()[0].0.clone();
        for n in 0..10i64 {
            let records = vec![
                changelog_record(&tp, 3 * n, "a", Some(&n.to_string())),
                changelog_record(&tp, 3 * n + 1, &format!("k{n}"), Some("x")),
                changelog_record(&tp, 3 * n + 2, &format!("k{}", n - 1), None),
            ];
            s.restore(&tp, records, NextOffset(3 * n + 3)).expect("restores");
        }
        s.drain().expect("applies");
        assert_eq!(position(&s), Some(NextOffset(30)));
        let right = Stored { value: "9".into(), timestamp: Some(WallTime(1_027)), headers: Headers::new().with("h", "1") };
        assert_eq!(s.get(STORE, b"a").expect("reads"), Some(right));
        assert_eq!(all(s.range(STORE, None, None).expect("scans")).len(), 2);
    }
}

/// If this broke, a store that missed tombstones would bring deleted entries back: no position, or a restore that broke off
/// longer ago than the changelog keeps tombstones.
#[test]
fn data_that_cannot_be_caught_up_is_dropped() {
    for engine in [EngineKind::Disk, EngineKind::Small] {
        let dir = tempfile::tempdir().expect("a directory");
        let manager = manager(Some(dir.path()), false);
        let mut s = stores(&manager, engine, 0);
        put(&mut s, "a", Some("1"));
        s.committed(&|_| None).expect("hands over");
        drop(s);
        let mut s = stores(&manager, engine, 0);
        assert_eq!((get(&mut s, "a"), position(&s)), (None, None), "{engine:?} without a position");
        let tp = s.changelogs()[0].0.clone();
        s.restore(&tp, vec![changelog_record(&tp, 0, "a", Some("1"))], NextOffset(1)).expect("restores");
        s.drain().expect("applies");
        drop(s);
        let mut s = stores(&manager, engine, 0);
        assert_eq!((get(&mut s, "a"), position(&s)), (None, None), "{engine:?} from 1970");
        put(&mut s, "a", Some("1"));
        commit(&mut s, 2);
        drop(s);
        let mut s = stores(&manager, engine, 0);
        assert_eq!((get(&mut s, "a"), position(&s)), (Some("1".into()), Some(NextOffset(2))), "{engine:?} current");
    }
}

/// If this broke, two processes would write one directory, or an older version would read what it can't know.
#[test]
fn a_directory_has_one_process_and_a_known_format() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || StateManager::open(StateConfig { dir: Some(dir.path().to_owned()), cache: 0, inline: false });
    let first = open().expect("opens");
    assert_eq!(open().err().map(|e| e.code), Some(codes::STATE_DIR_LOCKED));
    first.close().expect("closes");
    drop(first);
    drop(open().expect("is free again"));
    std::fs::write(dir.path().join("format"), "2\n").expect("writes");
    let refused = open().err().expect("refused");
    assert_eq!(refused.code, codes::STORE_FAILED);
    assert!(refused.to_string().contains("format is 2"), "{refused}");
}

const CRASH_DIR: &str = "READBACK_TEST_CRASH_DIR";
const KEYS: i64 = 50;

/// What the killed child runs: batch `n` sets `all` and key `n % 50` to `n`. Does nothing when run as a test.
#[test]
fn crash_child() {
    let Some(dir) = std::env::var_os(CRASH_DIR) else { return };
    let manager = manager(Some(Path::new(&dir)), false);
    let mut sides: Vec<_> = [(EngineKind::Disk, 0), (EngineKind::Small, 1)].map(|(e, p)| stores(&manager, e, p)).into();
    for n in position(&sides[0]).map_or(1, |p| p.0 + 1).. {
        for s in &mut sides {
            while !s.ready_to_commit() {
                std::thread::yield_now();
            }
            put(s, "all", Some(&n.to_string()));
            put(s, &format!("k{:03}", n % KEYS), Some(&n.to_string()));
            commit(s, n);
        }
        println!("committed {n}");
    }
}

/// If this broke, a kill -9 would leave a store whose data is not that of its position, or a position higher than its data.
#[test]
fn a_killed_process_leaves_data_that_fits_its_position() {
    let dir = tempfile::tempdir().expect("a directory");
    for kill_at in [30, 400, 1_500] {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "state::tests::crash_child", "--nocapture"])
            .env(CRASH_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let seen = lines.filter(|l| l.starts_with("committed")).take(kill_at).count();
        child.kill().expect("is there to kill");
        child.wait().expect("ends");
        assert_eq!(seen, kill_at, "the child ended by itself");
        let manager = manager(Some(dir.path()), false);
        for (engine, p) in [(EngineKind::Disk, 0), (EngineKind::Small, 1)] {
            let mut s = stores(&manager, engine, p);
            let at = position(&s).expect("wrote something").0;
            assert!(at >= kill_at as i64 - 4, "{engine:?}: more lost than may wait: {at} of {kill_at}");
            let mut right: Map =
                (0..KEYS).map(|k| (k, at - (at - k).rem_euclid(KEYS))).filter(|(_, n)| *n > 0).map(entry).collect();
            right.insert(b"all".to_vec(), Bytes::from(at.to_string()));
            assert_eq!(all(s.range(STORE, None, None).expect("scans")), right, "{engine:?} at {at}");
        }
    }
}

fn entry((k, n): (i64, i64)) -> (Vec<u8>, Bytes) {
    (format!("k{k:03}").into_bytes(), Bytes::from(n.to_string()))
}

/// If this broke, the same transaction would write its changelog in another order each time, and a recorded run would not come out as
/// expected.
#[test]
fn what_a_cached_store_has_not_logged_comes_once_a_key_in_key_order() {
    let specs = specs(EngineKind::Memory).into_iter().map(|s| StoreSpec { cached: true, ..s }).collect();
    let mut stores = TaskStores::in_memory(Partition(0), specs);
    let logged = |stores: &mut TaskStores| -> Vec<String> {
        let changes = stores.unlogged().expect("reads");
        changes.iter().map(|c| String::from_utf8(c.key.to_vec()).expect("text")).collect()
    };
    let keys: Vec<String> = (0..300).map(|i| format!("{:03}", i * 7 % 300)).collect();
    for key in keys.iter().chain(&keys) {
        put(&mut stores, key, Some("1"));
    }
    put(&mut stores, "never", Some("1"));
    put(&mut stores, "never", None);
    let all: Vec<String> = (0..300).map(|i| format!("{i:03}")).collect();
    assert_eq!(logged(&mut stores), all, "what came and went is none of them");
    assert!(logged(&mut stores).is_empty(), "they are logged");
    put(&mut stores, "gone", Some("1"));
    stores.aborted();
    assert!(logged(&mut stores).is_empty(), "an abort takes them back");
}
