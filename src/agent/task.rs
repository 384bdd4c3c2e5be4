//! The task that keeps the operations of one partition: decodes, finds the record, lets the pure step decide, writes what it says.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{Error, Fault, codes};
use crate::ids::{OperationId, Partition, TopicName, partition_of};
use crate::intents::{Approval, Claim, Command, Intake, Return, Switch, headers};
use crate::kafka::Wake;
use crate::outbox::{OperationRecord, Output, Rule, unknown_operation};
use crate::record::{InRecord, OutRecord};
use crate::serdes::internal::{Wire, decode};
use crate::state::Stored;
use crate::task::{Close, Task, TaskError, TaskSeed, TxCx, Urgency};
use crate::time::{MonoTime, Now, WallTime};

use super::config::Sinks;
use super::desk::Desk;
use super::fetch::{FetchEnd, InputFetcher};
use super::fetches::Fetches;
use super::metrics::Tally;
use super::purse::Purse;
use super::shelf::{self, STORE};
use super::standing::Standing;
use super::step::{Event, Fetched, advance};
use super::trail::Trail;

/// The operations of one partition.
pub(super) struct OperationTask {
    pub(super) desk: Arc<Desk>,
    pub(super) sinks: Arc<Sinks>,
    partition: Partition,
    fetches: Fetches,
    /// Operations that nobody knows yet and that something is held for, by root; may name more than there are.
    pub(super) waiting: HashSet<OperationId>,
    pub(super) earliest: Option<WallTime>,
    seen: Now,
    dirty: bool,
    tally: Tally,
    standing: Standing,
    trail: Trail,
}

/// What a record of a source says.
enum Message {
    Intake(Box<Intake>),
    Approval(Approval),
    Command(Command),
    Return(Return),
    Claim(Claim),
    Switch(OperationId),
}

impl Message {
    fn read(record: &InRecord, sinks: &Sinks) -> Result<Self, Error> {
        let bytes = record.value.as_deref().unwrap_or_default();
        let topic = &record.tp.topic;
        let schema = record.headers.text(headers::SCHEMA);
        if *topic == sinks.commands && schema == Some(Switch::SCHEMA) {
            let wrong = |e| Error::new(codes::UNDECODABLE, Fault::Data, "reading an order to pause").because(e);
            return Ok(Message::Switch(serde_json::from_slice::<Switch>(bytes).map_err(wrong)?.key()));
        }
        if *topic == sinks.commands {
            return Ok(Message::Command(decode(bytes)?));
        }
        if *topic == sinks.plans {
            return Ok(Message::Return(decode(bytes)?));
        }
        match schema {
            Some(s) if s == Intake::SCHEMA => Ok(Message::Intake(Box::new(decode(bytes)?))),
            Some(s) if s == Approval::SCHEMA => Ok(Message::Approval(decode(bytes)?)),
            Some(s) if s == Claim::SCHEMA => Ok(Message::Claim(decode(bytes)?)),
            _ => Err(Error::new(codes::UNDECODABLE, Fault::Data, "reading an intake: its rb_schema header names no known record")),
        }
    }

    /// The partition that it belongs to: that of the operation, or of the meaning.
    fn place(&self, partitions: u32) -> Partition {
        let operation = match self {
            Message::Intake(i) => &i.request.operation_id,
            Message::Approval(a) => &a.operation_id,
            Message::Command(c) => &c.operation_id,
            Message::Return(r) => &r.operation_id,
            Message::Switch(key) => key,
            Message::Claim(c) => return partition_of(c.meaning.as_bytes(), partitions),
        };
        partition_of(operation.root().as_str().as_bytes(), partitions)
    }
}

impl OperationTask {
    pub(super) fn new(seed: TaskSeed, desk: Arc<Desk>, sinks: Arc<Sinks>, fetcher: Option<Arc<dyn InputFetcher>>) -> Self {
        let wake: Wake = seed.wake;
        let seen = seed.clock.now();
        let (tally, standing) = (Tally::new(sinks.metrics.clone()), Standing::new(sinks.metrics.clone()));
        let trail = Trail::new(sinks.tracer.clone());
        let (partition, fetches) = (seed.id.partition, Fetches::new(fetcher, wake));
        Self {
            desk,
            sinks,
            partition,
            fetches,
            waiting: HashSet::new(),
            earliest: None,
            seen,
            dirty: false,
            tally,
            standing,
            trail,
        }
    }

    // ---- one record ----

    pub(super) fn intake(&mut self, intake: Intake, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let request = &intake.request;
        let key = shelf::record_key(&request.operation_id, &request.tenant, &intake.step);
        let record = shelf::load(cx, &key)?;
        let held = if record.is_none() { self.held_for(&intake, cx)? } else { Vec::new() };
        let signals = held.iter().map(|(_, s)| s.clone()).collect();
        if self.advance(&key, record, Event::Intake(Box::new(intake), signals), cx)? {
            for (key, _) in &held {
                shelf::delete(cx, key)?;
            }
        }
        Ok(())
    }

