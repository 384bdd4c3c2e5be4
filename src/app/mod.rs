//! Composition: an application with its contracts and policies becomes units, and units a running process. The same composition
//! serves the program, the library's users, the driver and the simulator; only the edges differ.

mod adapt;
pub mod check;
mod compose;
pub mod deployed;
pub mod diff;
mod process;
mod purge;
mod stores;

pub use adapt::{ContractRenderer, PolicyBook};
pub use compose::{Composed, Edges, Schemas, Weakened, compose, counts_to_be, external_counts};
pub use process::{Process, ProcessEnd, SecondSignal, interrupted, kafka_config, registry};
pub(crate) use stores::elsewhere;
pub use stores::{Entries, Entry, Found, Keys, StoreHandle, Stores, TypedStore};
