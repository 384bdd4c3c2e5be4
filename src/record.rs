//! Records as they come in and go out. Bytes only: what they mean is said by serdes.

use std::borrow::Cow;

use bytes::Bytes;

use crate::ids::{Partition, TopicName, Tp};
use crate::offset::Offset;
use crate::time::WallTime;

/// One header; the value may be null (C029), and names may repeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its value, or null.
    pub value: Option<Bytes>,
}

/// Headers in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Headers(pub Vec<Header>);

impl Headers {
    /// No headers; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }
    /// The last value under `name`, as Kafka's `lastHeader` has it.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().rev().find(|h| h.name == name).and_then(|h| h.value.as_ref())
    }
    /// The last value under `name` as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|v| std::str::from_utf8(v).ok())
    }
    /// Appends a header.
    pub fn push(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) {
        self.0.push(Header { name: name.into(), value: Some(value.into()) });
    }
    /// Appends a header and returns the whole.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        self.push(name, value);
        self
    }
    /// Replaces every header of that name by one.
    pub fn set(&mut self, name: &'static str, value: impl Into<Bytes>) {
        self.0.retain(|h| h.name != name);
        self.push(name, value);
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A record read from a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InRecord {
    /// Where it was read.
    pub tp: Tp,
    /// Its place there.
    pub offset: Offset,
    /// Its time; `None` where the broker has none (−1).
    pub timestamp: Option<WallTime>,
    /// Its key, or null.
    pub key: Option<Bytes>,
    /// Its value, or null (a tombstone).
    pub value: Option<Bytes>,
    /// Its headers.
    pub headers: Headers,
}

impl InRecord {
    /// Bytes this record holds, for memory bounds.
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.0.iter().map(|h| h.name.len() + h.value.as_ref().map_or(0, Bytes::len)).sum();
        self.key.as_ref().map_or(0, Bytes::len) + self.value.as_ref().map_or(0, Bytes::len) + headers + 64
    }
}

/// A record to write, borrowed: the client copies it once.
#[derive(Clone, Copy, Debug)]
pub struct OutRecord<'a> {
    /// Where to.
    pub topic: &'a TopicName,
    /// The partition; `None` leaves it to murmur2 over the key.
    pub partition: Option<Partition>,
    /// Its time; `None` takes the client's now.
    pub timestamp: Option<WallTime>,
    /// Its key, or null.
    pub key: Option<&'a [u8]>,
    /// Its value, or null.
    pub value: Option<&'a [u8]>,
    /// Its headers, where it has any.
    pub headers: Option<&'a Headers>,
}
