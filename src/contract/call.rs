//! One call of a contract file.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::answers_file::answers;
use super::compensate::EVIDENCE;
use super::compiled::{Compiled, ProposalRules, ReadbackRules, RequestTemplate};
use super::model::{
    Bound, Budget, Call, Carrier, Completion, Confirm, Dedupe, KeyFormat, KeySpec, LaneRule, Readback, Retention, Unprovable,
};
use super::params::{Parameter, Takes, anchored};
use super::precondition;
use super::read::{header_name, unknown_placeholder, word};
use super::request::{KEY, PAGE, RESOURCE_VERSION};
use super::template::{JsonTemplate, Template};
use super::{compensate, fence, lint, shape, webhook};
use crate::config::CelExpr;
use crate::config::yaml::{Diagnostics, Fields, Kind, Node};
use crate::error::codes;
use crate::ids::CallName;
use crate::intents::hex;

/// Names that parameters can't have: they have a meaning in templates and expressions.
const RESERVED: [&str; 8] = [KEY, PAGE, RESOURCE_VERSION, EVIDENCE, "status", "headers", "body", "item"];

/// Reads and lints one call. Everything is read before the first missing part ends it, so that all errors show.
pub(super) fn call(name: &str, node: &Node, no_intermediaries: bool, d: &mut Diagnostics) -> Option<Call> {
    let f = shape::CALL.read(node, d)?;
    let parameters = parameters(&f, d);
    let names: Vec<&str> = parameters.keys().map(String::as_str).collect();
    let request = f.get("request").and_then(|n| request(n, &[&names[..], &[KEY, RESOURCE_VERSION]].concat(), d));
    let key = f.get("key").filter(|n| n.scalar() != Some("none")).map(|n| key(n, d));
    let dedupe = f.get("dedupe").filter(|n| n.scalar() != Some("none")).map(|n| dedupe(n, d));
    let readback = f.get("readback").map(|n| readback(n, &names, d));
    let sent = request.as_ref().is_some_and(|r| r.names().contains(&RESOURCE_VERSION));
    let (fence, sign) = f.get("fence").and_then(|n| fence::fence(n, d)).unzip();
    let precondition = f.get("precondition").map(|n| precondition::precondition(n, &names, sent, d));
    let in_flight = f.get("in_flight").filter(|n| n.scalar() != Some("unbounded")).map(|n| in_flight(n, d));
    let answers = f.get("answers").map(|n| answers(n, d)).unwrap_or_default();
    let compensate = f.get("compensate").map(|n| compensate::compensate(n, &names, d));
    let (webhook, webhook_rules) = f.get("webhook").and_then(|n| webhook::webhook(n, d)).unzip();
    let proposal = f.get("proposal").map(|n| proposal(n, d));
    let (budget, unprovable, lane) = policy(f.get("policy"), proposal.is_some(), d);
    let look_at = f.get("person").and_then(|n| shape::PERSON.read(n, d)).and_then(|p| {
        let node = p.get("look_at")?;
        template(node, &node.text(d)?, &[&names[..], &[KEY]].concat(), d)
    });
    let confirm = if readback.is_some() { Confirm::Readback } else { Confirm::Answer };
    let confirm = word(&f, "confirm", &[("readback", Confirm::Readback), ("answer", Confirm::Answer)], confirm, d);
    let completion = [("sync", Completion::Sync), ("poll", Completion::Poll), ("webhook", Completion::Webhook)];
    let completion = word(&f, "completion", &completion, Completion::Sync, d);
    let (readback, readback_rules) = readback.map(Option::unzip).unwrap_or_default();
    let (precondition, version) = precondition.map_or(Some((None, None)), |p| p.map(|(p, v)| (Some(p), v)))?;
    let (compensate, undo) = compensate.map(Option::unzip).unwrap_or_default();
    let none = KeySpec { carrier: Carrier::None, format: KeyFormat::Uuid };
    let mut call = Call {
        name: CallName::new(name),
        key: key.unwrap_or(Some(none))?,
        dedupe: dedupe.unwrap_or_default(),
        fence,
        precondition,
        confirm,
        readback,
        in_flight: in_flight.unwrap_or_default(),
        no_intermediaries,
        completion,
        webhook,
        compensate,
        proposal: proposal.is_some(),
        budget,
        unprovable,
        lane,
        assumptions: Vec::new(),
        definition: hex(&Sha256::digest(node.canonical().as_bytes())),
        compiled: Compiled {
            parameters,
            request: request?,
            answers,
            readback: readback_rules,
            version,
            undo,
            sign: sign.flatten(),
            proposal: proposal.unwrap_or_default(),
            webhook: webhook_rules,
            look_at,
        },
    };
    lint::lint(&call, &f, d);
    call.assumptions = lint::assumptions(&call, &f);
    Some(call)
}

