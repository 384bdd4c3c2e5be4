//! Readback: a Kafka Streams-style stream processor for work that ends outside Kafka.
//!
//! An existing topic, an HTTP effect, a result topic; `src/docs/first_effect.md` goes through it line by line:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use readback::contract;
//! use readback::dsl::{Consumed, Effect, StreamsBuilder};
//! use readback::params;
//! use readback::serdes::Serdes;
//!
//! # #[derive(Clone, serde::Serialize, serde::Deserialize)]
//! # struct Shipment { shipment_id: String, merchant: String, status: String, customer_email: String, dispatched_ms: i64 }
//! # impl Shipment {
//! #     fn due(&self) -> readback::time::WallTime { readback::time::WallTime(self.dispatched_ms + 7_200_000) }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let notices = Arc::new(contract::load("topology/webhook/contracts/notices.yaml".as_ref())?);
//! let builder = StreamsBuilder::new("shipment-notices").dead_letters("logistics.shipments.dead");
//! builder
//!     .stream("logistics.shipments.v2", Consumed::with(Serdes::string(), Serdes::avro::<Shipment>()))
//!     .filter(|_, s| s.status == "DISPATCHED")
//!     .effect(
//!         &notices,
//!         "create",
//!         Effect::named("notify")
//!             .operation_id(|_, s: &Shipment| format!("shipment-{}", s.shipment_id))
//!             .request(|draft, s| {
//!                 draft.tenant(&s.merchant).resource(format!("shipment/{}", s.shipment_id)).deadline(s.due())
//!             })
//!             .parameters(|s| params! { shipment: s.shipment_id, email: s.customer_email })
//!             .order_by(|_, s| s.shipment_id.clone()),
//!     )
//!     .to("logistics.notices.v1");
//! let application = builder.build()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`app::Process`] runs an application, [`driver::TopologyTestDriver`] tries one without a broker.
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
pub mod trace;

pub mod contract;
pub mod policy;
pub mod probe;

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

pub mod console;

pub mod demo;

pub mod bench;

pub mod cli;

#[doc = include_str!("docs/coming_from_kafka_streams.md")]
pub mod coming_from_kafka_streams {}

#[cfg(feature = "test-util")]
pub mod testing;
