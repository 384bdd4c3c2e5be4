//! Avro, JSON, string, long and bytes over a [`SchemaSource`]; no I/O.
//!
//! A decoded record is a [`serde_json::Value`]; [`avro`] says how Avro's types stand in it. Every decoder here takes hostile
//! bytes within fixed memory and stack: [`Limits`].

pub mod avro;
mod binary;
mod decode;
mod encode;
mod failed;
pub mod internal;
mod logical;
mod read;
mod schema;
mod serde;
mod windowed;
mod write;

#[cfg(test)]
mod tests;

pub use self::serde::{AvroCodec, Raw, Serde, SerdeRef, Serdes, Shape, Target};
pub use avro::SchemaSource;
pub use binary::Limits;
pub use schema::ParsedSchema;
pub use windowed::{Window, Windowed};

use crate::error::{Error, Fault, codes};

/// A record that can't be decoded: a matter of that record only.
fn undecodable(why: impl std::fmt::Display) -> Error {
    Error::new(codes::UNDECODABLE, Fault::Data, "decoding a record").because(why.to_string())
}

/// A value that does not fit the schema it is to be written with.
fn unencodable(why: impl std::fmt::Display) -> Error {
    Error::new(codes::UNDECODABLE, Fault::Data, "encoding a record").because(why.to_string())
}
