//! The keys of `readback.yaml`: one table that checks them and becomes `schemas/readback.schema.json`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::codes;
use crate::events::Tenants;

use super::net::Net;
use super::process::{GroupProtocol, GroupSection, OidcSection, ProcessConfig, RegistryConfig, TracesSection};
use super::security;
use super::units::{ByteSize, Span};
use super::yaml::{Diagnostics, Fields, Key, Node, Shape, Type, json_schema};

/// The JSON Schema of `readback.yaml`, for editors.
pub fn process_schema() -> String {
    json_schema(concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/schemas/readback.schema.json"), &PROCESS)
}

static PROCESS: Shape = Shape {
    name: "Process",
    doc: "How a process runs. What it runs is the topology's matter.",
    keys: &[
        Key::new("brokers", Type::Text, "bootstrap servers, host:port,host:port; default localhost:9092"),
        Key::new("registry", Type::Map(&REGISTRY), "the schema registry"),
        Key::new("security", Type::Map(&security::SECURITY), "how clients reach the brokers: TLS and login; default in the clear"),
        Key::new("kafka", Type::Named(&Type::Text), "raw client settings; those that the product owns are refused"),
        Key::new("state", Type::Map(&STATE), "stores on disk"),
        Key::new("threads", Type::Map(&THREADS), "threads a unit"),
        Key::new("slots", Type::Map(&SLOTS), "which slots this process takes"),
        Key::new("group", Type::Map(&GROUP), "group and transaction times"),
        Key::new("effects", Type::Map(&EFFECTS), "the effect stage"),
        Key::new("webhooks", Type::Map(&WEBHOOKS), "where targets post what became of their calls"),
        Key::new("admin", Type::Map(&ADMIN), "metrics and health"),
        Key::new("console", Type::Map(&CONSOLE), "who may sign in at the console"),
        Key::new("metrics", Type::Map(&METRICS), "what metrics tell apart"),
        Key::new("traces", Type::Map(&TRACES), "where traces go, and what is sampled"),
        Key::new("topics", Type::Map(&TOPICS), "topics at start"),
        Key::new("stop_within", Type::Duration, "longest time from SIGTERM to exit; default 20s"),
    ],
};

static REGISTRY: Shape = Shape {
    name: "Registry",
    doc: "The schema registry.",
    keys: &[
        Key::new("url", Type::Text, "http://host:port, with a path where the registry has one; empty or missing: none"),
        Key::new("username", Type::Text, "basic authentication: the user"),
        Key::new("password", Type::Secret, "basic authentication: the password, by reference"),
        Key::new("token", Type::Secret, "bearer token, by reference"),
        Key::new("ca", Type::Text, "file of certificates (PEM) that the registry's must go back to; default the system's"),
        Key::new("certificate", Type::Text, "file of our own certificate (PEM), where the registry asks for one"),
        Key::new("key", Type::Text, "file of its private key (PEM, not encrypted)"),
        Key::new("register", Type::Boolean, "register the results' schema where it is missing; default true"),
    ],
};

static STATE: Shape = Shape {
    name: "State",
    doc: "Stores on disk.",
    keys: &[
        Key::new("dir", Type::Text, "the state directory; each process takes a directory in it; default readback-state"),
        Key::new("cache", Type::Size, "block and object cache of all stores together; default 64 MB"),
        Key::new(
            "record_cache",
            Type::Size,
            "what steps with `caching` hold back until the commit, all threads together; default 10 MB",
        ),
        Key::new("standby", Type::Boolean, "keep copies of the stores that come here if another process is gone; default false"),
    ],
};

static THREADS: Shape = Shape {
    name: "Threads",
    doc: "Threads a unit. All processes of an application need the same.",
    keys: &[
        Key::new("stream", Type::Integer, "of the stream unit; default 1"),
        Key::new("effects", Type::Integer, "of the effect unit; default 1"),
    ],
};

static SLOTS: Shape = Shape {
    name: "Slots",
    doc: "Which slots this process takes.",
    keys: &[Key::new(
        "ordinal",
        Type::Integer,
        "slot = ordinal × threads + thread; default: the pod's or host's name, then the lock",
    )],
};

static GROUP: Shape = Shape {
    name: "Group",
    doc: "Group and transaction times.",
    keys: &[
        Key::new("protocol", Type::Text, "classic, or consumer (KIP-848) for units without stores and joins; default classic"),
        Key::new("session_timeout", Type::Duration, "a member that is silent for so long is expelled; default 15s"),
        Key::new("transaction_timeout", Type::Duration, "what an unfenced crash can block; below the session's; default 10s"),
        Key::new("commit_interval", Type::Duration, "a transaction is committed at the latest after this; default 100ms"),
    ],
};

static EFFECTS: Shape = Shape {
    name: "Effects",
    doc: "The effect stage.",
    keys: &[
        Key::new("clock_error", Type::Duration, "ε: declared wall-clock error of this host; default 250ms"),
        Key::new("max_pause", Type::Duration, "P: longest pause assumed between the last check and the first byte; default 2s"),
        Key::new("audit", Type::Duration, "how long closed ledger records are kept beyond close and deadline; default 30d"),
        Key::new("max_open", Type::Integer, "open operations of a partition before its outbox is left waiting; default 100000"),
        Key::new("key_secret", Type::Secret, "the key under which wire keys are derived, by reference"),
    ],
};

static WEBHOOKS: Shape = Shape {
    name: "Webhooks",
    doc: "Where targets post what became of their calls.",
    keys: &[Key::new(
        "listen",
        Type::Text,
        "host:port, behind a proxy that ends TLS; needed where a contract declares webhooks; default nowhere",
    )],
};

static ADMIN: Shape = Shape {
    name: "Admin",
    doc: "Metrics and health.",
    keys: &[
        Key::new("listen", Type::Text, "host:port; port 0 takes a free one, empty: nowhere; default 127.0.0.1:9464"),
        Key::new("stores", Type::Boolean, "answer queries of stores there too, to whoever can reach it; default false"),
        Key::new("console", Type::Boolean, "serve the console there, too; default false"),
        Key::new(
            "trusted_proxies",
            Type::Text,
            "addresses or networks (10.0.0.0/8) of proxies, with commas, whose X-Forwarded-For is believed; default none",
        ),
    ],
};

static CONSOLE: Shape = Shape {
    name: "Console",
    doc: "Who may sign in at the console.",
    keys: &[
        Key::new("tokens", Type::Text, "the file of tokens; default none: the console is read-only and stays on loopback"),
        Key::new("session", Type::Duration, "how long a session lasts; default 8h"),
        Key::new("session_secret", Type::Secret, "what sessions are signed with where several processes share them, by reference"),
        Key::new("oidc", Type::Map(&OIDC), "sign-in by an OpenID Connect issuer; default none"),
        Key::new(
            "members",
            Type::Text,
            "host:port of members' /metrics, with commas, whose calls are shown; all addresses of a name are asked; default none",
        ),
    ],
};

static OIDC: Shape = Shape {
    name: "Oidc",
    doc: "Sign-in by an OpenID Connect issuer.",
    keys: &[
        Key::required("issuer", Type::Text, "the issuer, exactly as its tokens name it; https, or http on loopback"),
        Key::required("client_id", Type::Text, "this console's client ID at the issuer"),
        Key::new("client_secret", Type::Secret, "its secret, by reference; default none: a public client"),
        Key::required("roles", Type::Named(&Type::Text), "claim value: role, or roles with commas; who has none is not let in"),
        Key::new("roles_claim", Type::Text, "where the values stand, such as realm_access.roles; default groups"),
        Key::new("name_claim", Type::Text, "the claim that becomes the person's name; default preferred_username"),
        Key::new("scopes", Type::Text, "scopes to ask for, with spaces; default openid profile"),
        Key::new("audience", Type::Text, "the audience of bearer tokens for the API; default the client ID"),
        Key::new("redirect_url", Type::Text, "https://…/sign-in/callback; default made of the host that people use"),
        Key::new("ca", Type::Text, "a file of certificates (PEM) that are trusted beside the public ones"),
    ],
};

static METRICS: Shape = Shape {
    name: "Metrics",
    doc: "What metrics tell apart.",
    keys: &[Key::new(
        "tenants",
        Type::Text,
        "tenants that have series of their own, with commas, at most 50; all others are `other`",
    )],
};

static TRACES: Shape = Shape {
    name: "Traces",
    doc: "Where traces go, and what is sampled.",
    keys: &[
        Key::new("enabled", Type::Boolean, "false: no traces, whatever else is set; default true"),
        Key::new("endpoint", Type::Text, "OTLP over HTTP, such as http://collector:4318/v1/traces; empty or missing: no traces"),
        Key::new("headers", Type::Secret, "headers for it, name=value,name=value, by reference"),
        Key::new("sample", Type::Number, "share of the requests without a traceparent that are sampled, 0 to 1; default 0.1"),
        Key::new("follow", Type::Boolean, "a traceparent that comes with a request decides by its flag; default true"),
        Key::new("propagate", Type::Boolean, "calls to targets and models carry a traceparent; default true"),
        Key::new("service", Type::Text, "service.name; default: the application's name"),
        Key::new("resource", Type::Text, "more attributes of the resource, name=value,name=value"),
        Key::new("timeout", Type::Duration, "how long one export may take; default 10s"),
        Key::new("protocol", Type::Word(&[OTLP]), "the only one that there is"),
    ],
};

/// How traces are sent.
const OTLP: &str = "http/protobuf";

static TOPICS: Shape = Shape {
    name: "Topics",
    doc: "Topics at start.",
    keys: &[
        Key::new("create", Type::Boolean, "create missing topics of the user; internal ones always are; default false"),
        Key::new("replication", Type::Integer, "of created topics; -1 is the broker's default, and ours"),
        Key::new("partitions", Type::Integer, "of created topics of the user; default 4"),
        Key::new("accept_loss", Type::Text, "own topics whose loss is accepted, with commas; default none: a start is refused"),
        Key::new("accept_reset", Type::Text, "the word that a refused start shows (RB0413): the loss that it names is accepted"),
        Key::new("watch", Type::Duration, "how often settings of topics and brokers are looked at again; 0s never; default 60s"),
    ],
};

/// Every key that the table knows, with its sections: `group.session_timeout`.
#[cfg(test)]
pub(super) fn keys() -> Vec<String> {
    fn inside(shape: &Shape, before: &str) -> Vec<String> {
        let of = |key: &Key| match &key.takes {
            Type::Map(shape) => inside(shape, &format!("{before}{}.", key.name)),
            _ => vec![format!("{before}{}", key.name)],
        };
        shape.keys.iter().flat_map(of).collect()
    }
    inside(&PROCESS, "")
}

/// Reads the settings over their defaults; what is wrong is reported, all of it.
pub(super) fn read(root: &Node, d: &mut Diagnostics) -> ProcessConfig {
    let mut c = ProcessConfig::default();
    let Some(f) = PROCESS.read(root, d) else { return c };
    set(&mut c.brokers, f.get("brokers").and_then(|n| brokers(n, d)));
    if let Some(r) = section(&f, "registry", &REGISTRY, d) {
        set(&mut c.registry.url, r.get("url").and_then(|n| url(n, d)));
        c.registry.username = r.text("username", d);
        c.registry.password = r.get("password").and_then(|n| n.secret(d));
        c.registry.token = r.get("token").and_then(|n| n.secret(d));
        c.registry.ca = r.get("ca").and_then(|n| n.path(d));
        c.registry.identity = security::identity(&r, d);
        registry(&r, &c.registry, d);
        set(&mut c.registry.register, r.get("register").and_then(|n| n.boolean(d)));
    }
    c.security = section(&f, "security", &security::SECURITY, d).and_then(|s| security::read(&s, d));
    if f.get("security").is_some() {
        security::refuse_doubled(&f, d);
    }
    set(&mut c.kafka, f.get("kafka").and_then(|n| client(n, d)));
    if let Some(s) = section(&f, "state", &STATE, d) {
        set(&mut c.state.dir, s.text("dir", d).map(PathBuf::from));
        set(&mut c.state.cache, s.get("cache").and_then(|n| n.size(d)).map(ByteSize));
        set(&mut c.state.record_cache, s.get("record_cache").and_then(|n| n.size(d)).map(ByteSize));
        set(&mut c.state.standby, s.get("standby").and_then(|n| n.boolean(d)));
    }
    if let Some(t) = section(&f, "threads", &THREADS, d) {
        set(&mut c.threads.stream, number(&t, "stream", 1, 64, d));
        set(&mut c.threads.effects, number(&t, "effects", 1, 64, d));
    }
    if let Some(s) = section(&f, "slots", &SLOTS, d) {
        c.slots.ordinal = number(&s, "ordinal", 0, 9_999, d);
    }
    if let Some(g) = section(&f, "group", &GROUP, d) {
        group(&g, &mut c.group, d);
    }
    if let Some(e) = section(&f, "effects", &EFFECTS, d) {
        span(&mut c.effects.clock_error, &e, "clock_error", d);
        span(&mut c.effects.max_pause, &e, "max_pause", d);
        span(&mut c.effects.audit, &e, "audit", d);
        set(&mut c.effects.max_open, number(&e, "max_open", 1, i64::from(u32::MAX), d));
        c.effects.key_secret = e.get("key_secret").and_then(|n| n.secret(d));
    }
    if let Some(w) = section(&f, "webhooks", &WEBHOOKS, d) {
        set(&mut c.webhooks.listen, w.get("listen").and_then(|n| address(n, d)));
    }
    if let Some(a) = section(&f, "admin", &ADMIN, d) {
        set(&mut c.admin.listen, a.get("listen").and_then(|n| address(n, d)));
        set(&mut c.admin.stores, a.get("stores").and_then(|n| n.boolean(d)));
        set(&mut c.admin.console, a.get("console").and_then(|n| n.boolean(d)));
        set(&mut c.admin.trusted_proxies, a.get("trusted_proxies").and_then(|n| networks(n, d)));
    }
    if let Some(s) = section(&f, "console", &CONSOLE, d) {
        c.console.tokens = s.text("tokens", d).filter(|t| !t.is_empty()).map(PathBuf::from);
        span(&mut c.console.session, &s, "session", d);
        c.console.session_secret = s.get("session_secret").and_then(|n| n.secret(d));
        c.console.oidc = section(&s, "oidc", &OIDC, d).and_then(|o| oidc(&o, d));
        set(&mut c.console.members, s.get("members").and_then(|n| addresses(n, d)));
    }
    if let Some(m) = section(&f, "metrics", &METRICS, d) {
        c.metrics.tenants = names(&m, "tenants", d);
        if let (true, Some(n)) = (c.metrics.tenants.len() > Tenants::MOST, m.get("tenants")) {
            d.error(
                codes::BAD_VALUE,
                &n.at,
                format!("{} tenants, and at most {} have series", c.metrics.tenants.len(), Tenants::MOST),
            );
        }
    }
    if let Some(t) = section(&f, "traces", &TRACES, d) {
        traces(&t, &mut c.traces, d);
    }
    if let Some(t) = section(&f, "topics", &TOPICS, d) {
        set(&mut c.topics.create, t.get("create").and_then(|n| n.boolean(d)));
        set(&mut c.topics.replication, number(&t, "replication", -1, i64::from(i16::MAX), d));
        set(&mut c.topics.partitions, number(&t, "partitions", 1, 100_000, d));
        c.topics.accept_loss = names(&t, "accept_loss", d);
        c.topics.accept_reset = t.text("accept_reset", d).filter(|word| !word.is_empty());
        span(&mut c.topics.watch, &t, "watch", d);
    }
    span(&mut c.stop_within, &f, "stop_within", d);
    c
}

fn oidc(o: &Fields<'_>, d: &mut Diagnostics) -> Option<OidcSection> {
    let path = |key: &str, d: &mut Diagnostics| o.text(key, d).filter(|t| !t.is_empty());
    let text = |key: &str, default: &str, d: &mut Diagnostics| path(key, d).unwrap_or_else(|| default.to_owned());
    let roles = o.get("roles").and_then(|n| client(n, d)).unwrap_or_default();
    if let (true, Some(node)) = (roles.is_empty(), o.get("roles")) {
        d.error(codes::BAD_VALUE, &node.at, "it maps nothing to a role: nobody could sign in".to_owned());
    }
    let client_id = o.get("client_id").and_then(|n| n.text(d))?;
    Some(OidcSection {
        issuer: o.get("issuer").and_then(|n| n.text(d))?,
        client_secret: o.get("client_secret").and_then(|n| n.secret(d)),
        roles,
        roles_claim: text("roles_claim", "groups", d),
        name_claim: text("name_claim", "preferred_username", d),
        scopes: text("scopes", "openid profile", d),
        audience: text("audience", &client_id, d),
        redirect_url: path("redirect_url", d),
        ca: path("ca", d).map(PathBuf::from),
        client_id,
    })
}

/// What can't hold together is refused, where it stands.
fn registry(r: &Fields<'_>, c: &RegistryConfig, d: &mut Diagnostics) {
    let encrypted = c.url.is_empty() || c.url.starts_with("https://");
    if let Some(node) = r.get("ca").or(r.get("certificate")).filter(|_| !encrypted) {
        security::undrawn(d, codes::BAD_VALUE, &node.at, "a certificate is for an address that begins with https://");
    }
    if let Some(node) = r.get("token").filter(|_| r.has("password") || r.has("username")) {
        security::undrawn(d, codes::BAD_VALUE, &node.at, "a token and a user with a password are two logins; keep one");
    }
    if let Some(node) = r.get("username").or(r.get("password")).filter(|_| r.has("username") != r.has("password")) {
        security::undrawn(d, codes::MISSING_KEY, &node.at, "basic authentication needs both `username` and `password`");
    }
}

/// Names with commas between them.
fn names(f: &Fields<'_>, key: &str, d: &mut Diagnostics) -> Vec<String> {
    let names = f.text(key, d).unwrap_or_default();
    names.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect()
}

fn traces(t: &Fields<'_>, c: &mut TracesSection, d: &mut Diagnostics) {
    set(&mut c.enabled, t.get("enabled").and_then(|n| n.boolean(d)));
    set(&mut c.endpoint, t.get("endpoint").and_then(|n| url(n, d)));
    c.headers = t.get("headers").and_then(|n| n.secret(d));
    let share = |n: &Node, d: &mut Diagnostics| match n.number(d) {
        Some(share) if !(0.0..=1.0).contains(&share) => n.wrong("a share from 0 to 1", d),
        share => share,
    };
    set(&mut c.sample, t.get("sample").and_then(|n| share(n, d)));
    set(&mut c.follow, t.get("follow").and_then(|n| n.boolean(d)));
    set(&mut c.propagate, t.get("propagate").and_then(|n| n.boolean(d)));
    set(&mut c.service, t.text("service", d));
    set(&mut c.resource, t.text("resource", d));
    span(&mut c.timeout, t, "timeout", d);
    if let Some(protocol) = t.get("protocol") {
        let _ = protocol.one_of(&[(OTLP, ())], d);
    }
}

fn group(g: &Fields<'_>, c: &mut GroupSection, d: &mut Diagnostics) {
    set(&mut c.protocol, g.get("protocol").and_then(|n| n.one_of(&GroupProtocol::ALL, d)));
    span(&mut c.session_timeout, g, "session_timeout", d);
    span(&mut c.transaction_timeout, g, "transaction_timeout", d);
    span(&mut c.commit_interval, g, "commit_interval", d);
    // A member that is expelled must not leave a transaction behind that outlives it.
    for (longer, shorter, limit, time) in [
        ("session_timeout", "transaction_timeout", c.session_timeout, c.transaction_timeout),
        ("transaction_timeout", "commit_interval", c.transaction_timeout, c.commit_interval),
    ] {
        if time.0 >= limit.0 {
            let at = g.get(shorter).or(g.get(longer)).map_or(&g.node.at, |n| &n.at);
            d.error(codes::BAD_VALUE, at, format!("{shorter} is {time}, and must be shorter than {longer}, which is {limit}"));
        }
    }
}

fn section<'n>(f: &Fields<'n>, key: &str, shape: &Shape, d: &mut Diagnostics) -> Option<Fields<'n>> {
    shape.read(f.get(key)?, d)
}

