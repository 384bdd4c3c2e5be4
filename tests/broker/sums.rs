//! An application with state and an effect, in real processes on three brokers, to be broken: a sum for each account over a repartition
//! topic and a changelog, and a note at a target for every tenth record. Judged by a plain fold over the input, by the target's book,
//! and by its stores beside their changelogs.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use readback::demo::members::{Member as _, MemberProcess, MemberSetup};
use readback::ids::{Partition, StoreName, TaskId, TopicName, Tp, UnitName};
use readback::intents::Status;
use readback::kafka::rdkafka::{RdCluster, RdConfig};
use readback::kafka::{Cluster as _, Isolation, NewTopic};
use readback::offset::NextOffset;
use readback::record::{InRecord, OutRecord};
use readback::state::{ChangelogSpec, EngineKind, StateConfig, StateManager, StoreId, StoreSpec};
use serde_json::{Value, json};

use crate::brokers::{Brokers, three_brokers};
use crate::protocol::{Reply, reply, serve, within};
use crate::story::{judged, program, results};
use crate::until;

pub const PARTITIONS: u32 = 4;
/// Accounts that are summed.
const ACCOUNTS: usize = 13;
/// Records of one feeding, and the pause between two.
const FED_AT_ONCE: usize = 40;
const FED_EVERY: Duration = Duration::from_millis(50);
/// One record of so many asks for a note.
const NOTED: usize = 10;
/// Until when a note may be sent at last: less than a contract's calls are admitted for by default, more than any fault takes.
const DUE: Duration = Duration::from_secs(600);

/// The target's book: each note that was written, by name and the key that came with it.
type Book = Arc<Mutex<Vec<(String, String)>>>;

fn lock(book: &Book) -> MutexGuard<'_, Vec<(String, String)>> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The application in its processes, with somebody who feeds it until it is judged.
pub struct Sums {
    pub brokers: MutexGuard<'static, Brokers>,
    pub app: String,
    pub cluster: RdCluster,
    pub members: Vec<MemberProcess>,
    setup: MemberSetup,
    work: Option<tempfile::TempDir>,
    book: Book,
    /// Requests that reached the target.
    pub asked: Arc<AtomicUsize>,
    feeding: Arc<AtomicBool>,
    feeder: Option<JoinHandle<usize>>,
}

