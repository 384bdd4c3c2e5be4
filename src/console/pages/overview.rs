//! How things stand: what needs a person first, then the flow from stage to stage, targets, budgets, and what this process does.

use std::collections::BTreeMap;
use std::time::Instant;

use maud::{Markup, html};

use crate::console::api;
use crate::console::index::{Index, Listed, flag_word};
use crate::console::looks::Resting;
use crate::console::search::escape;
use crate::console::second::Waiting;
use crate::error::Result;
use crate::ids::{OperationId, OperationKey};
use crate::intents::{Flag, Status};
use crate::time::{WallTime, show_duration};

use super::layout::Live;
use super::{View, budgets, layout, link, process};

/// The stages that an operation passes, with the status that it has there and what it waits for.
const STAGES: [(Status, &str, &str); 7] = [
    (Status::Accepted, "Admitted", "its input is fetched, its plan is made"),
    (Status::Planned, "Planned", "policy is asked"),
    (Status::AwaitingApproval, "Approval", "a person approves or denies"),
    (Status::Approved, "Handed over", "its lane, a permit, a time"),
    (Status::Dispatched, "Sent", "the target's answer"),
    (Status::Unknown, "Unknown", "settle, then a readback"),
    (Status::Parked, "Parked", "a person decides"),
];

/// The page.
pub fn page(view: &View<'_>) -> Result<Markup> {
    let (o, now) = (api::overview(view.console), view.console.now());
    // A model's call that is under way or needs a person counts with the others; one that has ended is no work that was done.
    let of = |counts: &BTreeMap<String, usize>, status: Status| counts.get(status.word()).copied().unwrap_or_default();
    let count = |status: Status| of(&o.by_status, status) + if status.is_end() { 0 } else { of(&o.proposals, status) };
    let headline = headline(count(Status::Unknown), count(Status::Parked), count(Status::AwaitingApproval));
    let resting = view.console.resting();
    let (paused, people, stages, budgets) = {
        let index = view.console.kept().index();
        (
            paused(&index, now),
            people(&index, &count, resting.as_ref(), now),
            stages(view, &index, &count, now),
            budgets::of(view.console, &index),
        )
    };
    Ok(layout::live(
        view,
        "Overview",
        &Live::of("operations letters clock", headline.as_str()),
        html! {
            h1 { (headline) }
            (layout::reading(&o.reading))
            (paused)
            (second(&view.console.waiters.list(now, |_| true), now))
            (people)
            h2 { "From stage to stage" }
            (stages)
            (ends(&o.by_status))
            (proposals(&o.proposals))
            (targets(&o.by_target))
            (budgets::shown(&budgets))
            (process::page(view.console.rates.as_ref()))
        },
    ))
}

fn headline(unknown: usize, parked: usize, waiting: usize) -> String {
    let parts = [(parked, "parked: a person must decide"), (unknown, "unknown"), (waiting, "waiting for approval")];
    let told: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if told.is_empty() { "Nothing waits for a person".to_owned() } else { told.join(" · ") }
}

/// A number that may need somebody, with what is oldest of it.
fn tile(n: usize, name: &str, href: &str, class: &str, below: Markup) -> Markup {
    html! {
        a class={ "tile " (if n > 0 { class } else { "" }) } href=(href) data-key=(name) {
            b { (layout::grouped(n as i64)) } (name) br;
            span { (below) }
        }
    }
}

/// What may not be sent for now, so that a pause that was forgotten is seen.
fn paused(index: &Index, now: WallTime) -> Markup {
    html! {
        @for (order, taken) in index.paused() {
            p.notice data-key={ "paused " (order.scope.to_string()) } {
                strong { "Paused: " (order.scope.to_string()) } ", for " (layout::ago(order.at, now)) ", by " (order.by) ": " (order.reason)
                ", in " (taken) @if taken == 1 { " partition. " } @else { " partitions. " }
                code { "readback ops resume" } " lets it go on."
            }
        }
    }
}

/// Orders that a second person must confirm before they run out.
fn second(waiting: &[Waiting], now: WallTime) -> Markup {
    html! {
        @for order in waiting {
            @let of = OperationKey {
                operation: OperationId::new(&order.operation), tenant: order.tenant.as_str().into(), step: order.step.as_str().into(),
            };
            p.notice data-key={ "second " (order.command) } {
                strong { "Waits for a second person: " (order.action.replace('_', " ")) } " of " a href=(link(&of)) { (order.operation) } ", by " (order.by)
                ": " (order.reason) ", for " (show_duration(WallTime(order.until).since(now))) " more."
            }
        }
    }
}

/// What needs a person.
fn people(index: &Index, count: &dyn Fn(Status) -> usize, resting: Option<&Resting>, now: WallTime) -> Markup {
    let oldest = |l: Option<Listed>, else_: &str| match l {
        Some(l) => html! { "oldest " (layout::ago(l.changed_at, now)) },
        None => html! { (else_) },
    };
    let of = |status, name, href, class, about| tile(count(status), name, href, class, oldest(index.oldest(status), about));
    let suspected = index.flagged(Flag::DuplicateSuspected);
    let contradictions = index.flagged(Flag::Contradiction);
    let flagged = |flag| format!("/operations?flag={}", flag_word(flag));
    html! {
        div.tiles {
            (of(Status::Parked, "parked", "/unknowns?status=parked", "alarm", "a person must decide"))
            (of(Status::Unknown, "unknown", "/unknowns?status=unknown", "alarm", "looks after itself until it is parked"))
            (of(Status::AwaitingApproval, "awaiting approval", "/approvals", "care", "a person must approve or deny"))
            (tile(suspected, "suspected duplicates", &flagged(Flag::DuplicateSuspected), "alarm", html! { "more than one effect may exist" }))
            @if contradictions > 0 {
                (tile(contradictions, "contradictions", &flagged(Flag::Contradiction), "alarm", html! { "evidence disagrees with the end" }))
            }
            (letters(resting, now))
        }
    }
}

