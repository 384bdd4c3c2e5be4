//! Members of the groups, what is left in their partitions and what an open transaction holds back; and how this process is configured.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::console::lag::{Group, Lag, Left};
use crate::console::looks::Members;
use crate::console::rates::Rates;
use crate::error::Result;
use crate::events;
use crate::ids::Tp;
use crate::kafka::Member;
use crate::time::{WallTime, show_duration};

use super::layout::Live;
use super::{View, layout};

/// Members and partitions.
pub fn page(view: &View<'_>) -> Result<Markup> {
    let (seen, now) = (view.console.members()?, view.console.now());
    let summary = summary(&seen.groups, now);
    Ok(layout::live(
        view,
        "Members",
        &Live::of("clock", summary.as_str()),
        html! {
            h1 { "Members and partitions" }
            p { (summary) "." }
            @for g in seen.groups.iter() { (group(g, now)) }
            @if seen.groups.is_empty() { p.notice { "No group of this application is there, and none of its topics." } }
            (held_back(&seen, now))
            (open_here(view.console.rates.as_ref()))
            h2 { "What these numbers are" }
            p.soft {
                "As coordinators and topics said at " (layout::moment(seen.at)) ". " strong { "Records left" } " are committed records between the "
                "committed position and the last stable offset. They are read and counted, so markers of transactions and what was taken back "
                "are no part of it; where there are more than a look can count, two numbers bound them. " strong { "Oldest" } " is the age of the first "
                "of them, by the record's own time."
            }
        },
    ))
}

fn summary(groups: &[Group], now: WallTime) -> String {
    let lags = || groups.iter().flat_map(|g| &g.partitions);
    let (least, most) = lags().fold((0, 0), |(least, most), l| match l.left {
        Left::Records(n) => (least + n, most + n),
        Left::Between(a, b) => (least + a, most + b),
    });
    let held = lags().filter(|l| l.held_back() > 0).count();
    let left = match (least, most) {
        (_, 1) => "1 record is left".to_owned(),
        (a, b) if a == b => format!("{} records are left", layout::grouped(a as i64)),
        (a, b) => format!("{} to {} records are left", layout::grouped(a as i64), layout::grouped(b as i64)),
    };
    let members = layout::count(groups.iter().map(|g| g.members.len()).sum(), "member", "members");
    let partitions = layout::count(lags().count(), "partition", "partitions");
    let open =
        if held == 0 { String::new() } else { format!("; {} held back by an open transaction", layout::count(held, "is", "are")) };
    let oldest = lags().filter_map(|l| l.oldest).min().map(|at| format!(", the oldest for {}", layout::age(at, now)));
    format!("{members}; {left} in {partitions}{}{open}", oldest.unwrap_or_default())
}

fn group(g: &Group, now: WallTime) -> Markup {
    let owners: BTreeMap<&Tp, &str> =
        g.members.iter().flat_map(|m| m.partitions.iter().map(|tp| (tp, m.client_id.as_str()))).collect();
    let busy: Vec<&Lag> = g.partitions.iter().filter(|l| l.left != Left::Records(0) || l.held_back() > 0).collect();
    html! {
        h2 { "Group " (g.name) " · " (layout::count(g.members.len(), "member", "members")) }
        div.scroll tabindex="0" role="region" aria-label="Members" { table {
            thead { tr { th scope="col" { "Slot" } th scope="col" { "Connects from" } th scope="col" { "Partitions" } } }
            tbody {
                @for m in &g.members { tr data-key=(m.client_id) { td { (m.client_id) } td { (m.host) } td { (given(m)) } } }
                @if g.members.is_empty() { tr { td colspan="3" { "Nobody is a member: nothing is done until one runs." } } }
            }
        } }
        @if busy.is_empty() { p.soft { "Nothing is left in any of its partitions." } } @else { (table(&busy, &owners, now)) }
        details data-key="all" {
            summary { "All " (layout::count(g.partitions.len(), "partition", "partitions")) }
            (table(&g.partitions.iter().collect::<Vec<_>>(), &owners, now))
        }
    }
}

