//! The record cache: what is passed on, logged, kept and taken back where several changes of a key fall into one transaction.

use std::time::Duration;

use crate::driver::{DriverOptions, TestInputTopic, TopologyTestDriver};
use crate::dsl::{
    Application, BufferConfig, Consumed, Grouped, KTable, Materialized, NamedStore, Produced, SessionWindows, StreamsBuilder,
    Suppressed, TimeWindows,
};
use crate::ids::TopicName;
use crate::intents::topics;
use crate::kafka::Isolation;
use crate::processor::Record;
use crate::serdes::{SerdeRef, Serdes, Windowed};
use crate::time::WallTime;

type Input = TestInputTopic<String, Option<i64>>;

fn text() -> SerdeRef<String> {
    Serdes::string()
}

fn number() -> SerdeRef<i64> {
    Serdes::long()
}

fn cached(name: &str) -> NamedStore {
    NamedStore::named(name).with_caching_enabled()
}

/// The stream of `in`, grouped by key.
fn sums(b: &StreamsBuilder, name: impl Into<NamedStore>) -> KTable<String, i64> {
    b.stream("in", Consumed::with(text(), number())).group_by_key(Grouped::with(text(), number())).reduce(name, |a, n| a + n)
}

fn told<K: std::fmt::Debug + Clone + 'static>(table: &KTable<K, i64>, show: fn(K) -> String) {
    let lines = table.to_stream().map(move |k, n| (show(k), n));
    lines.to("out", Produced::with(text(), Serdes::optional(number())));
}

fn same(key: String) -> String {
    key
}

fn window(key: Windowed<String>) -> String {
    format!("{}@{}-{}", key.key, key.window.start.0, key.window.end.0)
}

fn started(b: StreamsBuilder) -> TopologyTestDriver {
    TopologyTestDriver::at(&b.build().unwrap_or_else(|d| panic!("{d}")), WallTime(0)).unwrap_or_else(|e| panic!("{e}"))
}

fn input() -> Input {
    TestInputTopic::new("in", text(), Serdes::optional(number())).auto_advance(WallTime(1_000), Duration::from_secs(1))
}

fn pipe(d: &mut TopologyTestDriver, from: &mut Input, records: &[(&str, i64)]) {
    from.pipe_together(d, records.iter().map(|(k, n)| ((*k).to_owned(), Some(*n)))).unwrap_or_else(|e| panic!("{e}"));
}

/// `key=value@seconds` of what was committed since the last look.
fn read(d: &mut TopologyTestDriver) -> Vec<String> {
    let show = |o: &crate::driver::Output| {
        let key = String::from_utf8_lossy(o.key.as_deref().unwrap_or_default()).into_owned();
        let value = o.value.as_deref().map_or("-".to_owned(), |v| i64::from_be_bytes(v.try_into().unwrap()).to_string());
        format!("{key}={value}@{}", o.timestamp.map_or(-1, |t| t.0 / 1_000))
    };
    d.read_output("out").iter().map(show).collect()
}

/// Records that a store's changelog got, all partitions together.
fn logged(d: &TopologyTestDriver, store: &str) -> usize {
    let changelog: TopicName = topics::changelog(&"app".into(), store);
    d.cluster().records(&changelog, Isolation::Committed).len()
}

/// If this broke, a table that changes often would write each of its steps on the way, or leave out where it ended.
#[test]
fn changes_of_a_key_within_a_transaction_are_passed_on_and_logged_as_one() {
    let b = StreamsBuilder::new("app");
    told(&sums(&b, cached("sums")), same);
    let (mut d, mut from) = (started(b), input());
    pipe(&mut d, &mut from, &[("a", 1), ("b", 5), ("a", 2), ("a", 3)]);
    // By their latest change, with its time.
    assert_eq!(read(&mut d), ["b=5@2", "a=6@4"]);
    assert_eq!(logged(&d, "sums"), 2);
    pipe(&mut d, &mut from, &[("a", 10)]);
    assert_eq!((read(&mut d), logged(&d, "sums")), (vec!["a=16@5".to_owned()], 3));

    let b = StreamsBuilder::new("app");
    told(&sums(&b, "sums"), same);
    let (mut d, mut from) = (started(b), input());
    pipe(&mut d, &mut from, &[("a", 1), ("b", 5), ("a", 2), ("a", 3)]);
    assert_eq!((read(&mut d).len(), logged(&d, "sums")), (4, 4), "without a cache each change is seen");
}

