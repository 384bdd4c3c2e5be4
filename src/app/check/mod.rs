//! What an application promises on which edge, by what, and under which assumptions; and whether a cluster lets it.

mod cluster;
pub mod html;
mod permissions;
mod rests;
mod topics;
mod tried;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::agent;
use crate::config::ProcessConfig;
use crate::config::yaml::{Diagnostics, Site};
use crate::contract::{Call, Promise};
use crate::dsl::Application;
use crate::error::{Code, codes};
use crate::ids::{CallName, ContractName, TopicName};
use crate::intents::topics as names;
use crate::outbox::{Does, EffectRules};
use crate::time::show_duration;
use crate::topology::{Role, Subtopology};

pub use cluster::{against, protocol, timeouts};
pub use permissions::{Permission, permissions};
pub use rests::Rests;
pub(in crate::app) use topics::weaknesses;
pub use tried::{Tried, or_refused, try_permissions};

/// One way that records or effects take, and what is promised on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Edge {
    /// `agent.requests → outbox`.
    pub edge: String,
    /// Each promise with what it rests on.
    pub promises: Vec<Promised>,
    /// What they rest on, and where they end.
    #[serde(flatten)]
    pub rests: Rests,
}

/// A promise and its reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Promised {
    /// `at most one effect per operation`.
    pub promise: String,
    /// Why it holds.
    pub because: String,
}

/// What nobody can check from here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Assumed {
    /// In words.
    pub text: String,
    /// The file and line, or the setting, that says so.
    pub at: String,
}

/// A weak setting, or one that contradicts the application.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// `RB0412`.
    pub code: String,
    /// What, in one line.
    pub text: String,
    /// Where it stands, or what to do; may be empty.
    pub hint: String,
    /// The topics that it is about, where the text names none.
    pub topics: Vec<String>,
}

impl Finding {
    fn new(code: Code, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: code.to_string(), text: text.into(), hint: hint.into(), topics: Vec::new() }
    }

    /// Adds what many topics may share: it is told once, with their names.
    fn on(all: &mut Vec<Finding>, topic: &TopicName, text: &str, hint: &str) {
        match all.iter_mut().find(|f| f.text == text && !f.topics.is_empty()) {
            Some(told) => told.topics.push(topic.to_string()),
            None => all.push(Finding { topics: vec![topic.to_string()], ..Finding::new(WEAK, text, hint) }),
        }
    }
}

/// The whole report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The application.
    pub application: String,
    /// Its version.
    pub version: i64,
    /// What was asked of a cluster, in words: `1 broker`, `registry ok`; empty offline.
    pub cluster: Vec<String>,
    /// Edges with their promises.
    pub edges: Vec<Edge>,
    /// What the promises rest on.
    pub assumptions: Vec<Assumed>,
    /// What keeps the application from running as declared.
    pub contradictions: Vec<Finding>,
    /// What is possible but weak.
    pub warnings: Vec<Finding>,
    /// What is not promised.
    pub not_promised: Vec<String>,
    /// Topics as a cluster has them; empty offline.
    pub topics: Vec<TopicSeen>,
    /// Limits of the brokers that bear on the application; empty offline.
    pub broker: BTreeMap<String, String>,
    /// The application's groups as their coordinator lists them; empty offline.
    pub groups: Vec<GroupSeen>,
    /// Which changes of a schema the registry allows, by subject; empty where none was asked.
    pub compatibility: BTreeMap<String, String>,
    /// Permissions that members and tools need.
    pub permissions: Vec<Permission>,
}

/// A topic of the application as a cluster has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TopicSeen {
    /// Its name.
    pub name: String,
    /// Its partition count.
    pub partitions: u32,
    /// Its replication factor.
    pub replication: u32,
    /// Settings that a promise rests on.
    pub settings: BTreeMap<String, String>,
}

/// A consumer group of the application.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct GroupSeen {
    /// Its name.
    pub name: String,
    /// Its members by client id, which is their slot.
    pub members: Vec<String>,
}

