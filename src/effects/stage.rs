//! One operation, one step: fold events, decide, write ledger, results and returns; all in the open transaction.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::contract::Parameters;
use crate::error::{Error, Fault, codes};
use crate::ids::DispatchToken;
use crate::intents::{Intent, IntentKind, ResultKind, ReturnKind, Status, hex};
use crate::task::{TaskError, TxCx};
use crate::time::WallTime;

use super::attempt::{AttemptState, Warrant};
use super::config::CallSpec;
use super::decide::{Action, Facts, Stamp, apply, decide, journal};
use super::dispatch::{Pending, PendingCall, PendingRead, Question};
use super::fold::{Event, fold};
use super::ledger::{self, Op, Was};
use super::permission::{Denial, last_look};
use super::results;
use super::rules::{Rule, Rules};
use super::spans::Traced;
use super::status::{LedgerRecord, Phase};
use super::task::EffectTask;

/// One step of one operation.
pub(super) struct Drive<'a> {
    /// Which.
    pub op: &'a Op,
    /// As the ledger has it; `None` = new.
    pub before: Option<Was>,
    /// As it goes on.
    pub record: LedgerRecord,
    /// What has happened.
    pub events: Vec<Event>,
}

/// More steps than any operation can take at once.
const STEPS: usize = 16;

impl EffectTask {
    /// The facts behind decisions on this operation.
    pub(super) fn rules(&self, r: &LedgerRecord) -> Rules {
        self.spec(r).map_or_else(|| Rules::unknown(self.config.host), |s| s.rules.clone())
    }

    pub(super) fn spec(&self, r: &LedgerRecord) -> Option<Arc<CallSpec>> {
        self.config.calls.get(&(r.contract.clone(), r.contract_version, r.call.clone())).cloned()
    }

    /// A fresh operation, queued, with the path of its contract.
    pub(super) fn queued(&self, intent: &Intent, sequence: i64) -> LedgerRecord {
        let mut r = LedgerRecord::queued(intent, sequence);
        let path = self.spec(&r).map(|s| s.path.clone()).unwrap_or_default();
        if let Some(sends) = &mut r.sends {
            sends.path = path;
        }
        r
    }

    /// Goes on with an operation that the ledger has.
    pub(super) fn advance(&mut self, op: &Op, events: Vec<Event>, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Some((record, was)) = ledger::load_to_change(cx, op)? else { return Ok(()) };
        self.drive(Drive { op, before: Some(was), record, events }, cx)
    }

    /// Folds, decides until there is nothing to do now, and writes what has changed.
    pub(super) fn drive(&mut self, d: Drive<'_>, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Drive { op, before, record: mut r, events } = d;
        let rules = self.rules(&r);
        self.dirty = true;
        if before.is_none() && r.phase != Phase::Held {
            // It takes its place in its lane before anything is decided.
            self.index.put(op, ledger::lane(&r), r.sequence, false, None);
        }
        let mut replies = Vec::new();
        for event in events {
            let command = match &event {
                Event::Command { command, .. } => Some(command.clone()),
                _ => None,
            };
            let reply = fold(&mut r, event, &rules, cx.now().wall);
            replies.extend(command.zip(reply));
        }
        let Some(due) = self.steps(op, &mut r, &rules, cx)? else { return self.forget(op, &r, cx) };
        self.write(op, before.as_ref(), &mut r, &rules, due, cx)?;
        for (command, reply) in replies {
            self.answer(&r, &command, &reply, cx)?;
        }
        Ok(())
    }

    /// `None` = the record is to be deleted; else when it is due again.
    fn steps(
        &mut self,
        op: &Op,
        r: &mut LedgerRecord,
        rules: &Rules,
        cx: &mut TxCx<'_>,
    ) -> Result<Option<Option<WallTime>>, TaskError> {
        let spec = self.spec(r);
        let now = cx.now().wall;
        let mut denied = None;
        let mut asked = false;
        for _ in 0..STEPS {
            let facts = self.facts((op, r.operation_id.is_undo()), r, spec.as_deref(), denied.clone(), cx);
            let action = match (decide(r, &facts, rules, now), &spec) {
                (Action::End(e), Some(spec)) if e.status == Status::Superseded => Action::End(self.compensate(r, e, spec, cx)?),
                (action, _) => action,
            };
            match (&action, &spec) {
                (Action::Wait(due), _) => return Ok(Some(*due)),
                (Action::WaitForPermit(due), _) => {
                    if let Some(spec) = &spec {
                        let reads = if self.is_paused(r) { !facts.read_permit } else { facts.permit };
                        if reads || r.phase == Phase::Ended {
                            self.starve(op, r, (spec.read_gate.clone(), spec.concurrency), now);
                        } else if !self.is_paused(r) {
                            self.starve(op, r, (spec.target.clone(), spec.concurrency), now);
                        }
                    }
                    return Ok(Some(*due));
                }
                (Action::Forget, _) => return Ok(None),
                (Action::Journal(_), Some(_)) if !asked => {
                    asked = true;
                    let parameters = if self.config.guard.asks(r) { parameters(op, cx)? } else { Parameters::default() };
                    // A compensation was ordered by a person, and is what was approved with the effect.
                    denied = match r.operation_id.is_undo() {
                        true => None,
                        false => last_look(r, &parameters, self.config.guard.as_ref(), rules, now).err(),
                    };
                }
                (Action::Journal(warrants), Some(spec)) => self.journal(op, r, warrants.clone(), spec, rules, cx)?,
                (Action::Read, Some(spec)) => self.ask(op, r, spec, Question::Effect, rules, cx)?,
                (Action::AskVersion, Some(spec)) => self.ask(op, r, spec, Question::Version, rules, cx)?,
                (Action::Journal(_) | Action::Read | Action::AskVersion, None) => return Ok(Some(None)),
                (Action::End(_), _) if r.open() => {
                    let burned = self.burn_open(r);
                    fold(r, Event::TakeOver { burned, held: Vec::new() }, rules, now);
                    apply(r, &action, now);
                }
                _ => apply(r, &action, now),
            }
        }
        let doing = format!("deciding on {}", r.key());
        Err(Error::new(codes::BUG, Fault::Bug, doing).because("it never came to rest").into())
    }

