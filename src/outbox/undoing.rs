//! A plan that can't be whole, where its step chose that what was done of it is undone: what is under way is told to stop, and the owner of
//! each call's ledger record is told to undo what has happened. Pure.

use serde::{Deserialize, Serialize};

use crate::error::codes;
use crate::ids::CommandId;
use crate::intents::{CallUndo, CommandKind, Control, ControlKind, Return, Status, UndoState};

use super::record::{Derived, Role};
use super::turn::{Output, Turn, Why};

/// How a plan is undone that can't be whole: as it was approved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Undoing {
    /// The plan can't be whole: nothing of it begins any more, and what was done is undone. Never taken back.
    pub stopped: bool,
    /// Its calls, in the plan's order.
    pub calls: Vec<CallUndo>,
}

impl Turn<'_> {
    /// Takes over what the ledgers' owners have said of compensations: those that were ordered here, and those that they wrote by
    /// themselves for a call that was cancelled too late.
    pub(super) fn fold_undos(&mut self) {
        let (Some(undoing), derived) = (&mut self.record.undo, &self.record.derived) else { return };
        for undo in &mut undoing.calls {
            let Some(of) = derived.iter().find(|d| d.role == Role::Undo && d.operation_id == undo.operation_id) else { continue };
            (undo.state, undo.detail) = match of.end {
                None => (UndoState::Ordered, None),
                Some(Status::Confirmed | Status::ResolvedApplied) => (UndoState::Undone, None),
                Some(end) => (UndoState::Stays, undo.detail.take().or(Some(why_it_stays(end)))),
            };
        }
    }

    /// The call for whose sake the plan can't be whole; none where it still can, where that was seen before, or where what was done stays.
    pub fn spoiled_by(&self) -> Option<usize> {
        self.record.undo.as_ref().filter(|u| !u.stopped)?;
        self.record.calls.iter().position(|c| c.end.is_some() && !c.happened())
    }

    /// From here on nothing of the plan begins, and what was done is undone.
    pub(super) fn stop(&mut self) {
        if let Some(undoing) = &mut self.record.undo {
            undoing.stopped = true;
        }
    }

    /// Gives the plan up, once, for the sake of a call that ended without having happened: what has not begun is left out, what is under
    /// way is told to stop. Whether it did happen, its owner says.
    pub fn give_up(&mut self, because: usize) {
        let Some(first) = self.record.calls.get(because) else { return };
        let end = first.end.map_or("unknown", Status::word);
        let words = format!("{} ({}) ended as {end}, so the plan can't be whole and is undone", first.id, first.operation_id);
        self.stop();
        let open: Vec<Derived> = self.record.derived.iter().filter(|d| d.role == Role::Call && d.end.is_none()).cloned().collect();
        for to in open {
            let id = CommandId::from(format!("undo/{}", to.operation_id));
            let command = self.own(id, CommandKind::Cancel, &to, words.clone());
            self.forward(&to, command);
        }
        self.end_waiting_calls(Status::Cancelled, |_| Why::new(codes::CALL_LEFT_OUT, words.clone()));
    }

    /// Tells a call's owner to undo it. That it was told stands in the record by the same commit, so it is told once.
    pub fn order_undo(&mut self, call: usize) {
        let r = &mut self.record;
        let (Some(call), Some(undo)) = (r.calls.get(call), r.undo.as_mut().and_then(|u| u.calls.get_mut(call))) else { return };
        let of = r.derived.iter().find(|d| d.role == Role::Call && d.operation_id == call.operation_id).cloned();
        let Some(of) = of.filter(|d| !d.gone) else {
            (undo.state, undo.detail) = (UndoState::Stays, Some(GONE.to_owned()));
            return;
        };
        undo.state = UndoState::Ordered;
        let to = undo.operation_id.clone();
        r.derived.push(Derived { role: Role::Undo, operation_id: to, end: None, closed_at: None, ..of.clone() });
        let order = Control { identity_hash: Some(r.identity_hash.clone()), ..self.control(ControlKind::Undo, &of) };
        self.out.push(Output::Control(Box::new(order), of.partition));
    }

    /// Its owner could not write the compensation, and says why: there is no record of it that could ever be gone.
    pub(super) fn undo_refused(&mut self, back: &Return) {
        if let Some(d) = self.record.derived.iter_mut().find(|d| d.operation_id == back.operation_id) {
            d.gone = true;
        }
        let calls = self.record.undo.iter_mut().flat_map(|u| &mut u.calls);
        if let Some(undo) = calls.into_iter().find(|u| u.operation_id == back.operation_id) {
            undo.detail.clone_from(&back.body);
        }
    }
}

const GONE: &str = "its ledger record is gone";

fn why_it_stays(end: Status) -> String {
    match end {
        Status::ResolvedNotApplied => "a person said that it was not undone".to_owned(),
        Status::Stale => GONE.to_owned(),
        end => format!("its compensation ended as {}", end.word()),
    }
}
