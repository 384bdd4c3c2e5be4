//! Which permissions an application needs on its cluster, to the letter of its own names.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::dsl::Application;
use crate::ids::TopicName;
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
    /// What a cluster said to this login; none where it was not asked, or could not say.
    pub tried: Option<Tried>,
    /// Those of the operations that this login lacks.
    pub lacks: Vec<&'static str>,
    /// Why it could not be found out, where it was asked.
    pub untried: Option<&'static str>,
}

impl Permission {
    pub(super) fn new(
        who: &'static str,
        resource: &'static str,
        name: String,
        prefixed: bool,
        operations: &[&'static str],
    ) -> Self {
        let (operations, lacks) = (operations.to_vec(), Vec::new());
        Self { who, resource, name, prefixed, operations, tried: None, lacks, untried: None }
    }

    /// The flags of Kafka's own `kafka-acls.sh --add --allow-principal User:…`.
    pub fn flags(&self) -> String {
        self.flags_of(&self.operations)
    }

    pub(super) fn flags_of(&self, operations: &[&str]) -> String {
        let operations: Vec<_> = operations.iter().map(|o| format!("--operation {o}")).collect();
        let resource = match self.resource {
            "cluster" => "--cluster".to_owned(),
            resource => format!("--{resource} '{}'", self.name),
        };
        let pattern = if self.prefixed { " --resource-pattern-type prefixed" } else { "" };
        format!("{} {resource}{pattern}", operations.join(" "))
    }

    /// What a cluster said, as a remark behind it; empty where it was not asked.
    pub fn told(&self) -> String {
        match (self.tried, self.untried) {
            (Some(Tried::Allowed), _) => "   (this login has it)".to_owned(),
            (Some(Tried::Refused), _) if self.lacks == self.operations => "   (refused)".to_owned(),
            (Some(Tried::Refused), _) => format!("   (refused: {})", self.lacks.join(", ")),
            (None, Some(why)) => format!("   (not known: {why})"),
            (None, None) => String::new(),
        }
    }

    /// On what, in words: `topic agent.requests`, `transactional-id orders-*`, `the cluster`.
    pub fn of(&self) -> String {
        match self.resource {
            "cluster" => "the cluster".to_owned(),
            resource => format!("{resource} {}{}", self.name, if self.prefixed { "*" } else { "" }),
        }
    }
}

/// Everything that members and people's tools need.
pub fn permissions(application: &Application) -> Vec<Permission> {
    let mut needs = Needs { application, all: Vec::new() };
    needs.member();
    needs.console();
    needs.ops();
    needs.dlq("dlq");
    needs.check();
    needs.reset();
    ["ops", "dlq", "reset"].into_iter().for_each(|who| needs.audit(who));
    needs.all.sort_by_key(|p| ORDER.iter().position(|who| *who == p.who));
    needs.all
}

/// Who needs permissions, in the order in which they are told.
const ORDER: &[&str] = &["member", "console", "ops", "dlq", "check --live", "reset"];

/// Permissions in the making.
struct Needs<'a> {
    application: &'a Application,
    all: Vec<Permission>,
}

