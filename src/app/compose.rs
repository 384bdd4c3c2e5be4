//! From an application and the partition counts of a cluster to the units that the runtime runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::{self, OperationsConfig};
use crate::config::ProcessConfig;
use crate::dsl::Application;
use crate::effects::{self, Assumptions, EffectsConfig, Policies, call_book};
use crate::error::{Error, Fault, Result, codes};
use crate::http::HttpPort;
use crate::ids::{ApplicationId, GroupId, StepName, TopicName, UnitName};
use crate::intents::{PublicSink, ResultRecord, topics as names};
use crate::kafka::Admin;
use crate::processor::BadRecords;
use crate::runtime::error_of;
use crate::serdes::AvroCodec;
use crate::serdes::internal::Wire;
use crate::state::{CacheBudget, Globals};
use crate::task::{GlobalPlan, StartAt, UnitPlan};
use crate::topology::{Environments, Layout, StoreInfo};
use crate::trace::Tracer;

use super::adapt::{ContractRenderer, PolicyBook};

/// Where schemas of public topics come from.
pub trait Schemas {
    /// The id under which `avsc` is framed on `subject`; `None` = the internal form, without a registry.
    fn id_of(&self, subject: &str, avsc: &str) -> Result<Option<u32>>;
}

/// What differs between a real process, a test and a simulation.
#[derive(Clone)]
pub struct Edges {
    /// Where calls are made.
    pub http: Arc<dyn HttpPort>,
    /// For registry-framed Avro.
    pub avro: Option<Arc<dyn AvroCodec>>,
    /// Names this run of this process; never used twice.
    pub incarnation: String,
    /// What all effect tasks of the process share.
    pub shared: Arc<effects::Shared>,
    /// Fetches inputs given by locator.
    pub fetcher: Option<Arc<dyn agent::InputFetcher>>,
    /// Counts what happens to operations, where somebody measures.
    pub metrics: Option<agent::Metrics>,
    /// Makes spans of operations that are sampled; the effect tasks have theirs in `shared`.
    pub tracer: Tracer,
    /// Rules that don't hold: none, outside tests.
    pub weakened: Weakened,
}

/// Rules that a test has switched off, to see that something then goes wrong; in the program all of them hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weakened {
    /// Of the effect stage.
    #[cfg(feature = "test-util")]
    pub effects: Option<effects::Rule>,
    /// Of the operation record.
    #[cfg(feature = "test-util")]
    pub operations: Option<crate::outbox::Rule>,
}

impl Weakened {
    /// In a process that a test has started, the rule that `READBACK_WEAKEN` names; a build without the test kit knows none.
    pub(super) fn of_process() -> Self {
        #[cfg(feature = "test-util")]
        if std::env::var("READBACK_WEAKEN").is_ok_and(|rule| rule == "journal-before-call") {
            return Self { effects: Some(effects::Rule::JournalBeforeCall), operations: None };
        }
        Self::default()
    }
}

/// An application as units.
#[derive(Clone, Debug)]
pub struct Composed {
    /// `<app>`: the graph and the operations.
    pub stream: UnitPlan,
    /// `<app>.effects`, where anything ends outside Kafka.
    pub effects: Option<UnitPlan>,
    /// Partition counts.
    pub layout: Arc<Layout>,
    /// Whole-topic stores to fill, and where steps find them.
    pub globals: (Vec<GlobalPlan>, Globals),
    /// The stores that can be asked.
    pub stores: Vec<StoreInfo>,
}

/// Partition counts of the user's topics as the cluster has them; a missing topic is simply not there.
pub fn external_counts(application: &Application, admin: &dyn Admin) -> Result<BTreeMap<TopicName, u32>> {
    let mut counts = BTreeMap::new();
    for topic in external_topics(application) {
        if let Some(info) = admin.topic(&topic).map_err(error_of)? {
            counts.insert(topic, info.partitions);
        }
    }
    Ok(counts)
}

/// As [`external_counts`], with topics that are missing counted as a first start would make them; and which those are.
pub fn counts_to_be(
    application: &Application,
    config: &ProcessConfig,
    admin: &dyn Admin,
) -> Result<(BTreeMap<TopicName, u32>, BTreeSet<TopicName>)> {
    let mut counts = external_counts(application, admin)?;
    let missing: BTreeSet<TopicName> = external_topics(application).into_iter().filter(|t| !counts.contains_key(t)).collect();
    counts.extend(missing.iter().map(|t| (t.clone(), config.topics.partitions)));
    Ok((counts, missing))
}

