//! `sources:`, `tables:` and `global_tables:`.

use std::sync::Arc;

use serde_json::Value;

use crate::config::yaml::{Diagnostics, Fields, Name};
use crate::dsl::{Consumed, Materialized};
use crate::error::codes;

use super::expr::{CONTENT, Expr};
use super::group::given;
use super::shape;
use super::steps::{Handle, Steps};
use super::tables::How;
use super::value::{Format, Ours};

/// What a source's records are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Carries {
    /// Anything; an envelope is mapped from them.
    Records,
    /// Requests (`schemas/work-request.avsc`).
    Requests,
    /// Approvals (`schemas/approval.avsc`).
    Approvals,
}

pub(super) fn read(fields: &Fields<'_>, steps: &mut Steps<'_>, d: &mut Diagnostics) {
    for (name, node) in fields.get("sources").and_then(|n| n.map(d)).unwrap_or_default() {
        let Some(source) = shape::SOURCE.read(node, d) else { continue };
        let words = [("readback/work-request", Carries::Requests), ("readback/approval", Carries::Approvals)];
        let carries = source.get("schema").map_or(Some(Carries::Records), |n| n.one_of(&words, d));
        let value = Format::read(&source, "value", Format::Json, d);
        let ours = carries != Some(Carries::Records);
        // The key of a request's record says nothing: its operation ID does.
        let key = Format::read(&source, "key", if ours { Format::Bytes } else { Format::Text }, d);
        let handle = match (source.text("topic", d), carries) {
            (Some(topic), Some(carries)) => {
                let values = if ours { Arc::new(Ours(value.values())) } else { value.values() };
                if carries == Carries::Requests {
                    steps.builder.shared().request_source(topic.as_str().into(), values.clone());
                }
                match timed(Consumed::with(key.keys(), values), name, &source, d) {
                    Some(consumed) => Handle::Stream(steps.builder.stream(topic, consumed), carries),
                    None => Handle::Broken,
                }
            }
            _ => Handle::Broken,
        };
        steps.name(name, handle, d);
    }
    for (name, node) in fields.get("tables").and_then(|n| n.map(d)).unwrap_or_default() {
        let Some(table) = shape::TABLE.read(node, d) else { continue };
        let key = Format::read(&table, "key", Format::Text, d);
        let value = Format::read(&table, "value", Format::Json, d);
        let handle = match table.text("topic", d) {
            Some(topic) => {
                let kept = kept(name, key, value, &table, d);
                Handle::Table(steps.builder.table(topic, kept), key)
            }
            None => Handle::Broken,
        };
        steps.name(name, handle, d);
    }
    for (name, node) in fields.get("global_tables").and_then(|n| n.map(d)).unwrap_or_default() {
        let Some(table) = shape::TABLE.read(node, d) else { continue };
        if let Some(caching) = table.get("caching") {
            d.error(codes::BAD_VALUE, &caching.at, "a global table has no changes to pass on").label("`caching` is for `tables`");
        }
        let key = Format::read(&table, "key", Format::Text, d);
        let value = Format::read(&table, "value", Format::Json, d);
        let handle = match table.text("topic", d) {
            Some(topic) => Handle::Global(steps.builder.global_table(topic, kept(name, key, value, &table, d))),
            None => Handle::Broken,
        };
        steps.name(name, handle, d);
    }
}

/// What becomes of a record whose time can't be told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnBadTime {
    /// It is a bad record, as one that can't be decoded.
    DeadLetter,
    /// It is passed over and counted.
    Skip,
    /// It has the largest time so far of its partition; where there is none yet, it is a bad record.
    PartitionTime,
}

/// Where the times of a source come from.
fn timed(
    consumed: Consumed<Value, Value>,
    name: &Name,
    source: &Fields<'_>,
    d: &mut Diagnostics,
) -> Option<Consumed<Value, Value>> {
    let wall = given(source, "wall_clock", d);
    let words = [("dead_letter", OnBadTime::DeadLetter), ("skip", OnBadTime::Skip), ("partition_time", OnBadTime::PartitionTime)];
    let on_bad = source.get("on_bad_time").map_or(Some(OnBadTime::DeadLetter), |n| n.one_of(&words, d));
    let (wall, on_bad) = (wall?, on_bad?);
    if let (Some(node), false) = (source.get("on_bad_time"), source.has("timestamp")) {
        d.error(codes::BAD_VALUE, &node.at, "`on_bad_time` is for times that an expression gives")
            .label("add `timestamp`, or leave it out");
        return None;
    }
    match source.get("timestamp") {
        None if wall => Some(consumed.wall_clock()),
        None => Some(consumed),
        Some(node) if wall => {
            d.error(codes::BAD_VALUE, &node.at, "a record has one time").label("leave out `timestamp` or `wall_clock`");
            None
        }
        Some(node) => {
            let e = Expr::compile(node, CONTENT, &format!("{}.timestamp", name.text), d)?;
            Some(consumed.timestamps_by(move |r, latest| match (e.time_of(r), on_bad) {
                (Ok(time), _) => Ok(Some(time)),
                (Err(_), OnBadTime::Skip) => Ok(None),
                (Err(_), OnBadTime::PartitionTime) if latest.is_some() => Ok(latest),
                (Err(e), _) => Err(e),
            }))
        }
    }
}

fn kept(name: &Name, key: Format, value: Format, table: &Fields<'_>, d: &mut Diagnostics) -> Materialized<Value, Value> {
    let kept = Materialized::named(&name.text, key.keys(), value.values());
    match How::read(table, d) {
        Some(how) => how.of(kept),
        None => kept,
    }
}
