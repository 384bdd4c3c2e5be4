//! The way from a user's topic to the task that keeps an operation: requests and approvals, written to the operations repartition
//! topic at the partition of the root operation ID, always named explicitly.

use serde_json::Value;

use crate::error::{Error, Fault, codes};
use crate::ids::{OperationId, TopicName, partition_of};
use crate::intents::{Approval, Intake, WorkRequest, headers, topics};
use crate::processor::{ProcessorCx, Record};
use crate::record::{Headers, OutRecord};
use crate::serdes::SerdeRef;
use crate::serdes::internal::{self, Wire};
use crate::task::TaskError;
use crate::topology::{NodeId, Role};

use super::with::Consumed;
use super::{KStream, StreamsBuilder};

impl<K: Clone + 'static, V: Clone + 'static> KStream<K, V> {
    /// Each record becomes a request for the pipeline of a step. What `f` refuses is a bad record.
    pub(crate) fn intake(
        &self,
        f: impl Fn(&Record<K, V>, &ProcessorCx<'_, '_>) -> Result<Intake, Error> + Send + Sync + 'static,
    ) -> NodeId {
        let requests = self.each("KSTREAM-INTAKE", true, move |r, cx, next| {
            let mut intake = f(&r, cx)?;
            if intake.request.traceparent.is_none() {
                // An envelope may be older than the trace; the record's own header is what its producer's library wrote.
                intake.request.traceparent = r.headers.text(headers::TRACEPARENT).map(str::to_owned);
            }
            next.process(r.with_value(intake), cx)
        });
        requests.unnamed().operations(|i: &Intake| (i.request.operation_id.clone(), i.ordering_key.as_ref().map(|k| k.to_string())))
    }

    /// Each record becomes an approval.
    pub(crate) fn approve(&self, f: impl Fn(&Record<K, V>) -> Result<Approval, Error> + Send + Sync + 'static) -> NodeId {
        let approvals = self.each("KSTREAM-APPROVALS", true, move |r, cx, next| {
            let approval = f(&r)?;
            next.process(r.with_value(approval), cx)
        });
        approvals.unnamed().operations(|a: &Approval| (a.operation_id.clone(), None))
    }
}

impl<K: Clone + 'static, V: Clone + Wire + 'static> KStream<K, V> {
    /// The sink to the operations topic.
    fn operations(&self, names: fn(&V) -> (OperationId, Option<String>)) -> NodeId {
        let topic = topics::repartition(self.build.borrow().graph.application(), &"operations".into());
        let written = topic.clone();
        self.end("KSTREAM-SINK", Role::Sink(topic), move |parts| {
            let (topic, partitions) = (written.clone(), parts.layout.operations);
            move |r: Record<K, V>, cx: &mut ProcessorCx<'_, '_>| {
                let (operation, order) = names(&r.value);
                write(&topic, partitions, &operation, order, &r, cx)
            }
        })
    }
}

impl StreamsBuilder {
    /// Takes approvals (`schemas/approval.avsc`, or the same as JSON) from a topic of the user's.
    pub fn approvals(&self, topic: impl Into<TopicName>, value: SerdeRef<Value>) {
        let key = crate::serdes::Serdes::optional(crate::serdes::Serdes::bytes());
        self.stream(topic, Consumed::with(key, value)).approve(|r| approval_of(r.value.clone()));
    }
}

fn write<K, V: Wire>(
    topic: &TopicName,
    partitions: u32,
    operation: &OperationId,
    order: Option<String>,
    r: &Record<K, V>,
    cx: &mut ProcessorCx<'_, '_>,
) -> Result<(), TaskError> {
    let value = internal::encode(&r.value)?;
    let mut names = Headers::new().with(headers::SCHEMA, V::SCHEMA).with(headers::OPERATION, operation.to_string());
    if let Some(order) = order {
        names.push(headers::ORDERING_KEY, order);
    }
    if let Some(trace) = r.headers.get(headers::TRACEPARENT) {
        names.push(headers::TRACEPARENT, trace.clone());
    }
    cx.emit(OutRecord {
        topic,
        partition: Some(partition_of(operation.root().as_str().as_bytes(), partitions)),
        timestamp: r.timestamp,
        key: Some(operation.as_str().as_bytes()),
        value: Some(&value),
        headers: Some(&names),
    })
}

/// A request from a decoded record of `schemas/work-request.avsc`; times may be milliseconds or RFC 3339 text.
pub fn request_of(value: Value) -> Result<WorkRequest, Error> {
    from_record(value, "deadline", "work-request")
}

/// An approval from a decoded record of `schemas/approval.avsc`; times may be milliseconds or RFC 3339 text.
pub fn approval_of(value: Value) -> Result<Approval, Error> {
    from_record(value, "expires_at", "approval")
}

fn from_record<T: serde::de::DeserializeOwned>(mut value: Value, time: &str, what: &str) -> Result<T, Error> {
    if let Some(at) = value.get_mut(time)
        && let Some(ms) = at.as_str().and_then(millis)
    {
        *at = ms.into();
    }
    // The cause would print the offending text, which is payload.
    serde_json::from_value(value).map_err(|_| {
        Error::new(
            codes::REQUEST_INVALID,
            Fault::Data,
            format!("a record that is no {what}: a field is missing or of another type"),
        )
    })
}

/// Milliseconds of an RFC 3339 time.
pub(crate) fn millis(text: &str) -> Option<i64> {
    chrono::DateTime::parse_from_rfc3339(text).ok().map(|t| t.timestamp_millis())
}