impl Sums {
    /// Topics, a target, two members and somebody who feeds them; both work when this is over.
    pub fn start(name: &str) -> Self {
        let brokers = three_brokers();
        let app = format!("{name}-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
        let cluster = RdCluster::new(RdConfig::new(&brokers.addresses)).expect("settings");
        let new = ["in", "sums", "results", "dead"].map(|t| NewTopic {
            name: TopicName::from(format!("{app}.{t}")),
            partitions: PARTITIONS,
            replication: -1,
            config: BTreeMap::new(),
        });
        until("the topics are created", || cluster.admin().and_then(|a| a.create(&new)).ok());
        let work = tempfile::Builder::new().prefix("readback-sums-").tempdir().expect("a directory");
        let (book, asked) = (Book::default(), Arc::new(AtomicUsize::new(0)));
        let topology = topology(work.path(), &app, &target(&book, &asked));
        let env = [
            ("READBACK_BROKERS", brokers.addresses.as_str()),
            ("READBACK_REGISTRY", &brokers.registry),
            ("READBACK_REGISTRY__REGISTER", "true"),
            // Made above; a broker that has not heard of that yet is asked again.
            ("READBACK_TOPICS__CREATE", "true"),
            ("READBACK_GROUP__SESSION_TIMEOUT", "12s"),
            ("READBACK_GROUP__TRANSACTION_TIMEOUT", "10s"),
        ];
        let env = env.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        let setup = MemberSetup { program: program(), topology, dir: work.path().to_owned(), env };
        let feeding = Arc::new(AtomicBool::new(true));
        let feeder = Some(feeder(&cluster, &app, &feeding));
        let work = Some(work);
        let mut sums = Self { brokers, app, cluster, members: Vec::new(), setup, work, book, asked, feeding, feeder };
        sums.join();
        sums.join();
        sums.goes_on();
        sums
    }

    pub fn topic(&self, short: &str) -> TopicName {
        TopicName::from(format!("{}.{short}", self.app))
    }

    /// One more member.
    pub fn join(&mut self) {
        let ordinal = self.members.len() as u32;
        self.members.push(MemberProcess::start(&self.setup, ordinal, &[]).expect("a member starts"));
    }

    /// The last member leaves in order.
    pub fn leave(&mut self) {
        self.members.pop().expect("a member").stop(Duration::from_secs(60)).expect("leaves in order");
    }

    /// How many sums and results are committed.
    pub fn told(&self) -> [usize; 2] {
        ["sums", "results"].map(|t| until("the ends are known", || ends(&self.cluster, &self.topic(t))))
    }

    /// Until sums and results have come that were not there when this was called.
    pub fn goes_on(&mut self) {
        let before = self.told();
        until("work goes on", || {
            self.members.iter_mut().for_each(|m| m.check().expect("every member lives"));
            let now = self.told();
            (now[0] > before[0] && now[1] > before[1]).then_some(())
        });
    }

    /// Ends the feeding, waits until all is done, stops the members; what is not as it must be.
    pub fn verdict(mut self) -> Vec<String> {
        self.feeding.store(false, Ordering::Release);
        let fed = self.feeder.take().expect("fed until now").join().expect("the feeder lives");
        let input = fold(&records(&self.cluster, &self.topic("in")));
        let settled = self.settled(&input);
        self.members.iter_mut().for_each(|m| m.stop(Duration::from_secs(60)).expect("stops in order"));
        let mut wrong: Vec<String> = settled.into_iter().collect();
        if input.records < fed {
            wrong.push(format!("{fed} records were acknowledged, {} are in the input", input.records));
        }
        wrong.extend(self.wrong_sums(&input));
        wrong.extend(self.wrong_notes(&input));
        wrong.extend(self.wrong_stores());
        eprintln!("{}: {} records, {} notes; {} wrong", self.app, input.records, input.noted.len(), wrong.len());
        let topics = self.cluster.admin().and_then(|a| a.topics()).expect("topics");
        let ours: Vec<TopicName> = topics.into_iter().map(|t| t.name).filter(|t| t.as_str().starts_with(&self.app)).collect();
        match (wrong.is_empty(), self.work.take()) {
            (true, _) => until("the topics are deleted", || self.cluster.admin().and_then(|a| a.delete(&ours)).ok()),
            (false, Some(work)) => wrong.push(format!("logs: {}", work.keep().display())),
            (false, None) => {}
        }
        wrong
    }

    /// Until each sum is told and each note has ended; what is missing where that never comes.
    fn settled(&mut self, input: &Fold) -> Option<String> {
        let mut missing = String::new();
        let came = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("all is done", || {
                self.members.iter_mut().for_each(|m| m.check().expect("every member lives"));
                let (sums, ended) = (last_sums(&self.outputs()), self.ended());
                missing = format!("{} of {} notes have ended; sums {sums:?}", ended.len(), input.noted.len());
                (sums == input.sums && ended.len() == input.noted.len()).then_some(())
            })
        }));
        came.err().map(|_| format!("it never came to rest: {missing}; the input's {:?}", input.sums))
    }

    fn outputs(&self) -> Vec<InRecord> {
        records(&self.cluster, &self.topic("sums"))
    }

    /// How operations have ended, by their last result, and what it said of that.
    fn ended(&self) -> BTreeMap<String, (Status, String)> {
        let all = results(&self.cluster, &self.topic("results"), PARTITIONS);
        let ends = all.into_iter().map(|s| s.record).filter(|r| r.status.is_end());
        ends.map(|r| (r.operation_id.to_string(), (r.status, r.detail.unwrap_or_default()))).collect()
    }

    /// Each account's sums once each, in order, as a fold over its records gives them.
    fn wrong_sums(&self, input: &Fold) -> Vec<String> {
        let mut told: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
        for r in self.outputs() {
            let (account, n, sum) = read_sum(&r);
            told.entry(account).or_default().push((n, sum));
        }
        let differs = |(account, steps): (&String, &Vec<(i64, i64)>)| {
            let told = told.get(account).map_or(&[][..], Vec::as_slice);
            let at = told.iter().zip(steps).position(|(a, b)| a != b).unwrap_or_else(|| told.len().min(steps.len()));
            (told != steps).then(|| format!("{account}: differs after {at} of {} steps, {} told", steps.len(), told.len()))
        };
        input.steps.iter().filter_map(differs).collect()
    }

    /// Every note that was asked for is confirmed, and stands in the book once; results keep their own rules.
    fn wrong_notes(&self, input: &Fold) -> Vec<String> {
        let (ended, mut wrong) = (self.ended(), Vec::new());
        let mut book: BTreeMap<String, usize> = BTreeMap::new();
        lock(&self.book).iter().for_each(|(name, _)| *book.entry(name.clone()).or_default() += 1);
        for operation in &input.noted {
            match (ended.get(operation), book.get(operation).copied().unwrap_or(0)) {
                (Some((Status::Confirmed, _)), 1) => {}
                (told, written) => wrong.push(format!("{operation}: reported {told:?}, written {written} times")),
            }
        }
        let strays = book.keys().filter(|name| !input.noted.contains(*name));
        wrong.extend(strays.map(|name| format!("{name}: in the book, and nobody asked")));
        wrong.extend(judged(&results(&self.cluster, &self.topic("results"), PARTITIONS)));
        wrong
    }

    /// Each store that any member has left on its disk has the hash of its changelog up to the position where the store stands.
    fn wrong_stores(&self) -> Vec<String> {
        let (mut wrong, mut compared) = (Vec::new(), BTreeSet::new());
        let dir = &self.setup.dir;
        let states = std::fs::read_dir(dir).expect("the directory").flatten().map(|e| e.path());
        let states = states.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("state-")));
        for home in
            states.flat_map(|s| std::fs::read_dir(s).expect("a state directory").flatten().map(|e| e.path()).filter(|p| p.is_dir()))
        {
            let config = StateConfig { dir: Some(home.clone()), cache: 1 << 20, inline: true };
            let state = StateManager::open(config).expect("nobody has it");
            for (unit, store) in [(self.app.clone(), "sum"), (format!("{}.effects", self.app), "ledger")] {
                for p in 0..PARTITIONS as i32 {
                    let log = Tp::new(TopicName::from(format!("{unit}-{store}-changelog")), p);
                    let Some((at, on_disk)) = on_disk(&state, &unit, store, &log) else { continue };
                    let logged = entries(&read(&self.cluster, &log, at));
                    compared.insert(log.clone());
                    if hash(&on_disk) != hash(&logged) {
                        let (home, here, there) = (home.display(), on_disk.len(), logged.len());
                        wrong.push(format!("{home}: {log} at {at}: {here} entries here, {there} in the changelog"));
                    }
                }
            }
        }
        let all = 2 * PARTITIONS as usize;
        if compared.len() != all {
            wrong.push(format!("{} of {all} stores could be compared", compared.len()));
        }
        wrong
    }
}