/// The user's topics that an application reads or writes.
pub fn external_topics(application: &Application) -> BTreeSet<TopicName> {
    let graph = application.topology.external_sources().into_iter().chain(application.topology.external_sinks());
    graph.chain(application.results.iter().chain(&application.dead_letters).cloned()).collect()
}

/// Refuses to start without the user's topics; tells all that are missing, each with the command that creates it.
pub fn require_external(application: &Application, config: &ProcessConfig, counts: &BTreeMap<TopicName, u32>) -> Result<()> {
    let missing: Vec<_> = external_topics(application).into_iter().filter(|t| !counts.contains_key(t)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|t| t.as_str()).collect();
    let commands: Vec<_> = missing.iter().map(|t| format!("\n    {}", create_command(t, config))).collect();
    let what = format!("looking for the topics of {} on {}", application.id, config.brokers);
    // What was just created shows at each broker in its own time: that is waited for.
    let fault = if config.topics.create { Fault::Unreachable } else { Fault::Configuration };
    Err(Error::new(codes::TOPIC_MISSING, fault, what)
        .because(format!("there is no topic {}", names.join(", ")))
        .next(format!("start with `topics.create: true` (READBACK_TOPICS__CREATE=true), or create:{}", commands.concat())))
}

/// How a person creates a topic.
pub fn create_command(topic: &TopicName, config: &ProcessConfig) -> String {
    let (brokers, n) = (&config.brokers, config.topics.partitions);
    format!("kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} --partitions {n}")
}

/// Composes an application over these topics.
pub fn compose(
    application: &Application,
    config: &ProcessConfig,
    counts: &BTreeMap<TopicName, u32>,
    schemas: &dyn Schemas,
    edges: &Edges,
) -> Result<Composed> {
    let layout = application.topology.layout(counts, None).map_err(|d| {
        Error::new(codes::TOPIC_MISSING, Fault::Configuration, format!("laying {} over the cluster's topics", application.id))
            .because(d.to_string())
            .next("create the topics, or start with `topics.create: true`")
    })?;
    let layout = Arc::new(layout);
    let bad = application.dead_letters.clone().map_or(BadRecords::Fail, BadRecords::DeadLetter);
    let environments = Environments {
        avro: edges.avro.clone(),
        bad,
        start: StartAt::Earliest,
        globals: Globals::default(),
        record_cache: CacheBudget::new(config.state.record_cache.0),
    };
    let globals = (application.topology.globals(&layout, &environments), environments.globals.clone());
    let stores = application.topology.stores(&layout);
    let mut stream = UnitPlan {
        application: application.id.clone(),
        unit: UnitName::new(application.id.as_str()),
        group: GroupId::new(application.id.as_str()),
        subtopologies: application.topology.plan(&layout, &environments),
        topics: application.topology.topics(&layout),
        flat_gap: false,
    };
    if !application.has_effects() {
        return Ok(Composed { stream, effects: None, layout, globals, stores });
    }
    let sinks = Sinks::of(application, counts, schemas)?;
    let policies = PolicyBook::parse(application.policies.iter().map(|(n, p)| (n.as_str(), p.path.as_str(), p.text.as_str())))?;
    let next = stream.subtopologies.iter().map(|s| s.id + 1).max().unwrap_or(0);
    let operations = operations(application, config, &layout, &sinks, &policies, edges)?;
    stream.subtopologies.push(agent::subtopology(operations, next)?);
    stream.topics.extend(agent::topics(&application.id, layout.operations));
    let effects = effects_unit(application, config, &layout, &sinks, &policies, edges, next + 1);
    stream.topics.extend(effects.topics.iter().cloned());
    stream.topics = one_each(stream.topics);
    Ok(Composed { stream, effects: Some(effects), layout, globals, stores })
}

/// Where results and dead letters of each step go.
struct Sinks {
    results: BTreeMap<StepName, PublicSink>,
    dead_letters: Option<PublicSink>,
}

