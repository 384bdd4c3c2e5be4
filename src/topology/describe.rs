//! The graph as text: as Kafka Streams prints it, as Mermaid, and as a fingerprint that a deploy is compared with.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::intents::hex;

use super::{Node, Role, Subtopology, Topology};

impl Topology {
    /// As Kafka Streams prints a `TopologyDescription`; what another unit runs is marked with its name.
    pub fn describe(&self) -> String {
        let mut text = String::from("Topologies:\n ");
        for part in self.subtopologies() {
            let runs = match &part.foreign {
                Some(unit) => format!(" (unit {unit})"),
                None if part.global => " for global store (will not generate tasks)".to_owned(),
                None => String::new(),
            };
            let _ = writeln!(text, "  Sub-topology: {}{runs}", part.id);
            for id in &part.nodes {
                self.describe_node(self.node(*id), &mut text);
            }
            text.push('\n');
        }
        text
    }

    fn describe_node(&self, node: &Node, text: &mut String) {
        let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let _ = match &node.role {
            Role::Source(topics) => {
                let topics: Vec<_> = topics.iter().map(|t| t.as_str()).collect();
                writeln!(text, "    Source: {} (topics: [{}])", node.name, topics.join(", "))
            }
            Role::Step => {
                let stores: Vec<_> = self.stores_of(node.id).iter().map(|s| s.as_str()).collect();
                writeln!(text, "    Processor: {} (stores: [{}])", node.name, stores.join(", "))
            }
            Role::Sink(topic) => writeln!(text, "    Sink: {} (topic: {topic})", node.name),
            Role::ComputedSink => writeln!(text, "    Sink: {} (extractor class: computed)", node.name),
        };
        if !matches!(node.role, Role::Sink(_) | Role::ComputedSink) {
            let below = self.nodes().iter().filter(|n| n.above.contains(&node.id)).map(|n| n.name.as_str());
            let _ = writeln!(text, "      --> {}", list(below.collect()));
        }
        if !matches!(node.role, Role::Source(_)) {
            let above = node.above.iter().map(|a| self.node(*a).name.as_str());
            let _ = writeln!(text, "      <-- {}", list(above.collect()));
        }
    }

    /// As a Mermaid flow chart: topics are rounded, stores are cylinders, sub-topologies are boxes.
    pub fn mermaid(&self) -> String {
        let mut text = String::from("flowchart LR\n");
        for part in self.subtopologies() {
            let unit = part.foreign.as_ref().map_or_else(|| self.application().to_string(), ToString::to_string);
            let _ = writeln!(text, "  subgraph s{}[\"{} · {unit}\"]", part.id, part.id);
            for id in &part.nodes {
                let node = self.node(*id);
                let _ = writeln!(text, "    n{}[\"{}\"]", id.0, node.name);
                for store in self.stores_of(*id) {
                    let _ = writeln!(text, "    n{} --- {}[(\"{store}\")]", id.0, store_id(part, store.as_str()));
                }
            }
            text += "  end\n";
        }
        for node in self.nodes() {
            for above in &node.above {
                let _ = writeln!(text, "  n{} --> n{}", above.0, node.id.0);
            }
            match &node.role {
                Role::Source(topics) => {
                    for topic in topics {
                        let _ = writeln!(text, "  {}([\"{topic}\"]) --> n{}", topic_id(topic.as_str()), node.id.0);
                    }
                }
                Role::Sink(topic) => {
                    let _ = writeln!(text, "  n{} --> {}([\"{topic}\"])", node.id.0, topic_id(topic.as_str()));
                }
                Role::Step | Role::ComputedSink => {}
            }
        }
        text
    }

    /// Hex SHA-256 over what state and positions hang on: sub-topologies with their sources, stores and internal topics. Names of
    /// stateless steps don't count, so renaming or adding one keeps it.
    pub fn fingerprint(&self) -> String {
        let mut h = Sha256::new();
        let mut field = |text: &str| {
            h.update((text.len() as u64).to_be_bytes());
            h.update(text.as_bytes());
        };
        field(self.application().as_str());
        for part in self.subtopologies() {
            field(&format!("sub-topology {}", part.id));
            self.sources_of(part).iter().for_each(|t| field(t.as_str()));
            field("stores");
            part.stores.iter().for_each(|s| field(s.as_str()));
            let read = self.sources_of(part);
            let logs = part.stores.iter().filter_map(|s| self.graph.stores.get(s)?.spec.changelog.as_ref());
            logs.filter(|c| read.contains(&c.topic)).for_each(|c| field(&format!("log {}", c.topic)));
        }
        for r in &self.graph.repartitions {
            field(r.topic.as_str());
            field(&format!("{:?}", r.partitions));
        }
        hex(&h.finalize())
    }
}

fn topic_id(topic: &str) -> String {
    let id = |c: char| if c.is_ascii_alphanumeric() { c.to_string() } else { format!("_{:x}", c as u32) };
    format!("t_{}", topic.chars().map(id).collect::<String>())
}

fn store_id(part: &Subtopology, store: &str) -> String {
    format!("s{}_{}", part.id, topic_id(store))
}
