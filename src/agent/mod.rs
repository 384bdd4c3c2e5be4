//! admit, plan, gate, authorize on the one operation record, and the task that keeps the records of a partition.

mod admit;
mod calls;
mod claims;
mod config;
mod dag;
mod desk;
#[cfg(test)]
mod drawn;
mod emit;
mod fetch;
mod fetches;
mod flow;
mod gate;
mod like;
mod metrics;
mod proposal;
mod purse;
mod replay;
mod reverse;
mod shelf;
mod standing;
mod step;
mod task;
mod trail;
mod waiting;

pub use admit::{Verdict, admit};
pub use config::{OPERATIONS, OperationsConfig, intake_topic, subtopology, topics};
pub use dag::MOST_CALLS;
pub use desk::{Bench, Desk};
pub use fetch::{FetchDone, FetchEnd, HttpFetcher, InputFetcher};
pub use like::{ClaimEntry, Claims, normalised};
pub use metrics::Metrics;
pub use proposal::{ProposalSchema, canonical};
pub use purse::{Bucket, Purse};
pub use step::{Advanced, Event, Fetched, Signal, advance};

#[cfg(test)]
mod tests;
