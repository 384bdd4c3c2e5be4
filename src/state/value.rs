//! A stored value on disk: format version, time and headers before the bytes.
//!
//! `version:u8 flags:u8 [time:i64 BE] [count:u32 (name, value)*] bytes`, lengths as u32 BE; a null header value has length
//! `u32::MAX`.

use bytes::Bytes;

use crate::record::{Header, Headers};
use crate::time::WallTime;

use super::{StoreResult, Stored, failed};

/// The version of this encoding, first byte of every stored value.
const VERSION: u8 = 1;
const HAS_TIME: u8 = 1;
const HAS_HEADERS: u8 = 2;
const NULL: u32 = u32::MAX;

/// The bytes that stand on disk.
pub(super) fn encode(v: &Stored) -> Vec<u8> {
    let mut out = Vec::with_capacity(10 + v.value.len());
    let flags = if v.timestamp.is_some() { HAS_TIME } else { 0 } | if v.headers.is_empty() { 0 } else { HAS_HEADERS };
    out.extend([VERSION, flags]);
    if let Some(t) = v.timestamp {
        out.extend(t.0.to_be_bytes());
    }
    if flags & HAS_HEADERS != 0 {
        out.extend((v.headers.0.len() as u32).to_be_bytes());
        for h in &v.headers.0 {
            put(&mut out, Some(h.name.as_bytes()));
            put(&mut out, h.value.as_deref());
        }
    }
    out.extend_from_slice(&v.value);
    out
}

/// The value that these bytes stand for.
///
/// # Errors
/// `STORE_FAILED` where they are cut off or of a version that this build does not know.
pub(super) fn decode(bytes: &[u8]) -> StoreResult<Stored> {
    read(bytes).ok_or_else(|| failed("decoding a stored value").because("it is cut off, or of a newer format"))
}

fn read(mut from: &[u8]) -> Option<Stored> {
    let [version, flags] = take(&mut from, 2)?.try_into().ok()?;
    if version != VERSION {
        return None;
    }
    let timestamp = match flags & HAS_TIME {
        0 => None,
        _ => Some(WallTime(i64::from_be_bytes(take(&mut from, 8)?.try_into().ok()?))),
    };
    let mut headers = Headers::new();
    if flags & HAS_HEADERS != 0 {
        for _ in 0..length(&mut from)? {
            let name = String::from_utf8(get(&mut from)??.to_vec()).ok()?;
            let value = get(&mut from)?.map(Bytes::copy_from_slice);
            headers.0.push(Header { name: name.into(), value });
        }
    }
    Some(Stored { value: Bytes::copy_from_slice(from), timestamp, headers })
}

/// Appends a length-prefixed field, `None` as null.
pub(super) fn put(out: &mut Vec<u8>, field: Option<&[u8]>) {
    out.extend(field.map_or(NULL, |f| f.len() as u32).to_be_bytes());
    out.extend_from_slice(field.unwrap_or_default());
}

/// Reads a length-prefixed field; the outer `None` says that the bytes are cut off.
pub(super) fn get<'a>(from: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match length(from)? {
        NULL => Some(None),
        n => take(from, n as usize).map(Some),
    }
}

/// The first `n` bytes, cut from the front.
pub(super) fn take<'a>(from: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, rest) = from.split_at_checked(n)?;
    *from = rest;
    Some(head)
}

fn length(from: &mut &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(take(from, 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, times and headers would be lost on their way through state, or null and empty headers would be one (C029).
    #[test]
    fn time_and_headers_survive() {
        let mut headers = Headers::new().with("x", "1").with("empty", "");
        headers.0.push(Header { name: "null".into(), value: None });
        for v in [
            Stored::bytes(""),
            Stored::bytes("body"),
            Stored { value: "v".into(), timestamp: Some(WallTime(-7001)), headers: headers.clone() },
            Stored { value: Bytes::new(), timestamp: None, headers },
        ] {
            assert_eq!(decode(&encode(&v)).expect("own bytes"), v);
        }
    }

    /// If this broke, cut or future bytes on disk would be taken for data.
    #[test]
    fn cut_and_future_bytes_are_refused() {
        let whole = encode(&Stored { value: "v".into(), timestamp: Some(WallTime(1)), headers: Headers::new().with("a", "b") });
        for n in 0..whole.len() - 1 {
            assert!(decode(&whole[..n]).is_err(), "{n} bytes");
        }
        assert!(decode(&[VERSION + 1, 0, 1]).is_err());
    }
}
