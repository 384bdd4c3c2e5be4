//! TopologyTestDriver on the in-process log; recorded input against expected output, and through two versions of an application.

pub mod compare;
mod member;
pub mod recorded;
mod test_driver;
mod test_topics;
mod wire;

pub use member::{Member, Place};
pub use test_driver::{DriverOptions, Output, Piped, StoreView, TopologyTestDriver};
pub use test_topics::{TestInputTopic, TestOutputTopic, TestRecord};
pub use wire::Scripted;

#[cfg(test)]
mod tests;