/// If this broke, a step below would take out of its own result what was never put in, and be wrong for ever.
#[test]
fn a_change_is_from_what_was_first_to_what_is_last() {
    for cache in [false, true] {
        let b = StreamsBuilder::new("app");
        let kept = Materialized::named("users", text(), number());
        let users = b.table("in", if cache { kept.with_caching_enabled() } else { kept });
        let parity = |_: &String, n: i64| (if n % 2 == 0 { "even" } else { "odd" }.to_owned(), n);
        let name = if cache { cached("parity") } else { "parity".into() };
        told(&users.group_by(parity, Grouped::with(text(), number())).reduce(name, |a, n| a + n, |a, n| a - n), same);
        let (mut d, mut from) = (started(b), input());
        pipe(&mut d, &mut from, &[("a", 1), ("b", 4), ("a", 2), ("a", 3), ("b", 6)]);
        pipe(&mut d, &mut from, &[("a", 8), ("b", 7), ("b", 9), ("a", 5)]);
        let last = read(&mut d);
        let of = |key: &str| last.iter().rfind(|l| l.starts_with(key)).map(|l| l[..l.find('@').unwrap()].to_owned());
        assert_eq!((of("odd"), of("even")), (Some("odd=14".into()), Some("even=0".into())), "cached: {cache}");
        assert_eq!(cache, last.len() <= 4, "{last:?}");
    }
}

/// If this broke, a deletion would be lost, or one be told of that nobody had heard of.
#[test]
fn what_came_and_went_within_a_transaction_is_nowhere() {
    let b = StreamsBuilder::new("app");
    told(&b.table("in", Materialized::named("kept", text(), number()).with_caching_enabled()), same);
    let (mut d, mut from) = (started(b), input());
    let pipe = |d: &mut TopologyTestDriver, from: &mut Input, all: &[(&str, Option<i64>)]| {
        from.pipe_together(d, all.iter().map(|(k, n)| ((*k).to_owned(), *n))).unwrap();
    };
    pipe(&mut d, &mut from, &[("a", Some(1)), ("b", Some(2)), ("a", None)]);
    assert_eq!((read(&mut d), logged(&d, "kept")), (vec!["b=2@2".to_owned()], 1));
    pipe(&mut d, &mut from, &[("b", Some(3)), ("b", None)]);
    assert_eq!((read(&mut d), logged(&d, "kept")), (vec!["b=-@5".to_owned()], 2));
    assert!(d.store("kept").get("b").is_none());
    pipe(&mut d, &mut from, &[("b", None), ("b", Some(4))]);
    assert_eq!((read(&mut d), logged(&d, "kept")), (vec!["b=4@7".to_owned()], 3));
}

/// If this broke, a table below another one would miss what the upper one passes on at the commit.
#[test]
fn caches_are_emptied_from_the_top_down() {
    let b = StreamsBuilder::new("app");
    let upper = sums(&b, cached("upper"));
    let lower = upper
        .to_stream()
        .map_values(|_, n| n.unwrap_or_default())
        .to_table(Materialized::named("lower", text(), number()).with_caching_enabled())
        .filter(|_, n| *n > 2)
        .materialized(Materialized::named("lowest", text(), number()).with_caching_enabled());
    told(&lower, same);
    let (mut d, mut from) = (started(b), input());
    pipe(&mut d, &mut from, &[("a", 1), ("a", 2), ("b", 1), ("a", 3)]);
    assert_eq!(read(&mut d), ["a=6@4"]);
    for store in ["upper", "lower"] {
        assert_eq!(logged(&d, store), 2, "{store}");
    }
    assert_eq!(d.store("lowest").iter().count(), 1);
}

