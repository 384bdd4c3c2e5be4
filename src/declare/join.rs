//! `join`: with a table's value of the key, with a global table's of any key, or with records of another stream that are close in time.

use std::time::Duration;

use serde_json::Value;

use crate::config::yaml::{Diagnostics, Fields, Name, Node};
use crate::dsl::{JoinWindows, Joined, KStream, StreamJoined};
use crate::error::{Error, codes};
use crate::processor::ProcessorCx;
use crate::serdes::Serdes;

use super::expr::{Expr, JOINED, MET, Made, RECORD};
use super::shape;
use super::sources::Carries;
use super::steps::{Handle, Steps};
use super::value::{Format, Item};

/// What a record makes of what a table has for it; one that meets nothing is told of in a left join only.
fn looked_up(made: Made, left: bool) -> impl Fn(&Item, Option<Value>, &ProcessorCx<'_, '_>) -> Result<Option<Value>, Error> {
    move |r, found, cx| match found {
        None if !left => Ok(None),
        found => made.of_joined(r, &found.unwrap_or(Value::Null), cx).map(Some),
    }
}

/// Which sides are told of where they met nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Outer,
}

impl Steps<'_> {
    pub(super) fn join(&mut self, s: &KStream<Value, Value>, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
        let fields = shape::JOIN.read(node, d)?;
        let words = [("inner", Kind::Inner), ("left", Kind::Left), ("outer", Kind::Outer)];
        let kind = fields.get("kind").map_or(Some(Kind::Inner), |n| n.one_of(&words, d));
        if let Some(n) = fields.get("by").filter(|_| !fields.has("global")) {
            d.error(codes::BAD_VALUE, &n.at, "`by` is for joins with a `global` table")
                .label("map to that key in a step before, or declare the table under `global_tables`");
        }
        match (fields.get("table"), fields.get("stream"), fields.get("global")) {
            (Some(at), None, None) => self.join_table(s, &fields, at, name, kind, d),
            (None, Some(at), None) => self.join_stream(s, &fields, at, name, kind, d),
            (None, None, Some(at)) => self.join_global(s, &fields, at, name, kind, d),
            _ => {
                d.error(codes::MISSING_KEY, &node.at, "a join meets exactly one of `table`, `global`, `stream`");
                None
            }
        }
    }

    fn join_table(
        &mut self,
        s: &KStream<Value, Value>,
        fields: &Fields<'_>,
        at: &Node,
        name: &Name,
        kind: Option<Kind>,
        d: &mut Diagnostics,
    ) -> Option<Handle> {
        let made = fields.get("value").and_then(|n| Made::compile(n, JOINED, &name.text, d));
        for_streams_only(fields, d);
        let (table, key) = match self.named(at, d)? {
            Handle::Table(table, key) => (table, key),
            Handle::Broken => return None,
            _ => {
                d.error(codes::BAD_VALUE, &at.at, "this is no table")
                    .label("declare it under `tables`, or name a table or group step");
                return None;
            }
        };
        let (left, made) = (is_left(kind?, fields, d)?, made?);
        let joined = Joined::named(&name.text, key.keys(), Serdes::json::<Value>());
        let out = s.join_with(&table, joined, looked_up(made, left));
        Some(Handle::Stream(out, Carries::Records))
    }

    fn join_global(
        &mut self,
        s: &KStream<Value, Value>,
        fields: &Fields<'_>,
        at: &Node,
        name: &Name,
        kind: Option<Kind>,
        d: &mut Diagnostics,
    ) -> Option<Handle> {
        let by = fields.get("by").map(|n| Expr::compile(n, RECORD, &format!("{}.by", name.text), d));
        let made = fields.get("value").and_then(|n| Made::compile(n, JOINED, &name.text, d));
        for_streams_only(fields, d);
        let table = match self.named(at, d)? {
            Handle::Global(table) => table,
            Handle::Broken => return None,
            _ => {
                d.error(codes::BAD_VALUE, &at.at, "this is no global table")
                    .label("declare it under `global_tables`, or join with `table`");
                return None;
            }
        };
        let (left, made, by) = (is_left(kind?, fields, d)?, made?, by.map_or(Some(None), |b| b.map(Some))?);
        let key = move |r: &Item, cx: &ProcessorCx<'_, '_>| {
            let key = by.as_ref().map_or_else(|| Ok(r.key.clone()), |by| by.of_record(r, cx))?;
            Ok((!key.is_null()).then_some(key))
        };
        let out = s.named(&name.text).join_global_with(&table, key, looked_up(made, left));
        Some(Handle::Stream(out, Carries::Records))
    }

    fn join_stream(
        &mut self,
        s: &KStream<Value, Value>,
        fields: &Fields<'_>,
        at: &Node,
        name: &Name,
        kind: Option<Kind>,
        d: &mut Diagnostics,
    ) -> Option<Handle> {
        let made = fields.get("value").and_then(|n| Made::compile(n, MET, &name.text, d));
        let windows = windows(fields, d);
        let key = Format::read(fields, "key", Format::Text, d);
        let other = match self.named(at, d)?.into_stream() {
            Handle::Stream(other, _) => other,
            Handle::Broken => return None,
            _ => {
                d.error(codes::BAD_VALUE, &at.at, "this is no stream").label("name a source or a step that gives records");
                return None;
            }
        };
        let (windows, kind, made) = (windows?, kind?, made?);
        let joined = StreamJoined::named(&name.text, key.keys(), Serdes::json::<Value>(), Serdes::json::<Value>());
        let pair = |a: Option<Value>, b: Option<Value>| Value::Array(vec![a.unwrap_or(Value::Null), b.unwrap_or(Value::Null)]);
        let met = match kind {
            Kind::Inner => s.join_stream(&other, windows, joined, move |_, a, b| pair(Some(a), Some(b))),
            Kind::Left => s.left_join_stream(&other, windows, joined, move |_, a, b| pair(Some(a), b)),
            Kind::Outer => s.outer_join(&other, windows, joined, move |_, a, b| pair(a, b)),
        };
        let out = met.each("KSTREAM-MAPVALUES", false, move |mut r, cx, next| {
            let [mine, theirs] =
                r.value.as_array_mut().map(std::mem::take).and_then(|p| <[Value; 2]>::try_from(p).ok()).unwrap_or_default();
            r.value = mine;
            r.value = made.of_joined(&r, &theirs, cx)?;
            next.process(r, cx)
        });
        Some(Handle::Stream(out, Carries::Records))
    }
}

