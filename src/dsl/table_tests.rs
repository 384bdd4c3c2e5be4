#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::harness::Harness;
use super::*;
use crate::error::codes;
use crate::ids::TopicName;
use crate::serdes::{SerdeRef, Serdes};

fn text() -> SerdeRef<String> {
    Serdes::string()
}

fn kept(name: &str) -> Materialized<String, String> {
    Materialized::named(name, text(), text())
}

fn write<V: 'static>(value: SerdeRef<V>) -> Produced<String, Option<V>> {
    Produced::with(text(), Serdes::optional(value))
}

fn show(table: &KTable<String, String>, topic: &str) {
    table.to_stream().to(topic, write(text()));
}

fn shown<V: std::fmt::Display + Clone + 'static>(table: &KTable<String, V>, topic: &str) {
    table.to_stream().map_values(|_, v| v.map(|v| v.to_string())).to(topic, write(text()));
}

/// Feeds `(key, value)`s of one topic, a second apart.
fn feed(h: &mut Harness, topic: &str, records: &[(&str, Option<&str>)]) {
    for (key, value) in records {
        h.feed(topic, Some(key), *value).unwrap();
    }
}

/// Feeds `topic key=value@time`, `topic key=null@time`, each with all that follows from it.
fn script(h: &mut Harness, lines: &[&str]) {
    for line in lines {
        let (topic, rest) = line.split_once(' ').unwrap();
        let (entry, at) = rest.split_once('@').unwrap();
        let (key, value) = entry.split_once('=').unwrap();
        h.feed_together(&[(topic, key, Some(value).filter(|v| *v != "null"), at.parse().unwrap())]);
    }
}

/// If this broke, a filtered table would keep what should go: an entry that no longer passes must read as deleted, and where a step
/// below works with old values, what never passed must not appear at all.
#[test]
fn a_filtered_table_deletes_what_no_longer_passes() {
    let b = StreamsBuilder::new("app");
    let even = |_: &String, v: &String| v.parse::<i64>().unwrap() % 2 == 0;
    let table = b.table("in", kept("in"));
    show(&table.filter(even), "even");
    show(&table.filter_not(even), "odd");
    let mut h = Harness::new(&b.build().unwrap(), 1);
    let input = [("A", Some("1")), ("B", Some("2")), ("C", Some("3")), ("D", Some("4")), ("A", None), ("B", None)];
    feed(&mut h, "in", &input);
    assert_eq!(h.texts("even"), ["A=null", "B=2", "C=null", "D=4", "A=null", "B=null"]);
    assert_eq!(h.texts("odd"), ["A=1", "B=null", "C=3", "D=null", "A=null", "B=null"]);

    let b = StreamsBuilder::new("app");
    let evens = b.table("in", kept("in")).filter(even);
    show(&evens, "even");
    evens.group_by(|k, v| (k.clone(), v), Grouped::with(text(), text())).count("counts");
    let mut h = Harness::new(&b.build().unwrap(), 1);
    feed(&mut h, "in", &input);
    assert_eq!(h.texts("even"), ["B=2", "D=4", "B=null"]);
}

