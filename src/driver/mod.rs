//! TopologyTestDriver on the in-process log; recorded input against expected output.

mod member;

pub use member::{Member, Place};
