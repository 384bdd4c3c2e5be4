//! Windowed aggregates against Kafka Streams' rules, and against a plain fold over all records.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::harness::Harness;
use super::*;
use crate::error::codes;
use crate::serdes::{Serdes, Windowed};
use crate::task::Dropped;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn grouped(b: &StreamsBuilder) -> KGroupedStream<String, String> {
    b.stream("in", Consumed::with(Serdes::string(), Serdes::string()))
        .group_by_key(Grouped::with(Serdes::string(), Serdes::string()))
}

/// Writes every change of a windowed table as text.
fn shown(table: &KTable<Windowed<String>, String>) {
    table
        .to_stream()
        .map(|k, v| (k.to_string(), v.unwrap_or("null".into())))
        .to("out", Produced::with(Serdes::string(), Serdes::string()));
}

fn joined(_: &String, v: String, a: String) -> String {
    if a.is_empty() { v } else { format!("{a}+{v}") }
}

/// If this broke, counts of a window would miss records at its edges, or take some that are too late without a word.
#[test]
fn hopping_windows_take_late_records_within_grace_and_count_the_rest() {
    let b = StreamsBuilder::new("app");
    let windows = TimeWindows::of_size_and_grace(ms(10), ms(5)).advance_by(ms(5));
    shown(&grouped(&b).windowed_by(windows).aggregate("w", String::new, joined, Serdes::string()));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    let mut feed = |value: &str, at: i64| {
        h.feed_at("in", "k", value, at).unwrap();
        h.take("out")
    };
    assert_eq!(feed("a", 7), ["[k@0/10]=a@7", "[k@5/15]=a@7"]);
    assert_eq!(feed("b", 10), ["[k@5/15]=a+b@10", "[k@10/20]=b@10"], "10 is the first moment after [0, 10)");
    assert_eq!(feed("c", 14), ["[k@5/15]=a+b+c@14", "[k@10/20]=b+c@14"]);
    assert_eq!(feed("d", 9), ["[k@0/10]=a+d@9", "[k@5/15]=a+b+c+d@14"], "out of order, within grace; the newest time stays");
    assert_eq!(feed("e", 15), ["[k@10/20]=b+c+e@15", "[k@15/25]=e@15"]);
    assert_eq!(feed("f", 9), ["[k@5/15]=a+b+c+d+f@14"], "[0, 10) closed at 15");
    assert_eq!(feed("g", 4), [] as [&str; 0]);
    let step = "KSTREAM-AGGREGATE-0000000001";
    assert_eq!(h.dropped(step, Dropped::Late), 1, "only what no window took");
    h.feed_whole("in", None, Some("x".into()), Default::default(), None).unwrap_err();
}

/// If this broke, a window's one result would come twice, too early, or not at all after a restart.
#[test]
fn on_close_each_window_is_told_once_also_over_restarts() {
    let b = StreamsBuilder::new("app");
    let windows = TimeWindows::of_size_and_grace(ms(10), ms(5));
    let windowed = grouped(&b).windowed_by(windows).emit_strategy(EmitStrategy::OnWindowClose);
    shown(&windowed.aggregate("w", String::new, joined, Serdes::string()));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    for (key, value, at) in [("k", "a", 1), ("k", "b", 9), ("l", "c", 2), ("k", "d", 14), ("k", "e", 3)] {
        h.feed_at("in", key, value, at).unwrap();
    }
    assert_eq!(h.take("out"), [] as [&str; 0]);
    h.restart();
    h.feed_at("in", "k", "f", 15).unwrap();
    assert_eq!(h.take("out"), ["[k@0/10]=a+b+e@9", "[l@0/10]=c@2"]);
    h.restart();
    h.feed_at("in", "k", "g", 4).unwrap();
    assert_eq!(h.dropped("KSTREAM-AGGREGATE-0000000001", Dropped::Late), 1, "a restart forgets no lateness");
    h.feed_at("in", "k", "h", 100).unwrap();
    assert_eq!(h.take("out"), ["[k@10/20]=d+f@15"]);
}

