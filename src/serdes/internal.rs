//! Internal records: Avro from embedded `schemas/*.avsc`, named by the header `rb_schema: name/version`. No registry needed.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Fault, Result, codes};

use super::binary::Limits;
use super::schema::ParsedSchema;
use super::{read, write};

/// A record type with an embedded schema.
pub trait Wire: Serialize + DeserializeOwned {
    /// Schema name and version: the value of `rb_schema`, `intent/1`.
    const SCHEMA: &'static str;
    /// The schema itself.
    const AVSC: &'static str;
}

/// The bytes of a record, without framing.
///
/// # Errors
/// `BUG` where the type and its embedded schema differ.
pub fn encode<T: Wire>(record: &T) -> Result<Vec<u8>> {
    let bug = || Error::new(codes::BUG, Fault::Bug, format!("encoding {}", T::SCHEMA));
    write::write(record, schema::<T>()?).map_err(|e| bug().because(e.0))
}

/// A record from its bytes: of whoever may write the topic, so they are read under limits.
///
/// # Errors
/// `UNDECODABLE`, `INPUT_TOO_LARGE`.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T> {
    let undecodable = |code| Error::new(code, Fault::Data, format!("decoding {}", T::SCHEMA));
    read::read(bytes, schema::<T>()?, &Limits::default()).map_err(|e| undecodable(e.0.code).because(e.0))
}

/// The registry framing of a public record: magic byte, schema id, bytes.
pub fn frame(schema_id: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 5);
    out.push(0);
    out.extend_from_slice(&schema_id.to_be_bytes());
    out.extend_from_slice(bytes);
    out
}

/// The schema of a record type. Lives as long as the process: there is one for each embedded schema.
fn schema<T: Wire>() -> Result<&'static ParsedSchema> {
    static SCHEMAS: LazyLock<RwLock<HashMap<&'static str, &'static ParsedSchema>>> = LazyLock::new(RwLock::default);
    if let Some(known) = SCHEMAS.read().unwrap_or_else(PoisonError::into_inner).get(T::SCHEMA) {
        return Ok(known);
    }
    let parsed = ParsedSchema::parse(T::AVSC)?;
    Ok(SCHEMAS.write().unwrap_or_else(PoisonError::into_inner).entry(T::SCHEMA).or_insert_with(|| Box::leak(Box::new(parsed))))
}
