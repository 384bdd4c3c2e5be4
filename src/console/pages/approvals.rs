//! What waits for an approval: the plan itself, so that one decides on what one sees.

use maud::{Markup, html};

use crate::admin::evidence::Around;
use crate::console::api;
use crate::console::index::Listed;
use crate::console::shown::Operation;
use crate::error::Result;
use crate::intents::Status;

use super::layout::Live;
use super::{View, calls, form, layout, link};

/// So many plans are shown on one page: each is read from Kafka.
const SHOWN: usize = 10;

/// The page.
pub fn page(view: &View<'_>, query: &str) -> Result<Markup> {
    let mut search = api::narrowed(query, &[Status::AwaitingApproval])?;
    search.limit = search.limit.min(SHOWN);
    let (page, reading) = api::page(view.console, &search);
    Ok(layout::live(
        view,
        "Approvals",
        &Live::of("operations", ""),
        html! {
            h1 { "Waiting for approval" }
            (layout::reading(&reading))
            @if page.rows.is_empty() { p.notice.good { "No plan waits for an approval." } }
            @for row in &page.rows { (plan(view, row)) }
            (super::operations::pages("/approvals", &search, page.next))
        },
    ))
}

fn plan(view: &View<'_>, row: &Listed) -> Markup {
    let now = view.console.now();
    let head = html! {
        h2 { a href=(link(&row.key)) { (row.key.operation) } " · " (row.key.tenant) " · " (row.resource) }
        p { "waits for " (layout::ago(row.changed_at, now)) }
    };
    let seen = match view.console.evidence(&row.key) {
        Ok(seen) => seen,
        Err(e) => return html! { section.card data-key=(link(&row.key)) { (head) (layout::problem(&e)) } },
    };
    let Some(record) = seen.record.as_ref().filter(|r| r.status == Status::AwaitingApproval) else {
        return html! { section.card data-key=(link(&row.key)) { (head) p.notice { "It waits no more." } } };
    };
    html! {
        section.card data-key=(link(&row.key)) {
            (head)
            dl.facts {
                dt { "asked for by" } dd { (record.request.requester) }
                dt { "action" } dd { (record.request.action) }
                dt { "until" } dd { (layout::moment(record.waiting_until.unwrap_or(record.request.deadline))) }
                dt { "plan hash" } dd.mono { (record.plan_hash.as_ref().map_or("", |h| h.as_str())) }
            }
            h3 { "The plan" }
            (calls::table(&row.key, &Operation::of(&row.key, &seen, &Around::default()).calls))
            pre { (record.proposal.as_deref().unwrap_or_default()) }
            div.orders { (form::decisions(view, &row.key, &seen)) }
        }
    }
}
