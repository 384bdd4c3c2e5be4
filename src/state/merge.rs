//! Ordered sources merged into one: least key first, the newest source wins, deletions hide what is older.

use std::iter::Peekable;

use bytes::Bytes;

use super::{StoreResult, Stored};

/// Entries of one source in key order; `None` deletes.
pub(super) type Layer = Box<dyn Iterator<Item = StoreResult<(Bytes, Option<Stored>)>>>;

/// The layers, newest first.
pub(super) struct Merge(Vec<Peekable<Layer>>);

impl Merge {
    pub(super) fn new(newest_first: Vec<Layer>) -> Self {
        Self(newest_first.into_iter().map(Iterator::peekable).collect())
    }

    /// The least key of all layers, with its newest entry; every older entry of that key is passed over.
    fn step(&mut self) -> Option<StoreResult<(Bytes, Option<Stored>)>> {
        let mut least: Option<(usize, Bytes)> = None;
        for (i, layer) in self.0.iter_mut().enumerate() {
            match layer.peek() {
                Some(Ok((key, _))) if least.as_ref().is_none_or(|(_, l)| key < l) => least = Some((i, key.clone())),
                Some(Err(_)) => return layer.next(),
                _ => {}
            }
        }
        let (newest, key) = least?;
        let entry = self.0[newest].next();
        for older in &mut self.0[newest + 1..] {
            older.next_if(|e| e.as_ref().is_ok_and(|(k, _)| *k == key));
        }
        entry
    }
}

impl Iterator for Merge {
    type Item = StoreResult<(Bytes, Stored)>;
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step()? {
                Ok((key, Some(value))) => return Some(Ok((key, value))),
                Ok((_, None)) => {}
                Err(e) => return Some(Err(e)),
            }
        }
    }
}
