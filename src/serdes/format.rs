//! The format of a key or a value: each topic says its own, keys apart from values (C014).

use serde_json::Value;

use crate::error::Result;

use super::avro::AvroSerde;
use super::logical::bytes_of_text;
use super::{undecodable, unencodable};

/// How bytes and values become each other.
#[derive(Clone)]
pub enum Format {
    /// Avro behind a registry header.
    Avro(Box<AvroSerde>),
    /// JSON text.
    Json,
    /// UTF-8 text.
    String,
    /// Bytes as they are: text with one code point 0–255 per byte.
    Bytes,
    /// Eight bytes, big-endian, as Kafka's `LongSerializer` writes.
    Long,
}

impl Format {
    /// The value of a record's key or value. Null is null, asks no registry, and is not the same as no bytes (C023).
    ///
    /// # Errors
    /// `UNDECODABLE`, `INPUT_TOO_LARGE`; for Avro also what the schema source says.
    pub fn decode(&self, bytes: Option<&[u8]>) -> Result<Option<Value>> {
        let Some(bytes) = bytes else { return Ok(None) };
        Ok(Some(match self {
            Format::Avro(avro) => avro.decode(bytes)?,
            Format::Json => serde_json::from_slice(bytes).map_err(undecodable)?,
            Format::String => Value::String(std::str::from_utf8(bytes).map_err(undecodable)?.to_owned()),
            Format::Bytes => Value::String(bytes.iter().map(|b| char::from(*b)).collect()),
            Format::Long => match bytes.try_into() {
                Ok(eight) => i64::from_be_bytes(eight).into(),
                Err(_) => return Err(undecodable(format!("a long has 8 bytes, not {}", bytes.len()))),
            },
        }))
    }

    /// The bytes of a value; `None` is null.
    ///
    /// # Errors
    /// `UNDECODABLE` where the value does not fit.
    pub fn encode(&self, value: Option<&Value>) -> Result<Option<Vec<u8>>> {
        let Some(value) = value else { return Ok(None) };
        let text = || value.as_str().ok_or_else(|| unencodable("not a text"));
        Ok(Some(match self {
            Format::Avro(avro) => avro.encode(value)?,
            Format::Json => serde_json::to_vec(value).map_err(unencodable)?,
            Format::String => text()?.as_bytes().to_vec(),
            Format::Bytes => bytes_of_text(text()?).ok_or_else(|| unencodable("a code point beyond 255"))?,
            Format::Long => value.as_i64().ok_or_else(|| unencodable("not a whole number"))?.to_be_bytes().to_vec(),
        }))
    }
}
