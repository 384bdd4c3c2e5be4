//! `table`: a stream's newest value of each key; or another table made of a table.

use serde_json::{Value, json};

use crate::config::yaml::{Diagnostics, Fields, Name, Node};
use crate::dsl::{Grouped, KGroupedTable, KStream, KTable, Materialized, NamedStore};
use crate::error::{Error, codes};
use crate::serdes::Serdes;

use super::expr::{ENTRY, Expr, FOLD, MATCHED, Made};
use super::group::{beginning, given};
use super::shape_state;
use super::steps::{Handle, Steps};
use super::value::Format;

/// What makes a table of a table; each is at most once there, and they follow each other in this order.
const OF_TABLES: &[&str] = &["filter", "value", "join", "group", "materialized"];

/// Which entries of two tables are in their join.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Outer,
}

/// How a store keeps its entries.
#[derive(Clone, Copy)]
pub(super) struct How {
    memory: bool,
    caching: bool,
}

impl How {
    pub(super) fn read(fields: &Fields<'_>, d: &mut Diagnostics) -> Option<Self> {
        let (memory, caching) = (given(fields, "memory", d), given(fields, "caching", d));
        Some(Self { memory: memory?, caching: caching? })
    }
    pub(super) fn of(self, kept: Materialized<Value, Value>) -> Materialized<Value, Value> {
        let kept = if self.memory { kept.in_memory() } else { kept };
        if self.caching { kept.with_caching_enabled() } else { kept }
    }
}

/// A table, as steps name it.
type Named = (KTable<Value, Value>, Format);

impl Steps<'_> {
    pub(super) fn table(&mut self, from: Handle, at: &Node, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
        let fields = shape_state::KEPT.read(node, d)?;
        let of_tables: Vec<_> = OF_TABLES.iter().filter_map(|k| fields.get(k).map(|n| (k, n))).collect();
        match from {
            Handle::Table(table, format) if !of_tables.is_empty() => {
                if let Some(key) = fields.get("key") {
                    d.error(codes::BAD_VALUE, &key.at, "`key` is for tables of streams")
                        .label("keys are written as in the table above");
                }
                self.table_of_table((table, format), &fields, name, d).map(|(t, f)| Handle::Table(t, f))
            }
            from => match from.into_stream() {
                Handle::Stream(s, _) if of_tables.is_empty() => newest(&s, &fields, name, d),
                Handle::Stream(..) => {
                    for (key, n) in of_tables {
                        d.error(codes::BAD_VALUE, &n.at, format!("`{key}` makes a table of a table, and this reads from a stream"))
                            .label("keep the stream first, by a step with `table: {}`, and read from that");
                    }
                    None
                }
                Handle::Broken => None,
                _ => {
                    d.error(codes::BAD_VALUE, &at.at, "`table` reads from a stream or a table, and this is none");
                    None
                }
            },
        }
    }

    fn table_of_table(&mut self, from: Named, fields: &Fields<'_>, name: &Name, d: &mut Diagnostics) -> Option<Named> {
        let how = How::read(fields, d);
        let filter = fields.get("filter").map(|n| Expr::compile(n, ENTRY, &format!("{}.filter", name.text), d));
        let value = fields.get("value").map(|n| Made::compile(n, ENTRY, &format!("{}.value", name.text), d));
        let keep = given(fields, "materialized", d);
        let stores = keep != Some(false) || fields.has("group") || joins_by_foreign_key(fields);
        let sound = stores || keeps_nothing(fields, d).is_some();
        // The rest is checked even where these have errors.
        let sound = sound && !matches!(filter, Some(None)) && !matches!(value, Some(None));
        let table = viewed(&from.0, filter.flatten(), value.flatten());
        let table = match fields.get("join") {
            Some(node) => self.table_join((table, from.1), node, name, how?, d),
            None => Some((table, from.1)),
        };
        let made = match fields.get("group") {
            Some(node) => table.and_then(|(t, _)| group(&t, node, name, how?, d)),
            None => table,
        };
        let (table, format) = made.filter(|_| sound)?;
        // Joins by a foreign key and groups are kept under the step's name already.
        if !keep? || (table.is_kept() && (fields.has("group") || fields.has("join"))) {
            return Some((table, format));
        }
        Some((table.materialized(kept(name, format, how?)), format))
    }

    fn table_join(&mut self, (this, format): Named, node: &Node, name: &Name, how: How, d: &mut Diagnostics) -> Option<Named> {
        let fields = shape_state::TABLE_JOIN.read(node, d)?;
        let by = fields.get("by").map(|n| (n, Expr::compile(n, ENTRY, &format!("{}.by", name.text), d)));
        let made = fields.get("value").and_then(|n| Made::compile(n, MATCHED, &name.text, d));
        let words = [("inner", Kind::Inner), ("left", Kind::Left), ("outer", Kind::Outer)];
        let kind = fields.get("kind").map_or(Some(Kind::Inner), |n| n.one_of(&words, d));
        let at = fields.get("table")?;
        let other = match self.named(at, d)? {
            Handle::Table(other, _) => other,
            Handle::Broken => return None,
            _ => {
                d.error(codes::BAD_VALUE, &at.at, "this is no table")
                    .label("declare it under `tables`, or name a table or group step");
                return None;
            }
        };
        let Some((by_node, by)) = by else { return Some((by_key(&this.named(&name.text), &other, kind?, made?), format)) };
        for (table, what, n) in [(&this, "the table of `from`", by_node), (&other, "this", at)] {
            if !table.is_kept() {
                d.error(
                    codes::BAD_VALUE,
                    &n.at,
                    format!("a join by a foreign key writes values of both tables, and {what} is a view"),
                )
                .label("add `materialized: true` to the step that makes it");
            }
        }
        if kind == Some(Kind::Outer) {
            d.error(codes::BAD_VALUE, &fields.node.at, "a join by a foreign key is inner or left")
                .label("what the other table alone has belongs to no entry");
            return None;
        }
        let (by, made, left) = (by?, made?, kind? == Kind::Left);
        if !this.is_kept() || !other.is_kept() {
            return None;
        }
        let joiner = move |k: &Value, v: Value, t: Option<Value>| match t {
            None if !left => Ok(None),
            t => made.of_named(&[("key", k), ("value", &v), ("table", &t.unwrap_or(Value::Null))]).map(Some),
        };
        let foreign = move |k: &Value, v: &Value| by.of_named(&[("key", k), ("value", v)]).map(|k| (!k.is_null()).then_some(k));
        let joined =
            this.join_foreign(&other, std::sync::Arc::new(foreign), kept(name, format, how), std::sync::Arc::new(joiner), left);
        Some((joined, format))
    }
}

