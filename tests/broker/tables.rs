//! Tables on the real broker: joined by key, by foreign key and with a global table, grouped, asked over HTTP, and restored onto an
//! empty disk.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use readback::admin::{AdminServer, StoresSlot};
use readback::app::{Process, ProcessEnd};
use readback::config::ProcessConfig;
use readback::dsl::{Application, Consumed, Grouped, Materialized, StreamsBuilder};
use readback::ids::TopicName;
use readback::kafka::rdkafka::RdCluster;
use readback::kafka::{Cluster, NewTopic};
use readback::record::OutRecord;
use readback::serdes::Serdes;
use serde_json::Value;

use crate::{shared, stack, until};

/// Orders with the customer that they name, counted by that customer's name; visits with the country that every process knows.
fn application(name: &str) -> Application {
    let b = StreamsBuilder::new(name).optimize();
    let topic = |short: &str| TopicName::from(format!("{name}-{short}"));
    let text = Serdes::string;
    let kept = |name: &str| Materialized::named(name, text(), text());
    let (orders, customers) = (b.table(topic("orders"), kept("orders")), b.table(topic("customers"), kept("customers")));
    let named = orders.foreign_key_left_join(
        &customers,
        |_, who| Some(who.clone()),
        kept("named"),
        |_, who, name| name.unwrap_or_else(|| format!("?{who}")),
    );
    named.group_by(|order, name| (name, order.clone()), Grouped::with(text(), text())).count("orders-by-name");
    let countries = b.global_table(topic("countries"), kept("countries"));
    let visits = b.stream(topic("visits"), Consumed::with(text(), text()));
    visits
        .join_global(&countries, |_, code| Some(code.clone()), |_, _, _, country| country)
        .to_table(kept("last-country"))
        .join(&orders, |_, country, who| format!("{who} in {country}"))
        .materialized(kept("seen-in"));
    b.build().expect("a topology")
}

/// A process with its admin port, on a thread of its own.
struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    admin: SocketAddr,
}

fn start(name: &str, dir: &Path) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let (name, dir, told) = (name.to_owned(), dir.to_owned(), stop.clone());
    let (ready, address) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut config = ProcessConfig { brokers: stack().brokers().to_owned(), ..ProcessConfig::default() };
        config.state.dir = dir;
        let tokio = tokio::runtime::Runtime::new().expect("a runtime");
        let (metrics, stores) = (prometheus::Registry::new(), StoresSlot::default());
        let serve = AdminServer::start("127.0.0.1:0", metrics.clone(), Arc::default(), Some(stores.clone()), Default::default());
        let server = tokio.block_on(serve).expect("a free port");
        ready.send(server.address).expect("told");
        let waiting = |e: &readback::error::Error| panic!("{e}");
        let process = Process::start(&application(&name), &config, &metrics, tokio.handle(), &told, &waiting);
        let process = process.unwrap_or_else(|e| panic!("{e}")).expect("not stopped");
        assert!(stores.set(process.stores().clone()).is_ok());
        match process.run(&told, &|_, _| ()) {
            ProcessEnd::Stopped => {}
            ProcessEnd::Failed(e) => panic!("{e}"),
        }
    });
    Running { stop, thread, admin: address.recv().expect("it starts") }
}

impl Running {
    /// Status and body of an answer.
    fn get(&self, path: &str) -> (u16, Value) {
        let mut to = TcpStream::connect(self.admin).expect("the admin port");
        write!(to, "GET {path} HTTP/1.1\r\nhost: readback\r\nconnection: close\r\n\r\n").expect("asked");
        let mut answer = String::new();
        to.read_to_string(&mut answer).expect("answered");
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }
    /// `key=value` of all entries of a store, once there are `n` and `f` likes them.
    fn entries(&self, store: &str, like: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut last = Value::Null;
        until(store, || {
            let (status, body) = self.get(&format!("/stores/{store}"));
            if body != last {
                println!("{store}: {status} {body}");
                last.clone_from(&body);
            }
            let show = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
            let entry = |e: &Value| format!("{}={}", show(&e["key"]), show(&e["value"]));
            let found: Vec<String> = body["entries"].as_array()?.iter().map(entry).collect();
            like(&found).then_some(found)
        })
    }
    fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("ends in order");
    }
}