/// If this broke, sliding windows would hold other records than those of Kafka Streams.
#[test]
fn sliding_windows_are_those_of_kafka_streams() {
    let b = StreamsBuilder::new("app");
    let windows = SlidingWindows::of_time_difference_and_grace(ms(10), ms(50));
    shown(&grouped(&b).windowed_by(windows).aggregate("w", String::new, joined, Serdes::string()));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    for (value, at) in [("1", 10), ("2", 15), ("3", 20), ("4", 22), ("5", 30)] {
        h.feed_at("in", "A", value, at).unwrap();
    }
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for w in h.texts("out") {
        let (key, value) = w.split_once('=').unwrap();
        last.insert(key.to_owned(), value.to_owned());
    }
    let last: Vec<_> = last.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let mut expected = vec![
        "[A@0/10]=1",
        "[A@5/15]=1+2",
        "[A@10/20]=1+2+3",
        "[A@11/21]=2+3",
        "[A@12/22]=2+3+4",
        "[A@16/26]=3+4",
        "[A@20/30]=3+4+5",
        "[A@21/31]=4+5",
        "[A@23/33]=5",
    ];
    expected.sort_unstable();
    assert_eq!(last, expected);
}

/// If this broke, sessions that a late record joins would be counted beside the one that they became.
#[test]
fn a_record_between_two_sessions_makes_them_one() {
    let b = StreamsBuilder::new("app");
    let windows = SessionWindows::of_inactivity_gap_and_grace(ms(5), ms(20));
    let merge = |_: &String, a: String, b: String| if a.is_empty() { b } else { format!("{a}|{b}") };
    shown(&grouped(&b).windowed_by(windows).aggregate("s", String::new, joined, merge, Serdes::string()));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    let mut feed = |value: &str, at: i64| {
        h.feed_at("in", "k", value, at).unwrap();
        h.take("out")
    };
    assert_eq!(feed("a", 10), ["[k@10/10]=a@10"]);
    assert_eq!(feed("b", 15), ["[k@10/10]=null@10", "[k@10/15]=a+b@15"], "a gap of 5 still joins");
    assert_eq!(feed("c", 21), ["[k@21/21]=c@21"], "one of 6 does not");
    assert_eq!(feed("d", 18), ["[k@10/15]=null@15", "[k@21/21]=null@21", "[k@10/21]=a+b|c+d@21"]);
    assert_eq!(feed("e", 12), ["[k@10/21]=a+b|c+d+e@21"], "within the session");
    assert_eq!(feed("f", 60), ["[k@60/60]=f@60"]);
    assert_eq!(feed("g", 34), [] as [&str; 0], "ended before 60 - 5 - 20");
    assert_eq!(feed("h", 35), ["[k@35/35]=h@35"]);
    assert_eq!(h.dropped("KSTREAM-AGGREGATE-0000000001", Dropped::Late), 1);
}

/// If this broke, a window without end would end, or take records from before its start.
#[test]
fn an_unlimited_window_begins_and_never_ends() {
    let b = StreamsBuilder::new("app");
    let windows = UnlimitedWindows::of().start_on(crate::time::WallTime(100));
    shown(&grouped(&b).windowed_by(windows).reduce("u", |a, v| a + &v));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    for (value, at) in [("a", 99), ("b", 100), ("c", 1 << 40), ("d", 101)] {
        h.feed_at("in", "k", value, at).unwrap();
    }
    let end = i64::MAX;
    let big = 1_i64 << 40;
    let all = [format!("[k@100/{end}]=b@100"), format!("[k@100/{end}]=bc@{big}"), format!("[k@100/{end}]=bcd@{big}")];
    assert_eq!(h.take("out"), all);
}