fn for_streams_only(fields: &Fields<'_>, d: &mut Diagnostics) {
    for key in ["within", "before", "after", "grace", "key"] {
        if let Some(n) = fields.get(key) {
            d.error(codes::BAD_VALUE, &n.at, format!("`{key}` is for joins with a `stream`"));
        }
    }
}

/// Whether records that meet nothing are kept.
fn is_left(kind: Kind, fields: &Fields<'_>, d: &mut Diagnostics) -> Option<bool> {
    match kind {
        Kind::Inner => Some(false),
        Kind::Left => Some(true),
        Kind::Outer => {
            d.error(codes::BAD_VALUE, &fields.node.at, "a join with a table is inner or left")
                .label("what the table alone has is told by nobody");
            None
        }
    }
}

/// How far apart the times of a pair may lie.
fn windows(fields: &Fields<'_>, d: &mut Diagnostics) -> Option<JoinWindows> {
    let mut span = |key: &str| fields.get(key).map_or(Some(None), |n| n.duration(d).map(Some));
    let (within, before, after, grace) = (span("within")?, span("before")?, span("after")?, span("grace")?);
    if within.is_none() && (before.is_none() || after.is_none()) {
        d.error(codes::MISSING_KEY, &fields.node.at, "a join of streams needs `within`, or `before` and `after`");
        return None;
    }
    let windows = JoinWindows::of_time_difference_and_grace(within.unwrap_or_default(), grace.unwrap_or(Duration::ZERO));
    let windows = before.map_or(windows, |b| windows.before(b));
    Some(after.map_or(windows, |a| windows.after(a)))
}
