//! Partition counts: given for the user's topics, derived for ours, proved equal where a step joins.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::yaml::Diagnostics;
use crate::error::codes;
use crate::ids::TopicName;

use super::{NodeId, Role, Topology};

/// The partition count of every topic that a topology reads or makes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// By topic; repartition topics included.
    pub partitions: BTreeMap<TopicName, u32>,
    /// Partitions of the operations, outbox, control, commands and plans topics: the largest source, unless set.
    pub operations: u32,
    /// By topic that is written and that we don't make, where it is known.
    pub sinks: BTreeMap<TopicName, u32>,
}

impl Layout {
    /// Partition counts of all topics that can be written.
    pub fn written(&self) -> BTreeMap<TopicName, u32> {
        self.sinks.iter().chain(&self.partitions).map(|(t, n)| (t.clone(), *n)).collect()
    }
}

impl Topology {
    /// Derives all counts from those of the user's topics. Refuses joins of differently partitioned topics.
    pub fn layout(&self, external: &BTreeMap<TopicName, u32>, operations: Option<u32>) -> Result<Layout, Diagnostics> {
        let mut d = Diagnostics::new();
        let mut layout = Layout::default();
        for topic in self.external_sources() {
            match external.get(&topic) {
                Some(&n) => drop(layout.partitions.insert(topic, n)),
                None => drop(d.general(codes::TOPIC_MISSING, format!("the source topic {topic} does not exist"))),
            }
        }
        layout.operations = operations.unwrap_or_else(|| layout.partitions.values().copied().max().unwrap_or(1));
        let sinks = self.external_sinks().into_iter();
        layout.sinks = sinks.filter_map(|t| external.get(&t).map(|n| (t, *n))).collect();
        self.size_repartitions(&mut layout);
        self.prove_copartitioning(&layout, &mut d);
        d.or(Some(layout))
    }

    /// A repartition topic gets its declared count, else that of the topics it is joined with, else the largest count that feeds
    /// it. One may feed another, so this goes on until nothing changes.
    fn size_repartitions(&self, layout: &mut Layout) {
        for repartition in &self.graph.repartitions {
            let joined = self.joined_with(&repartition.topic);
            let given = joined.iter().filter_map(|t| layout.partitions.get(t)).max().copied();
            if let Some(n) = repartition.partitions.or(given) {
                layout.partitions.insert(repartition.topic.clone(), n);
            }
        }
        for _ in 0..=self.graph.repartitions.len() {
            for repartition in &self.graph.repartitions {
                if layout.partitions.contains_key(&repartition.topic) {
                    continue;
                }
                let feeding = self.sources_above(repartition.sink);
                if let Some(n) = feeding.iter().filter_map(|t| layout.partitions.get(t)).max().copied() {
                    layout.partitions.insert(repartition.topic.clone(), n);
                }
            }
        }
    }

    fn prove_copartitioning(&self, layout: &Layout, d: &mut Diagnostics) {
        for &step in &self.graph.copartitioned {
            let counts: Vec<_> =
                self.sources_above(step).into_iter().filter_map(|t| layout.partitions.get(&t).map(|n| (t, *n))).collect();
            if counts.iter().any(|(_, n)| *n != counts[0].1) {
                let each: Vec<_> = counts.iter().map(|(t, n)| format!("{t} has {n}")).collect();
                let name = &self.node(step).name;
                d.general(
                    codes::TOPIC_MISMATCH,
                    format!("`{name}` joins topics of different partition counts: {}", each.join(", ")),
                )
                .note("equal keys must lie in equal partitions: repartition one side under a name, with the other's count");
            }
        }
    }

    /// Topics that a join lays beside this one.
    fn joined_with(&self, topic: &TopicName) -> BTreeSet<TopicName> {
        let groups = self.graph.copartitioned.iter().map(|step| self.sources_above(*step));
        groups.filter(|g| g.contains(topic)).flatten().filter(|t| t != topic).collect()
    }

    /// The source topics that feed a node within its sub-topology, through edges and, for tables, stores.
    pub(super) fn sources_above(&self, node: NodeId) -> BTreeSet<TopicName> {
        let (mut found, mut open, mut seen) = (BTreeSet::new(), vec![node], BTreeSet::new());
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let node = self.node(id);
            if let Role::Source(topics) = &node.role {
                found.extend(topics.iter().cloned());
            }
            open.extend(&node.above);
            for store in self.graph.stores.values().filter(|s| s.users.contains(&id)) {
                open.extend(store.users.iter().filter(|u| **u < id));
            }
        }
        found
    }
}