fn parameters(f: &Fields<'_>, d: &mut Diagnostics) -> BTreeMap<String, Parameter> {
    let mut all = BTreeMap::new();
    for (name, node) in f.get("parameters").and_then(|n| n.map(d)).unwrap_or_default() {
        let word = name.text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.text.starts_with(|c: char| c.is_ascii_digit());
        if !word || RESERVED.contains(&name.text.as_str()) {
            d.error(codes::BAD_VALUE, &name.at, format!("`{}` can't be a parameter's name", name.text))
                .note(format!("letters, digits and _ make one; {} have a meaning of their own", RESERVED.join(", ")));
        }
        if let Some(parameter) = parameter(node, d) {
            all.insert(name.text.clone(), parameter);
        }
    }
    all
}

fn parameter(node: &Node, d: &mut Diagnostics) -> Option<Parameter> {
    let f = shape::PARAMETER.read(node, d)?;
    let words = ["string", "integer", "number", "boolean", "enum", "json"].map(|w| (w, w));
    let kind = f.get("type")?.one_of(&words, d)?;
    let optional = f.get("optional").is_some_and(|n| n.boolean(d).unwrap_or(false));
    let mut number = |key: &str, default: f64| f.get(key).map_or(Some(default), |n| n.number(d));
    let takes = match kind {
        "integer" => {
            let mut whole = |key: &str, default: i64| f.get(key).map_or(Some(default), |n| n.integer(i64::MIN, i64::MAX, d));
            Takes::Integer { min: whole("min", i64::MIN)?, max: whole("max", i64::MAX)? }
        }
        "number" => Takes::Number { min: number("min", f64::MIN)?, max: number("max", f64::MAX)? },
        "boolean" => Takes::Boolean,
        "enum" => Takes::Enum(f.get("values").map(|n| n.list().iter().filter_map(|v| v.text(d)).collect()).unwrap_or_default()),
        "json" => Takes::Json { max_bytes: f.get("max_bytes").map_or(Some(16 * 1024), |n| n.size(d))? },
        _ => {
            let max_length = f.get("max_length").map_or(Some(1024), |n| n.integer(1, 1_000_000, d))?;
            let pattern = match f.get("pattern") {
                None => None,
                Some(n) => match anchored(&n.text(d)?) {
                    Ok(regex) => Some(regex),
                    Err(why) => return n.wrong(&format!("a regular expression ({why})"), d),
                },
            };
            Takes::Text { pattern, max_length: max_length as usize }
        }
    };
    if matches!(&takes, Takes::Enum(values) if values.is_empty()) {
        d.error(codes::MISSING_KEY, &node.at, "an enum without `values`");
    }
    Some(Parameter { takes, optional })
}

pub(super) fn request(node: &Node, known: &[&str], d: &mut Diagnostics) -> Option<RequestTemplate> {
    let f = shape::REQUEST.read(node, d)?;
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"].map(|m| (m, m.to_owned()));
    let method = f.get("method").and_then(|n| n.one_of(&methods, d));
    let path = f.get("path").and_then(|n| {
        let text = n.text(d)?;
        if !text.starts_with('/') {
            return n.wrong("a path that begins with /", d);
        }
        template(n, &text, known, d)
    });
    let mut pairs = |key: &str, is_header: bool| {
        let mut all = Vec::new();
        for (name, node) in f.get(key).and_then(|n| n.map(d)).unwrap_or_default() {
            let name = if is_header { header_name(&name.text, node, d) } else { Some(name.text.clone()) };
            let text = node.text(d);
            if let (Some(name), Some(t)) = (name, text.and_then(|t| template(node, &t, known, d))) {
                all.push((name, t));
            }
        }
        all
    };
    let (query, headers) = (pairs("query", false), pairs("headers", true));
    let json = f.get("json").and_then(|n| json(n, known, d));
    Some(RequestTemplate { method: method?, path: path?, query, headers, json })
}