/// If this broke, a mapped table would show other values to a join than to its own readers, or forget that something was deleted.
#[test]
fn mapped_and_transformed_tables_say_the_same_to_changes_and_to_reads() {
    let b = StreamsBuilder::new("app");
    let table = b.table("in", kept("in"));
    let limits = b.table("limits", kept("limits"));
    let upper = table.map_values(|k, v| format!("{k}{}", v.to_uppercase()));
    let limit = limits.map_values(|_, v| v.len() as i64);
    let limit_of = kept_limit(&b);
    let cut = table.transform_values(&[limit_of.name()], {
        let limit_of = limit_of.clone();
        move |k, v, cx| {
            let n = limit_of.get(cx, k)?.unwrap_or(9) as usize;
            Ok(v.map(|v| v.chars().take(n).collect::<String>()).or_else(|| Some("gone".to_owned())))
        }
    });
    show(&upper, "upper");
    show(&cut, "cut");
    show(&upper.join(&limit, |_, v, n| format!("{v}/{n}")), "joined");
    let s = b.stream("who", Consumed::with(text(), text()));
    s.join(&cut, Joined::named("seen", text(), text()), |_, _, v| Some(v)).to("seen", write(text()));
    let mut h = Harness::new(&b.build().unwrap(), 2);
    feed(&mut h, "in", &[("k", Some("abc"))]);
    feed(&mut h, "limits", &[("k", Some("xx"))]);
    feed(&mut h, "in", &[("k", Some("def")), ("k", None)]);
    feed(&mut h, "who", &[("k", Some("?"))]);
    assert_eq!(h.texts("upper"), ["k=kABC", "k=kDEF", "k=null"]);
    assert_eq!(h.texts("joined"), ["k=kABC/2", "k=kDEF/2", "k=null"]);
    assert_eq!(h.texts("cut"), ["k=abc", "k=def", "k=gone"]);
    assert_eq!(h.texts("seen"), ["k=gone"], "a read answers as a change does");
}

fn kept_limit(b: &StreamsBuilder) -> crate::processor::StoreRef<String, i64> {
    b.store(Materialized::named("limit", text(), Serdes::long()))
}

/// If this broke, a materialized view would not be found by its name, or keep other entries than the view has.
#[test]
fn a_materialized_view_keeps_what_the_view_has() {
    let b = StreamsBuilder::new("app");
    let long = b.table("in", kept("in")).filter(|_, v| v.len() > 1).materialized(kept("long"));
    show(&long, "out");
    let mut h = Harness::new(&b.build().unwrap(), 1);
    feed(&mut h, "in", &[("a", Some("xx")), ("b", Some("x")), ("a", Some("y")), ("c", Some("zz"))]);
    assert_eq!(h.texts("out"), ["a=xx", "b=null", "a=null", "c=zz"]);
    assert_eq!(h.texts("app-long-changelog"), ["a=xx", "b=null", "a=null", "c=zz"]);
}

/// If this broke, a group would count an entry twice or never give it up, or take its time from the wrong record: the values are
/// those of Kafka Streams' own test of table aggregation, out-of-order records included.
#[test]
fn a_group_gives_up_the_old_value_before_it_takes_the_new_one() {
    let b = StreamsBuilder::new("app");
    let grouped = b.table("in", kept("in")).group_by(|k, v| (k.clone(), v), Grouped::with(text(), text()));
    let sums = grouped.aggregate("sums", || "0".to_owned(), |_, v, s| s + "+" + &v, |_, v, s| s + "-" + &v, text());
    show(&sums, "out");
    let mut h = Harness::new(&b.build().unwrap(), 3);
    script(&mut h, &["in A=1@10", "in B=2@15", "in A=3@20", "in B=4@18", "in C=5@5", "in D=6@25", "in B=7@15", "in C=8@10"]);
    assert_eq!(
        h.take("out"),
        ["A=0+1@10", "B=0+2@15", "A=0+1-1+3@20", "B=0+2-2+4@18", "C=0+5@5", "D=0+6@25", "B=0+2-2+4-4+7@18", "C=0+5-5+8@10"]
    );
}

/// If this broke, an entry that moves to another group would stay in the old one, a deleted one would be counted for ever, or a
/// subtractor could not delete its group.
#[test]
fn entries_move_between_groups_across_partitions() {
    let b = StreamsBuilder::new("app");
    let users = b.table("users", kept("users"));
    let by_region = users.group_by(|name, region| (region, name.clone()), Grouped::with(text(), text()));
    shown(&by_region.count("counts"), "counts");
    show(&by_region.reduce("names", |sum, v| sum + "+" + &v, |sum, v| sum + "-" + &v), "names");
    let drop_empty = |_: &String, _: String, n: i64| Some(n - 1).filter(|n| *n > 0);
    shown(&by_region.aggregate("sizes", || 0, |_, _, n| n + 1, drop_empty, Serdes::long()), "sizes");
    let mut h = Harness::new(&b.build().unwrap(), 3);
    feed(&mut h, "users", &[("al", Some("asia")), ("bo", Some("asia")), ("al", Some("europe")), ("bo", None), ("cy", None)]);
    assert_eq!(h.texts("counts"), ["asia=1", "asia=2", "asia=1", "europe=1", "asia=0"], "old first, and nothing for nothing");
    assert_eq!(h.texts("names"), ["asia=al", "asia=al+bo", "asia=al+bo-al", "europe=al", "asia=al+bo-al-bo"]);
    assert_eq!(h.texts("sizes"), ["asia=1", "asia=2", "asia=1", "europe=1", "asia=null"]);
}

