//! Keys of the steps that keep something: tables of tables, cogroups, suppressions, repartitions.

use crate::config::yaml::{Key, Shape, Type};

use super::shape::{FORMATS, VALUE, WINDOW};

pub(super) static KEPT: Shape = Shape {
    name: "Kept",
    doc: "The newest value of each key of a stream; or, from a table, another table: filtered, mapped, joined or grouped anew.",
    keys: &[
        Key::new("key", FORMATS, "how keys are written in the store and on the way there; default string"),
        MEMORY,
        CACHED,
        Key::new(
            "filter",
            Type::Expression,
            "from a table: keeps entries for which this holds, over key and value; others are as if deleted",
        ),
        Key::new("value", VALUE, "from a table: another value for each entry, over key and value"),
        Key::new("join", Type::Map(&TABLE_JOIN), "from a table: each entry with that of another table"),
        Key::new(
            "group",
            Type::Map(&TABLE_GROUP),
            "from a table: entries folded by another key, and taken out again when they change",
        ),
        Key::new("materialized", Type::Boolean, "from a table: keeps the result in a store of its own, named after the step"),
    ],
};

pub(super) static TABLE_JOIN: Shape = Shape {
    name: "TableJoin",
    doc: "A table joined with another by its key, or, with `by`, by a key that stands in its values.",
    keys: &[
        Key::required("table", Type::Text, "the other table"),
        Key::new("by", Type::Expression, "the other table's key, over key and value; null names none; default the key of both"),
        Key::new(
            "kind",
            Type::Word(&["inner", "left", "outer"]),
            "inner has entries that both have; left all of this table; outer, by the key of both, all of either; default inner",
        ),
        Key::required("value", VALUE, "the joined value, over key, value and table; null is what is not there"),
    ],
};

pub(super) static TABLE_GROUP: Shape = Shape {
    name: "TableGroup",
    doc: "A table's entries folded by another key: exactly one of count, reduce, aggregate.",
    keys: &[
        Key::required("by", Type::Expression, "the group's key, over key and value"),
        Key::new("key", FORMATS, "how the groups' keys are written in the store and on the way there; default string"),
        Key::new("count", Type::Boolean, "how many entries; a group that lost its last one keeps its zero"),
        Key::new("reduce", Type::Map(&TABLE_REDUCE), "one of the entries' own values; the first is taken as it is"),
        Key::new("aggregate", Type::Map(&TABLE_AGGREGATE), "a value of another shape"),
    ],
};

pub(super) static TABLE_REDUCE: Shape = Shape {
    name: "TableReduce",
    doc: "How values of a group become one of their kind: `with` takes one in, `without` takes it out again. Null deletes the group.",
    keys: &[
        Key::required("with", VALUE, "the value with one more entry, over key, value, aggregate"),
        Key::required("without", VALUE, "the value without an entry that changed or went, over key, value, aggregate"),
    ],
};

pub(super) static TABLE_AGGREGATE: Shape = Shape {
    name: "TableAggregate",
    doc: "How a group of entries is folded: `with` takes one in, `without` takes it out again. Null deletes the group.",
    keys: &[
        Key::required("from", VALUE, "what a group begins with"),
        Key::required("with", VALUE, "the aggregate with one more entry, over key, value, aggregate"),
        Key::required("without", VALUE, "the aggregate without an entry that changed or went, over key, value, aggregate"),
    ],
};

/// What a group and a cogroup have in common.
pub(super) const CUT: Key =
    Key::new("window", Type::Map(&WINDOW), "cuts each group by time; then the key is an object of key, start, end");
pub(super) const EMIT: Key = Key::new(
    "emit",
    Type::Word(&["update", "close"]),
    "when windows are told: at each change, or once when closed; default update",
);
pub(super) const MEMORY: Key =
    Key::new("memory", Type::Boolean, "keeps the store in memory only; it is restored from its changelog at each start");
pub(super) const CACHED: Key =
    Key::new("caching", Type::Boolean, "changes of one key within a transaction are passed on and logged as one; default false");
pub(super) const KEPT_FOR: Key = Key::new("retention", Type::Duration, "how long windows are kept; never shorter than they need");

pub(super) static COGROUP: Shape = Shape {
    name: "Cogroup",
    doc: "One aggregate over this stream and others.",
    keys: &[
        Key::required("streams", Type::Named(&Type::Map(&COGROUPED)), "the streams, by name: that of `from`, and others"),
        Key::required("init", VALUE, "what a group begins with"),
        Key::new("merge", VALUE, "one of two sessions that became one, over key, left, right; for sessions only"),
        Key::new("key", FORMATS, "how keys are written in the store and on the way there; default string"),
        CUT,
        EMIT,
        MEMORY,
        CACHED,
        KEPT_FOR,
    ],
};

pub(super) static COGROUPED: Shape = Shape {
    name: "Cogrouped",
    doc: "What the records of one stream do to the aggregate.",
    keys: &[
        Key::new("by", Type::Expression, "another key to group by"),
        Key::required("with", VALUE, "the aggregate with one more record, over key, value, aggregate"),
    ],
};

pub(super) static SUPPRESS: Shape = Shape {
    name: "Suppress",
    doc: "Holds changes of a table back: exactly one of until_window_closes, until_time_limit.",
    keys: &[
        Key::new("until_window_closes", Type::Boolean, "one result a window, once no record can change it any more"),
        Key::new("until_time_limit", Type::Duration, "one change a key in each such time, counted from the first held back"),
        Key::new("max_records", Type::Integer, "at most this many keys; default no limit: they lie on disk"),
        Key::new("max_bytes", Type::Size, "at most this many bytes of keys and values; default no limit"),
        Key::new(
            "when_full",
            Type::Word(&["emit_early", "shut_down"]),
            "with a limit: whether the oldest are passed on before their time, or the application stops",
        ),
        Key::new(
            "memory",
            Type::Boolean,
            "keeps what is held back in memory only; it is restored from its changelog at each start",
        ),
    ],
};

pub(super) static REPARTITION: Shape = Shape {
    name: "Repartition",
    doc: "Through a topic of the application's own, partitioned by key anew.",
    keys: &[
        Key::new("partitions", Type::Integer, "how many; default as many as the topics that feed it"),
        Key::new("key", FORMATS, "how keys are written there; default string"),
    ],
};
