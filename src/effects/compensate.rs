//! A cancel that comes after the effect orders its compensation: an operation of its own, `<id>.undo`, written by the owner in the
//! transaction that closes the original. It takes over the lane slot, so that it starts when no copy of the original can arrive.

use crate::contract::Undo;
use crate::intents::{Cost, Flag, Intent, IntentKind, ResultKind, Status};
use crate::task::{TaskError, TxCx};
use crate::time::WallTime;

use super::config::CallSpec;
use super::decide::End;
use super::fold::{Event, fold};
use super::ledger;
use super::results;
use super::stage::parameters;
use super::status::{LedgerBody, LedgerRecord, Phase};
use super::task::EffectTask;

impl EffectTask {
    /// Writes the compensation of `r`, which ends as superseded by it. Where it can't be filled in the effect stays, and it is said.
    pub(super) fn compensate(
        &mut self,
        r: &mut LedgerRecord,
        e: End,
        spec: &CallSpec,
        cx: &mut TxCx<'_>,
    ) -> Result<End, TaskError> {
        let given = parameters(&ledger::op(&r.key()), cx)?;
        let undo = match spec.judge.undo(&given, &r.wire_key, r.reference.as_deref()) {
            Ok(undo) => undo,
            Err(why) => {
                tracing::warn!(operation = %r.key(), why, "its compensation can't be filled in");
                let detail = Some(format!("cancelled too late; its compensation can't be filled in: {why}"));
                let flags = e.flags.into_iter().chain([Flag::CancelTooLate]).collect();
                return Ok(End { status: Status::Confirmed, detail, flags, ..e });
            }
        };
        // Whoever opened the lane before did not know that something would be undone.
        r.lane_released = false;
        self.order_undo(r, undo, cx)?;
        Ok(e)
    }

    fn order_undo(&mut self, r: &LedgerRecord, undo: Undo, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let now = cx.now().wall;
        let intent = intent(r, undo, now);
        let op = ledger::op(&intent.key());
        let known = ledger::load(cx, &op)?;
        if known.as_ref().is_some_and(|k| k.phase != Phase::Held) {
            return Ok(());
        }
        let mut fresh = self.queued(&intent, r.sequence);
        fresh.version = 1;
        let rules = self.rules(&fresh);
        let mut answers = Vec::new();
        if let Some(held) = known {
            ledger::unlist(cx, &op, rules.forget_at(&held))?;
            for command in held.held {
                let reply =
                    fold(&mut fresh, Event::Command { command: Box::new(command.clone()), burned: Vec::new() }, &rules, now);
                answers.extend(reply.map(|reply| (command, reply)));
            }
        }
        ledger::save_body(cx, &op, &LedgerBody { request: intent.request, parameters: intent.parameters })?;
        ledger::opened(cx, &op, &fresh)?;
        ledger::save(cx, &op, &fresh, None)?;
        let said = results::of(&fresh, ResultKind::State, now);
        results::emit(cx, &self.config, &said, fresh.traceparent.as_deref())?;
        for (command, reply) in answers {
            self.answer(&fresh, &command, &reply, cx)?;
        }
        self.index.put(&op, ledger::lane(&fresh), fresh.sequence, false, Some(now));
        self.index.stands(&op, fresh.shown(), None);
        self.ready.push_back(op);
        Ok(())
    }
}

/// The intent of a compensation: of the original in everything but what is sent. The original's approval covered it, whose plan hash
/// holds how it is undone; it is not asked again, and its deadline is its own.
fn intent(r: &LedgerRecord, undo: Undo, now: WallTime) -> Intent {
    Intent {
        tenant: r.tenant.clone(),
        operation_id: r.operation_id.undo(),
        step: r.step.clone(),
        identity_hash: r.identity_hash.clone(),
        version: 0,
        kind: IntentKind::Effect,
        contract: r.contract.clone(),
        contract_version: r.contract_version,
        call: undo.call,
        ordering_key: r.ordering_key.clone(),
        wire_key: undo.wire_key,
        request: undo.request,
        parameters: serde_json::Value::Object(undo.parameters.0).to_string(),
        deadline: now.plus(undo.deadline),
        created_at: now,
        requester: r.requester.clone(),
        action: r.action.clone(),
        resource: r.resource.clone(),
        resource_version: None,
        required_permissions: r.required_permissions.clone(),
        plan_hash: r.plan_hash.clone(),
        approval: None,
        other_approver: r.other_approver,
        cost: Cost::default(),
        look_at: undo.look_at,
        traceparent: r.traceparent.clone(),
    }
}
