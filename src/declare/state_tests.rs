//! Declared steps that keep something, on the test driver.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::driver::TopologyTestDriver;
use crate::record::Headers;
use crate::time::WallTime;

/// A topology of `steps` over a few topics, with its driver.
pub(super) struct Run(pub(super) TopologyTestDriver);

const HEAD: &str = r#"
application: app
dead_letters: dead
sources:
  lines: { topic: lines, value: json }
  others: { topic: others, value: json }
tables:
  users: { topic: users, value: json }
  regions: { topic: regions, value: json }
global_tables:
  products: { topic: products, value: json }
steps:
"#;

impl Run {
    fn of(steps: &str) -> Self {
        let declared = parse("t.yaml", &format!("{HEAD}{steps}")).unwrap_or_else(|d| panic!("{d}"));
        Self(TopologyTestDriver::at(&declared.application, WallTime(0)).unwrap_or_else(|e| panic!("{e}")))
    }
    /// One record; a value of `-` is none.
    pub(super) fn feed(&mut self, topic: &str, key: &str, value: &str, at: i64) {
        let value = (value != "-").then_some(value.as_bytes());
        self.0.pipe(topic, Some(key.as_bytes()), value, Headers::new(), Some(WallTime(at))).unwrap_or_else(|e| panic!("{e}"));
    }
    /// What was written since the last look, as `key=value@time`.
    pub(super) fn told(&mut self, topic: &str) -> Vec<String> {
        let text = |bytes: Option<&bytes::Bytes>| bytes.map_or("-".to_owned(), |b| String::from_utf8_lossy(b).into_owned());
        let shown = |o: &crate::driver::Output| {
            format!("{}={}@{}", text(o.key.as_ref()), text(o.value.as_ref()), o.timestamp.map_or(-1, |t| t.0))
        };
        self.0.read_output(topic).iter().map(shown).collect()
    }
    pub(super) fn dead(&mut self) -> Vec<String> {
        self.0.read_output("dead").iter().map(|o| o.headers.text("rb_dead_reason").unwrap_or_default().to_owned()).collect()
    }
}

fn refused(steps: &str) -> String {
    parse("t.yaml", &format!("{HEAD}{steps}")).unwrap_err().to_string()
}

/// If this broke, a window would be told of before late records have come, more than once, or not any more after a crash.
#[test]
fn windows_are_held_back_until_they_close() {
    let mut run = Run::of(
        r#"
  - { name: per-minute, from: lines, group: { count: true, window: { size: 1m, grace: 10s } } }
  - { name: finals, from: per-minute, suppress: { until_window_closes: true } }
  - { name: keyed, from: finals, map: { key: key.key } }
  - { name: out, from: keyed, to: { topic: out } }
"#,
    );
    for at in [1_000, 2_000, 61_000] {
        run.feed("lines", "kim", "{}", at);
    }
    assert!(run.told("out").is_empty(), "the grace is not over");
    run.0.lose_process().unwrap();
    run.feed("lines", "kim", "{}", 59_000);
    run.feed("lines", "lee", "{}", 70_000);
    assert_eq!(run.told("out"), ["kim=3@59000"]);
    run.feed("lines", "kim", "{}", 58_000);
    assert!(run.told("out").is_empty(), "it came too late");
}

