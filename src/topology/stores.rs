//! The stores of a topology as queries know them.

use serde::Serialize;

use crate::ids::{StoreName, TopicName};
use crate::serdes::Shape;

use super::{Layout, Topology};

/// A store that can be asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StoreInfo {
    /// Its name.
    pub name: StoreName,
    /// How many partitions it has over all processes.
    pub partitions: u32,
    /// How people write its keys.
    pub key: Shape,
    /// How people read its values.
    pub value: Shape,
    /// Whether every process holds all of it.
    pub global: bool,
    /// The topic that it can be restored from.
    pub changelog: Option<TopicName>,
}

impl Topology {
    /// All stores that tasks keep or processes hold, in name order.
    pub fn stores(&self, layout: &Layout) -> Vec<StoreInfo> {
        let mut all = Vec::new();
        for part in self.subtopologies().iter().filter(|s| s.has_tasks()) {
            let tasks = self.sources_of(part).iter().filter_map(|t| layout.partitions.get(t)).max().copied();
            let own = part.stores.iter().map(|name| (name, &self.graph.stores[name].spec));
            all.extend(own.map(|(name, spec)| self.info(name, spec, tasks.unwrap_or(1), false)));
        }
        all.extend(self.graph.globals.iter().map(|(name, e)| self.info(name, &e.spec, 1, true)));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn info(&self, name: &StoreName, spec: &crate::state::StoreSpec, partitions: u32, global: bool) -> StoreInfo {
        let (key, value) = self.graph.shapes.get(name).copied().unwrap_or_default();
        let changelog = spec.changelog.as_ref().map(|c| c.topic.clone());
        StoreInfo { name: name.clone(), partitions, key, value, global, changelog }
    }
}
