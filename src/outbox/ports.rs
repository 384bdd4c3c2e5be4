//! What the steps ask of contracts and policies.

use serde_json::Value;

use crate::contract::Parameters;
use crate::ids::{CallName, ContractName, OperationKey, WireKey};
use crate::intents::{RenderedRequest, WorkRequest};
use crate::time::WallTime;

/// A call filled in: the exact bytes, and what they were made with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rendered {
    /// The contract's version.
    pub contract_version: i64,
    /// The key on the wire.
    pub wire_key: WireKey,
    /// The exact request.
    pub request: RenderedRequest,
    /// Where a person sees the effect.
    pub look_at: Option<String>,
    /// Hex digest of the call's whole definition, target address included: a plan hash covers it, so that an approval does
    /// not outlive a change of the tool.
    pub definition: String,
}

/// Fills calls in.
pub trait Renderer: Send + Sync {
    /// Checks the parameters and renders, for the version of the resource that the requester saw; the error lists what is wrong,
    /// without payload.
    fn render(
        &self,
        contract: &ContractName,
        call: &CallName,
        key: &OperationKey,
        parameters: &Parameters,
        version: Option<&str>,
    ) -> Result<Rendered, String>;
    /// Whether the target's own answer confirms this call.
    fn confirms_by_answer(&self, contract: &ContractName, call: &CallName) -> bool;
    /// The call of the same contract that undoes this one, where there is one.
    fn undone_by(&self, contract: &ContractName, call: &CallName) -> Option<CallName>;
}

/// What a policy is asked.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Who wants to do what to which resource.
    pub request: &'a WorkRequest,
    /// What is to be done: the request's action, or the tool of a plan's call.
    pub action: &'a str,
    /// The proposal, where there is one.
    pub plan: Option<&'a Value>,
    /// The parameters of the call.
    pub parameters: &'a Parameters,
    /// Who approved the plan, where somebody did.
    pub approver: Option<&'a str>,
    /// When.
    pub now: WallTime,
}

/// Answers whether policy allows an effect now.
pub trait PolicyCheck: Send + Sync {
    /// `Ok` = allowed; the error names the reason, without payload.
    fn allows(&self, policy: &str, ask: &Ask<'_>) -> Result<(), String>;
    /// The version of a policy: a hash of its text.
    fn version(&self, _policy: &str) -> Option<String> {
        None
    }
}
