//! `group`: records of one key folded into one value, over all time or in windows.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::yaml::{Diagnostics, Fields, Name, Node};
use crate::dsl::{
    EmitStrategy, Fold, Folding, Grouped, KGroupedStream, KStream, KTable, NamedStore, SessionWindows, SlidingWindows, TimeWindows,
    UnlimitedWindows,
};
use crate::error::codes;
use crate::serdes::{Serdes, Windowed};
use crate::time::WallTime;

use super::expr::{Expr, FOLD, MERGE, Made, RECORD};
use super::shape;
use super::steps::Handle;
use super::value::Format;

/// How the records of a group become one value.
#[derive(Clone)]
enum How {
    Count,
    /// The first value is taken as it is.
    Reduce(Expr),
    Aggregate {
        from: Value,
        with: Made,
        /// What becomes of two sessions that turn out to be one.
        merge: Option<Made>,
    },
}

/// How time cuts a group.
#[derive(Clone, Copy)]
pub(super) enum Cut {
    Grid(TimeWindows),
    Sliding(SlidingWindows),
    Session(SessionWindows),
    Unlimited(UnlimitedWindows),
}

pub(super) fn group(s: &KStream<Value, Value>, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
    let fields = shape::GROUP.read(node, d)?;
    let by = fields.get("by").map(|n| Expr::compile(n, RECORD, &format!("{}.by", name.text), d));
    let how = how(&fields, name, d);
    let keeping = Keeping::read(&fields, name, d);
    let by = by.map_or(Some(None), |e| e.map(Some))?;
    let (how, Keeping { key, cut, emit, store }) = (how?, keeping?);
    let grouped = grouped_by(s, by, &name.text, key);
    Some(match cut {
        None => Handle::Table(grouped.fold_by(store, Serdes::json(), how.fold()), key),
        Some(cut) => Handle::Windowed(windowed(&grouped, cut, emit, store, how)),
    })
}

/// How a group is kept: its windows, and the store that is named after the step.
pub(super) struct Keeping {
    pub(super) key: Format,
    pub(super) cut: Option<Cut>,
    pub(super) emit: EmitStrategy,
    pub(super) store: NamedStore,
}

impl Keeping {
    pub(super) fn read(fields: &Fields<'_>, name: &Name, d: &mut Diagnostics) -> Option<Self> {
        let key = Format::read(fields, "key", Format::Text, d);
        let cut = fields.get("window").map(|n| cut(n, d));
        let emit = fields
            .get("emit")
            .map(|n| n.one_of(&[("update", EmitStrategy::OnWindowUpdate), ("close", EmitStrategy::OnWindowClose)], d));
        let (memory, caching) = (given(fields, "memory", d), given(fields, "caching", d));
        let retention = fields.get("retention").map(|n| n.duration(d));
        if cut.is_none() && (fields.has("emit") || fields.has("retention")) {
            let what = "`emit` and `retention` are for windows, and this group has no `window`";
            d.error(codes::BAD_VALUE, &fields.node.at, what);
            return None;
        }
        if matches!(cut, Some(Some(Cut::Unlimited(_)))) {
            endless(fields, emit, d)?;
        }
        let store = NamedStore::named(&name.text);
        let store = if memory? { store.in_memory() } else { store };
        let store = if caching? { store.with_caching_enabled() } else { store };
        let store = match retention {
            Some(retention) => store.retention(retention?),
            None => store,
        };
        let emit = emit.map_or(Some(EmitStrategy::default()), |e| e)?;
        Some(Self { key, cut: cut.map_or(Some(None), |c| c.map(Some))?, emit, store })
    }
}

/// What can't be said of a window that never ends.
fn endless(fields: &Fields<'_>, emit: Option<Option<EmitStrategy>>, d: &mut Diagnostics) -> Option<()> {
    let closes = fields.get("emit").filter(|_| emit == Some(Some(EmitStrategy::OnWindowClose)));
    for (node, what) in
        [(closes, "`emit: close` would tell nothing"), (fields.get("retention"), "`retention` has no end to count from")]
    {
        let Some(node) = node else { continue };
        d.error(codes::BAD_VALUE, &node.at, format!("an unlimited window never closes: {what}")).label("leave it out");
    }
    (closes.is_none() && !fields.has("retention")).then_some(())
}

