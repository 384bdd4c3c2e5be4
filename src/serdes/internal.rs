//! Internal records: Avro from embedded `schemas/*.avsc`, named by the header `rb_schema: name/version`. No registry needed.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Fault, Result, codes};

/// A record type with an embedded schema.
pub trait Wire: Serialize + DeserializeOwned {
    /// Schema name and version: the value of `rb_schema`, `intent/1`.
    const SCHEMA: &'static str;
    /// The schema itself.
    const AVSC: &'static str;
}

/// The bytes of a record, without framing.
pub fn encode<T: Wire>(record: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(|e| Error::new(codes::BUG, Fault::Bug, format!("encoding {}", T::SCHEMA)).because(e))
}

/// A record from its bytes.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|e| Error::new(codes::UNDECODABLE, Fault::Data, format!("decoding {}", T::SCHEMA)).because(e))
}

/// The registry framing of a public record: magic byte, schema id, bytes.
pub fn frame(schema_id: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 5);
    out.push(0);
    out.extend_from_slice(&schema_id.to_be_bytes());
    out.extend_from_slice(bytes);
    out
}