/// Both tables and one join of them; what comes out of a script.
fn joined(
    join: impl Fn(&KTable<String, String>, &KTable<String, String>) -> KTable<String, String>,
    lines: &[&str],
) -> Vec<String> {
    let b = StreamsBuilder::new("app");
    let (left, right) = (b.table("l", kept("l")), b.table("r", kept("r")));
    show(&join(&left, &right), "out");
    let mut h = Harness::new(&b.build().unwrap(), 2);
    script(&mut h, lines);
    h.take("out")
}

/// Every way for an entry to come, change and go on either side.
const LIFE: &[&str] = &[
    "l 1=X0@5",
    "r 1=Y0@10",
    "l 1=X1@7",
    "r 1=Y1@6",
    "r 1=null@20",
    "r 1=null@21",
    "l 1=X2@22",
    "l 1=null@23",
    "l 1=null@24",
    "r 2=Y2@25",
    "l 2=null@26",
    "r 2=null@27",
];

/// If this broke, the result of an inner join would keep entries whose partner is gone, or carry the time of one side only.
#[test]
fn an_inner_join_of_tables_follows_both_sides() {
    let inner = joined(|l, r| l.join(r, |_, l, r| l + "+" + &r), LIFE);
    assert_eq!(inner, ["1=X0+Y0@10", "1=X1+Y0@10", "1=X1+Y1@7", "1=null@20", "1=null@21", "2=null@26"]);
}

/// If this broke, a left join would lose entries without a partner, or keep them after they were deleted.
#[test]
fn a_left_join_of_tables_keeps_all_of_the_left() {
    let show = |r: Option<String>| r.unwrap_or("null".into());
    let left = joined(move |l, r| l.left_join(r, move |_, l, r| l + "+" + &show(r)), LIFE);
    let expected = [
        "1=X0+null@5",
        "1=X0+Y0@10",
        "1=X1+Y0@10",
        "1=X1+Y1@7",
        "1=X1+null@20",
        "1=X1+null@21",
        "1=X2+null@22",
        "1=null@23",
        "2=null@26",
    ];
    assert_eq!(left, expected);
}

/// If this broke, an outer join would lose one side's entries, or never delete one that is gone on both.
#[test]
fn an_outer_join_of_tables_keeps_both() {
    let show = |v: Option<String>| v.unwrap_or("null".into());
    let outer = joined(move |l, r| l.outer_join(r, move |_, l, r| show(l) + "+" + &show(r)), LIFE);
    let expected = [
        "1=X0+null@5",
        "1=X0+Y0@10",
        "1=X1+Y0@10",
        "1=X1+Y1@7",
        "1=X1+null@20",
        "1=X1+null@21",
        "1=X2+null@22",
        "1=null@23",
        "2=null+Y2@25",
        "2=null+Y2@26",
        "2=null@27",
    ];
    assert_eq!(outer, expected);
}

