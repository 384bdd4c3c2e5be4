//! Tables, whole and in parts, on the runtime: stores, commits, queries.

use std::time::Duration;

use crate::app::{Found, Keys};
use crate::driver::TopologyTestDriver;
use crate::dsl::{Application, Consumed, Grouped, KTable, Materialized, Produced, StreamsBuilder};
use crate::error::codes;
use crate::kafka::Cluster;
use crate::record::{Headers, OutRecord};
use crate::serdes::{SerdeRef, Serdes};

fn text() -> SerdeRef<String> {
    Serdes::string()
}

fn kept(name: &str) -> Materialized<String, String> {
    Materialized::named(name, text(), text())
}

fn out() -> Produced<String, String> {
    Produced::with(text(), text())
}

fn pipe(d: &mut TopologyTestDriver, topic: &str, records: &[(Option<&str>, Option<&str>)]) {
    for (key, value) in records {
        d.pipe(topic, key.map(str::as_bytes), value.map(str::as_bytes), Headers::new(), None).unwrap();
    }
}

fn read(d: &mut TopologyTestDriver, topic: &str) -> Vec<String> {
    let show = |b: Option<bytes::Bytes>| b.map_or("null".into(), |b| String::from_utf8_lossy(&b).into_owned());
    d.read_output(topic).into_iter().map(|o| format!("{}={}", show(o.key), show(o.value))).collect()
}

/// If this broke, a stream would not find what every process holds, by whatever key it names, or a left join would drop records
/// that name none; the joined value must see the key it was found under.
#[test]
fn a_stream_meets_a_global_table_by_any_key() {
    let b = StreamsBuilder::new("app");
    let countries = b.global_table("countries", kept("countries"));
    let users = b.stream("users", Consumed::with(text(), text()));
    let code = |_: &String, v: &String| v.split_once('/').map(|(_, c)| c.to_owned());
    users.join_global(&countries, code, |_, c, _, name| format!("{c}:{name}")).to("inner", out());
    let left = |_: &String, c: Option<&String>, _: String, name: Option<String>| format!("{c:?}:{name:?}").replace('"', "");
    users.left_join_global(&countries, code, left).to("left", out());
    let mut d = TopologyTestDriver::new(&b.build().unwrap()).unwrap();
    pipe(&mut d, "countries", &[(Some("de"), Some("Germany")), (None, Some("skipped")), (Some("fr"), Some("France"))]);
    pipe(&mut d, "users", &[(Some("1"), Some("al/de")), (Some("2"), Some("bo/xx")), (Some("3"), Some("cy"))]);
    pipe(&mut d, "countries", &[(Some("de"), Some("Allemagne")), (Some("fr"), None)]);
    pipe(&mut d, "users", &[(Some("4"), Some("al/de")), (Some("5"), Some("di/fr"))]);
    assert_eq!(read(&mut d, "inner"), ["1=de:Germany", "4=de:Allemagne"]);
    let expected = ["1=Some(de):Some(Germany)", "2=Some(xx):None", "3=None:None", "4=Some(de):Some(Allemagne)", "5=Some(fr):None"];
    assert_eq!(read(&mut d, "left"), expected);
}

/// If this broke, one bad record of a global table would stop every process at each start, although the application said where bad
/// records go; or it would be taken for data.
#[test]
fn a_bad_record_of_a_global_table_is_left_out_or_stops_the_process() {
    let build = |dead: bool| {
        let b = StreamsBuilder::new("app");
        let b = if dead { b.dead_letters("dead") } else { b };
        let sizes = b.global_table("sizes", Materialized::named("sizes", text(), Serdes::long()));
        let s = b.stream("in", Consumed::with(text(), text()));
        s.join_global(&sizes, |k, _| Some(k.clone()), |_, _, _, n| n.to_string()).to("out", out());
        b.build().unwrap()
    };
    let mut d = TopologyTestDriver::new(&build(true)).unwrap();
    pipe(&mut d, "sizes", &[(Some("a"), Some("12345678")), (Some("a"), Some("bad")), (Some("b"), Some("bad"))]);
    pipe(&mut d, "in", &[(Some("a"), Some("x")), (Some("b"), Some("x"))]);
    assert_eq!(read(&mut d, "out"), ["a=3544952156018063160"], "the last good value");
    let mut d = TopologyTestDriver::new(&build(false)).unwrap();
    let e = d.pipe("sizes", Some(b"a"), Some(b"bad"), Headers::new(), None).unwrap_err();
    assert_eq!(e.code, codes::UNDECODABLE);
}