/// Settings of topics that a promise rests on.
pub(in crate::app) const TOPIC_SETTINGS: &[&str] = &[
    "cleanup.policy",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "unclean.leader.election.enable",
];
/// Settings of brokers that bear on a member.
pub(in crate::app) const BROKER_SETTINGS: &[&str] = &[
    "auto.create.topics.enable",
    "default.replication.factor",
    "group.coordinator.rebalance.protocols",
    "group.max.session.timeout.ms",
    "group.min.session.timeout.ms",
    "message.max.bytes",
    "min.insync.replicas",
    "offsets.retention.minutes",
    "offsets.topic.replication.factor",
    "transaction.max.timeout.ms",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
    "transactional.id.expiration.ms",
];

pub(in crate::app) fn chosen(found: &BTreeMap<String, String>, keys: &[&str]) -> BTreeMap<String, String> {
    keys.iter().filter_map(|k| Some(((*k).to_owned(), found.get(*k)?.clone()))).collect()
}

impl Report {
    /// The report on an application as its files have it; no cluster is asked.
    pub fn offline(application: &Application, config: &ProcessConfig, warnings: &Diagnostics) -> Self {
        let told = warnings.iter().map(|d| {
            let why = if d.label.is_empty() { String::new() } else { format!(": {}", d.label) };
            Finding::new(d.code, format!("{}{why}", d.message), d.at.as_ref().map(Site::to_string).unwrap_or_default())
        });
        let assumed = assumptions(application, config);
        Self {
            application: application.id.to_string(),
            version: application.version,
            cluster: Vec::new(),
            edges: edges(application, config, &assumed),
            assumptions: assumed,
            contradictions: Vec::new(),
            warnings: told.collect(),
            not_promised: not_promised(application),
            topics: Vec::new(),
            broker: BTreeMap::new(),
            groups: Vec::new(),
            compatibility: BTreeMap::new(),
            permissions: permissions(application, config.console.session_secret.is_some()),
        }
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        json!({
            "schema": "readback.check/1", "application": self.application, "version": self.version, "cluster": self.cluster,
            "edges": self.edges, "assumptions": self.assumptions, "contradictions": self.contradictions,
            "warnings": self.warnings, "not_promised": self.not_promised, "topics": self.topics, "broker": self.broker,
            "groups": self.groups, "compatibility": self.compatibility, "permissions": self.permissions,
        })
    }
}

fn edges(application: &Application, config: &ProcessConfig, assumed: &[Assumed]) -> Vec<Edge> {
    let own = application.topology.subtopologies().iter().filter(|s| s.foreign.is_none());
    let mut all: Vec<Edge> = own.flat_map(|part| inside(application, part)).collect();
    for (contract, call, spec) in calls(application) {
        let mut promises = vec![Promised { promise: spec.promise().words().into(), because: because(spec) }];
        promises.extend(on_version(spec));
        promises.extend(on_cancel(contract, spec));
        promises.extend(on_webhook(spec));
        promises.extend(on_plan(application, contract, call));
        promises.extend(on_likeness(application, contract, call));
        if !spec.proposal {
            let kept = show_duration(config.effects.audit.0);
            promises.push(Promised {
                promise: "no intent forgotten".into(),
                because: format!("journalled before it is sent; ledger compacted, kept {kept} after closing"),
            });
        }
        all.push(Edge { edge: format!("outbox → {contract}#{call}"), promises, rests: rests::outside(spec, assumed) });
    }
    let one = |edge: String, promise: &str| Edge {
        edge,
        promises: vec![Promised { promise: promise.into(), because: "in the Kafka transaction of the change".into() }],
        rests: rests::inside(),
    };
    if application.has_effects() {
        all.extend(application.results.iter().map(|t| one(format!("outcome → {t}"), "each change once, with its ack level")));
        all.extend(application.dead_letters.iter().map(|t| one(format!("refused → {t}"), "each once, with code and origin")));
    }
    all
}

