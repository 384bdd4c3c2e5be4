//! The steps that end in one effect, as a topology declares them; `admit`, `plan`, `gate` and `effect` lower onto one record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::contract::Parameters;
use crate::ids::{CallName, ContractName, OrderingKey, StepName};
use crate::intents::WorkRequest;

/// What an expression sees.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The envelope.
    pub request: &'a WorkRequest,
    /// The input parsed as JSON, where it is JSON.
    pub input: Option<&'a Value>,
    /// The proposal, once there is one.
    pub plan: Option<&'a Value>,
    /// The arguments of one proposed call, in expressions of its tool.
    pub arguments: Option<&'a Value>,
}

/// An expression over a [`View`]; the error is for people, without payload.
pub type ViewFn<T> = Arc<dyn Fn(&View<'_>) -> Result<T, String> + Send + Sync>;

/// Everything between a request and its effect.
#[derive(Clone)]
pub struct Pipeline {
    /// The effect step's name.
    pub step: StepName,
    /// Admission.
    pub admit: AdmitRules,
    /// The model call, where there is one.
    pub plan: Option<PlanRules>,
    /// The approval, where one may be required.
    pub gate: Option<GateRules>,
    /// The effect.
    pub effect: EffectRules,
}

impl Pipeline {
    /// How long it waits for a person's decision.
    pub fn waits_for_a_person(&self) -> Duration {
        let compared = self.effect.duplicates.as_ref().map(|d| d.wait);
        self.gate.as_ref().map(|g| g.expires).or(compared).unwrap_or_default()
    }
}

/// What admission checks.
#[derive(Clone, Debug)]
pub struct AdmitRules {
    /// How long beyond close or deadline a repeated operation ID is recognised (`audit`).
    pub remember: Duration,
    /// Largest input in bytes.
    pub max_input: usize,
    /// Media types that are taken; empty = all.
    pub types: Vec<String>,
    /// Hosts that inputs may be fetched from by locator; empty = locators are refused.
    pub locator_hosts: Vec<String>,
    /// The longest deadline from now that is taken.
    pub max_deadline: Duration,
    /// Cost limits per tenant.
    pub budgets: Vec<BudgetRule>,
}

/// So much of one cost in so long, per tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BudgetRule {
    /// `tokens`, `bytes` or `calls`.
    pub of: String,
    /// How much.
    pub amount: i64,
    /// Per how long.
    pub per: Duration,
}

/// The model call.
#[derive(Clone)]
pub struct PlanRules {
    /// The step's name.
    pub step: StepName,
    /// The model's contract and call.
    pub contract: ContractName,
    /// The call.
    pub call: CallName,
    /// Version of the prompt: its file name.
    pub prompt_version: String,
    /// The prompt's text.
    pub prompt: String,
    /// JSON Schema that the proposal must satisfy, as text.
    pub proposal_schema: String,
    /// Largest proposal in bytes.
    pub max: usize,
    /// Parameters of the model call.
    pub parameters: ViewFn<Parameters>,
}

/// The approval.
#[derive(Clone)]
pub struct GateRules {
    /// The step's name.
    pub step: StepName,
    /// Whether this plan needs one.
    pub required: ViewFn<bool>,
    /// How long it is waited for, and the longest validity of an approval.
    pub expires: Duration,
    /// Whether the approver must be another than the requester.
    pub other_than_requester: bool,
}

/// The effect.
#[derive(Clone)]
pub struct EffectRules {
    /// What is called.
    pub does: Does,
    /// The Cedar policy set that is asked at authorize and before every send; `None` = nothing to ask.
    pub policy: Option<String>,
    /// Whether operations that mean the same go to a person; `None` = nobody asks.
    pub duplicates: Option<DuplicateRules>,
}

impl EffectRules {
    /// Whether what was done of a plan that can't be whole is undone.
    pub fn compensates(&self) -> bool {
        matches!(&self.does, Does::Proposed(of) if of.on_partial == OnPartial::Compensate)
    }
    /// Every call that may come of it, by tool where a proposal chooses among several.
    pub fn calls(&self) -> Vec<(Option<&str>, &CallRules)> {
        match &self.does {
            Does::One(call) => vec![(None, call)],
            Does::Proposed(of) => of.tools.iter().map(|(tool, call)| (Some(tool.as_str()), call)).collect(),
        }
    }
}

/// What an effect step calls.
#[derive(Clone)]
pub enum Does {
    /// One call, always this one.
    One(CallRules),
    /// What the proposal names: several calls, each an operation of its own.
    Proposed(ToolRules),
}

/// One call, and what it is filled in with.
#[derive(Clone)]
pub struct CallRules {
    /// The contract.
    pub contract: ContractName,
    /// The call within it.
    pub call: CallName,
    /// Typed parameters of the call.
    pub parameters: ViewFn<Parameters>,
    /// The ordering key; `None` = the operation.
    pub order_by: Option<ViewFn<OrderingKey>>,
}

/// What becomes of what was done of a plan that can't be whole.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnPartial {
    /// It stays done.
    #[default]
    Leave,
    /// It is undone, as far as its contracts declare how.
    Compensate,
}

/// The tools that a proposal may call.
#[derive(Clone)]
pub struct ToolRules {
    /// The list of calls, out of the proposal.
    pub list: ViewFn<Value>,
    /// How many calls one plan may have.
    pub most: usize,
    /// By the name that a proposal calls them.
    pub tools: BTreeMap<String, CallRules>,
    /// What becomes of what was done of a plan that can't be whole.
    pub on_partial: OnPartial,
}

/// When an operation looks like an earlier one: same tenant, resource, action, call and normalised arguments.
#[derive(Clone)]
pub struct DuplicateRules {
    /// How long after its end the earlier one counts. While it is under way it always counts.
    pub within: Duration,
    /// How long a person is waited for.
    pub wait: Duration,
    /// The arguments that are compared; `None` = all parameters of the call.
    pub by: Option<ViewFn<Parameters>>,
}
