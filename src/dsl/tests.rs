#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::harness::Harness;
use super::*;
use crate::error::codes;
use crate::ids::TopicName;
use crate::processor::{Forward, Processor, Punctuate, PunctuationKind, Record};
use crate::record::Headers;
use crate::serdes::{SerdeRef, Serdes};
use crate::task::TaskError;
use crate::time::WallTime;

fn text() -> (SerdeRef<String>, SerdeRef<String>) {
    (Serdes::string(), Serdes::string())
}

fn read() -> Consumed<String, String> {
    Consumed::with(Serdes::string(), Serdes::string())
}

fn write() -> Produced<String, String> {
    Produced::with(Serdes::string(), Serdes::string())
}

/// If this broke, records would not come out as the operators say, or lose headers and time on the way.
#[test]
fn stateless_steps_do_what_their_names_say() {
    let b = StreamsBuilder::new("app");
    let input = b.stream("in", read());
    let big = input.filter(|_, v| v.len() > 2).map_values(|_, v| v.to_uppercase());
    let rest = input.filter_not(|_, v| v.len() > 2).flat_map_values(|_, v| [v.clone(), v]);
    big.merge(&rest).named("rename").map(|k, v| (format!("<{k}>"), v)).to("out", write());
    let ways = input.split();
    ways.branch(|_, v| v.starts_with('a')).to("a", write());
    ways.default_branch().to("rest", write());
    let app = b.build().unwrap();
    let mut h = Harness::new(&app, 1);
    let headers = Headers::new().with("trace", "1");
    for v in ["abc", "x"] {
        h.feed_bytes("in", Some("k".into()), Some(v.into()), headers.clone()).unwrap();
    }
    assert_eq!(h.texts("out"), ["<k>=ABC", "<k>=x", "<k>=x"]);
    assert_eq!(h.texts("a"), ["k=abc"]);
    assert_eq!(h.texts("rest"), ["k=x"]);
    assert!(h.out.iter().all(|w| w.headers == headers && w.timestamp.is_some()), "time and headers travel");
}

/// If this broke, one bad record would stop a task that declared dead letters, or vanish from one that did not.
#[test]
fn a_bad_record_goes_to_the_dead_letters_with_its_origin_or_stops_the_thread() {
    let build = |dead: bool| {
        let b = StreamsBuilder::new("app");
        let b = if dead { b.dead_letters("dead") } else { b };
        b.stream("in", Consumed::with(Serdes::string(), Serdes::long()))
            .to("out", Produced::with(Serdes::string(), Serdes::long()));
        b.build().unwrap()
    };
    let mut h = Harness::new(&build(true), 1);
    h.feed("in", Some("k"), Some("12345678")).unwrap();
    h.feed("in", Some("k"), Some("MARK")).unwrap();
    h.feed("in", Some("k"), Some("")).unwrap();
    assert_eq!(h.texts("out").len(), 1);
    assert_eq!(h.texts("dead"), ["k=MARK", "k="], "as they came");
    let dead = h.out.iter().find(|w| w.topic == "dead").unwrap();
    let reason = dead.headers.text(crate::intents::headers::DEAD_REASON).unwrap();
    assert!(reason.contains("4 bytes") && !reason.contains("MARK"), "{reason}");
    assert_eq!(dead.headers.text(crate::intents::headers::DEAD_ORIGIN), Some("in/0/1"));
    assert_eq!(dead.headers.text(crate::intents::headers::DEAD_CODE), Some("RB0501"));

    let e = Harness::new(&build(false), 1).feed("in", Some("k"), Some("MARK")).unwrap_err();
    assert!(matches!(e, TaskError::Failed(e) if e.code == codes::UNDECODABLE));
}

