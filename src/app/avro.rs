//! The registry's schemas as the topology's serdes ask for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::TopicName;
use crate::registry::Registry;
use crate::serdes::{AvroCodec, AvroSerde};

/// Decodes by the writer's schema; encodes with the schema that was registered for a topic at start.
pub struct RegistryCodec {
    reading: AvroSerde,
    writing: Mutex<HashMap<TopicName, AvroSerde>>,
}

impl RegistryCodec {
    /// A codec over this registry.
    pub fn new(registry: &Registry) -> Self {
        Self { reading: AvroSerde::new(Arc::new(registry.clone())), writing: Mutex::default() }
    }
    /// Values for `topic` are written with this serde.
    pub fn write_as(&self, topic: TopicName, serde: AvroSerde) {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner).insert(topic, serde);
    }
}

impl AvroCodec for RegistryCodec {
    fn decode(&self, _topic: &TopicName, framed: &[u8]) -> Result<Value> {
        self.reading.decode(framed)
    }
    fn encode(&self, topic: &TopicName, value: &Value) -> Result<Vec<u8>> {
        let serde = self.writing.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned();
        let serde = serde.ok_or_else(|| {
            Error::new(codes::SCHEMA_MISSING, Fault::Configuration, format!("writing Avro to {topic}: no schema was named for it"))
                .next("name the sink's schema in the topology")
        })?;
        serde.encode(value)
    }
}
