//! Newest writes by key, before the engine has them. A store that is read key by key keeps them by hash, which costs one look; one that
//! is scanned keeps them in key order.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use foldhash::fast::RandomState;

use super::Stored;

/// Writes in key order; `None` deletes.
pub(super) type Sorted = BTreeMap<Bytes, Option<Stored>>;

/// Newest writes by key; `None` deletes.
pub(super) enum Changes {
    /// By hash, with the same in key order once somebody wanted that.
    Hashed(HashMap<Bytes, Option<Stored>, RandomState>, OnceLock<Arc<Sorted>>),
    /// In key order.
    Sorted(Arc<Sorted>),
}

impl Default for Changes {
    fn default() -> Self {
        Self::hashed(0)
    }
}

impl Changes {
    /// None yet, by hash, with room for so many.
    pub(super) fn hashed(room: usize) -> Self {
        Changes::Hashed(HashMap::with_capacity_and_hasher(room, RandomState::default()), OnceLock::new())
    }
    /// None yet, in key order.
    pub(super) fn sorted() -> Self {
        Changes::Sorted(Arc::default())
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Stored>> {
        match self {
            Changes::Hashed(map, _) => map.get(key),
            Changes::Sorted(map) => map.get(key),
        }
    }

    /// Answers what the key had before, where it had any.
    pub(super) fn insert(&mut self, key: Bytes, value: Option<Stored>) -> Option<Option<Stored>> {
        match self {
            Changes::Hashed(map, sorted) => {
                sorted.take();
                match map.entry(key) {
                    Entry::Occupied(mut entry) => Some(entry.insert(value)),
                    Entry::Vacant(entry) => {
                        entry.insert(value);
                        None
                    }
                }
            }
            Changes::Sorted(map) => Arc::make_mut(map).insert(key, value),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Changes::Hashed(map, _) => map.len(),
            Changes::Sorted(map) => map.len(),
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = (&Bytes, &Option<Stored>)> + '_> {
        match self {
            Changes::Hashed(map, _) => Box::new(map.iter()),
            Changes::Sorted(map) => Box::new(map.iter()),
        }
    }

    /// All of them in key order, as engines take them best.
    pub(super) fn in_order(&self) -> Vec<(&Bytes, &Option<Stored>)> {
        let mut all: Vec<_> = self.iter().collect();
        if let Changes::Hashed(..) = self {
            all.sort_unstable_by_key(|(key, _)| *key);
        }
        all
    }

    /// The same as a map in key order; made once and kept.
    pub(super) fn as_sorted(&self) -> Arc<Sorted> {
        match self {
            Changes::Hashed(map, sorted) => {
                sorted.get_or_init(|| Arc::new(map.iter().map(|(k, v)| (k.clone(), v.clone())).collect())).clone()
            }
            Changes::Sorted(map) => map.clone(),
        }
    }

    /// Keeps them in key order from now on. Whoever holds on to the answer makes the next write copy it.
    pub(super) fn sort(&mut self) -> Arc<Sorted> {
        let sorted = match self {
            Changes::Hashed(map, _) => Arc::new(std::mem::take(map).into_iter().collect()),
            Changes::Sorted(map) => return map.clone(),
        };
        *self = Changes::Sorted(Arc::clone(&sorted));
        sorted
    }
}

impl FromIterator<(Bytes, Option<Stored>)> for Changes {
    fn from_iter<I: IntoIterator<Item = (Bytes, Option<Stored>)>>(all: I) -> Self {
        Changes::Hashed(all.into_iter().collect(), OnceLock::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a store that begins to be scanned would lose writes, or show old ones.
    #[test]
    fn both_forms_hold_the_same() {
        let (mut hashed, mut sorted) = (Changes::default(), Changes::sorted());
        for i in (0..1_000_u32).rev() {
            let key = Bytes::copy_from_slice(&(i % 300).to_be_bytes());
            let value = (i % 7 != 0).then(|| Stored::bytes(i.to_string()));
            assert_eq!(hashed.insert(key.clone(), value.clone()), sorted.insert(key, value));
            if i == 500 {
                assert_eq!(hashed.as_sorted(), sorted.as_sorted());
            }
        }
        assert_eq!(hashed.as_sorted(), sorted.as_sorted());
        assert_eq!(hashed.in_order(), sorted.in_order());
        assert!(hashed.in_order().is_sorted_by_key(|(key, _)| *key));
        assert_eq!((hashed.len(), hashed.get(b"no")), (300, None));
        assert_eq!(hashed.sort(), sorted.as_sorted());
        assert_eq!(hashed.as_sorted(), sorted.as_sorted(), "it keeps them");
        assert!(matches!(hashed, Changes::Sorted(_)));
    }
}
