//! The effect stage: intents become attempts, attempts become outcomes, and nothing counts as done before it was read back.
//!
//! `status` and `rules` say what is known, `fold` adds what has happened, `decide` says what is next; all pure. [`EffectTask`]
//! carries it out: it journals in one Kafka transaction, calls after the commit, and folds what comes home.

mod config;
mod contract;
mod decide;
mod dispatch;
mod evidence;
mod fold;
mod intake;
mod lanes;
mod ledger;
mod readback;
mod results;
mod rules;
mod shared;
mod stage;
mod status;
mod task;

pub use config::{CallBook, CallSpec, Classified, EffectsConfig, Guard, Judge, Judged, Unguarded, subtopology, topics};
pub use contract::{Policies, call_book};
pub use decide::{Action, Denial, End, Facts, Stamp, apply, cover_all, decide, journal};
pub use fold::{Event, Outcome, Reply, Verdict, fold};
pub use rules::{Assumptions, Rule, Rules};
pub use shared::Shared;
pub use status::{Answered, Attempt, AttemptState, LedgerBody, LedgerRecord, Phase, Read, Seen, Warrant, WarrantKind};
pub use task::EffectTask;

/// A named point at which a test may kill the process.
fn fail_point(_name: &'static str) {}

#[cfg(test)]
mod tests;
