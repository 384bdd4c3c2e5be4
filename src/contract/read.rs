//! From a file to a [`Contract`]: every value typed, every error at its place, all at once.

use std::collections::BTreeMap;

use super::call::call;
use super::compensate;
use super::model::{Assumption, Call, Contract, Credentials, Protocol, Target};
use super::{lint, shape};
use crate::config::yaml::{self, Diagnostics, Fields, Node, Site, nearest};
use crate::config::{Secret, SecretRef};
use crate::error::codes;
use crate::ids::{CallName, ContractName};

/// Reads a whole file.
pub(super) fn contract(root: &Node, d: &mut Diagnostics) -> Option<Contract> {
    let f = shape::CONTRACT.read(root, d)?;
    let name = f.text("contract", d);
    if let (Some(name), Some(node)) = (&name, f.get("contract")) {
        plain_name(name, node, d);
    }
    let version = f.get("version").and_then(|n| n.integer(1, i64::MAX, d));
    let verified_on = f.get("verified_on").and_then(|n| date(n, d));
    let target = f.get("target").and_then(|n| target(n, d));
    // A target that can't be read was told; what the calls promise on it is not told again.
    let no_intermediaries = target.as_ref().is_none_or(|(_, none)| *none);
    let mut calls = BTreeMap::new();
    let mut whole = true;
    for (name, node) in f.get("calls").and_then(|n| n.map(d)).unwrap_or_default() {
        plain_name(&name.text, node, d);
        match call(&name.text, node, no_intermediaries, d) {
            Some(mut call) => {
                if let (Some(node), Some((target, _))) = (f.get("target"), &target) {
                    protocol(&mut call, target.protocol, &Fields { node }, d);
                }
                calls.insert(CallName::new(&name.text), call);
            }
            None => whole = false,
        }
    }
    if let Some(node) = f.get("calls").filter(|_| whole && calls.is_empty()) {
        d.error(codes::MISSING_KEY, &node.at, "a contract without a call").label("name one here");
    }
    let mut contract = Contract {
        name: ContractName::from(name?),
        version: version?,
        verified_on: verified_on?,
        target: target?.0,
        calls,
        warnings: Diagnostics::new(),
    };
    if whole {
        compensate::link(&mut contract, d);
    }
    Some(contract)
}

/// The target, and whether intermediaries are ruled out.
fn target(node: &Node, d: &mut Diagnostics) -> Option<(Target, bool)> {
    let f = shape::TARGET.read(node, d)?;
    let hosts: Option<Vec<String>> = f.get("hosts").map(|n| n.list().iter().filter_map(|h| h.text(d)).collect());
    // Nothing is called offline, so the first allowed host stands in for an address that is told from outside.
    let stand_in = yaml::is_offline() && f.get("base_url").is_some_and(Node::is_outside);
    let base_url = match hosts.iter().flatten().next().filter(|_| stand_in) {
        Some(host) => Some(format!("http://{host}")),
        None => f.text("base_url", d).map(|u| u.trim_end_matches('/').to_owned()),
    };
    let private = f.get("private").is_some_and(|n| n.boolean(d).unwrap_or(false));
    let none = f.get("intermediaries").and_then(|n| n.one_of(&[("none", true), ("possible", false)], d)).unwrap_or(false);
    let credentials = f.get("credentials").map(|n| n.list().iter().filter_map(|c| credential(c, d)).collect());
    let (base_url, hosts) = (base_url?, hosts?);
    if let Some(host) = hosts.iter().find(|h| !private && inside(h)) {
        d.warning(codes::WEAK_SETTING, node_at(&f, node), format!("nothing is ever sent to `{host}`"))
            .label("an address of this machine or network needs `private: true`");
    }
    if let Some(node) = f.get("base_url") {
        match crate::http::host_of(&base_url) {
            None => {
                d.error(
                    codes::BAD_VALUE,
                    &node.at,
                    "the base URL must be a scheme, a host and perhaps a port, such as https://orders.internal",
                )
                .note("a path belongs into each call's request; user and password belong into credentials");
            }
            Some(host) if !hosts.iter().any(|h| h.eq_ignore_ascii_case(&host)) => {
                d.error(codes::BAD_VALUE, &node.at, format!("the base URL's host `{host}` is not among `hosts`"))
                    .label("nothing would ever be sent there");
            }
            Some(_) => {}
        }
    }
    let protocols = [("http1", Protocol::Http1), ("http2", Protocol::Http2), ("auto", Protocol::Auto)];
    let protocol = word(&f, "protocol", &protocols, Protocol::Http1, d);
    Some((Target { base_url, hosts, private, protocol, credentials: credentials.unwrap_or_default() }, none))
}

