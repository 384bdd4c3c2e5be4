//! CEL in topologies. Compiled once, at load; over a record it sees `key`, `value`, `headers`, `record`, over an operation
//! `request`, `input`, `plan`, in a tool also `arguments`. What is refused is said by [`CelExpr`]: long or deep sources, loops nested deeper than two, unknown
//! variables.

use serde_json::{Value, json};

use crate::config::CelExpr;
use crate::config::yaml::{Diagnostics, Kind, Node};
use crate::error::{Error, Fault, codes};
use crate::outbox::View;
use crate::processor::ProcessorCx;
use crate::time::WallTime;

use super::value::Item;

/// What an expression over a record sees.
pub(super) const RECORD: &[&str] = &["key", "value", "headers", "record"];
/// What an expression sees whose result must not depend on where the record lies.
pub(super) const CONTENT: &[&str] = &["key", "value", "headers"];
/// What an expression sees that gives the partition of a record.
pub(super) const SINK: &[&str] = &["key", "value", "headers", "record", "partitions"];
/// What an expression of a join sees.
pub(super) const JOINED: &[&str] = &["key", "value", "headers", "record", "table"];
/// What an expression sees that adds a record to an aggregate.
pub(super) const FOLD: &[&str] = &["key", "value", "aggregate"];
/// What an expression sees that makes one session of two.
pub(super) const MERGE: &[&str] = &["key", "left", "right"];
/// What an expression sees of a table's entry.
pub(super) const ENTRY: &[&str] = &["key", "value"];
/// What an expression sees of entries of two tables.
pub(super) const MATCHED: &[&str] = &["key", "value", "table"];
/// What an expression sees of two records that met.
pub(super) const MET: &[&str] = &["key", "value", "other", "headers", "record"];
/// What an expression over an operation sees.
pub(super) const OPERATION: &[&str] = &["request", "input", "plan"];
/// What an expression of one tool sees: besides, what a proposed call gives it.
pub(super) const TOOL: &[&str] = &["request", "input", "plan", "arguments"];

/// An expression with the step that it belongs to.
#[derive(Clone)]
pub(super) struct Expr {
    cel: CelExpr,
    place: String,
}

impl Expr {
    /// Compiles what stands at `node`.
    pub(super) fn compile(node: &Node, known: &[&str], place: &str, d: &mut Diagnostics) -> Option<Expr> {
        let source = node.expression(d)?;
        match CelExpr::compile(source, known) {
            Ok(cel) => Some(Expr { cel, place: place.to_owned() }),
            Err(why) => {
                let what = why.report(node, d);
                if known == CONTENT && source.contains("record") {
                    what.note("not where the record lies: a copy of it elsewhere must be the same intent");
                }
                None
            }
        }
    }

    /// One that the product itself says; `None` where it does not compile.
    pub(super) fn of(source: &str, known: &[&str], place: &str) -> Option<Expr> {
        let cel = CelExpr::compile(source, known).ok()?;
        Some(Expr { cel, place: place.to_owned() })
    }

    /// Its value over a record.
    pub(super) fn of_record(&self, r: &Item, cx: &ProcessorCx<'_, '_>) -> Result<Value, Error> {
        self.of_joined(r, &Value::Null, cx)
    }

    /// Its truth over a record.
    pub(super) fn holds(&self, r: &Item, cx: &ProcessorCx<'_, '_>) -> Result<bool, Error> {
        let (headers, record) = (self.headers(r), self.record(r, cx));
        let variables = [("key", &r.key), ("value", &r.value), ("headers", &headers), ("record", &record)];
        self.cel.eval_bool(&variables).map_err(|why| self.failed(&why))
    }

    /// Its value over a record and what it met: in a `table`, or an `other` record.
    pub(super) fn of_joined(&self, r: &Item, met: &Value, cx: &ProcessorCx<'_, '_>) -> Result<Value, Error> {
        let (headers, record) = (self.headers(r), self.record(r, cx));
        let known = [("key", &r.key), ("value", &r.value), ("headers", &headers), ("record", &record)];
        let variables = [known[0], known[1], known[2], known[3], ("table", met), ("other", met)];
        self.cel.eval(&variables).map_err(|why| self.failed(&why))
    }

    /// Its value over a record and how many partitions the topic has that it goes to.
    pub(super) fn of_partitioned(&self, r: &Item, partitions: &Value, cx: &ProcessorCx<'_, '_>) -> Result<Value, Error> {
        let (headers, record) = (self.headers(r), self.record(r, cx));
        let known = [("key", &r.key), ("value", &r.value), ("headers", &headers), ("record", &record), ("partitions", partitions)];
        self.of_named(&known)
    }

    /// Its value over named values alone.
    pub(super) fn of_named(&self, variables: &[(&str, &Value)]) -> Result<Value, Error> {
        self.cel.eval(variables).map_err(|why| self.failed(&why))
    }

    /// Its truth over named values alone.
    pub(super) fn truth_of_named(&self, variables: &[(&str, &Value)]) -> Result<bool, Error> {
        self.cel.eval_bool(variables).map_err(|why| self.failed(&why))
    }

