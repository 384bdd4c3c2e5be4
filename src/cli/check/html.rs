//! The report as one page without scripts or anything from elsewhere: to be kept beside a release, or sent to a reviewer.

use maud::{DOCTYPE, html};

use crate::app::check::Report;
use crate::app::check::html::body;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin-bottom: 1.5rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid GrayText; }
code { font-family: ui-monospace, monospace; }
.scroll { overflow-x: auto; }
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
                (body(report))
            }
        }
    };
    page.into_string()
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
            standing: None,
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