    /// Whether an operation may not be sent for now, by order of a person: it waits until that is taken back, and is read all the same.
    fn is_paused(&self, r: &LedgerRecord) -> bool {
        self.paused.iter().any(|s| s.scope.covers(&r.contract, &r.call, &r.tenant, &r.step))
    }

    fn facts(
        &self,
        (op, undo): (&Op, bool),
        r: &LedgerRecord,
        spec: Option<&CallSpec>,
        denied: Option<Denial>,
        cx: &TxCx<'_>,
    ) -> Facts {
        let mono = cx.now().mono;
        let shared = &self.config.shared;
        let free = |gate: &str, s: &CallSpec| shared.available(gate, s.concurrency, mono);
        let at_once = |s: &CallSpec| !s.rules.hold(Rule::LaneInOrder) || (undo && !s.rules.hold(Rule::UndoWaits));
        Facts {
            lane_free: self.index.free(op) || spec.is_some_and(at_once),
            permit: !self.stopping && !self.is_paused(r) && spec.is_some_and(|s| free(&s.target, s)),
            read_permit: !self.stopping && spec.is_some_and(|s| free(&s.read_gate, s)),
            reading: self.reading.contains(op),
            drift: spec.is_some_and(|s| shared.drift(&s.target)),
            denied,
        }
    }

    /// Journals an attempt; it is handed over after the commit.
    fn journal(
        &mut self,
        op: &Op,
        r: &mut LedgerRecord,
        warrants: Vec<Warrant>,
        spec: &Arc<CallSpec>,
        rules: &Rules,
        cx: &mut TxCx<'_>,
    ) -> Result<(), TaskError> {
        let now = cx.now();
        let Some(permit) = self.config.shared.take(&spec.target, spec.concurrency, now.mono) else { return Ok(()) };
        let Some(body) = ledger::body(cx, op)? else {
            return Err(Error::new(codes::LEDGER_UNREADABLE, Fault::Data, format!("reading the request of {}", r.key())).into());
        };
        self.config.shared.measure(|m| warrants.iter().for_each(|w| m.warranted(&spec.target, w.kind)));
        let token = self.token(op, r.attempts.len() + 1);
        journal(r, warrants, Stamp { epoch: self.epoch.clone(), token: token.clone(), at: now.wall }, rules);
        let handover = self.config.shared.enter(&token);
        let trace = self.traced(r, token.as_str());
        let call = PendingCall {
            key: r.key(),
            deadline: r.deadline,
            attempt: i32::try_from(r.attempts.len()).unwrap_or(i32::MAX),
            token,
            handover,
            spec: Arc::clone(spec),
            request: body.request,
            wire_key: r.wire_key.clone(),
            journalled_at: now.wall,
            not_after: now.plus(rules.window),
            proposal: r.kind == IntentKind::Proposal,
            trace,
            permit,
        };
        match rules.hold(Rule::JournalBeforeCall) {
            true => self.pending.push(Pending::Call(Box::new(call))),
            false => self.hand_over(call),
        }
        Ok(())
    }

    /// Whose span a call is part of, where the operation is sampled.
    fn traced(&self, r: &LedgerRecord, id: &str) -> Option<Traced> {
        let parent = self.config.shared.tracer().wanted(r.traceparent.as_deref())?;
        Some(Traced { parent, id: id.to_owned() })
    }

    fn token(&self, op: &Op, n: usize) -> DispatchToken {
        let text = format!("{}\u{1f}{op}\u{1f}{n}\u{1f}{}", self.epoch, self.config.application);
        DispatchToken::from(hex(&Sha256::digest(text)[..16]))
    }

