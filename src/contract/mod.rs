//! The effect contract: what one target API can prove. Parsed, linted and asked here; pure.

mod answers;
mod answers_file;
mod call;
mod compensate;
mod compiled;
mod fence;
mod judge;
mod lint;
mod model;
mod params;
mod precondition;
mod promise;
mod read;
mod request;
mod shape;
mod sign;
mod template;
mod webhook;

use std::path::Path;

use crate::config::yaml::{self, Diagnostics, Node};

pub use answers::{Proposed, RetryAfter};
pub use compensate::Undo;
pub use judge::Verdict;
pub use model::{
    Age, Assumption, Bound, Budget, Call, Carrier, Compensate, Completion, Confirm, Contract, Credentials, Dedupe, Fence,
    KeyFormat, KeySpec, LaneRule, Parameters, Precondition, Protocol, Readback, Retention, StampFormat, Target, Unprovable,
    Webhook,
};
pub use precondition::same_version;
pub use promise::Promise;
pub use shape::schema;
pub use webhook::{Scheme, Told, Unbelieved};

/// Reads a contract file; every error of it at once.
pub fn load(path: &Path) -> Result<Contract, Diagnostics> {
    checked(&yaml::load(path)?)
}

/// Reads a contract from `text`; `name` is shown as its path.
pub fn parse(name: &str, text: &str) -> Result<Contract, Diagnostics> {
    checked(&yaml::parse(name, text)?)
}

fn checked(root: &Node) -> Result<Contract, Diagnostics> {
    let mut d = Diagnostics::new();
    let contract = read::contract(root, &mut d);
    let warnings = d.clone();
    d.or(contract).map(|contract| Contract { warnings, ..contract })
}

#[cfg(test)]
mod tests;
