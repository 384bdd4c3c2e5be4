//! What runs inside a task: typed records move by value from node to node, one virtual call each; keys, values, time and headers
//! travel together.

mod custom;
mod cx;
mod global;
mod record;
mod store;

pub(crate) use custom::{Custom, CustomNode, CustomTimers};
pub use custom::{Forward, Processor, Punctuate, PunctuationKind, Punctuator};
pub use cx::{BadRecords, Environment, ProcessorCx};
pub use global::GlobalRef;
pub use record::{Change, Record};
pub use store::StoreRef;

use crate::task::TaskError;

/// A node: takes a record and passes what it makes of it to the nodes below.
pub trait Process<K, V> {
    /// Takes one record. Everything written belongs to the open transaction.
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError>;
}

/// The node below.
pub type Next<K, V> = Box<dyn Process<K, V>>;
