//! Durations and sizes of the process configuration, shown as people write them.

use std::fmt;
use std::time::Duration;

use crate::time::show_duration;

/// A duration written `250ms`, `5s`, `30m`, `2h`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_duration(self.0))
    }
}

/// A size in bytes, written `256 KB`, `64 MB`, `1 GB`. Units are powers of 1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteSize(pub usize);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact =
            [("GB", 30), ("MB", 20), ("KB", 10)].into_iter().find(|(_, bits)| self.0 > 0 && self.0.is_multiple_of(1 << bits));
        match exact {
            Some((unit, bits)) => write!(f, "{} {unit}", self.0 >> bits),
            None => write!(f, "{} B", self.0),
        }
    }
}