/// If this broke, windows and sessions would be told of by each record, or a suppression behind them get too few.
#[test]
fn windows_and_sessions_are_cached_and_suppressed() {
    let counts = |b: &StreamsBuilder| {
        let grouped = b.stream("in", Consumed::with(text(), number())).group_by_key(Grouped::with(text(), number()));
        let windows = TimeWindows::of_size_and_grace(Duration::from_secs(10), Duration::from_secs(5));
        grouped.windowed_by(windows).count(cached("counts"))
    };
    let b = StreamsBuilder::new("app");
    told(&counts(&b), window);
    let (mut d, mut from) = (started(b), input());
    let all: Vec<_> = (0..12).map(|_| ("a", 1)).collect();
    pipe(&mut d, &mut from, &all);
    assert_eq!(read(&mut d), ["a@0-10000=9@9", "a@10000-20000=3@12"]);

    let b = StreamsBuilder::new("app");
    let finals = counts(&b).suppress(Suppressed::until_window_closes("finals", BufferConfig::unbounded()), number());
    told(&finals, window);
    let (mut d, mut from) = (started(b), input());
    pipe(&mut d, &mut from, &all);
    assert!(read(&mut d).is_empty());
    d.lose_process().unwrap();
    // The window is changed and closed within one transaction.
    let late =
        |at: i64| TestInputTopic::new("in", text(), Serdes::optional(number())).auto_advance(WallTime(at), Duration::from_secs(7));
    pipe(&mut d, &mut late(9_500), &[("a", 1), ("a", 1)]);
    assert_eq!(read(&mut d), ["a@0-10000=10@9"]);

    let b = StreamsBuilder::new("app");
    let grouped = b.stream("in", Consumed::with(text(), number())).group_by_key(Grouped::with(text(), number()));
    let sessions = SessionWindows::of_inactivity_gap_with_no_grace(Duration::from_secs(5));
    told(&grouped.windowed_by(sessions).count(cached("sessions")), window);
    let (mut d, mut from) = (started(b), input());
    pipe(&mut d, &mut from, &[("a", 1), ("a", 1), ("a", 1)]);
    assert_eq!(read(&mut d), ["a@1000-3000=3@3"], "the shorter ones came and went");
    pipe(&mut d, &mut from, &[("a", 1), ("a", 1)]);
    let mut changes = read(&mut d);
    changes.sort();
    assert_eq!(changes, ["a@1000-3000=-@3", "a@1000-5000=5@5"]);
}

/// If this broke, a transaction that is taken back, or a process that dies, would leave changes behind or lose some.
#[test]
fn an_abort_takes_back_what_is_held_and_a_crash_restores_what_was_committed() {
    let b = StreamsBuilder::new("app");
    told(&sums(&b, cached("sums")), same);
    let (mut d, mut from) = (started(b), input());
    d.abort_next_commit().unwrap();
    pipe(&mut d, &mut from, &[("a", 1), ("a", 2), ("b", 1)]);
    assert!(read(&mut d).is_empty() && logged(&d, "sums") == 0, "nothing of it is to be seen");
    d.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(read(&mut d), ["a=3@2", "b=1@3"]);
    assert_eq!(d.cluster().records(&"out".into(), Isolation::Uncommitted).len(), 4, "two were taken back");
    d.lose_process().unwrap();
    pipe(&mut d, &mut from, &[("a", 4), ("a", 5)]);
    assert_eq!(read(&mut d), ["a=12@5"]);
    assert_eq!(logged(&d, "sums"), 3);
}