/// C023: null is a tombstone by policy, empty bytes are malformed, and the two stay different on the way out.
#[test]
fn null_values_are_skipped_unless_they_are_asked_for() {
    let b = StreamsBuilder::new("app");
    b.stream("in", read()).to("plain", write());
    let optional = || Serdes::optional(Serdes::string());
    b.stream("also", Consumed::with(Serdes::string(), optional())).to("kept", Produced::with(Serdes::string(), optional()));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    for v in [None, Some(""), Some("x")] {
        h.feed("in", Some("k"), v).unwrap();
        h.feed("also", Some("k"), v).unwrap();
    }
    assert_eq!(h.texts("plain"), ["k=", "k=x"]);
    assert_eq!(h.texts("kept"), ["k=null", "k=", "k=x"]);
}

/// If this broke, sums would be per partition instead of per key, or restart with each record.
#[test]
fn groups_are_counted_reduced_and_aggregated_across_a_repartition() {
    let b = StreamsBuilder::new("app");
    let (k, v) = text();
    let input = b.stream("in", read());
    let by_value = input.group_by(|_, v| v.clone(), Grouped::with(k.clone(), v.clone()));
    let counts = by_value.count("counts");
    counts.to_stream().map_values(|_, n| n.unwrap_or(0).to_string()).to("counted", write());
    counts.filter(|_, n| *n > 1).map_values(|_, n| n * 10).to_stream().map_values(|_, n| format!("{n:?}")).to("tens", write());
    input
        .group_by_key(Grouped::with(k, v))
        .reduce("joined", |a, b| a + &b)
        .to_stream()
        .map_values(|_, v| v.unwrap())
        .to("reduced", write());
    let mut h = Harness::new(&b.build().unwrap(), 3);
    for (key, value) in [("1", "a"), ("2", "a"), ("1", "b"), ("3", "a")] {
        h.feed("in", Some(key), Some(value)).unwrap();
    }
    assert_eq!(h.texts("counted"), ["a=1", "a=2", "b=1", "a=3"]);
    assert_eq!(h.texts("tens"), ["a=None", "a=Some(20)", "b=None", "a=Some(30)"]);
    assert_eq!(h.texts("reduced"), ["1=a", "2=a", "1=ab", "3=a"]);
    assert_eq!(h.texts("app-counts-changelog").len(), 4, "every change is in the changelog");
}

/// If this broke, a stream would meet another value of the table than the newest, or one that was deleted.
#[test]
fn a_stream_meets_the_tables_value_of_now() {
    let b = StreamsBuilder::new("app");
    let prices = b.table("prices", Materialized::named("prices", Serdes::string(), Serdes::string()));
    let cheap = prices.filter(|_, p| p.len() == 1);
    let orders = b.stream("orders", read()).select_key(|_, v| v.clone());
    orders
        .join(&prices, Joined::named("priced", Serdes::string(), Serdes::string()), |_, v, p| format!("{v}@{p}"))
        .to("out", write());
    let left = |_: &String, v: String, p: Option<String>| format!("{v}@{p:?}");
    orders.left_join(&cheap, Joined::named("cheap", Serdes::string(), Serdes::string()), left).to("left", write());
    let mut h = Harness::new(&b.build().unwrap(), 2);
    h.feed("orders", Some("1"), Some("tea")).unwrap();
    h.feed("prices", Some("tea"), Some("5")).unwrap();
    h.feed("orders", Some("2"), Some("tea")).unwrap();
    h.feed("prices", Some("tea"), Some("15")).unwrap();
    h.feed("orders", Some("3"), Some("tea")).unwrap();
    h.feed("prices", Some("tea"), None).unwrap();
    h.feed("orders", Some("4"), Some("tea")).unwrap();
    assert_eq!(h.texts("out"), ["tea=tea@5", "tea=tea@15"]);
    assert_eq!(h.texts("left"), ["tea=tea@None", "tea=tea@Some(\"5\")", "tea=tea@None", "tea=tea@None"]);
}

