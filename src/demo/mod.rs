//! The story of the demo: real stack, target and model server with books of their own, faults, verdict.

mod breaks;
pub mod cases;
pub mod feed;
pub mod files;
pub mod ground;
pub mod members;
pub mod rng;
pub mod screen;
pub mod simulated;
pub mod stack;
pub mod story;
pub mod target;
pub mod verdict;
