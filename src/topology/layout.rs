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
        let own = self.subtopologies().iter().filter(|s| s.has_tasks()).flat_map(|s| self.sources_of(s));
        let largest = own.filter_map(|t| layout.partitions.get(&t)).max().copied();
        layout.operations = operations.or(largest).unwrap_or(1);
        let sinks = self.external_sinks().into_iter();
        layout.sinks = sinks.filter_map(|t| external.get(&t).map(|n| (t, *n))).collect();
        self.size_repartitions(&mut layout);
        self.prove_copartitioning(&layout, &mut d);
        d.or(Some(layout))
    }

    /// A repartition topic gets its declared count, else that of the topics it is joined with, else the largest count that feeds
    /// it or those it is joined with. One may feed another, so this goes on until nothing changes.
    fn size_repartitions(&self, layout: &mut Layout) {
        let all = &self.graph.repartitions;
        let largest = |l: &Layout, topics: BTreeSet<TopicName>| topics.iter().filter_map(|t| l.partitions.get(t)).max().copied();
        let feeding = |l: &Layout, topic: &TopicName| {
            let sinks = all.iter().filter(|r| r.topic == *topic).map(|r| r.sink);
            largest(l, sinks.flat_map(|sink| self.sources_above(sink)).collect())
        };
        for r in all {
            layout.partitions.extend(r.partitions.map(|n| (r.topic.clone(), n)));
        }
        for _ in 0..all.len() {
            let open = || all.iter().filter(|r| !layout.partitions.contains_key(&r.topic));
            let beside = open().find_map(|r| Some((&r.topic, largest(layout, self.joined_with(&r.topic))?)));
            let by_feed = || {
                open().find_map(|r| {
                    let group = self.joined_with(&r.topic).into_iter().chain([r.topic.clone()]);
                    Some((&r.topic, group.filter_map(|t| feeding(layout, &t)).max()?))
                })
            };
            let Some((topic, n)) = beside.or_else(by_feed) else { break };
            layout.partitions.insert(topic.clone(), n);
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
