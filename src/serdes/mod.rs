//! Avro, JSON, string and bytes over a `SchemaSource`; no I/O.

pub mod internal;
mod serde;

pub use self::serde::{AvroCodec, Raw, Serde, SerdeRef, Serdes, Target};
