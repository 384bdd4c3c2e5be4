//! Ordered sources merged into one: the newest source wins, deletions hide what is older.

use std::iter::Peekable;

use bytes::Bytes;

use super::{StoreResult, Stored};

/// Which way a scan goes over the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// The least key first.
    Up,
    /// The greatest key first.
    Down,
}

impl Direction {
    /// Entries that come in key order, this way round.
    pub(super) fn turn<T: 'static>(self, ordered: impl DoubleEndedIterator<Item = T> + 'static) -> Box<dyn Iterator<Item = T>> {
        match self {
            Direction::Up => Box::new(ordered),
            Direction::Down => Box::new(ordered.rev()),
        }
    }
    fn is_before(self, a: &Bytes, b: &Bytes) -> bool {
        match self {
            Direction::Up => a < b,
            Direction::Down => a > b,
        }
    }
}

/// Entries of one source, in the order of the scan; `None` deletes.
pub(super) type Layer = Box<dyn Iterator<Item = StoreResult<(Bytes, Option<Stored>)>>>;

/// The layers, newest first, all in one direction.
pub(super) struct Merge(Vec<Peekable<Layer>>, Direction);

impl Merge {
    pub(super) fn new(newest_first: Vec<Layer>, direction: Direction) -> Self {
        Self(newest_first.into_iter().map(Iterator::peekable).collect(), direction)
    }

    /// The next key of all layers, with its newest entry; every older entry of that key is passed over.
    fn step(&mut self) -> Option<StoreResult<(Bytes, Option<Stored>)>> {
        let (mut first, direction): (Option<(usize, Bytes)>, _) = (None, self.1);
        for (i, layer) in self.0.iter_mut().enumerate() {
            match layer.peek() {
                Some(Ok((key, _))) if first.as_ref().is_none_or(|(_, f)| direction.is_before(key, f)) => {
                    first = Some((i, key.clone()))
                }
                Some(Err(_)) => return layer.next(),
                _ => {}
            }
        }
        let (newest, key) = first?;
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