/// If this broke, a join would miss keys that lie in another partition, without a word.
#[test]
fn a_join_of_differently_partitioned_topics_is_refused() {
    let b = StreamsBuilder::new("app");
    let table = b.table("t", Materialized::named("t", Serdes::string(), Serdes::string()));
    b.stream("s", read()).join(&table, Joined::named("j", Serdes::string(), Serdes::string()), |_, v, _| v).to("out", write());
    let app = b.build().unwrap();
    let counts = |s, t| BTreeMap::from([(TopicName::new("s"), s), (TopicName::new("t"), t)]);
    assert!(app.topology.layout(&counts(4, 4), None).is_ok());
    let d = app.topology.layout(&counts(4, 6), None).unwrap_err();
    let said = d.to_string();
    assert!(said.contains("`j`") && said.contains("s has 4") && said.contains("t has 6"), "{said}");
}

/// If this broke, a repartition topic would not have the table's partition count, and the join would miss keys.
#[test]
fn a_repartition_topic_takes_the_count_of_what_it_is_joined_with() {
    let b = StreamsBuilder::new("app");
    let table = b.table("t", Materialized::named("t", Serdes::string(), Serdes::string()));
    let s = b.stream("s", read()).select_key(|_, v| v.clone());
    s.join(&table, Joined::named("j", Serdes::string(), Serdes::string()), |_, v, _| v).to("out", write());
    s.repartition(Repartitioned::named("own", Serdes::string(), Serdes::string()).partitions(9)).to("out2", write());
    let app = b.build().unwrap();
    let counts = BTreeMap::from([(TopicName::new("s"), 4), (TopicName::new("t"), 6)]);
    let layout = app.topology.layout(&counts, None).unwrap();
    assert_eq!(layout.partitions[&TopicName::new("app-j-repartition")], 6);
    assert_eq!(layout.partitions[&TopicName::new("app-own-repartition")], 9);
    assert_eq!(layout.operations, 6, "the largest source");
}

/// If this broke, an edit of the topology could rename stores and start from empty state without a word.
#[test]
fn stateful_steps_without_a_name_and_names_used_twice_are_refused_all_at_once() {
    let b = StreamsBuilder::new("app");
    let table = b.table("t", Materialized::with(Serdes::string(), Serdes::string()));
    let s = b.stream("s", read());
    s.join(&table, Joined::with(Serdes::string(), Serdes::string()), |_, v, _| v).to("out", write());
    s.named("x").filter(|_, _| true);
    s.named("x").filter(|_, _| true);
    let d = b.build().unwrap_err();
    let found: Vec<_> = d.iter().map(|d| d.code).collect();
    assert_eq!(found, [codes::MISSING_NAME, codes::MISSING_NAME, codes::DUPLICATE_NAME], "{d}");
}

struct Deduplicate {
    seen: crate::processor::StoreRef<String, i64>,
    in_memory: usize,
}

impl Processor<String, String> for Deduplicate {
    type KOut = String;
    type VOut = String;
    fn punctuations(&self) -> Vec<Punctuate> {
        vec![Punctuate { kind: PunctuationKind::WallClock, every: Duration::from_secs(10) }]
    }
    fn process(&mut self, r: Record<String, String>, cx: &mut Forward<'_, '_, '_, String, String>) -> Result<(), TaskError> {
        self.in_memory += 1;
        if self.seen.get(cx.cx(), &r.value)?.is_some() {
            return Ok(());
        }
        self.seen.put(cx.cx(), &r.value, &1, r.timestamp, &r.headers)?;
        cx.forward(r)
    }
    fn punctuate(
        &mut self,
        _: PunctuationKind,
        at: WallTime,
        cx: &mut Forward<'_, '_, '_, String, String>,
    ) -> Result<(), TaskError> {
        let value = format!("{} in memory", self.in_memory);
        cx.forward(Record { key: "tick".into(), value, timestamp: Some(at), headers: Headers::new() })
    }
}

