//! How things stand: what needs a person first, then counts, targets, and what this process does a second.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::console::api;
use crate::console::rates::Rates;
use crate::console::search::escape;
use crate::console::shown::Row;
use crate::error::Result;
use crate::events;
use crate::intents::Status;
use crate::time::WallTime;

use super::{View, layout};

/// The page.
pub fn page(view: &View<'_>) -> Result<Markup> {
    let (o, now) = (api::overview(view.console), view.console.now());
    let count = |status: Status| o.by_status.get(status.word()).copied().unwrap_or_default();
    let head = [
        (Status::Unknown, "/unknowns?status=unknown", &o.oldest_unknown, "alarm", "looks after itself until it is parked"),
        (Status::Parked, "/unknowns?status=parked", &o.oldest_parked, "alarm", "a person must decide"),
        (Status::AwaitingApproval, "/approvals", &o.oldest_awaiting_approval, "care", "a person must approve or deny"),
    ];
    Ok(layout::page(
        view,
        "Overview",
        html! {
            h1 { (headline(count(Status::Unknown), count(Status::Parked), count(Status::AwaitingApproval))) }
            (layout::reading(&o.reading))
            div.tiles {
                @for (status, href, oldest, class, about) in &head {
                    @let n = count(*status);
                    a class={ "tile " (if n > 0 { class } else { "" }) } href=(href) {
                        b { (n) } (layout::spoken(*status)) br;
                        span { @if let Some(row) = oldest { "oldest " (layout::ago(WallTime(row.changed_at), now)) } @else { (about) } }
                    }
                }
            }
            h2 { "All operations by status" }
            div.tiles {
                @for (word, n) in &o.by_status {
                    a.tile href={ "/operations?status=" (escape(word)) } { b { (n) } (layout::pill(word)) }
                }
                @if o.by_status.is_empty() { p.soft { "There are none yet." } }
            }
            (targets(&o.by_target))
            (process(view.console.rates.as_ref()))
            (longest(&[&o.oldest_parked, &o.oldest_unknown], now))
        },
    ))
}

fn headline(unknown: usize, parked: usize, waiting: usize) -> String {
    let parts = [(parked, "parked: a person must decide"), (unknown, "unknown"), (waiting, "waiting for approval")];
    let told: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if told.is_empty() { "Nothing waits for a person".to_owned() } else { told.join(" · ") }
}

fn targets(by_target: &BTreeMap<String, BTreeMap<String, usize>>) -> Markup {
    let of = |counts: &BTreeMap<String, usize>, words: &[&str]| words.iter().filter_map(|w| counts.get(*w)).sum::<usize>();
    html! {
        h2 { "Targets" }
        @if by_target.is_empty() { p.soft { "Nothing was handed over to a target yet." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Targets" { table {
                thead { tr {
                    th scope="col" { "Target" } th.num scope="col" { "Under way" } th.num scope="col" { "Unknown" }
                    th.num scope="col" { "Parked" } th.num scope="col" { "Confirmed" } th.num scope="col" { "Refused" }
                } }
                tbody { @for (target, counts) in by_target { tr {
                    td { a href={ "/operations?target=" (escape(target)) } { (target) } }
                    td.num { (of(counts, &["approved", "dispatched"])) }
                    td.num { (of(counts, &["unknown"])) }
                    td.num { (of(counts, &["parked"])) }
                    td.num { (of(counts, &["confirmed"])) }
                    td.num { (of(counts, &["refused"])) }
                } } }
            } }
        }
    }
}

/// What this process measures of itself.
fn process(rates: Option<&Rates>) -> Markup {
    let Some(rates) = rates else {
        return html! { h2 { "This process" } p.soft { "It serves the console alone: rates are at the members' own consoles and /metrics." } };
    };
    let total = |m| rates.rate(m, "").values().fold(0.0, |all, one| all + one);
    let flow = [
        ("records read", total(events::RECORDS_READ)),
        ("operations admitted", total(events::ADMITTED)),
        ("calls came out", total(events::EFFECTS_ATTEMPTS)),
        ("readbacks", total(events::EFFECTS_READBACKS)),
        ("effects ended", total(events::EFFECTS_ENDS)),
        ("transactions taken back", total(events::ABORTS)),
    ];
    let (running, limit) = (rates.gauge(events::TARGET_CALLS, "target"), rates.gauge(events::TARGET_LIMIT, "target"));
    let closed = rates.gained(events::TARGET_CLOSED, "target");
    html! {
        h2 { "This process, over the last minute" }
        div.tiles { @for (what, rate) in &flow { div.tile { b { (format!("{rate:.1}")) } span { (what) " a second" } } } }
        @if !limit.is_empty() {
            h2 { "Calls of this process" }
            div.scroll tabindex="0" role="region" aria-label="Calls" { table {
                thead { tr { th scope="col" { "Target" } th.num scope="col" { "Under way" } th.num scope="col" { "At most" } th scope="col" { "Breaker" } } }
                tbody { @for (target, most) in &limit {
                    @let deferred = closed.get(target).copied().unwrap_or_default();
                    tr {
                        td { (target) }
                        td.num { (running.get(target).copied().unwrap_or_default()) }
                        td.num { (most) }
                        td { @if deferred > 0.0 { span.pill.bad { "closed " (deferred) " times" } } @else { span.pill.good { "open for calls" } } }
                    }
                } }
            } }
        }
    }
}

fn longest(rows: &[&Option<Row>], now: WallTime) -> Markup {
    let rows: Vec<&Row> = rows.iter().filter_map(|r| r.as_ref()).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "What waits longest" }
            @for r in rows {
                p {
                    (layout::pill(&r.status)) " for " (layout::ago(WallTime(r.changed_at), now)) ": "
                    a href={ "/operations/" (escape(&r.operation)) "?tenant=" (escape(&r.tenant)) "&step=" (escape(&r.step)) } { (r.operation) }
                    " of " (r.tenant) @if let Some(detail) = &r.detail { ", " (detail) }
                }
            }
        }
    }
}