/// What a sub-topology reads and writes.
fn inside(application: &Application, part: &Subtopology) -> Vec<Edge> {
    let topology = &application.topology;
    let intake = agent::intake_topic(&application.id);
    let sinks = part.nodes.iter().filter_map(|id| match &topology.node(*id).role {
        Role::Sink(topic) if *topic == intake => Some("outbox".to_owned()),
        Role::Sink(topic) => Some(topic.to_string()),
        Role::ComputedSink => Some("topics that records name".to_owned()),
        _ => None,
    });
    let mut to: Vec<String> = sinks.collect();
    to.extend(part.stores.iter().map(|s| format!("store {s}")));
    to.dedup();
    let because = "input offset, state and output in one Kafka transaction; read_committed";
    let promised = || vec![Promised { promise: "each record once".into(), because: because.into() }];
    let from = topology.sources_of(part);
    from.iter()
        .flat_map(|s| to.iter().map(move |t| Edge { edge: format!("{s} → {t}"), promises: promised(), rests: rests::inside() }))
        .collect()
}

/// Every call that the pipelines make, each once: the model's, then the effect's, then what undoes it.
fn calls(application: &Application) -> Vec<(&ContractName, &CallName, &Call)> {
    let mut all: Vec<(&ContractName, &CallName, &Call)> = Vec::new();
    for pipeline in &application.pipelines {
        let plan = pipeline.plan.as_ref().map(|p| (&p.contract, &p.call));
        let effects: Vec<_> = pipeline.effect.calls().into_iter().map(|(_, c)| (&c.contract, &c.call)).collect();
        let spec_of = |(contract, call): (&ContractName, &CallName)| application.contracts.get(contract).and_then(|c| c.call(call));
        let undo = |of: &(_, _)| spec_of(*of).and_then(|spec| spec.compensate.as_ref()).map(|c| (of.0, &c.call));
        let undoes: Vec<_> = effects.iter().filter_map(undo).collect();
        for (contract, call) in plan.into_iter().chain(effects).chain(undoes) {
            let spec = spec_of((contract, call));
            if let Some(spec) = spec.filter(|_| all.iter().all(|(c, n, _)| (*c, *n) != (contract, call))) {
                all.push((contract, call, spec));
            }
        }
    }
    all
}

/// What keeps an effect off a resource that has changed.
fn on_version(call: &Call) -> Option<Promised> {
    let precondition = call.precondition?;
    let because = match (precondition.sent, precondition.read) {
        (true, false) => "the request carries the version, and the target compares it",
        (true, true) => "read before each send; the request carries the version, and the target compares it",
        (false, _) => "read before each send; what changes it in between is not seen",
    };
    Some(Promised { promise: "only on the version that the requester saw".into(), because: because.into() })
}

/// What becomes of an effect that is cancelled when it has happened already.
fn on_cancel(contract: &ContractName, call: &Call) -> Option<Promised> {
    let undo = call.compensate.as_ref()?;
    let because = format!(
        "by {contract}#{}, ordered once, sent when no copy of the effect can arrive any more; not confirmed in {}: a person",
        undo.call,
        show_duration(undo.deadline)
    );
    Some(Promised { promise: "undone when it is cancelled too late".into(), because })
}

/// How an accepted call is known to be done, where its target tells by itself.
fn on_webhook(call: &Call) -> Option<Promised> {
    let webhook = call.webhook.as_ref()?;
    let because = format!(
        "posted by the target to {} within {}, signed; else read back, or a person",
        webhook.path,
        show_duration(webhook.within)
    );
    Some(Promised { promise: "accepted is not done: the target tells".into(), because })
}

/// What keeps back a request that means the same as an earlier one.
fn on_likeness(application: &Application, contract: &ContractName, call: &CallName) -> Option<Promised> {
    let steps = application.pipelines.iter().map(|p| &p.effect);
    let rules = steps.filter(|e| makes(e, contract, call)).find_map(|e| e.duplicates.as_ref())?;
    let because = format!(
        "same meaning as one under way, or ended less than {} ago: a person says whether it is meant",
        show_duration(rules.within)
    );
    Some(Promised { promise: "look-alikes wait for a person".into(), because })
}