impl Needs<'_> {
    fn need(&mut self, who: &'static str, resource: &'static str, name: impl Into<String>, operations: &[&'static str]) {
        self.all.push(Permission::new(who, resource, name.into(), false, operations));
    }

    fn prefix(&mut self, who: &'static str, resource: &'static str, name: String, operations: &[&'static str]) {
        self.all.push(Permission::new(who, resource, name, true, operations));
    }

    /// The groups, and with a dash behind them the prefixes of what the application makes.
    fn units(&self) -> Vec<String> {
        let app = &self.application.id;
        let effects = self.application.has_effects().then(|| names::effects_unit(app).to_string());
        std::iter::once(app.to_string()).chain(effects).collect()
    }

    fn sources(&self) -> BTreeSet<TopicName> {
        self.application.topology.external_sources()
    }

    /// Topics of the user that are written, results and dead letters among them.
    fn written(&self) -> BTreeSet<TopicName> {
        let own = self.application.results.iter().chain(&self.application.dead_letters).cloned();
        self.application.topology.external_sinks().into_iter().chain(own).collect()
    }

    fn member(&mut self) {
        const WHO: &str = "member";
        for unit in self.units() {
            self.need(WHO, "group", unit.clone(), &["Read", "Describe"]);
            self.prefix(WHO, "transactional-id", format!("{unit}-"), &["Write", "Describe"]);
            self.prefix(WHO, "topic", format!("{unit}-"), &["Read", "Write", "Create", "Delete", "Describe", "DescribeConfigs"]);
        }
        for topic in self.sources() {
            self.need(WHO, "topic", topic.to_string(), &["Read", "Describe", "DescribeConfigs"]);
        }
        for topic in self.written() {
            self.need(WHO, "topic", topic.to_string(), &["Write", "Describe", "DescribeConfigs"]);
        }
        // Settings that a promise rests on are looked at while it runs.
        self.need(WHO, "cluster", "", &["Describe", "DescribeConfigs"]);
    }

    /// What its pages show, and what people order there: requests, commands, replays, and the record of who did it. The page of guarantees
    /// reads settings.
    fn console(&mut self) {
        const WHO: &str = "console";
        let app = self.application.id.clone();
        for unit in self.units() {
            self.need(WHO, "group", unit.clone(), &["Describe"]);
            self.prefix(WHO, "topic", format!("{unit}-"), &["Read", "Describe", "DescribeConfigs"]);
        }
        let requests: BTreeSet<_> = self.application.requests.iter().map(|r| r.topic.clone()).collect();
        for topic in self.sources() {
            let operations: &[&str] = match requests.contains(&topic) {
                true => &["Read", "Write", "Describe", "DescribeConfigs"],
                false => &["Read", "Describe", "DescribeConfigs"],
            };
            self.need(WHO, "topic", topic.to_string(), operations);
        }
        for topic in self.written() {
            self.need(WHO, "topic", topic.to_string(), &["Describe", "DescribeConfigs"]);
        }
        self.need(WHO, "cluster", "", &["Describe", "DescribeConfigs"]);
        if self.application.has_effects() {
            self.need(WHO, "topic", names::commands(&app).to_string(), &["Write", "Describe"]);
        }
        self.dlq(WHO);
        self.audit(WHO);
    }

    /// What somebody does is written there first; the first one makes the topic.
    fn audit(&mut self, who: &'static str) {
        let topic = names::audit(&self.application.id).to_string();
        self.need(who, "topic", topic, &["Write", "Create", "Describe"]);
    }

    fn ops(&mut self) {
        let app = self.application.id.clone();
        if self.application.has_effects() {
            self.need("ops", "topic", names::changelog(&app, "operations").to_string(), &["Read", "Describe"]);
            self.need("ops", "topic", names::ledger_changelog(&app).to_string(), &["Read", "Describe"]);
            self.need("ops", "topic", names::commands(&app).to_string(), &["Write", "Describe"]);
        }
    }

    /// To look at dead letters and to send them back.
    fn dlq(&mut self, who: &'static str) {
        let app = self.application.id.clone();
        let Some(dead) = self.application.dead_letters.clone() else { return };
        self.need(who, "topic", dead.to_string(), &["Read", "Write", "Describe"]);
        self.prefix(who, "transactional-id", format!("{app}-dead-letters-"), &["Write", "Describe"]);
        let intake = self.application.has_effects().then(|| crate::agent::intake_topic(&app));
        for topic in self.sources().into_iter().chain(intake) {
            self.need(who, "topic", topic.to_string(), &["Write", "Describe"]);
        }
    }

    /// Settings of whatever a promise rests on, and who is a member.
    fn check(&mut self) {
        const WHO: &str = "check --live";
        self.need(WHO, "cluster", "", &["Describe", "DescribeConfigs"]);
        for unit in self.units() {
            self.need(WHO, "group", unit.clone(), &["Describe"]);
            self.prefix(WHO, "topic", format!("{unit}-"), &["Describe", "DescribeConfigs"]);
        }
        for topic in self.sources().union(&self.written()) {
            self.need(WHO, "topic", topic.to_string(), &["Describe", "DescribeConfigs"]);
        }
    }

    fn reset(&mut self) {
        const WHO: &str = "reset";
        for unit in self.units() {
            self.need(WHO, "group", unit.clone(), &["Read", "Delete", "Describe"]);
            self.prefix(WHO, "topic", format!("{unit}-"), &["Read", "Delete", "Describe"]);
        }
        // Positions in sources are asked for and set; who did it is noted.
        for topic in self.sources() {
            self.need(WHO, "topic", topic.to_string(), &["Read", "Describe"]);
        }
        self.need(WHO, "topic", names::deployed(&self.application.id).to_string(), &["Write"]);
    }
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
        let all = permissions(&application);
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
        assert_eq!(of("topic", "logistics.shipments.v2")[0].operations, ["Read", "Describe", "DescribeConfigs"]);
        assert_eq!(of("topic", "logistics.notices.v1")[0].operations, ["Write", "Describe", "DescribeConfigs"]);
        assert!(of("topic", "shipment-noticesboard").is_empty() && of("topic", "other").is_empty());
        let flags = of("topic", "shipment-notices-outbox")[0].flags();
        assert!(flags.ends_with("--topic 'shipment-notices-' --resource-pattern-type prefixed"), "{flags}");
    }

    /// If this broke, a console would be started under a login that can't show, order or audit what its pages offer.
    #[test]
    fn a_console_has_rows_for_what_it_shows_and_does() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/orders");
        let application = yaml::offline(|| crate::declare::load(&dir)).expect("loads").application;
        let all = permissions(&application);
        let may = |name: &str, operation: &str| {
            let covers = |p: &&Permission| p.name == name || (p.prefixed && name.starts_with(&p.name));
            all.iter().filter(|p| p.who == "console").filter(covers).any(|p| p.operations.contains(&operation))
        };
        for (name, operations) in [
            ("orders", &["Describe"][..]),
            ("orders.effects", &["Describe"]),
            ("orders-operations-changelog", &["Read", "Describe"]),
            ("orders.effects-ledger-changelog", &["Read", "Describe"]),
            ("orders-outbox", &["Read"]),
            ("orders-commands", &["Write"]),
            ("orders-audit", &["Read", "Write", "Create"]),
            ("agent.requests", &["Read", "Write", "DescribeConfigs"]),
            ("agent.results", &["Describe", "DescribeConfigs"]),
            ("agent.dead", &["Read", "Write"]),
            ("orders-dead-letters-000", &["Write"]),
            ("", &["DescribeConfigs"]),
        ] {
            operations.iter().for_each(|o| assert!(may(name, o), "{o} on {name}"));
        }
        assert!(!may("orders-audit", "Delete") && !may("orders-outbox", "Write"));
    }
}
