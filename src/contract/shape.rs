//! The keys of a contract file: one table that checks it and becomes `schemas/contract.schema.json`.

use crate::config::yaml::{Key, Shape, Type, json_schema};

/// The JSON Schema of contract files, for editors.
pub fn schema() -> String {
    json_schema(concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/schemas/contract.schema.json"), &CONTRACT)
}

pub(super) static CONTRACT: Shape = Shape {
    name: "Contract",
    doc: "What one target API can prove.",
    keys: &[
        Key::required("contract", Type::Text, "the contract's name: `orders` of `orders#create`"),
        Key::required("version", Type::Integer, "raised with every change; an operation keeps the version of its intent"),
        Key::required("verified_on", Type::Text, "the day someone last compared this with the real API, YYYY-MM-DD"),
        Key::required("target", Type::Map(&TARGET), "where the target is"),
        Key::required("calls", Type::Named(&Type::Map(&CALL)), "the calls, by name"),
    ],
};

pub(super) static TARGET: Shape = Shape {
    name: "Target",
    doc: "Where the target is and how it is spoken to.",
    keys: &[
        Key::required("base_url", Type::Text, "scheme, host and port: https://orders.internal"),
        Key::required("hosts", Type::List(&Type::Text), "hosts that may be called; nothing is sent to any other"),
        Key::new("private", Type::Boolean, "whether private and loopback addresses may be called; default false"),
        Key::new(
            "protocol",
            Type::Word(&["http1", "http2", "auto"]),
            "HTTP/1.1, HTTP/2 (without TLS by prior knowledge), or what the target chooses over TLS for calls with dedupe or a fence; \
             default http1",
        ),
        Key::new(
            "intermediaries",
            Type::Word(&["none", "possible"]),
            "whether a proxy that may copy or retry requests stands before the target; default possible",
        ),
        Key::new("credentials", Type::List(&Type::Map(&CREDENTIALS)), "headers that hold secrets, read when a call is sent"),
    ],
};

pub(super) static CREDENTIALS: Shape = Shape {
    name: "Credentials",
    doc: "A header whose value holds a secret.",
    keys: &[
        Key::required("header", Type::Text, "the header's name"),
        Key::new("prefix", Type::Text, "what stands before the secret: `Bearer `"),
        Key::required("secret", Type::Secret, "where the secret is"),
    ],
};

pub(super) static CALL: Shape = Shape {
    name: "Call",
    doc: "One call and what it can prove.",
    keys: &[
        Key::new("parameters", Type::Named(&Type::Map(&PARAMETER)), "the typed parameters; nothing else reaches the wire"),
        Key::required("request", Type::Map(&REQUEST), "the request"),
        Key::new("key", Type::Either(&[Type::Word(&["none"]), Type::Map(&KEY)]), "the operation's key on the wire; default none"),
        Key::new(
            "dedupe",
            Type::Either(&[Type::Word(&["none"]), Type::Map(&DEDUPE)]),
            "what the target does with a key it has seen; default none",
        ),
        Key::new("fence", Type::Map(&FENCE), "what the target refuses by itself: a second thing under an ID, or an old request"),
        Key::new("precondition", Type::Map(&PRECONDITION), "the resource must still stand at the version that the requester saw"),
        Key::new("confirm", Type::Word(&["readback", "answer"]), "what confirms an effect; default readback where one is declared"),
        Key::new("readback", Type::Map(&READBACK), "how the effect is read back"),
        Key::new(
            "in_flight",
            Type::Either(&[Type::Word(&["unbounded"]), Type::Map(&IN_FLIGHT)]),
            "L: how long a request may still arrive; default unbounded",
        ),
        Key::required("answers", Type::List(&Type::Map(&ANSWER)), "first match wins; everything else is unknown"),
        Key::new(
            "completion",
            Type::Word(&["sync", "poll", "webhook"]),
            "whether an accepted call is done; `poll`: the readback tells; `webhook`: the target does; default sync",
        ),
        Key::new("webhook", Type::Map(&WEBHOOK), "how the target tells by itself how an accepted call ended"),
        Key::new(
            "compensate",
            Type::Map(&COMPENSATE),
            "the call that undoes an effect which was cancelled too late, or whose plan is undone",
        ),
        Key::new("proposal", Type::Map(&PROPOSAL), "the answer is a proposal: asked again freely, cost counted"),
        Key::new("policy", Type::Map(&POLICY), "limits"),
        Key::new("person", Type::Map(&PERSON), "what a person looks at who must decide"),
    ],
};

pub(super) static PARAMETER: Shape = Shape {
    name: "Parameter",
    doc: "A typed parameter.",
    keys: &[
        Key::required("type", Type::Word(&["string", "integer", "number", "boolean", "enum", "json"]), "its type"),
        Key::new("pattern", Type::Text, "string: a regular expression that the whole value must match"),
        Key::new("max_length", Type::Integer, "string: most characters; default 1024"),
        Key::new("max_bytes", Type::Size, "json: most bytes; default 16 KB"),
        Key::new("min", Type::Number, "integer, number: the least value"),
        Key::new("max", Type::Number, "integer, number: the greatest value"),
        Key::new("values", Type::List(&Type::Text), "enum: the values"),
        Key::new("optional", Type::Boolean, "whether it may be left out; default false"),
    ],
};

pub(super) static REQUEST: Shape = Shape {
    name: "Request",
    doc: "A request; `{name}` stands for a parameter, `{key}` for the key, `{resource_version}` for the version that was seen.",
    keys: &[
        Key::required("method", Type::Word(&["GET", "POST", "PUT", "PATCH", "DELETE"]), "the method"),
        Key::required("path", Type::Text, "the path"),
        Key::new("query", Type::Named(&Type::Text), "query parameters"),
        Key::new("headers", Type::Named(&Type::Text), "headers, without secrets"),
        Key::new("json", Type::Any, "a JSON body; a text that is exactly one placeholder keeps the value's type"),
    ],
};

pub(super) static KEY: Shape = Shape {
    name: "Key",
    doc: "The operation's key, derived from tenant and operation.",
    keys: &[
        Key::required("carrier", Type::Word(&["body", "url", "header"]), "where it goes; in body and url by the placeholder {key}"),
        Key::new("name", Type::Text, "header: its name"),
        Key::new("format", Type::Word(&["uuid", "hex"]), "its shape; default uuid"),
        Key::new("length", Type::Integer, "hex: how many characters, 16 to 64; default 32"),
    ],
};

pub(super) static DEDUPE: Shape = Shape {
    name: "Dedupe",
    doc: "The target does nothing the second time it sees a key.",
    keys: &[
        Key::required("window", Type::Text, "R: how long it remembers a key: a duration, or forever"),
        Key::new("from", Type::Word(&["first_use"]), "what the window counts from"),
        Key::new("scope", Type::Word(&["account", "endpoint"]), "within what a key is one"),
        Key::new("other_body", Type::Integer, "the status for a known key with another body"),
        Key::new("while_running", Type::Integer, "the status while the first call is running"),
    ],
};

pub(super) static FENCE: Shape = Shape {
    name: "Fence",
    doc: "What the target refuses by itself, so that a copy of a request is no second effect. One of the two.",
    keys: &[
        Key::new(
            "create",
            Type::Map(&FENCE_CREATE),
            "the key is the ID of what is made, and the target makes one thing under an ID",
        ),
        Key::new("age", Type::Map(&FENCE_AGE), "each attempt carries its time, and the target refuses it beyond an age"),
    ],
};

pub(super) static FENCE_CREATE: Shape = Shape {
    name: "FenceCreate",
    doc: "A conditional create: a second one under the same ID is refused for ever, and read back.",
    keys: &[Key::required("exists", Type::List(&Type::Integer), "the statuses that say that the ID is taken: 409, 412")],
};

pub(super) static FENCE_AGE: Shape = Shape {
    name: "FenceAge",
    doc: "The target compares the time that an attempt carries with its own clock.",
    keys: &[
        Key::required("within", Type::Duration, "beyond this age a request is refused"),
        Key::required("header", Type::Text, "the header that carries the time when the attempt was journalled"),
        Key::new(
            "format",
            Type::Word(&["unix", "http_date", "rfc3339"]),
            "how it is written; default unix: whole seconds since 1970",
        ),
        Key::required("refused", Type::List(&Type::Integer), "the statuses that say: too old, nothing done"),
        Key::new("sign", Type::Map(&FENCE_SIGN), "a signature over the time and the request, made when an attempt leaves"),
    ],
};

pub(super) static FENCE_SIGN: Shape = Shape {
    name: "FenceSign",
    doc: "HMAC-SHA-256, so that the target knows whose the time is.",
    keys: &[
        Key::required("header", Type::Text, "the header that carries the signature"),
        Key::required(
            "over",
            Type::Text,
            "what is signed: a text with {stamp}, {key}, {method}, {path} (with the query) and {body}",
        ),
        Key::required("secret", Type::Secret, "where the secret is"),
        Key::new("encoding", Type::Word(&["hex", "base64"]), "how it is written; default hex"),
        Key::new("prefix", Type::Text, "what stands before it: v1="),
    ],
};

pub(super) static PRECONDITION: Shape = Shape {
    name: "Precondition",
    doc: "The resource must still stand at the version that the requester saw. The target compares it where the request carries \
          {resource_version}, and we read it before each send where `read` is given.",
    keys: &[
        Key::new("never_reused", Type::Boolean, "the target never uses a version again: a second copy is refused; default false"),
        Key::new("read", Type::Map(&VERSION_READ), "how the version is read before each send"),
    ],
};

pub(super) static VERSION_READ: Shape = Shape {
    name: "VersionRead",
    doc: "How the version of the resource is read.",
    keys: &[
        Key::required("request", Type::Map(&REQUEST), "the question; sees the parameters"),
        Key::required("version", Type::Expression, "the version in a 200: headers.etag; the quotes of an ETag don't count"),
        Key::new("absent", Type::List(&Type::Integer), "statuses that say that the resource is not there"),
    ],
};

pub(super) static READBACK: Shape = Shape {
    name: "Readback",
    doc: "How an effect is read back. Expressions see status, headers, body, key and the parameters.",
    keys: &[
        Key::required("request", Type::Map(&REQUEST), "the question; {page} is the next page's token"),
        Key::required("complete", Type::Expression, "whether this answer, with the pages before it, lists everything"),
        Key::required("ours", Type::Expression, "what is ours: a list, one object, or true; must compare the key"),
        Key::new("same_key", Type::Expression, "what holds our key, with whatever content: shows a conflict"),
        Key::new("next", Type::Expression, "the token of the next page, or null"),
        Key::new("absent", Type::List(&Type::Integer), "statuses that say that nothing is there, where the path holds the key"),
        Key::new("evidence", Type::Expression, "the target's reference of one of ours, as item: item.id"),
        Key::new("pages", Type::Integer, "most pages that are followed; default 20"),
        Key::required("lag", Type::Duration, "V: an effect shows at most this long after it exists"),
    ],
};

pub(super) static IN_FLIGHT: Shape = Shape {
    name: "InFlight",
    doc: "L: how long a request may still arrive after its last byte left us.",
    keys: &[
        Key::required("bound", Type::Duration, "the bound"),
        Key::required("because", Type::Text, "why it holds: published, measured, contractual"),
    ],
};

pub(super) static ANSWER: Shape = Shape {
    name: "Answer",
    doc: "What an answer means.",
    keys: &[
        Key::required("status", Type::List(&Type::Text), "a status, several, or a range such as 500-599"),
        Key::new("when", Type::Expression, "a condition over status, headers and body"),
        Key::required(
            "means",
            Type::Word(&[
                "applied",
                "not_applied",
                "in_progress",
                "key_conflict",
                "precondition_failed",
                "rejected",
                "retry_later",
                "unknown",
            ]),
            "what it means",
        ),
        Key::new("evidence", Type::Expression, "the target's reference in the answer; without it the answer is unknown"),
    ],
};

pub(super) static WEBHOOK: Shape = Shape {
    name: "Webhook",
    doc: "What the target posts to us when it is done. Expressions see the body, which is what is signed.",
    keys: &[
        Key::required("path", Type::Text, "where on `webhooks.listen`: /webhooks/payments"),
        Key::required(
            "signature",
            Type::Word(&["stripe", "github", "standard"]),
            "how it is signed: HMAC-SHA-256, in one of three forms",
        ),
        Key::new("header", Type::Text, "the header with the signature; default that of the form"),
        Key::required("secret", Type::Secret, "where the secret is"),
        Key::new("tolerance", Type::Duration, "how far its time may lie from ours; default 5m"),
        Key::required("key", Type::Expression, "the operation's key in the body"),
        Key::required("means", Type::List(&Type::Map(&WEBHOOK_MEANING)), "first match wins; everything else says nothing"),
        Key::required("within", Type::Duration, "how long after the call it may come"),
    ],
};

pub(super) static WEBHOOK_MEANING: Shape = Shape {
    name: "WebhookMeaning",
    doc: "What a webhook says.",
    keys: &[
        Key::required("when", Type::Expression, "a condition over the body"),
        Key::required("means", Type::Word(&["applied", "rejected"]), "that it happened, or that it never will"),
        Key::new("evidence", Type::Expression, "the target's reference in the body; without it the webhook is refused"),
    ],
};

pub(super) static COMPENSATE: Shape = Shape {
    name: "Compensate",
    doc: "The call that undoes an effect which was cancelled too late, or whose plan is undone. Its key is derived of this call's.",
    keys: &[
        Key::required("call", Type::Text, "a call of this contract"),
        Key::new(
            "parameters",
            Type::Named(&Type::Expression),
            "its parameters: expressions over evidence, key and this call's own",
        ),
        Key::new("deadline", Type::Duration, "how long it may be tried before a person must see to it; default 1h"),
    ],
};

pub(super) static PROPOSAL: Shape = Shape {
    name: "Proposal",
    doc: "What a proposal's answer holds.",
    keys: &[
        Key::required("body", Type::Expression, "the proposal's text"),
        Key::new("tokens", Type::Expression, "what it did cost in tokens"),
    ],
};

pub(super) static POLICY: Shape = Shape {
    name: "Policy",
    doc: "Limits of a call.",
    keys: &[
        Key::new("attempts", Type::Integer, "attempts per operation; default 5"),
        Key::new("concurrency", Type::Integer, "calls at once, in one process; default 32"),
        Key::new("connect", Type::Duration, "for name, connection and TLS; default 3s"),
        Key::new("deadline", Type::Duration, "the longest deadline that admission takes; default 15m"),
        Key::new("max_answer", Type::Size, "largest answer that is read; default 256 KB"),
        Key::new("order", Type::Word(&["block", "skip"]), "whether an operation behind a parked one waits; default block"),
        Key::new("readbacks", Type::Integer, "readbacks per operation before it is parked; default 20"),
        Key::new("timeout", Type::Duration, "a call's own limit from its first byte; default 10s"),
        Key::new("unknown_after", Type::Duration, "after this an unknown is parked; default 1h"),
        Key::new(
            "unprovable",
            Type::Word(&["person", "duplicates_accepted"]),
            "who decides where nothing proves the outcome; default person",
        ),
        Key::new("window", Type::Duration, "how long an attempt may wait between journal and first byte; default 5s"),
    ],
};

pub(super) static PERSON: Shape = Shape {
    name: "Person",
    doc: "What a person looks at who must decide.",
    keys: &[Key::required("look_at", Type::Text, "a link that shows the effect")],
};

#[cfg(test)]
mod tests {
    /// If this broke, editors would check contracts against keys that the product no longer has. To renew:
    /// `READBACK_WRITE_SCHEMAS=1 cargo test --lib contract::shape`.
    #[test]
    fn the_committed_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/contract.schema.json");
        if std::env::var_os("READBACK_WRITE_SCHEMAS").is_some() {
            std::fs::write(path, super::schema()).expect("schemas/ is writable");
        }
        assert_eq!(std::fs::read_to_string(path).expect("committed"), super::schema());
    }
}
