//! The graph, drawn, with what each step does now beside it.

use maud::{Markup, html};

use crate::error::Result;
use crate::events;

use super::{View, layout};

/// The page.
pub fn page(view: &View<'_>) -> Result<Markup> {
    let rates = view.console.rates.as_ref();
    let admitted = rates.map(|r| r.rate(events::ADMITTED, "step")).unwrap_or_default();
    let ended = rates.map(|r| r.gained(events::ENDED, "step")).unwrap_or_default();
    Ok(layout::page(
        view,
        "Topology",
        html! {
            h1 { "Topology" }
            @match &view.console.drawing {
                Some(drawing) => {
                    div.scroll tabindex="0" role="region" aria-label="Graph" { (drawing) }
                    p.soft { "Blue: topics. Green: steps that keep state. A topic that one sub-topology writes and another reads stands in both." }
                }
                None => p.notice { "This console does not know the graph: start it with " code { "--topology" } ", or see a member's own." },
            }
            @if !admitted.is_empty() {
                h2 { "Steps of this process, over the last minute" }
                div.scroll tabindex="0" role="region" aria-label="Steps" { table {
                    thead { tr { th scope="col" { "Step" } th.num scope="col" { "Admitted a second" } th.num scope="col" { "Ended" } } }
                    tbody { @for (step, rate) in &admitted { tr {
                        td { (step) } td.num { (format!("{rate:.1}")) } td.num { (ended.get(step).copied().unwrap_or_default()) }
                    } } }
                } }
            }
        },
    ))
}
