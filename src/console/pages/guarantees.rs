//! What is promised on every edge, compared with the cluster as it is: what `readback check --live` prints.

use maud::{Markup, html};

use crate::app::check::html as report;
use crate::error::Result;

use super::{View, layout};

/// The page.
pub fn page(view: &View<'_>) -> Result<Markup> {
    let (found, at) = view.console.report()?;
    Ok(layout::page(
        view,
        "Guarantees",
        html! {
            h1 { "What is promised" }
            p {
                (found.application) " version " (found.version) " · " (found.cluster.join(" · ")) " · asked at " (layout::moment(at)) ". The same on the "
                "command line: " code { "readback check --live" } "."
            }
            @if found.contradictions.is_empty() && found.unread.is_empty() { p.notice.good { "Nothing contradicts what the application declares." } }
            (report::body(&found))
        },
    ))
}
