//! A record with types.

use crate::record::Headers;
use crate::time::WallTime;

/// A record on its way through a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<K, V> {
    /// Its key.
    pub key: K,
    /// Its value.
    pub value: V,
    /// Its time; `None` where the broker has none.
    pub timestamp: Option<WallTime>,
    /// Its headers.
    pub headers: Headers,
}

impl<K, V> Record<K, V> {
    /// The same with another key.
    pub fn with_key<K2>(self, key: K2) -> Record<K2, V> {
        Record { key, value: self.value, timestamp: self.timestamp, headers: self.headers }
    }
    /// The same with another value.
    pub fn with_value<V2>(self, value: V2) -> Record<K, V2> {
        Record { key: self.key, value, timestamp: self.timestamp, headers: self.headers }
    }
    /// The same with another key and value, computed from its own.
    pub fn map<K2, V2>(self, f: impl FnOnce(K, V) -> (K2, V2)) -> Record<K2, V2> {
        let (key, value) = f(self.key, self.value);
        Record { key, value, timestamp: self.timestamp, headers: self.headers }
    }
}

/// A change of a table's entry: what was, what is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change<V> {
    /// Before; `None` where there was nothing.
    pub old: Option<V>,
    /// After; `None` where it was deleted.
    pub new: Option<V>,
}