/// If this broke, a group over joined tables would subtract what it never added: a join must pass on what was before, as of the
/// other side's value of now.
#[test]
fn a_join_passes_old_values_on() {
    let b = StreamsBuilder::new("app");
    let (left, right) = (b.table("l", kept("l")), b.table("r", kept("r")));
    let both = left.join(&right, |_, l, r| l + &r);
    let sums = both.group_by(|_, v| ("all".to_owned(), v), Grouped::with(text(), text()));
    show(&sums.aggregate("sums", String::new, |_, v, s| s + "+" + &v, |_, v, s| s + "-" + &v, text()), "out");
    let mut h = Harness::new(&b.build().unwrap(), 2);
    script(&mut h, &["l 1=a@1", "r 1=x@2", "l 1=b@3", "r 1=y@4", "l 1=null@5"]);
    assert_eq!(h.take("out"), ["all=+ax@2", "all=+ax-ax+bx@3", "all=+ax-ax+bx-bx+by@4", "all=+ax-ax+bx-bx+by-by@5"]);
}

/// If this broke, tables of different partition counts would be joined, and miss keys without a word.
#[test]
fn tables_of_different_partition_counts_are_not_joined() {
    let b = StreamsBuilder::new("app");
    let (left, right) = (b.table("l", kept("l")), b.table("r", kept("r")));
    show(&left.named("both").join(&right, |_, l, r| l + &r), "out");
    let grouped = |t: &KTable<String, String>| t.group_by(|k, v| (v, k.clone()), Grouped::with(text(), text()));
    shown(&grouped(&left).count("ln").join(&grouped(&right).count("rn"), |_, l, r| l + r), "sums");
    let app = b.build().unwrap();
    let counts = |l, r| BTreeMap::from([(TopicName::new("l"), l), (TopicName::new("r"), r)]);
    let said = app.topology.layout(&counts(4, 6), None).unwrap_err();
    assert!(said.to_string().contains("`both`") && said.to_string().contains("l has 4, r has 6"), "{said}");
    assert_eq!(said.iter().count(), 1, "topics of ours take one count: {said}");
    let layout = app.topology.layout(&counts(4, 4), None).unwrap();
    assert_eq!(layout.partitions[&TopicName::new("app-ln-repartition")], 4);
}

type Foreign = fn(&KTable<String, String>, &KTable<String, String>) -> KTable<String, String>;

fn key_in(value: &str) -> Option<String> {
    value.split_once('|').map(|(_, k)| k.to_owned()).filter(|k| !k.is_empty())
}

fn inner(l: &KTable<String, String>, r: &KTable<String, String>) -> KTable<String, String> {
    l.foreign_key_join(r, |_, v| key_in(v), kept("joined"), |_, l, r| format!("({l},{r})"))
}

fn left(l: &KTable<String, String>, r: &KTable<String, String>) -> KTable<String, String> {
    l.foreign_key_left_join(r, |_, v| key_in(v), kept("joined"), |_, l, r| format!("({l},{})", r.unwrap_or("null".into())))
}

/// Left with 3 partitions, right with 2.
fn foreign(join: Foreign) -> Harness {
    let b = StreamsBuilder::new("app");
    let (left, right) = (b.table("l", kept("l")), b.table("r", kept("r")));
    show(&join(&left, &right), "out");
    Harness::over(&b.build().unwrap(), |topic| if topic == "l" { 3 } else { 2 })
}

/// If this broke, a foreign-key join would miss a change on either side, or keep an entry after its deletion.
#[test]
fn a_foreign_key_join_follows_both_sides_across_partitions() {
    for join in [inner as Foreign, left as Foreign] {
        let mut h = foreign(join);
        script(&mut h, &["r r1=one@1", "r r2=two@2", "r r3=three@3", "l a=x|r1@4", "l b=y|r2@5", "l c=z|r1@6"]);
        assert_eq!(h.take("out"), ["a=(x|r1,one)@4", "b=(y|r2,two)@5", "c=(z|r1,one)@6"]);
        script(&mut h, &["r r1=uno@7"]);
        let mut both = h.take("out");
        both.sort();
        assert_eq!(both, ["a=(x|r1,uno)@7", "c=(z|r1,uno)@7"]);
        script(&mut h, &["l a=null@8", "r r1=eins@9", "l b=w|r2@1"]);
        assert_eq!(h.take("out"), ["a=null@8", "c=(z|r1,eins)@9", "b=(w|r2,two)@2"], "the later time of the two");
    }
}

