//! Avro with the registry's framing.
//!
//! How Avro stands in a decoded [`Value`]:
//!
//! | Avro | JSON |
//! |---|---|
//! | null, boolean, int, long, float, double, string | as they are; `"NaN"`, `"Infinity"`, `"-Infinity"` as text |
//! | bytes, fixed, duration | text with one code point 0–255 per byte, as in Avro's JSON encoding |
//! | decimal | text: `"-12.50"`, with all places of its scale; at most 128 bits |
//! | timestamp-millis, -micros, -nanos | RFC 3339 text in UTC |
//! | date | `"2026-01-31"` |
//! | time-…, local-timestamp-… | their number |
//! | uuid | text |
//! | enum | its symbol |
//! | union | the value; a named type among several as `{"full.Name": value}` |

use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, Result};

use super::{Limits, ParsedSchema, decode, encode, undecodable};

/// Where schemas of a registry come from. Called on stream threads: it may block, within its own bound.
pub trait SchemaSource: Send + Sync {
    /// The schema of this id, parsed as a writer's.
    ///
    /// # Errors
    /// By fault: `Unreachable` passes (hold the record and try again), `Configuration` (the registry refuses us: hold too),
    /// `Data` is final for this record.
    fn by_id(&self, id: u32) -> Result<Arc<ParsedSchema>>;
}

/// A framed record's value, by its writer's schema, into `reader` where one is given.
///
/// # Errors
/// `UNDECODABLE` and `INPUT_TOO_LARGE` for the record; whatever the source says.
pub fn decode_framed(bytes: &[u8], source: &dyn SchemaSource, reader: Option<&ParsedSchema>, limits: &Limits) -> Result<Value> {
    let (id, body) = unframe(bytes)?;
    let writer = source.by_id(id)?;
    decode::decode(body, &writer, reader.unwrap_or(&writer), limits)
}

/// The schema id and the bytes behind a registry header (C013).
///
/// # Errors
/// `UNDECODABLE`: "no registry header (first byte 0xNN)".
pub fn unframe(bytes: &[u8]) -> Result<(u32, &[u8])> {
    let none = |what: String| -> Error { undecodable(format!("no registry header ({what})")) };
    match bytes {
        [] => Err(none("no bytes at all; a deletion is null".into())),
        [0, id @ ..] => match id.split_first_chunk::<4>() {
            Some((id, body)) => Ok((u32::from_be_bytes(*id), body)),
            None => Err(none(format!("{} bytes", bytes.len()))),
        },
        [first, ..] => Err(none(format!("first byte 0x{first:02x}"))),
    }
}

/// Decodes bytes without framing.
///
/// # Errors
/// `UNDECODABLE` and `INPUT_TOO_LARGE`.
pub fn decode_bare(bytes: &[u8], writer: &ParsedSchema, reader: &ParsedSchema, limits: &Limits) -> Result<Value> {
    decode::decode(bytes, writer, reader, limits)
}

/// Encodes a value without framing.
///
/// # Errors
/// `UNDECODABLE` where it does not fit.
pub fn encode_bare(value: &Value, schema: &ParsedSchema) -> Result<Vec<u8>> {
    encode::encode(value, schema)
}
