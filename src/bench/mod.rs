//! What an installation does, beside the least that could be written by hand, in one run on the same brokers. Every figure is one side
//! of a pair: read the ratios. `readback bench` and `benches/` share it.

pub mod effects;
mod ground;
pub mod measure;
pub mod passthrough;
pub mod recorded;

pub use ground::Ground;