/// If this broke, streams of one aggregate would lose each other's records, or a re-keyed one would not be repartitioned.
#[test]
fn cogrouped_streams_share_one_aggregate() {
    let b = StreamsBuilder::new("app");
    let by_value = b
        .stream("other", Consumed::with(Serdes::string(), Serdes::string()))
        .group_by(|_, v| v.clone(), Grouped::with(Serdes::string(), Serdes::string()));
    let both = grouped(&b).cogroup(|_, v, a: i64| a + v.len() as i64).cogroup(&by_value, |_, _, a| a * 10);
    let text = |t: &KTable<String, i64>| t.to_stream().map_values(|_, n| format!("{n:?}"));
    text(&both.aggregate("sum", || 1, Serdes::long())).to("out", Produced::with(Serdes::string(), Serdes::string()));
    let windowed = both.windowed_by(TimeWindows::of_size_with_no_grace(ms(10)));
    shown(&windowed.aggregate("sums", || 1, Serdes::long()).map_values(|_, n| n.to_string()));
    let app = b.build().unwrap();
    let mut h = Harness::new(&app, 3);
    h.feed_at("in", "k", "abc", 1).unwrap();
    h.feed_at("other", "x", "k", 2).unwrap();
    assert_eq!(h.take("out"), ["k=Some(4)@1", "[k@0/10]=4@1", "k=Some(40)@2", "[k@0/10]=40@2"]);
}

/// If this broke, state would grow for ever, or a window that is still needed would be gone.
#[test]
fn windows_past_their_retention_leave_the_store() {
    let b = StreamsBuilder::new("app");
    let windows = TimeWindows::of_size_and_grace(ms(10), ms(10));
    let table = grouped(&b).windowed_by(windows).count("w");
    let get = table.get.clone();
    let out = b.stream("look", Consumed::with(Serdes::string(), Serdes::string())).each("LOOK", false, move |r, cx, next| {
        let window = crate::serdes::Window { start: crate::time::WallTime(0), end: crate::time::WallTime(10) };
        let found = get(cx, &Windowed { key: r.key.clone(), window })?.map(|(n, _)| n);
        next.process(r.with_value(format!("{found:?}")), cx)
    });
    b.build.borrow_mut().graph.uses(out.node, &"w".into());
    out.to("out", Produced::with(Serdes::string(), Serdes::string()));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    let mut at = |time: i64| {
        h.feed_at("in", "k", "v", time).unwrap();
        h.feed_at("look", "k", "?", 0).unwrap();
        h.take("out").pop().unwrap()
    };
    assert_eq!(at(1), "k=Some(1)@0");
    assert_eq!(at(19), "k=Some(1)@0");
    assert_eq!(at(29), "k=Some(1)@0", "segments go as a whole: [0, 10) may stay until 30");
    assert_eq!(at(31), "k=None@0");
    assert_eq!(h.left_of("app-w-changelog"), 4 + 1, "retention of the topic ends entries there, no tombstones; one is the clock");
}

/// If this broke, a topology with windows that lose records or never end would start.
#[test]
fn impossible_windows_and_missing_names_are_refused() {
    let b = StreamsBuilder::new("app");
    let s = grouped(&b);
    s.windowed_by(TimeWindows::of_size_with_no_grace(ms(10)).advance_by(ms(11))).count("gaps");
    s.windowed_by(TimeWindows::of_size_with_no_grace(ms(0))).count("empty");
    s.windowed_by(UnlimitedWindows::of()).emit_strategy(EmitStrategy::OnWindowClose).count("never");
    s.windowed_by(SessionWindows::of_inactivity_gap_with_no_grace(ms(0))).count("no-gap");
    s.windowed_by(SlidingWindows::of_time_difference_with_no_grace(ms(1))).count("");
    s.count("plain").suppress(Suppressed::until_time_limit("", ms(1), BufferConfig::unbounded()), Serdes::long());
    let found: Vec<_> = b.build().unwrap_err().iter().map(|d| d.code).collect();
    let (bad, name) = (codes::BAD_VALUE, codes::MISSING_NAME);
    assert_eq!(found.iter().filter(|c| **c == bad).count(), 4, "{found:?}");
    assert_eq!(found.iter().filter(|c| **c == name).count(), 2, "{found:?}");
}

fn records() -> impl Strategy<Value = Vec<(u8, i64)>> {
    prop::collection::vec((0..2u8, 0..120i64), 1..40)
}

/// What each window holds in the end, as a sorted list of record numbers.
type Finals = BTreeMap<(u8, i64, i64), Vec<usize>>;

