//! A request that comes back from the dead letters. One whose operation has ended is a new operation, `<id>.r<k>`: with its own
//! deadline, plan, approval and key on the wire. What was decided about the first one does not carry over.

use crate::error::codes;
use crate::ids::OperationId;
use crate::intents::{Intake, Status, WorkRequest};
use crate::outbox::{DeadLetter, OperationRecord, Output, Stage, Why, message};
use crate::task::{TaskError, TxCx};

use super::shelf;
use super::step::Event;
use super::task::OperationTask;

/// What becomes of a request for an operation that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Again {
    /// It is worked on under this ID.
    As(OperationId),
    /// This replay is it already: the request was delivered twice.
    Known(OperationId),
    /// It is not worked on.
    No(Why),
}

/// Decides: only what has ended for good and did not happen, one at a time, and only the same content.
pub(super) fn again(original: &OperationRecord, replays: &[OperationRecord], request: &WorkRequest) -> Again {
    let no = |words: String| Again::No(Why::new(codes::REPLAY_REFUSED, words));
    if let Some(known) = replays.iter().find(|r| r.request.message_id == request.message_id) {
        return Again::Known(known.request.operation_id.clone());
    }
    let first =
        WorkRequest { deadline: original.request.deadline, approval_ref: original.request.approval_ref.clone(), ..request.clone() };
    if first.identity() != original.identity_hash {
        return no("its content is not that of the operation that ended".into());
    }
    for r in std::iter::once(original).chain(replays) {
        let id = &r.request.operation_id;
        if r.happened() {
            return no(format!("{id} ended as {}: its effect exists", r.status.word()));
        }
        if r.stage != Stage::Ended || r.derived.iter().any(|d| d.end.is_none()) {
            return no(format!("{id} is at work ({})", r.status.word()));
        }
    }
    let last = replays.iter().filter_map(|r| r.request.operation_id.replay_number()).max().unwrap_or(0);
    Again::As(original.request.operation_id.replay(last + 1))
}

impl OperationTask {
    /// A request from the dead letters; without a record of its operation it is as any other.
    pub(super) fn replayed(&mut self, mut intake: Intake, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        // The letter of a replay stands for the first one too.
        if intake.request.operation_id.replay_number().is_some() {
            intake.request.operation_id = intake.request.operation_id.root();
        }
        let (op, tenant, step) = (intake.request.operation_id.clone(), intake.request.tenant.clone(), intake.step.clone());
        let Some(original) = shelf::load(cx, &shelf::record_key(&op, &tenant, &step))?
            // What made the record itself is delivered twice: a duplicate like any other.
            .filter(|r| r.stage == Stage::Ended && r.request.message_id != intake.request.message_id)
        else {
            return self.intake(intake, cx);
        };
        let mut replays = shelf::replays_of(cx, &op)?;
        replays.retain(|r| r.request.tenant == tenant && r.step == step);
        match again(&original, &replays, &intake.request) {
            Again::No(why) => {
                let now = cx.now().wall;
                self.write(message(&intake.request, &step, Status::Invalid, &why, now), &[], cx)?;
                self.write(Output::DeadLetter(Box::new(DeadLetter::of(&intake, why))), &[], cx)
            }
            Again::As(id) | Again::Known(id) => {
                intake.request.operation_id = id;
                intake.request.approval_ref = None;
                let key = shelf::record_key(&intake.request.operation_id, &tenant, &step);
                let record = shelf::load(cx, &key)?;
                let held = if record.is_none() { self.held_for(&intake, cx)? } else { Vec::new() };
                let signals = held.iter().map(|(_, s)| s.clone()).collect();
                if self.advance(&key, record, Event::Replay(Box::new(intake), signals), cx)? {
                    held.iter().try_for_each(|(key, _)| shelf::delete(cx, key))?;
                }
                Ok(())
            }
        }
    }
}