/// Whether the file says yes; `None` where it says neither.
pub(super) fn given(fields: &Fields<'_>, key: &str, d: &mut Diagnostics) -> Option<bool> {
    fields.get(key).map_or(Some(false), |n| n.boolean(d))
}

/// A stream grouped by its key, or by another one; `place` names the step that sets it.
pub(super) fn grouped_by(s: &KStream<Value, Value>, by: Option<Expr>, place: &str, key: Format) -> KGroupedStream<Value, Value> {
    let keyed = match by {
        None => s.clone(),
        Some(by) => s.named(format!("{place}-by")).each("KSTREAM-KEY-SELECT", true, move |mut r, cx, next| {
            r.key = by.of_record(&r, cx)?;
            next.process(r, cx)
        }),
    };
    keyed.group_by_key(Grouped::with(key.keys(), Serdes::json::<Value>()))
}

/// What a group begins with: a value of its own, over nothing.
pub(super) fn beginning(node: &Node, place: &str, d: &mut Diagnostics) -> Option<Value> {
    match Made::compile(node, &[], place, d)?.of_named(&[]) {
        Ok(value) => Some(value),
        Err(e) => {
            d.error(codes::BAD_EXPRESSION, &node.at, e.to_string());
            None
        }
    }
}

fn windowed(
    grouped: &KGroupedStream<Value, Value>,
    cut: Cut,
    emit: EmitStrategy,
    store: NamedStore,
    how: How,
) -> KTable<Windowed<Value>, Value> {
    match cut {
        Cut::Grid(w) => grouped.windowed_by(w).emit_strategy(emit).fold_by(store, Serdes::json(), how.fold()),
        Cut::Sliding(w) => grouped.windowed_by(w).emit_strategy(emit).fold_by(store, Serdes::json(), how.fold()),
        Cut::Unlimited(w) => grouped.windowed_by(w).emit_strategy(emit).fold_by(store, Serdes::json(), how.fold()),
        Cut::Session(w) => grouped.windowed_by(w).emit_strategy(emit).fold_by(store, Serdes::json(), how.folding()),
    }
}

/// A windowed table as a stream: its key is an object of the group's key and the window's bounds, null is what is there no more. A
/// window that never ends has null for its end.
pub(super) fn told(table: &KTable<Windowed<Value>, Value>) -> KStream<Value, Value> {
    table.to_stream().map(|k, v| {
        let end = (k.window.end < WallTime(i64::MAX)).then(|| k.window.end.to_string());
        let key = json!({ "key": k.key, "start": k.window.start.to_string(), "end": end });
        (key, v.unwrap_or(Value::Null))
    })
}

impl How {
    fn fold(self) -> Fold<Value, Value, Value> {
        match self {
            How::Count => Arc::new(|_, _, n| Ok(json!(n.as_ref().and_then(Value::as_i64).unwrap_or(0) + 1))),
            How::Reduce(e) => Arc::new(move |k, v, sum| match sum {
                Some(sum) => e.of_named(&[("key", k), ("value", &v), ("aggregate", &sum)]),
                None => Ok(v),
            }),
            How::Aggregate { from, with, .. } => {
                Arc::new(move |k, v, sum| with.of_named(&[("key", k), ("value", &v), ("aggregate", sum.as_ref().unwrap_or(&from))]))
            }
        }
    }

    fn folding(self) -> Folding<Value, Value, Value> {
        let step = self.clone().fold();
        match self {
            How::Count => Folding {
                init: Box::new(|| Some(json!(0))),
                step,
                merge: Box::new(|_, a, b| Ok(json!(a.as_i64().unwrap_or(0) + b.as_i64().unwrap_or(0)))),
            },
            How::Reduce(e) => Folding {
                init: Box::new(|| None),
                step,
                merge: Box::new(move |k, a, b| e.of_named(&[("key", k), ("value", &b), ("aggregate", &a)])),
            },
            How::Aggregate { from, merge, .. } => Folding {
                init: Box::new(|| None),
                step,
                merge: Box::new(move |k, a, b| match &merge {
                    Some(merge) => merge.of_named(&[("key", k), ("left", &a), ("right", &b)]),
                    // Refused when the file was read: a session aggregate has a merge.
                    None => Ok(from.clone()),
                }),
            },
        }
    }
}