impl Drop for Sums {
    fn drop(&mut self) {
        self.feeding.store(false, Ordering::Release);
    }
}

/// Writes records until it is told to stop; how many were acknowledged. A batch without an answer is written again: the fold reads what
/// is there.
fn feeder(cluster: &RdCluster, app: &str, feeding: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let (cluster, feeding, topic) = (cluster.clone(), feeding.clone(), TopicName::from(format!("{app}.in")));
    std::thread::spawn(move || {
        let mut fed = 0;
        while feeding.load(Ordering::Acquire) {
            let record = |i: usize| {
                let account = format!("account-{}", i * 7 % ACCOUNTS);
                let value = json!({ "id": format!("note-{i}"), "account": account, "amount": i, "noted": i.is_multiple_of(NOTED),
                    "until": within(DUE) });
                (account, value.to_string())
            };
            let batch: Vec<(String, String)> = (fed..fed + FED_AT_ONCE).map(record).collect();
            let out = batch.iter().map(|(key, value)| OutRecord {
                topic: &topic,
                partition: None,
                timestamp: None,
                key: Some(key.as_bytes()),
                value: Some(value.as_bytes()),
                headers: None,
            });
            let out: Vec<OutRecord<'_>> = out.collect();
            while cluster.publish(&out, Duration::from_secs(20)).is_err() {
                if !feeding.load(Ordering::Acquire) {
                    return fed;
                }
            }
            fed += FED_AT_ONCE;
            std::thread::sleep(FED_EVERY);
        }
        fed
    })
}

