//! What all pages share: head, menu, pills, times, lists.

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};

use crate::console::index::Listed;
use crate::console::problem;
use crate::console::wire::Reading;
use crate::error::{Error, codes};
use crate::intents::Status;
use crate::time::{WallTime, show_duration};

use super::{Page, View, Visitor, link};

const MENU: &[(Page, &str, &str)] = &[
    (Page::Overview, "/", "Overview"),
    (Page::Unknowns, "/unknowns", "Unknown"),
    (Page::Approvals, "/approvals", "Approvals"),
    (Page::Operations, "/operations", "Operations"),
    (Page::DeadLetters, "/dead-letters", "Dead letters"),
    (Page::Topology, "/topology", "Topology"),
    (Page::Members, "/members", "Members"),
    (Page::Configuration, "/configuration", "Settings"),
];

/// A whole page.
pub fn page(view: &View<'_>, title: &str, body: Markup) -> Markup {
    bare(
        title,
        view.console.app.as_str(),
        html! {
            header.top {
                a.name href="/" { "Readback · " (view.console.app) }
                nav aria-label="Pages" {
                    @for (page, href, word) in MENU {
                        @if *page == view.page { a href=(href) aria-current="page" { (word) } } @else { a href=(href) { (word) } }
                    }
                }
                div.who { (who(view)) }
            }
            main id="main" { (body) }
        },
    )
}

/// A page without a menu.
pub fn bare(title: &str, app: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · " (app) " · Readback" }
                link rel="stylesheet" href="/style.css";
            }
            body {
                a.skip href="#main" { "To the content" }
                (body)
            }
        }
    }
}

fn who(view: &View<'_>) -> Markup {
    match view.visitor {
        Visitor::Anyone => html! { span.pill { "read-only" } },
        Visitor::Known { person, .. } => html! {
            span { (person.name) " (" (person.words()) ")" }
            form method="post" action="/sign-out" { (view.form_token()) button.plain { "Sign out" } }
        },
    }
}

/// An error with its code, cause and next step.
pub fn problem(e: &Error) -> Markup {
    let code = e.code.to_string();
    html! {
        div.notice.bad role="alert" {
            p { (problem::words(e)) " " (code_mark(&code)) }
            @if let Some(next) = &e.next { p { "Next: " (next) } }
        }
    }
}

/// A code with its name.
pub fn code_mark(code: &str) -> Markup {
    let name = codes::ALL.iter().find(|(c, _)| c.to_string() == code).map_or("", |(_, name)| name);
    html! { abbr.mono title=(name.to_lowercase().replace('_', " ")) { (code) } }
}

/// A status.
pub fn pill(word: &str) -> Markup {
    let class = match word {
        "confirmed" | "resolved_applied" => "good",
        "unknown" | "parked" | "conflict" => "bad",
        "awaiting_approval" | "partial" | "superseded" => "wait",
        "accepted" | "planned" | "approved" | "dispatched" | "held" => "live",
        _ => "",
    };
    html! { span class={ "pill " (class) } { (word.replace('_', " ")) } }
}

/// A moment, exact, for the eye and for programs.
pub fn moment(at: WallTime) -> Markup {
    let text = at.to_string();
    html! { time datetime=(text) { (text.replace('T', " ").trim_end_matches('Z')) } }
}

/// How long ago.
pub fn ago(at: WallTime, now: WallTime) -> Markup {
    html! { time datetime=(at.to_string()) title=(at.to_string()) { (show_duration(whole(now.since(at)))) } }
}

/// Nobody reads milliseconds of an age.
fn whole(d: Duration) -> Duration {
    if d.as_secs() > 0 { Duration::from_secs(d.as_secs()) } else { d }
}

/// What must be said of a list: that it is not whole, or that something could not be read.
pub fn reading(reading: &Reading) -> Markup {
    html! {
        @if let Some(problem) = &reading.problem {
            div.notice.bad role="alert" { p { "Operations are not read now; it is tried again. " (problem) } }
        } @else if !reading.whole {
            div.notice.wait role="status" { p { "Operations are still being read: lists are not whole yet." } }
        }
        @if reading.unreadable > 0 {
            div.notice.bad { p { (reading.unreadable) " records can't be read; the log names them." } }
        }
        @if reading.left_out > 0 {
            div.notice { p { (reading.left_out) " operations that ended first are not listed here, for room." } }
        }
    }
}

/// A table of operations.
pub fn table(rows: &[Listed], now: WallTime) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Operations" {
            table {
                thead { tr {
                    th scope="col" { "Operation" } th scope="col" { "Tenant" } th scope="col" { "Status" } th scope="col" { "For" }
                    th scope="col" { "Target" } th scope="col" { "Resource" } th.num scope="col" { "Version" } th scope="col" { "Why" }
                } }
                tbody {
                    @for r in rows {
                        tr {
                            td.id { a href=(link(&r.key)) { (r.key.operation) } }
                            td { (r.key.tenant) }
                            td { (pill(r.word())) }
                            td.age { (ago(r.changed_at, now)) }
                            td { (r.target) }
                            td.id { (r.resource) }
                            td.num { (r.version) }
                            td { @if let Some(code) = &r.code { (code_mark(code)) " " } (r.detail.as_deref().unwrap_or_default()) }
                        }
                    }
                }
            }
        }
    }
}

/// A number with its noun.
pub fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// A status as people say it.
pub fn spoken(status: Status) -> String {
    status.word().replace('_', " ")
}
