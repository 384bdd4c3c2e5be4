//! The report as a part of a page: for a file of its own, and for the console.

use maud::{Markup, html};

use super::{Finding, Report, Rests, alike};

/// Everything but the title.
pub fn body(report: &Report) -> Markup {
    html! {
        (findings("What contradicts", "no", &report.contradictions))
        (edges(report))
        (rests(report))
        h2 { "What you assume" }
        ol { @for a in &report.assumptions { li { (a.text) " " code { (a.at) } } } }
        h2 { "What is not promised" }
        ul { @for n in &report.not_promised { li { (n) } } }
        (findings("Weak settings", "weak", &report.warnings))
        (topics(report))
        (broker(report))
        (who_and_schemas(report))
        (permissions(report))
    }
}

fn edges(report: &Report) -> Markup {
    html! {
        h2 { "What is promised" }
        div.scroll tabindex="0" role="region" aria-label="What is promised" { table {
            thead { tr { th scope="col" { "Edge" } th scope="col" { "Promise" } th scope="col" { "Because" } } }
            tbody {
                @for edge in &report.edges {
                    @for (i, p) in edge.promises.iter().enumerate() {
                        tr {
                            @if i == 0 { th scope="rowgroup" rowspan=(edge.promises.len() + usize::from(edge.doubt().is_some())) { (edge.edge) } }
                            td { (p.promise) }
                            td { (p.because) }
                        }
                    }
                    @if let Some((doubt, of)) = edge.doubt() {
                        tr { td { strong { (doubt) } } td { (of.join(", ")) } }
                    }
                }
            }
        } }
    }
}

fn rests(report: &Report) -> Markup {
    let list = |all: &[String]| html! { ul { @for text in all { li { (text) } } } };
    html! {
        h2 { "What each edge rests on, and where it ends" }
        div.scroll tabindex="0" role="region" aria-label="What each edge rests on" { table {
            thead { tr { th scope="col" { "Edge" } th scope="col" { "Rests on" } th scope="col" { "Broken by" } th scope="col" { "Not promised" } } }
            tbody {
                @for edge in &report.edges {
                    tr {
                        th scope="row" { (edge.edge) }
                        td {
                            (list(&edge.rests.settings))
                            (wanted(&edge.rests))
                            @if !edge.rests.assumes.is_empty() { "assumption " (edge.rests.assumes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")) }
                        }
                        td { (list(&edge.rests.broken_by)) }
                        td { (list(&edge.rests.not_promised)) }
                    }
                }
            }
        } }
    }
}

/// What is wanted of topics and brokers, and how these stand where a cluster was asked.
fn wanted(rests: &Rests) -> Markup {
    html! {
        @if !rests.wants.is_empty() {
            @if !rests.on_cluster.is_empty() { "wants" }
            ul { @for text in &rests.wants { li { (text) } } }
        }
        @for (standing, is, of) in alike(&rests.on_cluster) {
            p { strong { (standing.words()) } " " (of.join(", ")) @if !is.is_empty() { ": " (is) } }
        }
    }
}

fn who_and_schemas(report: &Report) -> Markup {
    html! {
        @if !report.groups.is_empty() || !report.compatibility.is_empty() {
            h2 { "Groups and schemas" }
            ul {
                @for g in &report.groups { li { code { (g.name) } ": " @if g.members.is_empty() { "nobody" } @else { (g.members.join(", ")) } } }
                @for (subject, level) in &report.compatibility { li { "registry: " code { (subject) } " may change " code { (level) } } }
            }
        }
    }
}

fn findings(title: &str, class: &str, all: &[Finding]) -> Markup {
    html! {
        @if !all.is_empty() {
            h2 { (title) }
            @for f in all {
                div class=(class) {
                    p {
                        code { (f.code) } " " (f.text)
                        @if !f.topics.is_empty() { br; small { (f.topics.join(", ")) } }
                        @if !f.hint.is_empty() { br; (f.hint) }
                    }
                }
            }
        }
    }
}

fn topics(report: &Report) -> Markup {
    html! {
        @if !report.topics.is_empty() {
            h2 { "Topics as the cluster has them" }
            div.scroll tabindex="0" role="region" aria-label="Topics" { table {
                thead { tr { th scope="col" { "Topic" } th scope="col" { "Partitions" } th scope="col" { "Replicas" } th scope="col" { "Settings" } } }
                tbody {
                    @for t in &report.topics {
                        tr {
                            th scope="row" { code { (t.name) } }
                            td { (t.partitions) }
                            td { (t.replication) }
                            td {
                                @match &t.settings {
                                    Some(all) => { @for (key, value) in all { code { (key) "=" (value) } " " } }
                                    None => { "not read" }
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn broker(report: &Report) -> Markup {
    html! {
        @if !report.broker.is_empty() {
            h2 { "Limits of the brokers" }
            div.scroll tabindex="0" role="region" aria-label="Limits of the brokers" { table {
                thead { tr { th scope="col" { "Setting" } th scope="col" { "Value" } } }
                tbody { @for (key, value) in &report.broker { tr { th scope="row" { code { (key) } } td { code { (value) } } } } }
            } }
        }
    }
}

fn permissions(report: &Report) -> Markup {
    html! {
        h2 { "Permissions" }
        div.scroll tabindex="0" role="region" aria-label="Permissions" { table {
            thead { tr { th scope="col" { "Who" } th scope="col" { "Resource" } th scope="col" { "Operations" } th scope="col" { "Flags of kafka-acls.sh" } } }
            tbody {
                @for p in &report.permissions {
                    tr {
                        td { (p.who) }
                        td { (p.resource) " " code { (p.name) @if p.prefixed { "*" } } }
                        td { (p.operations.join(", ")) }
                        td {
                            code { (p.flags()) } (p.told())
                        }
                    }
                }
            }
        } }
    }
}
