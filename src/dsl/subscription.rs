//! What the two sides of a foreign-key join write for each other.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::error::{Error, Fault, Result, codes};
use crate::ids::Partition;
use crate::processor::ProcessorCx;
use crate::serdes::{Raw, Serde, SerdeRef, Target};

use super::wire::{Reader, put};

const VERSION: u8 = 1;

/// What the left side wants of the right one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// Forget the subscription.
    Leave,
    /// Forget it, and answer that there is nothing: the entry is gone.
    LeaveAndTell,
    /// Keep it, and answer in any case: a result may stand that no longer holds.
    Answer,
    /// Keep it, and answer if there is a value: without one there is no result to replace.
    AnswerIfThere,
}

const WISHES: [Wish; 4] = [Wish::Leave, Wish::LeaveAndTell, Wish::Answer, Wish::AnswerIfThere];

/// One entry of the left side that names a foreign key: a record under that key, and an entry of the right side's store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Subscription {
    pub(super) wish: Wish,
    /// Of the value that asks; `None` where it is deleted.
    pub(super) hash: Option<Bytes>,
    /// The entry's own key.
    pub(super) primary: Bytes,
    /// Where the entry lives, whatever partitioner put it there.
    pub(super) partition: Partition,
}

/// The right side's value for one entry of the left side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// As it was asked.
    pub(super) hash: Option<Bytes>,
    /// Where to; not on the wire.
    pub(super) partition: Partition,
    pub(super) value: Option<Bytes>,
}

impl Subscription {
    /// `version:u8 wish:u8 partition:u32 hash primary`.
    pub(super) fn serde() -> SerdeRef<Subscription> {
        Arc::new(Wire { write: Self::write, read: Self::read })
    }
    fn write(&self) -> Vec<u8> {
        let wish = WISHES.iter().position(|w| *w == self.wish).unwrap_or_default();
        let mut out = vec![VERSION, wish as u8];
        out.extend(self.partition.0.to_be_bytes());
        put(&mut out, self.hash.as_deref());
        out.extend_from_slice(&self.primary);
        out
    }
    fn read(bytes: &Bytes) -> Option<Self> {
        let mut from = Reader::new(bytes);
        (from.byte()? == VERSION).then_some(())?;
        let wish = *WISHES.get(usize::from(from.byte()?))?;
        let partition = Partition(i32::try_from(from.number()?).ok()?);
        Some(Self { wish, partition, hash: from.field()?, primary: from.rest() })
    }
}

impl Answer {
    /// `version:u8 hash value`.
    pub(super) fn serde() -> SerdeRef<Answer> {
        Arc::new(Wire { write: Self::write, read: Self::read })
    }
    fn write(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put(&mut out, self.hash.as_deref());
        put(&mut out, self.value.as_deref());
        out
    }
    fn read(bytes: &Bytes) -> Option<Self> {
        let mut from = Reader::new(bytes);
        (from.byte()? == VERSION).then_some(())?;
        Some(Self { hash: from.field()?, partition: Partition(0), value: from.field()? })
    }
}

struct Wire<T> {
    write: fn(&T) -> Vec<u8>,
    read: fn(&Bytes) -> Option<T>,
}

impl<T> Serde<T> for Wire<T> {
    fn decode(&self, raw: Raw<'_>) -> Result<T> {
        raw.bytes.and_then(self.read).ok_or_else(|| {
            Error::new(codes::UNDECODABLE, Fault::Bug, format!("reading a foreign-key join's record of {}", raw.topic))
                .because("it is cut off, or of a newer version of this program")
        })
    }
    fn encode(&self, value: &T, _: Target<'_>) -> Result<Option<Bytes>> {
        Ok(Some((self.write)(value).into()))
    }
}

/// 128 bits of a value's bytes: tells whether an answer is for the value that stands now.
pub(super) fn hash<V>(serde: &SerdeRef<V>, value: &V, cx: &ProcessorCx<'_, '_>) -> Result<Option<Bytes>> {
    let topic = crate::ids::TopicName::new("value-hash");
    let bytes = serde.encode(value, cx.target(&topic))?;
    Ok(bytes.map(|b| Bytes::copy_from_slice(&Sha256::digest(&b)[..16])))
}

/// All subscriptions to a foreign key begin with this.
pub(super) fn prefix(foreign: &[u8]) -> Vec<u8> {
    let mut out = (foreign.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(foreign);
    out
}

/// The key of one subscription: `length:u32 BE foreign primary`.
pub(super) fn combined(foreign: &[u8], primary: &[u8]) -> Bytes {
    let mut out = prefix(foreign);
    out.extend_from_slice(primary);
    out.into()
}

/// The entry's own key in that of a subscription to `foreign`.
pub(super) fn primary_of(combined: &Bytes, foreign: &[u8]) -> Bytes {
    combined.slice((4 + foreign.len()).min(combined.len())..)
}