fn set<T>(to: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *to = value;
    }
}

fn span(to: &mut Span, f: &Fields<'_>, key: &str, d: &mut Diagnostics) {
    set(to, f.get(key).and_then(|n| n.duration(d)).map(Span));
}

fn number<T: TryFrom<i64>>(f: &Fields<'_>, key: &str, min: i64, max: i64, d: &mut Diagnostics) -> Option<T> {
    f.get(key).and_then(|n| n.integer(min, max, d)).and_then(|n| T::try_from(n).ok())
}

fn client(node: &Node, d: &mut Diagnostics) -> Option<BTreeMap<String, String>> {
    let entries = node.map(d)?;
    Some(entries.iter().filter_map(|(name, value)| Some((name.text.clone(), value.text(d)?))).collect())
}

/// `host:port`, one or more with commas.
fn brokers(node: &Node, d: &mut Diagnostics) -> Option<String> {
    let text = node.text(d)?;
    // A protocol before it is the client's own way to write one.
    let good = |one: &str| {
        let (host, port) = one.trim().rsplit_once(':')?;
        let host = host.rsplit_once("://").map_or(host, |(_, host)| host);
        port.parse::<u16>().ok().filter(|_| !host.is_empty() && !host.contains(char::is_whitespace))
    };
    match text.split(',').all(|one| good(one).is_some()) {
        true => Some(text),
        false => node.wrong("host:port, one or more with commas, such as kafka-1:9092,kafka-2:9092", d),
    }
}

