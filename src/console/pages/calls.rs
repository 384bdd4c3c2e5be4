//! The calls of a plan: what each is, what it needs, where it stands.

use maud::{Markup, html};

use crate::console::shown::Called;
use crate::ids::{OperationId, OperationKey};

use super::{layout, link};

/// All calls of a plan; nothing where it has one only.
pub fn table(of: &OperationKey, calls: &[Called]) -> Markup {
    html! {
        @if !calls.is_empty() {
            table aria-label="Calls of the plan" {
                thead { tr { th { "Call" } th { "Operation" } th { "Target" } th { "Needs" } th { "Stands" } } }
                tbody { @for call in calls { (row(of, call)) } }
            }
            p.soft { "One approval is for all of them. A call begins when all that it needs is confirmed; else it is left out." @if calls.iter().any(|c| c.undo.is_some()) { " If the plan can't be whole, what was done of it is undone, the last first." } }
        }
    }
}

fn row(of: &OperationKey, call: &Called) -> Markup {
    let key = OperationKey { operation: OperationId::new(&call.operation), ..of.clone() };
    html! {
        tr {
            td { (call.id) }
            td { @if call.begun { a href=(link(&key)) { (call.operation) } } @else { (call.operation) } }
            td { (call.target) }
            td { (call.needs.join(", ")) }
            td { (layout::pill(&call.stands)) @if let Some(why) = &call.detail { " " span.soft { (why) } } @if let Some(code) = &call.code { " " (layout::code_mark(code)) } @if let Some(undo) = &call.undo { " " span.soft { (undo) } } }
        }
    }
}

/// The operation that this one is there for, where it is derived of another.
pub fn parent(key: &OperationKey) -> Markup {
    let to = |operation: OperationId| {
        let of = OperationKey { operation, ..key.clone() };
        html! { a href=(link(&of)) { (of.operation) } }
    };
    let keeper = || to(key.operation.keeper());
    html! {
        @if key.operation.child_number().is_some() {
            p { "One call of the plan of " (keeper()) ". That one's page shows all calls, and the approval that is for all." }
        } @else if key.operation.is_plan() {
            p { "A model's call for a proposal. What comes of it is decided at " (keeper()) "." }
        } @else if let Some(original) = key.operation.undoes() {
            p { "The compensation of " (to(original)) "." }
        }
    }
}
