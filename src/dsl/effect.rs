//! `effect()`: the border to what lies outside Kafka. Each record becomes one request, and each request at most one effect, under
//! the contract's assumptions; the records themselves are written to an outbox in the same transaction as everything else.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::{Contract, Parameters};
use crate::error::{Error, Fault, codes};
use crate::ids::{CallName, ContractName, MessageId, OperationId, OrderingKey, Resource, StepName, Tenant, TopicName};
use crate::intents::{Cost, Input, Intake, WorkRequest, WrittenFor, headers};
use crate::outbox::{AdmitRules, CallRules, Does, DuplicateRules, EffectRules, Pipeline, View};
use crate::processor::{ProcessorCx, Record};
use crate::time::WallTime;

use super::KStream;
use super::builder::Shared;

type Of<K, V, T> = Arc<dyn Fn(&K, &V) -> T + Send + Sync>;
type Drafting<V> = Arc<dyn Fn(RequestDraft, &V) -> RequestDraft + Send + Sync>;

/// How records become requests.
pub struct Effect<K, V> {
    step: StepName,
    operation_id: Option<Of<K, V, String>>,
    request: Option<Drafting<V>>,
    parameters: Option<Arc<dyn Fn(&V) -> Parameters + Send + Sync>>,
    order_by: Option<Of<K, V, String>>,
    remember: Duration,
    duplicates: Option<Duration>,
}

impl<K, V> Effect<K, V> {
    /// An effect step of this name. The name is part of each operation's identity: don't change it.
    pub fn named(step: impl Into<StepName>) -> Self {
        Self {
            step: step.into(),
            operation_id: None,
            request: None,
            parameters: None,
            order_by: None,
            remember: REMEMBER,
            duplicates: None,
        }
    }
    /// The ID of the intent, the same each time this intent comes again. Compulsory.
    #[must_use]
    pub fn operation_id(mut self, f: impl Fn(&K, &V) -> String + Send + Sync + 'static) -> Self {
        self.operation_id = Some(Arc::new(f));
        self
    }
    /// The rest of the envelope. Compulsory: at least tenant, resource and deadline.
    #[must_use]
    pub fn request(mut self, f: impl Fn(RequestDraft, &V) -> RequestDraft + Send + Sync + 'static) -> Self {
        self.request = Some(Arc::new(f));
        self
    }
    /// The call's parameters, typed by the contract: `params! { sku: v.sku }`.
    #[must_use]
    pub fn parameters(mut self, f: impl Fn(&V) -> Parameters + Send + Sync + 'static) -> Self {
        self.parameters = Some(Arc::new(f));
        self
    }
    /// What orders effects among each other; by default each operation stands alone.
    #[must_use]
    pub fn order_by(mut self, f: impl Fn(&K, &V) -> String + Send + Sync + 'static) -> Self {
        self.order_by = Some(Arc::new(f));
        self
    }
    /// How long beyond its end or deadline a repeated operation ID is recognised.
    #[must_use]
    pub fn remember(mut self, time: Duration) -> Self {
        self.remember = time;
        self
    }
    /// A request that means the same as an earlier one (tenant, resource, action, call and normalised parameters) waits for a person,
    /// while the earlier one is under way and so long after its end.
    #[must_use]
    pub fn duplicates(mut self, within: Duration) -> Self {
        self.duplicates = Some(within);
        self
    }
}

/// How long a person is waited for where a request means the same as an earlier one.
const WAIT: Duration = Duration::from_secs(30 * 60);
/// How long a repeated operation ID is recognised where nothing is said.
pub(crate) const REMEMBER: Duration = Duration::from_secs(7 * 86_400);
/// Largest input where nothing is said.
pub(crate) const MAX_INPUT: usize = 256 * 1024;

