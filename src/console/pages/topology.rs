//! The graph, drawn, with what goes through it now.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::console::draw;
use crate::error::Result;
use crate::events;

use super::layout::Live;
use super::{View, layout};

/// The page.
pub fn page(view: &View<'_>) -> Result<Markup> {
    let rates = view.console.rates.as_ref();
    let admitted = rates.map(|r| r.rate(events::ADMITTED, "step")).unwrap_or_default();
    let ended = rates.map(|r| r.gained(events::ENDED, "step")).unwrap_or_default();
    let growth = view.console.growth()?;
    let topics: BTreeMap<&str, f64> = growth.iter().map(|(topic, rate)| (topic.as_str(), *rate)).collect();
    let flow = |name: &str| topics.get(name).copied().or_else(|| admitted.get(name).copied());
    Ok(layout::live(
        view,
        "Topology",
        &Live::of("clock", ""),
        html! {
            h1 { "Topology" }
            @match &view.console.subject {
                Some(subject) => {
                    div.scroll tabindex="0" role="region" aria-label="Graph" { (draw::draw(&subject.application.topology, &flow)) }
                    p.soft {
                        "Blue: topics. Green: steps that keep state. A topic that one sub-topology writes and another reads stands in both. "
                        @if topics.is_empty() { "How fast topics grow is known at the second look: load the page again." }
                        @else { "Beside a topic: the offsets that it grew by a second, over the last minute at most; markers of transactions are among them." }
                    }
                }
                None => p.notice { "This console does not know the graph: start it with " code { "--topology" } ", or see a member's own." },
            }
            @if !admitted.is_empty() {
                h2 { "Steps of this process, over the last minute" }
                div.scroll tabindex="0" role="region" aria-label="Steps" { table {
                    thead { tr { th scope="col" { "Step" } th.num scope="col" { "Admitted" } th.num scope="col" { "Ended" } } }
                    tbody { @for (step, rate) in &admitted { tr data-key=(step) {
                        td { (step) } td.num { (draw::a_second(*rate)) } td.num { (ended.get(step).copied().unwrap_or_default()) }
                    } } }
                } }
            }
        },
    ))
}
