//! `cogroup`: one aggregate over several streams.

use serde_json::Value;

use crate::config::yaml::{Diagnostics, Fields, Name, Node};
use crate::dsl::{CogroupedKStream, KGroupedStream};
use crate::error::codes;
use crate::serdes::Serdes;

use super::expr::{Expr, FOLD, MERGE, Made, RECORD};
use super::group::{Cut, Keeping, beginning, grouped_by};
use super::shape_state;
use super::steps::{Handle, Steps};
use super::value::Format;

/// One stream with what its records do.
type Side = (KGroupedStream<Value, Value>, Made);

impl Steps<'_> {
    pub(super) fn cogroup(&mut self, from: &Node, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
        let fields = shape_state::COGROUP.read(node, d)?;
        let keeping = Keeping::read(&fields, name, d);
        let init = fields.get("init").and_then(|n| beginning(n, &format!("{}.init", name.text), d));
        let merge = fields.get("merge").map(|n| Made::compile(n, MERGE, &format!("{}.merge", name.text), d));
        let sides = self.sides(from, &fields, name, d);
        let is_session = keeping.as_ref().is_some_and(|k| matches!(k.cut, Some(Cut::Session(_))));
        if is_session && merge.is_none() {
            d.error(codes::MISSING_KEY, &node.at, "a cogroup of sessions needs `merge`: a late record can make two sessions one")
                .label("over `left` and `right`");
            return None;
        }
        let merge = merge.map_or(Some(None), |m| m.map(Some))?;
        let (keeping, init, all) = (keeping?, init?, together(sides?)?);
        let (store, emit, begin) = (keeping.store, keeping.emit, move || init.clone());
        Some(match keeping.cut {
            None => Handle::Table(all.aggregate(store, begin, Serdes::json()), keeping.key),
            Some(Cut::Grid(w)) => Handle::Windowed(all.windowed_by(w).emit_strategy(emit).aggregate(store, begin, Serdes::json())),
            Some(Cut::Sliding(w)) => {
                Handle::Windowed(all.windowed_by(w).emit_strategy(emit).aggregate(store, begin, Serdes::json()))
            }
            Some(Cut::Unlimited(w)) => {
                Handle::Windowed(all.windowed_by(w).emit_strategy(emit).aggregate(store, begin, Serdes::json()))
            }
            Some(Cut::Session(w)) => {
                let merge = merge?;
                let one = move |k: &Value, a: Value, b: Value| merge.of_named(&[("key", k), ("left", &a), ("right", &b)]);
                Handle::Windowed(all.windowed_by(w).emit_strategy(emit).sessions_by(store, begin, one, Serdes::json()))
            }
        })
    }

    /// The streams in the file's order; the one that the step reads from is among them.
    fn sides(&mut self, from: &Node, fields: &Fields<'_>, name: &Name, d: &mut Diagnostics) -> Option<Vec<Side>> {
        let streams = fields.get("streams")?;
        let entries = streams.map(d)?;
        if let Some(read) = from.scalar()
            && !entries.iter().any(|(n, _)| n.text == read)
        {
            d.error(codes::MISSING_KEY, &streams.at, format!("`streams` does not say what the records of `{read}` do"))
                .label("the stream that the step reads from is one of them");
        }
        let key = Format::read(fields, "key", Format::Text, &mut Diagnostics::new());
        let all: Vec<Option<Side>> = entries
            .iter()
            .map(|(stream, node)| {
                let side = shape_state::COGROUPED.read(node, d);
                let by = side
                    .and_then(|f| f.get("by"))
                    .map(|n| Expr::compile(n, RECORD, &format!("{}.{}.by", name.text, stream.text), d));
                let with = side
                    .and_then(|f| f.get("with"))
                    .and_then(|n| Made::compile(n, FOLD, &format!("{}.{}.with", name.text, stream.text), d));
                let s = match self.known(stream, d)?.into_stream() {
                    Handle::Stream(s, _) => s,
                    Handle::Broken => return None,
                    _ => {
                        d.error(codes::BAD_VALUE, &stream.at, "this is no stream")
                            .label("name a source or a step that gives records");
                        return None;
                    }
                };
                let by = by.map_or(Some(None), |b| b.map(Some))?;
                let place = format!("{}-{}", name.text, stream.text);
                Some((grouped_by(&s, by, &place, key), with?))
            })
            .collect();
        all.into_iter().collect()
    }
}

fn together(sides: Vec<Side>) -> Option<CogroupedKStream<Value, Value>> {
    let mut sides = sides.into_iter();
    let (first, with) = sides.next()?;
    let step = |with: Made| move |k: &Value, v: Value, a: Value| with.of_named(&[("key", k), ("value", &v), ("aggregate", &a)]);
    let first = CogroupedKStream::of(&first, step(with));
    Some(sides.fold(first, |all, (grouped, with)| all.cogroup_by(&grouped, step(with))))
}
