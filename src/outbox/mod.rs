//! The operation record: identity, commands, returns, intent writing. Every path to an effect passes it.

mod pipeline;

pub use pipeline::{AdmitRules, BudgetRule, EffectRules, GateRules, Pipeline, PlanRules, View, ViewFn};
