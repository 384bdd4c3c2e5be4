//! Webhooks of targets: believed by their signature, read by their contract, written to the control topic before they are answered.
//!
//! A member need not own the operation that a webhook speaks of, and can't know who does: each owner gets it, and the one that knows
//! the key takes it. What was answered with 2xx is in Kafka; what was not, the target posts again.

mod listener;
mod receive;

pub use listener::{Listener, Tell};
pub use receive::{Book, Outcome, Posted, Seen};

#[cfg(test)]
mod tests;