/// The newest value of each key of a stream.
fn newest(s: &KStream<Value, Value>, fields: &Fields<'_>, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
    let how = How::read(fields, d)?;
    let key = Format::read(fields, "key", Format::Text, d);
    Some(Handle::Table(s.to_table(kept(name, key, how)), key))
}

fn kept(name: &Name, key: Format, how: How) -> Materialized<Value, Value> {
    how.of(Materialized::named(&name.text, key.keys(), Serdes::json::<Value>()))
}

fn joins_by_foreign_key(fields: &Fields<'_>) -> bool {
    let join = fields.get("join").and_then(|n| n.map(&mut Diagnostics::new()));
    join.is_some_and(|entries| entries.iter().any(|(key, _)| key.text == "by"))
}

/// A view has no store that these could be about.
fn keeps_nothing(fields: &Fields<'_>, d: &mut Diagnostics) -> Option<()> {
    let about_stores: Vec<_> = ["memory", "caching"].into_iter().filter_map(|k| fields.get(k).map(|n| (k, n))).collect();
    for (key, node) in &about_stores {
        d.error(codes::BAD_VALUE, &node.at, format!("`{key}` is about a store, and this step keeps none: it reads through"))
            .label("add `materialized: true` to keep it, or leave this out");
    }
    about_stores.is_empty().then_some(())
}

/// A table's entries, filtered and mapped: a view, which keeps nothing.
fn viewed(table: &KTable<Value, Value>, filter: Option<Expr>, value: Option<Made>) -> KTable<Value, Value> {
    let table = match filter {
        Some(e) => table.filter_by(move |k, v| e.truth_of_named(&[("key", k), ("value", v)])),
        None => table.clone(),
    };
    match value {
        Some(made) => table.map_values_by(move |k, v| made.of_named(&[("key", k), ("value", &v)])),
        None => table,
    }
}