fn sliding(records: &[(u8, i64)], d: i64) -> Finals {
    let mut finals = Finals::new();
    for &(key, t) in records {
        for start in [(t - d).max(0), t + 1] {
            let inside = |(_, r): &(usize, &(u8, i64))| r.0 == key && (start..=start + d).contains(&r.1);
            let holds: Vec<_> = records.iter().enumerate().filter(inside).map(|(i, _)| i).collect();
            if !holds.is_empty() {
                finals.insert((key, start, start + d), holds);
            }
        }
    }
    finals
}

fn sessions(records: &[(u8, i64)], gap: i64) -> Finals {
    let mut finals = Finals::new();
    for key in 0..2u8 {
        let mut own: Vec<_> = records.iter().enumerate().filter(|(_, r)| r.0 == key).map(|(i, r)| (r.1, i)).collect();
        own.sort_unstable();
        let mut open: Option<(i64, i64, Vec<usize>)> = None;
        for (t, i) in own {
            match &mut open {
                Some((_, end, holds)) if t - *end <= gap => {
                    *end = t;
                    holds.push(i);
                }
                _ => {
                    finals.extend(open.take().map(|(s, e, h)| ((key, s, e), h)));
                    open = Some((t, t, vec![i]));
                }
            }
        }
        finals.extend(open.map(|(s, e, h)| ((key, s, e), h)));
    }
    finals.values_mut().for_each(|h| h.sort_unstable());
    finals
}

fn parsed(texts: &[String], once: bool) -> Finals {
    let mut finals = Finals::new();
    for text in texts {
        let (key, value) = text.split_once('=').unwrap();
        let (k, window) = key.trim_matches(['[', ']']).split_once('@').unwrap();
        let (start, end) = window.split_once('/').unwrap();
        let key = (k.parse().unwrap(), start.parse().unwrap(), end.parse().unwrap());
        let mut holds: Vec<usize> = value.split('+').filter_map(|n| n.parse().ok()).collect();
        holds.sort_unstable();
        if value == "null" {
            finals.remove(&key);
        } else {
            let before = finals.insert(key, holds);
            assert!(!once || before.is_none(), "told twice: {text}");
        }
    }
    finals
}

fn run(records: &[(u8, i64)], build: impl FnOnce(&StreamsBuilder), restart: usize) -> Vec<String> {
    let b = StreamsBuilder::new("app");
    build(&b);
    let mut h = Harness::new(&b.build().unwrap(), 1);
    for (i, (key, at)) in records.iter().enumerate() {
        if i == restart {
            h.restart();
        }
        h.feed_at("in", &key.to_string(), &i.to_string(), *at).unwrap();
    }
    h.feed_at("in", "9", "0", 10_000).unwrap();
    h.texts("out").into_iter().filter(|t| !t.starts_with("[9")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// If this broke, sliding windows would hold other records than lie in them, for some order of arrival, emitted at each change or
    /// once, with a restart in between.
    #[test]
    fn sliding_windows_hold_what_lies_in_them(records in records(), d in 1..30i64, once: bool, restart in 0..40usize) {
        let texts = run(&records, |b| {
            let windows = SlidingWindows::of_time_difference_and_grace(ms(d as u64), ms(500));
            let emit = if once { EmitStrategy::OnWindowClose } else { EmitStrategy::OnWindowUpdate };
            shown(&grouped(b).windowed_by(windows).emit_strategy(emit).aggregate("w", String::new, joined, Serdes::string()));
        }, restart);
        prop_assert_eq!(parsed(&texts, once), sliding(&records, d));
    }

    /// If this broke, sessions would not be the clusters of their records, for some order of arrival.
    #[test]
    fn sessions_are_the_clusters_of_their_records(records in records(), gap in 1..15i64, once: bool, restart in 0..40usize) {
        let texts = run(&records, |b| {
            let windows = SessionWindows::of_inactivity_gap_and_grace(ms(gap as u64), ms(500));
            let emit = if once { EmitStrategy::OnWindowClose } else { EmitStrategy::OnWindowUpdate };
            let merge = |_: &String, a: String, b: String| joined(&String::new(), b, a);
            shown(&grouped(b).windowed_by(windows).emit_strategy(emit).aggregate("s", String::new, joined, merge, Serdes::string()));
        }, restart);
        prop_assert_eq!(parsed(&texts, once), sessions(&records, gap));
    }
}