/// The envelope of a request in the making.
#[derive(Clone, Default, Debug)]
pub struct RequestDraft {
    tenant: Option<Tenant>,
    requester: Option<String>,
    resource: Option<Resource>,
    resource_version: Option<String>,
    action: Option<String>,
    deadline: Option<WallTime>,
    required_permissions: Vec<String>,
    cost: Cost,
}

impl RequestDraft {
    /// Whose work.
    #[must_use]
    pub fn tenant(mut self, tenant: impl AsRef<str>) -> Self {
        self.tenant = Some(Tenant::new(tenant));
        self
    }
    /// Who asks; by default `service:<application>`.
    #[must_use]
    pub fn requester(mut self, requester: impl Into<String>) -> Self {
        self.requester = Some(requester.into());
        self
    }
    /// What it acts on.
    #[must_use]
    pub fn resource(mut self, resource: impl AsRef<str>) -> Self {
        self.resource = Some(Resource::new(resource));
        self
    }
    /// The version of the resource that was seen.
    #[must_use]
    pub fn resource_version(mut self, version: impl Into<String>) -> Self {
        self.resource_version = Some(version.into());
        self
    }
    /// What is to be done; by default the contract's call, `orders#create`.
    #[must_use]
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }
    /// After this no first send. From the content, never from the time of arrival, or a redelivered record would be a new request.
    #[must_use]
    pub fn deadline(mut self, deadline: WallTime) -> Self {
        self.deadline = Some(deadline);
        self
    }
    /// Permissions that policy is asked for.
    #[must_use]
    pub fn required_permissions(mut self, permissions: Vec<String>) -> Self {
        self.required_permissions = permissions;
        self
    }
    /// Estimated cost.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// The envelope; a missing compulsory part is the record's fault.
    pub(crate) fn finish(
        self,
        operation_id: OperationId,
        parameters: Parameters,
        defaults: &Defaults,
        origin: &Origin,
    ) -> Result<WorkRequest, Error> {
        let missing = |what: &str| Error::new(codes::REQUEST_INVALID, Fault::Data, format!("a request without {what}"));
        let input = Input {
            media_type: "application/json".to_owned(),
            inline: Some(serde_json::Value::Object(parameters.0).to_string()),
            ..Input::default()
        };
        Ok(WorkRequest {
            operation_id,
            message_id: MessageId::new(&origin.text),
            attempt_id: None,
            tenant: self.tenant.filter(|t| !t.is_empty()).ok_or_else(|| missing("tenant"))?,
            requester: self.requester.unwrap_or_else(|| defaults.requester.clone()),
            resource: self.resource.filter(|r| !r.is_empty()).ok_or_else(|| missing("resource"))?,
            resource_version: self.resource_version,
            action: self.action.unwrap_or_else(|| defaults.action.clone()),
            input,
            deadline: self.deadline.ok_or_else(|| missing("deadline"))?,
            required_permissions: self.required_permissions,
            approval_ref: None,
            cost_estimate: self.cost,
            written_for: WrittenFor::default(),
            traceparent: origin.traceparent.clone(),
        })
    }
}

/// What stands in an envelope where nothing is said.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) requester: String,
    pub(crate) action: String,
}

impl Defaults {
    pub(crate) fn new(application: &crate::ids::ApplicationId, contract: &ContractName, call: &CallName) -> Self {
        Self { requester: format!("service:{application}"), action: format!("{contract}#{call}") }
    }
}

/// The record that a request was made from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) text: String,
    pub(crate) traceparent: Option<String>,
}

impl Origin {
    pub(crate) fn of<K, V>(record: &Record<K, V>, cx: &ProcessorCx<'_, '_>) -> Self {
        let traceparent = record.headers.text(headers::TRACEPARENT).map(str::to_owned);
        Self { text: cx.origin_text().unwrap_or_default(), traceparent }
    }
}

/// What comes of an effect step.
pub struct Effects {
    build: Shared,
}

