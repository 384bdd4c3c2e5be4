//! What is deployed, as facts that a later deploy can be compared with: topics, stores, steps, contracts, policies, prompts. A member
//! keeps them in `<app>-deployed` when it starts, one compacted record.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::dsl::Application;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, TopicName, Tp};
use crate::intents::{headers, hex, topics as names};
use crate::kafka::{Cluster, Isolation, NewTopic, Reader};
use crate::policy::PolicySet;
use crate::record::{Headers, OutRecord};
use crate::runtime::{error_of, wait_for_topic};
use crate::serdes::internal::{self, Wire};
use crate::time::{Clock, SystemClock, WallTime, show_duration};
use crate::topology::Layout;

use super::check::internal as internal_topics;

/// The key of the record.
const KEY: &[u8] = b"topology";
/// The value of a store without a changelog.
pub(super) const IN_MEMORY: &str = "in memory only";
/// Longest time for reading or writing it.
const LIMIT: Duration = Duration::from_secs(10);

/// One part of a deployed topology.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Fact {
    /// `source`, `sink`, `internal`, `store`, `step`, `contract`, `call`, `policy`, `prompt`, `proposal`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What must be the same.
    pub value: String,
}

/// What was deployed, `schemas/deployed.avsc`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Deployed {
    /// The application.
    pub application: ApplicationId,
    /// The author's version of the topology.
    pub version: i64,
    /// The version of Readback that ran it.
    pub program: String,
    /// When it started.
    pub at: WallTime,
    /// Hash of what state and positions hang on.
    pub fingerprint: String,
    /// What it is made of, sorted.
    pub facts: Vec<Fact>,
}

impl Wire for Deployed {
    const SCHEMA: &'static str = "deployed/1";
    const AVSC: &'static str = include_str!("../../schemas/deployed.avsc");
}

impl Deployed {
    /// An application over a cluster's partition counts; without them counts are left out.
    pub fn of(application: &Application, layout: Option<&Layout>, at: WallTime) -> Self {
        let mut facts = graph(application, layout);
        for pipeline in &application.pipelines {
            for (tool, effect) in pipeline.effect.calls() {
                let name = tool.map_or_else(|| pipeline.step.to_string(), |tool| format!("{}.{tool}", pipeline.step));
                facts.push(fact("step", name, format!("{}#{}", effect.contract, effect.call)));
            }
            if let Some(plan) = &pipeline.plan {
                facts.push(fact("step", &plan.step, format!("{}#{}", plan.contract, plan.call)));
                facts.push(fact("prompt", &plan.step, format!("{} {}", plan.prompt_version, digest(&plan.prompt))));
                facts.push(fact("proposal", &plan.step, digest(&plan.proposal_schema)));
            }
        }
        for contract in application.contracts.values() {
            facts.push(fact("contract", &contract.name, contract.version.to_string()));
            facts.extend(contract.calls.values().map(|call| {
                let name = format!("{}#{}", contract.name, call.name);
                fact("call", name, digest(&call.definition))
            }));
        }
        for (name, policy) in &application.policies {
            let version = PolicySet::parse(&policy.path, &policy.text).map(|p| p.version().to_owned());
            facts.push(fact("policy", name, version.unwrap_or_default()));
        }
        facts.sort();
        facts.dedup();
        Self {
            application: application.id.clone(),
            version: application.version,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            at,
            fingerprint: application.topology.fingerprint(),
            facts,
        }
    }

    /// The facts by kind and name.
    pub fn by_name(&self) -> BTreeMap<(&str, &str), &str> {
        self.facts.iter().map(|f| ((f.kind.as_str(), f.name.as_str()), f.value.as_str())).collect()
    }

    /// Whether the other one deploys the same.
    fn same(&self, other: &Deployed) -> bool {
        (&self.fingerprint, &self.facts, self.version, &self.program)
            == (&other.fingerprint, &other.facts, other.version, &other.program)
    }
}