/// If this broke, a table that changes all the time would be told of at each change, or a full buffer would forget.
#[test]
fn changes_are_held_back_for_a_time_or_until_too_many_are() {
    let mut run = Run::of(
        r#"
  - { name: totals, from: lines, group: { aggregate: { from: "0", with: aggregate + value.n } } }
  - { name: calm, from: totals, suppress: { until_time_limit: 10s, max_records: 2, max_bytes: 1 MB, when_full: emit_early } }
  - { name: out, from: calm, to: { topic: out } }
"#,
    );
    run.feed("lines", "a", r#"{"n": 1}"#, 0);
    run.feed("lines", "a", r#"{"n": 2}"#, 5_000);
    assert!(run.told("out").is_empty());
    run.feed("lines", "b", r#"{"n": 7}"#, 10_000);
    assert_eq!(run.told("out"), ["a=3@5000"], "ten seconds after the first change");
    run.feed("lines", "c", r#"{"n": 1}"#, 11_000);
    assert!(run.told("out").is_empty());
    run.feed("lines", "d", r#"{"n": 1}"#, 12_000);
    assert_eq!(run.told("out"), ["b=7@10000"], "the third key is one too many");
}

/// If this broke, an application that must not tell early would do so when its buffer is full.
#[test]
fn a_full_buffer_that_may_not_tell_early_stops_the_application() {
    let mut run = Run::of(
        r#"
  - { name: per-minute, from: lines, group: { count: true, window: { size: 1m } } }
  - { name: finals, from: per-minute, suppress: { until_window_closes: true, max_records: 1, when_full: shut_down } }
  - { name: out, from: finals, to: { topic: out, key: json } }
"#,
    );
    run.feed("lines", "a", "{}", 0);
    let full = run.0.pipe("lines", Some(b"b"), Some(b"{}"), Headers::new(), Some(WallTime(1)));
    assert!(full.unwrap_err().to_string().contains("RB0604"));
}

/// If this broke, records would meet another product than the one they name, or wait for a repartition that nobody asked for.
#[test]
fn a_global_table_is_met_by_any_key() {
    let mut run = Run::of(
        r#"
  - { name: found, from: lines, join: { global: products, by: value.sku, value: { n: value.n, name: table.name, of: key } } }
  - { name: out, from: found, to: { topic: out } }
  - { name: any, from: lines, join: { global: products, by: "has(value.sku) ? value.sku : null", kind: left, value: "table == null" } }
  - { name: out-any, from: any, to: { topic: missed } }
  - { name: own, from: others, join: { global: products, value: table.name } }
  - { name: out-own, from: own, to: { topic: own } }
"#,
    );
    run.feed("products", "T-1", r#"{"name": "tea"}"#, 0);
    run.feed("lines", "kim", r#"{"sku": "T-1", "n": 2}"#, 1);
    run.feed("lines", "kim", r#"{"sku": "T-2", "n": 2}"#, 2);
    run.feed("others", "T-1", "{}", 3);
    assert_eq!(run.told("out"), [r#"kim={"n":2,"name":"tea","of":"kim"}@1"#]);
    assert_eq!(run.told("missed"), ["kim=false@1", "kim=true@2"]);
    assert_eq!(run.told("own"), [r#"T-1="tea"@3"#]);
    run.feed("products", "T-1", "-", 4);
    run.feed("lines", "kim", r#"{"sku": "T-1", "n": 2}"#, 5);
    assert!(run.told("out").is_empty(), "it is gone");
    run.feed("lines", "kim", r#"{"n": 2}"#, 6);
    assert_eq!(run.dead().len(), 1, "the first join can't read its key");
    assert_eq!(run.told("missed").len(), 1 + 1, "null finds nothing, and is no error");
}

/// If this broke, what one stream adds would be lost where another one adds to the same key, or be folded by the wrong rule.
#[test]
fn several_streams_share_one_aggregate() {
    let steps = |more: &str| {
        format!(
            r#"
  - name: basket
    from: lines
    cogroup:
      init: "0"
      streams:
        lines: {{ by: value.who, with: aggregate + value.n }}
        others: {{ with: aggregate - value.n }}
{more}
  - {{ name: keyed, from: basket, map: {{ key: "type(key) == string ? key : key.key" }} }}
  - {{ name: out, from: keyed, to: {{ topic: out }} }}
"#
        )
    };
    let mut run = Run::of(&steps(""));
    run.feed("lines", "x", r#"{"who": "kim", "n": 5}"#, 1_000);
    run.feed("others", "kim", r#"{"n": 2}"#, 2_000);
    run.feed("lines", "y", r#"{"who": "kim"}"#, 2_500);
    run.0.lose_process().unwrap();
    run.feed("lines", "y", r#"{"who": "kim", "n": 1}"#, 3_000);
    assert_eq!(run.told("out"), ["kim=5@1000", "kim=3@2000", "kim=4@3000"]);
    assert_eq!(run.dead().len(), 1, "one had no number");

    let mut run = Run::of(&steps("      window: { size: 1m }\n      emit: close"));
    run.feed("lines", "x", r#"{"who": "kim", "n": 5}"#, 1_000);
    run.feed("others", "kim", r#"{"n": 2}"#, 2_000);
    run.feed("others", "kim", r#"{"n": 2}"#, 60_000);
    assert_eq!(run.told("out"), ["kim=3@2000"]);

    let mut run = Run::of(&steps("      window: { session: 5s }\n      merge: left + right"));
    run.feed("others", "kim", r#"{"n": 2}"#, 1_000);
    run.feed("others", "kim", r#"{"n": 2}"#, 8_000);
    run.told("out");
    run.feed("others", "kim", r#"{"n": 1}"#, 9_000);
    assert_eq!(run.told("out"), ["kim=-@8000", "kim=-3@9000"]);
}

/// If this broke, a filtered or mapped table would forget to say what is no longer in it.
#[test]
fn a_table_of_a_table_says_what_goes() {
    let mut run = Run::of(
        r#"
  - { name: adults, from: users, table: { filter: value.age >= 18, value: { age: value.age, of: key }, materialized: true } }
  - { name: out, from: adults, to: { topic: out } }
"#,
    );
    run.feed("users", "kim", r#"{"age": 20}"#, 1);
    run.feed("users", "kim", r#"{"age": 3}"#, 2);
    run.feed("users", "lee", r#"{"age": "x"}"#, 3);
    assert_eq!(run.told("out"), [r#"kim={"age":20,"of":"kim"}@1"#, "kim=-@2"]);
    assert_eq!(run.dead().len(), 1);
}

/// If this broke, an entry would keep the partner of a while ago, or the result miss one that both tables have.
#[test]
fn tables_are_joined_by_their_keys_and_by_foreign_keys() {
    let mut run = Run::of(
        r#"
  - { name: both, from: users, table: { join: { table: regions, kind: outer, value: { u: value, r: table } } } }
  - { name: out, from: both, to: { topic: both } }
  - name: placed
    from: users
    table: { join: { table: regions, by: value.region, kind: left, value: { user: key, region: "table == null ? '?' : table.name" } } }
  - { name: out-placed, from: placed, to: { topic: placed } }
"#,
    );
    run.feed("regions", "eu", r#"{"name": "Europe"}"#, 1);
    run.feed("users", "kim", r#"{"region": "eu"}"#, 2);
    run.feed("users", "lee", r#"{"region": "as"}"#, 3);
    assert_eq!(run.told("placed"), [r#"kim={"user":"kim","region":"Europe"}@2"#, r#"lee={"user":"lee","region":"?"}@3"#]);
    run.feed("regions", "as", r#"{"name": "Asia"}"#, 4);
    assert_eq!(run.told("placed"), [r#"lee={"user":"lee","region":"Asia"}@4"#]);
    run.feed("users", "kim", "-", 5);
    assert_eq!(run.told("placed"), ["kim=-@5"]);
    assert_eq!(run.told("both").last().unwrap(), "kim=-@5");
    run.feed("regions", "lee", r#"{"name": "L"}"#, 6);
    assert_eq!(run.told("both"), [r#"lee={"u":{"region":"as"},"r":{"name":"L"}}@6"#]);
}

/// If this broke, an entry would be counted in the group that it left.
#[test]
fn entries_of_a_table_are_taken_out_of_the_group_that_they_leave() {
    let mut run = Run::of(
        r#"
  - { name: per-region, from: users, table: { group: { by: value.region, count: true } } }
  - { name: out, from: per-region, to: { topic: counts } }
  - name: ages
    from: users
    table:
      memory: true
      group:
        by: value.region
        aggregate: { from: "0", with: aggregate + value.age, without: "aggregate == value.age ? null : aggregate - value.age" }
  - { name: out-ages, from: ages, to: { topic: ages } }
"#,
    );
    run.feed("users", "kim", r#"{"region": "eu", "age": 20}"#, 1);
    run.feed("users", "lee", r#"{"region": "eu", "age": 30}"#, 2);
    run.0.lose_process().unwrap();
    run.feed("users", "kim", r#"{"region": "as", "age": 20}"#, 3);
    run.feed("users", "lee", "-", 4);
    assert_eq!(run.told("counts"), ["eu=1@1", "eu=2@2", "eu=1@3", "as=1@3", "eu=0@4"]);
    assert_eq!(run.told("ages"), ["eu=20@1", "eu=50@2", "eu=30@3", "as=20@3", "eu=-@4"]);
}

/// If this broke, records would go to another topic than they name, or a stream would keep its old partitions.
#[test]
fn records_are_repartitioned_and_name_their_topic() {
    let mut run = Run::of(
        r#"
  - { name: moved, from: lines, repartition: { partitions: 3 } }
  - { name: out, from: moved, to: { topic_of: value.to } }
"#,
    );
    let app = parse("t.yaml", &format!("{HEAD}  - {{ name: moved, from: lines, repartition: {{ partitions: 3 }} }}\n")).unwrap();
    assert!(app.application.topology.describe().contains("(topic: app-moved-repartition)"));
    ["red", "blue"].iter().for_each(|topic| run.0.cluster().create(&(*topic).into(), 1));
    run.feed("lines", "a", r#"{"to": "red"}"#, 1);
    run.feed("lines", "b", r#"{"to": "blue"}"#, 2);
    run.feed("lines", "c", r#"{"n": 1}"#, 3);
    assert_eq!((run.told("red").len(), run.told("blue").len(), run.dead().len()), (1, 1, 1));
}

/// If this broke, a window without end would end, begin too early, or promise to tell something when it closes.
#[test]
fn an_unlimited_window_begins_and_never_ends() {
    let windowed = |more: &str| {
        format!(
            "  - {{ name: ever, from: lines, group: {{ count: true, window: {{ unlimited: true, {more} }} }} }}\n  \
             - {{ name: out, from: ever, to: {{ topic: out, key: json }} }}\n"
        )
    };
    let mut run = Run::of(&windowed("start: \"1970-01-01T00:00:05Z\""));
    for at in [4_999, 5_000, 9_000_000_000] {
        run.feed("lines", "kim", "{}", at);
    }
    let key = r#"{"key":"kim","start":"1970-01-01T00:00:05.000Z","end":null}"#;
    assert_eq!(run.told("out"), [format!("{key}=1@5000"), format!("{key}=2@9000000000")]);
    for (more, why) in [
        ("grace: 1s", "an unlimited window never closes: there is no `grace`"),
        ("size: 1s", "exactly one of `size`, `sliding`, `session`, `unlimited`"),
        ("start: soon", "`soon` is no time"),
    ] {
        let told = refused(&windowed(more));
        assert!(told.contains(why) && told.contains("t.yaml:13"), "{told}");
    }
    let closing = windowed("").replace("} } }\n", "}, emit: close, retention: 1d } }\n");
    let told = refused(&closing);
    assert!(told.contains("`emit: close` would tell nothing") && told.contains("`retention` has no end to count from"), "{told}");
    let start = refused("  - { name: ever, from: lines, group: { count: true, window: { size: 1s, start: x } } }\n");
    assert!(start.contains("`x` is no time"), "{start}");
}

/// If this broke, a group would go on counting an entry that left it, or begin with something that nobody put in.
#[test]
fn a_group_of_entries_is_reduced_to_one_of_their_values() {
    let mut run = Run::of(
        r#"
  - name: totals
    from: users
    table:
      group: { by: value.team, reduce: { with: { team: value.team, n: aggregate.n + value.n }, without: "aggregate.n == value.n ? null : {'team': value.team, 'n': aggregate.n - value.n}" } }
  - { name: out, from: totals, to: { topic: out } }
"#,
    );
    run.feed("users", "kim", r#"{"team": "a", "n": 2}"#, 1);
    run.feed("users", "lee", r#"{"team": "a", "n": 3}"#, 2);
    run.feed("users", "kim", r#"{"team": "b", "n": 2}"#, 3);
    run.feed("users", "lee", "-", 4);
    let told = [
        r#"a={"team":"a","n":2}@1"#,
        r#"a={"team":"a","n":5}@2"#,
        r#"a={"n":3,"team":"a"}@3"#,
        r#"b={"team":"b","n":2}@3"#,
        "a=-@4",
    ];
    assert_eq!(run.told("out"), told);
    let two = refused(
        "  - { name: t, from: users, table: { group: { by: value.team, count: true, reduce: { with: value, without: aggregate } } } }\n",
    );
    assert!(two.contains("exactly one of `count: true`, `reduce`, `aggregate`"), "{two}");
}

/// If this broke, a file would ask for a store in memory or a cache, and get neither without a word.
#[test]
fn a_view_is_not_told_how_to_keep_what_it_does_not_keep() {
    let view = |more: &str| format!("  - {{ name: view, from: users, table: {{ filter: value.n > 1, {more} }} }}\n");
    for key in ["memory: true", "caching: true", "caching: false"] {
        let told = refused(&view(key));
        let name = &key[..key.find(':').unwrap()];
        let what = format!("`{name}` is about a store, and this step keeps none");
        assert!(told.contains(&what) && told.contains("t.yaml:13") && told.contains("add `materialized: true`"), "{told}");
    }
    let by_key = refused("  - { name: met, from: users, table: { join: { table: regions, value: table }, memory: true } }\n");
    assert!(by_key.contains("`memory` is about a store"), "{by_key}");
    for kept in ["materialized: true, caching: true", "group: { by: key, count: true }, memory: true"] {
        Run::of(&view(kept));
    }
}

/// If this broke, a suppression or join that can't be meant would start, or be refused one mistake at a time.
#[test]
fn mistakes_are_told_with_their_places() {
    let shown = refused(
        r#"
  - { name: counts, from: lines, group: { count: true } }
  - { name: hourly, from: lines, group: { count: true, window: { size: 1h } } }
  - { name: a, from: counts, suppress: { until_window_closes: true } }
  - { name: b, from: lines, suppress: { until_time_limit: 5s } }
  - { name: c, from: hourly, suppress: { until_window_closes: true, until_time_limit: 5s } }
  - { name: d, from: hourly, suppress: { until_window_closes: true, max_records: 5, when_full: emit_early } }
  - { name: e, from: hourly, suppress: { until_time_limit: 5s, max_bytes: 1 MB } }
  - { name: f, from: hourly, suppress: { until_time_limit: 5s, when_full: shut_down } }
  - { name: g, from: hourly, suppress: { until_window_closes: false } }
  - { name: h, from: lines, join: { global: users, value: table } }
  - { name: i, from: lines, join: { table: users, by: value.x, value: table } }
  - { name: j, from: lines, join: { global: products, kind: outer, value: table } }
  - { name: k, from: lines, join: { global: products, within: 5s, by: valu.x, value: table } }
  - { name: l, from: products, filter: value.n > 1 }
  - { name: m, from: lines, cogroup: { init: "0", streams: { others: { with: aggregate }, lins: { with: aggregat } } } }
  - { name: n, from: lines, cogroup: { init: value.x, window: { session: 5s }, streams: { lines: { with: aggregate } } } }
  - { name: o, from: lines, table: { filter: value.n > 1 } }
  - { name: p, from: users, table: { key: long, value: headers } }
  - { name: q, from: users, table: { value: value.x } }
  - { name: r, from: q, table: { join: { table: regions, by: value, kind: outer, value: table } } }
  - { name: s, from: users, table: { group: { by: value.x } } }
  - { name: t, from: users, table: { join: { table: lines, value: table } } }
  - { name: u, from: lines, to: {} }
  - { name: v, from: lines, repartition: { partitions: 0 } }
  - { name: w, from: nowhere, suppress: { until: 5s } }
"#,
    );
    for part in [
        "`a` waits for windows to close, and this has none",
        "`suppress` holds changes of a table back, and this is none",
        "exactly one of `until_window_closes`, `until_time_limit`",
        "a final result can't be passed on early",
        "a limit needs `when_full`",
        "`when_full` is for limits, and there is none",
        "`until_window_closes: false` holds nothing back",
        "this is no global table",
        "`by` is for joins with a `global` table",
        "a join with a table is inner or left",
        "`within` is for joins with a `stream`",
        "reads `valu`, which is not known here",
        "`filter` reads from a stream, and this is none",
        "`streams` does not say what the records of `lines` do",
        "nothing above is named `lins`",
        "reads `aggregat`, which is not known here",
        "reads `value`, which is not known here",
        "a cogroup of sessions needs `merge`",
        "`filter` makes a table of a table, and this reads from a stream",
        "`key` is for tables of streams",
        "reads `headers`, which is not known here",
        "a join by a foreign key writes values of both tables, and the table of `from` is a view",
        "a join by a foreign key is inner or left",
        "needs exactly one of `count: true`, `reduce`, `aggregate`",
        "this is no table",
        "a sink has exactly one of `topic`, `topic_of`",
        "t.yaml:38",
        "unknown key `until`",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
}
