//! What the process that serves the page measures of itself.

use maud::{Markup, html};

use crate::console::rates::Rates;
use crate::events;

/// Its flow and its calls.
pub fn page(rates: Option<&Rates>) -> Markup {
    let Some(rates) = rates else {
        return html! {
            h2 { "This process" }
            p.soft { "It serves the console alone. Calls under way, limits and breakers are at the members' own consoles and /metrics." }
        };
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
    html! {
        h2 { "This process, over the last minute" }
        div.tiles.small { @for (what, rate) in &flow { div.tile data-key=(what) { b { (format!("{rate:.1}")) } span { (what) " a second" } } } }
        (calls(rates))
    }
}

/// How many calls each target may get, and whether it gets them.
fn calls(rates: &Rates) -> Markup {
    let (running, limit) = (rates.gauge(events::TARGET_CALLS, "target"), rates.gauge(events::TARGET_LIMIT, "target"));
    let deferred = rates.gained(events::TARGET_CLOSED, "target");
    html! {
        @if !limit.is_empty() {
            h2 { "Capacity of targets, as this process sees it" }
            div.scroll tabindex="0" role="region" aria-label="Calls" { table {
                thead { tr {
                    th scope="col" { "Target" } th.num scope="col" { "Calls under way" } th.num scope="col" { "At most" } th scope="col" { "Breaker" }
                } }
                tbody { @for (target, most) in &limit {
                    @let times = deferred.get(target).copied().unwrap_or_default();
                    tr data-key=(target) {
                        td { (target) }
                        td.num { (running.get(target).copied().unwrap_or_default()) }
                        td.num { (most) }
                        td {
                            @if times > 0.0 { span.pill.bad { "calls were deferred " (times) " times in the last minute" } }
                            @else { span.pill.good { "open for calls" } }
                        }
                    }
                } }
            } }
        }
    }
}
