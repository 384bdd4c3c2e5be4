//! What runs inside a task: typed records move by value from node to node, one virtual call each; keys, values, time and headers
//! travel together.

mod custom;
mod cx;
mod fixed;
mod global;
mod ordered;
mod place;
mod record;
mod segmented;
mod session_store;
mod store;
mod timers;
mod versioned_store;
mod window_index;
mod window_store;

pub(crate) use custom::{Custom, CustomNode, CustomTimers};
pub use custom::{Forward, Processor, Punctuate, PunctuationKind, Punctuator};
pub use cx::{BadRecords, Environment, ProcessorCx};
pub(crate) use fixed::Fixed;
pub use fixed::{FixedKeyProcessor, FixedKeyRecord, ForwardValues};
pub use global::GlobalRef;
pub(crate) use ordered::{Ordered, Parts as KeyParts};
pub use place::{Kept, Place};
pub use record::{Change, Record};
pub use segmented::Order;
pub(crate) use segmented::{Expiry, Keeping, Segmented, StreamClock, millis};
pub use session_store::SessionStore;
pub use store::StoreRef;
pub use timers::Timers;
pub use versioned_store::{Version, VersionedStore};
pub(crate) use window_index::WindowIndex;
pub use window_store::WindowStore;
pub(crate) use window_store::time_of;

use crate::task::TaskError;

/// A node: takes a record and passes what it makes of it to the nodes below.
pub trait Process<K, V> {
    /// Takes one record. Everything written belongs to the open transaction.
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError>;
}

/// The node below.
pub type Next<K, V> = Box<dyn Process<K, V>>;
