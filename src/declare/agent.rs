//! `admit`, `plan`, `gate` and `effect`: they lower onto one [`Pipeline`] and its intake.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::config::yaml::{Diagnostics, Fields, Name, Node};
use crate::contract::{Contract, Parameters};
use crate::dsl::{Defaults, KStream, MAX_INPUT, Policy, REMEMBER, input_parameters, plain_admission, request_of};
use crate::error::{Error, codes};
use crate::ids::{CallName, OrderingKey, StepName};
use crate::intents::Intake;
use crate::outbox::{
    AdmitRules, BudgetRule, CallRules, Does, DuplicateRules, EffectRules, GateRules, Pipeline, PlanRules, View, ViewFn,
};
use crate::processor::ProcessorCx;

use super::expr::{Expr, OPERATION, RECORD, members};
use super::files::check_names;
use super::request::RequestMap;
use super::shape;
use super::sources::Carries;
use super::steps::{Handle, Steps};
use super::value::Item;

/// What an admit step and those below have said so far.
#[derive(Clone)]
pub(super) struct Pending {
    stream: KStream<Value, Value>,
    request: Option<RequestMap>,
    admit: AdmitRules,
    plan: Option<PlanRules>,
    gate: Option<GateRules>,
    contracts: Vec<Arc<Contract>>,
    taken: Arc<std::sync::atomic::AtomicBool>,
}

/// What an effect step calls, the contracts behind it, and the longest deadline that they take.
pub(super) type Called = (Does, Vec<Arc<Contract>>, Duration);

/// Longest wait for an approval where nothing is said.
const EXPIRES: Duration = Duration::from_secs(30 * 60);
/// Largest proposal where nothing is said.
const MAX_PROPOSAL: usize = 16 * 1024;