/// A JSON body as YAML: unquoted numbers, truths and null are what they look like, any other text is a template.
fn json(node: &Node, known: &[&str], d: &mut Diagnostics) -> Option<JsonTemplate> {
    match &node.kind {
        Kind::Scalar { text, plain } => {
            let literal =
                if *plain { serde_json::from_str(text).ok().filter(|v: &serde_json::Value| !v.is_string()) } else { None };
            match literal {
                Some(value) => Some(JsonTemplate::Literal(value)),
                None if node.is_null() => Some(JsonTemplate::Literal(serde_json::Value::Null)),
                None => template(node, text, known, d).map(JsonTemplate::Text),
            }
        }
        Kind::List(all) => all.iter().map(|n| json(n, known, d)).collect::<Option<_>>().map(JsonTemplate::List),
        Kind::Map(all) => {
            let members = all.iter().map(|(name, n)| Some((name.text.clone(), json(n, known, d)?)));
            members.collect::<Option<_>>().map(JsonTemplate::Object)
        }
    }
}

fn template(node: &Node, text: &str, known: &[&str], d: &mut Diagnostics) -> Option<Template> {
    match Template::parse(text) {
        Ok(template) => {
            for name in template.names().filter(|n| !known.contains(n)) {
                unknown_placeholder(name, known, node, d);
            }
            Some(template)
        }
        Err(why) => {
            d.error(codes::BAD_TEMPLATE, &node.at, why).note("`{{` and `}}` are braces");
            None
        }
    }
}

/// Compiles an expression over `known` variables.
pub(super) fn expression(node: &Node, known: &[&str], d: &mut Diagnostics) -> Option<CelExpr> {
    let source = node.expression(d)?;
    match CelExpr::compile(source, known) {
        Ok(expression) => Some(expression),
        Err(why) => {
            why.report(node, d);
            None
        }
    }
}

fn key(node: &Node, d: &mut Diagnostics) -> Option<KeySpec> {
    let f = shape::KEY.read(node, d)?;
    let carrier = match f.get("carrier")?.one_of(&[("body", 0), ("url", 1), ("header", 2)], d)? {
        0 => Carrier::Body,
        1 => Carrier::Url,
        _ => match f.get("name") {
            Some(n) => Carrier::Header(header_name(&n.text(d)?, n, d)?),
            None => {
                d.error(codes::MISSING_KEY, &node.at, "the header that carries the key has no `name`");
                return None;
            }
        },
    };
    let length = f.get("length").map_or(Some(32), |n| n.integer(16, 64, d))?;
    let formats = [("uuid", KeyFormat::Uuid), ("hex", KeyFormat::Hex(length as usize))];
    Some(KeySpec { carrier, format: word(&f, "format", &formats, KeyFormat::Uuid, d) })
}

fn dedupe(node: &Node, d: &mut Diagnostics) -> Option<Dedupe> {
    let f = shape::DEDUPE.read(node, d)?;
    word(&f, "from", &[("first_use", ())], (), d);
    word(&f, "scope", &[("account", ()), ("endpoint", ())], (), d);
    let mut status = |key: &str| f.get(key).and_then(|n| n.integer(100, 599, d)).and_then(|n| u16::try_from(n).ok());
    let (other_body, while_running) = (status("other_body"), status("while_running"));
    let window = f.get("window")?;
    let retention = match window.scalar() {
        Some("forever") => Retention::Forever,
        _ => Retention::For(window.duration(d)?),
    };
    Some(Dedupe { retention, other_body, while_running })
}

