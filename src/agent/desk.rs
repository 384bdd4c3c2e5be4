//! All that the steps are made with: pipelines with their schemas compiled, contracts, policies. Built once, shared by tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::contract::Parameters;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{OperationId, OperationKey, OrderingKey, StepName};
use crate::intents::{CallState, CallUndo, PlanCall, UndoState};
use crate::outbox::{
    CallRef, CallRules, Does, OperationRecord, Pipeline, PolicyCheck, Rendered, Renderer, Role, Settings, ToolRules, Undoing, View,
};

use super::dag::{self, Proposed};
use super::proposal::ProposalSchema;

/// One pipeline ready to work.
pub struct Bench {
    /// As declared.
    pub pipeline: Pipeline,
    /// The proposal's schema, where there is a model call.
    pub proposal: Option<ProposalSchema>,
}

/// Everything the steps are made with.
pub struct Desk {
    /// Settings of the pure core.
    pub settings: Settings,
    /// Contracts.
    pub renderer: Arc<dyn Renderer>,
    /// Policies.
    pub policy: Arc<dyn PolicyCheck>,
    benches: BTreeMap<StepName, Bench>,
    plan_steps: BTreeMap<StepName, StepName>,
}

/// What an expression sees, parsed once a step.
pub struct Seen {
    input: Option<Value>,
    plan: Option<Value>,
}

/// An effect made ready.
#[derive(Clone)]
pub enum Made {
    /// One call, the operation itself.
    One(Box<Ready>),
    /// The calls of a plan, each an operation of its own.
    Plan(Vec<Part>),
}

/// One call of a plan made ready.
#[derive(Clone)]
pub struct Part {
    /// Its name in the proposal.
    pub id: String,
    /// The calls that it needs.
    pub needs: Vec<String>,
    /// The call.
    pub ready: Ready,
}

/// A call made ready.
#[derive(Clone)]
pub struct Ready {
    /// Which call.
    pub call: CallRef,
    /// Its parameters.
    pub parameters: Parameters,
    /// Its bytes.
    pub rendered: Rendered,
}

impl Desk {
    /// Compiles the pipelines' schemas.
    pub fn new(
        settings: Settings,
        pipelines: Vec<Pipeline>,
        renderer: Arc<dyn Renderer>,
        policy: Arc<dyn PolicyCheck>,
    ) -> Result<Self> {
        let (mut benches, mut plan_steps) = (BTreeMap::new(), BTreeMap::new());
        for pipeline in pipelines {
            let proposal = pipeline.plan.as_ref().map(|p| ProposalSchema::compile(&p.step, &p.proposal_schema)).transpose()?;
            if let Some(plan) = &pipeline.plan {
                plan_steps.insert(plan.step.clone(), pipeline.step.clone());
            }
            let step = pipeline.step.clone();
            if benches.insert(step.clone(), Bench { pipeline, proposal }).is_some() {
                return Err(Error::new(codes::DUPLICATE_NAME, Fault::Configuration, format!("building effect step {step}")));
            }
        }
        Ok(Self { settings, renderer, policy, benches, plan_steps })
    }

    /// The pipeline of an effect step.
    pub fn bench(&self, step: &StepName) -> Option<&Bench> {
        self.benches.get(step)
    }

    /// The effect step whose record a return of `step` belongs to: a model call's step leads to its effect's.
    pub fn root_step<'a>(&'a self, step: &'a StepName) -> &'a StepName {
        self.plan_steps.get(step).unwrap_or(step)
    }

    /// Makes the model call of a record ready.
    pub fn plan_call(&self, bench: &Bench, record: &OperationRecord) -> std::result::Result<Option<Ready>, String> {
        let Some(rules) = &bench.pipeline.plan else { return Ok(None) };
        let seen = Seen::of(record);
        let parameters = (rules.parameters)(&seen.view(record))?;
        let operation = record.request.operation_id.plan();
        let ordering_key = OrderingKey::new(operation.as_str());
        let key = OperationKey { tenant: record.request.tenant.clone(), operation, step: rules.step.clone() };
        let rendered = self.renderer.render(&rules.contract, &rules.call, &key, &parameters, None)?;
        let call = CallRef {
            role: Role::Plan,
            operation_id: key.operation,
            action: record.request.action.clone(),
            step: rules.step.clone(),
            contract: rules.contract.clone(),
            call: rules.call.clone(),
            ordering_key,
            parameters: Value::Object(parameters.0.clone()).to_string(),
            other_approver: true,
        };
        Ok(Some(Ready { call, parameters, rendered }))
    }

