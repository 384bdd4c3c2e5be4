//! What a builder or a file gives: the graph, and what its effects need.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::contract::Contract;
use crate::ids::{ApplicationId, ContractName, StepName, TopicName};
use crate::outbox::Pipeline;
use crate::serdes::SerdeRef;
use crate::topology::Topology;

/// A policy as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Where it stands, for messages.
    pub path: String,
    /// Cedar.
    pub text: String,
}

/// A topic of the user's that carries requests, and the step that takes them.
#[derive(Clone)]
pub struct RequestTopic {
    /// The topic.
    pub topic: TopicName,
    /// The effect step whose pipeline takes its requests.
    pub step: StepName,
    /// How its values are written: a request as JSON becomes what the source declares.
    pub values: SerdeRef<serde_json::Value>,
}

/// A whole application, before any cluster is asked.
pub struct Application {
    /// Its name: consumer group and prefix of internal topics.
    pub id: ApplicationId,
    /// The author's version of it.
    pub version: i64,
    /// The graph, effect steps included for display.
    pub topology: Topology,
    /// The steps that end in effects.
    pub pipelines: Vec<Pipeline>,
    /// The topics that carry requests; those whose records are mapped to requests are none.
    pub requests: Vec<RequestTopic>,
    /// The contracts that the pipelines name.
    pub contracts: BTreeMap<ContractName, Arc<Contract>>,
    /// The policies that the pipelines name: `EffectRules::policy` is the key.
    pub policies: BTreeMap<String, Policy>,
    /// Where results go.
    pub results: Option<TopicName>,
    /// Where records go that can't be used.
    pub dead_letters: Option<TopicName>,
}

impl Application {
    /// Whether anything in it ends outside Kafka.
    pub fn has_effects(&self) -> bool {
        !self.pipelines.is_empty()
    }
}

impl std::fmt::Debug for Application {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} version {}\n{:?}", self.id, self.version, self.topology)
    }
}