fn makes(effect: &EffectRules, contract: &ContractName, call: &CallName) -> bool {
    effect.calls().iter().any(|(_, c)| c.contract == *contract && c.call == *call)
}

/// What a plan of several calls keeps to.
fn on_plan(application: &Application, contract: &ContractName, call: &CallName) -> Option<Promised> {
    let mut steps = application.pipelines.iter().map(|p| &p.effect).filter(|e| matches!(e.does, Does::Proposed(_)));
    steps.find(|e| makes(e, contract, call))?;
    let because = "its intent is written when all that it needs is confirmed; else it is left out, and the plan's result says so";
    Some(Promised { promise: "in a plan, only after what it needs".into(), because: because.into() })
}

fn because(call: &Call) -> String {
    match (call.promise(), &call.in_flight, &call.readback) {
        (Promise::AtMostOneReadback, Some(l), Some(v)) => format!(
            "complete readback; re-send only when absent {} (L) + {} (V) after the last possible send",
            show_duration(l.within),
            show_duration(v.lag)
        ),
        _ if call.proposal => "a proposal: asked again freely, its cost counted".to_owned(),
        (promise, _, _) => promise.because(),
    }
}

fn assumptions(application: &Application, config: &ProcessConfig) -> Vec<Assumed> {
    let calls = calls(application);
    let of_calls = calls.iter().flat_map(|(_, _, call)| &call.assumptions);
    let mut all: Vec<Assumed> = of_calls.map(|a| Assumed { text: a.text.clone(), at: a.at.clone() }).collect();
    if application.has_effects() {
        let (pause, error) = (show_duration(config.effects.max_pause.0), show_duration(config.effects.clock_error.0));
        all.push(Assumed {
            text: format!("this host does not pause longer than {pause} between check and write"),
            at: "effects.max_pause".into(),
        });
        all.push(Assumed {
            text: format!("the clocks of hosts and brokers differ by at most {error}"),
            at: "effects.clock_error".into(),
        });
    }
    all
}

fn not_promised(application: &Application) -> Vec<String> {
    let mut all = Vec::new();
    if application.has_effects() {
        all.push("anything a target does on its own".to_owned());
        all.push("effects that others make under the same key".to_owned());
    }
    let counted: Vec<_> = calls(application).into_iter().filter(|(_, _, c)| c.promise() == Promise::DuplicatesCounted).collect();
    if counted.iter().any(|(_, _, c)| c.proposal) {
        all.push("that a model is asked once".to_owned());
    }
    for (contract, call, _) in counted.iter().filter(|(_, _, c)| !c.proposal) {
        all.push(format!("that an effect of {contract}#{call} happens once: its contract accepts duplicates"));
    }
    all.push("\"exactly once\" for anything outside Kafka".to_owned());
    all
}

/// Every topic that the application makes for itself: of the graph, of the operations and of the effect stage.
pub fn internal(application: &Application, layout: &crate::topology::Layout) -> Vec<crate::task::InternalTopic> {
    let mut all = application.topology.topics(layout);
    if application.has_effects() {
        let app = &application.id;
        all.extend(agent::topics(app, layout.operations));
        all.extend(crate::effects::topics(app, layout.operations));
        all.push(crate::task::InternalTopic {
            name: names::ledger_changelog(app),
            partitions: Some(layout.operations),
            config: [("cleanup.policy".to_owned(), "compact".to_owned())].into(),
            usage: crate::task::TopicUse::Internal,
        });
    }
    all.retain(|t| t.usage == crate::task::TopicUse::Internal);
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|t| seen.insert(t.name.clone()));
    all
}

/// The code of a weak setting.
const WEAK: Code = codes::WEAK_SETTING;
