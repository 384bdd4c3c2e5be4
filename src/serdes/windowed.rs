//! Keys with a window, in the bytes that Kafka Streams' windowed serdes write: key, then start; sessions: key, then end, start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::error::Result;
use crate::time::WallTime;

use super::serde::{Raw, Serde, SerdeRef, Serdes, Target, undecodable};

/// A span of event time. Whether `end` belongs to it is said by its kind: it does for sliding windows and sessions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Window {
    /// Its first moment.
    pub start: WallTime,
    /// Its last moment, or the one after it.
    pub end: WallTime,
}

/// A key within a window: what a windowed table is keyed by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Windowed<K> {
    /// The key.
    pub key: K,
    /// The window.
    pub window: Window,
}

impl<K: fmt::Display> fmt::Display for Windowed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}@{}/{}]", self.key, self.window.start.0, self.window.end.0)
    }
}

impl Serdes {
    /// Keys of windows of one size: the key's bytes, then the start as 8 bytes.
    #[doc(alias = "timeWindowedSerdeFrom")]
    pub fn time_windowed<K: Clone + 'static>(key: SerdeRef<K>, size: Duration) -> SerdeRef<Windowed<K>> {
        Arc::new(TimeWindowed { key, size })
    }
    /// Keys of sessions: the key's bytes, then end and start as 8 bytes each.
    #[doc(alias = "sessionWindowedSerdeFrom")]
    pub fn session_windowed<K: Clone + 'static>(key: SerdeRef<K>) -> SerdeRef<Windowed<K>> {
        Arc::new(SessionWindowed { key })
    }
}

struct TimeWindowed<K> {
    key: SerdeRef<K>,
    size: Duration,
}

impl<K> Serde<Windowed<K>> for TimeWindowed<K> {
    fn decode(&self, raw: Raw<'_>) -> Result<Windowed<K>> {
        let (key, [start]) = split(raw)?;
        let key = self.key.decode(Raw { bytes: Some(&key), ..raw })?;
        Ok(Windowed { key, window: Window { start, end: start.plus(self.size) } })
    }
    fn encode(&self, of: &Windowed<K>, to: Target<'_>) -> Result<Option<Bytes>> {
        Ok(self.key.encode(&of.key, to)?.map(|key| joined(&key, &[of.window.start])))
    }
}

struct SessionWindowed<K> {
    key: SerdeRef<K>,
}

impl<K> Serde<Windowed<K>> for SessionWindowed<K> {
    fn decode(&self, raw: Raw<'_>) -> Result<Windowed<K>> {
        let (key, [end, start]) = split(raw)?;
        let key = self.key.decode(Raw { bytes: Some(&key), ..raw })?;
        Ok(Windowed { key, window: Window { start, end } })
    }
    fn encode(&self, of: &Windowed<K>, to: Target<'_>) -> Result<Option<Bytes>> {
        Ok(self.key.encode(&of.key, to)?.map(|key| joined(&key, &[of.window.end, of.window.start])))
    }
}

/// Key bytes and the times behind them.
fn split<const N: usize>(raw: Raw<'_>) -> Result<(Bytes, [WallTime; N])> {
    let cut = |bytes: &Bytes| {
        let at = bytes.len().checked_sub(8 * N)?;
        let mut times = [WallTime(0); N];
        for (time, eight) in times.iter_mut().zip(bytes[at..].chunks_exact(8)) {
            *time = WallTime(i64::from_be_bytes(eight.try_into().ok()?));
        }
        Some((bytes.slice(..at), times))
    };
    raw.bytes.and_then(cut).ok_or_else(|| undecodable(raw, "a windowed key without its window"))
}

fn joined(key: &[u8], times: &[WallTime]) -> Bytes {
    let mut out = Vec::with_capacity(key.len() + 8 * times.len());
    out.extend_from_slice(key);
    times.iter().for_each(|t| out.extend(t.0.to_be_bytes()));
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TopicName;
    use crate::record::Headers;

    /// If this broke, consumers that read windowed keys with Kafka Streams' own serdes would see other windows.
    #[test]
    fn windowed_keys_have_kafka_streams_bytes() {
        let (topic, headers) = (TopicName::new("t"), Headers::new());
        let to = Target { topic: &topic, avro: None };
        let raw = |bytes| Raw { topic: &topic, bytes, headers: &headers, avro: None };
        let key = Windowed { key: "ab".to_owned(), window: Window { start: WallTime(256), end: WallTime(1_256) } };

        let timed = Serdes::time_windowed(Serdes::string(), Duration::from_secs(1));
        let bytes = timed.encode(&key, to).expect("encodes").expect("not null");
        assert_eq!(&bytes[..], b"ab\0\0\0\0\0\0\x01\0");
        assert_eq!(timed.decode(raw(Some(&bytes))).expect("decodes"), key);

        let session = Serdes::session_windowed(Serdes::string());
        let bytes = session.encode(&key, to).expect("encodes").expect("not null");
        assert_eq!(&bytes[..], b"ab\0\0\0\0\0\0\x04\xe8\0\0\0\0\0\0\x01\0");
        assert_eq!(session.decode(raw(Some(&bytes))).expect("decodes"), key);
        assert!(session.decode(raw(Some(&Bytes::from_static(b"short")))).is_err());
        assert_eq!(key.to_string(), "[ab@256/1256]");
    }
}
