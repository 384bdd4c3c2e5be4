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
use crate::console::shown::{self, Operation, Step};
use crate::error::{Error, Fault, Result, codes};
use crate::time::{WallTime, show_duration};

use super::{View, Visitor, form, html_page, layout};

/// The page.
pub fn page(view: &View<'_>, asked: &Asked) -> Result<Markup> {
    let (listed, seen) = found(view, asked)?;
    Ok(shown(view, &listed, &seen, html! {}))
}

fn found(view: &View<'_>, asked: &Asked) -> Result<(Listed, Seen)> {
    let (tenant, step) = api::place(&asked.query)?;
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
        Some(action) => wanted(asked, &get).and_then(|w| act(view.console, person, &asked.from, action, &w)),
        None => Err(Error::new(codes::BAD_VALUE, Fault::Configuration, "reading a form").because("it names no action")),
    };
    let (status, notice) = match &done {
        Ok(ordered) => outcome(ordered),
        Err(e) => (problem::status(e), layout::problem(e)),
    };
    let (listed, seen) = found(view, asked)?;
    Ok(html_page(status, shown(view, &listed, &seen, notice)))
}

/// A form that was not shown to whoever sent it.
pub fn form_refused() -> Error {
    Error::new(codes::FORM_REFUSED, Fault::Verdict, "taking a form")
        .because("it was not shown to this session")
        .next("load the page again and send it anew")
}

fn wanted(asked: &Asked, get: &dyn Fn(&str) -> Option<String>) -> Result<Wanted> {
    let (tenant, step) = api::place(&asked.query)?;
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
        command: get("command"),
        expires: get("expires").map(|text| api::span(&text)).transpose()?,
    })
}

fn outcome(done: &Ordered) -> (StatusCode, Markup) {
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

fn shown(view: &View<'_>, listed: &Listed, seen: &Seen, notice: Markup) -> Markup {
    let (now, o) = (view.console.now(), Operation::of(&listed.key, seen));
    let title = format!("{} of {}", o.operation, o.tenant);
    layout::page(
        view,
        &title,
        html! {
            h1 { (o.operation) }
            (notice)
            p {
                (layout::pill(&o.status)) " for " (layout::ago(listed.changed_at, now)) " · " (o.tenant) " · " (o.step)
                @if let Some(target) = &o.target { " · " (target) }
                " · version " (o.version)
            }
            @if o.detail.is_some() || o.code.is_some() {
                div.notice { p { (o.detail.as_deref().unwrap_or_default()) " " @if let Some(code) = &o.code { (layout::code_mark(code)) } } }
            }
            (settle(seen, now))
            @if let Some(look) = &o.look_at { p { "Look at the target: " (outside(look)) } }
            h2 { "What can be ordered" }
            (form::orders(view, &listed.key, seen))
            @if let Some(plan) = &o.proposal { h2 { "The plan" } pre { (plan) } }
            h2 { "What happened" }
            div.card { ol.timeline { @for step in &o.timeline { (line(step)) } } }
            (attempts(&o))
            h2 { "Facts" }
            div.card { (facts(&o)) }
            (commands(&o))
            p.soft { "The same on the command line: " code { "readback ops show " (o.operation) " --tenant " (o.tenant) } }
        },
    )
}

/// A line of the timeline: what happened stands in its first twelve letters.
fn line(step: &Step) -> Markup {
    let (head, rest) = step.what.split_at_checked(12).unwrap_or((&step.what, ""));
    html! { li { (layout::moment(WallTime(step.at))) b { (head.trim()) } span { (rest.trim()) } } }
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

fn attempts(o: &Operation) -> Markup {
    html! {
        @if !o.attempts.is_empty() {
            h2 { "Attempts" }
            div.scroll tabindex="0" role="region" aria-label="Attempts" { table {
                thead { tr {
                    th.num scope="col" { "n" } th scope="col" { "Journalled" } th scope="col" { "May leave until" } th scope="col" { "Outcome" }
                    th scope="col" { "Warrants" } th scope="col" { "Answer's digest" }
                } }
                tbody { @for a in &o.attempts { tr {
                    td.num { (a.n) }
                    td { (layout::moment(WallTime(a.journalled_at))) br; span.soft.mono { (a.by) } }
                    td { (layout::moment(WallTime(a.send_not_after))) }
                    td { (a.words) @if let Some(at) = a.ended_at { br; (layout::moment(WallTime(at))) } }
                    td { @for w in &a.warrants { div { "attempt " (w.covers) ": " (w.kind.replace('_', " ")) @if let Some(by) = &w.by { " by " (by) } } } }
                    td.mono { (a.digest.as_deref().unwrap_or_default()) }
                } } }
            } }
        }
        @if !o.readbacks.is_empty() {
            h2 { "Readbacks (the last " (o.readbacks.len()) " of " (o.readbacks_started) ")" }
            div.scroll tabindex="0" role="region" aria-label="Readbacks" { table {
                thead { tr { th scope="col" { "At" } th scope="col" { "Found" } th scope="col" { "Digest of the pages" } } }
                tbody { @for r in &o.readbacks { tr {
                    td { (layout::moment(WallTime(r.at))) } td { (r.found) } td.mono { (r.digest.as_deref().unwrap_or_default()) }
                } } }
            } }
        }
    }
}

fn facts(o: &Operation) -> Markup {
    let text = |v: &Option<String>| v.clone().unwrap_or_default();
    let at = |v: Option<i64>| v.map(|at| layout::moment(WallTime(at))).unwrap_or_default();
    let approval = o.approval.as_ref().map(|a| {
        html! {
            (a.approver) ", binds " span.mono { (a.plan_hash) } ", until " (layout::moment(WallTime(a.expires_at)))
            @if !a.policy_version.is_empty() { ", policy " (a.policy_version) }
        }
    });
    let rows = [
        ("requester", html! { (text(&o.requester)) }),
        ("action", html! { (text(&o.action)) }),
        ("resource", html! { (o.resource) @if let Some(v) = &o.resource_version { " version " (v) } }),
        ("deadline", at(o.deadline)),
        ("approval", approval.unwrap_or_default()),
        ("reference at the target", html! { (text(&o.reference)) }),
        ("evidence", html! { span.mono { (text(&o.evidence)) } }),
        ("flags", html! { (o.flags.join(", ")) }),
        ("unknown since", at(o.unknown_since)),
        ("closed", at(o.closed_at)),
        ("envelope", html! { span.mono { (text(&o.identity_hash)) } }),
        ("plan", html! { span.mono { (text(&o.plan_hash)) } }),
        ("request bytes, SHA-256", html! { span.mono { (text(&o.request_sha256)) } }),
    ];
    html! {
        dl.facts { @for (name, value) in &rows {
            @if !value.0.is_empty() && value.0 != "<span class=\"mono\"></span>" { dt { (name) } dd { (value) } }
        } }
    }
}

fn commands(o: &Operation) -> Markup {
    html! {
        @if !o.commands.is_empty() {
            h2 { "Commands answered" }
            div.scroll tabindex="0" role="region" aria-label="Commands" { table {
                thead { tr { th scope="col" { "Command" } th scope="col" { "Answer" } } }
                tbody { @for c in &o.commands { tr {
                    td.mono { (c.command) } td { (c.detail) " " @if let Some(code) = &c.code { (layout::code_mark(code)) } }
                } } }
            } }
        }
    }
}
