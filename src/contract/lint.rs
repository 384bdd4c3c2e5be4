//! A contract that cannot carry its own promise is refused, with the reason.

use super::Promise;
use super::compiled::AnswerRule;
use super::model::{Assumption, Call, Carrier, Completion, Confirm, Fence, Retention, Unprovable};
use super::request::KEY;
use super::{compensate, fence, precondition, webhook};
use crate::config::yaml::{Diagnostics, Fields, Site};
use crate::error::codes;
use crate::intents::AnswerClass;
use crate::time::show_duration;

/// Statuses that prove nothing about the request before: a client timeout, a conflict, a replay.
const PROVE_NOTHING: [u16; 3] = [408, 409, 425];

/// Checks a call against its own promise.
pub(super) fn lint(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    confirmation(call, f, d);
    key(call, f, d);
    dedupe(call, f, d);
    fence::lint(call, f, d);
    compensate::lint(call, f, d);
    precondition::lint(call, f, d);
    webhook::lint(call, f, d);
    for (i, rule) in call.compiled.answers.iter().enumerate() {
        let at = answer_site(f, i);
        answer(call, rule, &at, d);
        let earlier = &call.compiled.answers[..i];
        let hidden =
            rule.statuses.iter().all(|(from, to)| (*from..=*to).all(|s| earlier.iter().any(|e| e.when.is_none() && e.covers(s))));
        if hidden && !rule.statuses.is_empty() {
            d.warning(codes::WEAK_SETTING, &at, "this answer is never reached")
                .label("an earlier line without a condition takes its statuses");
        }
    }
    optional_where_needed(call, f, d);
    if call.promise() == Promise::AtMostOnePerson && call.webhook.is_none() {
        d.warning(codes::WEAK_SETTING, at(f, "answers"), "every lost answer goes to a person")
            .label("no dedupe and no readback: nothing can prove the outcome");
    }
    if call.unprovable == Unprovable::DuplicatesAccepted && !call.proposal {
        d.warning(codes::WEAK_SETTING, at(f, "policy"), "an effect of this call may happen more than once")
            .label("`unprovable: duplicates_accepted`: what nothing proves is sent again");
    }
}

fn confirmation(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    // `readback` that is there but could not be read has been reported already.
    let readback = f.has("readback");
    if call.confirm == Confirm::Readback && !readback {
        refuse(d, at(f, "confirm"), "`confirm: readback` without a readback", "nothing could ever be confirmed");
    }
    if call.completion == Completion::Poll && !readback {
        refuse(d, at(f, "completion"), "`completion: poll` without a readback", "an accepted call would never be known to be done");
    }
    if call.proposal && call.unprovable == Unprovable::Person {
        refuse(
            d,
            at(f, "policy"),
            "a proposal with `unprovable: person`",
            "a lost proposal is asked for again; no person can decide about it",
        );
    }
    let Some(rules) = &call.compiled.readback else { return };
    let site = at(f, "readback");
    if !rules.ours.mentions(KEY) {
        refuse(d, site, "`ours` does not compare the key", "it could take another's effect for ours: compare a member with `key`");
    }
    if !rules.absent.is_empty() && !rules.request.path.names().any(|n| n == KEY) {
        refuse(d, site, "`absent` under a path without `{key}`", "a missing list says nothing about one operation");
    }
    if !matches!(rules.request.method.as_str(), "GET" | "POST") {
        refuse(d, site, "a readback must not change anything", "ask with GET, or POST for a search");
    }
}

fn key(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    let request = &call.compiled.request;
    let in_body = request.json.as_ref().is_some_and(|j| j.names().contains(&KEY));
    let in_url = request.path.names().chain(request.query.iter().flat_map(|(_, t)| t.names())).any(|n| n == KEY);
    let carried = match &call.key.carrier {
        Carrier::Body => in_body,
        Carrier::Url => in_url,
        Carrier::Header(_) => true,
        Carrier::None => !request.names().contains(&KEY),
    };
    if !carried {
        let why = "`{key}` in the request, and the carrier that `key` names, must agree";
        refuse(d, at(f, "key"), "the key does not go where the contract says", why);
    }
    if call.key.carrier == Carrier::None && call.compiled.readback.is_some() {
        refuse(d, at(f, "readback"), "a readback without a key", "nothing at the target could be told to be this operation's");
    }
}

fn dedupe(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    let Some(dedupe) = &call.dedupe else { return };
    let site = at(f, "dedupe");
    if call.key.carrier == Carrier::None {
        refuse(d, site, "dedupe without a key", "the target can only know what it is given");
    }
    if let Retention::For(window) = dedupe.retention {
        let b = &call.budget;
        match &call.in_flight {
            None => refuse(
                d,
                site,
                "keys are forgotten, but requests may arrive at any time",
                "a copy could arrive after its key is gone: bound `in_flight`",
            ),
            Some(bound) if window <= b.window + b.timeout + bound.within => refuse(
                d,
                site,
                "keys are forgotten before a re-send could be safe",
                "window must exceed policy.window + policy.timeout + in_flight.bound",
            ),
            Some(_) => {}
        }
    }
    for (status, means) in [(dedupe.other_body, AnswerClass::KeyConflict), (dedupe.while_running, AnswerClass::InProgress)] {
        let Some(status) = status else { continue };
        if call.compiled.answers.iter().any(|r| r.covers(status) && r.means != means) {
            refuse(d, site, &format!("{status} has two meanings"), "`dedupe` and `answers` must agree");
        }
    }
}

