//! Plans of several calls: whether their calls were made in the order, and under the decision, that the plan says. Looks only at results,
//! intents and books.

use std::collections::BTreeMap;

use crate::ids::OperationId;
use crate::intents::{PlanCall, ResultRecord, Status};
use crate::testing::checkers::{BookEntry, Intended, Seen, last_states};

use super::schedule::{App, Class, Schedule};

/// What is not as it should be: a call that was sent before what it needs had happened, one of a plan that nobody let pass, a parent that
/// tells another end of a call than the call itself, or one that forgot a call.
pub(super) fn wrong(schedule: &Schedule, results: &[Seen], intents: &[Intended], books: &[BookEntry]) -> Vec<String> {
    if !matches!(schedule.app, App::Plans | App::PlansUndone) {
        return Vec::new();
    }
    let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
    let states = last_states(&records);
    let ends: BTreeMap<&OperationId, Status> = states.iter().map(|(op, r)| (&op.1, r.status)).collect();
    let mut wrong = Vec::new();
    for (op, parent) in states.iter().filter(|(op, _)| !op.1.is_derived()) {
        let calls = parent.calls.as_deref().unwrap_or_default();
        for call in calls {
            wrong.extend(too_early(call, calls, &ends, intents, books));
            if parent.status.is_end() && call.end.is_none() {
                wrong.push(format!("{} ended, and nothing was said of {}", op.1, call.operation_id));
            }
            let said = ends.get(&call.operation_id);
            if call.end.is_some() && said.is_some() && call.end != said.copied() {
                wrong.push(format!("{} ended as {said:?}, its plan says {:?}", call.operation_id, call.end));
            }
        }
    }
    let forbidden = |class| matches!(class, Class::DeniedByPerson | Class::Denied | Class::Unanswered);
    for planned in schedule.operations.iter().filter(|p| forbidden(p.class)) {
        let begun = intents.iter().filter(|i| i.operation.1.root() == planned.id());
        wrong.extend(begun.map(|i| format!("{} was begun, and nobody let its plan pass", i.operation.1)));
    }
    wrong
}

/// A call with an intent, or in the books, before each call that it needs had happened.
fn too_early(
    call: &PlanCall,
    calls: &[PlanCall],
    ends: &BTreeMap<&OperationId, Status>,
    intents: &[Intended],
    books: &[BookEntry],
) -> Vec<String> {
    let key = |op: &OperationId| intents.iter().find(|i| i.operation.1 == *op).map(|i| &i.wire_key);
    let made = |op: &OperationId| books.iter().filter(|b| key(op) == Some(&b.wire_key)).map(|b| b.applied_at).min();
    let Some(_) = key(&call.operation_id) else { return Vec::new() };
    let needs = calls.iter().filter(|c| call.needs.contains(&c.id));
    let early = needs.filter(|first| {
        let happened = matches!(ends.get(&first.operation_id), Some(Status::Confirmed | Status::ResolvedApplied));
        let overtaken = made(&call.operation_id).is_some_and(|at| made(&first.operation_id).is_none_or(|first| first > at));
        !happened || overtaken
    });
    early.map(|first| format!("{} was begun before {} had happened", call.operation_id, first.operation_id)).collect()
}
