//! How results and dead letters stand on the user's topics: key, partition, headers and framing, the same from both units.

use crate::error::Result;
use crate::ids::{OperationId, Partition, TopicName, partition_of};
use crate::record::{Headers, OutRecord};
use crate::serdes::internal::{Wire, encode, frame};
use crate::time::WallTime;

use super::headers as names;
use super::{PublicSink, ResultKind, ResultRecord};

/// How many characters of the identity hash stand in a `ce_id`.
const PREFIX: usize = 12;

/// A record for a public topic, ready to be emitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicRecord {
    /// Its key.
    pub key: Vec<u8>,
    /// Its partition: by root ID.
    pub partition: Partition,
    /// Its value.
    pub value: Vec<u8>,
    /// Its headers.
    pub headers: Headers,
}

impl PublicRecord {
    /// As a record to emit.
    pub fn on<'a>(&'a self, topic: &'a TopicName, at: WallTime) -> OutRecord<'a> {
        OutRecord {
            topic,
            partition: Some(self.partition),
            timestamp: Some(at),
            key: Some(&self.key),
            value: Some(&self.value),
            headers: Some(&self.headers),
        }
    }
}

impl ResultRecord {
    /// The CloudEvents id, by which a reader drops repeats: `<op>/<identity hash prefix>/<version>` for a state,
    /// `<op>/<version>/<message or command>` for an answer, `<op>/m/<message>` for a message, `<op>/orphan/<token>` for
    /// evidence of a record that is gone.
    pub fn ce_id(&self) -> String {
        let op = &self.operation_id;
        let version = self.version.unwrap_or_default();
        let answers = self.answers.as_deref().unwrap_or_default();
        match self.kind {
            ResultKind::State => {
                let hash = self.identity_hash.as_ref().map_or("", |h| h.as_str());
                format!("{op}/{}/{version}", hash.get(..PREFIX).unwrap_or(hash))
            }
            ResultKind::Answer => format!("{op}/{version}/{answers}"),
            ResultKind::Message => format!("{op}/m/{answers}"),
            ResultKind::OrphanHearsay => format!("{op}/orphan/{answers}"),
        }
    }
    /// The record's key: the operation, or for a message its own ID, so that compaction never lets it replace a state.
    pub fn topic_key(&self) -> String {
        match self.kind {
            ResultKind::Message | ResultKind::OrphanHearsay => self.ce_id(),
            ResultKind::State | ResultKind::Answer => self.operation_id.to_string(),
        }
    }
}

impl PublicSink {
    /// A result as it goes to this topic.
    pub fn result(&self, source: &str, result: &ResultRecord) -> Result<PublicRecord> {
        let headers = Headers::new()
            .with(names::OPERATION, result.operation_id.to_string())
            .with(names::CE_ID, result.ce_id())
            .with(names::CE_TYPE, format!("readback.result.{}", result.status.word()))
            .with(names::CE_SOURCE, source.to_owned())
            .with(names::CE_SPECVERSION, "1.0");
        let headers = match result.operation_id.replay_number() {
            Some(_) => headers.with(names::REPLAY_OF, result.operation_id.root().to_string()),
            None => headers,
        };
        self.record(result.topic_key(), &result.operation_id, result, headers)
    }

    /// Any record of ours as it goes to this topic: registry framing where the schema is registered, else our own header.
    pub fn record<T: Wire>(&self, key: String, operation: &OperationId, value: &T, mut headers: Headers) -> Result<PublicRecord> {
        let bytes = encode(value)?;
        let value = match self.schema_id {
            Some(id) => frame(id, &bytes),
            None => {
                headers.set(names::SCHEMA, T::SCHEMA);
                bytes
            }
        };
        let partition = partition_of(operation.root().as_str().as_bytes(), self.partitions);
        Ok(PublicRecord { key: key.into_bytes(), partition, value, headers })
    }
}
