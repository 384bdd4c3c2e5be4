//! Dead letters, and the form that sends one back.

use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use crate::console::api::{self, Asked};
use crate::console::letters::{self, ROLES, Row};
use crate::console::paging::{LIMIT, Paging};
use crate::console::problem;
use crate::console::search::{escape, pairs};
use crate::error::Result;
use crate::time::WallTime;

use super::layout::Live;
use super::operation::form_refused;
use super::{View, Visitor, html_page, layout};

/// The page.
///
/// # Errors
/// What keeps it from being shown.
pub fn page(view: &View<'_>, query: &str) -> Result<Markup> {
    shown(view, html! {}, &Paging::parse(query)?)
}

/// Takes a form.
///
/// # Errors
/// What keeps even the page from being shown.
pub fn replay(view: &View<'_>, asked: &Asked) -> Result<Response> {
    let Visitor::Known { person, cookie, .. } = view.visitor else { return Err(api::read_only()) };
    let fields = pairs(&String::from_utf8_lossy(&asked.body));
    let get = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.trim()).unwrap_or_default();
    if !view.console.sessions.is_form_of(cookie, get("form")) {
        return Err(form_refused());
    }
    let deadline = Some(get("deadline")).filter(|d| !d.is_empty()).map(api::span).transpose();
    let sent = deadline.and_then(|d| letters::replay(view.console, person, &asked.from, get("letter"), get("reason"), d));
    let (status, notice) = match &sent {
        Ok(done) => {
            (StatusCode::OK, html! { div.notice.good role="status" { p { (done.letter) " went back to " (done.to) "." } } })
        }
        Err(e) => (problem::status(e), layout::problem(e)),
    };
    Ok(html_page(status, shown(view, notice, &Paging::default())?))
}

fn shown(view: &View<'_>, notice: Markup, paging: &Paging) -> Result<Markup> {
    let all = letters::list(view.console, paging)?;
    let limit = if paging.limit == LIMIT { String::new() } else { format!("limit={}&", paging.limit) };
    Ok(layout::live(
        view,
        "Dead letters",
        &Live::of("letters", layout::count(all.resting, "letter rests", "letters rest")),
        html! {
            h1 { "Dead letters" }
            (layout::notice(&notice))
            p.soft { (layout::count(all.resting, "letter rests", "letters rest")) " in " (all.topic) ". A letter goes back once: the record and the mark that says so are one transaction." }
            @if all.resting == 0 { p.notice.good { "Nothing rests." } } @else { (table(view, &all.letters)) }
            div.pages {
                @if paging.after.is_some() { a href="/dead-letters" { "First page" } }
                @if let Some(next) = &all.next { a href={ "/dead-letters?" (limit) "cursor=" (escape(next)) } rel="next" { "Next page" } }
            }
        },
    ))
}

fn table(view: &View<'_>, rows: &[Row]) -> Markup {
    let now = view.console.now();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Dead letters" { table {
            thead { tr {
                th scope="col" { "Letter" } th scope="col" { "Rests for" } th scope="col" { "Why" } th scope="col" { "Step, operation" }
                th scope="col" { "From" } th scope="col" { "Way back" }
            } }
            tbody { @for r in rows { tr data-key=(r.letter) {
                td.id { a href={ "/dead-letters/" (escape(&r.letter)) } { (r.letter) } }
                td.age { (layout::ago(WallTime(r.since), now)) }
                td { (layout::code_mark(&r.code)) " " (r.reason) }
                td.id { (r.step.as_deref().unwrap_or_default()) @if let Some(o) = &r.operation { br; (o) } }
                td.id { (r.origin) }
                td { (back(view, r)) }
            } } }
        } }
    }
}

fn back(view: &View<'_>, r: &Row) -> Markup {
    let Some(to) = &r.goes_to else { return html! { (r.stays_because.as_deref().unwrap_or_default()) } };
    let may = matches!(view.visitor, Visitor::Known { person, .. } if person.is(ROLES));
    html! {
        @if !may { "to " (to) } @else {
            details {
                summary { "Send back to " (to) }
                form.order method="post" action="/dead-letters" {
                    (view.form_token())
                    input type="hidden" name="letter" value=(r.letter);
                    label { "Reason (kept beside the letter)" input name="reason" required maxlength="2000" autocomplete="off"; }
                    @if to == "admission" {
                        label { "New deadline from now, where its own is over" input name="deadline" placeholder="1h" pattern="[0-9.]+ ?(s|m|min|h|d)"; }
                    }
                    button { "Send back" }
                }
            }
        }
    }
}
