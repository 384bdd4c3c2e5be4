//! What comes in by topic: intents from the outbox, commands and hearsay from the control topic.

use crate::error::{Error, Fault, codes};
use crate::ids::{ContractName, OperationId, OperationKey, OrderingKey};
use crate::intents::{
    AckLevel, Command, CommandKind, Control, ControlKind, Decided, Hearsay, Intent, IntentKind, ResultKind, ReturnKind, Status,
    Switch, headers,
};
use crate::record::InRecord;
use crate::serdes::internal;
use crate::task::{TaskError, TxCx};

use super::commands::Reply;
use super::fold::Event;
use super::ledger::{self, Op};
use super::results;
use super::rules::{Rule, Rules};
use super::stage::Drive;
use super::status::{LedgerBody, LedgerRecord, Phase};
use super::task::EffectTask;

impl EffectTask {
    /// An intent.
    pub(super) fn intent(&mut self, record: &InRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let intent: Intent = match internal::decode(record.value.as_deref().unwrap_or_default()) {
            Ok(intent) => intent,
            Err(e) => return self.unreadable(record, &e, cx),
        };
        let op = ledger::op(&intent.key());
        let known = ledger::load(cx, &op)?;
        if let Some(r) = known.as_ref().filter(|r| r.phase != Phase::Held) {
            return self.known(record, &intent, r, cx);
        }
        let fresh = self.queued(&intent, record.offset.0);
        let rules = self.rules(&fresh);
        let now = cx.now().wall;
        if now > rules.forget_at(&fresh) {
            return self.stale(record, fresh, cx);
        }
        let held = known.map(|k| (rules.forget_at(&k), k.held));
        if let Some((at, _)) = &held {
            ledger::unlist(cx, &op, *at)?;
        }
        ledger::save_body(cx, &op, &LedgerBody { request: intent.request, parameters: intent.parameters })?;
        ledger::opened(cx, &op, &fresh)?;
        if rules.webhook.is_some() {
            ledger::name(cx, &op, &fresh)?;
        }
        let events = held.into_iter().flat_map(|(_, commands)| commands);
        let events = events.map(|c| Event::Command { command: Box::new(c), burned: Vec::new() }).collect();
        self.drive(Drive { op: &op, before: None, record: fresh, events }, cx)
    }

    /// An intent for an operation that the ledger has already.
    fn known(&mut self, record: &InRecord, intent: &Intent, r: &LedgerRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let now = cx.now().wall;
        let same = r.identity_hash == intent.identity_hash && r.request_sha256 == intent.request.sha256();
        if same || !self.rules(r).hold(Rule::OneContent) {
            let mut answer = results::of(r, ResultKind::Answer, now);
            answer.answers = Some(format!("intent-{}", record.offset));
            return results::emit(cx, &self.config, &answer, r.traceparent.as_deref());
        }
        self.dismiss(record, LedgerRecord::queued(intent, record.offset.0), Status::Conflict, cx)
    }

    fn stale(&mut self, record: &InRecord, fresh: LedgerRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.dismiss(record, fresh, Status::Stale, cx)
    }

    /// Refuses an intent without a trace in the ledger: its sender's operation is closed as such.
    fn dismiss(&mut self, record: &InRecord, mut r: LedgerRecord, end: Status, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let now = cx.now().wall;
        let (code, reason) = match end {
            Status::Stale => (codes::STALE_INTENT, "older than its record's life"),
            _ => (codes::REQUEST_CONFLICT, "the operation is known with other content"),
        };
        (r.phase, r.end, r.code, r.detail) = (Phase::Ended, Some(end), Some(i32::from(code.0)), Some(reason.to_owned()));
        results::bury(cx, &self.config, &r.step, &r.operation_id, record, code, reason)?;
        let mut message = results::of(&r, ResultKind::Message, now);
        (message.version, message.answers) = (None, Some(format!("outbox-{}-{}", record.tp.partition, record.offset)));
        results::emit(cx, &self.config, &message, r.traceparent.as_deref())?;
        results::tell(cx, &self.config, &r, ReturnKind::Closed, None, now)
    }

    /// An intent that can't be decoded blocks its lane; without headers nobody knows which, and the task refuses to go on.
    fn unreadable(&mut self, record: &InRecord, why: &Error, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let (Some(operation), Some(ordering)) =
            (record.headers.text(headers::OPERATION), record.headers.text(headers::ORDERING_KEY))
        else {
            let doing = format!("reading the intent at {} offset {}", record.tp, record.offset);
            return Err(Error::new(codes::LEDGER_UNREADABLE, Fault::Data, doing)
                .because(why.to_string())
                .next("its headers name neither operation nor ordering key, so no lane can be held back: look at the record")
                .into());
        };
        let key = OperationKey { tenant: "".into(), operation: OperationId::new(operation), step: "".into() };
        let op = ledger::op(&key);
        let mut r = LedgerRecord::held(key, cx.now().wall);
        r.ordering_key = OrderingKey::new(ordering);
        r.sequence = record.offset.0;
        r.phase = Phase::Parked;
        r.code = Some(i32::from(codes::LEDGER_UNREADABLE.0));
        r.detail = Some("the intent can't be read; its lane is held back".to_owned());
        r.note_parking(cx.now().wall, i32::from(codes::LEDGER_UNREADABLE.0), "the intent can't be read; its lane is held back");
        tracing::error!(code = %codes::LEDGER_UNREADABLE, operation, "an intent can't be read; its lane is held back");
        ledger::opened(cx, &op, &r)?;
        self.drive(Drive { op: &op, before: None, record: r, events: Vec::new() }, cx)
    }

