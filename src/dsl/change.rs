//! A change on its way through a topic of ours: what was and what is, in one record, so that a group gives up the old value and
//! takes the new one at once.
//!
//! `version:u8 old new`, each `present:u8 [length:u32 BE bytes]`.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Fault, Result, codes};
use crate::processor::Change;
use crate::serdes::{Raw, Serde, SerdeRef, Target};

use super::wire::{Reader, put};

const VERSION: u8 = 1;

/// Changes of values that `inner` writes.
pub(super) fn serde<V: 'static>(inner: SerdeRef<V>) -> SerdeRef<Change<V>> {
    Arc::new(ChangeSerde(inner))
}

struct ChangeSerde<V>(SerdeRef<V>);

impl<V> Serde<Change<V>> for ChangeSerde<V> {
    fn decode(&self, raw: Raw<'_>) -> Result<Change<V>> {
        let unknown = || Error::new(codes::UNDECODABLE, Fault::Bug, format!("reading a change from {}", raw.topic));
        let bytes = raw.bytes.ok_or_else(unknown)?;
        let parts = (|| {
            let mut from = Reader::new(bytes);
            (from.byte()? == VERSION).then_some(())?;
            Some((from.field()?, from.field()?))
        })();
        let (old, new) = parts.ok_or_else(|| unknown().because("it is cut off, or of a newer version of this program"))?;
        let value = |b: Option<Bytes>| b.map(|b| self.0.decode(Raw { bytes: Some(&b), ..raw })).transpose();
        Ok(Change { old: value(old)?, new: value(new)? })
    }
    fn encode(&self, change: &Change<V>, to: Target<'_>) -> Result<Option<Bytes>> {
        let mut out = vec![VERSION];
        for value in [&change.old, &change.new] {
            let bytes = value.as_ref().map(|v| self.0.encode(v, to)).transpose()?.flatten();
            put(&mut out, bytes.as_deref());
        }
        Ok(Some(out.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TopicName;
    use crate::record::Headers;
    use crate::serdes::Serdes;

    /// If this broke, a group would not give up the old value, or take an empty one for none; or a newer version's record would be
    /// misread in a rolling upgrade.
    #[test]
    fn changes_survive_the_topic_and_newer_ones_are_refused() {
        let (topic, headers, serde) = (TopicName::new("t"), Headers::new(), serde(Serdes::string()));
        let read = |b: &Bytes| serde.decode(Raw { topic: &topic, bytes: Some(b), headers: &headers, avro: None });
        let text = |s: &str| Some(s.to_owned());
        for (old, new) in [(None, text("")), (text("a"), None), (text("a"), text("bc")), (None, None)] {
            let change = Change { old, new };
            let bytes = serde.encode(&change, Target { topic: &topic, avro: None }).expect("encodes").expect("bytes");
            assert_eq!(read(&bytes).expect("own bytes"), change);
            assert!(read(&bytes.slice(..bytes.len() - 1)).is_err(), "cut off");
        }
        assert!(read(&Bytes::from_static(&[VERSION + 1, 0, 0])).is_err());
    }
}
