//! The same recorded input through two versions of an application: which operations would mean something else.
//!
//! Both run the real code on the in-process log. The new one gets what people decided under the old one, as they decided it: an
//! approval names the old plan. Answers of targets are those that were recorded; a call that nobody recorded has none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::dsl::Application;
use crate::error::Result;
use crate::ids::{OperationKey, TopicName, WireKey};
use crate::intents::{Intent, RenderedRequest, ResultKind, ResultRecord, hex, topics};
use crate::kafka::Isolation;
use crate::serdes::internal;

use super::recorded::{self, Line};
use super::test_driver::Output;
use super::wire::Scripted;

/// How much of a hash is shown.
const PREFIX: usize = 12;

/// What is other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The operation is not there any more.
    Vanished,
    /// The operation was not there before.
    New,
    /// The envelope: a redelivery across the deploy would be a conflict.
    Identity,
    /// Which call is made.
    Call,
    /// The contract's version.
    ContractVersion,
    /// The bytes on the wire.
    Request,
    /// The key on the wire: a re-send across the deploy would be a second effect.
    Key,
    /// What it is ordered by.
    OrderingKey,
    /// Until when it may be sent.
    Deadline,
    /// What policy is asked for.
    Permissions,
    /// The plan: what was approved of the old one does not bind.
    Plan,
    /// An approval that is not spent, or not spent any more.
    Approval,
    /// Whether anything is sent at all.
    Effect,
    /// How it ends.
    Outcome,
    /// What is written to a topic of the user's.
    Output,
}

impl Kind {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Vanished => "vanished",
            Kind::New => "new",
            Kind::Identity => "identity",
            Kind::Call => "call",
            Kind::ContractVersion => "contract",
            Kind::Request => "request",
            Kind::Key => "key",
            Kind::OrderingKey => "order",
            Kind::Deadline => "deadline",
            Kind::Permissions => "permissions",
            Kind::Plan => "plan",
            Kind::Approval => "approval",
            Kind::Effect => "effect",
            Kind::Outcome => "outcome",
            Kind::Output => "output",
        }
    }
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// Of which operation; none for a topic.
    pub operation: Option<OperationKey>,
    /// What is other.
    pub kind: Kind,
    /// In the old one; no payload.
    pub old: String,
    /// In the new one; no payload.
    pub new: String,
    /// More: which parts.
    pub parts: Vec<String>,
}

/// What the two runs came to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Comparison {
    /// How many operations there were in either.
    pub operations: usize,
    /// What is other, by operation.
    pub differences: Vec<Difference>,
    /// Calls of the new one that nobody recorded an answer for: how these end is not compared.
    pub unanswered: BTreeSet<String>,
    /// Topics of the input that the new one does not read.
    pub unread: BTreeSet<String>,
}

/// What one run came to.
#[derive(Default)]
struct Trace {
    intents: BTreeMap<OperationKey, Intent>,
    /// The last state of each operation; of refused messages their answer.
    ends: BTreeMap<OperationKey, ResultRecord>,
    outputs: BTreeMap<TopicName, Vec<String>>,
    unanswered: BTreeSet<String>,
    unread: BTreeSet<String>,
}

/// What a line was in the old run: the value with plan hashes filled in, or how many answers of the call waited.
enum Played {
    Value(Value),
    Waiting(usize),
    Time,
}

/// Runs `input` through both.
///
/// # Errors
/// What the input and the applications say.
pub fn compare(old: &Application, new: &Application, input: &Path) -> Result<Comparison> {
    let (before, tape) = run(old, input, None)?;
    let (after, _) = run(new, input, Some(tape))?;
    let keys: BTreeSet<&OperationKey> = [&before, &after].into_iter().flat_map(|t| t.ends.keys().chain(t.intents.keys())).collect();
    let mut differences: Vec<Difference> = keys.iter().flat_map(|key| of_operation(key, &before, &after)).collect();
    differences.extend(of_outputs(&before, &after));
    Ok(Comparison { operations: keys.len(), differences, unanswered: after.unanswered, unread: after.unread })
}

