//! What undoes an effect: an operation of its own, `<id>.undo`, written by the owner of the original's ledger record. A cancel that
//! comes after the effect orders it in the transaction that closes the original, whose lane slot it takes over; a plan that can't be
//! whole orders it of a call that has ended as done. It starts when no copy of the original can arrive.

use crate::contract::Undo;
use crate::error::codes;
use crate::ids::OperationKey;
use crate::intents::{Control, Cost, Flag, Intent, IntentKind, ResultKind, Status};
use crate::task::{TaskError, TxCx};
use crate::time::WallTime;

use super::config::CallSpec;
use super::decide::{Action, End, apply};
use super::fold::{Event, fold};
use super::ledger;
use super::results;
use super::rules::{Rule, Rules};
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
        self.order_undo(r, undo, Begins::AfterItsOriginal, cx)?;
        Ok(e)
    }

    /// A plan that can't be whole has a call of it undone. That call's end stays as it is. Where it can't be undone, the plan is told why.
    pub(super) fn undo(&mut self, said: &Control, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let undo = OperationKey { operation: said.operation_id.undo(), ..said.key() };
        if ledger::load(cx, &ledger::op(&undo))?.is_some_and(|r| r.phase != Phase::Held) {
            return Ok(());
        }
        let known = ledger::load(cx, &ledger::op(&said.key()))?;
        let undo = match &known {
            Some(r) => self.undo_of(r, said, cx)?,
            None => Err("its ledger record is gone".to_owned()),
        };
        match (known, undo) {
            (Some(r), Ok(undo)) => {
                let begins = begins(&r, &self.rules(&r));
                self.order_undo(&r, undo, begins, cx)
            }
            (_, Err(why)) => {
                tracing::warn!(operation = %said.key(), why, "it can't be undone");
                results::not_undone(cx, &self.config, said, why)
            }
            (None, Ok(_)) => Ok(()),
        }
    }

    /// What undoes a call that has ended as done; the error says why nothing does.
    fn undo_of(&self, r: &LedgerRecord, said: &Control, cx: &mut TxCx<'_>) -> Result<Result<Undo, String>, TaskError> {
        let not = |why: &str| Ok(Err(why.to_owned()));
        if said.identity_hash.as_ref() != Some(&r.identity_hash) {
            return not("the ledger holds another content under this operation ID");
        }
        if !matches!(r.end, Some(Status::Confirmed | Status::ResolvedApplied)) {
            return not(&format!("it stands at {}", r.shown().word()));
        }
        if r.flags.contains(&Flag::DuplicateSuspected) {
            return not("more than one of it may exist: which is meant, a person must say");
        }
        let Some(spec) = self.spec(r) else { return not("its contract is not loaded in that version") };
        let given = parameters(&ledger::op(&r.key()), cx)?;
        let undo = spec.judge.undo(&given, &r.wire_key, r.reference.as_deref());
        Ok(undo.map_err(|why| format!("its compensation can't be filled in: {why}")))
    }

    /// Writes the compensation, once: a second order finds it.
    fn order_undo(&mut self, r: &LedgerRecord, undo: Undo, begins: Begins, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let now = cx.now().wall;
        let intent = intent(r, undo, now);
        let op = ledger::op(&intent.key());
        let known = ledger::load(cx, &op)?;
        if known.as_ref().is_some_and(|k| k.phase != Phase::Held) {
            return Ok(());
        }
        // Behind what has begun since: that may be sent again, and would wait for us while we wait for it.
        let begun = self.index.begun_behind(&ledger::lane(r), r.sequence, &ledger::op(&r.key()));
        let mut fresh = self.queued(&intent, begun.map_or(r.sequence, |last| last.saturating_add(1)));
        fresh.version = 1;
        match begins {
            Begins::AfterItsOriginal => {}
            Begins::At(at) => fresh.retry_at = Some(at).filter(|at| *at > now),
            Begins::WithAPerson => {
                apply(
                    &mut fresh,
                    &Action::Park(codes::UNPROVABLE, "nothing bounds how late a copy of what it undoes may arrive"),
                    now,
                );
            }
        }
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

/// When a compensation may be sent.
enum Begins {
    /// When its original has left the lane.
    AfterItsOriginal,
    /// Not before this.
    At(WallTime),
    /// When a person says so.
    WithAPerson,
}

/// The original may have left its lane long ago, when a late copy was harmless: the target knew what is there. Once that is undone it
/// is not.
fn begins(r: &LedgerRecord, rules: &Rules) -> Begins {
    if !rules.hold(Rule::UndoWaits) {
        return Begins::AfterItsOriginal;
    }
    let undone = LedgerRecord { end: Some(Status::Superseded), ..r.clone() };
    rules.lane_opens_at(&undone).map_or(Begins::WithAPerson, Begins::At)
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