    /// Makes the effect of a record ready: its one call, or all that its proposal names.
    pub fn effect(&self, bench: &Bench, record: &OperationRecord, seen: &Seen) -> std::result::Result<Made, String> {
        match &bench.pipeline.effect.does {
            Does::One(rules) => {
                let (view, operation_id) = (seen.view(record), record.request.operation_id.clone());
                let given = record.ordering_key.as_ref();
                let of = Which { role: Role::Effect, operation_id, action: &record.request.action, given };
                self.ready(bench, record, rules, of, &view).map(Box::new).map(Made::One)
            }
            Does::Proposed(rules) => {
                let calls = dag::read(&(rules.list)(&seen.view(record))?, rules.most)?;
                let parts = calls.into_iter().zip(1..).map(|(call, n)| self.part(bench, record, seen, rules, call, n));
                parts.collect::<std::result::Result<_, _>>().map(Made::Plan)
            }
        }
    }

    /// How the calls of a plan are undone if it can't be whole, where the step chose that.
    pub fn undoing(&self, bench: &Bench, made: &Made) -> Option<Undoing> {
        let undo = |c: &PlanCall| CallUndo {
            id: c.id.clone(),
            operation_id: c.operation_id.undo(),
            by: self.renderer.undone_by(&c.contract, &c.call),
            state: UndoState::NotOrdered,
            detail: None,
        };
        let calls = || made.calls().iter().map(undo).collect();
        bench.pipeline.effect.compensates().then(|| Undoing { stopped: false, calls: calls() })
    }

    fn part(
        &self,
        bench: &Bench,
        record: &OperationRecord,
        seen: &Seen,
        rules: &ToolRules,
        proposed: Proposed,
        n: u32,
    ) -> std::result::Result<Part, String> {
        let tool = rules.tools.get(&proposed.tool);
        let tool = tool.ok_or_else(|| format!("call {} names a tool that is not declared", proposed.id))?;
        let view = View { arguments: Some(&proposed.arguments), ..seen.view(record) };
        let operation_id = record.request.operation_id.child(n);
        let of = Which { role: Role::Call, operation_id, action: &proposed.tool, given: None };
        let ready = self.ready(bench, record, tool, of, &view).map_err(|words| format!("call {}: {words}", proposed.id))?;
        Ok(Part { id: proposed.id, needs: proposed.needs, ready })
    }

    fn ready(
        &self,
        bench: &Bench,
        record: &OperationRecord,
        rules: &CallRules,
        of: Which<'_>,
        view: &View<'_>,
    ) -> std::result::Result<Ready, String> {
        let parameters = (rules.parameters)(view)?;
        let ordering_key = match (of.given, &rules.order_by) {
            (Some(given), _) => given.clone(),
            (None, Some(order_by)) => order_by(view)?,
            (None, None) => OrderingKey::new(of.operation_id.as_str()),
        };
        let key = OperationKey { operation: of.operation_id.clone(), ..record.key() };
        let version = record.request.resource_version.as_deref();
        let rendered = self.renderer.render(&rules.contract, &rules.call, &key, &parameters, version)?;
        let call = CallRef {
            role: of.role,
            operation_id: of.operation_id,
            action: of.action.to_owned(),
            step: record.step.clone(),
            contract: rules.contract.clone(),
            call: rules.call.clone(),
            ordering_key,
            parameters: Value::Object(parameters.0.clone()).to_string(),
            other_approver: bench.pipeline.gate.as_ref().is_none_or(|g| g.other_than_requester),
        };
        Ok(Ready { call, parameters, rendered })
    }
}

/// Which operation a call is made ready for.
struct Which<'a> {
    role: Role,
    operation_id: OperationId,
    action: &'a str,
    given: Option<&'a OrderingKey>,
}

impl Made {
    /// Every call.
    pub fn all(&self) -> Vec<&Ready> {
        match self {
            Made::One(ready) => vec![ready],
            Made::Plan(parts) => parts.iter().map(|p| &p.ready).collect(),
        }
    }

    /// The calls of a plan, none begun.
    pub fn calls(&self) -> Vec<PlanCall> {
        let Made::Plan(parts) = self else { return Vec::new() };
        let waiting = |p: &Part| PlanCall {
            id: p.id.clone(),
            operation_id: p.ready.call.operation_id.clone(),
            tool: p.ready.call.action.clone(),
            contract: p.ready.call.contract.clone(),
            call: p.ready.call.call.clone(),
            needs: p.needs.clone(),
            state: CallState::Waiting,
            end: None,
            code: None,
            detail: None,
        };
        parts.iter().map(waiting).collect()
    }
}

impl Seen {
    /// Parses what a record's expressions may see. Input that is no JSON is just not there.
    pub fn of(record: &OperationRecord) -> Self {
        let input = record.request.input.inline.as_deref().and_then(|t| serde_json::from_str(t).ok());
        let plan = record.proposal.as_deref().and_then(|t| serde_json::from_str(t).ok());
        Self { input, plan }
    }

    /// The view of an expression.
    pub fn view<'a>(&'a self, record: &'a OperationRecord) -> View<'a> {
        View { request: &record.request, input: self.input.as_ref(), plan: self.plan.as_ref(), arguments: None }
    }

    /// The proposal.
    pub fn plan(&self) -> Option<&Value> {
        self.plan.as_ref()
    }
}
