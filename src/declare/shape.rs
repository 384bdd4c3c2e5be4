//! The keys of a topology file: one table that checks it and becomes `schemas/topology.schema.json`.

use crate::config::yaml::{Key, Shape, Type, json_schema};

use super::shape_state::{CACHED, COGROUP, CUT, EMIT, KEPT, KEPT_FOR, MEMORY, REPARTITION, SUPPRESS};

/// The JSON Schema of topology files, for editors.
pub fn schema() -> String {
    json_schema(concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/schemas/topology.schema.json"), &TOPOLOGY)
}

pub(super) const FORMATS: Type = Type::Word(&["string", "json", "avro", "long", "bytes"]);

pub(super) static TOPOLOGY: Shape = Shape {
    name: "Topology",
    doc: "Sources, steps and where results go.",
    keys: &[
        Key::required("application", Type::Text, "consumer group and prefix of internal topics"),
        Key::new("version", Type::Integer, "the author's version of this file"),
        Key::required("sources", Type::Named(&Type::Map(&SOURCE)), "topics that are read, by a name of their own"),
        Key::new("tables", Type::Named(&Type::Map(&TABLE)), "topics whose newest value of each key is kept, to join with"),
        Key::new(
            "global_tables",
            Type::Named(&Type::Map(&TABLE)),
            "topics that every process holds whole, to join with by any key; read beside the streams, not in step with them",
        ),
        Key::required("steps", Type::List(&Type::Map(&STEP)), "what happens to records, top-down"),
        Key::new("results", Type::Text, "topic for every change of every operation, with its ack level"),
        Key::new("dead_letters", Type::Text, "topic for records that can't be used, as they came, with the reason in headers"),
    ],
};

pub(super) static SOURCE: Shape = Shape {
    name: "Source",
    doc: "A topic that is read.",
    keys: &[
        Key::required("topic", Type::Text, "the topic; it keeps its own schema"),
        Key::new("key", FORMATS, "how keys are read; default string"),
        Key::required("value", FORMATS, "how values are read; avro finds the schema by id in the registry"),
        Key::new(
            "timestamp",
            Type::Expression,
            "the time of each record, over key, value, headers: RFC 3339 text or milliseconds; default its own",
        ),
        Key::new(
            "on_bad_time",
            Type::Word(&["dead_letter", "skip", "partition_time"]),
            "with timestamp: what becomes of a record whose time can't be told; partition_time is the largest so far; default dead_letter",
        ),
        Key::new("wall_clock", Type::Boolean, "records have the time when they are read"),
        Key::new("schema", Type::Word(&["readback/work-request", "readback/approval"]), "records are requests or approvals"),
    ],
};

pub(super) static TABLE: Shape = Shape {
    name: "Table",
    doc: "A topic whose newest value of each key is kept; null deletes.",
    keys: &[
        Key::required("topic", Type::Text, "the topic"),
        Key::new("key", FORMATS, "how keys are read; default string"),
        Key::required("value", FORMATS, "how values are read"),
        Key::new("memory", Type::Boolean, "keeps the store in memory only; it is restored at each start"),
        CACHED,
    ],
};

pub(super) static STEP: Shape = Shape {
    name: "Step",
    doc: "One step: a name, where its records come from, and exactly one of the kinds.",
    keys: &[
        Key::required("name", Type::Text, "its name; part of stored state and of each operation's identity"),
        Key::required("from", Type::Text, "a source, a step, or `step.way` of a branch"),
        Key::new("filter", Type::Expression, "keeps records for which this holds"),
        Key::new("map", Type::Map(&MAP), "another key or value"),
        Key::new("branch", Type::Named(&Type::Expression), "ways with a condition each; a record takes the first that holds"),
        Key::new("flat_map", Type::Expression, "a list; each of its items becomes a record of its own"),
        Key::new("merge", Type::List(&Type::Text), "takes the records of these in, too"),
        Key::new("group", Type::Map(&GROUP), "folds the records of each key into one value, over all time or in windows"),
        Key::new("cogroup", Type::Map(&COGROUP), "folds the records of several streams into one value of each key"),
        Key::new("table", Type::Map(&KEPT), "keeps the newest value of each key, to join with; or makes another table of a table"),
        Key::new("suppress", Type::Map(&SUPPRESS), "holds changes of a table or group back: until windows close, or for a time"),
        Key::new("repartition", Type::Map(&REPARTITION), "goes through a topic of its own, partitioned by key anew"),
        Key::new("join", Type::Map(&JOIN), "meets a table's value of its key, or records of another stream that are close in time"),
        Key::new("to", Type::Map(&SINK), "writes a topic"),
        Key::new("admit", Type::Map(&ADMIT), "takes requests: identity, limits, budgets"),
        Key::new("plan", Type::Map(&PLAN), "asks a model for a proposal"),
        Key::new("gate", Type::Map(&GATE), "waits for an approval where one is required"),
        Key::new("effect", Type::Map(&EFFECT), "does something outside Kafka, under a contract"),
    ],
};

pub(super) static MAP: Shape = Shape {
    name: "Map",
    doc: "A new key, a new value, or both. Expressions see key, value, headers, record.",
    keys: &[
        Key::new("key", Type::Expression, "the new key"),
        Key::new("value", VALUE, "the new value: one expression, or one for each member"),
    ],
};

pub(super) static JOIN: Shape = Shape {
    name: "Join",
    doc: "Meets a table's value of the record's key, or records of another stream with its key and a time close to its own. Exactly one of table, global, stream.",
    keys: &[
        Key::new("table", Type::Text, "the table"),
        Key::new("global", Type::Text, "the global table"),
        Key::new("by", Type::Expression, "the key to look under in a global table; null finds nothing; default the record's key"),
        Key::new("stream", Type::Text, "the other stream, which has as many partitions"),
        Key::new("within", Type::Duration, "how far the times of a pair of records may lie apart"),
        Key::new("before", Type::Duration, "how much earlier the other may be; default within"),
        Key::new("after", Type::Duration, "how much later the other may be; default within"),
        Key::new("grace", Type::Duration, "how long late records are waited for; default none"),
        Key::new("key", FORMATS, "how keys of joined streams are written in stores and on the way there; default string"),
        Key::new(
            "kind",
            Type::Word(&["inner", "left", "outer"]),
            "inner drops what meets nobody; left keeps this stream's; outer, of streams, keeps both; default inner",
        ),
        Key::required("value", VALUE, "the new value, over key, value and table or other; null is who was not met"),
    ],
};

pub(super) const VALUE: Type = Type::Either(&[Type::Expression, Type::Named(&Type::Expression)]);

pub(super) static GROUP: Shape = Shape {
    name: "Group",
    doc: "Records of each key folded into one value: exactly one of count, reduce, aggregate.",
    keys: &[
        Key::new("by", Type::Expression, "another key to group by"),
        Key::new("key", FORMATS, "how keys are written in the store and on the way there; default string"),
        Key::new("count", Type::Boolean, "how many records"),
        Key::new(
            "reduce",
            Type::Expression,
            "the aggregate with one more value, over key, value, aggregate; the first is taken as it is",
        ),
        Key::new("aggregate", Type::Map(&AGGREGATE), "a value of another shape"),
        CUT,
        EMIT,
        MEMORY,
        CACHED,
        KEPT_FOR,
    ],
};

pub(super) static AGGREGATE: Shape = Shape {
    name: "Aggregate",
    doc: "How a group is folded into a value of another shape.",
    keys: &[
        Key::required("from", VALUE, "what a group begins with"),
        Key::required("with", VALUE, "the aggregate with one more record, over key, value, aggregate"),
        Key::new("merge", VALUE, "one of two sessions that became one, over key, left, right; for sessions only"),
    ],
};

pub(super) static WINDOW: Shape = Shape {
    name: "Window",
    doc: "Exactly one of size, sliding, session, unlimited.",
    keys: &[
        Key::new("size", Type::Duration, "windows of a grid, this long"),
        Key::new("advance", Type::Duration, "one begins every so long; default size"),
        Key::new("sliding", Type::Duration, "windows around records, times at most this far apart"),
        Key::new("session", Type::Duration, "sessions that end after this long without a record"),
        Key::new("unlimited", Type::Boolean, "one window for each key, which never ends"),
        Key::new("start", Type::Text, "with unlimited: where it begins, RFC 3339; earlier records are in none; default 1970"),
        Key::new("grace", Type::Duration, "how long late records are waited for; default none"),
    ],
};

pub(super) static SINK: Shape = Shape {
    name: "Sink",
    doc: "A topic that is written.",
    keys: &[
        Key::new("topic", Type::Text, "the topic; this or `topic_of`"),
        Key::new("topic_of", Type::Expression, "the topic of each record; the topics must exist"),
        Key::new("key", FORMATS, "how keys are written; default string"),
        Key::new("value", FORMATS, "how values are written; default json"),
        Key::new(
            "partition",
            Type::Expression,
            "the number of the partition of each record, over key, value, headers, record, partitions (how many the topic has); null leaves it to the key",
        ),
        Key::new(
            "partition_by",
            Type::Expression,
            "another key, written as keys are, that says the partition of each record; null leaves it to its own",
        ),
    ],
};

pub(super) static REQUEST: Shape = Shape {
    name: "Request",
    doc: "The request envelope, mapped from the record by expressions over key, value, headers, record.",
    keys: &[
        Key::required("operation_id", Type::Expression, "the intent's ID: the same each time this intent comes again"),
        Key::required("tenant", Type::Expression, "whose work"),
        Key::new("requester", Type::Expression, "who asks; default service:<application>"),
        Key::required("resource", Type::Expression, "what it acts on"),
        Key::new("resource_version", Type::Expression, "the version of the resource that was seen"),
        Key::new("action", Type::Expression, "what is to be done; default the contract's call"),
        Key::required("deadline", Type::Expression, "after this no first send; from the content, never from arrival"),
        Key::new("required_permissions", Type::Expression, "a list of permissions that policy is asked for"),
    ],
};

pub(super) static ADMIT: Shape = Shape {
    name: "Admit",
    doc: "What admission checks.",
    keys: &[
        Key::new("request", Type::Map(&REQUEST), "the envelope, where the source does not carry one"),
        Key::new("remember", Type::Duration, "how long a repeated operation ID is recognised; default 7d"),
        Key::new("input", Type::Map(&INPUT), "limits of the input"),
        Key::new("budget", Type::List(&Type::Map(&BUDGET)), "cost limits"),
    ],
};

pub(super) static INPUT: Shape = Shape {
    name: "Input",
    doc: "Limits of a request's input.",
    keys: &[
        Key::new("max", Type::Size, "largest input; default 256 KB"),
        Key::new("types", Type::List(&Type::Text), "media types that are taken; default all"),
        Key::new("hosts", Type::List(&Type::Text), "hosts that inputs may be fetched from by locator; default none"),
    ],
};

pub(super) static BUDGET: Shape = Shape {
    name: "Budget",
    doc: "So much of a cost in so long.",
    keys: &[
        Key::required("per", Type::Word(&["tenant"]), "whose budget"),
        Key::new("tokens", Type::Rate, "model tokens, such as 2M/day"),
        Key::new("bytes", Type::Rate, "bytes moved"),
        Key::new("calls", Type::Rate, "calls of tools or targets, such as 500/hour"),
    ],
};

pub(super) static PLAN: Shape = Shape {
    name: "Plan",
    doc: "A model call whose answer is a proposal: typed, limited, hashed, never a command.",
    keys: &[
        Key::required("contract", Type::Text, "the model's contract and call: contracts/model.yaml#chat"),
        Key::required("prompt", Type::Text, "a file; its name is the prompt's version"),
        Key::required("proposal", Type::Text, "a file with the JSON Schema of what may be proposed; all else is refused"),
        Key::new("max", Type::Size, "largest proposal; default 16 KB"),
        Key::new(
            "parameters",
            Type::Named(&Type::Expression),
            "parameters of the call, over request and input; default prompt and input",
        ),
    ],
};

pub(super) static GATE: Shape = Shape {
    name: "Gate",
    doc: "The approval.",
    keys: &[
        Key::required("approvals", Type::Text, "the source of approvals"),
        Key::new("required", Type::Expression, "whether this plan needs one, over plan, request, input; default true"),
        Key::new("expires", Type::Duration, "how long it is waited for, and the longest validity of an approval; default 30m"),
        Key::new("other_than_requester", Type::Boolean, "whether the approver must be another than the requester; default true"),
    ],
};

pub(super) static EFFECT: Shape = Shape {
    name: "Effect",
    doc: "The border to what lies outside Kafka.",
    keys: &[
        Key::new("contract", Type::Text, "the target's contract and call: contracts/orders.yaml#create; this or `tools`"),
        Key::new(
            "tools",
            Type::Named(&Type::Map(&TOOL)),
            "what a proposal may call, by name: several calls in one plan, approved as a whole",
        ),
        Key::new(
            "calls",
            Type::Expression,
            "with tools: the list of {id, tool, arguments, needs}, over plan, request, input; default plan.calls",
        ),
        Key::new("max_calls", Type::Integer, "with tools: how many calls one plan may have, 32 at most; default 8"),
        Key::new(
            "on_partial",
            Type::Word(&["leave", "compensate"]),
            "with tools: what becomes of what was done of a plan that can't be whole; default leave",
        ),
        Key::new("policy", Type::Text, "a file of Cedar policies, asked at authorize and before every send"),
        Key::new("request", Type::Map(&REQUEST), "the envelope, where no admit step stands before"),
        Key::new("parameters", Type::Named(&Type::Expression), "typed by the contract; nothing else reaches the wire"),
        Key::new("order_by", Type::Expression, "what orders effects among each other; default the operation"),
        Key::new("remember", Type::Duration, "how long a repeated operation ID is recognised; default 7d"),
        Key::new("duplicates", Type::Map(&DUPLICATES), "what means the same as an earlier operation waits for a person"),
    ],
};

pub(super) static TOOL: Shape = Shape {
    name: "Tool",
    doc: "One call that a proposal may name. Each becomes an operation of its own, `<id>.<n>`.",
    keys: &[
        Key::required("contract", Type::Text, "the target's contract and call: contracts/travel.yaml#book"),
        Key::new(
            "parameters",
            Type::Named(&Type::Expression),
            "typed by the contract, over arguments, plan, request, input; default the arguments as they are",
        ),
        Key::new("order_by", Type::Expression, "what orders calls of one target among each other; default the call"),
    ],
};

pub(super) static DUPLICATES: Shape = Shape {
    name: "Duplicates",
    doc: "Operations that mean the same: same tenant, resource, action, call and normalised arguments under another operation ID.",
    keys: &[
        Key::required(
            "within",
            Type::Duration,
            "how long after its end the earlier one counts; while it is under way it always does",
        ),
        Key::new("by", Type::Named(&Type::Expression), "the arguments that are compared; default all parameters of the call"),
        Key::new("wait", Type::Duration, "how long a person is waited for, where there is no gate; default 30m"),
    ],
};

#[cfg(test)]
mod tests {
    /// If this broke, editors would check topologies against keys that the product no longer has. To renew:
    /// `READBACK_WRITE_SCHEMAS=1 cargo test --lib declare::shape`.
    #[test]
    fn the_committed_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/topology.schema.json");
        if std::env::var_os("READBACK_WRITE_SCHEMAS").is_some() {
            std::fs::write(path, super::schema()).expect("schemas/ is writable");
        }
        assert_eq!(std::fs::read_to_string(path).expect("committed"), super::schema());
    }
}
