//! Topics that must exist before a unit runs: ours are created, the user's are asked for.

use std::collections::BTreeMap;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::TopicName;
use crate::kafka::{Admin, Class, NewTopic};
use crate::task::{InternalTopic, SubtopologyPlan, TopicUse, UnitPlan};

use super::error_of;
use super::options::RuntimeOptions;

/// How often a topic that was just created is looked for, and how long in between.
const LOOKS: u32 = 50;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Creates what is missing of the units' topics and changelogs, and refuses those that are not as they must be. A missing topic
/// of the user is an error that shows the command to create it, unless `create_topics` is set.
pub fn ensure_topics(admin: &dyn Admin, plans: &[&UnitPlan], options: &RuntimeOptions) -> Result<()> {
    let declared: Vec<&InternalTopic> = plans.iter().flat_map(|p| &p.topics).collect();
    ensure(admin, &declared, options)?;
    let mut changelogs = Vec::new();
    for sub in plans.iter().flat_map(|p| &p.subtopologies) {
        changelogs.extend(changelogs_of(admin, sub)?.into_iter().filter(|c| declared.iter().all(|d| d.name != c.name)));
    }
    ensure(admin, &changelogs.iter().collect::<Vec<_>>(), options)
}

fn ensure(admin: &dyn Admin, topics: &[&InternalTopic], options: &RuntimeOptions) -> Result<()> {
    let mut missing: BTreeMap<TopicName, NewTopic> = BTreeMap::new();
    for topic in topics {
        match admin.topic(&topic.name).map_err(error_of)? {
            Some(found) => check(admin, topic, found.partitions)?,
            None if topic.usage == TopicUse::Internal || options.create_topics => {
                let new = NewTopic {
                    name: topic.name.clone(),
                    partitions: topic.partitions.unwrap_or(1),
                    replication: options.replication,
                    config: topic.config.clone(),
                };
                missing.insert(topic.name.clone(), new);
            }
            None => return Err(asked_for(topic)),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    tracing::info!(topics = ?missing.keys(), "creating topics");
    let new: Vec<NewTopic> = missing.into_values().collect();
    admin.create(&new).map_err(error_of)?;
    new.iter().try_for_each(|t| wait_for_topic(admin, &t.name))
}

/// Waits until a topic that was just created is listed: its metadata takes a moment to reach every broker.
pub fn wait_for_topic(admin: &dyn Admin, name: &TopicName) -> Result<()> {
    for _ in 0..LOOKS {
        if admin.topic(name).map_err(error_of)?.is_some() {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(Error::new(codes::TOPIC_MISSING, Fault::Unreachable, format!("creating topic {name}"))
        .because("the cluster accepted it but does not list it")
        .next("start again"))
}

/// Where a topic is not as this version would make it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// `partition count`, or the setting's name.
    pub what: String,
    /// As it is.
    pub actual: String,
    /// As it should be.
    pub expected: String,
    /// Whether a start refuses it.
    pub refused: bool,
}

/// Compares a topic that exists with what a unit needs.
pub fn differences(topic: &InternalTopic, partitions: u32, found: &BTreeMap<String, String>) -> Vec<Difference> {
    let count = topic.partitions.filter(|e| *e != partitions).map(|expected| Difference {
        what: "partition count".into(),
        actual: partitions.to_string(),
        expected: expected.to_string(),
        refused: true,
    });
    let setting = |(key, expected): (&String, &String)| {
        let actual = found.get(key).filter(|a| *a != expected)?;
        // A changelog that is deleted by time loses state; one that is never compacted grows for ever. What is kept until it was
        // read and is deleted by time or size loses records. The rest is tuning.
        let kept = key.starts_with("retention.") && expected == "-1";
        let refused = key == "cleanup.policy" || kept;
        Some(Difference { what: key.clone(), actual: actual.clone(), expected: expected.clone(), refused })
    };
    count.into_iter().chain(topic.config.iter().filter_map(setting)).collect()
}

fn check(admin: &dyn Admin, topic: &InternalTopic, partitions: u32) -> Result<()> {
    let asked = topic.usage == TopicUse::Internal && !topic.config.is_empty();
    let found = if asked { settings(admin, &topic.name)? } else { BTreeMap::new() };
    for d in differences(topic, partitions, &found) {
        if d.refused {
            return Err(Error::new(codes::TOPIC_MISMATCH, Fault::Configuration, format!("checking topic {}", topic.name))
                .because(format!("its {} is {}, it must be {}", d.what, d.actual, d.expected))
                .next("a topic of this name stems from another application or version; `readback check --live` compares all"));
        }
        tracing::warn!(topic = %topic.name, key = d.what, actual = d.actual, expected = d.expected, "a topic setting differs from what this version would choose");
    }
    Ok(())
}

/// A topic's settings; none, with a warning, where this login may not read them: a member runs without seeing them.
fn settings(admin: &dyn Admin, topic: &TopicName) -> Result<BTreeMap<String, String>> {
    match admin.topic_config(topic) {
        Err(fault) if fault.class == Class::Config => {
            tracing::warn!(code = %codes::NOT_AUTHORIZED, %topic, "its settings were not read, so nobody knows whether they are as this version needs them: allow DescribeConfigs on it");
            Ok(BTreeMap::new())
        }
        found => found.map_err(error_of),
    }
}

fn asked_for(topic: &InternalTopic) -> Error {
    let partitions = topic.partitions.map_or_else(|| "<n>".to_owned(), |n| n.to_string());
    Error::new(codes::TOPIC_MISSING, Fault::Configuration, format!("looking for topic {}", topic.name)).next(format!(
        "kafka-topics.sh --bootstrap-server <brokers> --create --topic {} --partitions {partitions}; or start with `topics.create: true`",
        topic.name
    ))
}

/// A changelog has as many partitions as its sub-topology has tasks.
fn changelogs_of(admin: &dyn Admin, sub: &SubtopologyPlan) -> Result<Vec<InternalTopic>> {
    let read = |topic: &TopicName| sub.sources.iter().any(|s| s.topic == *topic);
    let specs: Vec<_> = sub.stores.iter().filter_map(|s| s.changelog.as_ref()).filter(|c| !read(&c.topic)).collect();
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    let mut tasks = 0;
    for source in &sub.sources {
        tasks = tasks.max(admin.topic(&source.topic).map_err(error_of)?.map_or(0, |t| t.partitions));
    }
    let topic = |c: &crate::state::ChangelogSpec| InternalTopic {
        name: c.topic.clone(),
        partitions: Some(tasks),
        config: c.config.clone(),
        usage: TopicUse::Internal,
    };
    Ok(specs.into_iter().map(topic).collect())
}
