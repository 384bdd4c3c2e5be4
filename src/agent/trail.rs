//! The spans of operations in this unit: admission, plan, the wait for an approval, and the whole of it at its end. As the tally they
//! wait for the commit. Where nobody traces, or the operation is not sampled, nothing is made.

use crate::ids::OperationKey;
use crate::intents::Status;
use crate::outbox::{OperationRecord, Role, Stage};
use crate::time::WallTime;
use crate::trace::{Span, SpanKind, TraceContext, Tracer};

use super::step::Event;

/// What was seen in the open transaction.
pub(super) struct Trail {
    tracer: Tracer,
    /// Of the request that is being admitted: its own context, and its parent.
    admitted: Option<(TraceContext, Option<[u8; 8]>)>,
    spans: Vec<Span>,
}

impl Trail {
    pub fn new(tracer: Tracer) -> Self {
        Self { tracer, admitted: None, spans: Vec::new() }
    }

    /// An event comes. A request that begins an operation gets the operation's own context: all that comes of it carries that on.
    pub fn comes(&mut self, before: Option<&OperationRecord>, event: &mut Event) {
        self.admitted = None;
        let (None, Event::Intake(intake, _) | Event::Replay(intake, _), true) = (before, event, self.tracer.is_on()) else {
            return;
        };
        let request = &mut intake.request;
        let (tenant, operation) = (request.tenant.clone(), request.operation_id.clone());
        let key = OperationKey { tenant, operation, step: intake.step.clone() };
        self.admitted = self.tracer.admit(request.traceparent.as_deref(), &key);
        if let Some((own, _)) = self.admitted {
            request.traceparent = Some(own.to_string());
        }
    }

    /// Takes down what an event came to.
    pub fn note(&mut self, before: Option<&OperationRecord>, after: Option<&OperationRecord>, now: WallTime) {
        let Some(after) = after else { return };
        let Some(own) = self.tracer.wanted(after.request.traceparent.as_deref()) else { return };
        if let (None, Some((own, parent))) = (before, self.admitted) {
            self.spans.push(admission(after, own, parent, now));
        }
        let (was, is) = (before.map(|b| b.stage), after.stage);
        let step = &after.step;
        if was == Some(Stage::Planning) && is != Stage::Planning && after.derived(Role::Plan).is_some() {
            let began = after.admitted_at;
            let span = Span::of(own, "plan", SpanKind::Internal, format!("plan {step}"), began, now).about(&after.key());
            self.spans.push(outcome(span, after));
        }
        if let (Some(before), true) = (before, was == Some(Stage::Waiting) && is != Stage::Waiting) {
            let began = before.changed_at;
            let span = Span::of(own, "approval", SpanKind::Internal, format!("approval {step}"), began, now).about(&after.key());
            self.spans.push(outcome(span, after));
        }
        if is == Stage::Ended && was != Some(Stage::Ended) {
            let began = after.admitted_at;
            let span = Span::of(own, "operation", SpanKind::Internal, format!("operation {step}"), began, now).about(&after.key());
            self.spans.push(outcome(span, after));
        }
    }

    /// The transaction is committed.
    pub fn committed(&mut self, at: WallTime) {
        for mut span in self.spans.drain(..) {
            if span.kind == SpanKind::Consumer {
                span.ended = at.max(span.began);
            }
            self.tracer.end(span);
        }
    }

    /// The transaction is taken back.
    pub fn aborted(&mut self) {
        self.spans.clear();
    }
}

/// The record was taken: this span is the parent of all others of the operation.
fn admission(record: &OperationRecord, own: TraceContext, parent: Option<[u8; 8]>, now: WallTime) -> Span {
    // `topic/partition/offset`; topics hold no slash.
    let mut origin = record.origin.splitn(3, '/');
    let topic = origin.next().unwrap_or_default().to_owned();
    let span = Span::of(own, "", SpanKind::Consumer, format!("process {topic}"), now, now);
    let span = Span { context: own, parent, remote: parent.is_some(), ..span }
        .about(&record.key())
        .with("messaging.system", "kafka")
        .with("messaging.operation.type", "process")
        .with("messaging.operation.name", "admit")
        .with("messaging.destination.name", topic);
    let span = match origin.next() {
        Some(partition) => span.with("messaging.destination.partition.id", partition.to_owned()),
        None => span,
    };
    match origin.next().and_then(|o| o.parse::<i64>().ok()) {
        Some(offset) => span.with("messaging.kafka.offset", offset),
        None => span,
    }
}

fn outcome(span: Span, record: &OperationRecord) -> Span {
    let failed = match record.status {
        Status::Refused | Status::Expired | Status::PlanFailed | Status::Denied => {
            Some(record.code.clone().unwrap_or_else(|| record.status.word().to_owned()).into())
        }
        _ => None,
    };
    let span = span.with("readback.status", record.status.word());
    let span = match &record.code {
        Some(code) => span.with("readback.code", code.clone()),
        None => span,
    };
    Span { failed, ..span }
}
