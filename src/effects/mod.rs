//! The effect stage: intents become attempts, attempts become outcomes, and nothing counts as done before it was read back.
//!
//! `status` and `rules` say what is known, `fold` adds what has happened, `decide` says what is next; all pure. `EffectTask`
//! carries it out: it journals in one Kafka transaction, calls after the commit, and folds what comes home.

mod decide;
mod fold;
mod rules;
mod status;

pub use decide::{Action, Denial, End, Facts, Stamp, apply, cover_all, decide, journal};
pub use fold::{Event, Outcome, Reply, Verdict, fold};
pub use rules::{Assumptions, Rule, Rules};
pub use status::{
    Answered, Attempt, AttemptState, LedgerBody, LedgerRecord, Phase, Read, Seen, Warrant, WarrantKind,
};
