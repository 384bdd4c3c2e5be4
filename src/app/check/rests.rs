//! What an edge rests on, what would break it, and what nobody promises on it. The guarantees page has the same in words.

use serde::Serialize;

use crate::contract::{Call, Promise};
use crate::ids::TopicName;
use crate::time::show_duration;

use super::{Assumed, Stand};

/// The other side of an edge's promises.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Rests {
    /// Settings that the product sees to.
    pub settings: Vec<String>,
    /// Settings of topics and brokers that must hold; a cluster has its own.
    pub wants: Vec<String>,
    /// Numbers of the report's assumptions, from 1.
    pub assumes: Vec<usize>,
    /// What would break the promise.
    pub broken_by: Vec<String>,
    /// What is not promised on this edge.
    pub not_promised: Vec<String>,
    /// The topics under it.
    #[serde(skip)]
    pub topics: Vec<TopicName>,
    /// How these stand on a cluster; empty offline.
    pub on_cluster: Vec<Stand>,
}

impl Rests {
    /// Over these topics.
    pub(super) fn over(mut self, topics: impl IntoIterator<Item = TopicName>) -> Self {
        self.topics = topics.into_iter().collect();
        self
    }

    /// Whether it says the same of another edge, but for the topics under it.
    pub fn is_like(&self, other: &Rests) -> bool {
        let said =
            |r: &Rests| (r.settings.clone(), r.wants.clone(), r.assumes.clone(), r.broken_by.clone(), r.not_promised.clone());
        said(self) == said(other)
    }
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|t| (*t).to_owned()).collect()
}

/// From topic to topic or store, in one transaction.
pub(super) fn inside() -> Rests {
    Rests {
        settings: texts(&[
            "transactions, idempotence and acks=all, which the product sets and nobody can override",
            "readers: isolation.level read_committed",
        ]),
        wants: texts(&[
            "topics: replication 3, min.insync.replicas 2, unclean.leader.election.enable false",
            "brokers: transaction.state.log.replication.factor and offsets.topic.replication.factor 3, transaction.state.log.min.isr 2",
        ]),
        assumes: Vec::new(),
        broken_by: texts(&[
            "the disks of all replicas in sync are lost, or a leader is elected that lacks records",
            "an internal topic is deleted or cut short by hand",
        ]),
        not_promised: texts(&["order between records of different partitions", "anything for readers that are not read_committed"]),
        ..Rests::default()
    }
}

/// A call to a target.
pub(super) fn outside(call: &Call, assumptions: &[Assumed]) -> Rests {
    let own = |a: &Assumed| call.assumptions.iter().any(|c| c.text == a.text && c.at == a.at) || a.at.starts_with("effects.");
    let numbers = assumptions.iter().enumerate().filter(|(_, a)| own(a)).map(|(i, _)| i + 1);
    let wants = match call.proposal {
        true => Vec::new(),
        false => {
            texts(&["ledger and outbox: cleanup.policy and retention as they were made, replication 3, min.insync.replicas 2"])
        }
    };
    Rests {
        wants,
        assumes: if call.proposal { Vec::new() } else { numbers.collect() },
        broken_by: broken_by(call),
        not_promised: not_promised(call),
        ..Rests::default()
    }
}

fn broken_by(call: &Call) -> Vec<String> {
    if call.proposal {
        return Vec::new();
    }
    let mut all = Vec::new();
    let promise = call.promise();
    match promise {
        Promise::AtMostOneKeyed | Promise::AtMostOneKeyedWhile(_) => {
            all.push("the target's store of keys is purged, or is written apart from the effect".to_owned());
        }
        Promise::AtMostOneConditional => {
            all.push("a version of the resource is used again, such as a hash of its content".to_owned())
        }
        Promise::AtMostOneCreated => {
            all.push("an ID is free again once its thing is deleted, or replicas each take one".to_owned())
        }
        Promise::AtMostOneFenced(age) => {
            all.push(format!(
                "a request older than {} is acted on: its age is checked before a queue, or by nobody",
                show_duration(age)
            ));
        }
        _ => {}
    }
    if let (Promise::AtMostOneReadback | Promise::AtMostOneKeyedWhile(_), Some(bound)) = (promise, &call.in_flight) {
        all.push(format!("a queue, gateway or proxy holds a request for longer than {} (L)", show_duration(bound.within)));
    }
    if let (Promise::AtMostOneReadback | Promise::AtMostOneFenced(_), Some(readback)) = (promise, &call.readback) {
        all.push(format!("a replica or index shows an effect later than {} (V)", show_duration(readback.lag)));
        all.push("the list is filtered by account, region or permission and still says that it is complete".to_owned());
    }
    if call.no_intermediaries && !matches!(promise, Promise::AtMostOneKeyed | Promise::DuplicatesCounted) {
        all.push("something between us and the target repeats requests by itself".to_owned());
    }
    all
}

fn not_promised(call: &Call) -> Vec<String> {
    match call.promise() {
        Promise::DuplicatesCounted if call.proposal => texts(&["that the model is asked once, or answers the same twice"]),
        Promise::DuplicatesCounted => texts(&["that the effect happens once"]),
        Promise::AtMostOnePerson | Promise::AtMostOneReadbackPerson => {
            texts(&["that a lost answer is decided without a person", "effects that others make under the same key"])
        }
        _ => texts(&[
            "that it happens: what is refused, expired or undecidable ends otherwise",
            "effects that others make under the same key",
        ]),
    }
}