fn run(application: &Application, input: &Path, tape: Option<Vec<Played>>) -> Result<(Trace, Vec<Played>)> {
    let lines = recorded::lines(input)?;
    let mut driver = recorded::started(application, &lines)?;
    let unanswered: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let noted = unanswered.clone();
    driver.serve(move |call, _| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).insert(call.to_owned());
        Scripted::Lost
    });
    let sources = application.topology.external_sources();
    let mut written: BTreeMap<TopicName, Vec<Output>> =
        recorded::outputs(application).into_iter().map(|t| (t, Vec::new())).collect();
    let (mut trace, mut played) = (Trace::default(), Vec::new());
    let mut tape = tape.map(Vec::into_iter);
    for (n, mut line) in lines {
        let before = tape.as_mut().and_then(Iterator::next);
        match (&mut line, before) {
            (Line::Record(r), Some(Played::Value(value))) => r.value = value,
            (Line::Record(r), _) => r.value = recorded::with_plans(std::mem::take(&mut r.value), &written),
            (Line::Target { target, .. }, Some(Played::Waiting(left))) => driver.port.drop_to(target, left),
            _ => {}
        }
        played.push(match &line {
            Line::Record(r) => Played::Value(r.value.clone()),
            Line::Target { target, .. } => Played::Waiting(driver.port.waiting(target)),
            Line::Advance { .. } => Played::Time,
        });
        if let Line::Record(r) = &line
            && !sources.iter().any(|s| s.as_str() == r.topic)
        {
            trace.unread.insert(r.topic.clone());
            continue;
        }
        recorded::play(&mut driver, line, &written).map_err(|e| recorded::at(input, n, e))?;
        for (topic, records) in &mut written {
            records.extend(driver.read_output(topic.as_str()));
        }
    }
    for r in driver.cluster.records(&topics::outbox(&application.id), Isolation::Committed) {
        let intent: Intent = internal::decode(r.value.as_deref().unwrap_or_default())?;
        trace.intents.entry(intent.key()).or_insert(intent);
    }
    let results = application.results.as_ref().and_then(|t| written.remove(t)).unwrap_or_default();
    for record in &results {
        trace.end(internal::decode(record.value.as_deref().unwrap_or_default())?);
    }
    let lines_of = |(topic, records): (TopicName, Vec<Output>)| {
        let lines = records.iter().map(|r| recorded::shown(&topic, r).to_string()).collect();
        (topic, lines)
    };
    trace.outputs = written.into_iter().filter(|(t, _)| Some(t) != application.dead_letters.as_ref()).map(lines_of).collect();
    trace.unanswered = std::mem::take(&mut unanswered.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((trace, played))
}

impl Trace {
    fn end(&mut self, result: ResultRecord) {
        let Some(step) = result.step.clone() else { return };
        let key = OperationKey { tenant: result.tenant.clone(), operation: result.operation_id.clone(), step };
        match result.kind {
            ResultKind::State => drop(self.ends.insert(key, result)),
            ResultKind::Message => drop(self.ends.entry(key).or_insert(result)),
            ResultKind::Answer | ResultKind::OrphanHearsay => {}
        }
    }

    fn shown(&self, key: &OperationKey) -> String {
        let end = self.ends.get(key).map(|e| match &e.code {
            Some(code) => format!("{} {code}", e.status.word()),
            None => e.status.word().to_owned(),
        });
        end.unwrap_or_else(|| self.intents.get(key).map_or("nothing", |_| "ordered").to_owned())
    }
}

