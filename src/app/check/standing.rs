//! How topics and brokers stand on a cluster, beside what the promises of an edge want of them. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ids::TopicName;

use super::{Edge, Report, Rests, TopicSeen};

/// What settings of brokers stand under.
const BROKERS: &str = "brokers";
/// Settings of a topic that are told beside what an edge wants.
const OF_TOPICS: &[&str] = &["min.insync.replicas", "unclean.leader.election.enable", "cleanup.policy", "retention.ms"];
/// Settings of brokers that transactions rest on, and the least that is not weak where there is more than one broker.
const OF_BROKERS: &[(&str, u32)] = &[
    ("transaction.state.log.replication.factor", 3),
    ("offsets.topic.replication.factor", 3),
    ("transaction.state.log.min.isr", 2),
];

/// How something stands that a promise rests on; the later, the worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// As the promise wants it.
    Holds,
    /// Not there yet; a start makes it, or asks for it.
    NotThere,
    /// Weaker.
    Weak,
    /// Nobody knows: this login may not read it.
    NotRead,
}

impl Standing {
    /// In a word or two.
    pub fn words(self) -> &'static str {
        match self {
            Standing::Holds => "holds",
            Standing::NotThere => "not there",
            Standing::Weak => "weaker",
            Standing::NotRead => "not read",
        }
    }
}

/// A topic under an edge, or the brokers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Stand {
    /// How it stands.
    pub standing: Standing,
    /// As the cluster has it: `replication 3, min.insync.replicas 2`.
    pub is: String,
    /// The topic, or `brokers`.
    pub of: String,
}

impl Edge {
    /// Why its promises are not known to hold as they stand: in words, and what about. None where all that it rests on holds, or no
    /// cluster was asked.
    pub fn doubt(&self) -> Option<(&'static str, Vec<&str>)> {
        let of = |standing| {
            let all = self.rests.on_cluster.iter().filter(|s| s.standing == standing).map(|s| s.of.as_str()).collect::<Vec<_>>();
            (!all.is_empty()).then_some(all)
        };
        let unknown = of(Standing::NotRead).map(|all| ("not known to hold: not read", all));
        unknown.or_else(|| of(Standing::Weak).map(|all| ("on less than it wants", all)))
    }
}

impl Report {
    /// Says of each edge how that stands which it rests on. To be called when the cluster was asked.
    pub(super) fn stand(&mut self) {
        let mut edges = std::mem::take(&mut self.edges);
        for edge in &mut edges {
            edge.rests.on_cluster = self.under(&edge.rests);
            edge.standing = edge.rests.on_cluster.iter().map(|s| s.standing).max();
        }
        self.edges = edges;
    }

    fn under(&self, rests: &Rests) -> Vec<Stand> {
        let brokers = rests.wants.iter().any(|w| w.starts_with(BROKERS)).then(|| of_brokers(&self.broker));
        let mut all: Vec<Stand> = rests.topics.iter().map(|t| self.topic(t)).chain(brokers).collect();
        all.sort();
        all
    }

    fn topic(&self, name: &TopicName) -> Stand {
        let of = name.to_string();
        match self.topics.iter().find(|t| t.name == of) {
            Some(seen) => of_topic(seen),
            None if self.absent.contains(&of) => Stand { standing: Standing::NotThere, is: String::new(), of },
            None => Stand { standing: Standing::NotRead, is: String::new(), of },
        }
    }
}

fn of_topic(seen: &TopicSeen) -> Stand {
    let replication = format!("replication {}", seen.replication);
    let of = seen.name.clone();
    let Some(settings) = &seen.settings else { return Stand { standing: Standing::NotRead, is: replication, of } };
    let told = OF_TOPICS.iter().filter_map(|key| Some(format!("{key} {}", settings.get(*key)?)));
    let is = std::iter::once(replication).chain(told).collect::<Vec<_>>().join(", ");
    Stand { standing: if seen.weak.is_empty() { Standing::Holds } else { Standing::Weak }, is, of }
}

