//! A start that would lose what the version before kept is refused, until a person agrees to exactly that loss.

use sha2::{Digest, Sha256};

use crate::dsl::Application;
use crate::error::{Error, Fault, Result, codes};
use crate::intents::hex;
use crate::kafka::Cluster;
use crate::time::{Clock, SystemClock};
use crate::topology::Layout;

use super::deployed::{Deployed, stored};
use super::diff::{Change, Fate, compare};

/// How much of the hash a person types.
const WORD: usize = 12;

/// Compares what is to start with what was deployed last.
///
/// # Errors
/// `SILENT_RESET` where state would be lost and `accepted` is not the word for it; what the cluster says.
pub(super) fn refuse<C: Cluster>(cluster: &C, application: &Application, layout: &Layout, accepted: Option<&str>) -> Result<()> {
    let Some(before) = stored(cluster, &application.id)? else { return Ok(()) };
    let after = Deployed::of(application, Some(layout), SystemClock.now().wall);
    let changes = compare(&before, &after).changes;
    for step in changes.iter().filter(|c| c.fate == Fate::Orphan && c.kind == "step") {
        tracing::warn!(code = %codes::SILENT_RESET, step = step.name, "this version has no such step: operations that are open there are ended by nobody; `readback diff` counts them");
    }
    let lost: Vec<Change> = changes.into_iter().filter(|c| c.fate == Fate::Lost && c.kind == "store").collect();
    let word = word(&before, &lost);
    match accepted {
        _ if lost.is_empty() => Ok(()),
        Some(given) if given == word => {
            tracing::warn!(code = %codes::SILENT_RESET, stores = ?lost.iter().map(|c| &c.name).collect::<Vec<_>>(), "the loss of state was accepted");
            Ok(())
        }
        _ => Err(refusal(&before, &after, &lost, &word)),
    }
}

/// What stands for this loss and no other: the deploy that is followed, and each part that goes.
fn word(before: &Deployed, lost: &[Change]) -> String {
    let mut hash = Sha256::new();
    hash.update(before.fingerprint.as_bytes());
    for change in lost {
        hash.update(format!("\n{}\t{}", change.name, change.text).as_bytes());
    }
    hex(&hash.finalize())[..WORD].to_owned()
}

fn refusal(before: &Deployed, after: &Deployed, lost: &[Change], word: &str) -> Error {
    let (app, is, was) = (&after.application, after.version, before.version);
    let parts: Vec<String> = lost.iter().map(|c| format!("store {}: {}", c.name, c.text)).collect();
    Error::new(codes::SILENT_RESET, Fault::Configuration, format!("starting {app} version {is} after version {was}"))
        .because(format!("state would be lost without a word: {}", parts.join("; ")))
        .next(format!(
            "`readback diff` shows all that would change. Give the stores their names back, or agree to this loss: \
             `--accept-reset {word}`, or topics.accept_reset (READBACK_TOPICS__ACCEPT_RESET) for all members"
        ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::app::deployed::keep;
    use crate::dsl::{Consumed, Grouped, Produced, StreamsBuilder};
    use crate::kafka::memory::MemoryCluster;
    use crate::serdes::Serdes;

    fn counting(store: &str) -> (Application, Layout) {
        let builder = StreamsBuilder::new("shop");
        builder
            .stream("orders", Consumed::with(Serdes::string(), Serdes::string()))
            .group_by_key(Grouped::with(Serdes::string(), Serdes::string()))
            .count(store)
            .to_stream()
            .to("totals", Produced::with(Serdes::string(), Serdes::optional(Serdes::long())));
        let application = builder.build().expect("an application");
        let counts = application.topology.external_sources().into_iter().map(|t| (t, 2)).collect();
        let layout = application.topology.layout(&counts, None).expect("laid");
        (application, layout)
    }

    /// If this broke, a store that was renamed would begin empty, and its counts be wrong, without anybody being asked.
    #[test]
    fn a_store_that_would_be_lost_needs_a_persons_word() {
        let cluster = MemoryCluster::new(Arc::new(SystemClock));
        let start = |store: &str, accepted: Option<&str>| {
            let (application, layout) = counting(store);
            refuse(&cluster, &application, &layout, accepted)
        };
        start("counts", None).expect("nothing ran before");
        let (application, layout) = counting("counts");
        keep(&cluster, &Deployed::of(&application, Some(&layout), SystemClock.now().wall), 1).expect("kept");
        start("counts", None).expect("the same again");
        let refused = start("sums", None).expect_err("the counts would be lost");
        assert_eq!((refused.code, refused.fault.exit_code()), (codes::SILENT_RESET, 2), "{refused}");
        let told = refused.to_string();
        let word = told.split("--accept-reset ").nth(1).and_then(|t| t.get(..WORD)).expect("the word is told").to_owned();
        assert!(told.contains("store counts"), "{told}");
        start("sums", Some("0123456789ab")).expect_err("the word for another loss");
        start("totals", Some(&word)).expect("the same store goes");
        start("sums", Some(&word)).expect("a person agreed");
        let (application, layout) = counting("sums");
        keep(&cluster, &Deployed::of(&application, Some(&layout), SystemClock.now().wall), 1).expect("kept");
        start("counts", Some(&word)).expect_err("another loss, after another deploy");
    }
}
