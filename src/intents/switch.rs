//! Pausing: what may not be sent for now, by order of a person. JSON, in the commands topic and from there in each control partition.

use serde::{Deserialize, Serialize};

use crate::ids::{CallName, CommandId, ContractName, OperationId, StepName, Tenant};
use crate::time::WallTime;

/// What is paused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All sends of the application.
    Everything,
    /// A contract (`mail`), or one of its calls (`mail#send`).
    Target(String),
    /// A tenant.
    Tenant(Tenant),
    /// An effect step, or the step of a plan's model call.
    Step(StepName),
}

impl Scope {
    /// Whether a call is meant.
    pub fn covers(&self, contract: &ContractName, call: &CallName, tenant: &Tenant, step: &StepName) -> bool {
        match self {
            Scope::Everything => true,
            Scope::Target(target) => match target.split_once('#') {
                Some((name, of)) => contract.as_str() == name && call.as_str() == of,
                None => contract.as_str() == target,
            },
            Scope::Tenant(t) => t == tenant,
            Scope::Step(s) => s == step,
        }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scope::Everything => f.write_str("everything"),
            Scope::Target(target) => write!(f, "target/{target}"),
            Scope::Tenant(tenant) => write!(f, "tenant/{tenant}"),
            Scope::Step(step) => write!(f, "step/{step}"),
        }
    }
}

/// An order to pause or to go on; the last one for a scope counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Switch {
    /// Its own ID.
    pub command_id: CommandId,
    /// What it is about.
    pub scope: Scope,
    /// Whether it pauses.
    pub paused: bool,
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: WallTime,
}

impl Switch {
    /// What the header `rb_schema` says of it.
    pub const SCHEMA: &'static str = "switch/1";

    /// The key by which it finds its partition of the commands topic; no operation can have it.
    pub fn key(&self) -> OperationId {
        OperationId::from(format!("switch/{}", self.scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a pause would stop the wrong work, or nothing.
    #[test]
    fn a_scope_covers_what_it_names() {
        let covers = |scope: Scope| scope.covers(&"mail".into(), &"send".into(), &"acme".into(), &"notify".into());
        for scope in [
            Scope::Everything,
            Scope::Target("mail".into()),
            Scope::Target("mail#send".into()),
            Scope::Tenant("acme".into()),
            Scope::Step("notify".into()),
        ] {
            assert!(covers(scope.clone()), "{scope}");
        }
        for scope in [
            Scope::Target("mai".into()),
            Scope::Target("mail#void".into()),
            Scope::Tenant("notify".into()),
            Scope::Step("acme".into()),
        ] {
            assert!(!covers(scope.clone()), "{scope}");
        }
    }
}
