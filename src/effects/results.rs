//! What the owner tells others: results, dead letters, returns. One counter per operation; state records only when it moves.

use crate::error::Code;
use crate::ids::{OperationId, OperationKey, StepName, TopicName, partition_of};
use crate::intents::dead::Buried;
use crate::intents::{AckLevel, Control, Cost, ResultKind, ResultRecord, Return, ReturnKind, Status, headers};
use crate::record::{Headers, InRecord, OutRecord};
use crate::serdes::internal::{self, Wire};
use crate::task::{TaskError, TxCx};
use crate::time::WallTime;

use super::config::EffectsConfig;
use super::status::LedgerRecord;

fn code_text(code: Option<i32>) -> Option<String> {
    code.and_then(|c| u16::try_from(c).ok()).map(|c| Code(c).to_string())
}

/// The operation as results show it now.
pub fn of(r: &LedgerRecord, kind: ResultKind, at: WallTime) -> ResultRecord {
    ResultRecord {
        kind,
        tenant: r.tenant.clone(),
        operation_id: r.operation_id.clone(),
        step: Some(r.step.clone()),
        resource: (!r.resource.is_empty()).then(|| r.resource.clone()),
        status: r.shown(),
        ack_level: r.ack,
        version: Some(r.version),
        identity_hash: (!r.identity_hash.is_empty()).then(|| r.identity_hash.clone()),
        code: code_text(r.code),
        detail: r.detail.clone(),
        flags: r.flags.clone(),
        attempts: i32::try_from(r.attempts.len()).unwrap_or(i32::MAX),
        evidence: r.evidence.clone(),
        reference: r.reference.clone(),
        plan_hash: r.plan_hash.clone(),
        calls: None,
        answers: None,
        at,
        undo: None,
    }
}

/// What of a record readers of results can see; a change of it is a change of state.
pub type Visible = (Status, AckLevel, usize, usize, Option<i32>);

/// What they can see of it now.
pub fn visible(r: &LedgerRecord) -> Visible {
    (r.shown(), r.ack, r.flags.len(), r.attempts.len(), r.code)
}

/// Writes a result to its step's sink, where the step has one.
pub fn emit(cx: &mut TxCx<'_>, config: &EffectsConfig, record: &ResultRecord, traceparent: Option<&str>) -> Result<(), TaskError> {
    let Some((step, sink)) = record.step.as_ref().and_then(|s| config.results.get_key_value(s)) else { return Ok(()) };
    let mut public = sink.result(&format!("/{}/{step}", config.application), record)?;
    if let Some(trace) = traceparent {
        public.headers.push(headers::TRACEPARENT, trace.to_owned());
    }
    cx.emit(public.on(&sink.topic, record.at))
}

/// Writes an input record to the dead letters of its step as it came, with the reason.
pub fn bury(
    cx: &mut TxCx<'_>,
    config: &EffectsConfig,
    step: &StepName,
    op: &OperationId,
    record: &InRecord,
    code: Code,
    reason: &str,
) -> Result<(), TaskError> {
    tracing::warn!(%code, operation = %op, origin = %record.tp, offset = %record.offset, reason, "dead letter");
    let Some(sink) = config.dead_letters.get(step) else { return Ok(()) };
    let letter = Buried::of(record, code, reason, cx.now().wall).with(headers::DEAD_STEP, step.to_string());
    let partition = partition_of(op.root().as_str().as_bytes(), sink.partitions);
    cx.bury(code, letter.on(&sink.topic, Some(partition)))
}

/// What the operation's record in the stream unit is told.
pub fn tell(
    cx: &mut TxCx<'_>,
    config: &EffectsConfig,
    r: &LedgerRecord,
    kind: ReturnKind,
    said: Option<(String, Cost)>,
    at: WallTime,
) -> Result<(), TaskError> {
    let (body, cost) = said.map_or((None, r.cost), |(body, cost)| (Some(body), cost));
    let mut cost = cost;
    cost.tool_calls = cost.tool_calls.max(i64::try_from(r.attempts.len()).unwrap_or(i64::MAX));
    let said = Return {
        kind,
        tenant: r.tenant.clone(),
        operation_id: r.operation_id.clone(),
        step: r.step.clone(),
        identity_hash: r.identity_hash.clone(),
        end: r.end,
        version: r.version,
        body,
        cost,
        at,
    };
    let partition = partition_of(r.operation_id.root().as_str().as_bytes(), config.partitions);
    internal_record(cx, &config.plans(), partition, &r.operation_id, &r.ordering_key, &said)
}

/// A call that a plan wants undone can't be: the plan's record is told that the compensation came to nothing, and why. The ledger has none.
pub fn not_undone(cx: &mut TxCx<'_>, config: &EffectsConfig, said: &Control, why: String) -> Result<(), TaskError> {
    let key = OperationKey { operation: said.operation_id.undo(), ..said.key() };
    let mut none = LedgerRecord::held(key, said.deadline);
    none.end = Some(Status::Invalid);
    none.identity_hash = said.identity_hash.clone().unwrap_or_else(|| "".into());
    let at = cx.now().wall;
    tell(cx, config, &none, ReturnKind::Closed, Some((why, Cost::default())), at)
}

/// Writes a record of an internal topic with its headers.
pub fn internal_record<T: Wire>(
    cx: &mut TxCx<'_>,
    topic: &TopicName,
    partition: crate::ids::Partition,
    op: &OperationId,
    ordering_key: &crate::ids::OrderingKey,
    record: &T,
) -> Result<(), TaskError> {
    let h = Headers::new()
        .with(headers::SCHEMA, T::SCHEMA)
        .with(headers::OPERATION, op.to_string())
        .with(headers::ORDERING_KEY, ordering_key.to_string());
    let bytes = internal::encode(record)?;
    cx.emit(OutRecord {
        topic,
        partition: Some(partition),
        timestamp: None,
        key: Some(op.as_str().as_bytes()),
        value: Some(&bytes),
        headers: Some(&h),
    })
}
