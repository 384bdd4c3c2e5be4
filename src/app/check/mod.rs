//! What an application promises on which edge, by what, and under which assumptions; and whether a cluster lets it.

mod cluster;
pub mod html;
mod permissions;
mod promises;
mod rests;
mod schemas;
mod standing;
mod topics;
mod tried;
mod unread;

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
use crate::time::show_duration;
use crate::topology::{Role, Subtopology};

pub use cluster::{against, protocol, timeouts};
pub use permissions::{Permission, permissions};
pub use rests::Rests;
pub use standing::{Stand, Standing, alike};
pub(in crate::app) use topics::weaknesses;
pub use tried::{Tried, or_refused, try_permissions};
pub use unread::Unread;

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
    /// The worst of what they rest on, as a cluster has it; none offline.
    pub standing: Option<Standing>,
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
    /// Topics that the cluster does not have (yet).
    pub absent: Vec<String>,
    /// What this login may not read: nothing that rests on it is known to hold.
    pub unread: Vec<Unread>,
    /// Limits of the brokers that bear on the application; empty offline, and where this login may not read them.
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
    /// Settings that a promise rests on; none where this login may not read them.
    pub settings: Option<BTreeMap<String, String>>,
    /// Where they are weaker than a promise wants.
    pub weak: Vec<String>,
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
            absent: Vec::new(),
            unread: Vec::new(),
            broker: BTreeMap::new(),
            groups: Vec::new(),
            compatibility: BTreeMap::new(),
            permissions: permissions(application),
        }
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        json!({
            "schema": "readback.check/1", "application": self.application, "version": self.version, "cluster": self.cluster,
            "edges": self.edges, "assumptions": self.assumptions, "contradictions": self.contradictions,
            "warnings": self.warnings, "not_promised": self.not_promised, "topics": self.topics, "absent": self.absent,
            "unread": self.unread, "broker": self.broker, "groups": self.groups, "compatibility": self.compatibility, "permissions": self.permissions,
        })
    }
}

fn edges(application: &Application, config: &ProcessConfig, assumed: &[Assumed]) -> Vec<Edge> {
    let app = &application.id;
    let own = application.topology.subtopologies().iter().filter(|s| s.foreign.is_none());
    let mut all: Vec<Edge> = own.flat_map(|part| inside(application, part)).collect();
    for (contract, call, spec) in calls(application) {
        let mut promises = vec![Promised { promise: spec.promise().words().into(), because: promises::because(spec) }];
        promises.extend(promises::on_policy(application, contract, call));
        promises.extend(promises::on_approval(application, contract, call));
        promises.extend(promises::on_version(spec));
        promises.extend(promises::on_cancel(contract, spec));
        promises.extend(promises::on_webhook(spec));
        promises.extend(promises::on_plan(application, contract, call));
        promises.extend(promises::on_partial(application, contract, call, spec));
        promises.extend(promises::on_likeness(application, contract, call));
        if !spec.proposal {
            let kept = show_duration(config.effects.audit.0);
            promises.push(Promised {
                promise: "no intent forgotten".into(),
                because: format!("journalled before it is sent; ledger compacted, kept {kept} after closing"),
            });
        }
        let under =
            if spec.proposal { Vec::new() } else { vec![names::ledger_changelog(app), names::outbox(app), names::control(app)] };
        let rests = rests::outside(spec, assumed).over(under);
        all.push(Edge { edge: format!("outbox → {contract}#{call}"), promises, rests, standing: None });
    }
    let one = |edge: String, promise: &str, to: &TopicName| Edge {
        edge,
        promises: vec![Promised { promise: promise.into(), because: "in the Kafka transaction of the change".into() }],
        rests: rests::inside().over([to.clone(), names::changelog(app, "operations"), names::ledger_changelog(app)]),
        standing: None,
    };
    if application.has_effects() {
        all.extend(application.results.iter().map(|t| one(format!("outcome → {t}"), "each change once, with its ack level", t)));
        all.extend(application.dead_letters.iter().map(|t| one(format!("refused → {t}"), "each once, with code and origin", t)));
    }
    all
}

/// What a sub-topology reads and writes.
fn inside(application: &Application, part: &Subtopology) -> Vec<Edge> {
    let topology = &application.topology;
    let intake = agent::intake_topic(&application.id);
    let app = &application.id;
    let sinks = part.nodes.iter().filter_map(|id| match &topology.node(*id).role {
        Role::Sink(topic) if *topic == intake => {
            Some(("outbox".to_owned(), vec![topic.clone(), names::changelog(app, "operations"), names::outbox(app)]))
        }
        Role::Sink(topic) => Some((topic.to_string(), vec![topic.clone()])),
        Role::ComputedSink => Some(("topics that records name".to_owned(), Vec::new())),
        _ => None,
    });
    let mut to: Vec<(String, Vec<TopicName>)> = sinks.collect();
    to.extend(part.stores.iter().map(|s| (format!("store {s}"), vec![names::changelog(app, s.as_str())])));
    to.dedup();
    let because = "input offset, state and output in one Kafka transaction; read_committed";
    let promised = || vec![Promised { promise: "each record once".into(), because: because.into() }];
    let edge = |from: &TopicName, (to, under): &(String, Vec<TopicName>)| Edge {
        edge: format!("{from} → {to}"),
        promises: promised(),
        rests: rests::inside().over(std::iter::once(from.clone()).chain(under.iter().cloned())),
        standing: None,
    };
    topology.sources_of(part).iter().flat_map(|s| to.iter().map(|t| edge(s, t)).collect::<Vec<_>>()).collect()
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
