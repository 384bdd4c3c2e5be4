//! The report as one page without scripts or anything from elsewhere: to be kept beside a release, or sent to a reviewer.

use maud::{DOCTYPE, Markup, html};

use crate::app::check::{Finding, Report, Tried};

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin-bottom: 1.5rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid GrayText; }
code { font-family: ui-monospace, monospace; }
.no { border-left: .3rem solid #c62828; padding-left: .75rem; }
.weak { border-left: .3rem solid #b26a00; padding-left: .75rem; }
";

/// The page.
pub(super) fn page(report: &Report, at: &str) -> String {
    let title = format!("{} version {}: what is promised", report.application, report.version);
    let asked = if report.cluster.is_empty() {
        "From the files only; no cluster was asked.".to_owned()
    } else {
        report.cluster.join(" · ")
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (maud::PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p { (asked) " · readback " (env!("CARGO_PKG_VERSION")) " · " time { (at) } }
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
    };
    page.into_string()
}

fn edges(report: &Report) -> Markup {
    html! {
        h2 { "What is promised" }
        table {
            thead { tr { th scope="col" { "Edge" } th scope="col" { "Promise" } th scope="col" { "Because" } } }
            tbody {
                @for edge in &report.edges {
                    @for (i, p) in edge.promises.iter().enumerate() {
                        tr {
                            @if i == 0 { th scope="rowgroup" rowspan=(edge.promises.len()) { (edge.edge) } }
                            td { (p.promise) }
                            td { (p.because) }
                        }
                    }
                }
            }
        }
    }
}

fn rests(report: &Report) -> Markup {
    let list = |all: &[String]| html! { ul { @for text in all { li { (text) } } } };
    html! {
        h2 { "What each edge rests on, and where it ends" }
        table {
            thead { tr { th scope="col" { "Edge" } th scope="col" { "Rests on" } th scope="col" { "Broken by" } th scope="col" { "Not promised" } } }
            tbody {
                @for edge in &report.edges {
                    tr {
                        th scope="row" { (edge.edge) }
                        td {
                            (list(&edge.rests.settings))
                            @if !edge.rests.assumes.is_empty() { "assumption " (edge.rests.assumes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")) }
                        }
                        td { (list(&edge.rests.broken_by)) }
                        td { (list(&edge.rests.not_promised)) }
                    }
                }
            }
        }
    }
}

fn who_and_schemas(report: &Report) -> Markup {
    html! {
        @if !report.groups.is_empty() {
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
            table {
                thead { tr { th scope="col" { "Topic" } th scope="col" { "Partitions" } th scope="col" { "Replicas" } th scope="col" { "Settings" } } }
                tbody {
                    @for t in &report.topics {
                        tr {
                            th scope="row" { code { (t.name) } }
                            td { (t.partitions) }
                            td { (t.replication) }
                            td { @for (key, value) in &t.settings { code { (key) "=" (value) } " " } }
                        }
                    }
                }
            }
        }
    }
}

fn broker(report: &Report) -> Markup {
    html! {
        @if !report.broker.is_empty() {
            h2 { "Limits of the brokers" }
            table {
                thead { tr { th scope="col" { "Setting" } th scope="col" { "Value" } } }
                tbody { @for (key, value) in &report.broker { tr { th scope="row" { code { (key) } } td { code { (value) } } } } }
            }
        }
    }
}

fn permissions(report: &Report) -> Markup {
    html! {
        h2 { "Permissions" }
        table {
            thead { tr { th scope="col" { "Who" } th scope="col" { "Resource" } th scope="col" { "Operations" } th scope="col" { "Flags of kafka-acls.sh" } } }
            tbody {
                @for p in &report.permissions {
                    tr {
                        td { (p.who) }
                        td { (p.resource) " " code { (p.name) @if p.prefixed { "*" } } }
                        td { (p.operations.join(", ")) }
                        td {
                            code { (p.flags()) }
                            @match p.tried { Some(Tried::Allowed) => " (this login has it)", Some(Tried::Refused) => " (refused)", None => "" }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::check::{Edge, Promised, Rests};
    use crate::config::{ProcessConfig, yaml};

    /// If this broke, what stands in a contract could run as a script in a reviewer's browser, or a part of the report would be missing.
    #[test]
    fn the_page_holds_everything_and_nothing_runs() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/orders");
        let declared = yaml::offline(|| crate::declare::load(&dir)).expect("loads");
        let mut report = Report::offline(&declared.application, &ProcessConfig::default(), &declared.warnings);
        let because = "<script>alert(1)</script>".to_owned();
        report.edges.push(Edge {
            edge: "a → b".into(),
            promises: vec![Promised { promise: "p".into(), because }],
            rests: Rests::default(),
        });
        let page = page(&report, "2026-11-20");
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"));
        for text in report.edges.iter().flat_map(|e| &e.promises).map(|p| &p.promise).chain(&report.not_promised) {
            assert!(page.contains(&maud::html! { (text) }.into_string()), "{text}");
        }
        assert!(report.permissions.iter().all(|p| page.contains(&maud::html! { (p.flags()) }.into_string())));
        assert!(page.contains("From the files only") && !page.contains("http://") && !page.contains("https://"));
    }
}
