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
    /// Earlier versions that are still read, the newest first: (`name/version`, schema). A field that one lacks has its default.
    const EARLIER: &'static [(&'static str, &'static str)] = &[];
}

/// The bytes of a record, without framing.
///
/// # Errors
/// `BUG` where the type and its embedded schema differ.
pub fn encode<T: Wire>(record: &T) -> Result<Vec<u8>> {
    let bug = || Error::new(codes::BUG, Fault::Bug, format!("encoding {}", T::SCHEMA));
    write::write(record, schema::<T>()?).map_err(|e| bug().because(e.0))
}

/// A record from its bytes: of whoever may write the topic, so they are read under limits. Bytes of an earlier version are read as
/// such. They are never taken for the newest one: a version only adds fields at the end of a record, so the earlier one's bytes end
/// before the newer one's last field.
///
/// # Errors
/// `UNDECODABLE`, `INPUT_TOO_LARGE`.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T> {
    let undecodable = |code| Error::new(code, Fault::Data, format!("decoding {}", T::SCHEMA));
    let newest = match read::read(bytes, schema::<T>()?, &Limits::default()) {
        Ok(record) => return Ok(record),
        Err(e) => e,
    };
    for (name, avsc) in T::EARLIER {
        if let Ok(record) = read::read(bytes, parsed(name, avsc)?, &Limits::default()) {
            return Ok(record);
        }
    }
    Err(undecodable(newest.0.code).because(newest.0))
}

/// The registry framing of a public record: magic byte, schema id, bytes.
pub fn frame(schema_id: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 5);
    out.push(0);
    out.extend_from_slice(&schema_id.to_be_bytes());
    out.extend_from_slice(bytes);
    out
}

/// The schema of a record type.
fn schema<T: Wire>() -> Result<&'static ParsedSchema> {
    parsed(T::SCHEMA, T::AVSC)
}

/// A schema, parsed once. Lives as long as the process: there is one for each embedded schema.
fn parsed(name: &'static str, avsc: &'static str) -> Result<&'static ParsedSchema> {
    static SCHEMAS: LazyLock<RwLock<HashMap<&'static str, &'static ParsedSchema>>> = LazyLock::new(RwLock::default);
    if let Some(known) = SCHEMAS.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Ok(known);
    }
    let parsed = ParsedSchema::parse(avsc)?;
    Ok(SCHEMAS.write().unwrap_or_else(PoisonError::into_inner).entry(name).or_insert_with(|| Box::leak(Box::new(parsed))))
}