fn counts() -> Application {
    let b = StreamsBuilder::new("app");
    let words = b.stream("words", Consumed::with(text(), text()));
    words.group_by_key(Grouped::with(text(), text())).count("counts");
    b.global_table("names", kept("names"));
    b.build().unwrap()
}

/// If this broke, a query would not find what was committed, or not in the order of its keys, or more than was asked for.
#[test]
fn queries_answer_from_committed_stores() {
    let mut d = TopologyTestDriver::new(&counts()).unwrap();
    for key in ["b", "a", "ab", "b"] {
        pipe(&mut d, "words", &[(Some(key), Some("x"))]);
    }
    pipe(&mut d, "names", &[(Some("n"), Some("name"))]);
    let store = d.stores().store("counts").unwrap();
    let typed = store.typed(text(), Serdes::long());
    assert_eq!(typed.get(&"b".to_owned()).unwrap(), Some(2));
    assert_eq!(typed.get(&"z".to_owned()).unwrap(), None);
    assert_eq!(typed.entries(9).unwrap(), [("a".into(), 1), ("ab".into(), 1), ("b".into(), 2)]);
    let Found::Value(entry) = store.get(b"a").unwrap() else { panic!("it stands here") };
    assert!(entry.position.is_some() && entry.stored.timestamp.is_some());
    let keys = |keys: Keys, limit| {
        let found = store.entries(&keys, limit).unwrap();
        (found.entries.iter().map(|e| String::from_utf8_lossy(&e.key).into_owned()).collect::<Vec<_>>(), found.more)
    };
    assert_eq!(keys(Keys::Prefix("a".into()), 9), (vec!["a".into(), "ab".into()], false));
    assert_eq!(keys(Keys::Range(Some("ab".into()), Some("b".into())), 9), (vec!["ab".into()], false));
    assert_eq!(keys(Keys::Range(None, None), 2), (vec!["a".into(), "ab".into()], true));
    let names = d.stores().store("names").unwrap().typed(text(), text());
    assert_eq!(names.get(&"n".to_owned()).unwrap(), Some("name".into()));
    let e = d.stores().store("nothing").err().unwrap();
    assert!(e.to_string().contains("counts, names"), "{e}");
}

/// If this broke, the answer for a key that lives in another process would be that it stands nowhere.
#[test]
fn a_key_of_another_process_is_not_called_absent() {
    let d = TopologyTestDriver::new(&counts()).unwrap();
    let mut info = d.stores().store("counts").unwrap().info().clone();
    info.partitions = 4;
    let all = crate::app::Stores::new("app".into(), vec![info], crate::state::StoreViews::default(), Default::default(), None);
    let store = all.store("counts").unwrap();
    let place = crate::ids::partition_of(b"k", 4);
    assert_eq!(store.get(b"k").unwrap(), Found::Elsewhere(place));
    let e = store.typed(text(), Serdes::long()).get(&"k".to_owned()).unwrap_err();
    assert!(e.code == codes::STORE_ELSEWHERE && e.to_string().contains(&format!("partition {place} of 4")), "{e}");
}

