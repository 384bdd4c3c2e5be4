//! What the operations sub-topology is made from, and what it needs to exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::ids::{ApplicationId, StepName, TopicName};
use crate::intents::{PublicSink, topics as names};
use crate::kafka::Reading;
use crate::outbox::{Pipeline, PolicyCheck, Renderer, Settings};
use crate::state::{ChangelogSpec, EngineKind, StoreSpec};
use crate::task::{InternalTopic, SourceSpec, StartAt, SubtopologyPlan, TopicUse};
use crate::trace::Tracer;

use super::desk::Desk;
use super::fetch::InputFetcher;
use super::metrics::Metrics;
use super::task::OperationTask;

/// The name of the sub-topology, its store and its repartition topic.
pub const OPERATIONS: &str = "operations";

/// What the operations sub-topology is made from.
pub struct OperationsConfig {
    /// The application.
    pub application: ApplicationId,
    /// Partitions of outbox, control, commands, plans and operations: one count.
    pub partitions: u32,
    /// Everything that ends in an effect.
    pub pipelines: Vec<Pipeline>,
    /// Contracts.
    pub renderer: Arc<dyn Renderer>,
    /// Policies.
    pub policy: Arc<dyn PolicyCheck>,
    /// Where results go, by effect step; without a sink they are not written.
    pub results: BTreeMap<StepName, PublicSink>,
    /// Where dead letters go.
    pub dead_letters: Option<PublicSink>,
    /// ε: wall-clock error declared for a host.
    pub clock_error: Duration,
    /// Fetches inputs given by locator; `None` leaves such operations to their deadline.
    pub fetcher: Option<Arc<dyn InputFetcher>>,
    /// Counts what happens to operations, where somebody measures.
    pub metrics: Option<Metrics>,
    /// Makes spans of operations that are sampled.
    pub tracer: Tracer,
    /// The rule that a test has switched off.
    #[cfg(feature = "test-util")]
    pub weakened: Option<crate::outbox::Rule>,
}

/// Where a task writes.
pub(super) struct Sinks {
    pub application: ApplicationId,
    pub outbox: TopicName,
    pub control: TopicName,
    pub operations: TopicName,
    pub commands: TopicName,
    pub plans: TopicName,
    pub results: BTreeMap<StepName, PublicSink>,
    pub dead_letters: Option<PublicSink>,
    pub metrics: Option<Metrics>,
    pub tracer: Tracer,
}

/// The repartition topic on which requests and approvals come.
pub fn intake_topic(application: &ApplicationId) -> TopicName {
    names::repartition(application, &StepName::new(OPERATIONS))
}

/// The sub-topology that keeps the operations, as number `id` of its unit. Errors name what is wrong in a pipeline.
pub fn subtopology(config: OperationsConfig, id: u32) -> Result<SubtopologyPlan> {
    let app = config.application;
    #[allow(unused_mut)]
    let mut settings = Settings::new(config.partitions, config.clock_error);
    #[cfg(feature = "test-util")]
    {
        settings.weakened = config.weakened;
    }
    let desk = Arc::new(Desk::new(settings, config.pipelines, config.renderer, config.policy)?);
    let sinks = Arc::new(Sinks {
        outbox: names::outbox(&app),
        control: names::control(&app),
        operations: intake_topic(&app),
        commands: names::commands(&app),
        plans: names::plans(&app),
        results: config.results,
        dead_letters: config.dead_letters,
        metrics: config.metrics,
        tracer: config.tracer,
        application: app.clone(),
    });
    let source = |topic| SourceSpec { topic, reading: Reading::Shared, start: StartAt::Earliest };
    let sources = vec![source(sinks.operations.clone()), source(sinks.commands.clone()), source(sinks.plans.clone())];
    let fetcher = config.fetcher;
    let build: crate::task::TaskBuilder = Arc::new(move |seed| {
        Ok(Box::new(OperationTask::new(seed, Arc::clone(&desk), Arc::clone(&sinks), fetcher.clone())) as Box<dyn crate::task::Task>)
    });
    Ok(SubtopologyPlan { id, sources, stores: vec![store(&app)], build })
}

fn store(app: &ApplicationId) -> StoreSpec {
    let changelog = ChangelogSpec { topic: names::changelog(app, OPERATIONS), config: settings(&[("cleanup.policy", "compact")]) };
    StoreSpec { name: crate::ids::StoreName::new(OPERATIONS), engine: EngineKind::Disk, cached: false, changelog: Some(changelog) }
}

/// The topics that the sub-topology reads and keeps its state in. Outbox and control are the effect unit's.
pub fn topics(app: &ApplicationId, partitions: u32) -> Vec<InternalTopic> {
    // Intake and plans are purged by DeleteRecords behind what the unit has committed; commands may wait a week for a member.
    let week = ("retention.ms", "604800000");
    let topic = |name: TopicName, config: &[(&str, &str)]| InternalTopic {
        name,
        partitions: Some(partitions),
        config: settings(config),
        usage: TopicUse::Internal,
    };
    vec![
        topic(intake_topic(app), &[("cleanup.policy", "delete"), ("retention.ms", "-1")]),
        topic(names::commands(app), &[("cleanup.policy", "delete"), week]),
        topic(names::plans(app), &[("cleanup.policy", "delete"), ("retention.ms", "-1")]),
        topic(names::changelog(app, OPERATIONS), &[("cleanup.policy", "compact")]),
    ]
}

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}
