//! The object cache between overlays and disk: committed values only, so an abort has nothing to take back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use foldhash::fast::RandomState;

use super::Stored;
use super::overlay::entry_bytes;

/// Bytes that all caches of the process share in equal parts.
#[derive(Debug)]
pub struct CacheBudget {
    bytes: usize,
    caches: AtomicUsize,
}

impl CacheBudget {
    /// So many for all of them.
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, caches: AtomicUsize::new(0) })
    }
    /// A part for one more cache, for as long as it lives.
    pub fn share(self: &Arc<Self>) -> CacheShare {
        self.caches.fetch_add(1, Ordering::Relaxed);
        CacheShare(self.clone())
    }
}

/// The part of one cache. It grows and shrinks with the number of caches.
#[derive(Debug)]
pub struct CacheShare(Arc<CacheBudget>);

impl CacheShare {
    /// Bytes that this cache may hold now.
    pub fn bytes(&self) -> usize {
        self.0.bytes / self.0.caches.load(Ordering::Relaxed).max(1)
    }
}

impl Drop for CacheShare {
    fn drop(&mut self) {
        self.0.caches.fetch_sub(1, Ordering::Relaxed);
    }
}

type Generation = HashMap<Bytes, Option<Stored>, RandomState>;

/// One store's cache in two generations: what is used moves to the young one, and the old one goes as a whole when the young
/// one holds half the share. `None` remembers that there is nothing.
pub(super) struct ObjectCache {
    share: CacheShare,
    young: Generation,
    old: Generation,
    young_bytes: usize,
}

impl ObjectCache {
    pub(super) fn new(share: CacheShare) -> Self {
        Self { share, young: Generation::default(), old: Generation::default(), young_bytes: 0 }
    }
    /// The committed value, where it is known.
    pub(super) fn get(&mut self, key: &[u8]) -> Option<Option<Stored>> {
        if let Some(found) = self.young.get(key) {
            return Some(found.clone());
        }
        let (key, found) = self.old.remove_entry(key)?;
        self.insert(key, found.clone());
        Some(found)
    }
    /// Takes a committed value, or that there is none.
    pub(super) fn insert(&mut self, key: Bytes, value: Option<Stored>) {
        self.old.remove(&key);
        self.young_bytes += entry_bytes(&key, value.as_ref());
        if let Some(before) = self.young.insert(key.clone(), value) {
            self.young_bytes -= entry_bytes(&key, before.as_ref());
        }
        if self.young_bytes > self.share.bytes() / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
    pub(super) fn clear(&mut self) {
        (self.young, self.old, self.young_bytes) = (Generation::default(), Generation::default(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a busy store would grow the process without bound, or forget what it just used.
    #[test]
    fn it_stays_within_its_share_and_keeps_what_is_used() {
        let mut cache = ObjectCache::new(CacheBudget::new(200_000).share());
        for i in 0..100_000u32 {
            cache.insert(Bytes::copy_from_slice(&i.to_be_bytes()), Some(Stored::bytes("value")));
            assert!(cache.get(&0u32.to_be_bytes()).is_some(), "used at each turn, gone at {i}");
            let held: usize = cache.young.iter().chain(&cache.old).map(|(k, v)| entry_bytes(k, v.as_ref())).sum();
            assert!(held <= 201_000, "{held} bytes at {i}");
        }
    }
}
