//! Keys of windowed stores: parts that keep their order when they are laid one behind the other.

use bytes::Bytes;

use crate::time::WallTime;

/// Ends a key's bytes; a zero within them is followed by [`ZERO`].
const END: u8 = 1;
const ZERO: u8 = u8::MAX;

/// A key in the making. The first byte says what kind of entry it is.
pub(crate) struct Ordered(Vec<u8>);

impl Ordered {
    /// Begins a key of one kind of entry.
    pub(crate) fn of(kind: u8) -> Self {
        Self(vec![kind])
    }
    /// A time: earlier before later, also before 1970.
    pub(crate) fn time(mut self, at: WallTime) -> Self {
        self.0.extend(flipped(at.0));
        self
    }
    /// A number.
    pub(crate) fn number(mut self, n: i64) -> Self {
        self.0.extend(flipped(n));
        self
    }
    /// Bytes of any length, none of which is taken for what follows.
    pub(crate) fn key(mut self, key: &[u8]) -> Self {
        for &b in key {
            self.0.push(b);
            if b == 0 {
                self.0.push(ZERO);
            }
        }
        self.0.extend([0, END]);
        self
    }
    /// One byte.
    pub(crate) fn byte(mut self, b: u8) -> Self {
        self.0.push(b);
        self
    }
    /// The bytes.
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

fn flipped(n: i64) -> [u8; 8] {
    ((n as u64) ^ (1 << 63)).to_be_bytes()
}

/// Takes the parts of a key off again; `None` where it has another shape.
pub(crate) struct Parts<'a>(pub(crate) &'a [u8]);

impl Parts<'_> {
    pub(crate) fn number(&mut self) -> Option<i64> {
        let (head, rest) = self.0.split_at_checked(8)?;
        self.0 = rest;
        Some((u64::from_be_bytes(head.try_into().ok()?) ^ (1 << 63)) as i64)
    }
    pub(crate) fn time(&mut self) -> Option<WallTime> {
        self.number().map(WallTime)
    }
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
    pub(crate) fn key(&mut self) -> Option<Bytes> {
        let mut key = Vec::with_capacity(self.0.len());
        loop {
            match self.byte()? {
                0 if self.byte()? == ZERO => key.push(0),
                0 => return Some(Bytes::from(key)),
                b => key.push(b),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)], 0..4)
    }

    proptest! {
        /// If this broke, a scan of one key's windows would run into another key's, or pass over some of its own.
        #[test]
        fn order_is_kept_and_parts_come_back(a in (key(), any::<i64>()), b in (key(), any::<i64>())) {
            let laid = |(k, n): &(Vec<u8>, i64)| Ordered::of(7).key(k).time(WallTime(*n)).bytes();
            prop_assert_eq!(a.cmp(&b), laid(&a).cmp(&laid(&b)));
            let bytes = laid(&a);
            let mut parts = Parts(&bytes);
            prop_assert_eq!(parts.byte(), Some(7));
            prop_assert_eq!(parts.key().map(|k| k.to_vec()), Some(a.0));
            prop_assert_eq!(parts.time(), Some(WallTime(a.1)));
            prop_assert!(parts.0.is_empty());
        }
    }
}
