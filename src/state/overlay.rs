//! Writes that the engine does not have yet: what the open transaction wrote, and walks over what waits for the writer.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::Stored;
use super::changes::Changes;

/// The open transaction's writes, with the bytes that they hold.
#[derive(Default)]
pub(super) struct Overlay {
    changes: Changes,
    bytes: usize,
    /// Whether it was ever scanned: then it is kept in key order.
    scanned: bool,
}

impl Overlay {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Stored>> {
        self.changes.get(key)
    }
    pub(super) fn put(&mut self, key: Bytes, value: Option<Stored>) {
        self.bytes += entry_bytes(&key, value.as_ref());
        let key_len = key.len();
        if let Some(old) = self.changes.insert(key, value) {
            self.bytes -= ENTRY + key_len + old.as_ref().map_or(0, stored_bytes);
        }
    }
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
    pub(super) fn clear(&mut self) {
        self.seal();
    }
    /// Takes the writes out and leaves an empty overlay of the same form; by hash with room for as many.
    pub(super) fn seal(&mut self) -> Changes {
        self.bytes = 0;
        let fresh = if self.scanned { Changes::sorted() } else { Changes::hashed(self.changes.len()) };
        std::mem::replace(&mut self.changes, fresh)
    }
    /// The writes within the bounds, copied (values are shared, not cloned): later writes do not show in it.
    pub(super) fn slice(&mut self, bounds: &Bounds) -> Vec<(Bytes, Option<Stored>)> {
        self.scanned = true;
        if bounds.is_empty() {
            return Vec::new();
        }
        self.changes.sort().range::<[u8], _>(bounds.as_slices()).map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

/// What a map entry costs beside its bytes, about.
const ENTRY: usize = 96;

/// Bytes that an entry holds in memory.
pub(super) fn entry_bytes(key: &[u8], value: Option<&Stored>) -> usize {
    ENTRY + key.len() + value.map_or(0, stored_bytes)
}

fn stored_bytes(v: &Stored) -> usize {
    v.value.len() + v.headers.0.iter().map(|h| h.name.len() + h.value.as_ref().map_or(0, Bytes::len) + 32).sum::<usize>()
}

/// `from <= key < to`; an open end is `None`.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) from: Option<Bytes>,
    pub(super) to: Option<Bytes>,
}

impl Bounds {
    pub(super) fn new(from: Option<&[u8]>, to: Option<&[u8]>) -> Self {
        Self { from: from.map(Bytes::copy_from_slice), to: to.map(Bytes::copy_from_slice) }
    }
    /// All keys that begin with `prefix`.
    pub(super) fn prefix(prefix: &[u8]) -> Self {
        Self { from: Some(Bytes::copy_from_slice(prefix)), to: after_prefix(prefix).map(Bytes::from) }
    }
    /// Whether no key can lie within; a map's `range` panics on such bounds.
    pub(super) fn is_empty(&self) -> bool {
        matches!((&self.from, &self.to), (Some(f), Some(t)) if f >= t) || self.to.as_ref().is_some_and(Bytes::is_empty)
    }
    fn as_slices(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (
            self.from.as_deref().map_or(Bound::Unbounded, Bound::Included),
            self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        )
    }
}

/// The least key after all that begin with `prefix`; `None` where there is none.
pub(super) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Walks a shared map within bounds, from either end, without copying it; the map stays as it was for as long as this lives.
pub(super) struct Walk<V> {
    map: Arc<BTreeMap<Bytes, V>>,
    from: Bound<Bytes>,
    to: Bound<Bytes>,
}

impl<V> Walk<V> {
    pub(super) fn new(map: Arc<BTreeMap<Bytes, V>>, bounds: &Bounds) -> Self {
        let map = if bounds.is_empty() { Arc::default() } else { map };
        let from = bounds.from.clone().map_or(Bound::Unbounded, Bound::Included);
        Self { map, from, to: bounds.to.clone().map_or(Bound::Unbounded, Bound::Excluded) }
    }
    fn rest(&self) -> btree_map::Range<'_, Bytes, V> {
        match self.map.is_empty() {
            true => self.map.range::<Bytes, _>(..),
            false => self.map.range((self.from.clone(), self.to.clone())),
        }
    }
}

impl<V: Clone> Iterator for Walk<V> {
    type Item = (Bytes, V);
    fn next(&mut self) -> Option<Self::Item> {
        let (k, v) = self.rest().next().map(|(k, v)| (k.clone(), v.clone()))?;
        self.from = Bound::Excluded(k.clone());
        Some((k, v))
    }
}

impl<V: Clone> DoubleEndedIterator for Walk<V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (k, v) = self.rest().next_back().map(|(k, v)| (k.clone(), v.clone()))?;
        self.to = Bound::Excluded(k.clone());
        Some((k, v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, memory bounds would drift with every overwritten key.
    #[test]
    fn bytes_follow_overwrites() {
        let mut o = Overlay::default();
        o.put("a".into(), Some(Stored::bytes("12345")));
        let one = o.bytes();
        o.put("a".into(), Some(Stored::bytes("123")));
        assert_eq!(o.bytes(), one - 2);
        o.put("a".into(), None);
        assert_eq!(o.bytes(), entry_bytes(b"a", None));
    }

    /// If this broke, a prefix scan would miss keys after 0xff or run into the next prefix.
    #[test]
    fn prefixes_end_where_they_should() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(&[1, 255]), Some(vec![2]));
        assert_eq!(after_prefix(&[255, 255]), None);
        assert_eq!(after_prefix(b""), None);
    }
}
