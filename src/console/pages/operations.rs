//! Lists of operations, with their search in the address.

use maud::{Markup, html};

use crate::console::api;
use crate::console::index::{FLAGS, flag_word};
use crate::console::search::{Search, age};
use crate::error::Result;
use crate::intents::Status;
use crate::time::show_duration;

use super::layout::Live;
use super::{View, layout};

/// Searches that people on duty need again and again.
const SAVED: [(&str, &str); 6] = [
    ("Unknown for 10 minutes", "status=unknown&older=10m&order=oldest"),
    ("Parked", "status=parked&order=oldest"),
    ("Suspected duplicates", "flag=duplicate_suspected"),
    ("Handed over and not sent for 5 minutes", "status=approved&older=5m&order=oldest"),
    ("Refused by a target", "status=refused"),
    ("Decided by a person", "status=resolved_applied,resolved_not_applied"),
];

/// All operations.
pub fn page(view: &View<'_>, query: &str) -> Result<Markup> {
    let search = Search::parse(query)?;
    let (page, reading) = api::page(view.console, &search);
    Ok(layout::live(
        view,
        "Operations",
        &Live::of("operations clock", ""),
        html! {
            h1 { "Operations" }
            (layout::reading(&reading))
            nav.chips aria-label="Saved searches" {
                @for (name, saved) in SAVED { a.chip href={ "/operations?" (saved) } { (name) } }
            }
            (form(&search))
            (chips("/operations", &search))
            @if page.rows.is_empty() { p.notice { (nothing(page.next.is_some())) } } @else { (layout::table(&page.rows, view.console.now())) }
            (pages("/operations", &search, page.next))
        },
    ))
}

/// What is unknown or parked.
pub fn unknowns(view: &View<'_>, query: &str) -> Result<Markup> {
    let search = api::narrowed(query, &[Status::Unknown, Status::Parked])?;
    let (page, reading) = api::page(view.console, &search);
    Ok(layout::live(
        view,
        "Unknown",
        &Live::of("operations clock", ""),
        html! {
            h1 { "Unknown and parked" }
            p.soft {
                strong { "Unknown" } " looks after itself: it waits until what has left must have arrived, and reads the target back. "
                strong { "Parked" } " waits for a person, who looks at the target and says what happened."
            }
            (layout::reading(&reading))
            @if page.rows.is_empty() { p.notice.good { "Nothing is unknown." } } @else { (layout::table(&page.rows, view.console.now())) }
            (pages("/unknowns", &search, page.next))
        },
    ))
}

/// What a search asks for, one chip a filter: each is a link to the search without it. The address is the search, so it can be kept.
fn chips(path: &str, search: &Search) -> Markup {
    let mut chips: Vec<(String, Search)> = Vec::new();
    let without = |change: &dyn Fn(&mut Search)| {
        let mut other = Search { cursor: None, ..search.clone() };
        change(&mut other);
        other
    };
    for status in &search.status {
        chips.push((layout::spoken(*status), without(&|s| s.status.retain(|other| other != status))));
    }
    if let Some(flag) = search.flag {
        chips.push((flag_word(flag).replace('_', " "), without(&|s| s.flag = None)));
    }
    if let Some(text) = &search.text {
        chips.push((format!("contains {text}"), without(&|s| s.text = None)));
    }
    if let Some(tenant) = &search.tenant {
        chips.push((format!("tenant {tenant}"), without(&|s| s.tenant = None)));
    }
    if let Some(step) = &search.step {
        chips.push((format!("step {step}"), without(&|s| s.step = None)));
    }
    if let Some(target) = &search.target {
        chips.push((format!("target {target}"), without(&|s| s.target = None)));
    }
    if let Some(resource) = &search.resource {
        chips.push((format!("resource {resource}"), without(&|s| s.resource = None)));
    }
    if let Some(older) = search.older {
        chips.push((format!("unchanged for {}", show_duration(older)), without(&|s| s.older = None)));
    }
    html! {
        @if !chips.is_empty() {
            nav.chips aria-label="Filters" {
                @for (name, rest) in &chips {
                    a.chip href={ (path) "?" (rest.query()) } aria-label={ "Remove the filter: " (name) } { (name) " " span aria-hidden="true" { "×" } }
                }
                a href=(path) { "Remove all" }
                span.soft { "The address of this page is this search: keep it as a bookmark, or send it." }
            }
        }
    }
}

fn nothing(more: bool) -> &'static str {
    if more { "Nothing on this page of the search; it goes on with the next one." } else { "Nothing is found." }
}

fn form(search: &Search) -> Markup {
    let text = |v: &Option<String>| v.clone().unwrap_or_default();
    let older = search.older.map(age).unwrap_or_default();
    let several = search.status.iter().map(|s| s.word()).collect::<Vec<_>>().join(",");
    html! {
        form.search.card method="get" action="/operations" {
            label { "ID or resource contains" input type="search" name="q" value=(text(&search.text)) autocomplete="off"; }
            label { "Status or outcome" select name="status" {
                option value="" { "all" }
                @if search.status.len() > 1 { option value=(several) selected { (several.replace('_', " ").replace(',', ", ")) } }
                @for s in Status::ALL.iter().copied() { option value=(s.word()) selected[search.status == [s]] { (layout::spoken(s)) } }
            } }
            label { "Tenant" input name="tenant" value=(text(&search.tenant)); }
            label { "Step" input name="step" value=(text(&search.step)); }
            label { "Target" input name="target" value=(text(&search.target)) placeholder="orders#create"; }
            label { "Resource, exactly" input name="resource" value=(text(&search.resource)); }
            label { "Unchanged for" input name="older" value=(older) placeholder="30m" pattern="[0-9.]+ ?(ms|s|m|min|h|d)"; }
            label { "Flag" select name="flag" {
                option value="" { "any or none" }
                @for f in FLAGS { option value=(flag_word(f)) selected[search.flag == Some(f)] { (flag_word(f).replace('_', " ")) } }
            } }
            label { "Order" select name="order" {
                option value="newest" selected[!search.oldest_first] { "newest change first" }
                option value="oldest" selected[search.oldest_first] { "oldest change first" }
            } }
            button { "Search" }
        }
    }
}

/// Links to the first page and the next one.
pub fn pages(path: &str, search: &Search, next: Option<crate::console::search::Cursor>) -> Markup {
    let to = |cursor| format!("{path}?{}", Search { cursor, ..search.clone() }.query());
    html! {
        div.pages {
            @if search.cursor.is_some() { a href=(to(None)) { "First page" } }
            @if next.is_some() { a href=(to(next)) rel="next" { "Next page" } }
        }
    }
}