fn letters(resting: Option<&Resting>, now: WallTime) -> Markup {
    let Some(resting) = resting else { return html! {} };
    match &resting.count {
        Ok(n) => {
            let below = match resting.oldest {
                Some(at) => html! { "oldest " (layout::ago(at, now)) },
                None => html! { "as of " (layout::ago(resting.at, now)) " ago" },
            };
            tile(*n, if *n == 1 { "dead letter rests" } else { "dead letters rest" }, "/dead-letters", "care", below)
        }
        Err(why) => {
            html! { a.tile.care href="/dead-letters" data-key="letters" { b { "?" } "dead letters" br; span { "not read: " (why) } } }
        }
    }
}

/// How many stand at each stage, since when the first of them, and how many came in the last minute.
fn stages(view: &View<'_>, index: &Index, count: &dyn Fn(Status) -> usize, now: WallTime) -> Markup {
    let (flow, at) = (view.console.kept().flow(), Instant::now());
    let ends = || Status::ALL.iter().filter(|s| s.is_end());
    let ended: u64 = ends().map(|s| flow.of(*s, at)).sum();
    html! {
        div.scroll tabindex="0" role="region" aria-label="From stage to stage" { table {
            thead { tr {
                th scope="col" { "Stage" } th.num scope="col" { "Now" } th scope="col" { "Oldest" } th.num scope="col" { "Came in the last minute" }
                th scope="col" { "Waits for" }
            } }
            tbody {
                @for (status, name, waits_for) in STAGES {
                    @let n = count(status);
                    tr data-key=(name) {
                        td { a href={ "/operations?status=" (status.word()) "&order=oldest" } { (name) } }
                        td.num { @if n > 0 { strong { (layout::grouped(n as i64)) } } @else { span.soft { "0" } } }
                        td.age { @if let Some(l) = index.oldest(status) { a href=(link(&l.key)) { (layout::ago(l.changed_at, now)) } } }
                        td.num { (came(flow.of(status, at))) }
                        td.soft { (waits_for) }
                    }
                }
                tr data-key="ended" {
                    td { "Ended" } td.num { (layout::grouped(ends().map(|s| count(*s) as i64).sum())) } td {} td.num { (came(ended)) }
                    td.soft { "nothing; kept until they are forgotten" }
                }
            }
        } }
    }
}

fn came(n: u64) -> Markup {
    html! { @if n == 0 { span.soft { "0" } } @else { "+" (layout::grouped(n as i64)) } }
}

/// How operations have ended.
fn ends(by_status: &BTreeMap<String, usize>) -> Markup {
    let ends: Vec<_> = by_status.iter().filter(|(word, _)| is_end(word)).collect();
    html! {
        @if !ends.is_empty() {
            h2 { "How they ended" }
            p.chips { @for (word, n) in ends {
                a.chip href={ "/operations?status=" (escape(word)) } data-key=(word) { (layout::pill(word)) " " (layout::grouped(*n as i64)) }
            } }
        }
    }
}

fn is_end(word: &str) -> bool {
    Status::ALL.iter().any(|s| s.is_end() && s.word() == word)
}

/// How the calls of models have ended: proposals, no work that was done.
fn proposals(by_status: &BTreeMap<String, usize>) -> Markup {
    let ended = by_status.iter().filter(|(word, _)| is_end(word));
    let words: Vec<String> = ended.map(|(word, n)| format!("{} {}", layout::grouped(*n as i64), word.replace('_', " "))).collect();
    html! { @if !words.is_empty() { p.soft { "Calls of models for proposals, counted apart: " (words.join(" · ")) "." } } }
}

fn targets(by_target: &BTreeMap<String, BTreeMap<String, usize>>) -> Markup {
    let of = |counts: &BTreeMap<String, usize>, words: &[&str]| words.iter().filter_map(|w| counts.get(*w)).sum::<usize>();
    const COLUMNS: [(&str, &[&str]); 5] = [
        ("Under way", &["approved", "dispatched"]),
        ("Unknown", &["unknown"]),
        ("Parked", &["parked"]),
        ("Confirmed", &["confirmed"]),
        ("Refused", &["refused"]),
    ];
    html! {
        h2 { "Targets" }
        @if by_target.is_empty() { p.soft { "Nothing was handed over to a target yet." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Targets" { table {
                thead { tr {
                    th scope="col" { "Target" }
                    @for (name, _) in COLUMNS { th.num scope="col" { (name) } }
                } }
                tbody { @for (target, counts) in by_target { tr data-key=(target) {
                    td { a href={ "/operations?target=" (escape(target)) } { (target) } }
                    @for (_, words) in COLUMNS { td.num { (layout::grouped(of(counts, words) as i64)) } }
                } } }
            } }
        }
    }
}
