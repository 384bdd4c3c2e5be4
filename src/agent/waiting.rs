//! What waits in a task: timers, and signals for operations that nobody knows yet.

use crate::error::Error;
use crate::ids::OperationId;
use crate::intents::{Approval, Intake, headers};
use crate::outbox::unknown_operation;
use crate::serdes::internal::{Wire, decode, encode};
use crate::state::Stored;
use crate::task::{TaskError, TxCx};
use crate::time::WallTime;

use super::shelf::{self, STORE};
use super::step::{Event, Signal};
use super::task::OperationTask;

/// How long a signal for an unknown operation is held at most: as long as the commands topic keeps it.
const LONGEST_HOLD: std::time::Duration = std::time::Duration::from_secs(7 * 86_400);
/// How many timers one wake works off.
const TIMERS_AT_ONCE: usize = 500;

/// How many signals one unknown operation holds; more are answered at once.
const HELD: usize = 32;
/// Header of a held signal: until when.
const NOT_AFTER: &str = "rb_not_after";

impl OperationTask {
    /// Holds a signal for an operation that nobody knows yet. One that may wait no longer is answered at once.
    pub(super) fn hold<T: Wire>(
        &mut self,
        op: &OperationId,
        id: &str,
        until: WallTime,
        signal: &T,
        cx: &mut TxCx<'_>,
    ) -> Result<(), TaskError> {
        let now = cx.now().wall;
        let until = until.min(now.plus(LONGEST_HOLD));
        let key = shelf::held_key(&op.root(), id);
        let bytes = encode(signal)?;
        // A header, not the record's time: brokers refuse times far ahead.
        let mut stored = Stored::bytes(bytes);
        stored.headers.push(headers::SCHEMA, T::SCHEMA);
        stored.headers.push(NOT_AFTER, until.0.to_string());
        let repeat = cx.get(STORE, &key)?.is_some();
        let full = !repeat && cx.prefix(STORE, &shelf::held_prefix(&op.root()))?.take(HELD).count() == HELD;
        if until <= now || full {
            return self.unheld(&stored, cx);
        }
        self.waiting.insert(op.root());
        cx.put(STORE, &key, Some(stored))?;
        self.timer(until, &key, cx)
    }

    /// A held signal whose operation never came: an answer, never silence.
    fn unheld(&mut self, stored: &Stored, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let now = cx.now().wall;
        let answer = match held_signal(stored)? {
            Signal::Command(c) => unknown_operation(&c.operation_id, &c.tenant, c.command_id.as_str(), now),
            Signal::Approval(a) => unknown_operation(&a.operation_id, &a.tenant, a.approval_id.as_str(), now),
        };
        self.write(answer, &[], cx)
    }

    pub(super) fn timer(&mut self, at: WallTime, target: &[u8], cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.earliest = Some(self.earliest.map_or(at, |e| e.min(at)));
        cx.put(STORE, &shelf::timer_key(at, target), Some(Stored::default()))
    }

    pub(super) fn fire(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let bound = shelf::timer_bound(WallTime(cx.now().wall.0.saturating_add(1)));
        let due: Vec<_> = cx.range(STORE, Some(shelf::TIMERS), Some(&bound))?.take(TIMERS_AT_ONCE).collect::<Result<_, _>>()?;
        for (entry, _) in due {
            shelf::delete(cx, &entry)?;
            let Some((at, target)) = shelf::timer_of(&entry) else { continue };
            if target.starts_with(b"h/") {
                self.fire_held(target, cx)?;
            } else if target.starts_with(shelf::CLAIMS) {
                self.fire_claims(target, cx)?;
            } else if let Some(record) = shelf::load(cx, target)?
                && record.due_entry == Some(at)
            {
                self.advance(target, Some(record), Event::Due, cx)?;
            }
        }
        self.find_earliest(cx)
    }

    fn fire_held(&mut self, target: &[u8], cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Some(stored) = cx.get(STORE, target)? else { return Ok(()) };
        let until = stored.headers.text(NOT_AFTER).and_then(|t| t.parse().ok()).map(WallTime);
        match until {
            Some(until) if until > cx.now().wall => self.timer(until, target, cx),
            _ => {
                shelf::delete(cx, target)?;
                self.unheld(&stored, cx)
            }
        }
    }

    pub(super) fn find_earliest(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let first = cx.prefix(STORE, shelf::TIMERS)?.next().transpose()?;
        self.earliest = first.and_then(|(key, _)| shelf::timer_of(&key).map(|(at, _)| at));
        Ok(())
    }

    /// Notes for whom something is held: a request that nobody has spoken of before needs no look into the store.
    pub(super) fn find_waiting(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.waiting.clear();
        for entry in cx.prefix(STORE, shelf::HELD)? {
            self.waiting.extend(shelf::held_of(&entry?.0));
        }
        Ok(())
    }

    pub(super) fn held_for(&self, intake: &Intake, cx: &mut TxCx<'_>) -> Result<Vec<(Vec<u8>, Signal)>, TaskError> {
        let (op, tenant) = (&intake.request.operation_id, &intake.request.tenant);
        let mut found = Vec::new();
        if !self.waiting.contains(&op.root()) {
            return Ok(found);
        }
        for entry in cx.prefix(STORE, &shelf::held_prefix(&op.root()))? {
            let (key, stored) = entry?;
            let signal = held_signal(&stored)?;
            let ours = match &signal {
                Signal::Command(c) => {
                    let step = c.step.as_ref().is_none_or(|s| *s == intake.step);
                    c.operation_id == *op && step && (c.tenant.is_empty() || c.tenant == *tenant)
                }
                Signal::Approval(a) => a.operation_id == *op && a.tenant == *tenant,
            };
            if ours {
                found.push((key.to_vec(), signal));
            }
        }
        Ok(found)
    }
}

fn held_signal(stored: &Stored) -> Result<Signal, Error> {
    match stored.headers.text(headers::SCHEMA) {
        Some(s) if s == Approval::SCHEMA => Ok(Signal::Approval(decode(&stored.value)?)),
        _ => Ok(Signal::Command(decode(&stored.value)?)),
    }
}
