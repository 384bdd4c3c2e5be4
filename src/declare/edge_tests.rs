//! Where declared records come in and go out: their times, their partitions.
#![allow(clippy::unwrap_used)]

use super::state_tests::Run;
use super::*;
use crate::driver::{DriverOptions, TopologyTestDriver};
use crate::time::WallTime;

fn timed(more: &str) -> String {
    format!(
        "application: app\ndead_letters: dead\nsources:\n  lines: {{ topic: lines, value: json, {more} }}\nsteps:\n  \
         - {{ name: out, from: lines, to: {{ topic: out }} }}\n"
    )
}

/// Keys and times of what came through, and the reasons of what did not.
fn times_of(more: &str, records: &[(&str, &str)]) -> (String, Vec<String>) {
    let app = parse("t.yaml", &timed(more)).unwrap_or_else(|d| panic!("{d}")).application;
    let mut run = Run(TopologyTestDriver::at(&app, WallTime(9)).unwrap());
    for (key, value) in records {
        run.feed("lines", key, value, 3);
    }
    let times: Vec<_> = run.told("out").iter().map(|l| format!("{}{}", &l[..1], &l[l.find('@').unwrap()..])).collect();
    (times.join(" "), run.dead())
}

/// If this broke, windows would go by the time of writing where the file says which time counts.
#[test]
fn a_source_says_where_its_times_come_from() {
    let good = [("a", r#"{"at": 5000}"#), ("b", r#"{"at": "1970-01-01T00:00:07Z"}"#)];
    assert_eq!(times_of("timestamp: value.at", &good), ("a@5000 b@7000".to_owned(), vec![]));
    let (times, dead) = times_of("wall_clock: true", &good);
    assert!(!times.contains("@3") && times.split(' ').count() == 2 && dead.is_empty(), "written at 3, read from 9 on: {times}");
}

/// If this broke, a record without a time would move stream time to nowhere, or vanish where its file wants to see it.
#[test]
fn a_source_says_what_becomes_of_a_bad_time() {
    let first_bad = [("a", r#"{"at": null}"#), ("b", r#"{"at": 5000}"#)];
    let all =
        [&first_bad[..], &[("c", "{}"), ("d", r#"{"at": -1}"#), ("e", r#"{"at": "soon"}"#), ("f", r#"{"at": 4000}"#)]].concat();
    let (times, dead) = times_of("timestamp: value.at", &all);
    assert_eq!((times.as_str(), dead.len()), ("b@5000 f@4000", 4));
    assert!(dead.iter().all(|why| why.contains("lines.timestamp")), "{dead:?}");
    let (times, dead) = times_of("timestamp: value.at, on_bad_time: skip", &all);
    assert_eq!((times.as_str(), dead.len()), ("b@5000 f@4000", 0));
    let (times, dead) = times_of("timestamp: value.at, on_bad_time: partition_time", &all);
    assert_eq!((times.as_str(), dead.len()), ("b@5000 c@5000 d@5000 e@5000 f@4000", 1), "the first has no time before it");
}

/// If this broke, a source whose times can't be meant would start, and windows would close by the wrong clock.
#[test]
fn times_that_cannot_be_meant_are_refused_with_their_places() {
    for (more, why) in [
        ("wall_clock: true, timestamp: value.at", "a record has one time"),
        ("on_bad_time: skip", "`on_bad_time` is for times that an expression gives"),
        ("wall_clock: true, on_bad_time: skip", "`on_bad_time` is for times that an expression gives"),
        ("timestamp: record.timestamp", "reads `record`, which is not known here"),
        ("timestamp: value.at, on_bad_time: never", "never"),
    ] {
        let told = parse("t.yaml", &timed(more)).unwrap_err().to_string();
        assert!(told.contains(why) && told.contains("t.yaml:4"), "{told}");
    }
}

fn sinks(to: &str) -> String {
    format!(
        "application: app\ndead_letters: dead\nsources:\n  lines: {{ topic: lines, value: json }}\n  \
         there: {{ topic: there, value: json }}\nsteps:\n  - {{ name: write, from: lines, to: {{ {to} }} }}\n  \
         - {{ name: where, from: there, map: {{ value: record.partition }} }}\n  \
         - {{ name: out, from: where, to: {{ topic: out }} }}\n"
    )
}

/// Keys with the partitions of `there` that they came to, and the reasons of what came nowhere.
fn partitions_of(to: &str, records: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let app = parse("t.yaml", &sinks(to)).unwrap_or_else(|d| panic!("{d}")).application;
    let mut run = Run(TopologyTestDriver::with(&app, &DriverOptions { partitions: 4, ..DriverOptions::default() }).unwrap());
    for (key, value) in records {
        run.feed("lines", key, value, 3);
    }
    let mut told: Vec<_> = run.told("out").iter().map(|l| l[..l.find('@').unwrap()].to_owned()).collect();
    told.sort();
    (told, run.dead())
}

/// If this broke, records would not lie where the file puts them, and who reads one partition would miss some.
#[test]
fn a_sink_says_which_partition_a_record_goes_to() {
    let of = |key: &str| crate::ids::partition_of(key.as_bytes(), 4).0;
    let records =
        [("a", r#"{"p": 3}"#), ("b", r#"{"p": null}"#), ("c", r#"{"p": 4}"#), ("d", r#"{"p": -1}"#), ("e", r#"{"p": "x"}"#)];
    let (told, dead) = partitions_of("topic: there, partition: value.p", &records);
    assert_eq!(told, ["a=3".to_owned(), format!("b={}", of("b"))], "null leaves it to the key");
    assert_eq!(dead.len(), 3, "the topic has four partitions");
    assert!(dead.iter().all(|why| why.contains("write.partition")), "{dead:?}");
    let last = "topic: there, partition: partitions - 1";
    assert_eq!(partitions_of(last, &[("a", "{}"), ("b", "{}")]).0, ["a=3", "b=3"]);
    let users = [("a", r#"{"user": "kim"}"#), ("b", r#"{"user": "lee"}"#), ("c", r#"{"user": null}"#), ("d", r#"{"user": {}}"#)];
    let (told, dead) = partitions_of("topic: there, partition_by: value.user", &users);
    let there = [("a", "kim"), ("b", "lee"), ("c", "c")].map(|(key, by)| format!("{key}={}", of(by)));
    assert_eq!((told.as_slice(), dead.len()), (&there[..], 1), "an object is no text");
}

/// If this broke, a sink that can't know its partitions would start, and leave the choice to the key without a word.
#[test]
fn partitions_that_cannot_be_meant_are_refused_with_their_places() {
    for (to, why) in [
        ("topic: there, partition: value.p, partition_by: value.user", "a record goes to one partition"),
        ("topic_of: value.t, partition_by: value.user", "`partition_by` needs to know how many partitions the topic has"),
        ("topic: there, partition_by: partitions", "reads `partitions`, which is not known here"),
    ] {
        let told = parse("t.yaml", &sinks(to)).unwrap_err().to_string();
        assert!(told.contains(why) && told.contains("t.yaml:7"), "{told}");
    }
}
