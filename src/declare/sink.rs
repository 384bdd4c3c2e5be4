//! `to`: a topic that is written, and which of its partitions.

use serde_json::Value;

use crate::config::yaml::{Diagnostics, Fields, Name, Node};
use crate::dsl::{Goal, KStream, Produced};
use crate::error::{Error, codes};
use crate::ids::{Partition, partition_of};
use crate::processor::ProcessorCx;
use crate::serdes::SerdeRef;

use super::expr::{Expr, RECORD, SINK};
use super::shape;
use super::steps::Handle;
use super::value::{Format, Item};

/// What says the partition of a record.
enum Partitions {
    /// Its key, as for any Kafka producer.
    OfKey,
    /// An expression gives the number.
    Numbered(Expr),
    /// An expression gives another key.
    By(Expr),
}

pub(super) fn to(s: &KStream<Value, Value>, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
    let fields = shape::SINK.read(node, d)?;
    let key = Format::read(&fields, "key", Format::Text, d);
    let value = Format::read(&fields, "value", Format::Json, d);
    let partitions = Partitions::read(&fields, name, d);
    // A null value is a tombstone.
    let produced = Produced::with(key.keys(), value.keys());
    let s = s.named(&name.text);
    match (fields.get("topic"), fields.get("topic_of")) {
        (Some(topic), None) => s.to(topic.text(d)?, partitions?.of(produced, key)),
        (None, Some(of)) => {
            let e = Expr::compile(of, RECORD, &format!("{}.topic_of", name.text), d);
            if let Some(by) = fields.get("partition_by") {
                d.error(
                    codes::BAD_VALUE,
                    &by.at,
                    "`partition_by` needs to know how many partitions the topic has, and `topic_of` names any",
                )
                .label("name one `topic`, or give the number by `partition`");
                return None;
            }
            let e = e?;
            s.to_topic_by(move |r, cx| Ok(e.text_of(r, cx)?.into()), partitions?.of(produced, key));
        }
        _ => {
            d.error(codes::MISSING_KEY, &node.at, "a sink has exactly one of `topic`, `topic_of`");
            return None;
        }
    }
    Some(Handle::End)
}

impl Partitions {
    fn read(fields: &Fields<'_>, name: &Name, d: &mut Diagnostics) -> Option<Self> {
        let number = fields.get("partition").map(|n| Expr::compile(n, SINK, &format!("{}.partition", name.text), d));
        let by = fields.get("partition_by").map(|n| (n, Expr::compile(n, RECORD, &format!("{}.partition_by", name.text), d)));
        match (number, by) {
            (None, None) => Some(Partitions::OfKey),
            (Some(number), None) => number.map(Partitions::Numbered),
            (None, Some((_, by))) => by.map(Partitions::By),
            (Some(_), Some((node, _))) => {
                d.error(codes::BAD_VALUE, &node.at, "a record goes to one partition")
                    .label("leave out `partition` or `partition_by`");
                None
            }
        }
    }

    fn of(self, produced: Produced<Value, Value>, key: Format) -> Produced<Value, Value> {
        let keys = key.keys();
        match self {
            Partitions::OfKey => produced,
            Partitions::Numbered(e) => produced.partitioner_by(move |r, goal, cx| numbered(&e, r, goal, cx)),
            Partitions::By(e) => produced.partitioner_by(move |r, goal, cx| by_another_key(&e, &keys, r, goal, cx)),
        }
    }
}

/// A number that the topic does not have would stop the thread at the client, so it is a bad record here.
fn numbered(e: &Expr, r: &Item, goal: Goal<'_>, cx: &ProcessorCx<'_, '_>) -> Result<Option<Partition>, Error> {
    let count = goal.partitions.map_or(Value::Null, Value::from);
    let number = match e.of_partitioned(r, &count, cx)? {
        Value::Null => return Ok(None),
        number => number.as_i64().and_then(|n| i32::try_from(n).ok()),
    };
    let has = |n: i32| n >= 0 && goal.partitions.is_none_or(|count| n.unsigned_abs() < count);
    match number.filter(|n| has(*n)) {
        Some(n) => Ok(Some(Partition(n))),
        None => Err(e.failed("does not give the number of a partition of the topic")),
    }
}

/// Where Kafka's default partitioner puts records of that key.
fn by_another_key(
    e: &Expr,
    keys: &SerdeRef<Value>,
    r: &Item,
    goal: Goal<'_>,
    cx: &ProcessorCx<'_, '_>,
) -> Result<Option<Partition>, Error> {
    let other = e.of_record(r, cx)?;
    let Some(bytes) = keys.encode(&other, cx.target(goal.topic))? else { return Ok(None) };
    match goal.partitions {
        Some(count) => Ok(Some(partition_of(&bytes, count))),
        None => Err(e.failed("can't say a partition: how many the topic has was not known at start")),
    }
}