/// Topics and stores.
fn graph(application: &Application, layout: Option<&Layout>) -> Vec<Fact> {
    let topology = &application.topology;
    let counted = |topic: &TopicName| layout.and_then(|l| l.partitions.get(topic)).map(|n| n.to_string()).unwrap_or_default();
    let mut facts: Vec<Fact> = topology.external_sources().iter().map(|t| fact("source", t, counted(t))).collect();
    let own = application.results.iter().chain(&application.dead_letters).cloned();
    facts.extend(topology.external_sinks().into_iter().chain(own).map(|t| fact("sink", t, "")));
    let stand_in = topology.external_sources().into_iter().map(|t| (t, 1)).collect();
    let laid = match layout {
        Some(layout) => Ok(layout.clone()),
        None => topology.layout(&stand_in, None),
    };
    let Ok(laid) = laid else { return facts };
    for topic in internal_topics(application, &laid) {
        let partitions = topic.partitions.filter(|_| layout.is_some());
        facts.push(fact("internal", &topic.name, partitions.map(|n| n.to_string()).unwrap_or_default()));
    }
    for store in topology.stores(&laid) {
        facts.push(fact("store", &store.name, store.changelog.map(|t| t.to_string()).unwrap_or_else(|| IN_MEMORY.into())));
    }
    facts
}

fn fact(kind: &str, name: impl std::fmt::Display, value: impl Into<String>) -> Fact {
    Fact { kind: kind.to_owned(), name: name.to_string(), value: value.into() }
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))[..16].to_owned()
}

/// What a cluster says was deployed last; `None` where nobody said so.
pub fn stored<C: Cluster>(cluster: &C, app: &ApplicationId) -> Result<Option<Deployed>> {
    let topic = names::deployed(app);
    if cluster.admin().and_then(|a| a.topic(&topic)).map_err(error_of)?.is_none() {
        return Ok(None);
    }
    let mut reader = cluster.reader(Isolation::Committed).map_err(error_of)?;
    last(reader.as_mut(), &Tp::new(topic, 0), LIMIT)
}

/// The record that stands last. One that does not come in time is an error: "nothing is deployed" would be believed.
fn last(reader: &mut dyn Reader, tp: &Tp, limit: Duration) -> Result<Option<Deployed>> {
    let (first, end) = reader.ends(tp, Isolation::Committed).map_err(error_of)?;
    reader.assign(&[(tp.clone(), first)]).map_err(error_of)?;
    let until = Instant::now() + limit;
    let mut last = None;
    while reader.position(tp).is_none_or(|at| at < end) && end > first {
        if Instant::now() >= until {
            return Err(Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, format!("reading what is deployed from {tp}"))
                .because(format!("its records did not come within {}", show_duration(limit)))
                .next("try again: without them nobody can say what a start would keep or lose"));
        }
        if let Some(record) = reader.poll(Duration::from_millis(100)).map_err(error_of)?
            && record.key.as_deref() == Some(KEY)
        {
            last = record.value.map(|value| internal::decode::<Deployed>(&value)).transpose()?;
        }
    }
    Ok(last)
}

/// Keeps what this process runs, on a thread of its own: only `diff` and the next version's start need it, so neither may it take time
/// from this start, nor may a failure keep a member from running.
pub(super) fn keep_aside<C: Cluster>(cluster: &C, application: &Application, layout: &Layout, replication: i32) {
    let now = Deployed::of(application, Some(layout), SystemClock.now().wall);
    let cluster = cluster.clone();
    let keeping = move || {
        if let Err(e) = keep(&cluster, &now, replication) {
            tracing::warn!(error = %e, "what is deployed could not be stored; `readback diff` will tell less");
        }
    };
    if let Err(e) = std::thread::Builder::new().name("deployed".to_owned()).spawn(keeping) {
        tracing::warn!(error = %e, "what is deployed could not be stored; `readback diff` will tell less");
    }
}

/// Keeps what runs, where something else stands there.
pub(super) fn keep<C: Cluster>(cluster: &C, now: &Deployed, replication: i32) -> Result<()> {
    let topic = names::deployed(&now.application);
    let admin = cluster.admin().map_err(error_of)?;
    if admin.topic(&topic).map_err(error_of)?.is_none() {
        let config = [("cleanup.policy".to_owned(), "compact".to_owned())].into();
        admin.create(&[NewTopic { name: topic.clone(), partitions: 1, replication, config }]).map_err(error_of)?;
        wait_for_topic(admin.as_ref(), &topic)?;
    } else if stored(cluster, &now.application)?.is_some_and(|before| before.same(now)) {
        return Ok(());
    }
    let value = internal::encode(now)?;
    let schema = Headers::new().with(headers::SCHEMA, Deployed::SCHEMA);
    put(cluster, &topic, KEY, Some(&value), &schema)
}

