//! Suppression: what is held back, for how long, and what happens when there is too much of it.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::harness::Harness;
use super::*;
use crate::error::codes;
use crate::record::Headers;
use crate::serdes::Serdes;
use crate::task::TaskError;
use crate::time::WallTime;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn input(b: &StreamsBuilder) -> KStream<String, String> {
    b.stream("in", Consumed::with(Serdes::string(), Serdes::string()))
}

fn counted(b: &StreamsBuilder) -> KTable<String, i64> {
    input(b).group_by_key(Grouped::with(Serdes::string(), Serdes::string())).count("counts")
}

fn write<K: Clone + std::fmt::Display + 'static>(table: &KTable<K, i64>) {
    let shown = table.to_stream().map(|k, n| (k.to_string(), n.map_or("null".to_owned(), |n| n.to_string())));
    shown.to("out", Produced::with(Serdes::string(), Serdes::string()));
}

fn feed(h: &mut Harness, key: &str, at: i64) -> Vec<String> {
    h.feed_at("in", key, "v", at).unwrap();
    h.take("out")
}

/// If this broke, a window's result would be told before it is final, twice, or lost by a restart; or lose time and headers.
#[test]
fn until_its_window_closes_a_result_waits_also_over_a_restart() {
    let b = StreamsBuilder::new("app");
    let windowed = input(&b)
        .group_by_key(Grouped::with(Serdes::string(), Serdes::string()))
        .windowed_by(TimeWindows::of_size_and_grace(ms(10), ms(5)))
        .count("counts");
    // The windows are found through the steps between.
    let seen = windowed.filter(|_, _| true);
    write(&seen.suppress(Suppressed::until_window_closes("final", BufferConfig::unbounded()), Serdes::long()));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    assert_eq!(feed(&mut h, "k", 1), [] as [&str; 0]);
    let trace = Headers::new().with("trace", "7");
    h.feed_whole("in", Some("k".into()), Some("v".into()), trace.clone(), Some(WallTime(9))).unwrap();
    assert_eq!(feed(&mut h, "l", 14), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "l", 2), [] as [&str; 0]);
    h.restart();
    h.feed_at("in", "m", "v", 15).unwrap();
    let told = h.out.iter().find(|w| w.topic == "out").unwrap();
    assert_eq!((told.headers.clone(), told.timestamp), (trace, Some(WallTime(9))));
    assert_eq!(h.take("out"), ["[k@0/10]=2@9", "[l@0/10]=1@2"]);
    assert_eq!(feed(&mut h, "k", 3), [] as [&str; 0], "too late to change what was told");
    assert_eq!(feed(&mut h, "m", 25), ["[l@10/20]=1@14", "[m@10/20]=1@15"]);
    let left = h.left_of("app-final-changelog");
    assert_eq!(left, 3, "one window is held back, beside the clock and the size");
}

/// If this broke, a session that was told would change afterwards, or sessions that were merged away would be told too.
#[test]
fn a_session_is_told_once_it_can_grow_no_more() {
    let b = StreamsBuilder::new("app");
    let windowed = input(&b)
        .group_by_key(Grouped::with(Serdes::string(), Serdes::string()))
        .windowed_by(SessionWindows::of_inactivity_gap_with_no_grace(ms(5)))
        .count("counts");
    write(&windowed.suppress(Suppressed::until_window_closes("final", BufferConfig::unbounded()), Serdes::long()));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    for at in [10, 15, 12] {
        assert_eq!(feed(&mut h, "k", at), [] as [&str; 0]);
    }
    assert_eq!(feed(&mut h, "l", 20), [] as [&str; 0], "a record at 20 would still join");
    assert_eq!(feed(&mut h, "l", 21), ["[k@10/15]=3@15"]);
}

/// If this broke, a rate limit would let more than one change of a key through in its time, or put off a busy key for ever.
#[test]
fn a_time_limit_counts_from_the_first_change_held_back() {
    let b = StreamsBuilder::new("app");
    write(&counted(&b).suppress(Suppressed::until_time_limit("slow", ms(10), BufferConfig::unbounded()), Serdes::long()));
    let mut h = Harness::new(&b.build().unwrap(), 1);
    for at in [0, 4, 9] {
        assert_eq!(feed(&mut h, "k", at), [] as [&str; 0]);
    }
    assert_eq!(feed(&mut h, "k", 10), ["k=4@10"]);
    assert_eq!(feed(&mut h, "l", 19), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "k", 25), [] as [&str; 0]);
    assert_eq!(feed(&mut h, "k", 29), ["l=1@19"]);
    assert_eq!(feed(&mut h, "l", 35), ["k=6@29"]);
}

/// If this broke, a full buffer would grow on, stop an application that allowed early results, or go on where it must stop.
#[test]
fn a_full_buffer_does_what_it_was_told_to() {
    let build = |how: Suppressed<String>| {
        let b = StreamsBuilder::new("app");
        write(&counted(&b).suppress(how, Serdes::long()));
        Harness::new(&b.build().unwrap(), 1)
    };
    let bound = BufferConfig::max_records(2);
    let mut early = build(Suppressed::until_time_limit("slow", ms(100), bound.emit_early_when_full()));
    assert_eq!(feed(&mut early, "a", 1), [] as [&str; 0]);
    assert_eq!(feed(&mut early, "b", 2), [] as [&str; 0]);
    early.restart();
    assert_eq!(feed(&mut early, "a", 3), [] as [&str; 0], "known keys take no more room");
    assert_eq!(feed(&mut early, "c", 4), ["a=2@3"], "the oldest goes first");

    let mut strict = build(Suppressed::until_time_limit("slow", ms(100), bound.shut_down_when_full()));
    feed(&mut strict, "a", 1);
    feed(&mut strict, "b", 2);
    let e = strict.feed_at("in", "c", "v", 3).unwrap_err();
    assert!(matches!(e, TaskError::Failed(e) if e.code == codes::BUFFER_FULL));

    let bytes = BufferConfig::max_bytes(40).emit_early_when_full();
    let mut small = build(Suppressed::until_time_limit("slow", ms(100), bytes));
    let told: usize = (0..10).map(|i| feed(&mut small, &i.to_string(), i).len()).sum();
    assert_eq!(told, 8, "2 keys of 14 bytes fit");
}

/// If this broke, a suppression would silently wait for windows that do not exist.
#[test]
fn waiting_for_windows_without_windows_is_refused() {
    let b = StreamsBuilder::new("app");
    let table = b.table("t", Materialized::named("t", Serdes::time_windowed(Serdes::string(), ms(1)), Serdes::long()));
    write(&table.suppress(Suppressed::until_window_closes("final", BufferConfig::unbounded()), Serdes::long()));
    let found: Vec<_> = b.build().unwrap_err().iter().map(|d| d.code).collect();
    assert_eq!(found, [codes::BAD_VALUE]);
}
