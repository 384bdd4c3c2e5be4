//! The effect stage: intents become attempts, attempts become outcomes, and nothing counts as done before it was read back.
//!
//! `status` and `rules` say what is known, `fold` adds what has happened, `decide` says what is next; all pure. [`EffectTask`]
//! carries it out: it journals in one Kafka transaction, calls after the commit, and folds what comes home.

mod attempt;
mod commands;
mod compensate;
mod config;
mod contract;
mod decide;
mod dispatch;
mod evidence;
mod fold;
mod intake;
mod lanes;
mod ledger;
mod metrics;
mod permission;
mod readback;
mod results;
mod rules;
mod shared;
mod spans;
mod stage;
mod standing;
mod status;
mod task;
mod warrants;

pub use attempt::{Attempt, AttemptState, Warrant, WarrantKind};
pub use commands::Reply;
pub use config::{CallBook, CallSpec, Classified, EffectsConfig, Guard, Judge, Judged, Unguarded, subtopology, topics};
pub use contract::{Policies, call_book};
pub use decide::{Action, End, Facts, Stamp, apply, decide, journal};
pub use fold::{Event, Outcome, Verdict, fold};
pub use metrics::Metrics;
pub use permission::Denial;
pub use rules::{Assumptions, Rule, Rules};
pub use shared::Shared;
pub use status::{Answered, LedgerBody, LedgerRecord, Phase, Read, Seen, VersionRead, VersionState};
pub use task::EffectTask;
pub use warrants::cover_all;

/// A named point, in places that have no error to give: a test may kill the process here.
fn fail_point(_name: &'static str) {
    #[cfg(feature = "failpoints")]
    if let Err(fault) = crate::runtime::failpoint::hit(_name) {
        tracing::warn!(%fault, "a fail point that can only kill was asked to fail");
    }
}

#[cfg(test)]
mod tests;
