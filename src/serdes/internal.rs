//! Internal records: Avro from embedded `schemas/*.avsc`, named by the header `rb_schema: name/version`. No registry needed.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::writer::datum::GenericDatumWriter;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Fault, Result, codes};

use super::binary::{self, Limits};
use super::schema::ParsedSchema;

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
    let codec = codec::<T>()?;
    codec.writer.write_ser_to_vec(record).map_err(|e| bug::<T>("encoding").because(e))
}

/// A record from its bytes: of whoever may write the topic, so they are looked through before they are decoded.
///
/// # Errors
/// `UNDECODABLE`, `INPUT_TOO_LARGE`.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T> {
    let codec = codec::<T>()?;
    let undecodable = |code| Error::new(code, Fault::Data, format!("decoding {}", T::SCHEMA));
    binary::check(bytes, codec.schema, &Limits::default()).map_err(|e| undecodable(e.code).because(e))?;
    codec.reader.read_deser(&mut &bytes[..]).map_err(|e| undecodable(codes::UNDECODABLE).because(e))
}

/// The registry framing of a public record: magic byte, schema id, bytes.
pub fn frame(schema_id: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 5);
    out.push(0);
    out.extend_from_slice(&schema_id.to_be_bytes());
    out.extend_from_slice(bytes);
    out
}

/// What encodes and decodes one record type. Lives as long as the process: there is one for each embedded schema.
struct Codec {
    schema: &'static ParsedSchema,
    writer: GenericDatumWriter<'static>,
    reader: GenericDatumReader<'static>,
}

fn codec<T: Wire>() -> Result<&'static Codec> {
    static CODECS: LazyLock<RwLock<HashMap<&'static str, &'static Codec>>> = LazyLock::new(RwLock::default);
    if let Some(known) = CODECS.read().unwrap_or_else(PoisonError::into_inner).get(T::SCHEMA) {
        return Ok(known);
    }
    let made = make::<T>()?;
    Ok(CODECS.write().unwrap_or_else(PoisonError::into_inner).entry(T::SCHEMA).or_insert_with(|| Box::leak(Box::new(made))))
}

fn make<T: Wire>() -> Result<Codec> {
    let schema: &'static ParsedSchema = Box::leak(Box::new(ParsedSchema::parse(T::AVSC)?));
    let writer = GenericDatumWriter::builder(schema.library()).human_readable(false).build();
    let reader = GenericDatumReader::builder(schema.library()).human_readable(false).build();
    Ok(Codec {
        schema,
        writer: writer.map_err(|e| bug::<T>("preparing").because(e))?,
        reader: reader.map_err(|e| bug::<T>("preparing").because(e))?,
    })
}

fn bug<T: Wire>(doing: &str) -> Error {
    Error::new(codes::BUG, Fault::Bug, format!("{doing} {}", T::SCHEMA))
}