/// If this broke, a transaction over many keys would take as much memory as they need.
#[test]
fn what_is_held_back_is_bounded() {
    let built = || {
        let b = StreamsBuilder::new("app");
        told(&sums(&b, cached("sums")), same);
        b.build().unwrap()
    };
    let keys: Vec<String> = (0..200).map(|i| format!("k{i:03}")).collect();
    let rounds: Vec<_> = keys.iter().chain(&keys).map(|k| (k.as_str(), 1)).collect();
    let pairs: Vec<_> = keys.iter().flat_map(|k| [(k.as_str(), 1); 2]).collect();
    let written = |limit: usize, records: &[(&str, i64)]| {
        let mut how = DriverOptions { start: WallTime(0), partitions: 2, ..DriverOptions::default() };
        how.process.state.record_cache.0 = limit;
        let mut d = TopologyTestDriver::with(&built(), &how).unwrap();
        pipe(&mut d, &mut input(), records);
        let all = read(&mut d);
        assert!(keys.iter().all(|k| all.iter().rfind(|l| l.starts_with(k)).is_some_and(|l| l.contains("=2@"))), "{limit}");
        assert_eq!(logged(&d, "sums"), 200, "the log is written at the commit in any case");
        all.len()
    };
    assert_eq!((written(10 << 20, &rounds), written(0, &rounds)), (200, 400), "all of it, nothing");
    // Some 300 bytes a key: a few fit into each partition's part, so that a key has gone before its second round.
    assert_eq!((written(8_000, &rounds), written(8_000, &pairs)), (400, 200));
}

/// If this broke, a join would pair what one side has passed on with what the other has not, and a step below would be wrong.
#[test]
fn a_table_that_is_joined_with_another_passes_each_change_on() {
    let b = StreamsBuilder::new("app");
    let stream = b.stream("in", Consumed::with(text(), number()));
    let kept = |name: &str| Materialized::named(name, text(), number()).with_caching_enabled();
    let (left, right) = (stream.to_table(kept("left")), stream.map_values(|_, n| n * 10).to_table(kept("right")));
    let joined = left.filter(|_, n| *n > 0).join(&right, |_, a, b| a + b);
    told(
        &joined.group_by(|_, n| ("all".to_owned(), n), Grouped::with(text(), number())).reduce("all", |a, n| a + n, |a, n| a - n),
        same,
    );
    let (mut d, mut from) = (started(b), input());
    pipe(&mut d, &mut from, &[("a", 1), ("b", 10), ("a", 2), ("a", 3)]);
    let last = read(&mut d);
    assert!(last.last().is_some_and(|l| l.starts_with("all=143@")), "{last:?}");
}

/// If this broke, a record that a step below can't take would stop the thread at the commit, or be put aside as another one.
#[test]
fn what_fails_below_is_put_aside_as_the_latest_record_of_its_key() {
    let b = StreamsBuilder::new("app").dead_letters("dead");
    let lines = sums(&b, cached("sums")).to_stream();
    let failing = lines.each("KSTREAM-MAP", false, |r: Record<String, Option<i64>>, cx, next| {
        let error = || crate::error::Error::new(crate::error::codes::BAD_EXPRESSION, crate::error::Fault::Data, "too much");
        if r.value > Some(5) { Err(error().into()) } else { next.process(r, cx) }
    });
    failing.to("out", Produced::with(text(), Serdes::optional(number())));
    let (mut d, mut from) = (started(b), input());
    pipe(&mut d, &mut from, &[("a", 4), ("b", 1), ("a", 4), ("b", 2)]);
    assert_eq!(read(&mut d), ["b=3@4"]);
    let dead = d.read_output("dead");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].headers.text("rb_dead_origin"), Some("in/0/2"));
}

/// If this broke, the declared form would not have what the builder has.
#[test]
fn caching_is_declared() {
    let declared = |caching: bool| -> Application {
        let text = format!(
            "application: app\nsources: {{ in: {{ topic: in, value: long }} }}\ndead_letters: dead\nsteps:\n  \
             - {{ name: sums, from: in, group: {{ count: true, caching: {caching} }} }}\n  \
             - {{ name: tell, from: sums, to: {{ topic: out, value: long }} }}\n"
        );
        crate::declare::parse("t.yaml", &text).unwrap_or_else(|d| panic!("{d}")).application
    };
    for (caching, most) in [(true, 1), (false, 3)] {
        let mut d = TopologyTestDriver::at(&declared(caching), WallTime(0)).unwrap();
        pipe(&mut d, &mut input(), &[("a", 1), ("a", 1), ("a", 1)]);
        assert_eq!((read(&mut d).len(), logged(&d, "sums")), (most, most));
    }
}