/// Two tables with the same keys.
fn by_key(this: &KTable<Value, Value>, other: &KTable<Value, Value>, kind: Kind, made: Made) -> KTable<Value, Value> {
    let pair = |a: Option<Value>, b: Option<Value>| Value::Array(vec![a.unwrap_or(Value::Null), b.unwrap_or(Value::Null)]);
    let met = match kind {
        Kind::Inner => this.join(other, move |_, a, b| pair(Some(a), Some(b))),
        Kind::Left => this.left_join(other, move |_, a, b| pair(Some(a), b)),
        Kind::Outer => this.outer_join(other, move |_, a, b| pair(a, b)),
    };
    met.map_values_by(move |k, pair| made.of_named(&[("key", k), ("value", &pair[0]), ("table", &pair[1])]))
}

/// Entries folded by another key.
fn group(table: &KTable<Value, Value>, node: &Node, name: &Name, how: How, d: &mut Diagnostics) -> Option<Named> {
    let fields = shape_state::TABLE_GROUP.read(node, d)?;
    let key = Format::read(&fields, "key", Format::Text, d);
    let by = fields.get("by").and_then(|n| Expr::compile(n, ENTRY, &format!("{}.by", name.text), d));
    let fold = Folded::read(&fields, name, d);
    let (by, fold) = (by?, fold?);
    let grouped = table.group_with(
        move |k, v| Ok((by.of_named(&[("key", k), ("value", &v)])?, v)),
        Grouped::with(key.keys(), Serdes::json::<Value>()),
    );
    let store = NamedStore::named(&name.text);
    let store = if how.memory { store.in_memory() } else { store };
    let store = if how.caching { store.with_caching_enabled() } else { store };
    Some((fold.of(&grouped, store), key))
}

/// How the entries of a group become one value.
enum Folded {
    Count,
    /// `from` is none where the first value is taken as it is.
    Values {
        from: Option<Value>,
        with: Made,
        without: Made,
    },
}

impl Folded {
    /// Exactly one of `count`, `reduce`, `aggregate`.
    fn read(fields: &Fields<'_>, name: &Name, d: &mut Diagnostics) -> Option<Self> {
        let place = |key: &str| format!("{}.{key}", name.text);
        match (fields.get("count"), fields.get("reduce"), fields.get("aggregate")) {
            (Some(node), None, None) => match node.boolean(d)? {
                true => Some(Folded::Count),
                false => {
                    d.error(codes::BAD_VALUE, &node.at, "`count: false` keeps nothing").label("leave it out, or write true");
                    None
                }
            },
            (None, Some(node), None) => {
                let folded = shape_state::TABLE_REDUCE.read(node, d)?;
                let [with, without] = ["with", "without"].map(|k| folded.get(k).and_then(|n| Made::compile(n, FOLD, &place(k), d)));
                Some(Folded::Values { from: None, with: with?, without: without? })
            }
            (None, None, Some(node)) => {
                let folded = shape_state::TABLE_AGGREGATE.read(node, d)?;
                let from = folded.get("from").and_then(|n| beginning(n, &place("from"), d));
                let [with, without] = ["with", "without"].map(|k| folded.get(k).and_then(|n| Made::compile(n, FOLD, &place(k), d)));
                Some(Folded::Values { from: Some(from?), with: with?, without: without? })
            }
            _ => {
                let what = "a group of a table's entries needs exactly one of `count: true`, `reduce`, `aggregate`";
                d.error(codes::MISSING_KEY, &fields.node.at, what);
                None
            }
        }
    }

    fn of(self, grouped: &KGroupedTable<Value, Value>, store: NamedStore) -> KTable<Value, Value> {
        let number = |n: Option<Value>| n.as_ref().and_then(Value::as_i64).unwrap_or(0);
        match self {
            Folded::Count => grouped.fold_by(
                store,
                Serdes::json(),
                move |_, _, n| Ok(Some(json!(number(n) + 1))),
                move |_, _, n| Ok(Some(json!(number(Some(n)) - 1))),
            ),
            Folded::Values { from, with, without } => grouped.fold_by(
                store,
                Serdes::json(),
                move |k, v, sum| match sum.or_else(|| from.clone()) {
                    Some(sum) => turned(&with, k, &v, &sum),
                    None => Ok(Some(v)),
                },
                move |k, v, sum| turned(&without, k, &v, &sum),
            ),
        }
    }
}

/// A group's value after an entry came or went; null is none.
fn turned(made: &Made, key: &Value, value: &Value, sum: &Value) -> Result<Option<Value>, Error> {
    let new = made.of_named(&[("key", key), ("value", value), ("aggregate", sum)])?;
    Ok((!new.is_null()).then_some(new))
}
