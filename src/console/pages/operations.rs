//! Lists of operations, with their search in the address.

use maud::{Markup, html};

use crate::console::api;
use crate::console::search::{Search, age};
use crate::error::Result;
use crate::intents::Status;

use super::{View, layout};

/// All operations.
pub fn page(view: &View<'_>, query: &str) -> Result<Markup> {
    let search = Search::parse(query)?;
    let (page, reading) = api::page(view.console, &search);
    Ok(layout::page(
        view,
        "Operations",
        html! {
            h1 { "Operations" }
            (layout::reading(&reading))
            (form(&search))
            @if page.rows.is_empty() { p.notice { (nothing(page.next.is_some())) } } @else { (layout::table(&page.rows, view.console.now())) }
            (pages("/operations", &search, page.next))
        },
    ))
}

/// What is unknown or parked.
pub fn unknowns(view: &View<'_>, query: &str) -> Result<Markup> {
    let search = api::narrowed(query, &[Status::Unknown, Status::Parked])?;
    let (page, reading) = api::page(view.console, &search);
    Ok(layout::page(
        view,
        "Unknown",
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

fn nothing(more: bool) -> &'static str {
    if more { "Nothing on this page of the search; it goes on with the next one." } else { "Nothing is found." }
}

fn form(search: &Search) -> Markup {
    let text = |v: &Option<String>| v.clone().unwrap_or_default();
    let older = search.older.map(age).unwrap_or_default();
    let several = search.status.iter().map(|s| s.word()).collect::<Vec<_>>().join(",");
    html! {
        form.search.card method="get" action="/operations" {
            label { "Operation or resource" input type="search" name="q" value=(text(&search.text)) autocomplete="off"; }
            label { "Status" select name="status" {
                option value="" { "all" }
                @if search.status.len() > 1 { option value=(several) selected { (several.replace('_', " ").replace(',', ", ")) } }
                @for s in Status::ALL.iter().copied() { option value=(s.word()) selected[search.status == [s]] { (layout::spoken(s)) } }
            } }
            label { "Tenant" input name="tenant" value=(text(&search.tenant)); }
            label { "Step" input name="step" value=(text(&search.step)); }
            label { "Target" input name="target" value=(text(&search.target)) placeholder="orders#create"; }
            label { "Resource, exactly" input name="resource" value=(text(&search.resource)); }
            label { "Unchanged for" input name="older" value=(older) placeholder="30m" pattern="[0-9.]+ ?(ms|s|m|min|h|d)"; }
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
