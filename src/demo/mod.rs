//! The story of the demo: target and model server with books of their own, fault schedule, verdict.

pub mod cases;
pub mod rng;
pub mod stack;
pub mod target;
pub mod verdict;
