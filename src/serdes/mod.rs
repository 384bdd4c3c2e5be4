//! Avro, JSON, string and bytes over a `SchemaSource`; no I/O.

pub mod internal;
