//! Steps, processors and stores as user code meets them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::harness::Harness;
use super::*;
use crate::ids::{Partition, TopicName};
use crate::processor::{
    FixedKeyProcessor, FixedKeyRecord, Forward, ForwardValues, Order, Processor, PunctuationKind, Record, SessionStore, Timers,
    VersionedStore, WindowStore,
};
use crate::record::Headers;
use crate::serdes::{Serdes, Window};
use crate::task::{Dropped, TaskError};
use crate::time::WallTime;

fn read() -> Consumed<String, String> {
    Consumed::with(Serdes::string(), Serdes::string())
}

fn write() -> Produced<String, String> {
    Produced::with(Serdes::string(), Serdes::string())
}

fn at(ms: i64) -> WallTime {
    WallTime(ms)
}

/// If this broke, records would go to another topic or partition than the user's code names.
#[test]
fn topics_and_partitions_can_be_computed() {
    let b = StreamsBuilder::new("app");
    let input = b.stream("in", read());
    input.to_topic_of(|r: &Record<String, String>| TopicName::new(format!("to-{}", r.key)), write());
    input.to("fixed", write().partitioner(|_, v, n| v.parse().ok().map(|p: i32| Partition(p % n.unwrap_or(1) as i32))));
    input.print("seen");
    let app = b.build().unwrap();
    assert!(app.topology.describe().contains("Sink: KSTREAM-SINK-0000000001 (extractor class: computed)"));
    let counts = BTreeMap::from([(TopicName::new("in"), 1), (TopicName::new("fixed"), 4)]);
    let layout = app.topology.layout(&counts, None).unwrap();
    assert_eq!((layout.written()[&TopicName::new("fixed")], layout.operations), (4, 1), "sinks count for partitioners only");
    let mut h = Harness::new(&app, 1);
    for v in ["7", "x"] {
        h.feed("in", Some(v), Some(v)).unwrap();
    }
    assert_eq!((h.texts("to-7"), h.texts("to-x")), (vec!["7=7".to_owned()], vec!["x=x".to_owned()]));
    let to: Vec<_> = h.out.iter().filter(|w| w.topic == "fixed").map(|w| w.partition).collect();
    assert_eq!(to, [Some(0), None], "the driver knows no counts of sinks; what does not parse goes by its key");
}

/// C031: a record whose time is missing or negative goes the way that the source's extractor says: skipped, guessed, or taken as it is.
#[test]
fn an_extractor_says_which_time_a_record_has() {
    let b = StreamsBuilder::new("app");
    let own = |r: &Record<String, String>, latest: Option<WallTime>| match r.value.parse() {
        Ok(time) if time >= 0 => Some(WallTime(time)),
        Ok(_) => latest,
        Err(_) => None,
    };
    b.stream("in", read().timestamps(own)).to("out", write());
    b.stream("now", read().wall_clock()).to("out", write());
    b.stream("raw", read().timestamps(|r: &Record<String, String>, _| r.value.parse().ok().map(WallTime))).to("out", write());
    let mut h = Harness::new(&b.build().unwrap(), 1);
    for v in ["70", "-1", "x", "60"] {
        h.feed_whole("in", Some("k".into()), Some(v.into()), Headers::new(), None).unwrap();
    }
    h.feed_whole("raw", Some("k".into()), Some("-1".into()), Headers::new(), None).unwrap();
    h.advance(Duration::from_millis(5));
    h.feed_whole("now", Some("k".into()), Some("v".into()), Headers::new(), None).unwrap();
    assert_eq!(h.take("out"), ["k=70@70", "k=-1@70", "k=60@60", "k=v@5"]);
    assert_eq!(h.dropped("KSTREAM-SOURCE-0000000000", Dropped::NoTime), 1, "x");
    assert_eq!(h.dropped("KSTREAM-SOURCE-0000000004", Dropped::NoTime), 1, "before 1970");
}

/// If this broke, stream time would follow times that the extractor replaced, and windows would close by the wrong clock.
#[test]
fn stream_time_follows_the_extracted_times() {
    struct Clock;
    impl FixedKeyProcessor<String, String> for Clock {
        type VOut = String;
        fn process(
            &mut self,
            r: FixedKeyRecord<String, String>,
            cx: &mut ForwardValues<'_, '_, '_, '_, String, String>,
        ) -> Result<(), TaskError> {
            let now = format!("{:?}", cx.cx().stream_time().map(|t| t.0));
            cx.forward(r.with_value(now))
        }
    }
    let b = StreamsBuilder::new("app");
    let input = b.stream("in", read().timestamps(|r, _| r.value.parse().ok().map(WallTime)));
    let seen = input.process_values("clock", &[], || Clock);
    assert!(!seen.is_rekeyed(), "a key that can't change needs no repartition");
    seen.to("out", write());
    let mut h = Harness::new(&b.build().unwrap(), 1);
    for v in ["5", "9", "7"] {
        h.feed_at("in", "k", v, 1_000_000).unwrap();
    }
    assert_eq!(h.take("out"), ["k=Some(5)@5", "k=Some(9)@9", "k=Some(9)@7"]);
}

