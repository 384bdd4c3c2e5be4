//! What members measure of themselves: the process that serves the page, or those that it asks.

use maud::{Markup, html};

use crate::console::rates::{Asked, Rates};
use crate::events;

/// Their flow and their calls.
pub fn page(rates: Option<&Rates>) -> Markup {
    let Some(rates) = rates else {
        return html! {
            h2 { "Members, over the last minute" }
            p.soft {
                "This process serves the console alone and was not told where members are. With their addresses in " code { "console.members" }
                " it shows their calls under way, limits and breakers."
            }
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
    let who = who(rates);
    html! {
        h2 { (who.name) ", over the last minute" }
        (who.silent)
        div.tiles.small { @for (what, rate) in &flow { div.tile data-key=(what) { b { (format!("{rate:.1}")) } span { (what) " a second" } } } }
        (calls(rates, &who.name))
    }
}

/// Whose numbers these are, and whose are missing.
struct Who {
    name: String,
    silent: Markup,
}

fn who(rates: &Rates) -> Who {
    match rates.asked() {
        Some(Asked::Itself) => Who { name: "This process".to_owned(), silent: html! {} },
        None => Who { name: "Members".to_owned(), silent: html! { p.soft { "They are being asked." } } },
        Some(Asked::Members { answered, silent }) => Who {
            name: match answered.len() {
                0 => "No member answers".to_owned(),
                1 => "The member that answers".to_owned(),
                n => format!("The {n} members that answer"),
            },
            silent: html! {
                @for (address, why) in &silent { p.notice data-key=(address) { strong { (address) } " is not counted: " (why) "." } }
            },
        },
    }
}

/// How many calls each target may get, whether it gets them, and what it says is left.
fn calls(rates: &Rates, whose: &str) -> Markup {
    let (running, limit) = (rates.gauge(events::TARGET_CALLS, "target"), rates.gauge(events::TARGET_LIMIT, "target"));
    let (breaker, remaining) =
        (rates.gauge(events::TARGET_BREAKER, "target"), rates.least(events::TARGET_REMAINING, ["target", "of"]));
    let deferred = rates.gained(events::TARGET_CLOSED, "target");
    html! {
        @if !limit.is_empty() {
            h2 { "Capacity of targets: " (whose.to_lowercase()) }
            div.scroll tabindex="0" role="region" aria-label="Calls" { table {
                thead { tr {
                    th scope="col" { "Target" } th.num scope="col" { "Calls under way" } th.num scope="col" { "At most" }
                    th scope="col" { "Left, as the target says" } th scope="col" { "Breaker" }
                } }
                tbody { @for (target, most) in &limit {
                    @let left: Vec<String> = remaining.iter().filter(|([of, _], _)| of == target).map(|([_, what], n)| format!("{n:.0} {what}")).collect();
                    @let times = deferred.get(target).copied().unwrap_or_default();
                    tr data-key=(target) {
                        td { (target) }
                        td.num { (running.get(target).copied().unwrap_or_default()) }
                        td.num { (most) }
                        td { @if left.is_empty() { span.soft { "it does not say" } } @else { (left.join(", ")) } }
                        td {
                            @if breaker.get(target).is_some_and(|b| *b > 0.0) { span.pill.bad { "open: one call at a time is tried" } }
                            @else { span.pill.good { "closed" } }
                            @if times > 0.0 { " calls were deferred " (times) " times in the last minute" }
                        }
                    }
                } }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{IntGaugeVec, Opts, Registry};

    use super::*;
    use crate::console::rates::Source;
    use crate::events::Metric;

    /// If this broke, an operator would take a target that is not called, or has nothing left, for one that is well.
    #[test]
    fn a_breaker_and_what_a_target_says_are_shown() {
        let registry = Registry::new();
        let set = |m: Metric, labels: &[&str], value: i64| {
            let gauge = IntGaugeVec::new(Opts::new(m.name, m.help), m.labels).expect("a gauge");
            registry.register(Box::new(gauge.clone())).expect("registers");
            gauge.with_label_values(labels).set(value);
        };
        set(events::TARGET_LIMIT, &["orders"], 8);
        set(events::TARGET_BREAKER, &["orders"], 1);
        set(events::TARGET_REMAINING, &["orders", "requests"], 17);
        let page = page(Some(&Rates::start(Source::Own(registry)))).into_string();
        for part in ["17 requests", "open: one call at a time", "<td class=\"num\">8</td>"] {
            assert!(page.contains(part), "no {part} in {page}");
        }
    }
}