fn answer(call: &Call, rule: &AnswerRule, at: &Site, d: &mut Diagnostics) {
    let negative = matches!(
        rule.means,
        AnswerClass::NotApplied | AnswerClass::PreconditionFailed | AnswerClass::Rejected | AnswerClass::RetryLater
    );
    let range_over = |s: &u16| rule.statuses.iter().any(|(from, to)| from < to && (*from..=*to).contains(s));
    if negative && let Some(status) = PROVE_NOTHING.iter().find(|s| range_over(s)) {
        refuse(d, at, &format!("the range covers {status}, which proves nothing"), "list the statuses one by one");
    }
    if negative && !call.no_intermediaries && rule.statuses.iter().any(|(_, to)| *to >= 500) {
        refuse(
            d,
            at,
            "a 5xx as proof that nothing happened",
            "a proxy may say this of a request that went through: set `target.intermediaries: none` if there is none",
        );
    }
    if rule.means == AnswerClass::Applied && rule.statuses.iter().any(|(from, to)| *from < 400 && *to >= 300) {
        refuse(d, at, "a redirect as proof that it happened", "redirects are not followed");
    }
}

/// A path or header needs its value.
fn optional_where_needed(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    let optional = |name: &str| call.compiled.parameters.get(name).is_some_and(|p| p.optional);
    for name in call.compiled.request.path.names().filter(|n| optional(n)) {
        d.error(codes::BAD_TEMPLATE, at(f, "request"), format!("`{{{name}}}` is optional, but the path needs it"));
    }
}

pub(super) fn refuse(d: &mut Diagnostics, at: &Site, what: &str, why: &str) {
    d.error(codes::CONTRACT_PROMISE, at, what).label(why);
}

/// Where `key` stands, else the call.
pub(super) fn at<'n>(f: &Fields<'n>, key: &str) -> &'n Site {
    f.get(key).map_or(&f.node.at, |n| &n.at)
}

/// Where answer `i` stands. Rules that could not be read shift the rest; then the list itself is blamed.
fn answer_site(f: &Fields<'_>, i: usize) -> Site {
    f.get("answers").and_then(|n| n.list().get(i)).map_or_else(|| f.node.at.clone(), |n| n.at.clone())
}

/// What the promise of a call rests on, each with its place.
pub(super) fn assumptions(call: &Call, f: &Fields<'_>) -> Vec<Assumption> {
    let mut all = Vec::new();
    let mut assume = |at: &Site, text: String| all.push(Assumption { text, at: at.to_string() });
    if let Some(bound) = &call.in_flight {
        let text = format!("a request does not reach the target later than {} after it left", show_duration(bound.within));
        assume(within(f, "in_flight", "bound"), text);
    }
    if let Some(readback) = &call.readback {
        let text = format!("the readback shows an effect within {}", show_duration(readback.lag));
        assume(within(f, "readback", "lag"), text);
    }
    if let Some(webhook) = &call.webhook {
        let text =
            format!("nobody but the target has the secret of its webhooks, and one comes within {}", show_duration(webhook.within));
        assume(at(f, "webhook"), text);
    }
    match &call.fence {
        Some(Fence::Create(_)) => assume(
            within(f, "fence", "create"),
            "the target makes one thing under an ID, also after that one is gone, and looks and makes in one step".into(),
        ),
        Some(Fence::Age(age)) => {
            let text = format!("the target does nothing for a request that is older than {}", show_duration(age.within));
            assume(within(f, "fence", "age"), text);
        }
        None => {}
    }
    match call.precondition {
        Some(p) if p.never_reused => assume(at(f, "precondition"), "the target never uses a version of the resource again".into()),
        Some(p) if !p.sent => {
            let text = "nothing changes the resource between the read of its version and the call".into();
            assume(at(f, "precondition"), text);
        }
        _ => {}
    }
    match call.dedupe.as_ref().map(|d| d.retention) {
        Some(Retention::Forever) => assume(at(f, "dedupe"), "the target never forgets a key".into()),
        Some(Retention::For(window)) => {
            assume(at(f, "dedupe"), format!("the target remembers a key for {}", show_duration(window)));
        }
        None if call.unprovable == Unprovable::DuplicatesAccepted || call.refuses_copies() || call.creates_once() => {}
        None => {
            let known =
                if call.no_intermediaries { "the contract says that none does" } else { "the contract does not rule it out" };
            assume(at(f, "request"), format!("nothing between us and the target repeats requests by itself; {known}"));
        }
    }
    all
}

/// Where `inner` stands within `key`.
fn within<'n>(f: &Fields<'n>, key: &str, inner: &str) -> &'n Site {
    let inner = f.get(key).and_then(|node| Fields { node }.get(inner));
    inner.map_or_else(|| at(f, key), |n| &n.at)
}
