//! Tries a contract against a sandbox: makes real effects there, reads them back, and says of each claim of the file whether it
//! holds. It shows what the target did today; bounds in flight and how long a key is remembered are beyond any probe.

mod ask;
mod fences;
mod play;
mod vary;

use std::time::Duration;

use serde::Serialize;

use crate::contract::{Call, Contract, Parameters};
use crate::error::{Error, Fault, Result, codes};
use crate::http::HttpPort;
use crate::ids::CallName;

/// What was found of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The target did as the file says.
    Holds,
    /// It did not.
    DoesNotHold,
    /// The target gave no occasion to see it.
    NotTried,
}

impl Finding {
    /// As people read it.
    pub fn words(self) -> &'static str {
        match self {
            Finding::Holds => "holds",
            Finding::DoesNotHold => "DOES NOT HOLD",
            Finding::NotTried => "could not be tried",
        }
    }
}

/// One claim of the file, and what was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Claim {
    /// Which: `dedupe`, `lag` …
    pub name: &'static str,
    /// What the file says.
    pub says: String,
    /// What was found.
    pub finding: Finding,
    /// What was seen.
    pub evidence: String,
}

/// An effect that was made, or may have been, for whoever cleans up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Made {
    /// The key on the wire.
    pub key: String,
    /// The target's reference of it, where it told one.
    pub reference: Option<String>,
    /// Whether an answer says that it is there; else nobody knows.
    pub certain: bool,
}

/// What a probe came to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// Each claim in the order in which it was tried.
    pub claims: Vec<Claim>,
    /// What was made.
    pub made: Vec<Made>,
    /// Whether the target answered at all.
    pub reached: bool,
}

impl Report {
    /// Whether any claim was found not to hold.
    pub fn is_broken(&self) -> bool {
        self.claims.iter().any(|c| c.finding == Finding::DoesNotHold)
    }
    /// The claim of this name.
    pub fn claim(&self, name: &str) -> Option<&Claim> {
        self.claims.iter().find(|c| c.name == name)
    }
}

/// What is tried, and with what.
pub struct Probe<'a> {
    /// The contract.
    pub contract: &'a Contract,
    /// Its call.
    pub call: &'a Call,
    /// Parameters that the sandbox takes.
    pub parameters: Parameters,
    /// The version of the resource, where the call holds for one version only.
    pub resource_version: Option<String>,
    /// ε: how wrong a clock may be.
    pub clock_error: Duration,
}

impl<'a> Probe<'a> {
    /// A probe of one call.
    ///
    /// # Errors
    /// `UNKNOWN_REFERENCE` where there is no such call, `REQUEST_INVALID` where it can't be made from these parameters.
    pub fn new(contract: &'a Contract, call: &CallName, parameters: Parameters, version: Option<String>) -> Result<Self> {
        let found = contract.call(call).ok_or_else(|| {
            let names: Vec<&str> = contract.calls.keys().map(CallName::as_str).collect();
            Error::new(
                codes::UNKNOWN_REFERENCE,
                Fault::Configuration,
                format!("looking for `{call}` in contract `{}`", contract.name),
            )
            .next(format!("it has: {}", names.join(", ")))
        })?;
        let probe = Self { contract, call: found, parameters, resource_version: version, clock_error: Duration::from_millis(250) };
        let wrong = |e: Error| Error { fault: Fault::Configuration, ..e }.next("give what the call needs with --set name=value");
        probe.render(&probe.key("check"), &probe.parameters).map_err(wrong)?;
        Ok(probe)
    }

    /// How many effects it makes where the target keeps its word, and how many more where it does not.
    pub fn effects(&self) -> (usize, usize) {
        let kept = 1
            + usize::from(self.call.readback.is_some())
            + usize::from(self.call.dedupe.is_some())
            + usize::from(self.call.compensate.is_some());
        let broken = 1
            + 3 * usize::from(self.call.dedupe.is_some())
            + usize::from(self.call.refuses_copies())
            + usize::from(self.call.fence.is_some());
        (kept, broken)
    }

    /// Makes the effects and looks.
    ///
    /// # Errors
    /// A secret that can't be read, a readback that can't be rendered.
    pub fn run(&self, port: &dyn HttpPort) -> Result<Report> {
        play::run(self, port)
    }
}

#[cfg(test)]
mod tests;
