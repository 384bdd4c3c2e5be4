//! Values of records as types: objects over bytes, so that a topology can be built before any cluster or registry is there.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::TopicName;
use crate::record::Headers;

/// Reads and writes registry-framed Avro as JSON values. The program's looks schemas up in the registry; given at task build.
pub trait AvroCodec: Send + Sync {
    /// A framed value as JSON; logical timestamps become RFC 3339 text.
    fn decode(&self, topic: &TopicName, framed: &[u8]) -> Result<Value>;
    /// A JSON value under the topic's newest schema, framed.
    fn encode(&self, topic: &TopicName, value: &Value) -> Result<Vec<u8>>;
}

/// What a value is decoded from.
#[derive(Clone, Copy)]
pub struct Raw<'a> {
    /// Where it was read.
    pub topic: &'a TopicName,
    /// Its bytes, or null. Null and empty are different things.
    pub bytes: Option<&'a Bytes>,
    /// The record's headers.
    pub headers: &'a Headers,
    /// For registry-framed Avro.
    pub avro: Option<&'a dyn AvroCodec>,
}

/// Where a value is encoded for.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The topic it goes to; a store's changelog for state.
    pub topic: &'a TopicName,
    /// For registry-framed Avro.
    pub avro: Option<&'a dyn AvroCodec>,
}

/// How people write and read a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// As it is.
    Text,
    /// A number, 8 bytes big-endian.
    Long,
    /// JSON text.
    Json,
    /// Avro under the registry's framing.
    Avro,
    /// Bytes that only the program understands.
    #[default]
    Bytes,
}

/// Turns bytes into a `T` and back. Errors name no payload.
pub trait Serde<T>: Send + Sync {
    /// A value from its bytes.
    fn decode(&self, raw: Raw<'_>) -> Result<T>;
    /// The bytes of a value; `None` is null.
    fn encode(&self, value: &T, to: Target<'_>) -> Result<Option<Bytes>>;
    /// Whether null is a value here. Sources skip null values that nobody asked for (tombstones) instead of refusing them.
    fn takes_null(&self) -> bool {
        false
    }
    /// How people write and read such values.
    fn shape(&self) -> Shape {
        Shape::Bytes
    }
}

/// A shared serde.
pub type SerdeRef<T> = Arc<dyn Serde<T>>;

/// The serdes there are.
pub struct Serdes;

impl Serdes {
    /// UTF-8 text.
    pub fn string() -> SerdeRef<String> {
        plain(
            Shape::Text,
            |b| String::from_utf8(b.to_vec()).map_err(|_| "not UTF-8".into()),
            |s: &String| Bytes::copy_from_slice(s.as_bytes()),
        )
    }
    /// The bytes themselves.
    pub fn bytes() -> SerdeRef<Bytes> {
        plain(Shape::Bytes, |b| Ok(b.clone()), Bytes::clone)
    }
    /// A signed 64-bit number, big-endian, as Java's `LongSerializer` has it.
    pub fn long() -> SerdeRef<i64> {
        let read = |b: &Bytes| match <[u8; 8]>::try_from(&b[..]) {
            Ok(bytes) => Ok(i64::from_be_bytes(bytes)),
            Err(_) => Err(format!("{} bytes where a long has 8", b.len())),
        };
        plain(Shape::Long, read, |n: &i64| Bytes::copy_from_slice(&n.to_be_bytes()))
    }
    /// JSON text.
    pub fn json<T: Serialize + DeserializeOwned + 'static>() -> SerdeRef<T> {
        Arc::new(Json(PhantomData))
    }
    /// Avro with the registry's framing.
    pub fn avro<T: Serialize + DeserializeOwned + 'static>() -> SerdeRef<T> {
        Arc::new(Avro(PhantomData))
    }
    /// Null as `None`: for keys that may be missing and for tombstones.
    pub fn optional<T: 'static>(inner: SerdeRef<T>) -> SerdeRef<Option<T>> {
        Arc::new(Optional(inner))
    }
}

struct Plain<R, W> {
    shape: Shape,
    read: R,
    write: W,
}

fn plain<T, R, W>(shape: Shape, read: R, write: W) -> SerdeRef<T>
where
    R: Fn(&Bytes) -> std::result::Result<T, String> + Send + Sync + 'static,
    W: Fn(&T) -> Bytes + Send + Sync + 'static,
{
    Arc::new(Plain { shape, read, write })
}

impl<T, R, W> Serde<T> for Plain<R, W>
where
    R: Fn(&Bytes) -> std::result::Result<T, String> + Send + Sync,
    W: Fn(&T) -> Bytes + Send + Sync,
{
    fn decode(&self, raw: Raw<'_>) -> Result<T> {
        (self.read)(present(raw)?).map_err(|why| undecodable(raw, &why))
    }
    fn encode(&self, value: &T, _: Target<'_>) -> Result<Option<Bytes>> {
        Ok(Some((self.write)(value)))
    }
    fn shape(&self) -> Shape {
        self.shape
    }
}

