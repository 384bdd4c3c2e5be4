//! Composition: an application with its contracts and policies becomes units, and units a running process. The same composition
//! serves the program, the library's users, the driver and the simulator; only the edges differ.

mod adapt;
pub mod check;
mod compose;
pub mod deployed;
pub mod diff;
pub mod handover;
mod loss;
mod places;
mod process;
mod purge;
mod resting;
mod stores;
mod traces;
mod watch;
pub mod webhooks;

pub use adapt::{ContractRenderer, PolicyBook};
pub use compose::{Composed, Edges, Schemas, Weakened, compose, counts_to_be, external_counts};
pub use process::{Prepared, Process, ProcessEnd, SecondSignal, interrupted, kafka_config, registry};
pub(crate) use stores::elsewhere;

/// Registers what the watch over settings records; a process does so by itself.
#[cfg(test)]
pub(crate) fn register_settings(registry: &prometheus::Registry) -> crate::error::Result<()> {
    watch::Metrics::new(registry).map(drop)
}
pub use stores::{Entries, Entry, Found, Keys, StoreHandle, Stores, TypedStore};
