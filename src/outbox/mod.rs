//! The operation record: identity, commands, returns, intent writing. Every path to an effect passes it.

pub mod commands;
mod executing;
mod orders;
mod pipeline;
mod ports;
mod record;
mod returns;
mod rules;
mod turn;
mod undoing;

pub use orders::cut;
pub use pipeline::{
    AdmitRules, BudgetRule, CallRules, Does, DuplicateRules, EffectRules, GateRules, OnPartial, Pipeline, PlanRules, ToolRules,
    View, ViewFn,
};
pub use ports::{Ask, PolicyCheck, Rendered, Renderer};
pub use record::{Answered, Derived, HeldApproval, Likeness, OperationRecord, Planning, Role, Stage};
pub use returns::Closed;
pub use rules::{Rule, Settings};
pub use turn::{CallRef, DeadLetter, Output, Turn, Why, message, unknown_operation};
pub use undoing::Undoing;