/// If this broke, user code could not keep state or act by time, or what it kept in memory would survive an abort.
#[test]
fn processors_have_stores_and_timers_and_start_anew_after_an_abort() {
    let b = StreamsBuilder::new("app");
    let seen = b.store(Materialized::named("seen", Serdes::string(), Serdes::long()));
    let made = Arc::new(AtomicUsize::new(0));
    let (name, count) = (seen.name().clone(), made.clone());
    b.stream("in", read())
        .process("dedupe", &[&name], move || {
            count.fetch_add(1, Ordering::Relaxed);
            Deduplicate { seen: seen.clone(), in_memory: 0 }
        })
        .to("out", write());
    let mut h = Harness::new(&b.build().unwrap(), 1);
    h.advance(Duration::from_secs(1));
    for v in ["a", "a", "b"] {
        h.feed("in", Some("k"), Some(v)).unwrap();
    }
    h.advance(Duration::from_secs(10));
    assert_eq!(h.texts("out"), ["k=a", "k=b", "tick=3 in memory"]);
    h.abort();
    assert_eq!(made.load(Ordering::Relaxed), 2, "made anew");
    h.feed("in", Some("k"), Some("a")).unwrap();
    assert_eq!(h.texts("out").len(), 3, "the store kept what was committed");
}

/// If this broke, people who know Kafka Streams would not recognise their topology.
#[test]
fn a_topology_is_described_as_kafka_streams_does() {
    let b = StreamsBuilder::new("app");
    let (k, v) = text();
    let words = b.stream("lines", read()).flat_map_values(|_, v| [v]);
    words
        .group_by(|_, w| w.clone(), Grouped::with(k, v))
        .count("counts")
        .to_stream()
        .map_values(|_, n| format!("{n:?}"))
        .to("out", write());
    let app = b.build().unwrap();
    let expected = "\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-FLATMAPVALUES-0000000001
    Processor: KSTREAM-FLATMAPVALUES-0000000001 (stores: [])
      --> KSTREAM-KEY-SELECT-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-KEY-SELECT-0000000002 (stores: [])
      --> KSTREAM-SINK-0000000003
      <-- KSTREAM-FLATMAPVALUES-0000000001
    Sink: KSTREAM-SINK-0000000003 (topic: app-counts-repartition)
      <-- KSTREAM-KEY-SELECT-0000000002

  Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000004 (topics: [app-counts-repartition])
      --> KSTREAM-AGGREGATE-0000000005
    Processor: KSTREAM-AGGREGATE-0000000005 (stores: [counts])
      --> KTABLE-SOURCE-0000000006
      <-- KSTREAM-SOURCE-0000000004
    Processor: KTABLE-SOURCE-0000000006 (stores: [counts])
      --> KTABLE-TOSTREAM-0000000007
      <-- KSTREAM-AGGREGATE-0000000005
    Processor: KTABLE-TOSTREAM-0000000007 (stores: [])
      --> KSTREAM-MAPVALUES-0000000008
      <-- KTABLE-SOURCE-0000000006
    Processor: KSTREAM-MAPVALUES-0000000008 (stores: [])
      --> KSTREAM-SINK-0000000009
      <-- KTABLE-TOSTREAM-0000000007
    Sink: KSTREAM-SINK-0000000009 (topic: out)
      <-- KSTREAM-MAPVALUES-0000000008

";
    assert_eq!(app.topology.describe(), expected);
    let mermaid = app.topology.mermaid();
    assert!(mermaid.contains("n5 --- s1_t_counts[(\"counts\")]") && mermaid.contains("n2 --> n3"), "{mermaid}");
}

/// If this broke, a deploy that resets state would look like one that does not, or the other way round.
#[test]
fn the_fingerprint_follows_state_and_positions_only() {
    let build = |store: &str, peek: bool| {
        let b = StreamsBuilder::new("app");
        let s = b.stream("in", read());
        let s = if peek { s.peek(|_, _| ()) } else { s };
        s.group_by_key(Grouped::with(Serdes::string(), Serdes::string())).count(store);
        b.build().unwrap().topology.fingerprint()
    };
    assert_eq!(build("a", false), build("a", true));
    assert_ne!(build("a", false), build("b", false));
}
