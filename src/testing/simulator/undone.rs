//! What was cancelled too late and undone: whether the books agree. Looks only at results, intents and books.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{OperationId, WireKey};
use crate::intents::{CallUndo, ResultRecord, Status, UndoState};
use crate::testing::checkers::{Intended, OpKey, Seen, last_states};
use crate::testing::target::FakeTarget;

/// What is not as it should be: no compensation without an effect that ended as superseded, or that its plan says is undone, at most one,
/// none that is overtaken by its original, and an original that is called undone is.
pub(super) fn wrong(results: &[Seen], intents: &[Intended], target: &FakeTarget) -> Vec<String> {
    let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
    let states = last_states(&records);
    let ends: BTreeMap<OperationId, Status> = states.iter().map(|(op, r)| (op.1.clone(), r.status)).collect();
    let by_plan: BTreeSet<OperationId> =
        states.values().flat_map(|r| r.undo.iter().flatten()).filter(ordered).map(|u| u.operation_id.clone()).collect();
    let undoable = |op: &OperationId| match ends.get(op) {
        Some(Status::Superseded) => true,
        Some(Status::Confirmed | Status::ResolvedApplied) => by_plan.contains(&op.undo()),
        _ => false,
    };
    let of_key = |key: &WireKey| intents.iter().find(|i| i.wire_key == *key).map(|i| &i.operation.1);
    let (orders, cancelled) = (target.books(), target.cancelled());
    let mut wrong = Vec::new();
    for c in &cancelled {
        let Some(op) = of_key(&c.order) else {
            wrong.push(format!("a cancellation of what nobody intended: {}", c.order));
            continue;
        };
        if !undoable(op) {
            wrong.push(format!("{op} was undone and ended as {:?}", ends.get(op).map(|s| s.word())));
        }
        if cancelled.iter().filter(|other| other.order == c.order).count() > 1 {
            wrong.push(format!("{op} was undone more than once"));
        }
        if orders.iter().any(|o| o.wire_key == c.order && o.applied_at > c.at) {
            wrong.push(format!("{op} was done again after it was undone"));
        }
    }
    let superseded = |(op, end): &(&OperationId, &Status)| **end == Status::Superseded && !by_parts(op, &ends);
    for (op, _) in ends.iter().filter(|of| superseded(of) || by_plan.contains(&of.0.undo())) {
        let key = intents.iter().find(|i| i.operation.1 == *op).map(|i| &i.wire_key);
        match (ends.get(&op.undo()), key) {
            (None, _) if by_plan.contains(&op.undo()) && told_why(op, &states) => {}
            (None, _) => wrong.push(format!("{op} is to be undone, and nothing was said of its compensation")),
            (Some(Status::Confirmed), Some(key)) if target.stands(key.as_str()) => {
                wrong.push(format!("{op} is called undone, and stands"));
            }
            _ => {}
        }
    }
    for (op, end) in ends.iter().filter(|(op, _)| op.is_undo()) {
        let original = op.undoes().and_then(|o| ends.get(&o));
        if !op.undoes().is_some_and(|o| undoable(&o)) {
            wrong.push(format!("{op} ended as {}, its original as {:?}", end.word(), original.map(|s| s.word())));
        }
    }
    wrong
}

fn ordered(undo: &&CallUndo) -> bool {
    undo.state != UndoState::NotOrdered
}

/// A plan whose calls were all undone has no effect of its own.
fn by_parts(op: &OperationId, ends: &BTreeMap<OperationId, Status>) -> bool {
    ends.contains_key(&op.child(1))
}

/// Whether the plan of a call says why it stays done after all.
fn told_why(op: &OperationId, states: &BTreeMap<OpKey, &ResultRecord>) -> bool {
    let mut all = states.values().flat_map(|r| r.undo.iter().flatten());
    all.any(|u| u.operation_id == op.undo() && u.state == UndoState::Stays && u.detail.is_some())
}
