//! The way back of a plan that can't be whole: which call is undone next. Pure.

use std::collections::BTreeSet;

use crate::intents::{CallState, CallUndo, PlanCall, Status, UndoState};
use crate::outbox::Undoing;

/// The next call to undo, the last in the plan's order; nothing while the plan can still be whole, and while all that is left waits for
/// something that is under way. A call is undone when nothing stands on it any more.
pub fn next(calls: &[PlanCall], undoing: &Undoing) -> Option<usize> {
    let held = held(calls, undoing);
    last_due(calls, undoing, |call| !held.contains(call.id.as_str()))
}

/// The same where nobody looks at what stands on what: what a test sees the harm of.
pub fn next_of_any(calls: &[PlanCall], undoing: &Undoing) -> Option<usize> {
    last_due(calls, undoing, |_| true)
}

fn last_due(calls: &[PlanCall], undoing: &Undoing, free: impl Fn(&PlanCall) -> bool) -> Option<usize> {
    let due = |(call, undo): (&PlanCall, &CallUndo)| call.happened() && undo.is_due() && free(call);
    calls.iter().zip(&undoing.calls).rposition(due).filter(|_| undoing.stopped)
}

/// Whether it stands, or may: what it needs is not taken away from under it. One that nothing undoes, or whose undoing has come to its end,
/// whichever, holds nothing back: else one of them would keep all that was done before it.
fn stands((call, undo): (&PlanCall, &CallUndo)) -> bool {
    let happened = call.happened() && (undo.is_due() || undo.state == UndoState::Ordered);
    let cancelled_late = call.end == Some(Status::Superseded) && undo.state != UndoState::Undone && undo.state != UndoState::Stays;
    call.state == CallState::Begun || happened || cancelled_late
}

/// All that calls which stand need, directly or by way of others.
fn held<'a>(calls: &'a [PlanCall], undoing: &Undoing) -> BTreeSet<&'a str> {
    let mut open: Vec<&PlanCall> = calls.iter().zip(&undoing.calls).filter(|c| stands(*c)).map(|(call, _)| call).collect();
    let mut held = BTreeSet::new();
    while let Some(call) = open.pop() {
        for id in &call.needs {
            if held.insert(id.as_str()) {
                open.extend(calls.iter().find(|c| c.id == *id));
            }
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::drawn::{Drawn, calls};

    /// A plan that can't be whole; calls without an end are under way.
    fn plan(drawn: &[Drawn<'_>]) -> (Vec<PlanCall>, Undoing) {
        let calls = calls(drawn, CallState::Begun);
        let undo = |c: &PlanCall| CallUndo {
            id: c.id.clone(),
            operation_id: c.operation_id.undo(),
            by: Some("cancel".into()),
            state: UndoState::NotOrdered,
            detail: None,
        };
        let undoing = Undoing { stopped: true, calls: calls.iter().map(undo).collect() };
        (calls, undoing)
    }

    const DONE: Option<Status> = Some(Status::Confirmed);
    const NOT: Option<Status> = Some(Status::Refused);

    /// All that may be undone now, in the order in which it is ordered.
    fn ordered(calls: &[PlanCall], undoing: &mut Undoing) -> Vec<String> {
        let mut ordered = Vec::new();
        while let Some(i) = next(calls, undoing) {
            undoing.calls[i].state = UndoState::Ordered;
            ordered.push(calls[i].id.clone());
        }
        ordered
    }

    /// If this broke, a call would be undone from under one that stands on it.
    #[test]
    fn what_was_done_last_is_undone_first() {
        let (calls, mut undoing) = plan(&[
            ("d", &["b", "c"], DONE),
            ("a", &[], DONE),
            ("b", &["a"], DONE),
            ("c", &["a"], Some(Status::ResolvedApplied)),
            ("e", &["d"], NOT),
        ]);
        assert_eq!(ordered(&calls, &mut undoing), ["d"], "e never was");
        assert!(ordered(&calls, &mut undoing).is_empty(), "ordered is not undone");
        undoing.calls[0].state = UndoState::Undone;
        assert_eq!(ordered(&calls, &mut undoing), ["c", "b"], "beside each other");
        undoing.calls[3].state = UndoState::Undone;
        assert!(ordered(&calls, &mut undoing).is_empty(), "a waits for both");
        undoing.calls[2].state = UndoState::Stays;
        assert_eq!(ordered(&calls, &mut undoing), ["a"], "a person said that b stays: that is an end, too");
    }

    /// If this broke, what an unknown call needs would be taken away although it may have happened; or all would wait for it that has
    /// nothing to do with it.
    #[test]
    fn what_an_unknown_call_needs_waits_until_it_is_known() {
        let unknown = |end| plan(&[("a", &[], DONE), ("b", &["a"], DONE), ("u", &["b"], end), ("x", &[], DONE), ("n", &[], NOT)]);
        let (calls, mut undoing) = unknown(None);
        assert_eq!(ordered(&calls, &mut undoing), ["x"]);
        let (calls, mut undoing) = unknown(NOT);
        assert_eq!(ordered(&calls, &mut undoing), ["x", "b"]);
        let (calls, mut undoing) = unknown(DONE);
        assert_eq!(ordered(&calls, &mut undoing), ["x", "u"]);
        let (calls, mut undoing) = unknown(Some(Status::Superseded));
        assert_eq!(ordered(&calls, &mut undoing), ["x"], "its owner undoes it already");
        undoing.calls[2].state = UndoState::Undone;
        assert_eq!(ordered(&calls, &mut undoing), ["b"]);
    }

    /// If this broke, a call that nothing undoes would keep everything that was done before it, or hide what stands beyond it.
    #[test]
    fn what_nothing_undoes_holds_back_nothing_by_itself() {
        let (calls, mut undoing) = plan(&[("a", &[], DONE), ("mail", &["a"], DONE), ("c", &["mail"], DONE), ("n", &[], NOT)]);
        undoing.calls[1].by = None;
        assert_eq!(ordered(&calls, &mut undoing), ["c"], "a waits for c, which stands on it by way of the mail");
        undoing.calls[2].state = UndoState::Undone;
        assert_eq!(ordered(&calls, &mut undoing), ["a"]);
    }

    /// If this broke, a plan that can still be whole would be undone on its way.
    #[test]
    fn while_the_plan_can_be_whole_nothing_is_undone() {
        let (calls, mut undoing) = plan(&[("a", &[], DONE), ("b", &["a"], None)]);
        undoing.stopped = false;
        assert_eq!(next(&calls, &undoing), None);
    }
}