impl Sinks {
    fn of(application: &Application, counts: &BTreeMap<TopicName, u32>, schemas: &dyn Schemas) -> Result<Self> {
        let sink = |topic: &TopicName, schema_id: Option<u32>| -> Result<PublicSink> {
            let partitions = counts.get(topic).copied().ok_or_else(|| {
                Error::new(codes::TOPIC_MISSING, Fault::Configuration, format!("looking for topic {topic}"))
                    .next("create it, or start with `topics.create: true`")
            })?;
            Ok(PublicSink { topic: topic.clone(), partitions, schema_id })
        };
        let results = match &application.results {
            Some(topic) => Some(sink(topic, schemas.id_of(&format!("{topic}-value"), ResultRecord::AVSC)?)?),
            None => None,
        };
        let steps = application.pipelines.iter().flat_map(|p| {
            let plan = p.plan.as_ref().map(|plan| plan.step.clone());
            plan.into_iter().chain([p.step.clone()])
        });
        let results = results.into_iter().flat_map(|r| steps.clone().map(move |s| (s, r.clone()))).collect();
        let dead_letters = application.dead_letters.as_ref().map(|t| sink(t, None)).transpose()?;
        Ok(Self { results, dead_letters })
    }
}

fn operations(
    application: &Application,
    config: &ProcessConfig,
    layout: &Layout,
    sinks: &Sinks,
    policies: &PolicyBook,
    edges: &Edges,
) -> Result<OperationsConfig> {
    Ok(OperationsConfig {
        application: application.id.clone(),
        partitions: layout.operations,
        pipelines: application.pipelines.clone(),
        renderer: Arc::new(ContractRenderer::new(application.contracts.clone(), key_secret(&application.id, config)?)),
        policy: Arc::new(policies.clone()),
        results: sinks.results.clone(),
        dead_letters: sinks.dead_letters.clone(),
        clock_error: config.effects.clock_error.0,
        fetcher: edges.fetcher.clone(),
        metrics: edges.metrics.clone(),
        tracer: edges.tracer.clone(),
        #[cfg(feature = "test-util")]
        weakened: edges.weakened.operations,
    })
}

/// The key under which wire keys are derived. Without one it is the application's name: then whoever knows an operation ID can
/// compute its wire key, which matters only where the target trusts keys.
fn key_secret(app: &ApplicationId, config: &ProcessConfig) -> Result<Vec<u8>> {
    match &config.effects.key_secret {
        Some(reference) => Ok(reference.resolve()?.expose().as_bytes().to_vec()),
        None => Ok(app.as_str().as_bytes().to_vec()),
    }
}

fn effects_unit(
    application: &Application,
    config: &ProcessConfig,
    layout: &Layout,
    sinks: &Sinks,
    policies: &PolicyBook,
    edges: &Edges,
    id: u32,
) -> UnitPlan {
    let section = &config.effects;
    let host = Assumptions { epsilon: section.clock_error.0, pause: section.max_pause.0, audit: section.audit.0 };
    let contracts: Vec<_> = application.contracts.values().cloned().collect();
    let steps = application.pipelines.iter().filter_map(|p| Some((&p.step, p.effect.policy.as_deref()?)));
    let dead = sinks.dead_letters.iter().flat_map(|d| sinks.results.keys().map(move |s| (s.clone(), d.clone()))).collect();
    let config = EffectsConfig {
        application: application.id.clone(),
        incarnation: edges.incarnation.clone(),
        partitions: layout.operations,
        calls: calls(&contracts, host, edges.weakened),
        guard: Arc::new(Policies(policies.by_step(steps))),
        results: sinks.results.clone(),
        dead_letters: dead,
        http: edges.http.clone(),
        shared: edges.shared.clone(),
        host,
        max_open: section.max_open,
    };
    let topics = effects::topics(&application.id, layout.operations);
    let unit = names::effects_unit(&application.id);
    UnitPlan {
        application: application.id.clone(),
        group: GroupId::new(unit.as_str()),
        unit,
        subtopologies: vec![effects::subtopology(config, id)],
        topics,
        flat_gap: true,
    }
}

fn calls(contracts: &[Arc<crate::contract::Contract>], host: Assumptions, _weakened: Weakened) -> effects::CallBook {
    #[allow(unused_mut)]
    let mut book = call_book(contracts, host);
    #[cfg(feature = "test-util")]
    book.values_mut().filter_map(Arc::get_mut).for_each(|call| call.rules.weakened = _weakened.effects);
    book
}

/// Each topic once: the first declaration counts.
fn one_each(topics: Vec<crate::task::InternalTopic>) -> Vec<crate::task::InternalTopic> {
    let mut seen = std::collections::BTreeSet::new();
    topics.into_iter().filter(|t| seen.insert(t.name.clone())).collect()
}