impl Steps<'_> {
    pub(super) fn admit(
        &mut self,
        s: &KStream<Value, Value>,
        carries: Carries,
        node: &Node,
        name: &Name,
        d: &mut Diagnostics,
    ) -> Option<Handle> {
        let fields = shape::ADMIT.read(node, d)?;
        let request = envelope(&fields, carries, name, d);
        let mut admit = plain_admission(REMEMBER, Duration::MAX);
        if let Some(time) = fields.get("remember").and_then(|n| n.duration(d)) {
            admit.remember = time;
        }
        if let Some(input) = fields.get("input").and_then(|n| shape::INPUT.read(n, d)) {
            admit.max_input = input.get("max").and_then(|n| n.size(d)).unwrap_or(MAX_INPUT);
            admit.types = texts(&input, "types", d);
            admit.locator_hosts = texts(&input, "hosts", d);
        }
        for budget in fields.get("budget").map(Node::list).unwrap_or_default() {
            let Some(budget) = shape::BUDGET.read(budget, d) else { continue };
            for of in ["tokens", "bytes", "calls"] {
                let rate = budget.get(of).and_then(|n| n.rate(d));
                admit.budgets.extend(rate.map(|r| BudgetRule { of: of.to_owned(), amount: r.amount, per: r.per }));
            }
        }
        Some(Handle::Pending(Box::new(Pending {
            stream: s.clone(),
            request: request?,
            admit,
            plan: None,
            gate: None,
            contracts: Vec::new(),
            taken: Arc::default(),
        })))
    }

    pub(super) fn plan(&mut self, mut p: Pending, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
        let fields = shape::PLAN.read(node, d)?;
        let call = fields.get("contract").and_then(|n| self.files.call(n, d));
        let prompt = fields.get("prompt").and_then(|n| self.files.text(n, d));
        let proposal = fields.get("proposal").and_then(|n| self.proposal_schema(n, d));
        let max = fields.get("max").and_then(|n| n.size(d)).unwrap_or(MAX_PROPOSAL);
        let given = fields.get("parameters").map(|n| members(n, OPERATION, &format!("{}.parameters", name.text), d));
        if p.plan.is_some() || p.gate.is_some() {
            d.error(codes::BAD_VALUE, &name.at, "a pipeline has one plan, before its gate");
            return None;
        }
        let (contract, call) = call?;
        let (prompt_path, prompt) = prompt?;
        let expressions = given.map_or(Some(None), |g| g.map(Some))?;
        let names: Vec<String> = match &expressions {
            Some(all) => all.iter().map(|(name, _)| name.clone()).collect(),
            None => vec!["prompt".to_owned(), "input".to_owned()],
        };
        check_names(contract.calls.get(&call)?, &names, fields.get("parameters").or(fields.get("contract"))?, d);
        let parameters: ViewFn<Parameters> = match expressions {
            Some(all) => made_of(all),
            None => prompt_and_input(prompt.clone()),
        };
        p.contracts.push(contract.clone());
        p.plan = Some(PlanRules {
            step: StepName::new(&name.text),
            contract: contract.name.clone(),
            call,
            prompt_version: version_of(&prompt_path),
            prompt,
            proposal_schema: proposal?,
            max,
            parameters,
        });
        Some(Handle::Pending(Box::new(p)))
    }

    pub(super) fn gate(&mut self, mut p: Pending, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
        let fields = shape::GATE.read(node, d)?;
        let approvals = fields.get("approvals").and_then(|n| self.take_approvals(n, d));
        let required = fields.get("required").map(|n| Expr::compile(n, OPERATION, &format!("{}.required", name.text), d));
        let expires = fields.get("expires").and_then(|n| n.duration(d)).unwrap_or(EXPIRES);
        let other = fields.get("other_than_requester").and_then(|n| n.boolean(d)).unwrap_or(true);
        if p.gate.is_some() {
            d.error(codes::BAD_VALUE, &name.at, "a pipeline has one gate");
            return None;
        }
        approvals?;
        let required: ViewFn<bool> = match required {
            Some(e) => {
                let e = e?;
                Arc::new(move |view: &View<'_>| e.holds_for(view))
            }
            None => Arc::new(|_: &View<'_>| Ok(true)),
        };
        p.gate = Some(GateRules { step: StepName::new(&name.text), required, expires, other_than_requester: other });
        Some(Handle::Pending(Box::new(p)))
    }

    pub(super) fn effect_of_pending(&mut self, p: Pending, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
        let fields = shape::EFFECT.read(node, d)?;
        for key in ["request", "remember"] {
            if let Some(at) = fields.get(key) {
                d.error(codes::BAD_VALUE, &at.at, format!("`{key}` belongs to the admit step here"));
            }
        }
        if p.taken.swap(true, std::sync::atomic::Ordering::Relaxed) {
            d.error(codes::BAD_VALUE, &name.at, "these requests have an effect already").label("one pipeline ends in one effect");
            return None;
        }
        let policy = self.policy(&fields, d);
        let made = match fields.get("tools") {
            Some(tools) => self.tools(&fields, tools, p.plan.is_some(), name, d),
            None => self.one_call(&fields, node, name, d),
        };
        let duplicates = duplicates(&fields, name, d)?;
        let (policy, (does, of, deadline)) = (policy?, made?);
        let step = StepName::new(&name.text);
        let defaults = self.defaults(&does, &step);
        self.lower_intake(&p.stream, p.request, &step, defaults, Given::Value);
        let effect = EffectRules { does, policy: policy.as_ref().map(|(name, _)| name.clone()), duplicates };
        let admit = AdmitRules { max_deadline: deadline, ..p.admit };
        let contracts = p.contracts.into_iter().chain(of).collect();
        self.builder.shared().pipeline(Pipeline { step, admit, plan: p.plan, gate: p.gate, effect }, contracts, policy);
        Some(Handle::End)
    }

    /// The one call of an effect, its contract, and the longest deadline that it takes.
    fn one_call(&mut self, fields: &Fields<'_>, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Called> {
        let place = format!("{}.parameters", name.text);
        let given = fields.get("parameters").map_or(Some(Vec::new()), |n| members(n, OPERATION, &place, d));
        let order = fields.get("order_by").map(|n| Expr::compile(n, OPERATION, &format!("{}.order_by", name.text), d));
        let (contract, call) = self.target(fields, given.as_deref(), node, d)?;
        let order_by = order.map_or(Some(None), |e| e.map(Some))?.map(ordering);
        let deadline = contract.calls.get(&call)?.budget.deadline;
        let rules = CallRules { contract: contract.name.clone(), call, parameters: made_of(given?), order_by };
        Some((Does::One(rules), vec![contract], deadline))
    }

    pub(super) fn effect_of_stream(
        &mut self,
        s: &KStream<Value, Value>,
        carries: Carries,
        node: &Node,
        name: &Name,
        d: &mut Diagnostics,
    ) -> Option<Handle> {
        let fields = shape::EFFECT.read(node, d)?;
        if let Some(at) = fields.get("tools") {
            d.error(codes::BAD_VALUE, &at.at, "`tools` need an admit step before: they come of a proposal")
                .label("an admit step first");
            return None;
        }
        let request = envelope(&fields, carries, name, d);
        let remember = fields.get("remember").and_then(|n| n.duration(d)).unwrap_or(REMEMBER);
        let mapped = carries == Carries::Records;
        let (known, place) = (if mapped { RECORD } else { OPERATION }, format!("{}.parameters", name.text));
        let given = fields.get("parameters").map_or(Some(Vec::new()), |n| members(n, known, &place, d));
        let order = fields.get("order_by").map(|n| Expr::compile(n, known, &format!("{}.order_by", name.text), d));
        let policy = self.policy(&fields, d);
        let (contract, call) = self.target(&fields, given.as_deref(), node, d)?;
        let (request, given, policy) = (request?, given?, policy?);
        let order = order.map_or(Some(None), |e| e.map(Some))?;
        let duplicates = duplicates(&fields, name, d)?;
        let step = StepName::new(&name.text);
        let max_deadline = contract.calls.get(&call)?.budget.deadline;
        let defaults = Defaults::new(&self.builder.application(), &contract.name, &call);
        let (parameters, order_by): (ViewFn<Parameters>, Option<ViewFn<OrderingKey>>) = if mapped {
            self.lower_intake(s, request, &step, defaults, Given::Expressions(given, order));
            (Arc::new(|view: &View<'_>| input_parameters(view)), None)
        } else {
            self.lower_intake(s, request, &step, defaults, Given::Value);
            (made_of(given), order.map(ordering))
        };
        let effect = EffectRules {
            does: Does::One(CallRules { contract: contract.name.clone(), call, parameters, order_by }),
            policy: policy.as_ref().map(|(name, _)| name.clone()),
            duplicates,
        };
        let pipeline = Pipeline { step, admit: plain_admission(remember, max_deadline), plan: None, gate: None, effect };
        self.builder.shared().pipeline(pipeline, vec![contract], policy);
        Some(Handle::End)
    }

    /// What stands in a mapped request where nothing is said: the action is the call, or the step that makes several.
    fn defaults(&self, does: &Does, step: &StepName) -> Defaults {
        let app = self.builder.application();
        match does {
            Does::One(call) => Defaults::new(&app, &call.contract, &call.call),
            Does::Proposed(_) => Defaults { action: step.to_string(), ..Defaults::new(&app, &"".into(), &"".into()) },
        }
    }

    /// The contract's call of an effect; parameter names are compared with the contract's.
    fn target(
        &mut self,
        fields: &Fields<'_>,
        given: Option<&[(String, Expr)]>,
        node: &Node,
        d: &mut Diagnostics,
    ) -> Option<(Arc<Contract>, CallName)> {
        for key in ["calls", "max_calls", "on_partial"] {
            if let Some(at) = fields.get(key) {
                d.error(codes::BAD_VALUE, &at.at, format!("`{key}` goes with `tools`"));
            }
        }
        let Some(at) = fields.get("contract") else {
            d.error(codes::MISSING_KEY, &node.at, "`contract` is missing")
                .note("or `tools`, where a proposal chooses what is called");
            return None;
        };
        let (contract, call) = self.files.call(at, d)?;
        if let Some(given) = given {
            let names: Vec<String> = given.iter().map(|(name, _)| name.clone()).collect();
            check_names(contract.calls.get(&call)?, &names, fields.get("parameters").unwrap_or(node), d);
        }
        Some((contract, call))
    }

    /// The policy of an effect, where it has one. `None` = errors.
    fn policy(&mut self, fields: &Fields<'_>, d: &mut Diagnostics) -> Option<Option<(String, Policy)>> {
        let Some(node) = fields.get("policy") else { return Some(None) };
        let (path, text) = self.files.policy(node, d)?;
        Some(Some((path.clone(), Policy { path, text })))
    }

    fn proposal_schema(&self, node: &Node, d: &mut Diagnostics) -> Option<String> {
        let (path, text) = self.files.text(node, d)?;
        let schema: Result<Value, _> = serde_json::from_str(&text);
        let why = match &schema {
            Err(e) => Some(e.to_string()),
            Ok(schema) => jsonschema::meta::validate(schema).err().map(|e| e.to_string()),
        };
        if let Some(why) = why {
            d.error(codes::BAD_VALUE, &node.at, format!("{path} is no JSON Schema")).label(why);
            return None;
        }
        Some(text)
    }

    fn lower_intake(
        &self,
        s: &KStream<Value, Value>,
        request: Option<RequestMap>,
        step: &StepName,
        defaults: Defaults,
        given: Given,
    ) {
        let (is_request, of) = (request.is_none(), step.clone());
        let step = step.clone();
        let sink = s.intake(move |r, cx| match &request {
            Some(map) => {
                let mut intake = map.intake(r, cx, &step, &defaults, given.parameters(r, cx)?)?;
                intake.ordering_key = given.ordering_key(r, cx)?;
                Ok(intake)
            }
            None => {
                let origin = cx.origin_text().unwrap_or_default();
                Ok(Intake { request: request_of(r.value.clone())?, step: step.clone(), ordering_key: None, origin })
            }
        });
        if is_request {
            self.builder.shared().request_sink(sink, of);
        }
    }
}

/// What becomes the input of a mapped request.
enum Given {
    /// The record's value as it is.
    Value,
    /// Parameters and ordering key, computed from the record.
    Expressions(Vec<(String, Expr)>, Option<Expr>),
}

impl Given {
    fn parameters(&self, r: &Item, cx: &ProcessorCx<'_, '_>) -> Result<Parameters, Error> {
        match self {
            Given::Value => Ok(Parameters(r.value.as_object().cloned().unwrap_or_default())),
            Given::Expressions(all, _) => {
                let made: Result<_, Error> = all.iter().map(|(name, e)| Ok((name.clone(), e.of_record(r, cx)?))).collect();
                made.map(Parameters)
            }
        }
    }
    fn ordering_key(&self, r: &Item, cx: &ProcessorCx<'_, '_>) -> Result<Option<OrderingKey>, Error> {
        match self {
            Given::Expressions(_, Some(e)) => Ok(Some(OrderingKey::from(e.text_of(r, cx)?))),
            _ => Ok(None),
        }
    }
}

/// The envelope: mapped where the source carries plain records, its own where it carries requests. `None` = errors.
fn envelope(fields: &Fields<'_>, carries: Carries, name: &Name, d: &mut Diagnostics) -> Option<Option<RequestMap>> {
    match (fields.get("request"), carries) {
        (Some(node), Carries::Records) => RequestMap::read(node, &name.text, d).map(Some),
        (None, Carries::Requests) => Some(None),
        (Some(node), Carries::Requests) => {
            d.error(codes::BAD_VALUE, &node.at, "these records are requests already").label("leave it out");
            None
        }
        (None, Carries::Records) => {
            d.error(codes::MISSING_KEY, &fields.node.at, "`request` is missing: these records carry no envelope")
                .note("map one by expressions, or read a source with `schema: readback/work-request`");
            None
        }
        (_, Carries::Approvals) => {
            d.error(codes::BAD_VALUE, &name.at, "approvals are no requests").label("reads from a source of approvals");
            None
        }
    }
}

/// The block that compares meanings. `None` = errors.
fn duplicates(fields: &Fields<'_>, name: &Name, d: &mut Diagnostics) -> Option<Option<DuplicateRules>> {
    let Some(node) = fields.get("duplicates") else { return Some(None) };
    let block = shape::DUPLICATES.read(node, d)?;
    let within = block.get("within").and_then(|n| n.duration(d))?;
    let wait = block.get("wait").and_then(|n| n.duration(d)).unwrap_or(EXPIRES);
    if within.is_zero() {
        d.error(codes::BAD_VALUE, &node.at, "`within` must be longer than nothing");
        return None;
    }
    let by = match block.get("by") {
        Some(n) => Some(made_of(members(n, OPERATION, &format!("{}.duplicates.by", name.text), d)?)),
        None => None,
    };
    Some(Some(DuplicateRules { within, wait, by }))
}

fn texts(fields: &Fields<'_>, key: &str, d: &mut Diagnostics) -> Vec<String> {
    fields.get(key).map(Node::list).unwrap_or_default().iter().filter_map(|n| n.text(d)).collect()
}

pub(super) fn made_of(all: Vec<(String, Expr)>) -> ViewFn<Parameters> {
    Arc::new(move |view: &View<'_>| {
        let made: Result<_, String> = all.iter().map(|(name, e)| Ok((name.clone(), e.of_operation(view)?))).collect();
        made.map(Parameters)
    })
}

pub(super) fn ordering(e: Expr) -> ViewFn<OrderingKey> {
    Arc::new(move |view: &View<'_>| match e.of_operation(view)? {
        Value::String(text) => Ok(OrderingKey::from(text)),
        Value::Number(n) => Ok(OrderingKey::from(n.to_string())),
        _ => Err("order_by does not give a text".to_owned()),
    })
}

/// A model call without parameters of its own gets the prompt's text and the input's text.
fn prompt_and_input(prompt: String) -> ViewFn<Parameters> {
    Arc::new(move |view: &View<'_>| {
        let input = view.request.input.inline.clone().or_else(|| view.input.map(Value::to_string)).unwrap_or_default();
        Ok(crate::params! { prompt: prompt, input: input })
    })
}

/// A prompt's version is its file name: `buyer.v7` of `prompts/buyer.v7.md`.
fn version_of(path: &str) -> String {
    std::path::Path::new(path).file_stem().map_or_else(|| path.to_owned(), |s| s.to_string_lossy().into_owned())
}
