//! Avro with the registry's framing.
//!
//! How Avro stands in a decoded [`Value`]:
//!
//! | Avro | JSON |
//! |---|---|
//! | null, boolean, int, long, float, double, string | as they are; `"NaN"`, `"Infinity"`, `"-Infinity"` as text |
//! | bytes, fixed, duration | text with one code point 0–255 per byte, as in Avro's JSON encoding |
//! | decimal | text: `"-12.50"`, with all places of its scale; at most 128 bits |
//! | timestamp-millis, -micros, -nanos | RFC 3339 text in UTC; [`ParsedSchema::timestamps`] lists these fields |
//! | date | `"2026-01-31"` |
//! | time-…, local-timestamp-… | their number |
//! | uuid | text |
//! | enum | its symbol |
//! | union | the value; a named type among several as `{"full.Name": value}` |

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::error::{Error, Result};

use super::internal::frame;
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

/// Decodes framed records of any registered schema; encodes with one.
#[derive(Clone)]
pub struct AvroSerde {
    source: Arc<dyn SchemaSource>,
    reader: Option<Arc<ParsedSchema>>,
    writer: Option<(u32, Arc<ParsedSchema>)>,
    limits: Limits,
    seen: Arc<RwLock<HashMap<u32, Arc<ParsedSchema>>>>,
}

/// Writer schemas that one serde holds; beyond it asks the source, which keeps more.
const SEEN: usize = 256;

impl AvroSerde {
    /// Decodes by the writer's schemas.
    pub fn new(source: Arc<dyn SchemaSource>) -> Self {
        Self { source, reader: None, writer: None, limits: Limits::default(), seen: Arc::default() }
    }
    /// Decodes into this schema.
    #[must_use]
    pub fn reading_as(mut self, reader: Arc<ParsedSchema>) -> Self {
        self.reader = Some(reader);
        self
    }
    /// Encodes with this schema, under the id that the registry gave it.
    #[must_use]
    pub fn writing_as(mut self, id: u32, schema: Arc<ParsedSchema>) -> Self {
        self.writer = Some((id, schema));
        self
    }
    /// Takes other limits.
    #[must_use]
    pub fn within(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// A framed record's value.
    ///
    /// # Errors
    /// `UNDECODABLE` and `INPUT_TOO_LARGE` for the record; whatever the source says.
    pub fn decode(&self, bytes: &[u8]) -> Result<Value> {
        let (id, body) = unframe(bytes)?;
        let writer = self.writer_of(id)?;
        decode::decode(body, &writer, self.reader.as_deref().unwrap_or(&writer), &self.limits)
    }

    /// A framed record.
    ///
    /// # Errors
    /// `UNDECODABLE` where the value does not fit the schema, or there is none to write with.
    pub fn encode(&self, value: &Value) -> Result<Vec<u8>> {
        let (id, schema) = self.writer.as_ref().ok_or_else(|| super::unencodable("no schema to write with"))?;
        Ok(frame(*id, &encode::encode(value, schema)?))
    }

    fn writer_of(&self, id: u32) -> Result<Arc<ParsedSchema>> {
        if let Some(known) = self.seen.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(known.clone());
        }
        let schema = self.source.by_id(id)?;
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= SEEN {
            seen.clear();
        }
        seen.insert(id, schema.clone());
        Ok(schema)
    }
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