fn networks(node: &Node, d: &mut Diagnostics) -> Option<Vec<Net>> {
    let text = node.text(d)?;
    let named = text.split(',').map(str::trim).filter(|n| !n.is_empty());
    let read: Result<Vec<Net>, ()> = named.map(str::parse).collect();
    match read {
        Ok(all) => Some(all),
        Err(()) => node.wrong("addresses or networks, such as 10.0.0.0/8, with commas", d),
    }
}

fn url(node: &Node, d: &mut Diagnostics) -> Option<String> {
    let text = node.text(d)?;
    match text.is_empty() || text.starts_with("http://") || text.starts_with("https://") {
        true => Some(text),
        false => node.wrong("an address such as http://localhost:8081", d),
    }
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn addresses(node: &Node, d: &mut Diagnostics) -> Option<Vec<String>> {
    let text = node.text(d)?;
    let all: Vec<String> = text.split(',').map(str::trim).filter(|a| !a.is_empty()).map(str::to_owned).collect();
    match all.iter().all(|a| is_address(a)) {
        true => Some(all),
        false => node.wrong("addresses as host:port, such as member-0:9464, with commas", d),
    }
}

fn address(node: &Node, d: &mut Diagnostics) -> Option<String> {
    let text = node.text(d)?;
    match text.is_empty() || is_address(&text) {
        true => Some(text),
        false => node.wrong("host:port, such as 127.0.0.1:9464", d),
    }
}

#[cfg(test)]
mod tests {
    /// If this broke, editors would check `readback.yaml` against keys that the product no longer has. To renew:
    /// `READBACK_WRITE_SCHEMAS=1 cargo test --lib config::settings`.
    #[test]
    fn the_committed_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/readback.schema.json");
        if std::env::var_os("READBACK_WRITE_SCHEMAS").is_some() {
            std::fs::write(path, super::process_schema()).expect("schemas/ is writable");
        }
        assert_eq!(std::fs::read_to_string(path).expect("committed"), super::process_schema());
    }
}