    fn approval(&mut self, approval: Approval, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let mut found = shelf::records_of(cx, &approval.operation_id)?;
        found.retain(|(_, r)| r.request.tenant == approval.tenant);
        if found.is_empty() {
            let (id, until) = (approval.approval_id.to_string(), approval.expires_at);
            let id = format!("{id}/{:?}", approval.decision);
            return self.hold(&approval.operation_id.clone(), &id, until, &approval, cx);
        }
        for (key, record) in found {
            self.advance(&key, Some(record), Event::Approval(approval.clone()), cx)?;
        }
        Ok(())
    }

    fn command(&mut self, command: Command, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        if command.is_members_own() {
            return self.refuse(&command, "a command names who gives it", cx);
        }
        let step = command.step.as_ref().map(|s| self.desk.root_step(s).clone());
        let mut found = shelf::records_of(cx, &command.operation_id.keeper())?;
        found.retain(|(_, r)| command.tenant.is_empty() || r.request.tenant == command.tenant);
        found.retain(|(_, r)| step.as_ref().is_none_or(|s| r.step == *s));
        match found.len() {
            0 => self.hold(&command.operation_id.clone(), command.command_id.as_str(), command.not_after, &command, cx),
            1 => {
                for (key, record) in found {
                    self.advance(&key, Some(record), Event::Command(command.clone()), cx)?;
                }
                Ok(())
            }
            _ => self.refuse(&command, "several operations have this ID: name tenant and step", cx),
        }
    }

    fn refuse(&mut self, command: &Command, why: &str, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let id = command.command_id.as_str();
        let mut answer = unknown_operation(&command.operation_id, &command.tenant, id, cx.now().wall);
        if let Output::Result(r) = &mut answer {
            (r.code, r.detail) = (Some(codes::COMMAND_REFUSED.to_string()), Some(why.into()));
        }
        self.write(answer, &[], cx)
    }

    fn returned(&mut self, back: Return, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let key = shelf::record_key(&back.operation_id.keeper(), &back.tenant, self.desk.root_step(&back.step));
        match shelf::load(cx, &key)? {
            Some(record) => self.advance(&key, Some(record), Event::Return(back), cx).map(|_| ()),
            None => Ok(()),
        }
    }

    // ---- the pure step and its writes ----

    /// Folds an event; answers whether there is a record now.
    pub(super) fn advance(
        &mut self,
        key: &[u8],
        mut record: Option<OperationRecord>,
        mut event: Event,
        cx: &mut TxCx<'_>,
    ) -> Result<bool, TaskError> {
        let before = record.clone();
        if let (Event::Due, Some(r)) = (&event, &mut record) {
            r.due_entry = None;
        }
        self.tally.comes(before.as_ref(), &event);
        self.trail.comes(before.as_ref(), &mut event);
        let bounded = self.budgeted(record.as_ref(), &event);
        let tenant = match (&record, &event) {
            (Some(r), _) => Some(r.request.tenant.clone()),
            (None, Event::Intake(i, _) | Event::Replay(i, _)) => Some(i.request.tenant.clone()),
            _ => None,
        };
        let mut purse = match &tenant {
            Some(t) if bounded => shelf::load_purse(cx, t)?,
            _ => Purse::default(),
        };
        let had = purse.clone();
        let advanced = advance(record, event, &self.desk, &mut purse, cx.now().wall);
        if let (Some(t), true) = (&tenant, bounded && purse != had) {
            shelf::save_purse(cx, t, &purse)?;
        }
        self.tally.note(before.as_ref(), advanced.record.as_ref(), &advanced.out, cx.now().wall);
        self.trail.note(before.as_ref(), advanced.record.as_ref(), cx.now().wall);
        self.standing.note(key, before.as_ref(), advanced.record.as_ref());
        let lives = advanced.record.is_some();
        self.save(key, before, advanced.record, cx)?;
        for output in advanced.out {
            self.write(output, key, cx)?;
        }
        Ok(lives)
    }

    fn budgeted(&self, record: Option<&OperationRecord>, event: &Event) -> bool {
        let step = match (record, event) {
            (Some(r), _) => &r.step,
            (None, Event::Intake(i, _) | Event::Replay(i, _)) => &i.step,
            _ => return false,
        };
        self.desk.bench(step).is_some_and(|b| !b.pipeline.admit.budgets.is_empty())
    }

