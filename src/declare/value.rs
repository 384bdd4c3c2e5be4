//! Records of declared topologies are JSON values, whatever the topic holds.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::config::yaml::{Diagnostics, Fields};
use crate::error::{Error, Fault, Result, codes};
use crate::intents::{Approval, WorkRequest, headers, hex, unhex};
use crate::processor::Record;
use crate::serdes::internal::{self, Wire};
use crate::serdes::{Raw, Serde, SerdeRef, Serdes, Target};

/// A record of a declared topology; a null key is JSON null.
pub(super) type Item = Record<Value, Value>;

/// How a topic's keys or values are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Text,
    Json,
    Avro,
    Long,
    /// As lower-case hex text.
    Bytes,
}

const WORDS: &[(&str, Format)] =
    &[("string", Format::Text), ("json", Format::Json), ("avro", Format::Avro), ("long", Format::Long), ("bytes", Format::Bytes)];

impl Format {
    /// The format under `key`, or a default.
    pub(super) fn read(fields: &Fields<'_>, key: &str, default: Format, d: &mut Diagnostics) -> Format {
        fields.get(key).and_then(|n| n.one_of(WORDS, d)).unwrap_or(default)
    }
    /// For values: null is no value.
    pub(super) fn values(self) -> SerdeRef<Value> {
        Arc::new(Formatted { format: self, null: false })
    }
    /// For keys: null is JSON null.
    pub(super) fn keys(self) -> SerdeRef<Value> {
        Arc::new(Formatted { format: self, null: true })
    }
}

struct Formatted {
    format: Format,
    null: bool,
}

impl Serde<Value> for Formatted {
    fn decode(&self, raw: Raw<'_>) -> Result<Value> {
        if raw.bytes.is_none() && self.null {
            return Ok(Value::Null);
        }
        Ok(match self.format {
            Format::Text => Serdes::string().decode(raw)?.into(),
            Format::Json => Serdes::json::<Value>().decode(raw)?,
            Format::Avro => Serdes::avro::<Value>().decode(raw)?,
            Format::Long => Serdes::long().decode(raw)?.into(),
            Format::Bytes => hex(&Serdes::bytes().decode(raw)?).into(),
        })
    }
    fn encode(&self, value: &Value, to: Target<'_>) -> Result<Option<Bytes>> {
        let wrong = |wanted: &str| {
            let doing = format!("writing a record to {}: {wanted} is wanted", to.topic);
            Error::new(codes::UNDECODABLE, Fault::Data, doing)
        };
        match (self.format, value) {
            (_, Value::Null) if self.null => Ok(None),
            (Format::Text, Value::String(text)) => Serdes::string().encode(text, to),
            (Format::Text, _) => Err(wrong("a string")),
            (Format::Json, value) => Serdes::json().encode(value, to),
            (Format::Avro, value) => Serdes::avro().encode(value, to),
            (Format::Long, value) => Serdes::long().encode(&value.as_i64().ok_or_else(|| wrong("a whole number"))?, to),
            (Format::Bytes, value) => {
                let bytes = value.as_str().and_then(unhex).ok_or_else(|| wrong("bytes as hex text"))?;
                Serdes::bytes().encode(&Bytes::from(bytes), to)
            }
        }
    }
    fn takes_null(&self) -> bool {
        self.null
    }
}

/// Requests and approvals as they stand on a user's topic: in the declared format, or in our own form with its header.
pub(super) struct Ours(pub(super) SerdeRef<Value>);

impl Serde<Value> for Ours {
    fn decode(&self, raw: Raw<'_>) -> Result<Value> {
        match (raw.headers.text(headers::SCHEMA), raw.bytes) {
            (Some(<WorkRequest as Wire>::SCHEMA), Some(bytes)) => json(&internal::decode::<WorkRequest>(bytes)?),
            (Some(<Approval as Wire>::SCHEMA), Some(bytes)) => json(&internal::decode::<Approval>(bytes)?),
            _ => self.0.decode(raw),
        }
    }
    fn encode(&self, value: &Value, to: Target<'_>) -> Result<Option<Bytes>> {
        self.0.encode(value, to)
    }
}

fn json<T: serde::Serialize>(value: &T) -> Result<Value> {
    serde_json::to_value(value).map_err(|e| Error::new(codes::BUG, Fault::Bug, "reading a record as JSON").because(e))
}
