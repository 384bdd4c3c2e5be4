//! From the pure core's outputs to records of the open transaction.

use crate::error::codes;
use crate::ids::{Partition, TopicName, partition_of};
use crate::intents::dead::{Buried, Death};
use crate::intents::headers as names;
use crate::intents::{Claim, Control, Intent, ResultRecord, Return, WorkRequest};
use crate::outbox::{DeadLetter, cut};
use crate::record::{Headers, InRecord, OutRecord};
use crate::serdes::internal::{Wire, encode};
use crate::task::{TaskError, TxCx};

use super::config::Sinks;

impl Sinks {
    /// Writes an intent to its outbox partition.
    pub fn intent(&self, intent: &Intent, partition: Partition, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let extra = Headers::new().with(names::ORDERING_KEY, intent.ordering_key.to_string());
        let extra = match &intent.traceparent {
            Some(trace) => extra.with(names::TRACEPARENT, trace.clone()),
            None => extra,
        };
        internal(&self.outbox, partition, intent.operation_id.as_str(), intent, extra, cx)
    }

    /// Writes a control record to its partition.
    pub fn control(&self, control: &Control, partition: Partition, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        internal(&self.control, partition, control.operation_id.as_str(), control, Headers::new(), cx)
    }

    /// Writes what an operation tells the keeper of its meaning, to the partition of that meaning.
    pub fn claim(&self, claim: &Claim, partitions: u32, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let keeper = partition_of(claim.meaning.as_bytes(), partitions);
        internal(&self.operations, keeper, claim.operation_id.as_str(), claim, Headers::new(), cx)
    }

    /// Writes a return to the partition of the operation's record.
    pub fn back(&self, back: &Return, partition: Partition, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        internal(&self.plans, partition, back.operation_id.as_str(), back, Headers::new(), cx)
    }

    /// Writes an order that concerns every owner to each control partition, as it came.
    pub fn everywhere(&self, record: &InRecord, partitions: u32, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        (0..partitions).try_for_each(|p| {
            cx.emit(OutRecord {
                topic: &self.control,
                partition: Some(Partition(p as i32)),
                timestamp: Some(cx.now().wall),
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers: Some(&record.headers),
            })
        })
    }

    /// Writes a result, where its step has a results topic. One that names no step goes to each results topic.
    pub fn result(&self, result: &ResultRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let step = result.step.as_ref().map_or("", |s| s.as_str());
        let source = format!("/{}/{step}", self.application);
        let mut written: Vec<&TopicName> = Vec::new();
        for (step, sink) in &self.results {
            if result.step.as_ref().is_some_and(|s| s != step) || written.contains(&&sink.topic) {
                continue;
            }
            let public = sink.result(&source, result)?;
            cx.emit(public.on(&sink.topic, result.at))?;
            written.push(&sink.topic);
        }
        Ok(())
    }

    /// Writes a request that came to nothing to the dead letters.
    pub fn dead_letter(&self, letter: &DeadLetter, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Some(sink) = &self.dead_letters else { return Ok(()) };
        let request: &WorkRequest = &letter.request;
        let extra = Headers::new().with(names::OPERATION, request.operation_id.to_string());
        let reason = cut(&letter.reason);
        let death = Death { code: letter.code, reason: &reason, origin: &letter.origin, at: cx.now().wall, time: None };
        let mut extra = death.on(extra).with(names::DEAD_STEP, letter.step.to_string());
        if let Some(key) = &letter.ordering_key {
            extra.push(names::ORDERING_KEY, key.to_string());
        }
        let public = sink.record(request.operation_id.to_string(), &request.operation_id, request, extra)?;
        cx.bury(letter.code, public.on(&sink.topic, death.at))
    }

    /// Writes a record that can't be read to the dead letters, its bytes as they came. A reason from an earlier round is
    /// replaced, so that a record that is replayed and fails again does not grow (C100).
    pub fn undecodable(&self, record: &InRecord, words: &str, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        tracing::warn!(code = %codes::UNDECODABLE, origin = %record.tp, offset = %record.offset, "a record can't be read and goes to the dead letters");
        let Some(sink) = &self.dead_letters else { return Ok(()) };
        let letter = Buried::of(record, codes::UNDECODABLE, &cut(words), cx.now().wall);
        let partition = partition_of(record.key.as_deref().unwrap_or_default(), sink.partitions);
        cx.bury(codes::UNDECODABLE, letter.on(&sink.topic, Some(partition)))
    }
}

fn internal<T: Wire>(
    topic: &TopicName,
    partition: Partition,
    operation: &str,
    record: &T,
    extra: Headers,
    cx: &mut TxCx<'_>,
) -> Result<(), TaskError> {
    let value = encode(record)?;
    let mut headers = extra;
    headers.push(names::SCHEMA, T::SCHEMA);
    headers.push(names::OPERATION, operation.to_owned());
    cx.emit(OutRecord {
        topic,
        partition: Some(partition),
        timestamp: Some(cx.now().wall),
        key: Some(operation.as_bytes()),
        value: Some(&value),
        headers: Some(&headers),
    })
}
