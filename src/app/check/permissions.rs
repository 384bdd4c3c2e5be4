//! Which permissions an application needs on its cluster, to the letter of its own names.

use serde::Serialize;

use crate::dsl::Application;
use crate::intents::topics as names;

use super::Tried;

/// One permission: who needs to do what with which resource.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Permission {
    /// Who: `member`, `console`, `ops`, `dlq`, `check --live`, `reset`.
    pub who: &'static str,
    /// `topic`, `group`, `transactional-id`, `cluster`.
    pub resource: &'static str,
    /// Its name, or what its name begins with.
    pub name: String,
    /// Whether the name is a prefix.
    pub prefixed: bool,
    /// As the broker calls them: `Read`, `DescribeConfigs`.
    pub operations: Vec<&'static str>,
    /// What a cluster said to this login; none where it was not asked.
    pub tried: Option<Tried>,
}

impl Permission {
    /// The flags of Kafka's own `kafka-acls.sh --add --allow-principal User:…`.
    pub fn flags(&self) -> String {
        let operations: Vec<_> = self.operations.iter().map(|o| format!("--operation {o}")).collect();
        let resource = match self.resource {
            "cluster" => "--cluster".to_owned(),
            resource => format!("--{resource} '{}'", self.name),
        };
        let pattern = if self.prefixed { " --resource-pattern-type prefixed" } else { "" };
        format!("{} {resource}{pattern}", operations.join(" "))
    }
}

/// Everything that members and people's tools need.
///
/// `shared`: whether consoles share what they sign sessions with, and so read what the others wrote.
pub fn permissions(application: &Application, shared: bool) -> Vec<Permission> {
    let app = &application.id;
    let mut all = Vec::new();
    let mut need = |who, resource, name: String, prefixed, operations: &[&'static str]| {
        all.push(Permission { who, resource, name, prefixed, operations: operations.to_vec(), tried: None });
    };
    let units = match application.has_effects() {
        true => vec![app.to_string(), names::effects_unit(app).to_string()],
        false => vec![app.to_string()],
    };
    for unit in &units {
        need("member", "group", unit.clone(), false, &["Read", "Describe"]);
        need("member", "transactional-id", format!("{unit}-"), true, &["Write", "Describe"]);
        need("member", "topic", format!("{unit}-"), true, &["Read", "Write", "Create", "Delete", "Describe", "DescribeConfigs"]);
    }
    let graph = &application.topology;
    for topic in graph.external_sources() {
        need("member", "topic", topic.to_string(), false, &["Read", "Describe"]);
    }
    let own = application.results.iter().chain(&application.dead_letters).cloned();
    let mut written: Vec<_> = graph.external_sinks().into_iter().chain(own).collect();
    written.sort();
    written.dedup();
    for topic in written {
        need("member", "topic", topic.to_string(), false, &["Write", "Describe"]);
    }
    need("member", "cluster", String::new(), false, &["Describe"]);
    if shared {
        need("console", "topic", names::audit(app).to_string(), false, &["Read", "Write", "Create", "Describe"]);
    }
    if application.has_effects() {
        need("ops", "topic", names::changelog(app, "operations").to_string(), false, &["Read", "Describe"]);
        need("ops", "topic", names::ledger_changelog(app).to_string(), false, &["Read", "Describe"]);
        need("ops", "topic", names::commands(app).to_string(), false, &["Write", "Describe"]);
    }
    if let Some(dead) = &application.dead_letters {
        need("dlq", "topic", dead.to_string(), false, &["Read", "Write", "Describe"]);
        need("dlq", "transactional-id", format!("{app}-dead-letters-"), true, &["Write", "Describe"]);
        let back = graph.external_sources().into_iter().chain(application.has_effects().then(|| crate::agent::intake_topic(app)));
        for topic in back {
            need("dlq", "topic", topic.to_string(), false, &["Write", "Describe"]);
        }
    }
    need("check --live", "cluster", String::new(), false, &["Describe", "DescribeConfigs"]);
    for unit in units {
        need("reset", "group", unit.clone(), false, &["Read", "Delete", "Describe"]);
        need("reset", "topic", format!("{unit}-"), true, &["Read", "Delete", "Describe"]);
    }
    // Positions in sources are asked for and set; who did it is noted.
    for topic in graph.external_sources() {
        need("reset", "topic", topic.to_string(), false, &["Read", "Describe"]);
    }
    need("reset", "topic", names::deployed(app).to_string(), false, &["Write"]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml;
    use std::path::Path;

    /// If this broke, members would be started without a permission that they need, or with one on somebody else's topics.
    #[test]
    fn every_topic_and_group_is_covered_and_nothing_else() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/webhook");
        let application = yaml::offline(|| crate::declare::load(&dir)).expect("loads").application;
        let all = permissions(&application, true);
        let of = |resource: &str, name: &str| -> Vec<&Permission> {
            let covers = |p: &&Permission| p.resource == resource && (p.name == name || (p.prefixed && name.starts_with(&p.name)));
            all.iter().filter(|p| p.who == "member").filter(covers).collect()
        };
        let counts = application.topology.external_sources().into_iter().map(|t| (t, 4)).collect();
        let layout = application.topology.layout(&counts, None).expect("laid");
        for topic in super::super::internal(&application, &layout) {
            let found = of("topic", topic.name.as_str());
            assert!(found.iter().any(|p| p.operations.contains(&"Create")), "{}", topic.name);
        }
        for group in ["shipment-notices", "shipment-notices.effects"] {
            assert_eq!(of("group", group).len(), 1, "{group}");
            assert_eq!(of("transactional-id", &format!("{group}-000")).len(), 1, "{group}");
        }
        assert_eq!(of("topic", "logistics.shipments.v2")[0].operations, ["Read", "Describe"]);
        let audits = |all: &[Permission]| all.iter().any(|p| p.name == "shipment-notices-audit" && p.operations.contains(&"Read"));
        assert!(audits(&all) && !audits(&permissions(&application, false)), "{all:?}");
        assert_eq!(of("topic", "logistics.notices.v1")[0].operations, ["Write", "Describe"]);
        assert!(of("topic", "shipment-noticesboard").is_empty() && of("topic", "other").is_empty());
        let flags = of("topic", "shipment-notices-outbox")[0].flags();
        assert!(flags.ends_with("--topic 'shipment-notices-' --resource-pattern-type prefixed"), "{flags}");
    }
}