/// Writes notes down. Of some it loses the first request, of some the first answer, by their numbers.
fn target(book: &Book, asked: &Arc<AtomicUsize>) -> String {
    let (book, asked) = (book.clone(), asked.clone());
    let seen: Mutex<BTreeSet<String>> = Mutex::default();
    serve(move |request| {
        if let Some(rest) = request.line.strip_prefix("GET /notes?ref=") {
            let of = rest.split(' ').next().unwrap_or_default();
            let items: Vec<Value> =
                lock(&book).iter().filter(|(_, key)| key == of).map(|(name, key)| json!({ "name": name, "ref": key })).collect();
            return reply(200, json!({ "items": items }));
        }
        asked.fetch_add(1, Ordering::SeqCst);
        let name = request.text("name").to_owned();
        let first = seen.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        let number: usize = name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let fate = if first { number / NOTED % 9 } else { 0 };
        let write = || lock(&book).push((name.clone(), request.text("ref").to_owned()));
        match fate {
            3 => Reply { lost: true, ..reply(0, json!({})) },
            6 => {
                write();
                Reply { lost: true, ..reply(0, json!({})) }
            }
            _ => {
                write();
                reply(201, json!({ "name": name }))
            }
        }
    })
}

const CONTRACT: &str = r#"contract: notes
version: 1
verified_on: 2026-11-20
target: { base_url: BASE, hosts: ["127.0.0.1"], private: true, intermediaries: none }
calls:
  write:
    parameters: { name: { type: string } }
    request: { method: POST, path: /notes, json: { ref: "{key}", name: "{name}" } }
    key: { carrier: body }
    dedupe: none
    confirm: readback
    readback:
      request: { method: GET, path: /notes, query: { ref: "{key}" } }
      complete: "true"
      ours: body.items.filter(n, n.ref == key && n.name == name)
      evidence: item.name
      lag: 100ms
    in_flight: { bound: 3s, because: "a thread of the test answers or drops what has come" }
    answers: [{ status: 201, means: applied, evidence: body.name }]
    policy: { timeout: 2s, attempts: 5 }
"#;