    /// Stores a record and keeps its timer: an entry that comes too early is moved when it fires, so most changes touch none.
    fn save(
        &mut self,
        key: &[u8],
        before: Option<OperationRecord>,
        after: Option<OperationRecord>,
        cx: &mut TxCx<'_>,
    ) -> Result<(), TaskError> {
        let Some(mut record) = after else {
            if let Some(before) = before {
                if let Some(at) = before.due_entry {
                    shelf::delete(cx, &shelf::timer_key(at, key))?;
                }
                shelf::delete(cx, key)?;
            }
            return Ok(());
        };
        if let Some(due) = record.due(&self.desk.settings)
            && record.due_entry.is_none_or(|at| due < at)
        {
            if let Some(at) = record.due_entry {
                shelf::delete(cx, &shelf::timer_key(at, key))?;
            }
            record.due_entry = Some(due);
            self.timer(due, key, cx)?;
        }
        if before.as_ref() != Some(&record) {
            shelf::write(cx, key, &record)?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, output: Output, key: &[u8], cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        match output {
            Output::Result(r) => self.sinks.result(&r, cx),
            Output::Intent(intent, partition) => self.sinks.intent(&intent, partition, cx),
            Output::Control(control, partition) => self.sinks.control(&control, partition, cx),
            Output::Claim(claim) => self.sinks.claim(&claim, self.desk.settings.partitions, cx),
            Output::DeadLetter(letter) => self.sinks.dead_letter(&letter, cx),
            Output::Fetch(input, max) => {
                cx.put(STORE, &shelf::fetch_key(key), Some(Stored::default()))?;
                self.fetches.want(key.to_vec(), *input, max);
                Ok(())
            }
        }
    }

    // ---- time and fetches ----

    fn fold_fetches(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        for (key, end) in self.fetches.ended(cx.now().wall) {
            let what = match end {
                FetchEnd::Text(text) => Fetched::Text(text),
                FetchEnd::Unusable(words) => Fetched::Unusable(words),
                FetchEnd::Later => continue,
            };
            shelf::delete(cx, &shelf::fetch_key(&key))?;
            if let Some(record) = shelf::load(cx, &key)? {
                self.advance(&key, Some(record), Event::Fetched(what), cx)?;
            }
        }
        Ok(())
    }
}

impl Task for OperationTask {
    fn restored(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.seen = cx.now();
        self.standing.restored();
        let noted: Vec<_> = cx.prefix(STORE, shelf::FETCHES)?.collect::<Result<_, _>>()?;
        for (entry, _) in noted {
            let key = &entry[shelf::FETCHES.len()..];
            if let Some(record) = shelf::load(cx, key)? {
                let max = self.desk.bench(&record.step).map_or(0, |b| b.pipeline.admit.max_input);
                self.fetches.restored(key.to_vec(), record.request.input, max);
            }
        }
        self.find_waiting(cx)?;
        self.find_earliest(cx)
    }

    fn process(&mut self, record: InRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.seen = cx.now();
        self.dirty = true;
        let message = match Message::read(&record, &self.sinks) {
            Ok(message) => message,
            Err(e) => return self.sinks.undecodable(&record, &e.to_string(), cx),
        };
        let place = message.place(self.desk.settings.partitions);
        if place != self.partition && self.desk.settings.on(Rule::OnePlace) {
            return pass_on(&record, place, cx);
        }
        match message {
            Message::Intake(intake) if record.headers.get(headers::REPLAY_OF).is_some() => self.replayed(*intake, cx),
            Message::Intake(intake) => self.intake(*intake, cx),
            Message::Approval(approval) => self.approval(approval, cx),
            Message::Command(command) => self.command(command, cx),
            Message::Return(back) => self.returned(back, cx),
            Message::Claim(claim) => self.claim(&claim, cx),
            Message::Switch(_) => self.sinks.everywhere(&record, self.desk.settings.partitions, cx),
        }
    }

    fn wake(&mut self, now: Now, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.seen = now;
        self.dirty = true;
        self.fold_fetches(cx)?;
        self.standing.turn(cx)?;
        if self.earliest.is_some_and(|at| at <= now.wall) { self.fire(cx) } else { Ok(()) }
    }

    fn wants_wake(&self, now: Now) -> bool {
        self.earliest.is_some_and(|at| at <= now.wall) || self.fetches.any_ended(now.wall) || self.standing.wants_turn()
    }

    fn urgency(&self) -> Urgency {
        if self.dirty { Urgency::WhenDrained } else { Urgency::None }
    }

    fn before_commit(&mut self, _cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn committed(&mut self, at: Now) {
        self.seen = at;
        self.dirty = false;
        self.tally.committed();
        self.standing.committed();
        self.trail.committed(at.wall);
        self.fetches.committed();
    }

    fn aborted(&mut self) {
        self.dirty = false;
        self.tally.aborted();
        self.standing.aborted();
        self.trail.aborted();
        self.earliest = None;
        self.fetches.aborted();
    }

    fn next_due(&self) -> Option<MonoTime> {
        let due = match (self.earliest, self.fetches.next_due()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        due.map(|at| self.seen.mono.plus(at.since(self.seen.wall)))
    }

    fn close(&mut self, _how: Close) {
        self.standing.closed();
    }
}

/// A record that belongs to another partition's operation goes there, as it came (rule 2).
fn pass_on(record: &InRecord, place: Partition, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
    let topic: &TopicName = &record.tp.topic;
    cx.emit(OutRecord {
        topic,
        partition: Some(place),
        timestamp: record.timestamp,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: Some(&record.headers).filter(|h| !h.is_empty()),
    })
}
