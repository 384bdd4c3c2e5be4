//! Fakes, simulator, checkers. Feature test-util.

pub mod conformance;
