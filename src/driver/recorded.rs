//! Recorded runs: `input.jsonl` in, `expected.jsonl` out. Both are lines of JSON beside the topology.
//!
//! Input: `{"topic", "key", "value", "headers", "timestamp"}` is a record; `{"advance": "5s"}` lets time pass;
//! `{"target": "orders#create", "answer": {"status", "headers", "body"}}` scripts the next answer of a call (of its readback with
//! `/readback`, of the read of its resource's version with `/version`), where `"answer": null` is one that never comes and `"refused"` a connection that is not taken. A body that is
//! not text is sent as JSON. In a value, `"{plan_hash op-1}"` stands for the plan hash that results name for `op-1`; in the body of
//! a readback's answer, `{key}` for the key that was asked for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dsl::Application;
use crate::error::{Error, Fault, Result, codes};
use crate::http::Answer;
use crate::ids::TopicName;
use crate::intents::headers;
use crate::record::Headers;
use crate::time::{WallTime, parse_duration};

use super::test_driver::{Output, TopologyTestDriver};
use super::wire::Scripted;

/// What a run came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// How many records were fed.
    pub inputs: usize,
    /// How many records were written.
    pub records: usize,
    /// Where what is expected stands.
    pub expected: PathBuf,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum Line {
    Record(Record),
    Advance { advance: String },
    Target { target: String, answer: Reply },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) topic: String,
    #[serde(default)]
    key: Value,
    #[serde(default)]
    pub(super) value: Value,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    timestamp: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Reply {
    Whole {
        status: u16,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        body: Value,
    },
    Word(String),
    Lost(()),
}

/// Runs the input of a topology's directory; compares, or with `update` writes, what is expected.
///
/// # Errors
/// `UNEXPECTED_OUTPUT` with the first difference and its place, or a call that never came; what the files and the application say.
pub fn run(application: &Application, dir: &Path, update: bool) -> Result<Done> {
    let (input, expected) = (dir.join("input.jsonl"), dir.join("expected.jsonl"));
    let lines = lines(&input)?;
    let inputs = lines.iter().filter(|(_, line)| matches!(line, Line::Record(_))).count();
    let mut driver = started(application, &lines)?;
    let mut written: BTreeMap<TopicName, Vec<Output>> = outputs(application).into_iter().map(|t| (t, Vec::new())).collect();
    for (n, line) in lines {
        play(&mut driver, line, &written).map_err(|e| at(&input, n, e))?;
        for (topic, records) in &mut written {
            records.extend(driver.read_output(topic.as_str()));
        }
    }
    if let Some(call) = driver.unplayed() {
        let doing = format!("playing {}: {call} has an answer left that nobody asked for", input.display());
        return Err(Error::new(codes::UNEXPECTED_OUTPUT, Fault::Verdict, doing).next("leave the answer out, or let more time pass"));
    }
    let found: Vec<String> =
        written.iter().flat_map(|(topic, records)| records.iter().map(move |r| shown(topic, r).to_string())).collect();
    let records = found.len();
    match update {
        true => write(&expected, &found)?,
        false => compare(&expected, &found)?,
    }
    Ok(Done { inputs, records, expected })
}

/// A driver that begins at the time of the first record that has one.
pub(super) fn started(application: &Application, lines: &[(usize, Line)]) -> Result<TopologyTestDriver> {
    let start = lines.iter().find_map(|(_, line)| match line {
        Line::Record(r) => r.timestamp.as_deref().and_then(time),
        _ => None,
    });
    match start {
        Some(at) => TopologyTestDriver::at(application, at),
        None => TopologyTestDriver::new(application),
    }
}

/// The topics of the user's that an application writes.
pub(super) fn outputs(application: &Application) -> Vec<TopicName> {
    let own = application.results.iter().chain(&application.dead_letters).cloned();
    application.topology.external_sinks().into_iter().chain(own).collect()
}

pub(super) fn lines(path: &Path) -> Result<Vec<(usize, Line)>> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading {}", path.display()))
            .because(e)
            .next("write the records and the target's answers there, one JSON a line; src/docs/formats.md has the lines")
    })?;
    let numbered = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    numbered
        .map(|(i, l)| {
            let wrong = |e| {
                let doing = format!("reading {}:{}", path.display(), i + 1);
                Error::new(codes::BAD_VALUE, Fault::Configuration, doing)
                    .because(e)
                    .next("a line is a record with a `topic`, an `advance`, or a `target` with its `answer`")
            };
            serde_json::from_str::<Line>(l).map(|line| (i + 1, line)).map_err(wrong)
        })
        .collect()
}