fn of_operation(key: &OperationKey, before: &Trace, after: &Trace) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differs = |kind, old: String, new: String, parts: Vec<String>| {
        if old != new {
            found.push(Difference { operation: Some(key.clone()), kind, old, new, parts });
        }
    };
    let there = |t: &Trace| t.ends.contains_key(key) || t.intents.contains_key(key);
    match (there(before), there(after)) {
        (true, false) => {
            differs(Kind::Vanished, before.shown(key), "nothing".into(), Vec::new());
            return found;
        }
        (false, true) => {
            differs(Kind::New, "nothing".into(), after.shown(key), Vec::new());
            return found;
        }
        _ => {}
    }
    let (old, new) = (before.intents.get(key), after.intents.get(key));
    let name = |i: &Intent| format!("{}#{}", i.contract, i.call);
    if let (Some(old), Some(new)) = (old, new) {
        differs(Kind::Call, name(old), name(new), Vec::new());
        differs(Kind::ContractVersion, old.contract_version.to_string(), new.contract_version.to_string(), Vec::new());
        let parts = parts(&old.request, &new.request);
        differs(Kind::Request, short(&old.request.sha256()), short(&new.request.sha256()), parts);
        // A key is what a target trusts: whoever reads a report must not be able to send under it.
        differs(Kind::Key, keyed(&old.wire_key), keyed(&new.wire_key), Vec::new());
        differs(Kind::OrderingKey, old.ordering_key.to_string(), new.ordering_key.to_string(), Vec::new());
        differs(Kind::Deadline, old.deadline.to_string(), new.deadline.to_string(), Vec::new());
        differs(Kind::Permissions, old.required_permissions.join(" "), new.required_permissions.join(" "), Vec::new());
    }
    let identity = |t: &Trace| {
        let of_end = t.ends.get(key).and_then(|e| e.identity_hash.as_ref()).map(ToString::to_string);
        of_end.or_else(|| t.intents.get(key).map(|i| i.identity_hash.to_string()))
    };
    if let (Some(old), Some(new)) = (identity(before), identity(after)) {
        differs(Kind::Identity, short(&old), short(&new), Vec::new());
    }
    let plan = |t: &Trace| t.ends.get(key).and_then(|e| e.plan_hash.as_ref()).map_or("none".to_owned(), |h| short(h.as_str()));
    differs(Kind::Plan, plan(before), plan(after), Vec::new());
    let spent =
        |i: Option<&Intent>| i.and_then(|i| i.approval.as_ref()).map_or("none spent".to_owned(), |a| format!("{} spent", a.id));
    differs(Kind::Approval, spent(old), spent(new), Vec::new());
    let sent = |i: Option<&Intent>| i.map_or("not sent".to_owned(), |i| format!("{} is sent", name(i)));
    if old.is_some() != new.is_some() {
        differs(Kind::Effect, sent(old), sent(new), Vec::new());
    }
    // How a call ends that nobody recorded an answer for says nothing about the new version.
    let unanswered = new.is_some_and(|i| after.unanswered.iter().any(|c| c.split('/').next() == Some(&name(i))));
    if !unanswered {
        differs(Kind::Outcome, before.shown(key), after.shown(key), Vec::new());
    }
    found
}

/// A key, hashed: the same shows the same.
fn keyed(key: &WireKey) -> String {
    short(&hex(&Sha256::digest(key.to_string().as_bytes())))
}

fn short(hash: &str) -> String {
    hash.get(..PREFIX).unwrap_or(hash).to_owned()
}

/// Which parts of a request are other; names and paths, no values.
fn parts(old: &RenderedRequest, new: &RenderedRequest) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |differs: bool, what: &str| {
        if differs {
            found.push(what.to_owned());
        }
    };
    note(old.method != new.method, "method");
    note(old.path != new.path, "path");
    note(old.query != new.query, "query");
    let names: BTreeSet<&str> = old.headers.iter().chain(&new.headers).map(|h| h.name.as_str()).collect();
    for name in names {
        let of = |r: &RenderedRequest| r.headers.iter().find(|h| h.name == name).map(|h| h.value.clone());
        note(of(old) != of(new), &format!("header {name}"));
    }
    if old.body != new.body {
        let json = |r: &RenderedRequest| r.body.as_deref().and_then(|b| serde_json::from_slice::<Value>(b).ok());
        match (json(old), json(new)) {
            (Some(old), Some(new)) => paths(&old, &new, "body", &mut found),
            _ => found.push("body".to_owned()),
        }
    }
    found
}

fn paths(old: &Value, new: &Value, at: &str, found: &mut Vec<String>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let of = |m: &serde_json::Map<String, Value>| m.get(name).cloned().unwrap_or(Value::Null);
                match (a.contains_key(name), b.contains_key(name)) {
                    (true, false) => found.push(format!("{at}.{name} (left out)")),
                    (false, true) => found.push(format!("{at}.{name} (added)")),
                    _ => paths(&of(a), &of(b), &format!("{at}.{name}"), found),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                paths(a, b, &format!("{at}[{i}]"), found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

fn of_outputs(before: &Trace, after: &Trace) -> Vec<Difference> {
    let topics: BTreeSet<&TopicName> = before.outputs.keys().chain(after.outputs.keys()).collect();
    let none = Vec::new();
    let differs = topics.into_iter().filter_map(|topic| {
        let (old, new) = (before.outputs.get(topic).unwrap_or(&none), after.outputs.get(topic).unwrap_or(&none));
        let first = (0..old.len().max(new.len())).find(|n| old.get(*n) != new.get(*n))?;
        let parts = vec![format!("{topic}: first at record {}", first + 1)];
        let count = |n: usize| format!("{n} records");
        Some(Difference { operation: None, kind: Kind::Output, old: count(old.len()), new: count(new.len()), parts })
    });
    differs.collect()
}
