//! Operations that stand around one: the model call that its plan comes of, and what undoes it or the calls of its plan. Each has records
//! of its own, so whoever shows one looks for the others. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::views::Seen;
use crate::ids::{OperationId, OperationKey};
use crate::intents::Status;
use crate::outbox::{Derived, Role};
use crate::time::WallTime;

use super::why;

/// Where an operation stands, as far as it has to be known beside another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stands {
    /// Its status; none: only commands came so far.
    pub status: Option<Status>,
    /// Why it stands there.
    pub code: Option<String>,
    /// In words.
    pub detail: Option<String>,
    /// Since when.
    pub since: WallTime,
}

impl Stands {
    /// As its own records have it.
    pub fn of(seen: &Seen) -> Self {
        let (code, detail) = why(seen);
        Self { status: seen.status(), code, detail, since: super::changed_at(seen) }
    }
    fn word(&self) -> &'static str {
        self.status.map_or("held", Status::word)
    }
}

/// The model call of an operation: an operation of its own, `<id>.plan`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ModelCall {
    /// Its operation.
    pub operation: String,
    /// Its step.
    pub step: String,
    /// Where it stands.
    pub status: String,
    /// Why it stands there.
    pub code: Option<String>,
    /// In words.
    pub detail: Option<String>,
}

/// What undoes an operation, or a call of its plan: an operation of its own, `<id>.undo`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Compensation {
    /// Its operation.
    pub operation: String,
    /// Its step.
    pub step: String,
    /// Where it stands.
    pub status: String,
    /// What that means for what it undoes, in words.
    pub words: String,
    /// Since when.
    #[serde(skip)]
    pub since: Option<WallTime>,
}

impl Compensation {
    fn of(key: &OperationKey, stands: &Stands) -> Self {
        let (operation, step, status) = (key.operation.to_string(), key.step.to_string(), stands.word().to_owned());
        Self { words: words(&operation, stands.status), operation, step, status, since: Some(stands.since) }
    }
    /// Whether a person must say what became of it.
    pub fn waits_for_a_person(&self) -> bool {
        self.status == Status::Parked.word()
    }
    fn is_of(&self, operation: &OperationId) -> bool {
        self.operation == operation.as_str()
    }
}

fn words(operation: &str, status: Option<Status>) -> String {
    match status {
        Some(Status::Confirmed | Status::ResolvedApplied) => format!("undone by {operation}"),
        Some(Status::Parked) => format!("its undoing waits for a person: {operation} is parked"),
        Some(end) if end.is_end() => format!("stays done: {operation} ended as {}", end.word().replace('_', " ")),
        _ => format!("being undone by {operation}"),
    }
}

/// All of them, of one operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Around {
    /// The model call, where it has one.
    pub model: Option<ModelCall>,
    /// What undoes it, where that was ordered.
    pub undone_by: Option<Compensation>,
    /// What undoes the calls of its plan, as far as that was ordered.
    pub undoing: Vec<Compensation>,
}

impl Around {
    /// As `look` finds them; of a model call that is not found the operation's own record knows how it ended.
    pub fn of(key: &OperationKey, seen: &Seen, look: impl Fn(&OperationKey) -> Option<Stands>) -> Self {
        let of = |operation: OperationId| OperationKey { operation, ..key.clone() };
        let compensation = |key: OperationKey| look(&key).map(|stands| Compensation::of(&key, &stands));
        let undo = seen.ledger.as_ref().filter(|_| key.operation.undoes().is_none()).map(|_| of(key.operation.undo()));
        let derived = |role| seen.record.iter().flat_map(|r| &r.derived).filter(move |d| d.role == role);
        let own = key.operation.undo();
        let at = |d: &Derived| OperationKey { operation: d.operation_id.clone(), step: d.step.clone(), ..key.clone() };
        Self {
            model: derived(Role::Plan).next().map(|d| model_call(&at(d), d, &look)),
            undone_by: undo.and_then(compensation),
            undoing: derived(Role::Undo).filter(|d| d.operation_id != own).filter_map(|d| compensation(at(d))).collect(),
        }
    }
    /// What undoes a call of its plan.
    pub(super) fn undoing(&self, operation: &OperationId) -> Option<&Compensation> {
        self.undoing.iter().find(|u| u.is_of(operation))
    }
}

fn model_call(key: &OperationKey, plan: &Derived, look: impl Fn(&OperationKey) -> Option<Stands>) -> ModelCall {
    let (operation, step) = (key.operation.to_string(), key.step.to_string());
    match look(key) {
        Some(s) => ModelCall { operation, step, status: s.word().to_owned(), code: s.code, detail: s.detail },
        None => {
            ModelCall { operation, step, status: plan.end.map_or("under_way", Status::word).to_owned(), code: None, detail: None }
        }
    }
}
