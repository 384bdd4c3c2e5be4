//! admit, plan, gate, authorize on the one operation record.

mod admit;
mod desk;
mod gate;
mod proposal;
mod purse;
mod step;

pub use desk::Desk;
pub use proposal::canonical;
pub use purse::Purse;
pub use step::{Advanced, Event, Fetched, Signal, advance};
