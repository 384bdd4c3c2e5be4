//! All that the steps are made with: pipelines with their schemas compiled, contracts, policies. Built once, shared by tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::contract::Parameters;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{OperationKey, OrderingKey, StepName};
use crate::outbox::{CallRef, OperationRecord, Pipeline, PolicyCheck, Rendered, Renderer, Role, Settings, View};

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

/// A call made ready.
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
            step: rules.step.clone(),
            contract: rules.contract.clone(),
            call: rules.call.clone(),
            ordering_key,
            parameters: Value::Object(parameters.0.clone()).to_string(),
            other_approver: true,
        };
        Ok(Some(Ready { call, parameters, rendered }))
    }

    /// Makes the effect of a record ready.
    pub fn effect_call(&self, bench: &Bench, record: &OperationRecord, seen: &Seen) -> std::result::Result<Ready, String> {
        let rules = &bench.pipeline.effect;
        let view = seen.view(record);
        let parameters = (rules.parameters)(&view)?;
        let ordering_key = match (&record.ordering_key, &rules.order_by) {
            (Some(given), _) => given.clone(),
            (None, Some(order_by)) => order_by(&view)?,
            (None, None) => OrderingKey::new(record.request.operation_id.as_str()),
        };
        let rendered = self.renderer.render(
            &rules.contract,
            &rules.call,
            &record.key(),
            &parameters,
            record.request.resource_version.as_deref(),
        )?;
        let call = CallRef {
            role: Role::Effect,
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

impl Seen {
    /// Parses what a record's expressions may see. Input that is no JSON is just not there.
    pub fn of(record: &OperationRecord) -> Self {
        let input = record.request.input.inline.as_deref().and_then(|t| serde_json::from_str(t).ok());
        let plan = record.proposal.as_deref().and_then(|t| serde_json::from_str(t).ok());
        Self { input, plan }
    }

    /// The view of an expression.
    pub fn view<'a>(&'a self, record: &'a OperationRecord) -> View<'a> {
        View { request: &record.request, input: self.input.as_ref(), plan: self.plan.as_ref() }
    }

    /// The proposal.
    pub fn plan(&self) -> Option<&Value> {
        self.plan.as_ref()
    }
}
