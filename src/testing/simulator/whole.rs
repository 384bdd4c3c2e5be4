//! Plans of which what was done is undone if they can't be whole: at the end of each all of it stands, or none, or the plan says what does.
//! Looks only at results, intents and books.

use std::collections::BTreeMap;

use crate::ids::{OperationId, WireKey};
use crate::intents::{CallUndo, Flag, PlanCall, ResultRecord, Status, UndoState};
use crate::testing::checkers::{Intended, Seen, last_states};
use crate::testing::target::FakeTarget;
use crate::time::WallTime;

/// One plan that has ended, beside what the target has in its books.
struct Plan<'a> {
    told: &'a ResultRecord,
    calls: Vec<(&'a PlanCall, &'a CallUndo)>,
    states: &'a BTreeMap<&'a OperationId, &'a ResultRecord>,
    keys: &'a BTreeMap<&'a OperationId, &'a WireKey>,
    target: &'a FakeTarget,
}

/// What is not as it should be: a plan that is neither whole nor undone and does not say what stays, one that tells another end of a
/// compensation than that one itself, or a call that was undone from under one that stood on it.
pub(super) fn wrong(results: &[Seen], intents: &[Intended], target: &FakeTarget) -> Vec<String> {
    let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
    let last = last_states(&records);
    let states = last.iter().map(|(op, r)| (&op.1, *r)).collect();
    let keys = intents.iter().map(|i| (&i.operation.1, &i.wire_key)).collect();
    let ended = last.values().filter(|r| r.status.is_end());
    let plans = ended.filter_map(|r| Some((*r, r.calls.as_ref()?.iter().zip(r.undo.as_ref()?).collect())));
    plans.flat_map(|(told, calls)| Plan { told, calls, states: &states, keys: &keys, target }.wrong()).collect()
}

impl Plan<'_> {
    fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.calls.iter().filter_map(|(_, undo)| self.told_otherwise(undo)).collect();
        if !self.calls.iter().all(|(call, undo)| call.happened() && undo.state == UndoState::NotOrdered) {
            wrong.extend(self.calls.iter().filter_map(|(call, undo)| self.stands_unsaid(call, undo)));
        }
        for (call, _) in &self.calls {
            wrong.extend(self.all_that_needs(call).filter_map(|later| self.from_under(later, call)));
        }
        wrong
    }

    fn told_otherwise(&self, undo: &CallUndo) -> Option<String> {
        let end = self.states.get(&undo.operation_id).map(|r| r.status);
        let agree = match undo.state {
            UndoState::NotOrdered => end.is_none(),
            UndoState::Ordered => false,
            UndoState::Undone => matches!(end, Some(Status::Confirmed | Status::ResolvedApplied)),
            UndoState::Stays => matches!(end, None | Some(Status::ResolvedNotApplied)),
        };
        (!agree).then(|| format!("{} stands at {end:?}, its plan ended and says {:?}", undo.operation_id, undo.state))
    }

    /// A call that stands at the target although its plan was given up, and nobody is told to look.
    fn stands_unsaid(&self, call: &PlanCall, undo: &CallUndo) -> Option<String> {
        let key = self.keys.get(&call.operation_id)?;
        let flagged = self.states.get(&call.operation_id).is_some_and(|r| r.flags.contains(&Flag::Contradiction));
        // What nothing undoes stays done, and the plan must say so.
        let says_so = undo.by.is_none() && call.happened() && self.told.code.as_deref() == Some("RB0714");
        let a_person = says_so || undo.state == UndoState::Stays || call.end == Some(Status::ResolvedNotApplied) || flagged;
        let stands = self.target.stands(key.as_str()) && !a_person;
        stands.then(|| format!("{} stands, and its plan is neither whole nor says so", call.operation_id))
    }

    /// All calls that stand on one, directly or by way of others.
    fn all_that_needs(&self, call: &PlanCall) -> impl Iterator<Item = &PlanCall> {
        let mut ids = vec![call.id.clone()];
        for _ in &self.calls {
            let more = self.calls.iter().filter(|(c, _)| !ids.contains(&c.id) && c.needs.iter().any(|n| ids.contains(n)));
            let more: Vec<String> = more.map(|(c, _)| c.id.clone()).collect();
            ids.extend(more);
        }
        self.calls.iter().map(|(c, _)| *c).filter(move |c| ids[1..].contains(&c.id))
    }

    fn from_under(&self, later: &PlanCall, first: &PlanCall) -> Option<String> {
        let (begun, undone) = (self.undone_at(&later.operation_id), self.undone_at(&first.operation_id)?);
        let key = self.keys.get(&later.operation_id)?;
        let made = self.target.books().iter().filter(|b| b.wire_key == **key).map(|b| b.applied_at).min();
        let stays = self.calls.iter().any(|(c, u)| c.id == later.id && (u.state == UndoState::Stays || u.by.is_none()));
        let under = match (begun, made) {
            (Some(at), _) => at > undone,
            (None, Some(_)) => !stays && self.target.stands(key.as_str()),
            (None, None) => false,
        };
        under.then(|| format!("{} was undone while {} stood on it", first.operation_id, later.operation_id))
    }

    fn undone_at(&self, op: &OperationId) -> Option<WallTime> {
        let key = self.keys.get(op)?;
        self.target.cancelled().iter().filter(|c| c.order == **key).map(|c| c.at).min()
    }
}
