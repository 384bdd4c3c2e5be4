//! The real client; the only folder that imports rdkafka.
