//! What a login may not read: it is told, with the permission that it takes, and nothing that rests on it counts as holding.

use serde::Serialize;

use crate::error::{Result, codes};
use crate::ids::{GroupId, TopicName};
use crate::kafka::{Class, KResult};
use crate::runtime::error_of;

use super::{Finding, Report};

/// Something that was not read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unread {
    /// What: `settings of agent.requests`.
    pub what: String,
    /// The operation that reading needs: `DescribeConfigs`.
    pub operation: &'static str,
    /// On which kind of resource: `topic`, `group`, `cluster`.
    pub resource: &'static str,
    /// Its name; empty for the cluster.
    pub name: String,
}

impl Unread {
    pub(super) fn settings_of(topic: &TopicName) -> Self {
        Self::new(format!("settings of {topic}"), "DescribeConfigs", "topic", topic.as_str())
    }
    pub(super) fn topic(topic: &TopicName) -> Self {
        Self::new(format!("partitions and settings of {topic}"), "Describe", "topic", topic.as_str())
    }
    pub(super) fn brokers() -> Self {
        Self::new("settings of the brokers".into(), "DescribeConfigs", "cluster", "")
    }
    pub(super) fn members_of(group: &GroupId) -> Self {
        Self::new(format!("members of {group}"), "Describe", "group", group.as_str())
    }

    fn new(what: String, operation: &'static str, resource: &'static str, name: &str) -> Self {
        Self { what, operation, resource, name: name.to_owned() }
    }

    /// In one line.
    pub fn told(&self) -> String {
        let on = if self.name.is_empty() { "the cluster".to_owned() } else { format!("{} {}", self.resource, self.name) };
        format!("{} were not read: needs {} on {on}", self.what, self.operation)
    }

    /// What allows it.
    fn hint(&self) -> String {
        let of = if self.name.is_empty() { String::new() } else { format!(" '{}'", self.name) };
        format!(
            "what rests on them is not known to hold; kafka-acls.sh --add … --operation {} --{}{of}",
            self.operation, self.resource
        )
    }
}

impl Report {
    /// The answer; none where this login may not ask, and then that is told.
    pub(super) fn allowed<T>(&mut self, answer: KResult<T>, unread: Unread) -> Result<Option<T>> {
        match answer {
            Err(fault) if fault.class == Class::Config => {
                self.warnings.push(Finding::new(codes::NOT_AUTHORIZED, unread.told(), unread.hint()));
                self.unread.push(unread);
                Ok(None)
            }
            other => other.map(Some).map_err(error_of),
        }
    }
}