/// HTTP/2 is for calls whose copies the target drops or refuses; those rest on its word about streams too.
fn protocol(call: &mut Call, protocol: Protocol, target: &Fields<'_>, d: &mut Diagnostics) {
    let site = lint::at(target, "protocol");
    match (protocol, call.promise().may_share_streams()) {
        (Protocol::Http2, false) => lint::refuse(
            d,
            site,
            &format!("`protocol: http2`, and nothing makes a copy of `{}` harmless at the target", call.name),
            "among other streams nobody can tell whether this one is being written: `auto` keeps such calls on HTTP/1.1; else declare \
             `dedupe` or a `fence`",
        ),
        (Protocol::Http1, _) | (Protocol::Auto, false) => {}
        (Protocol::Http2 | Protocol::Auto, true) => call.assumptions.push(Assumption {
            text: "a target that refuses an HTTP/2 stream, or names an earlier one as its last, has done nothing with it".into(),
            at: site.to_string(),
        }),
    }
}

/// Whether a host is this machine, or an address of a private network, by its name alone.
fn inside(host: &str) -> bool {
    let v4 = host.parse::<std::net::Ipv4Addr>();
    let v6 = host.trim_matches(['[', ']']).parse::<std::net::Ipv6Addr>();
    host.eq_ignore_ascii_case("localhost")
        || v4.is_ok_and(|ip| ip.is_loopback() || ip.is_private())
        || v6.is_ok_and(|ip| ip.is_loopback())
}

fn node_at<'a>(f: &'a Fields<'_>, node: &'a Node) -> &'a Site {
    f.get("hosts").map_or(&node.at, |hosts| &hosts.at)
}

fn credential(node: &Node, d: &mut Diagnostics) -> Option<Credentials> {
    let f = shape::CREDENTIALS.read(node, d)?;
    let header = f.get("header").and_then(|n| header_name(&n.text(d)?, n, d));
    let secret = f.get("secret").and_then(|n| n.secret(d));
    // A recorded run sends nothing anywhere, so it must not need the secret of a live target.
    let secret = if yaml::is_offline() { secret.map(|_| SecretRef::Literal(Secret::new("offline"))) } else { secret };
    Some(Credentials { header: header?, prefix: f.text("prefix", d).unwrap_or_default(), secret: secret? })
}

/// A header that a template may set: not one that says how a message is framed.
pub(super) fn header_name(name: &str, node: &Node, d: &mut Diagnostics) -> Option<String> {
    if crate::http::settable_header(name) {
        return Some(name.to_ascii_lowercase());
    }
    d.error(codes::BAD_VALUE, &node.at, format!("`{name}` is no header that can be set here"))
        .note("the client writes host, connection, content-length, transfer-encoding, te and upgrade itself");
    None
}

/// A name that can stand in `contract#call`.
fn plain_name(name: &str, node: &Node, d: &mut Diagnostics) {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        d.error(codes::BAD_VALUE, &node.at, format!("`{name}` is no name: letters, digits, - and _ make one"));
    }
}

fn date(node: &Node, d: &mut Diagnostics) -> Option<String> {
    let text = node.text(d)?;
    match chrono::NaiveDate::parse_from_str(&text, "%Y-%m-%d") {
        Ok(_) => Some(text),
        Err(_) => node.wrong("a day, YYYY-MM-DD", d),
    }
}

/// A value of a word list under `key`, or its default.
pub(super) fn word<T: Clone>(f: &Fields<'_>, key: &str, words: &[(&str, T)], default: T, d: &mut Diagnostics) -> T {
    f.get(key).and_then(|n| n.one_of(words, d)).unwrap_or(default)
}

/// Reports a placeholder that names nothing.
pub(super) fn unknown_placeholder(name: &str, known: &[&str], node: &Node, d: &mut Diagnostics) {
    let what = d.error(codes::BAD_TEMPLATE, &node.at, format!("`{{{name}}}` names no parameter"));
    if let Some(near) = nearest(name, known.iter().copied()) {
        what.label(format!("did you mean `{{{near}}}`?"));
    }
    what.note(format!("known here: {}", known.join(", ")));
}