impl Effects {
    /// Results of this application's effects, every change with its ack level.
    pub fn results(&self) -> &Self {
        self
    }
    /// Writes them to this topic; one application has one.
    pub fn to(&self, topic: impl Into<TopicName>) {
        let topic = topic.into();
        let mut build = self.build.borrow_mut();
        if build.results.as_ref().is_some_and(|set| *set != topic) {
            build.graph.problem(codes::DUPLICATE_NAME, format!("results go to one topic, and {topic} is a second one"));
        }
        build.results = Some(topic);
    }
}

impl<K: Clone + 'static, V: Clone + 'static> KStream<K, V> {
    /// Each record becomes a request for `call` of `contract`.
    pub fn effect(&self, contract: &Arc<Contract>, call: &str, effect: Effect<K, V>) -> Effects {
        let effects = Effects { build: self.build.clone() };
        let call = CallName::new(call);
        let mut problems = Vec::new();
        let spec = contract.calls.get(&call);
        if spec.is_none() {
            problems.push((codes::UNKNOWN_REFERENCE, format!("contract {} has no call `{call}`", contract.name)));
        }
        if effect.step.is_empty() {
            problems.push((codes::MISSING_NAME, "an effect needs a name: it is part of each operation's identity".to_owned()));
        }
        for (missing, what) in [(effect.operation_id.is_none(), "operation_id"), (effect.request.is_none(), "request")] {
            if missing {
                problems.push((codes::MISSING_KEY, format!("effect {} needs `{what}`", effect.step)));
            }
        }
        let (Some(spec), Some(id), Some(draft)) = (spec, effect.operation_id.clone(), effect.request.clone()) else {
            let graph = &mut self.build.borrow_mut().graph;
            problems.into_iter().for_each(|(code, what)| graph.problem(code, what));
            return effects;
        };
        let defaults = Defaults::new(self.build.borrow().graph.application(), &contract.name, &call);
        let (step, parameters, order_by) = (effect.step.clone(), effect.parameters, effect.order_by);
        self.intake(move |r, cx| {
            let origin = Origin::of(r, cx);
            let given = parameters.as_ref().map_or_else(Parameters::default, |f| f(&r.value));
            let id = OperationId::from(id(&r.key, &r.value));
            let request = draft(RequestDraft::default(), &r.value).finish(id, given, &defaults, &origin)?;
            let ordering_key = order_by.as_ref().map(|f| OrderingKey::from(f(&r.key, &r.value)));
            Ok(Intake { request, step: step.clone(), ordering_key, origin: origin.text })
        });
        let pipeline = Pipeline {
            step: effect.step,
            admit: plain_admission(effect.remember, spec.budget.deadline),
            plan: None,
            gate: None,
            effect: EffectRules {
                does: Does::One(CallRules {
                    contract: contract.name.clone(),
                    call,
                    parameters: Arc::new(input_parameters),
                    order_by: None,
                }),
                policy: None,
                duplicates: effect.duplicates.map(|within| DuplicateRules { within, wait: WAIT, by: None }),
            },
        };
        let mut build = self.build.borrow_mut();
        problems.into_iter().for_each(|(code, what)| build.graph.problem(code, what));
        build.contracts.insert(contract.name.clone(), contract.clone());
        build.pipelines.push(pipeline);
        drop(build);
        effects
    }
}

/// Admission of requests that were mapped from records: the input is what we wrote.
pub(crate) fn plain_admission(remember: Duration, max_deadline: Duration) -> AdmitRules {
    AdmitRules { remember, max_input: MAX_INPUT, types: Vec::new(), locator_hosts: Vec::new(), max_deadline, budgets: Vec::new() }
}

/// Parameters that the intake computed travel as the request's input, so that they are under its identity hash.
pub(crate) fn input_parameters(view: &View<'_>) -> Result<Parameters, String> {
    match view.input {
        Some(serde_json::Value::Object(map)) => Ok(Parameters(map.clone())),
        _ => Err("the input is no JSON object".to_owned()),
    }
}