fn topology(work: &Path, app: &str, base: &str) -> PathBuf {
    let dir = work.join("topology");
    std::fs::create_dir_all(dir.join("contracts")).expect("a directory");
    let graph = format!(
        "application: {app}
version: 1
sources:
  asked: {{ topic: {app}.in, key: string, value: json }}
steps:
  - name: sum
    from: asked
    group:
      by: value.account
      aggregate:
        from: {{ n: \"0\", sum: \"0\" }}
        with: {{ n: aggregate.n + 1, sum: aggregate.sum + value.amount }}
  - name: tell
    from: sum
    to: {{ topic: {app}.sums }}
  - name: noted
    from: asked
    filter: value.noted
  - name: note
    from: noted
    effect:
      contract: contracts/notes.yaml#write
      request:
        operation_id: value.id
        tenant: '\"acme\"'
        requester: '\"service:tests\"'
        resource: '\"account/\" + value.account'
        deadline: timestamp(value.until)
      parameters: {{ name: value.id }}
      order_by: value.id
results: {app}.results
dead_letters: {app}.dead
"
    );
    std::fs::write(dir.join("topology.yaml"), graph).expect("writes");
    std::fs::write(dir.join("contracts/notes.yaml"), CONTRACT.replace("BASE", base)).expect("writes");
    dir
}

/// What the input asks for.
struct Fold {
    records: usize,
    /// Each account's (records, sum) after each of its records.
    steps: BTreeMap<String, Vec<(i64, i64)>>,
    /// The last of them.
    sums: BTreeMap<String, (i64, i64)>,
    noted: BTreeSet<String>,
}

fn fold(input: &[InRecord]) -> Fold {
    let mut f = Fold { records: input.len(), steps: BTreeMap::new(), sums: BTreeMap::new(), noted: BTreeSet::new() };
    for r in input {
        let v: Value = serde_json::from_slice(r.value.as_deref().expect("a value")).expect("JSON");
        let account = v["account"].as_str().expect("an account").to_owned();
        let (n, sum) = f.sums.get(&account).copied().unwrap_or_default();
        let next = (n + 1, sum + v["amount"].as_i64().expect("an amount"));
        f.sums.insert(account.clone(), next);
        f.steps.entry(account).or_default().push(next);
        if v["noted"] == true {
            f.noted.insert(v["id"].as_str().expect("an id").to_owned());
        }
    }
    f
}

/// Account, records and sum.
fn read_sum(r: &InRecord) -> (String, i64, i64) {
    let v: Value = serde_json::from_slice(r.value.as_deref().expect("a value")).expect("JSON");
    let account = String::from_utf8_lossy(r.key.as_deref().expect("a key")).into_owned();
    (account, v["n"].as_i64().expect("a count"), v["sum"].as_i64().expect("a sum"))
}

fn last_sums(outputs: &[InRecord]) -> BTreeMap<String, (i64, i64)> {
    outputs.iter().map(read_sum).map(|(account, n, sum)| (account, (n, sum))).collect()
}

/// All committed records of a topic, partition by partition.
fn records(cluster: &RdCluster, topic: &TopicName) -> Vec<InRecord> {
    let mut found = Vec::new();
    for p in 0..PARTITIONS as i32 {
        let tp = Tp::new(topic.clone(), p);
        let mut reader = cluster.reader(Isolation::Committed).expect("a reader");
        let (_, end) = until("its end", || reader.ends(&tp, Isolation::Committed).ok());
        found.extend(read(cluster, &tp, end));
    }
    found
}

/// The committed records of a partition before `end`.
fn read(cluster: &RdCluster, tp: &Tp, end: NextOffset) -> Vec<InRecord> {
    let mut reader = cluster.reader(Isolation::Committed).expect("a reader");
    reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assign");
    let mut found = Vec::new();
    until("all is read", || {
        if end.0 == 0 {
            return Some(());
        }
        while let Some(r) = reader.poll(Duration::from_millis(20)).ok()? {
            found.push(r);
        }
        reader.position(tp).filter(|at| *at >= end).map(drop)
    });
    found.retain(|r| r.offset.0 < end.0);
    found
}

/// The ends of all partitions together; `None` while somebody does not answer.
fn ends(cluster: &RdCluster, topic: &TopicName) -> Option<usize> {
    let mut reader = cluster.reader(Isolation::Committed).ok()?;
    let one = |p| reader.ends(&Tp::new(topic.clone(), p), Isolation::Committed).ok();
    (0..PARTITIONS as i32).map(one).map(|end| Some(usize::try_from(end?.1.0).unwrap_or(0))).sum()
}

/// What records leave behind, by key.
fn entries(log: &[InRecord]) -> BTreeMap<Bytes, Bytes> {
    let mut kept = BTreeMap::new();
    for r in log {
        let Some(key) = r.key.clone() else { continue };
        match r.value.clone() {
            Some(value) => kept.insert(key, value),
            None => kept.remove(&key),
        };
    }
    kept
}

/// A partition of a store as a stopped member left it, and where it stands; `None` where it never had it.
fn on_disk(state: &StateManager, unit: &str, store: &str, log: &Tp) -> Option<(NextOffset, BTreeMap<Bytes, Bytes>)> {
    let changelog = ChangelogSpec { topic: log.topic.clone(), config: BTreeMap::new() };
    let spec = StoreSpec { name: StoreName::from(store), engine: EngineKind::Disk, cached: false, changelog: Some(changelog) };
    let task = TaskId { subtopology: 0, partition: Partition(log.partition.0) };
    let mut stores = state.task_stores(&UnitName::from(unit.to_owned()), task, &[spec]).expect("the store");
    let at = stores.changelogs().into_iter().find_map(|(_, at)| at)?;
    let all = stores.range(StoreId(0), None, None).expect("entries");
    Some((at, all.map(|e| e.expect("an entry")).map(|(key, stored)| (key, stored.value)).collect()))
}

fn hash(entries: &BTreeMap<Bytes, Bytes>) -> u64 {
    let mut hasher = DefaultHasher::new();
    entries.hash(&mut hasher);
    hasher.finish()
}
