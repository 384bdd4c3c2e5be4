//! Readback: a Kafka Streams-style stream processor for work that ends outside Kafka.
//!
//! Modules in reading order; a module may use those above it, never those below (`src/docs/architecture.md`, checked by
//! `tests/architecture.rs`).

pub mod error;
pub mod events;
pub mod ids;
pub mod offset;
pub mod record;
pub mod time;

pub mod config;
pub mod serdes;

pub mod intents;

pub mod http;

pub mod contract;
pub mod policy;

pub mod kafka;
pub mod state;
pub mod task;

pub mod processor;
pub mod topology;

pub mod outbox;

pub mod agent;
pub mod dsl;

pub mod declare;

pub mod registry;
pub mod runtime;

pub mod effects;

pub mod app;

pub mod driver;

pub mod admin;

pub mod demo;

pub mod cli;

#[cfg(feature = "test-util")]
pub mod testing;
