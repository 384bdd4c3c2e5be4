//! Plans as tests draw them: the calls of a record, by name, what they need, and their end.

use crate::intents::{CallState, PlanCall, Status};

/// A call: its name, what it needs, its end.
pub(super) type Drawn<'a> = (&'a str, &'a [&'a str], Option<Status>);

/// The calls of a plan; those without an end stand `open`.
pub(super) fn calls(drawn: &[Drawn<'_>], open: CallState) -> Vec<PlanCall> {
    let call = |(i, (id, needs, end)): (usize, &Drawn<'_>)| PlanCall {
        id: (*id).to_owned(),
        operation_id: format!("op.{}", i + 1).into(),
        tool: "t".into(),
        contract: "c".into(),
        call: "k".into(),
        needs: needs.iter().map(|n| (*n).to_owned()).collect(),
        state: if end.is_some() { CallState::Ended } else { open },
        end: *end,
        code: None,
        detail: None,
    };
    drawn.iter().enumerate().map(call).collect()
}