    /// Records that the target is asked something; the question is handed over after the commit.
    fn ask(
        &mut self,
        op: &Op,
        r: &mut LedgerRecord,
        spec: &Arc<CallSpec>,
        question: Question,
        rules: &Rules,
        cx: &mut TxCx<'_>,
    ) -> Result<(), TaskError> {
        let now = cx.now();
        let Some(permit) = self.config.shared.take(&spec.read_gate, spec.concurrency, now.mono) else { return Ok(()) };
        let parameters = parameters(op, cx)?;
        let asked = match question {
            Question::Effect => Event::ReadStarted,
            Question::Version => Event::VersionAsked,
        };
        fold(r, asked, rules, now.wall);
        self.reading.insert(op.clone());
        self.pending.push(Pending::Read(Box::new(PendingRead {
            op: op.clone(),
            question,
            spec: Arc::clone(spec),
            parameters,
            wire_key: r.wire_key.clone(),
            trace: self.traced(r, &format!("{question:?} {op} {}", now.wall.0)),
            permit,
        })));
        Ok(())
    }

    /// Takes back what was journalled here and is not handed over yet. What can't be taken back may have left.
    pub(super) fn burn_open(&mut self, r: &LedgerRecord) -> Vec<i32> {
        let open = r.attempts.iter().filter(|a| a.state == AttemptState::Journaled);
        open.filter(|a| self.config.shared.burn(&a.token)).map(|a| a.n).collect()
    }

    /// Writes what has changed: status, results, returns, index.
    fn write(
        &mut self,
        op: &Op,
        before: Option<&Was>,
        r: &mut LedgerRecord,
        rules: &Rules,
        due: Option<WallTime>,
        cx: &mut TxCx<'_>,
    ) -> Result<(), TaskError> {
        let now = cx.now().wall;
        let changed = match before {
            Some(b) => b.visible != results::visible(r),
            None => !matches!(r.phase, Phase::Held | Phase::Queued),
        };
        if changed {
            r.version += 1;
            results::emit(cx, &self.config, &results::of(r, ResultKind::State, now), r.traceparent.as_deref())?;
        }
        ledger::save(cx, op, r, before)?;
        let was_ended = before.is_some_and(|b| b.phase == Phase::Ended);
        if r.phase == Phase::Ended && !was_ended {
            results::tell(cx, &self.config, r, ReturnKind::Closed, None, now)?;
            self.config.shared.measure(|m| m.ended(r, now));
        }
        let known = before.map_or(0, |b| b.flags);
        self.config.shared.measure(|m| r.flags.iter().skip(known).for_each(|f| m.flagged(r.contract.as_str(), *f)));
        self.place(op, r, rules, due, cx)
    }

    /// Keeps lanes and due times; an ended operation leaves its lane when no old copy can arrive any more.
    fn place(
        &mut self,
        op: &Op,
        r: &LedgerRecord,
        rules: &Rules,
        due: Option<WallTime>,
        cx: &mut TxCx<'_>,
    ) -> Result<(), TaskError> {
        use crate::contract::LaneRule;
        let now = cx.now().wall;
        let lane = ledger::lane(r);
        match r.phase {
            Phase::Held => Ok(()),
            Phase::Ended if !self.index.holds(op) => Ok(()),
            Phase::Ended => {
                let opens = if r.lane_released { Some(now) } else { rules.lane_opens_at(r) };
                if opens.is_some_and(|t| t <= now) {
                    let forget_at = rules.forget_at(r);
                    ledger::closed(cx, op, r, forget_at)?;
                    self.forget_from(forget_at);
                    self.ready.extend(self.index.remove(op));
                } else {
                    self.index.put(op, lane, r.sequence, false, opens);
                    self.index.stands(op, r.shown(), r.unknown_since);
                }
                Ok(())
            }
            _ => {
                let passable = r.lane_released || (r.phase == Phase::Parked && rules.lane == LaneRule::Skip);
                let next = self.index.put(op, lane, r.sequence, passable, due);
                self.index.stands(op, r.shown(), r.unknown_since);
                self.ready.extend(next);
                Ok(())
            }
        }
    }

    /// Deletes a record after its retention, or a held one whose intent never came.
    fn forget(&mut self, op: &Op, r: &LedgerRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let now = cx.now().wall;
        if r.phase == Phase::Held {
            let unknown = super::commands::Reply::unknown();
            for command in &r.held {
                self.answer(r, command, &unknown, cx)?;
            }
        } else {
            results::tell(cx, &self.config, r, ReturnKind::Gone, None, now)?;
            ledger::unname(cx, r)?;
        }
        ledger::forget(cx, op)
    }
}

pub(super) fn parameters(op: &Op, cx: &mut TxCx<'_>) -> Result<Parameters, TaskError> {
    let text = ledger::body(cx, op)?.map(|b| b.parameters).unwrap_or_default();
    Ok(Parameters(serde_json::from_str(&text).unwrap_or_default()))
}
