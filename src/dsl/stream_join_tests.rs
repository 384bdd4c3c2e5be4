//! Joins of streams against Kafka Streams' rules: who meets, who stays alone, and that each is told once.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::harness::Harness;
use super::*;
use crate::serdes::Serdes;
use crate::task::Dropped;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Inner,
    Left,
    Outer,
}

fn harness(kind: Kind, windows: JoinWindows) -> Harness {
    let b = StreamsBuilder::new("app");
    let stream = |topic: &str| {
        let key = Serdes::optional(Serdes::string());
        b.stream(topic, Consumed::with(key, Serdes::string()))
    };
    let (left, right) = (stream("left"), stream("right"));
    let how = || StreamJoined::named("j", Serdes::optional(Serdes::string()), Serdes::string(), Serdes::string());
    let show = |a: Option<String>, b: Option<String>| format!("{}+{}", a.unwrap_or("-".into()), b.unwrap_or("-".into()));
    let joined = match kind {
        Kind::Inner => left.join_stream(&right, windows, how(), move |_, a, b| show(Some(a), Some(b))),
        Kind::Left => left.left_join_stream(&right, windows, how(), move |_, a, b| show(Some(a), b)),
        Kind::Outer => left.outer_join(&right, windows, how(), move |_, a, b| show(a, b)),
    };
    joined.to("out", Produced::with(Serdes::optional(Serdes::string()), Serdes::string()));
    Harness::new(&b.build().unwrap(), 1)
}

fn feed(h: &mut Harness, topic: &str, value: &str, at: i64) -> Vec<String> {
    h.feed_at(topic, "k", value, at).unwrap();
    h.take("out")
}

/// If this broke, records at the edge of a window would not meet, or some would meet that lie too far apart.
#[test]
fn records_meet_within_their_window_on_both_sides() {
    let windows = JoinWindows::of_time_difference_with_no_grace(ms(10)).before(ms(3));
    let mut h = harness(Kind::Inner, windows);
    assert_eq!(feed(&mut h, "left", "a", 100), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "right", "A", 110), ["k=a+A@110"], "up to 10 later");
    assert_eq!(feed(&mut h, "right", "B", 97), ["k=a+B@100"], "up to 3 earlier; the later time is the pair's");
    assert_eq!(feed(&mut h, "right", "C", 96), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "right", "D", 111), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "left", "b", 101), ["k=b+A@110", "k=b+D@111"]);
    assert_eq!(feed(&mut h, "left", "b", 101), ["k=b+A@110", "k=b+D@111"], "two of equal time both count");
    assert_eq!(feed(&mut h, "right", "E", 101), ["k=a+E@101", "k=b+E@101", "k=b+E@101"]);
}

/// If this broke, what met nobody would be told too early, twice, or never; or would meet somebody after it was told of as alone.
#[test]
fn who_stays_alone_is_told_once_when_the_window_has_closed() {
    let windows = JoinWindows::of_time_difference_and_grace(ms(10), ms(5));
    let mut h = harness(Kind::Outer, windows);
    assert_eq!(feed(&mut h, "left", "a", 100), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "right", "A", 90), ["k=a+A@100"]);
    assert_eq!(feed(&mut h, "left", "b", 112), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "right", "B", 101), ["k=a+B@101"], "within 10 of a only");
    h.restart();
    assert_eq!(feed(&mut h, "right", "C", 127), [] as [&str; 0], "112 + 10 + 5 is not over yet");
    assert_eq!(feed(&mut h, "right", "D", 128), ["k=b+-@112"]);
    assert_eq!(feed(&mut h, "right", "E", 122), [] as [&str; 0], "b was told of as alone: it meets nobody");
    assert_eq!(feed(&mut h, "left", "c", 113), ["k=c+E@122"], "late for others, not for whom its window still holds");
    assert_eq!(feed(&mut h, "left", "d", 90), ["k=d+-@90"], "its window has closed: alone at once");
    assert_eq!(feed(&mut h, "left", "e", 200), ["k=-+C@127", "k=-+D@128"]);
}