    /// A record of the control topic.
    pub(super) fn control(&mut self, record: &InRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        if record.headers.text(headers::SCHEMA) == Some(Switch::SCHEMA) {
            return self.switch(record, cx);
        }
        let said: Control = match internal::decode(record.value.as_deref().unwrap_or_default()) {
            Ok(said) => said,
            Err(e) => {
                // Written by members only, and never the only copy of an outcome: the owner reads the target anyway.
                tracing::error!(code = %e.code, origin = %record.tp, offset = %record.offset, "a control record can't be read");
                return Ok(());
            }
        };
        if let (ControlKind::Webhook, Some(contract), Some(told)) = (said.kind, &said.contract, said.hearsay.clone()) {
            return self.webhook(contract, told, cx);
        }
        if said.kind == ControlKind::Undo {
            return self.undo(&said, cx);
        }
        let op = ledger::op(&said.key());
        match (said.command.clone(), said.hearsay.clone()) {
            (Some(command), _) => self.command(&op, &said, command, cx),
            (None, Some(hearsay)) => self.hearsay(&op, &said, hearsay, cx),
            (None, None) => Ok(()),
        }
    }

    /// What a target told by itself. Every owner gets it; the one that knows the key takes it.
    fn webhook(&mut self, contract: &ContractName, said: Hearsay, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Some(op) = ledger::named(cx, contract, said.token.as_str())? else { return Ok(()) };
        let Some((r, was)) = ledger::load_to_change(cx, &op)? else { return Ok(()) };
        let burned = self.burn_open(&r);
        self.drive(Drive { op: &op, before: Some(was), record: r, events: vec![Event::Webhook { said, burned }] }, cx)
    }

    /// Pauses or goes on. What waits looks again by itself; what has left has left.
    fn switch(&mut self, record: &InRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Ok(switch) = serde_json::from_slice::<Switch>(record.value.as_deref().unwrap_or_default()) else {
            tracing::error!(origin = %record.tp, offset = %record.offset, "an order to pause can't be read");
            return Ok(());
        };
        let verb = if switch.paused { "paused" } else { "going on" };
        tracing::warn!(scope = %switch.scope, by = switch.by, partition = %record.tp.partition, "{verb}");
        ledger::switch(cx, &switch)?;
        self.paused.retain(|s| s.scope != switch.scope);
        match switch.paused {
            true => self.paused.push(switch),
            false => self.index.all_due(cx.now().wall),
        }
        Ok(())
    }

    fn command(&mut self, op: &Op, said: &Control, command: Command, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let burns = matches!(command.kind, CommandKind::Cancel | CommandKind::Revoke | CommandKind::Resolve);
        match ledger::load_to_change(cx, op)? {
            Some((r, was)) => {
                let burned = if burns { self.burn_open(&r) } else { Vec::new() };
                let events = vec![Event::Command { command: Box::new(command), burned }];
                self.drive(Drive { op, before: Some(was), record: r, events }, cx)
            }
            None => {
                let r = LedgerRecord::held(said.key(), said.deadline);
                let at = Rules::unknown(self.config.host).forget_at(&r);
                ledger::list(cx, op, at)?;
                self.forget_from(at);
                let events = vec![Event::Command { command: Box::new(command), burned: Vec::new() }];
                self.drive(Drive { op, before: None, record: r, events }, cx)
            }
        }
    }

    fn hearsay(&mut self, op: &Op, said: &Control, h: Hearsay, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        if let Some((r, was)) = ledger::load_to_change(cx, op)? {
            // What others heard of a proposal holds no proposal: it would end confirmed with nothing to plan by. It is asked again.
            if r.kind == IntentKind::Proposal {
                return Ok(());
            }
            return self.drive(Drive { op, before: Some(was), record: r, events: vec![Event::Hearsay(h)] }, cx);
        }
        let gone = LedgerRecord::held(said.key(), said.deadline);
        let mut orphan = results::of(&gone, ResultKind::OrphanHearsay, cx.now().wall);
        (orphan.status, orphan.ack_level, orphan.version) = (Status::Unknown, AckLevel::Received, None);
        (orphan.evidence, orphan.reference, orphan.answers) = (h.digest, h.reference, Some(h.token.to_string()));
        orphan.detail = Some(format!("attempt {}: {:?}", h.attempt, h.class));
        results::emit(cx, &self.config, &orphan, None)
    }

    /// Answers a command that somebody waits for.
    pub(super) fn answer(
        &mut self,
        r: &LedgerRecord,
        command: &Command,
        reply: &Reply,
        cx: &mut TxCx<'_>,
    ) -> Result<(), TaskError> {
        if command.is_members_own() {
            return Ok(());
        }
        let mut answer = results::of(r, ResultKind::Answer, cx.now().wall);
        answer.answers = Some(command.command_id.to_string());
        answer.code = reply.code.map(|c| c.to_string()).or(answer.code);
        // The answer tells why, too: what was ordered need not change any state.
        let taken = Decided::by_command(command, cx.now().wall).filter(|_| reply.code.is_none());
        answer.detail = Some(taken.map_or_else(|| reply.detail.clone(), |d| format!("{} · {}", reply.detail, d.words())));
        results::emit(cx, &self.config, &answer, r.traceparent.as_deref())
    }
}
