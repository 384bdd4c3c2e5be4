//! One operation: where it stands, what is known by what, and what can be ordered.

use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use crate::admin::views::Seen;
use crate::console::act::{Action, Ordered, Wanted, act};
use crate::console::api::{self, Asked};
use crate::console::index::Listed;
use crate::console::problem;
use crate::console::search::pairs;
use crate::console::second;
use crate::console::shown::{self, Operation};
use crate::error::{Error, Fault, Result, codes};
use crate::time::{WallTime, show_duration};

use super::layout::Live;
use super::request::{self, Sight};
use super::{View, Visitor, calls, evidence, form, html_page, layout, link};

/// The page.
pub fn page(view: &View<'_>, asked: &Asked) -> Result<Markup> {
    let (listed, seen) = found(view, asked)?;
    let sight = request::sight(view, asked, || request::entry(view, asked, &listed))?;
    Ok(shown(view, &listed, &seen, sight, html! {}))
}

fn found(view: &View<'_>, asked: &Asked) -> Result<(Listed, Seen)> {
    let (tenant, step) = api::place(&request::rest(&asked.query))?;
    let listed = view.console.one(asked.operation.as_deref().unwrap_or_default(), tenant.as_deref(), step.as_deref())?;
    let seen = view.console.evidence(&listed.key)?;
    Ok((listed, seen))
}

/// Takes a form.
///
/// # Errors
/// What keeps even the page from being shown.
pub fn order(view: &View<'_>, asked: &Asked) -> Result<Response> {
    let Visitor::Known { person, cookie, .. } = view.visitor else { return Err(api::read_only()) };
    let fields = pairs(&String::from_utf8_lossy(&asked.body));
    let get = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.trim().to_owned()).filter(|v| !v.is_empty());
    let ours = get("form").is_some_and(|token| view.console.sessions.is_form_of(cookie, &token));
    if !ours {
        return Err(form_refused());
    }
    let action = get("action").and_then(|word| Action::ALL.into_iter().find(|a| a.word() == word));
    let done = match action {
        None if get("action").as_deref() == Some("confirm") => {
            let (command, reason) = (get("command").unwrap_or_default(), get("reason").unwrap_or_default());
            second::confirm(view.console, person, &asked.from, &command, &reason)
        }
        Some(action) => wanted(asked, &get).and_then(|w| act(view.console, person, &asked.from, action, &w)),
        None => Err(Error::new(codes::BAD_VALUE, Fault::Configuration, "reading a form").because("it names no action")),
    };
    let (status, notice) = match &done {
        Ok(ordered) => outcome(ordered),
        Err(e) => (problem::status(e), layout::problem(e)),
    };
    let (listed, seen) = found(view, asked)?;
    let sight = request::sight(view, &Asked { query: String::new(), ..asked.clone() }, || request::entry(view, asked, &listed))?;
    Ok(html_page(status, shown(view, &listed, &seen, sight, notice)))
}

/// A form that was not shown to whoever sent it.
pub fn form_refused() -> Error {
    Error::new(codes::FORM_REFUSED, Fault::Verdict, "taking a form")
        .because("it was not shown to this session")
        .next("load the page again and send it anew")
}

fn wanted(asked: &Asked, get: &dyn Fn(&str) -> Option<String>) -> Result<Wanted> {
    let (tenant, step) = api::place(&request::rest(&asked.query))?;
    let number = |text: String| {
        text.parse()
            .map_err(|_| Error::new(codes::BAD_VALUE, Fault::Configuration, "reading a form").because("`seen` is no version"))
    };
    Ok(Wanted {
        operation: asked.operation.clone().unwrap_or_default(),
        tenant,
        step,
        seen: get("seen").map(number).transpose()?,
        plan_hash: get("plan_hash"),
        reason: get("reason").unwrap_or_default(),
        evidence: get("evidence"),
        second_token: get("second_token"),
        ask_second: get("ask_second").is_some(),
        confirmed: None,
        command: get("command"),
        expires: get("expires").map(|text| api::span(&text)).transpose()?,
    })
}