/// If this broke, inner and left join would differ in other ways than Kafka Streams' do: entries whose key has no partner, or that
/// name none, stand in the left join only, and a result that no longer holds is deleted.
#[test]
fn entries_without_a_partner_stand_in_the_left_join_only() {
    let steps = ["l a=x|r1@1", "l a=x|@2", "l a=x|r1@3", "r r1=one@4", "l a=x|r9@5", "r r1=uno@6", "l a=null@7", "l a=null@8"];
    let mut h = foreign(inner);
    script(&mut h, &steps);
    assert_eq!(h.take("out"), ["a=null@2", "a=(x|r1,one)@4", "a=null@5", "a=null@7"]);
    let mut h = foreign(left);
    script(&mut h, &steps);
    let expected = ["a=(x|r1,null)@1", "a=(x|,null)@2", "a=(x|r1,null)@3", "a=(x|r1,one)@4", "a=(x|r9,null)@5", "a=null@7"];
    assert_eq!(h.take("out"), expected);
}

/// If this broke, deleting the other side's entry would leave joined values standing.
#[test]
fn a_deleted_partner_takes_the_result_with_it() {
    let mut h = foreign(inner);
    script(&mut h, &["r r1=one@1", "l a=x|r1@2", "r r1=null@3", "r r1=two@4"]);
    assert_eq!(h.take("out"), ["a=(x|r1,one)@2", "a=null@3", "a=(x|r1,two)@4"]);
    let mut h = foreign(left);
    script(&mut h, &["r r1=one@1", "l a=x|r1@2", "r r1=null@3"]);
    assert_eq!(h.take("out"), ["a=(x|r1,one)@2", "a=(x|r1,null)@3"]);
}

/// If this broke, an answer to an entry's former value would overwrite the result of the present one: changes of the foreign key
/// travel through different partitions, and the slower answer may be the older one.
#[test]
fn an_answer_to_a_former_value_is_dropped() {
    let mut h = foreign(inner);
    script(&mut h, &["r r1=one@1", "r r2=two@2"]);
    h.feed_together(&[("l", "a", Some("x|r1"), 3), ("l", "a", Some("y|r2"), 4)]);
    assert_eq!(h.take("out"), ["a=(y|r2,two)@4"]);
    h.feed_together(&[("l", "a", Some("z|r1"), 5), ("l", "a", None, 6)]);
    assert_eq!(h.take("out"), ["a=null@6"], "a deleted entry does not come back");
}

/// If this broke, subscriptions would go to other partitions than the right side's keys, or answers to other ones than the entries.
#[test]
fn the_topics_of_a_foreign_key_join_take_the_counts_of_their_sides() {
    let b = StreamsBuilder::new("app");
    let (l, r) = (b.table("l", kept("l")), b.table("r", kept("r")));
    show(&inner(&l, &r), "out");
    let app = b.build().unwrap();
    let counts = BTreeMap::from([(TopicName::new("l"), 3), (TopicName::new("r"), 2)]);
    let layout = app.topology.layout(&counts, None).unwrap();
    assert_eq!(layout.partitions[&TopicName::new("app-joined-subscription-registration-topic")], 2);
    assert_eq!(layout.partitions[&TopicName::new("app-joined-subscription-response-topic")], 3);
    let text = app.topology.describe();
    for part in
        ["Sink: joined-subscription-response-sink", "Processor: joined-subscription-receive (stores: [joined-subscription-store])"]
    {
        assert!(text.contains(part), "{text}");
    }
}

/// If this broke, a foreign-key join of a table whose values nobody knows how to write would fail at run time.
#[test]
fn a_foreign_key_join_needs_serdes() {
    let b = StreamsBuilder::new("app");
    let (l, r) = (b.table("l", kept("l")), b.table("r", kept("r")));
    inner(&l.map_values(|_, v| v), &r);
    let d = b.build().unwrap_err();
    assert!(d.to_string().contains("`joined`") && d.to_string().contains("materialized"), "{d}");
    assert_eq!(d.iter().next().map(|d| d.code), Some(codes::MISSING_NAME));
}

