//! Fakes, simulator, checkers. Feature test-util.

pub mod scenarios;

#[cfg(test)]
mod runtime_tests;