fn outcome(done: &Ordered) -> (StatusCode, Markup) {
    if let Some(until) = done.waits {
        let words = html! { p { "Nothing is ordered yet. A second person must confirm it on this page until " (layout::moment(until)) "." } };
        return (StatusCode::ACCEPTED, html! { div.notice.wait role="status" { (words) } });
    }
    match &done.answer {
        Some((None, detail)) => {
            (StatusCode::OK, html! { div.notice.good role="status" { p { "Taken by the member: " (detail) "." } } })
        }
        Some((Some(code), detail)) => {
            let stale = *code == codes::STALE_VERSION.to_string();
            let status = if stale { StatusCode::CONFLICT } else { StatusCode::UNPROCESSABLE_ENTITY };
            (
                status,
                html! { div.notice.bad role="alert" { p { "Refused by the member: " (detail) ". " (layout::code_mark(code)) } } },
            )
        }
        None => (
            StatusCode::ACCEPTED,
            html! {
                div.notice.wait role="status" {
                    p { "No member has answered yet. The order stands in the topic and is not done; it is answered once a member runs." }
                }
            },
        ),
    }
}

fn shown(view: &View<'_>, listed: &Listed, seen: &Seen, sight: Sight, notice: Markup) -> Markup {
    let title = format!("{} of {}", listed.key.operation, listed.key.tenant);
    let body = body(view, listed, seen, sight, &notice);
    // What was shown once is not fetched again and again: each time is written down.
    if sight == Sight::Whole {
        return layout::page(view, &title, body);
    }
    let of = link(&listed.key).replacen("/operations/", "?operation=", 1).replacen("?tenant=", "&tenant=", 1);
    let live = Live { parts: "operation clock", of, say: format!("{title} is {}", listed.word().replace('_', " ")) };
    layout::live(view, &title, &live, body)
}

fn body(view: &View<'_>, listed: &Listed, seen: &Seen, sight: Sight, notice: &Markup) -> Markup {
    let (now, o) = (view.console.now(), Operation::of(&listed.key, seen, &view.console.around(&listed.key, seen)));
    html! {
            h1 { (o.operation) }
            (layout::notice(notice))
            p {
                (layout::pill(&o.status)) @for f in &listed.flags { " " (layout::flag(*f)) } " for " (layout::ago(listed.changed_at, now)) " · " (o.tenant) " · " (o.step)
                @if let Some(target) = &o.target { " · " (target) }
                " · version " (o.version)
            }
            @if o.detail.is_some() || o.code.is_some() {
                div.notice { p { (o.detail.as_deref().unwrap_or_default()) " " @if let Some(code) = &o.code { (layout::code_mark(code)) } } }
            }
            (calls::parent(&listed.key))
            (evidence::model_call(&o, &listed.key))
            (evidence::undoing(&o, &listed.key))
            (settle(seen, now))
            @if let Some(look) = &o.look_at { p.look { strong { "What proves it at the target: " } (outside(look)) } }
            (form::waiting(view, &listed.key, seen))
            h2 { "What can be ordered" }
            (form::orders(view, &listed.key, seen))
            @if let Some(plan) = &o.proposal { h2 { "The plan" } (calls::table(&listed.key, &o.calls)) pre { (plan) } }
            h2 { "What happened" }
            div.card { ol.timeline { @for step in &o.timeline { (evidence::line(step)) } } }
            (evidence::attempts(&o))
            (evidence::decided(view, &o.step, seen))
            (request::shown(view, listed, o.request_sha256.as_deref().unwrap_or_default(), sight))
            h2 { "Facts" }
            div.card { (evidence::facts(&o)) }
            (evidence::commands(&o))
            p.soft { "The same on the command line: " code { "readback ops show " (o.operation) " --tenant " (o.tenant) } }
    }
}

/// When the outcome can be decided.
fn settle(seen: &Seen, now: WallTime) -> Markup {
    let Some(l) = seen.ledger.as_ref().filter(|l| l.end.is_none() && !l.attempts.is_empty() && !l.clean()) else { return html! {} };
    html! {
        @match shown::settles_at(l) {
            Some(at) if at > now => p { strong { "Decidable in about " (show_duration(at.since(now))) } ", at " (layout::moment(at)) ": what has left must have arrived by then." },
            Some(at) => p { "Settled at " (layout::moment(at)) ": what has left must have arrived." },
            None => p { "The contract bounds no time in flight: absence never proves that nothing will arrive." },
        }
        @if let Some(at) = l.read_at { p.soft { "Next readback at " (layout::moment(at)) "." } }
    }
}

/// A link that a contract made; only one that a browser fetches is a link.
fn outside(href: &str) -> Markup {
    let web = href.starts_with("https://") || href.starts_with("http://");
    html! { @if web { a href=(href) rel="noreferrer noopener" target="_blank" { (href) } } @else { span.mono { (href) } } }
}
