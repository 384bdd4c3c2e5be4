//! Members of the groups, their partitions, and how this process is configured.

use maud::{Markup, html};

use crate::error::Result;

use super::{View, layout};

/// Members and partitions.
pub fn page(view: &View<'_>) -> Result<Markup> {
    let groups = view.console.books.groups()?;
    Ok(layout::page(
        view,
        "Members",
        html! {
            h1 { "Members and partitions" }
            p.soft {
                "As the groups' coordinators and the topics say now. Left are offsets between the committed position and the end; markers of "
                "transactions count as one, so a partition that is read up may show 1."
            }
            @for g in &groups {
                h2 { "Group " (g.name) " · " (layout::count(g.members.len(), "member", "members")) }
                div.scroll tabindex="0" role="region" aria-label="Members" { table {
                    thead { tr { th scope="col" { "Slot" } th scope="col" { "Connects from" } } }
                    tbody {
                        @for m in &g.members { tr { td { (m.client_id) } td { (m.host) } } }
                        @if g.members.is_empty() { tr { td colspan="2" { "Nobody is a member: nothing is done until one runs." } } }
                    }
                } }
                div.scroll tabindex="0" role="region" aria-label="Partitions" { table {
                    thead { tr { th scope="col" { "Topic" } th.num scope="col" { "Partition" } th.num scope="col" { "Left" } } }
                    tbody { @for (tp, left) in &g.partitions { tr {
                        td { (tp.topic) } td.num { (tp.partition) }
                        td.num { @match left { Some(n) => (n), None => span.soft { "never read" } } }
                    } } }
                } }
            }
        },
    ))
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
                div.scroll tabindex="0" role="region" aria-label="Settings" { table {
                    thead { tr { th scope="col" { "Key" } th scope="col" { "Value" } th scope="col" { "From" } } }
                    tbody { @for s in &view.console.settings { tr { td.mono { (s.key) } td.mono { (s.value) } td { (s.from) } } } }
                } }
            }
        },
    )
}
