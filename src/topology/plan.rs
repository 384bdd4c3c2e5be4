//! From a topology with known partition counts to what the runtime runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::TopicName;
use crate::kafka::Reading;
use crate::processor::{BadRecords, Environment};
use crate::serdes::AvroCodec;
use crate::state::{CacheBudget, Globals, StoreId};
use crate::task::{GlobalPlan, InternalTopic, SourceSpec, StartAt, SubtopologyPlan, TaskSeed, TopicUse};

use super::graph::GlobalEntry;
use super::{KeeperFactory, Layout, Role, SourceFactory, StreamTask, Subtopology, Topology};

/// What all tasks of a topology get from outside.
#[derive(Clone)]
pub struct Environments {
    /// For registry-framed Avro.
    pub avro: Option<Arc<dyn AvroCodec>>,
    /// What happens to bad records.
    pub bad: BadRecords,
    /// Where reading starts on topics that the group never read.
    pub start: StartAt,
    /// Stores that hold a whole topic, to be opened by the process.
    pub globals: Globals,
    /// What the record caches of the process may hold together.
    pub record_cache: Arc<CacheBudget>,
}

impl Topology {
    /// The sub-topologies that stream tasks run; those of operations and effects are planned by their own modules.
    pub fn plan(&self, layout: &Arc<Layout>, environments: &Environments) -> Vec<SubtopologyPlan> {
        let own = self.subtopologies().iter().filter(|s| s.has_tasks());
        own.map(|s| self.plan_one(s, layout.clone(), environments.clone())).collect()
    }

    /// The whole-topic stores that each process fills.
    pub fn globals(&self, layout: &Layout, environments: &Environments) -> Vec<GlobalPlan> {
        let plan = |entry: &GlobalEntry| {
            let topic = entry.spec.changelog.as_ref()?.topic.clone();
            let (check, avro) = (entry.check.clone(), environments.avro.clone());
            Some(GlobalPlan {
                spec: entry.spec.clone(),
                partitions: layout.partitions.get(&topic).copied()?,
                topic,
                check: Arc::new(move |r| check(r, avro.as_deref())),
                skips: environments.bad != BadRecords::Fail,
            })
        };
        self.graph.globals.values().filter_map(plan).collect()
    }

    fn plan_one(&self, part: &Subtopology, layout: Arc<Layout>, environments: Environments) -> SubtopologyPlan {
        let mut factories: BTreeMap<Vec<TopicName>, SourceFactory> = BTreeMap::new();
        for id in &part.nodes {
            if let (Role::Source(topics), Some(factory)) = (&self.node(*id).role, self.graph.sources.get(id)) {
                factories.insert(topics.clone(), factory.clone());
            }
        }
        let mut stores = Vec::new();
        for (i, name) in part.stores.iter().enumerate() {
            let entry = &self.graph.stores[name];
            // Planning twice gives the same place, so a second `set` is no news.
            let _ = entry.place.set(StoreId(i));
            stores.push(entry.spec.clone());
        }
        let topics = self.sources_of(part);
        // Several inputs are picked by time, which needs a queue for each.
        let reading = if topics.len() > 1 { Reading::Split } else { Reading::Shared };
        let sources = topics.into_iter().map(|topic| SourceSpec {
            start: if self.is_internal(&topic) { StartAt::Earliest } else { environments.start },
            topic,
            reading,
        });
        let sources = sources.collect();
        let (factories, keepers) = (Arc::new(factories), Arc::new(self.keepers_of(part)));
        let build = move |seed: TaskSeed| -> crate::error::Result<Box<dyn crate::task::Task>> {
            let environment = Environment {
                task: seed.id,
                avro: environments.avro.clone(),
                bad: environments.bad.clone(),
                dropped: seed.dropped,
                globals: environments.globals.clone(),
                record_cache: environments.record_cache.clone(),
            };
            Ok(Box::new(StreamTask::new(environment, layout.clone(), factories.clone(), keepers.clone())))
        };
        SubtopologyPlan { id: part.id, sources, stores, build: Arc::new(build) }
    }

    fn keepers_of(&self, part: &Subtopology) -> Vec<KeeperFactory> {
        self.graph.keepers.iter().filter(|(store, _)| part.stores.contains(store)).map(|(_, keeper)| keeper.clone()).collect()
    }

    /// Topics that must exist: repartition topics and changelogs (ours), sources and sinks (the user's).
    pub fn topics(&self, layout: &Layout) -> Vec<InternalTopic> {
        let mut all = Vec::new();
        for r in &self.graph.repartitions {
            all.push(InternalTopic {
                name: r.topic.clone(),
                partitions: layout.partitions.get(&r.topic).copied(),
                config: [("cleanup.policy", "delete"), ("retention.ms", "-1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
                usage: TopicUse::Internal,
            });
        }
        for part in self.subtopologies().iter().filter(|s| s.has_tasks()) {
            let tasks = self.sources_of(part).iter().filter_map(|t| layout.partitions.get(t)).max().copied();
            let read = self.sources_of(part);
            let logs = part.stores.iter().filter_map(|s| self.graph.stores[s].spec.changelog.as_ref());
            for changelog in logs.filter(|c| !read.contains(&c.topic)) {
                all.push(InternalTopic {
                    name: changelog.topic.clone(),
                    partitions: tasks,
                    config: changelog.config.clone(),
                    usage: TopicUse::Internal,
                });
            }
        }
        let external = self.external_sources().into_iter().chain(self.external_sinks());
        all.extend(external.map(|name| InternalTopic {
            name,
            partitions: None,
            config: BTreeMap::new(),
            usage: TopicUse::External,
        }));
        all
    }
}