fn readback(node: &Node, parameters: &[&str], d: &mut Diagnostics) -> Option<(Readback, ReadbackRules)> {
    let f = shape::READBACK.read(node, d)?;
    let request = f.get("request").and_then(|n| request(n, &[parameters, &[KEY, PAGE]].concat(), d));
    let variables = [parameters, &[KEY, "status", "headers", "body"]].concat();
    // A page that holds something else where its list should be is no empty list.
    let mut ask = |key: &str| f.get(key).map(|n| expression(n, &variables, d).map(CelExpr::over_lists));
    let (complete, ours, same_key, next) = (ask("complete"), ask("ours"), ask("same_key"), ask("next"));
    let evidence = f.get("evidence").map(|n| expression(n, &["item"], d));
    let pages = f.get("pages").map_or(Some(20), |n| n.integer(1, 1_000, d));
    let lag = f.get("lag").and_then(|n| n.duration(d));
    let absent = statuses(&f, "absent", d);
    let rules = ReadbackRules {
        request: request?,
        absent: absent.unwrap_or_default(),
        complete: complete??,
        ours: ours??,
        same_key: same_key.unwrap_or_default(),
        next: next.unwrap_or_default(),
        evidence: evidence.unwrap_or_default(),
    };
    Some((Readback { lag: lag?, pages: pages? as u32 }, rules))
}

/// The statuses under `key`, where it is given: refusals of a client's request.
pub(super) fn statuses(f: &Fields<'_>, key: &str, d: &mut Diagnostics) -> Option<Vec<u16>> {
    let node = f.get(key)?;
    Some(node.list().iter().filter_map(|s| u16::try_from(s.integer(400, 499, d)?).ok()).collect())
}

fn in_flight(node: &Node, d: &mut Diagnostics) -> Option<Bound> {
    let f = shape::IN_FLIGHT.read(node, d)?;
    let (within, because) = (f.get("bound").and_then(|n| n.duration(d)), f.text("because", d));
    Some(Bound { within: within?, because: because? })
}

fn proposal(node: &Node, d: &mut Diagnostics) -> Option<ProposalRules> {
    let f = shape::PROPOSAL.read(node, d)?;
    let mut ask = |key: &str| f.get(key).map(|n| expression(n, &["status", "headers", "body"], d));
    let (body, tokens) = (ask("body"), ask("tokens"));
    Some(ProposalRules { body: body??, tokens: tokens.unwrap_or_default() })
}

fn policy(node: Option<&Node>, proposal: bool, d: &mut Diagnostics) -> (Budget, Unprovable, LaneRule) {
    let f = node.and_then(|n| shape::POLICY.read(n, d));
    let get = |key: &str| f.as_ref().and_then(|f| f.get(key));
    let mut count = |key: &str, default: i64| get(key).and_then(|n| n.integer(1, 1_000_000, d)).unwrap_or(default);
    let (concurrency, attempts, readbacks) = (count("concurrency", 32), count("attempts", 5), count("readbacks", 20));
    let mut time = |key: &str, default: u64| get(key).and_then(|n| n.duration(d)).unwrap_or(Duration::from_secs(default));
    let budget = Budget {
        concurrency: concurrency as usize,
        attempts: attempts as u32,
        readbacks: readbacks as u32,
        deadline: time("deadline", 900),
        connect: time("connect", 3),
        timeout: time("timeout", 10),
        window: time("window", 5),
        unknown_max_age: time("unknown_after", 3_600),
        answer: get("max_answer").and_then(|n| n.size(d)).unwrap_or(256 * 1024),
    };
    let default = if proposal { Unprovable::DuplicatesAccepted } else { Unprovable::Person };
    let words = [("person", Unprovable::Person), ("duplicates_accepted", Unprovable::DuplicatesAccepted)];
    let unprovable = get("unprovable").and_then(|n| n.one_of(&words, d)).unwrap_or(default);
    let lane = get("order").and_then(|n| n.one_of(&[("block", LaneRule::Block), ("skip", LaneRule::Skip)], d));
    (budget, unprovable, lane.unwrap_or(LaneRule::Block))
}
