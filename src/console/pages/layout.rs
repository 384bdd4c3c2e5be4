//! What all pages share: head, menu, pills, times, lists.

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};

use crate::console::index::{Listed, flag_word};
use crate::console::problem;
use crate::console::wire::Reading;
use crate::error::{Error, codes};
use crate::intents::{Flag, Status};
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
    (Page::Guarantees, "/guarantees", "Guarantees"),
    (Page::Configuration, "/configuration", "Settings"),
];

/// What keeps a page as things are now.
pub struct Live {
    /// The parts that it shows, as `/events` names them: `operations`, `operation`, `letters`, `clock`.
    pub parts: &'static str,
    /// The query of `/events`, where it is of one operation.
    pub of: String,
    /// What is told to those who do not see it, once it has changed.
    pub say: String,
}

impl Live {
    /// Of these parts.
    pub fn of(parts: &'static str, say: impl Into<String>) -> Self {
        Self { parts, of: String::new(), say: say.into() }
    }
}

/// A whole page, as of when it was loaded.
pub fn page(view: &View<'_>, title: &str, body: Markup) -> Markup {
    whole(view, title, None, body)
}

/// A whole page that follows what it shows.
pub fn live(view: &View<'_>, title: &str, live: &Live, body: Markup) -> Markup {
    whole(view, title, Some(live), body)
}

fn whole(view: &View<'_>, title: &str, live: Option<&Live>, body: Markup) -> Markup {
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
                div.who {
                    @if live.is_some() {
                        button.live #live type="button" hidden aria-pressed="true" title="Updates as things change; press to pause" { "Live" }
                    }
                    (who(view))
                }
            }
            p.unseen #said role="status" aria-live="polite" {}
            @if let Some(live) = live {
                main id="main" tabindex="-1" data-live=(live.parts) data-of=(live.of) data-say=(live.say) { (body) }
                script src="/live.js" defer {}
            } @else {
                main id="main" tabindex="-1" { (body) }
            }
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

/// A flag.
pub fn flag(flag: Flag) -> Markup {
    html! { span.pill.bad { (flag_word(flag).replace('_', " ")) } }
}

/// A moment, exact, for the eye and for programs.
pub fn moment(at: WallTime) -> Markup {
    let text = at.to_string();
    html! { time datetime=(text) { (text.replace('T', " ").trim_end_matches('Z')) } }
}

/// How long ago.
pub fn ago(at: WallTime, now: WallTime) -> Markup {
    html! { time datetime=(at.to_string()) title=(at.to_string()) { (age(at, now)) } }
}

/// How long ago, in words.
pub fn age(at: WallTime, now: WallTime) -> String {
    show_duration(seconds(now.since(at)))
}

/// Nobody reads milliseconds of an age.
fn seconds(d: Duration) -> Duration {
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

/// Where what a form brought about stands; following the page leaves it there.
pub fn notice(of: &Markup) -> Markup {
    html! { div #notice data-keep { (of) } }
}

/// A number with its thousands apart.
pub fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::from(if n < 0 { "−" } else { "" });
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(d);
    }
    out
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
                        tr data-key=(link(&r.key)) {
                            td.id { a href=(link(&r.key)) { (r.key.operation) } }
                            td { (r.key.tenant) }
                            td { (pill(r.word())) @for f in &r.flags { " " (flag(*f)) } }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a person would take two million for two hundred thousand.
    #[test]
    fn thousands_stand_apart() {
        let plain = |n: i64| grouped(n).replace('\u{202f}', "_");
        assert_eq!([0, 999, 1_000, -12_345, 2_000_000].map(plain), ["0", "999", "1_000", "−12_345", "2_000_000"]);
    }
}