/// `count`, `reduce` or `aggregate`: exactly one.
fn how(fields: &Fields<'_>, name: &Name, d: &mut Diagnostics) -> Option<How> {
    let place = |key: &str| format!("{}.{key}", name.text);
    let kinds: Vec<_> = ["count", "reduce", "aggregate"].into_iter().filter(|k| fields.has(k)).collect();
    let [kind] = kinds.as_slice() else {
        let found = if kinds.is_empty() { "none" } else { "several" };
        d.error(
            codes::MISSING_KEY,
            &fields.node.at,
            format!("a group needs one of `count`, `reduce`, `aggregate`, and has {found}"),
        );
        return None;
    };
    let node = fields.get(kind)?;
    match *kind {
        "count" => match node.boolean(d)? {
            true => Some(How::Count),
            false => {
                d.error(codes::BAD_VALUE, &node.at, "`count: false` keeps nothing").label("leave it out, or write true");
                None
            }
        },
        "reduce" => Expr::compile(node, FOLD, &place("reduce"), d).map(How::Reduce),
        _ => {
            let aggregate = shape::AGGREGATE.read(node, d)?;
            let from = aggregate.get("from").and_then(|n| beginning(n, &place("from"), d));
            let with = aggregate.get("with").and_then(|n| Made::compile(n, FOLD, &place("with"), d));
            let merge = aggregate.get("merge").map(|n| Made::compile(n, MERGE, &place("merge"), d));
            let is_session = fields
                .get("window")
                .is_some_and(|w| w.map(&mut Diagnostics::new()).is_some_and(|m| m.iter().any(|(n, _)| n.text == "session")));
            if is_session && merge.is_none() {
                d.error(
                    codes::MISSING_KEY,
                    &node.at,
                    "an aggregate of sessions needs `merge`: a late record can make two sessions one",
                )
                .label("over `left` and `right`");
                return None;
            }
            Some(How::Aggregate { from: from?, with: with?, merge: merge.map_or(Some(None), |m| m.map(Some))? })
        }
    }
}

/// `window`: exactly one of `size`, `sliding`, `session`, `unlimited`.
fn cut(node: &Node, d: &mut Diagnostics) -> Option<Cut> {
    let fields = shape::WINDOW.read(node, d)?;
    let mut span = |key: &str| fields.get(key).map_or(Some(None), |n| n.duration(d).map(Some));
    let (size, advance, sliding, session, grace) =
        (span("size")?, span("advance")?, span("sliding")?, span("session")?, span("grace")?);
    let unlimited = given(&fields, "unlimited", d)?;
    let start = fields.get("start").map_or(Some(None), |n| start(n, d).map(Some))?;
    for (key, of, fits) in [("advance", "size", size.is_some()), ("start", "unlimited", unlimited), ("grace", "size", !unlimited)] {
        if let (Some(n), false) = (fields.get(key), fits) {
            let what = match key {
                "grace" => "an unlimited window never closes: there is no `grace`".to_owned(),
                _ => format!("`{key}` is for windows with `{of}`"),
            };
            d.error(codes::BAD_VALUE, &n.at, what).label("leave it out");
            return None;
        }
    }
    let grace = grace.unwrap_or(Duration::ZERO);
    match (size, sliding, session, unlimited) {
        (Some(size), None, None, false) => {
            let windows = TimeWindows::of_size_and_grace(size, grace);
            Some(Cut::Grid(advance.map_or(windows, |a| windows.advance_by(a))))
        }
        (None, Some(difference), None, false) => {
            Some(Cut::Sliding(SlidingWindows::of_time_difference_and_grace(difference, grace)))
        }
        (None, None, Some(gap), false) => Some(Cut::Session(SessionWindows::of_inactivity_gap_and_grace(gap, grace))),
        (None, None, None, true) => {
            Some(Cut::Unlimited(start.map_or(UnlimitedWindows::of(), |at| UnlimitedWindows::of().start_on(at))))
        }
        _ => {
            d.error(codes::MISSING_KEY, &node.at, "a window has exactly one of `size`, `sliding`, `session`, `unlimited`");
            None
        }
    }
}

fn start(node: &Node, d: &mut Diagnostics) -> Option<WallTime> {
    let text = node.text(d)?;
    let at = crate::dsl::millis(&text);
    if at.is_none() {
        d.error(codes::BAD_VALUE, &node.at, format!("`{text}` is no time")).label("RFC 3339, such as \"2026-01-01T00:00:00Z\"");
    }
    at.map(WallTime)
}