/// If this broke, a left join would tell of the other side alone, or a record out of order would be told of before its window closed.
#[test]
fn a_left_join_waits_for_the_left_side_only() {
    let windows = JoinWindows::of_time_difference_and_grace(ms(10), ms(20));
    let mut h = harness(Kind::Left, windows);
    assert_eq!(feed(&mut h, "right", "A", 100), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "left", "a", 85), [] as [&str; 0], "15 behind, within grace");
    assert_eq!(feed(&mut h, "right", "B", 90), ["k=a+B@90"], "so it could still meet this one");
    assert_eq!(feed(&mut h, "left", "b", 80), ["k=b+B@90"]);
    assert_eq!(feed(&mut h, "left", "c", 79), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "right", "C", 200), ["k=c+-@79"]);
}

/// If this broke, records without a key would stop a join, or be lost where they count (KIP-962).
#[test]
fn records_without_a_key_are_told_of_alone_or_dropped() {
    let windows = JoinWindows::of_time_difference_with_no_grace(ms(10));
    for (kind, expected, dropped) in [(Kind::Inner, 0, 2), (Kind::Left, 1, 1), (Kind::Outer, 2, 0)] {
        let mut h = harness(kind, windows);
        for topic in ["left", "right"] {
            h.feed_whole(topic, None, Some("v".into()), Default::default(), Some(crate::time::WallTime(5))).unwrap();
        }
        assert_eq!(h.texts("out").len(), expected, "{kind:?}");
        assert_eq!(h.dropped("j", Dropped::NullKey), dropped, "{kind:?}");
    }
}

/// If this broke, both sides of a join could lie in different partitions, or a re-keyed side would not be repartitioned.
#[test]
fn a_rekeyed_side_is_repartitioned_and_sides_are_copartitioned() {
    let b = StreamsBuilder::new("app");
    let stream = |topic: &str| b.stream(topic, Consumed::with(Serdes::string(), Serdes::string()));
    let how = StreamJoined::named("j", Serdes::string(), Serdes::string(), Serdes::string());
    stream("left")
        .select_key(|_, v| v.clone())
        .join_stream(&stream("right"), JoinWindows::of_time_difference_with_no_grace(ms(10)), how, |_, a, b| a + &b)
        .to("out", Produced::with(Serdes::string(), Serdes::string()));
    let app = b.build().unwrap();
    let counts = [("left".into(), 2), ("right".into(), 3)].into();
    assert_eq!(app.topology.layout(&counts, None).unwrap().partitions["app-j-left-repartition"], 3);
    let mut h = Harness::new(&app, 3);
    h.feed_at("left", "x", "k", 1).unwrap();
    h.feed_at("right", "k", "!", 2).unwrap();
    assert_eq!(h.take("out"), ["k=k!@2"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    /// If this broke, some order of arrival would pair records that are too far apart, miss a pair, or tell of one alone twice or of
    /// one that met.
    #[test]
    fn in_any_order_each_pair_and_each_lonely_record_comes_once(
        records in prop::collection::vec((any::<bool>(), 0..100i64), 1..30),
        before in 0..20u64,
        after in 0..20u64,
        restart in 0..30usize,
        outer: bool,
    ) {
        let windows = JoinWindows::of_time_difference_and_grace(ms(after), ms(500)).before(ms(before));
        let mut h = harness(if outer { Kind::Outer } else { Kind::Left }, windows);
        for (i, (left, at)) in records.iter().enumerate() {
            if i == restart {
                h.restart();
            }
            h.feed_at(if *left { "left" } else { "right" }, "k", &i.to_string(), *at).unwrap();
        }
        h.feed_at("right", "end", "end", 10_000).unwrap();
        let mut found = h.texts("out");
        found.retain(|t| t.starts_with("k="));
        let mut right = BTreeSet::new();
        for (i, (_, t)) in records.iter().enumerate().filter(|(_, r)| r.0) {
            let met = records.iter().enumerate().filter(|(_, r)| !r.0 && r.1 >= t - before as i64 && r.1 <= t + after as i64);
            let met: Vec<_> = met.map(|(j, _)| j).collect();
            right.extend(met.iter().map(|j| format!("k={i}+{j}")));
            if met.is_empty() {
                right.insert(format!("k={i}+-"));
            }
        }
        for (j, (_, t)) in records.iter().enumerate().filter(|(_, r)| outer && !r.0) {
            if !records.iter().any(|r| r.0 && *t >= r.1 - before as i64 && *t <= r.1 + after as i64) {
                right.insert(format!("k=-+{j}"));
            }
        }
        prop_assert_eq!(found.len(), right.len(), "each once: {:?}", &found);
        prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), right);
    }
}