fn of_brokers(settings: &BTreeMap<String, String>) -> Stand {
    let of = BROKERS.to_owned();
    let told: Vec<String> = OF_BROKERS.iter().filter_map(|(key, _)| Some(format!("{key} {}", settings.get(*key)?))).collect();
    let less = |(key, least): &(&str, u32)| settings.get(*key).and_then(|v| v.parse::<u32>().ok()).is_none_or(|n| n < *least);
    let standing = match told.is_empty() {
        true => Standing::NotRead,
        false if OF_BROKERS.iter().any(less) => Standing::Weak,
        false => Standing::Holds,
    };
    Stand { standing, is: told.join(", "), of }
}

/// Those that stand alike, together: how, as what, and who.
pub fn alike(stands: &[Stand]) -> Vec<(Standing, &str, Vec<&str>)> {
    let mut groups: BTreeMap<(Standing, &str), Vec<&str>> = BTreeMap::new();
    for stand in stands {
        let of = groups.entry((stand.standing, &stand.is)).or_default();
        if !of.contains(&stand.of.as_str()) {
            of.push(&stand.of);
        }
    }
    groups.into_iter().map(|((standing, is), of)| (standing, is, of)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ProcessConfig, yaml};

    const REQUESTS: &str = "agent.requests → outbox";

    fn seen(name: &TopicName) -> TopicSeen {
        let settings = [("min.insync.replicas".to_owned(), "2".to_owned())].into();
        TopicSeen { name: name.to_string(), partitions: 4, replication: 3, settings: Some(settings), weak: Vec::new() }
    }

    /// A report on the shipped topology whose topics and brokers all stand as promises want them, but for what `but` does to it.
    fn standing(but: impl FnOnce(&mut Report)) -> Report {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/orders");
        let declared = yaml::offline(|| crate::declare::load(&dir)).expect("loads");
        let mut report = Report::offline(&declared.application, &ProcessConfig::default(), &declared.warnings);
        report.topics = report.edges.iter().flat_map(|e| &e.rests.topics).map(seen).collect();
        report.broker = OF_BROKERS.iter().map(|(key, least)| ((*key).to_owned(), least.to_string())).collect();
        but(&mut report);
        report.stand();
        report
    }

    fn doubts(report: &Report) -> Vec<(&str, &'static str)> {
        report.edges.iter().filter_map(|e| Some((e.edge.as_str(), e.doubt()?.0))).collect()
    }

    fn requests(report: &mut Report) -> &mut TopicSeen {
        report.topics.iter_mut().find(|t| t.name == "agent.requests").expect("it is read")
    }

    /// If this broke, a claim would be printed as holding that rests on a setting which nobody read, or which is weaker than it wants.
    #[test]
    fn an_edge_holds_only_where_all_that_it_rests_on_was_read_and_is_enough() {
        assert!(doubts(&standing(|_| ())).is_empty());
        let unread = (REQUESTS, "not known to hold: not read");
        assert_eq!(doubts(&standing(|r| requests(r).settings = None)), [unread]);
        assert_eq!(doubts(&standing(|r| r.topics.retain(|t| t.name != "agent.requests"))), [unread], "not even looked at");
        assert_eq!(doubts(&standing(|r| requests(r).weak.push("one replica".into()))), [(REQUESTS, "on less than it wants")]);
        let report = standing(|r| r.broker.clear());
        assert!(doubts(&report).contains(&unread), "transactions rest on settings of brokers");
        let report = standing(|r| drop(r.broker.insert("transaction.state.log.min.isr".into(), "1".into())));
        assert!(doubts(&report).contains(&(REQUESTS, "on less than it wants")));
        let report = standing(|r| {
            r.topics.retain(|t| t.name != "agent.requests");
            r.absent.push("agent.requests".into());
        });
        assert_eq!((doubts(&report), report.edges[0].standing), (vec![], Some(Standing::NotThere)), "a start asks for it");
    }

    /// If this broke, a report on many topics would say the same of each, one after the other.
    #[test]
    fn what_stands_alike_is_told_together() {
        let stand = |of: &str, is: &str, standing| Stand { standing, is: is.into(), of: of.into() };
        let all = [
            stand("a", "replication 1", Standing::Weak),
            stand("b", "replication 3", Standing::Holds),
            stand("c", "replication 1", Standing::Weak),
            stand("a", "replication 1", Standing::Weak),
        ];
        let told = [(Standing::Holds, "replication 3", vec!["b"]), (Standing::Weak, "replication 1", vec!["a", "c"])];
        assert_eq!(alike(&all), told);
    }
}
