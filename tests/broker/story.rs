//! The orders story on the shared broker: several at once, each under names of its own, judged by the target's books and by what
//! a read_committed reader sees.

use std::path::PathBuf;
use std::time::Duration;

use readback::demo::ground::KafkaGround;
use readback::demo::screen::Report;
use readback::demo::stack::{Stack, StackOptions};
use readback::demo::story::{self, Breaks, DemoOptions, PARTITIONS};
use readback::ids::{TopicName, Tp};
use readback::intents::{ResultRecord, headers};
use readback::kafka::rdkafka::RdCluster;
use readback::kafka::{Cluster, Isolation};
use readback::offset::NextOffset;
use readback::serdes::internal;
use readback::testing::checkers::{self, Seen};

use crate::wire::delete_topics_of;
use crate::{cluster_at, stack, until};

/// The program as this test run built it, with its fail points.
pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_readback"))
}

/// A story that was told.
pub struct Told {
    pub report: Report,
    /// What is not as it must be; empty = all is well.
    pub wrong: Vec<String>,
}

/// Tells a story of `operations` under `name`; keeps the members' logs only where something is wrong.
pub fn tell(name: &str, seed: u64, operations: usize, breaks: Breaks) -> Result<Told, String> {
    tell_as(name, DemoOptions { breaks, ..DemoOptions::new(seed, operations) })
}

/// The same, with other options.
pub fn tell_as(name: &str, mut options: DemoOptions) -> Result<Told, String> {
    let work = tempfile::Builder::new().prefix(&format!("readback-{name}-")).tempdir().expect("a directory");
    let prefix = format!("{name}-{}.", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let weakened = !options.env.is_empty();
    (options.prefix, options.program) = (prefix.clone(), Some(program()));
    let mut there = StackOptions::from_env().expect("environment");
    there.existing = Some((stack().brokers().to_owned(), stack().registry().to_owned()));
    let ground = KafkaGround::new(Stack::up(&there).expect("a handle"), false).expect("clients");
    let told = story::run(&ground, &options, work.path()).map_err(|e| e.to_string()).map(|report| {
        let mut wrong: Vec<String> = report.verdict.wrong.clone();
        if !report.holds {
            wrong.push(format!("{:?}", report.verdict));
        }
        let results = results(&cluster_at(stack().brokers()), &TopicName::from(format!("{prefix}agent.results")), PARTITIONS);
        wrong.extend(judged(&results));
        delete_topics_of(&prefix);
        Told { report, wrong }
    });
    match told {
        Err(e) => Err(format!("{e}\n  logs: {}", work.keep().display())),
        Ok(mut told) if !told.wrong.is_empty() && !weakened => {
            told.wrong.push(format!("logs: {}", work.keep().display()));
            Ok(told)
        }
        told => told,
    }
}

/// Versions rise, nothing follows an end, no id twice.
pub fn judged(results: &[Seen]) -> Vec<String> {
    let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
    let found = checkers::histories(&records).into_iter().chain(checkers::ids(results));
    found.map(|v| v.to_string()).collect()
}

/// All results that are committed, up to the end of the topic; fails where a transaction stays open.
pub fn results(cluster: &RdCluster, topic: &TopicName, partitions: u32) -> Vec<Seen> {
    let mut reader = cluster.reader(Isolation::Committed).expect("a reader");
    let mut found = Vec::new();
    for p in 0..partitions {
        let tp = Tp::new(topic.clone(), p as i32);
        let end = until("no open transaction is left", || {
            let (_, stable) = reader.ends(&tp, Isolation::Committed).ok()?;
            let (_, high) = reader.ends(&tp, Isolation::Uncommitted).ok()?;
            (stable == high).then_some(high)
        });
        reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assign");
        until("the end", || {
            while let Some(record) = reader.poll(Duration::from_millis(50)).ok()? {
                let value = record.value.expect("results have values");
                // Five bytes of registry framing.
                let result = internal::decode(&value.slice(5..)).expect("a result");
                found.push(Seen { ce_id: record.headers.text(headers::CE_ID).map(str::to_owned), record: result });
            }
            reader.position(&tp).filter(|at| *at >= end)
        });
    }
    found
}