/// If this broke, `optimize` would leave topics that nobody needs, or a deploy that turns it on would not be seen to move state.
#[test]
fn an_optimized_topology_has_fewer_topics() {
    let build = |optimize: bool| {
        let b = StreamsBuilder::new("app");
        let b = if optimize { b.optimize() } else { b };
        let table = b.table("t", kept("t"));
        let s = b.stream("s", Consumed::with(text(), text())).select_key(|_, v| v.clone());
        s.group_by_key(Grouped::with(text(), text())).count("counts");
        s.join(&table, Joined::named("j", text(), text()), |_, v, t| Some(v + &t)).to("out", write(text()));
        b.build().unwrap().topology
    };
    let topics = |optimize: bool| {
        let topology = build(optimize);
        let counts = BTreeMap::from([(TopicName::new("s"), 4), (TopicName::new("t"), 4)]);
        let layout = topology.layout(&counts, None).unwrap();
        let all = topology.topics(&layout).into_iter().map(|t| t.name.to_string()).filter(|t| t.starts_with("app-"));
        all.collect::<Vec<_>>()
    };
    assert_eq!(topics(true), ["app-counts-repartition", "app-counts-changelog"]);
    let mut plain = topics(false);
    plain.sort();
    assert_eq!(plain, ["app-counts-changelog", "app-counts-repartition", "app-j-repartition", "app-t-changelog"]);
    assert_ne!(build(true).fingerprint(), build(false).fingerprint());
}

/// If this broke, people who know Kafka Streams would not recognise joined and global tables, or names given to steps would not
/// stay what they are when steps are added.
#[test]
fn tables_are_described_as_kafka_streams_does() {
    let b = StreamsBuilder::new("app");
    b.global_table("g", kept("all"));
    let (left, right) = (b.table("l", kept("l")), b.table("r", kept("r")));
    show(&left.named("both").join(&right, |_, l, r| l + &r).materialized(kept("both-store")), "out");
    let expected = "\
Topologies:
   Sub-topology: 0 for global store (will not generate tasks)
    Source: KSTREAM-SOURCE-0000000000 (topics: [g])
      --> KTABLE-SOURCE-0000000001
    Processor: KTABLE-SOURCE-0000000001 (stores: [all])
      --> none
      <-- KSTREAM-SOURCE-0000000000

  Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000002 (topics: [l])
      --> KTABLE-SOURCE-0000000003
    Processor: KTABLE-SOURCE-0000000003 (stores: [l])
      --> both-join-this
      <-- KSTREAM-SOURCE-0000000002
    Source: KSTREAM-SOURCE-0000000004 (topics: [r])
      --> KTABLE-SOURCE-0000000005
    Processor: KTABLE-SOURCE-0000000005 (stores: [r])
      --> both-join-other
      <-- KSTREAM-SOURCE-0000000004
    Processor: both-join-this (stores: [r])
      --> both
      <-- KTABLE-SOURCE-0000000003
    Processor: both-join-other (stores: [l])
      --> both
      <-- KTABLE-SOURCE-0000000005
    Processor: both (stores: [both-store])
      --> KTABLE-TOSTREAM-0000000009
      <-- both-join-this, both-join-other
    Processor: KTABLE-TOSTREAM-0000000009 (stores: [])
      --> KSTREAM-SINK-0000000010
      <-- both
    Sink: KSTREAM-SINK-0000000010 (topic: out)
      <-- KTABLE-TOSTREAM-0000000009

";
    let topology = b.build().unwrap().topology;
    assert_eq!(topology.describe(), expected);
    let mermaid = topology.mermaid();
    for line in ["n1 --- s0_t_all[(\"all\")]", "n6 --> n8", "n7 --> n8", "n8 --- s1_t_both_2dstore[(\"both-store\")]"] {
        assert!(mermaid.contains(line), "{mermaid}");
    }
}
