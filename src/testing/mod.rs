//! The test kit: promises of every cluster, scenarios of the runtime, a fake target on virtual time, checkers that look at topics
//! and books only.

pub mod checkers;
pub mod conformance;
pub mod faults;
pub mod proxy;
pub mod scenarios;
pub mod shop;
pub mod simulator;
pub mod target;

#[cfg(test)]
mod failure_tests;
#[cfg(test)]
mod runtime_tests;