fn feed(cluster: &RdCluster, topic: &TopicName, records: &[(&str, Option<&str>)]) {
    let out = records.iter().map(|(key, value)| OutRecord {
        topic,
        partition: None,
        timestamp: None,
        key: Some(key.as_bytes()),
        value: value.map(str::as_bytes),
        headers: None,
    });
    cluster.publish(&out.collect::<Vec<_>>(), Duration::from_secs(10)).expect("published");
}

/// If this broke, tables would lose or keep entries that they should not when their process is replaced by one with an empty disk,
/// or queries would not see what is committed.
#[test]
fn tables_are_joined_grouped_asked_and_restored() {
    let shared = shared();
    let cluster = &shared.cluster;
    let name = format!("tables-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let topic = |short: &str| TopicName::from(format!("{name}-{short}"));
    let new = [("orders", 4), ("visits", 4), ("customers", 2), ("countries", 3)].map(|(t, partitions)| NewTopic {
        name: topic(t),
        partitions,
        replication: -1,
        config: BTreeMap::new(),
    });
    cluster.admin().and_then(|a| a.create(&new)).expect("created");
    feed(cluster, &topic("countries"), &[("de", Some("Germany")), ("fr", Some("France"))]);
    let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];

    let running = start(&name, dirs[0].path());
    feed(cluster, &topic("customers"), &[("c1", Some("Al")), ("c2", Some("Bo"))]);
    feed(cluster, &topic("orders"), &[("o1", Some("c1")), ("o2", Some("c1")), ("o3", Some("c2")), ("o4", Some("c9"))]);
    feed(cluster, &topic("visits"), &[("o1", Some("de")), ("o2", Some("xx")), ("o3", Some("fr"))]);
    running.entries("orders-by-name", |e| *e == ["?c9=1", "Al=2", "Bo=1"]);
    running.entries("seen-in", |e| *e == ["o1=c1 in Germany", "o3=c2 in France"]);
    running.stop();

    // Another process with nothing on its disk; the join's other side changes, and an entry goes.
    let running = start(&name, dirs[1].path());
    feed(cluster, &topic("customers"), &[("c1", Some("Cy")), ("c9", Some("Di"))]);
    feed(cluster, &topic("orders"), &[("o3", None)]);
    running.entries("orders-by-name", |e| *e == ["?c9=0", "Al=0", "Bo=0", "Cy=2", "Di=1"]);
    running.entries("named", |e| *e == ["o1=Cy", "o2=Cy", "o4=Di"]);
    running.entries("seen-in", |e| *e == ["o1=c1 in Germany"]);

    let (status, found) = running.get("/stores/named/o1");
    assert_eq!((status, &found["value"]), (200, &Value::from("Cy")));
    assert!(found["position"].as_i64().is_some_and(|p| p > 0), "{found}");
    assert_eq!(running.get("/stores/named/nobody").0, 404);
    assert_eq!(running.get("/stores/countries/de").1["value"], "Germany");
    assert_eq!(running.get("/stores/named?prefix=o&limit=2").1["more"], true);
    assert_eq!(running.get("/stores/nothing/k").0, 404);
    let (_, stores) = running.get("/stores");
    let named = stores.as_array().and_then(|all| all.iter().find(|s| s["name"] == "named")).cloned().unwrap_or_default();
    assert_eq!((&named["partitions"], named["here"].as_array().map(Vec::len)), (&Value::from(4), Some(4)));
    running.stop();

    let admin = cluster.admin().expect("an admin client");
    let own = admin.topics().expect("topics").into_iter().map(|t| t.name.to_string()).filter(|t| t.starts_with(&name));
    assert!(!own.into_iter().any(|t| t.ends_with("-orders-changelog")), "the topic is the table's log");
}