struct Json<T>(PhantomData<fn() -> T>);

impl<T: Serialize + DeserializeOwned> Serde<T> for Json<T> {
    fn decode(&self, raw: Raw<'_>) -> Result<T> {
        serde_json::from_slice(present(raw)?).map_err(|e| undecodable(raw, &json_reason(&e)))
    }
    fn encode(&self, value: &T, to: Target<'_>) -> Result<Option<Bytes>> {
        let text = serde_json::to_vec(value).map_err(|e| unencodable(to, &json_reason(&e)))?;
        Ok(Some(Bytes::from(text)))
    }
    fn shape(&self) -> Shape {
        Shape::Json
    }
}

struct Avro<T>(PhantomData<fn() -> T>);

impl<T: Serialize + DeserializeOwned> Serde<T> for Avro<T> {
    fn decode(&self, raw: Raw<'_>) -> Result<T> {
        let codec = raw.avro.ok_or_else(|| no_registry(raw.topic))?;
        let value = codec.decode(raw.topic, present(raw)?)?;
        serde_json::from_value(value).map_err(|e| undecodable(raw, &json_reason(&e)))
    }
    fn encode(&self, value: &T, to: Target<'_>) -> Result<Option<Bytes>> {
        let codec = to.avro.ok_or_else(|| no_registry(to.topic))?;
        let value = serde_json::to_value(value).map_err(|e| unencodable(to, &json_reason(&e)))?;
        Ok(Some(Bytes::from(codec.encode(to.topic, &value)?)))
    }
    fn shape(&self) -> Shape {
        Shape::Avro
    }
}

struct Optional<T>(SerdeRef<T>);

impl<T> Serde<Option<T>> for Optional<T> {
    fn decode(&self, raw: Raw<'_>) -> Result<Option<T>> {
        raw.bytes.map(|_| self.0.decode(raw)).transpose()
    }
    fn encode(&self, value: &Option<T>, to: Target<'_>) -> Result<Option<Bytes>> {
        value.as_ref().map_or(Ok(None), |v| self.0.encode(v, to))
    }
    fn shape(&self) -> Shape {
        self.0.shape()
    }
    fn takes_null(&self) -> bool {
        true
    }
}

fn present<'a>(raw: Raw<'a>) -> Result<&'a Bytes> {
    raw.bytes.ok_or_else(|| undecodable(raw, "null where a value must be"))
}

/// Where and what kind of error, without the offending text.
fn json_reason(e: &serde_json::Error) -> String {
    let kind = match e.classify() {
        serde_json::error::Category::Syntax => "not JSON",
        serde_json::error::Category::Eof => "JSON that ends too early",
        serde_json::error::Category::Data => "JSON of another shape",
        serde_json::error::Category::Io => "unreadable",
    };
    if e.line() == 0 { kind.to_owned() } else { format!("{kind} (line {}, column {})", e.line(), e.column()) }
}

pub(super) fn undecodable(raw: Raw<'_>, why: &str) -> Error {
    Error::new(codes::UNDECODABLE, Fault::Data, format!("decoding a record of {}: {why}", raw.topic))
}

fn unencodable(to: Target<'_>, why: &str) -> Error {
    Error::new(codes::UNDECODABLE, Fault::Data, format!("encoding a record for {}: {why}", to.topic))
}

fn no_registry(topic: &TopicName) -> Error {
    Error::new(codes::REGISTRY_UNREACHABLE, Fault::Configuration, format!("reading Avro of {topic}: no registry is set"))
        .next("set registry.url, or read the topic as json, string or bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, null and empty would be taken for each other, or payload would stand in errors.
    #[test]
    fn null_empty_and_malformed_stay_different() {
        let (topic, headers) = (TopicName::new("t"), Headers::new());
        let raw = |bytes| Raw { topic: &topic, bytes, headers: &headers, avro: None };
        let empty = Bytes::new();
        assert_eq!(Serdes::string().decode(raw(Some(&empty))).expect("empty text"), "");
        assert_eq!(Serdes::optional(Serdes::string()).decode(raw(None)).expect("null"), None);
        assert!(Serdes::string().decode(raw(None)).is_err());
        let bad = Bytes::from_static(b"{\"a\": MARK}");
        let e = Serdes::json::<Value>().decode(raw(Some(&bad))).expect_err("not JSON");
        assert!(!e.to_string().contains("MARK"), "{e}");
        assert!(Serdes::json::<Value>().decode(raw(Some(&empty))).is_err(), "empty is no JSON");
        assert!(Serdes::avro::<Value>().decode(raw(Some(&empty))).is_err(), "no registry");
    }
}