/// If this broke, tables joined by a foreign key would lose changes on the runtime, where each hop is a transaction of its own.
#[test]
fn tables_joined_and_grouped_run_on_the_runtime() {
    let b = StreamsBuilder::new("app");
    let (orders, people) = (b.table("orders", kept("orders")), b.table("people", kept("people")));
    let named: KTable<String, String> =
        orders.foreign_key_join(&people, |_, who| Some(who.clone()), kept("named"), |_, who, name| format!("{who}:{name}"));
    named.to_stream().to("named", Produced::with(text(), Serdes::optional(text())));
    named.group_by(|_, v| (v, String::new()), Grouped::with(text(), text())).count("per-person");
    let mut d = TopologyTestDriver::new(&b.build().unwrap()).unwrap();
    pipe(&mut d, "orders", &[(Some("o1"), Some("p1")), (Some("o2"), Some("p1")), (None, Some("skipped"))]);
    pipe(&mut d, "people", &[(Some("p1"), Some("Al"))]);
    pipe(&mut d, "orders", &[(Some("o1"), None)]);
    let mut found = read(&mut d, "named");
    found.sort();
    assert_eq!(found, ["o1=null", "o1=p1:Al", "o2=p1:Al"]);
    let per_person = d.stores().store("per-person").unwrap().typed(text(), Serdes::long());
    assert_eq!(per_person.entries(9).unwrap(), [("p1:Al".to_owned(), 1)]);
}

/// A table counted by its values, on a topic that is its changelog too where `optimize` says so.
fn by_value(optimize: bool) -> Application {
    let b = StreamsBuilder::new("app");
    let b = if optimize { b.optimize() } else { b };
    let table = b.table("in", kept("kept"));
    table.group_by(|k, v| (v, k.clone()), Grouped::with(text(), text())).count("counts");
    b.build().unwrap()
}

/// If this broke, a restored table would hold what its task has not processed yet, or not all of what it has: the next change of an
/// entry would then be taken out of the wrong group. Run with the topic as the table's only log, and with a changelog beside it.
#[test]
fn a_lost_process_restores_its_tables_and_goes_on() {
    for optimize in [true, false] {
        let mut d = TopologyTestDriver::new(&by_value(optimize)).unwrap();
        pipe(&mut d, "in", &[(Some("a"), Some("x")), (Some("b"), Some("x")), (Some("c"), Some("y")), (Some("c"), None)]);
        // It comes while the process is lost: in the topic, but not processed.
        let topic = "in".into();
        let late = OutRecord { topic: &topic, partition: None, timestamp: None, key: Some(b"a"), value: Some(b"y"), headers: None };
        d.cluster.publish(&[late], Duration::ZERO).unwrap();
        d.lose_process().unwrap();
        let table = d.stores().store("kept").unwrap().typed(text(), text());
        assert_eq!(table.entries(9).unwrap(), [("a".into(), "y".into()), ("b".into(), "x".into())]);
        pipe(&mut d, "in", &[(Some("b"), None)]);
        let counts = d.stores().store("counts").unwrap().typed(text(), Serdes::long());
        assert_eq!(counts.entries(9).unwrap(), [("x".into(), 0), ("y".into(), 1)], "optimized: {optimize}");
        assert_eq!(d.read_output("app-kept-changelog").is_empty(), optimize, "one log is enough");
    }
}

/// If this broke, a store that follows a topic would be empty after a restart, or write to a topic that is not ours.
#[test]
fn a_read_only_store_follows_its_topic() {
    let b = StreamsBuilder::new("app");
    let limits = b.read_only_store("limits", kept("limits"));
    let (name, read_in) = (limits.name().clone(), limits.clone());
    let looked = b.table("in", kept("in")).transform_values(&[&name], move |k, _, cx| read_in.get(cx, k));
    looked.to_stream().to("out", Produced::with(text(), Serdes::optional(text())));
    let mut d = TopologyTestDriver::new(&b.build().unwrap()).unwrap();
    pipe(&mut d, "limits", &[(Some("a"), Some("1")), (Some("a"), Some("2"))]);
    d.lose_process().unwrap();
    pipe(&mut d, "in", &[(Some("a"), Some("?"))]);
    assert_eq!(read(&mut d, "out"), ["a=2"]);
    assert_eq!(read(&mut d, "limits"), ["a=1", "a=2"], "only what was fed");
}