    /// Its text over a record; numbers and truths are written out.
    pub(super) fn text_of(&self, r: &Item, cx: &ProcessorCx<'_, '_>) -> Result<String, Error> {
        match self.of_record(r, cx)? {
            Value::String(text) => Ok(text),
            v @ (Value::Number(_) | Value::Bool(_)) => Ok(v.to_string()),
            _ => Err(self.failed("does not give a text")),
        }
    }

    /// Its value over an operation; the error is for people.
    pub(super) fn of_operation(&self, view: &View<'_>) -> Result<Value, String> {
        self.over(view, |variables| self.cel.eval(variables))
    }

    /// Its truth over an operation.
    pub(super) fn holds_for(&self, view: &View<'_>) -> Result<bool, String> {
        self.over(view, |variables| self.cel.eval_bool(variables))
    }

    fn over<T>(&self, view: &View<'_>, f: impl FnOnce(&[(&str, &Value)]) -> Result<T, String>) -> Result<T, String> {
        let request = match self.cel.mentions("request") {
            true => serde_json::to_value(view.request).map_err(|_| "the request has no JSON form".to_owned())?,
            false => Value::Null,
        };
        let null = Value::Null;
        let known = [("input", view.input), ("plan", view.plan), ("arguments", view.arguments)];
        let known = known.map(|(name, value)| (name, value.unwrap_or(&null)));
        let variables = [("request", &request), known[0], known[1], known[2]];
        f(&variables).map_err(|why| format!("{} {why}", self.place))
    }

    /// The time that it gives a record, from 1970 on: an RFC 3339 text or milliseconds.
    pub(super) fn time_of(&self, r: &Item) -> Result<WallTime, Error> {
        let headers = self.headers(r);
        let time = match self.of_named(&[("key", &r.key), ("value", &r.value), ("headers", &headers)])? {
            Value::Number(ms) => ms.as_i64(),
            Value::String(text) => crate::dsl::millis(&text),
            _ => None,
        };
        let time = time.filter(|ms| *ms >= 0).map(WallTime);
        time.ok_or_else(|| self.failed("does not give a time: RFC 3339 text or milliseconds, from 1970 on"))
    }

    /// Headers, made only where they are read.
    fn headers(&self, r: &Item) -> Value {
        if !self.cel.mentions("headers") {
            return Value::Null;
        }
        let text = |h: &crate::record::Header| h.value.as_ref().map(|v| String::from_utf8_lossy(v).into_owned());
        r.headers.0.iter().map(|h| (h.name.clone(), text(h).map_or(Value::Null, Value::String))).collect()
    }

    /// Where a record lies, made only where that is read.
    fn record(&self, r: &Item, cx: &ProcessorCx<'_, '_>) -> Value {
        match cx.origin() {
            Some(o) if self.cel.mentions("record") => json!({
                "topic": o.tp.topic.as_str(),
                "partition": o.tp.partition.0,
                "offset": o.offset.0,
                "timestamp": r.timestamp.map(|t| t.to_string()),
            }),
            _ => Value::Null,
        }
    }

    pub(super) fn failed(&self, why: &str) -> Error {
        Error::new(codes::BAD_EXPRESSION, Fault::Data, format!("{} {why}", self.place))
    }
}

/// A value made by expressions: one, or one for each member of an object.
#[derive(Clone)]
pub(super) enum Made {
    One(Expr),
    Members(Vec<(String, Expr)>),
}

impl Made {
    pub(super) fn compile(node: &Node, known: &[&str], place: &str, d: &mut Diagnostics) -> Option<Made> {
        match &node.kind {
            Kind::Map(_) => members(node, known, place, d).map(Made::Members),
            _ => Expr::compile(node, known, place, d).map(Made::One),
        }
    }
    /// Over a record and what it met.
    pub(super) fn of_joined(&self, r: &Item, met: &Value, cx: &ProcessorCx<'_, '_>) -> Result<Value, Error> {
        self.each(|e| e.of_joined(r, met, cx))
    }
    /// Over named values alone.
    pub(super) fn of_named(&self, variables: &[(&str, &Value)]) -> Result<Value, Error> {
        self.each(|e| e.of_named(variables))
    }

    fn each(&self, f: impl Fn(&Expr) -> Result<Value, Error>) -> Result<Value, Error> {
        match self {
            Made::One(e) => f(e),
            Made::Members(all) => all.iter().map(|(name, e)| Ok((name.clone(), f(e)?))).collect(),
        }
    }
}

/// Named expressions, in the file's order.
pub(super) fn members(node: &Node, known: &[&str], place: &str, d: &mut Diagnostics) -> Option<Vec<(String, Expr)>> {
    let entries = node.map(d)?;
    let compiled: Vec<_> = entries
        .iter()
        .map(|(name, value)| Some((name.text.clone(), Expr::compile(value, known, &format!("{place}.{}", name.text), d)?)))
        .collect();
    compiled.into_iter().collect()
}