fn table(lags: &[&Lag], owners: &BTreeMap<&Tp, &str>, now: WallTime) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Positions" { table {
            thead { tr {
                th scope="col" { "Topic" } th.num scope="col" { "Partition" } th.num scope="col" { "Records left" } th scope="col" { "Oldest" }
                th.num scope="col" { "Held back" } th scope="col" { "Slot" }
            } }
            tbody { @for l in lags { tr data-key=(l.tp) {
                td { (l.tp.topic) } td.num { (l.tp.partition) }
                td.num { (left(l)) }
                td.age { @if let Some(at) = l.oldest { (layout::ago(at, now)) } }
                td.num { @if l.held_back() > 0 { strong { (layout::grouped(l.held_back())) } } @else { span.soft { "0" } } }
                td { (owners.get(&l.tp).copied().unwrap_or_default()) }
            } } }
        } }
    }
}

/// What a member has, topic by topic.
fn given(m: &Member) -> Markup {
    let mut topics: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for tp in &m.partitions {
        topics.entry(tp.topic.as_str()).or_default().push(tp.partition.to_string());
    }
    html! {
        @if topics.is_empty() { span.soft { "none" } }
        @for (topic, partitions) in &topics { div { (topic) " " span.soft { (partitions.join(", ")) } } }
    }
}

fn left(l: &Lag) -> Markup {
    html! {
        @match l.left {
            Left::Records(n) => (layout::grouped(n as i64)),
            Left::Between(a, b) => { (layout::grouped(a as i64)) " to " (layout::grouped(b as i64)) },
        }
        @if l.committed.is_none() { br; span.soft { "never committed" } }
    }
}

/// Partitions whose last stable offset stands before their end: a transaction is open there.
fn held_back(seen: &Members, now: WallTime) -> Markup {
    let held: Vec<&Lag> = seen.groups.iter().flat_map(|g| &g.partitions).filter(|l| l.held_back() > 0).collect();
    html! {
        h2 { "Open transactions" }
        @if held.is_empty() { p.soft { "Every partition is stable up to its end: no transaction holds anything back." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Open transactions" { table {
                thead { tr {
                    th scope="col" { "Topic" } th.num scope="col" { "Partition" } th.num scope="col" { "Last stable offset" } th.num scope="col" { "End" }
                    th.num scope="col" { "Gap" } th scope="col" { "Seen so for" }
                } }
                tbody { @for l in held { tr data-key=(l.tp) {
                    td { (l.tp.topic) } td.num { (l.tp.partition) } td.num { (l.stable) } td.num { (l.end) } td.num { (layout::grouped(l.held_back())) }
                    td.age { @if let Some(since) = seen.held_since.get(&l.tp) { (layout::ago(*since, now)) } }
                } } }
            } }
            p.soft {
                "A gap that comes and goes is a transaction under way. One that stays at the same last stable offset for longer than the transaction "
                "timeout is hanging: nothing behind it is read. " code { "kafka-transactions.sh find-hanging" } " names its producer. How long it was seen "
                "so is counted while somebody looks."
            }
        }
    }
}

/// How long the transactions of this process are open.
fn open_here(rates: Option<&Rates>) -> Markup {
    let open: Vec<(String, f64)> =
        rates.map(|r| r.gauge(events::OPEN_SECONDS, "slot").into_iter().filter(|(_, s)| *s > 0.0).collect()).unwrap_or_default();
    html! {
        @if !open.is_empty() {
            p { "Of this process: " @for (i, (slot, seconds)) in open.iter().enumerate() {
                @if i > 0 { ", " } (slot) " for " (show_duration(std::time::Duration::from_millis((seconds * 1000.0) as u64)))
            } "." }
        }
    }
}

/// How this process is configured, secrets hidden.
pub fn configuration(view: &View<'_>) -> Markup {
    layout::page(
        view,
        "Configuration",
        html! {
            h1 { "Configuration" }
            p.soft { "Of the process that serves this page, with the place that each value comes from. Secrets are named by reference and never shown." }
            @if view.console.settings.is_empty() { p { "It was not told." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Partitions" { table {
                    thead { tr { th scope="col" { "Key" } th scope="col" { "Value" } th scope="col" { "From" } } }
                    tbody { @for s in &view.console.settings { tr { td.mono { (s.key) } td.mono { (s.value) } td { (s.from) } } } }
                } }
            }
        },
    )
}