/// Says that nothing is deployed any more, with a note of who took it down and why, which stays.
pub fn forget<C: Cluster>(cluster: &C, app: &ApplicationId, note: &serde_json::Value) -> Result<()> {
    let topic = names::deployed(app);
    if cluster.admin().and_then(|a| a.topic(&topic)).map_err(error_of)?.is_none() {
        return Ok(());
    }
    let key = format!("reset/{}", SystemClock.now().wall);
    put(cluster, &topic, key.as_bytes(), Some(note.to_string().as_bytes()), &Headers::new())?;
    put(cluster, &topic, KEY, None, &Headers::new())
}

fn put<C: Cluster>(cluster: &C, topic: &TopicName, key: &[u8], value: Option<&[u8]>, headers: &Headers) -> Result<()> {
    let partition = Some(crate::ids::Partition(0));
    let record = OutRecord { topic, partition, timestamp: None, key: Some(key), value, headers: Some(headers) };
    cluster.publish(&[record], LIMIT).map(drop).map_err(error_of)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kafka::KResult;
    use crate::kafka::memory::MemoryCluster;
    use crate::offset::NextOffset;

    /// If this broke, `diff` would compare with nothing, with what ran before a reset, or each start would add a record for ever.
    #[test]
    fn what_runs_is_kept_once_and_forgotten_with_a_note() {
        let cluster = MemoryCluster::new(Arc::new(SystemClock));
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/orders");
        let application = crate::config::yaml::offline(|| crate::declare::load(&dir)).expect("loads").application;
        let counts = application.topology.external_sources().into_iter().map(|t| (t, 4)).collect();
        let layout = application.topology.layout(&counts, None).expect("laid");
        let now = Deployed::of(&application, Some(&layout), WallTime(1));
        for kind in ["source", "sink", "internal", "step", "contract", "call", "policy", "prompt", "proposal"] {
            assert!(now.facts.iter().any(|f| f.kind == kind), "no {kind}");
        }
        assert_eq!(stored(&cluster, &application.id).expect("asked"), None);
        keep(&cluster, &now, 1).expect("kept");
        assert_eq!(stored(&cluster, &application.id).expect("asked"), Some(now.clone()));
        let records = || cluster.records(&names::deployed(&application.id), Isolation::Committed);
        keep(&cluster, &Deployed { at: WallTime(2), ..now.clone() }, 1).expect("kept");
        assert_eq!(records().len(), 1, "the same is not written again");
        let newer = Deployed { version: now.version + 1, ..now };
        keep(&cluster, &newer, 1).expect("kept");
        assert_eq!(stored(&cluster, &application.id).expect("asked"), Some(newer));
        forget(&cluster, &application.id, &serde_json::json!({ "reason": "why" })).expect("forgotten");
        assert_eq!(stored(&cluster, &application.id).expect("asked"), None);
        let note = |r: &crate::record::InRecord| r.value.as_deref().is_some_and(|v| v.windows(3).any(|w| w == b"why"));
        assert_eq!(records().iter().filter(|r| note(r)).count(), 1);
    }

    /// A reader that says that there is a record and never gives it.
    struct Silent;

    impl Reader for Silent {
        fn assign(&mut self, _: &[(Tp, NextOffset)]) -> KResult<()> {
            Ok(())
        }
        fn poll(&mut self, _: Duration) -> KResult<Option<crate::record::InRecord>> {
            Ok(None)
        }
        fn position(&self, _: &Tp) -> Option<NextOffset> {
            None
        }
        fn ends(&mut self, _: &Tp, _: Isolation) -> KResult<(NextOffset, NextOffset)> {
            Ok((NextOffset(0), NextOffset(1)))
        }
    }

    /// If this broke, a slow broker would read as "nothing is deployed", and a deploy that loses state as a first start.
    #[test]
    fn a_record_that_does_not_come_is_not_taken_for_none() {
        let asked = last(&mut Silent, &Tp::new("orders-deployed", 0), Duration::ZERO);
        let refused = asked.expect_err("nobody knows");
        assert_eq!((refused.code, refused.fault), (codes::BROKER_UNREACHABLE, Fault::Unreachable), "{refused}");
    }
}