struct Reminder {
    timers: Timers<String>,
}

impl Processor<String, String> for Reminder {
    type KOut = String;
    type VOut = String;
    fn timers(&self) -> Option<Timers<String>> {
        Some(self.timers.clone())
    }
    fn process(&mut self, r: Record<String, String>, cx: &mut Forward<'_, '_, '_, String, String>) -> Result<(), TaskError> {
        match r.value.parse() {
            Ok(due) => self.timers.set(cx.cx(), &r.key, WallTime(due)),
            Err(_) => self.timers.cancel(cx.cx(), &r.key),
        }
    }
    fn on_timer(&mut self, key: String, due: WallTime, cx: &mut Forward<'_, '_, '_, String, String>) -> Result<(), TaskError> {
        cx.forward(Record { key, value: format!("due {}", due.0), timestamp: Some(due), headers: Headers::new() })
    }
}

fn reminder(kind: PunctuationKind) -> Harness {
    let b = StreamsBuilder::new("app");
    let timers = b.timers("reminders", Serdes::string(), kind);
    let name = timers.name().clone();
    b.stream("in", read()).process("remind", &[&name], move || Reminder { timers: timers.clone() }).to("out", write());
    Harness::new(&b.build().unwrap(), 1)
}

/// If this broke, a reminder would be lost by a restart, come twice, or come although it was set anew or taken back.
#[test]
fn timers_by_key_last_over_restarts() {
    let mut h = reminder(PunctuationKind::WallClock);
    for (key, due) in [("a", "100"), ("b", "50"), ("c", "70"), ("a", "80"), ("c", "never")] {
        h.feed("in", Some(key), Some(due)).unwrap();
    }
    h.advance(Duration::from_millis(49));
    assert_eq!(h.take("out"), [] as [&str; 0]);
    h.restart();
    h.advance(Duration::from_millis(1));
    assert_eq!(h.take("out"), ["b=due 50@50"]);
    h.restart();
    h.advance(Duration::from_millis(60));
    assert_eq!(h.take("out"), ["a=due 80@80"]);
    h.advance(Duration::from_millis(60));
    assert_eq!(h.take("out"), [] as [&str; 0]);
    assert_eq!(h.left_of("app-reminders-changelog"), 0);
}

/// If this broke, timers of stream time would follow the wall, or come before their time.
#[test]
fn timers_can_follow_stream_time() {
    let mut h = reminder(PunctuationKind::StreamTime);
    h.feed_at("in", "a", "100", 10).unwrap();
    h.advance(Duration::from_secs(10));
    h.feed_at("in", "b", "x", 99).unwrap();
    assert_eq!(h.take("out"), [] as [&str; 0]);
    h.feed_at("in", "b", "x", 100).unwrap();
    assert_eq!(h.take("out"), ["a=due 100@100"]);
}

/// What a command of a test does with the stores.
struct Stores {
    windows: WindowStore<String, String>,
    sessions: SessionStore<String, String>,
    versions: VersionedStore<String, String>,
}

fn numbers(text: &str) -> Vec<i64> {
    text.split(' ').skip(1).filter_map(|n| n.parse().ok()).collect()
}

impl Processor<String, String> for Stores {
    type KOut = String;
    type VOut = String;
    fn process(&mut self, r: Record<String, String>, cx: &mut Forward<'_, '_, '_, String, String>) -> Result<(), TaskError> {
        let (n, k, none) = (numbers(&r.value), r.key.clone(), Headers::new());
        let text = format!("v{}", r.timestamp.map_or(0, |t| t.0));
        let kept = |v: Option<crate::processor::Kept<String>>| v.map_or("-".to_owned(), |v| v.value);
        let answer = match r.value.split(' ').next().unwrap() {
            "window" => self.windows.put(cx.cx(), &k, at(n[0]), &text, r.timestamp, &none).map(|()| String::new())?,
            "windows" => {
                let found = self.windows.fetch(cx.cx(), &k, at(n[0]), at(n[1]), Order::Forward)?;
                let mut back = self.windows.fetch(cx.cx(), &k, at(n[0]), at(n[1]), Order::Backward)?;
                back.reverse();
                assert_eq!(found, back);
                found.iter().map(|(start, v)| format!("{}:{} ", start.0, v.value)).collect()
            }
            "all" => {
                let found = self.windows.fetch_all(cx.cx(), at(n[0]), at(n[1]))?;
                found.iter().map(|(w, v)| format!("{w}:{} ", v.value)).collect()
            }
            "session" => {
                let session = Window { start: at(n[0]), end: at(n[1]) };
                self.sessions.put(cx.cx(), &k, session, &text, r.timestamp, &none).map(|()| String::new())?
            }
            "sessions" => {
                let found = self.sessions.find(cx.cx(), &k, at(n[0]), at(n[1]), at(10_000))?;
                found.iter().map(|(s, v)| format!("{}-{}:{} ", s.start.0, s.end.0, v.value)).collect()
            }
            "version" => format!("{:?}", self.versions.put(cx.cx(), &k, Some(&text), at(n[0]), &none)?),
            "gone" => format!("{:?}", self.versions.put(cx.cx(), &k, None, at(n[0]), &none)?),
            "as-of" => kept(self.versions.get_as_of(cx.cx(), &k, at(n[0]))?),
            _ => kept(self.versions.get(cx.cx(), &k)?),
        };
        cx.forward(r.with_value(answer))
    }
}