pub(super) fn play(driver: &mut TopologyTestDriver, line: Line, written: &BTreeMap<TopicName, Vec<Output>>) -> Result<()> {
    let wrong = |what: String| Error::new(codes::BAD_VALUE, Fault::Configuration, what);
    match line {
        Line::Advance { advance } => {
            let d = parse_duration(&advance).ok_or_else(|| wrong(format!("`{advance}` is no duration such as 5s")))?;
            driver.advance(d)
        }
        Line::Target { target, answer } => {
            driver.script(&target, scripted(answer).map_err(wrong)?);
            Ok(())
        }
        Line::Record(r) => {
            let at = match &r.timestamp {
                Some(text) => Some(time(text).ok_or_else(|| wrong(format!("`{text}` is no time")))?),
                None => None,
            };
            let names = r.headers.into_iter().fold(Headers::new(), |h, (name, value)| h.with(name, value));
            let (key, value) = (bytes(&r.key), bytes(&with_plans(r.value, written)));
            driver.pipe(&r.topic, key.as_deref(), value.as_deref(), names, at)
        }
    }
}

fn scripted(reply: Reply) -> std::result::Result<Scripted, String> {
    match reply {
        Reply::Whole { status, mut headers, body } => {
            if !body.is_string() && !headers.keys().any(|n| n.eq_ignore_ascii_case("content-type")) {
                headers.insert("content-type".to_owned(), "application/json".to_owned());
            }
            Ok(Scripted::Answer(Answer {
                status,
                headers: headers.into_iter().map(|(n, v)| (n.to_ascii_lowercase(), v)).collect(),
                body: Bytes::from(bytes(&body).unwrap_or_default()),
            }))
        }
        Reply::Word(word) if word == "refused" => Ok(Scripted::Refused),
        Reply::Word(word) => Err(format!("`{word}` is no answer: write an object with its status, \"refused\" or null")),
        Reply::Lost(()) => Ok(Scripted::Lost),
    }
}

/// Text stands for itself, null for null, anything else for its JSON.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone().into_bytes()),
        other => Some(other.to_string().into_bytes()),
    }
}

/// Fills plan hashes in, as an approver would who has read the results.
pub(super) fn with_plans(value: Value, written: &BTreeMap<TopicName, Vec<Output>>) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.into_iter().map(|(k, v)| (k, with_plans(v, written))).collect()),
        Value::String(text) => {
            let asked = text.strip_prefix("{plan_hash ").and_then(|t| t.strip_suffix('}'));
            let of = |op: &str| {
                let results = written.values().flatten().map(Output::json).filter(|r| r["operation_id"] == op);
                results.filter(|r| r["plan_hash"].is_string()).last().map(|r| r["plan_hash"].clone())
            };
            asked.and_then(of).unwrap_or(Value::String(text))
        }
        other => other,
    }
}

fn time(text: &str) -> Option<WallTime> {
    chrono::DateTime::parse_from_rfc3339(text).ok().map(|t| WallTime(t.timestamp_millis()))
}

/// A record as a line; times of processing are left out.
pub(super) fn shown(topic: &TopicName, record: &Output) -> Value {
    let mut value = record.json();
    if let Value::Object(map) = &mut value
        && record.headers.text(headers::SCHEMA).is_some()
    {
        map.remove("at");
        map.retain(|_, v| !v.is_null());
    }
    let key = record.key.as_ref().map(|k| String::from_utf8_lossy(k).into_owned());
    let text = |v: &Option<Bytes>| v.as_ref().map(|v| String::from_utf8_lossy(v).into_owned());
    let lasting = record.headers.0.iter().filter(|h| ![headers::DEAD_AT, headers::DEAD_TIME].contains(&&*h.name));
    let names: BTreeMap<_, _> = lasting.map(|h| (h.name.clone(), text(&h.value))).collect();
    json!({ "topic": topic.as_str(), "key": key, "value": value, "headers": names })
}

fn write(path: &Path, found: &[String]) -> Result<()> {
    let text: String = found.iter().map(|l| format!("{l}\n")).collect();
    std::fs::write(path, text)
        .map_err(|e| Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("writing {}", path.display())).because(e))
}

fn compare(path: &Path, found: &[String]) -> Result<()> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading {}", path.display()))
            .because(e)
            .next("`readback test … --update` writes it from what the application does now")
    })?;
    let expected: Vec<&str> = text.lines().collect();
    for n in 0..expected.len().max(found.len()) {
        let (want, got) = (expected.get(n).copied(), found.get(n).map(String::as_str));
        let parsed = |l: Option<&str>| l.and_then(|l| serde_json::from_str::<Value>(l).ok());
        if want.is_none() || got.is_none() || parsed(want) != parsed(got) {
            let doing = format!("comparing with {}:{}", path.display(), n + 1);
            let nothing = "nothing";
            let why = format!("expected {}\n           found    {}", want.unwrap_or(nothing), got.unwrap_or(nothing));
            return Err(Error::new(codes::UNEXPECTED_OUTPUT, Fault::Verdict, doing)
                .because(why)
                .next("if the new output is right, write it with --update"));
        }
    }
    Ok(())
}

pub(super) fn at(path: &Path, line: usize, error: Error) -> Error {
    Error { doing: format!("{} (at {}:{line})", error.doing, path.display()), ..error }
}
