//! What was cancelled too late and undone: whether the books agree. Looks only at results, intents and books.

use std::collections::BTreeMap;

use crate::ids::{OperationId, WireKey};
use crate::intents::{ResultRecord, Status};
use crate::testing::checkers::{Intended, Seen, last_states};
use crate::testing::target::FakeTarget;

/// What is not as it should be: no compensation without an effect that ended as superseded, at most one, none that is overtaken by its
/// original, and an original that is called undone is.
pub(super) fn wrong(results: &[Seen], intents: &[Intended], target: &FakeTarget) -> Vec<String> {
    let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
    let ends: BTreeMap<OperationId, Status> = last_states(&records).into_iter().map(|(op, r)| (op.1, r.status)).collect();
    let of_key = |key: &WireKey| intents.iter().find(|i| i.wire_key == *key).map(|i| &i.operation.1);
    let (orders, cancelled) = (target.books(), target.cancelled());
    let mut wrong = Vec::new();
    for c in &cancelled {
        let Some(op) = of_key(&c.order) else {
            wrong.push(format!("a cancellation of what nobody intended: {}", c.order));
            continue;
        };
        if ends.get(op) != Some(&Status::Superseded) {
            wrong.push(format!("{op} was undone and ended as {:?}", ends.get(op).map(|s| s.word())));
        }
        if cancelled.iter().filter(|other| other.order == c.order).count() > 1 {
            wrong.push(format!("{op} was undone more than once"));
        }
        if orders.iter().any(|o| o.wire_key == c.order && o.applied_at > c.at) {
            wrong.push(format!("{op} was done again after it was undone"));
        }
    }
    for (op, _) in ends.iter().filter(|(_, end)| **end == Status::Superseded) {
        let key = intents.iter().find(|i| i.operation.1 == *op).map(|i| &i.wire_key);
        match (ends.get(&op.undo()), key) {
            (None, _) => wrong.push(format!("{op} is superseded, and nothing was said of its compensation")),
            (Some(Status::Confirmed), Some(key)) if target.stands(key.as_str()) => {
                wrong.push(format!("{op} is called undone, and stands"));
            }
            _ => {}
        }
    }
    for (op, end) in ends.iter().filter(|(op, _)| op.is_undo()) {
        let original = op.undoes().and_then(|o| ends.get(&o));
        if original != Some(&Status::Superseded) {
            wrong.push(format!("{op} ended as {}, its original as {:?}", end.word(), original.map(|s| s.word())));
        }
    }
    wrong
}