fn stores(in_memory: bool) -> Harness {
    let b = StreamsBuilder::new("app");
    let named = |name: &str| if in_memory { NamedStore::named(name).in_memory() } else { NamedStore::named(name) };
    let text = || (Serdes::string(), Serdes::string());
    let ms = Duration::from_millis;
    let windows = b.window_store(named("windows"), text(), ms(10), ms(100));
    let sessions = b.session_store(named("sessions"), text(), ms(100));
    let versions = b.versioned_store(named("versions"), text(), ms(100));
    let names = [windows.name().clone(), sessions.name().clone(), versions.name().clone()];
    let make = move || Stores { windows: windows.clone(), sessions: sessions.clone(), versions: versions.clone() };
    b.stream("in", read()).process("stores", &[&names[0], &names[1], &names[2]], make).to("out", write());
    Harness::new(&b.build().unwrap(), 1)
}

fn ask(h: &mut Harness, key: &str, what: &str, time: i64) -> String {
    h.feed_at("in", key, what, time).unwrap();
    h.texts("out").pop().unwrap().split_once('=').unwrap().1.trim_end().to_owned()
}

/// If this broke, user code would find other windows or sessions than it wrote, or those of a neighbouring key.
#[test]
fn window_and_session_stores_find_what_lies_in_a_span() {
    for in_memory in [false, true] {
        let mut h = stores(in_memory);
        for (key, start) in [("k", 0), ("k", 10), ("k", 25), ("k\0", 10), ("", 10), ("l", 10)] {
            ask(&mut h, key, &format!("window {start}"), start);
        }
        assert_eq!(ask(&mut h, "k", "windows 0 10", 25), "0:v0 10:v10");
        assert_eq!(ask(&mut h, "k", "windows 1 9999999999", 25), "10:v10 25:v25", "far bounds too");
        assert_eq!(ask(&mut h, "", "windows 0 99", 25), "10:v10");
        assert_eq!(ask(&mut h, "k", "all 10 20", 25), "[@10/20]:v10 [k@10/20]:v10 [k\0@10/20]:v10 [l@10/20]:v10");
        for (start, end) in [(0, 5), (7, 30), (40, 41)] {
            ask(&mut h, "k", &format!("session {start} {end}"), end);
        }
        assert_eq!(ask(&mut h, "k", "sessions 5 39", 41), "0-5:v5 7-30:v30");
        assert_eq!(ask(&mut h, "k", "sessions 6 40", 41), "7-30:v30 40-41:v41");
        h.restart();
        ask(&mut h, "x", "get", 300);
        assert_eq!(ask(&mut h, "k", "windows 0 99", 300), "", "past their retention");
        assert_eq!(ask(&mut h, "k", "sessions 0 99", 300), "");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// If this broke, a versioned store would answer with another version than held at that time, for some order of writes.
    #[test]
    fn a_versioned_store_knows_what_held_when(writes in prop::collection::vec((0..60i64, any::<bool>()), 1..15), restart in 0..15usize) {
        let mut h = stores(false);
        let mut model: BTreeMap<i64, Option<String>> = BTreeMap::new();
        for (i, (time, there)) in writes.iter().enumerate() {
            if i == restart {
                h.restart();
            }
            let what = if *there { format!("version {time}") } else { format!("gone {time}") };
            let answer = ask(&mut h, "k", &what, i as i64);
            let later = model.range(time + 1..).next().map(|(t, _)| *t);
            model.insert(*time, there.then(|| format!("v{i}")));
            let expected = later.map_or("Newest".to_owned(), |t| format!("Until(WallTime({t}))"));
            prop_assert_eq!(answer, expected);
        }
        for time in -1..61 {
            let right = model.range(..=time).next_back().and_then(|(_, v)| v.clone()).unwrap_or("-".into());
            prop_assert_eq!(ask(&mut h, "k", &format!("as-of {time}"), 60), right, "at {}", time);
        }
        let newest = model.values().next_back().cloned().flatten().unwrap_or("-".into());
        prop_assert_eq!(ask(&mut h, "k", "get", 60), newest);
        prop_assert_eq!(ask(&mut h, "k", "version 99", 200), "TooLate");
        prop_assert_eq!(ask(&mut h, "k", "as-of 99", 200), "-");
    }
}
