//! Deletes records that nobody needs any more: behind what their readers have committed, never by time. The outbox goes behind
//! the ledger's commit; repartition topics, the intake and the return topic go behind the stream unit's committed offsets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::effects::Shared;
use crate::ids::{ApplicationId, GroupId, Partition, TopicName, Tp};
use crate::intents::topics;
use crate::kafka::{Cluster, KResult};
use crate::offset::NextOffset;
use crate::task::{TopicUse, UnitPlan};

/// How often.
const EVERY: Duration = Duration::from_secs(30);

/// A unit's own topics that it reads itself and that never expire by time: the ones to purge behind its commits.
pub(super) fn purged(unit: &UnitPlan) -> Vec<(TopicName, u32)> {
    let read = |t: &TopicName| unit.subtopologies.iter().flat_map(|s| &s.sources).any(|s| s.topic == *t);
    let kept = |c: &BTreeMap<String, String>| {
        let is = |key: &str, value: &str| c.get(key).is_some_and(|v| v == value);
        is("cleanup.policy", "delete") && is("retention.ms", "-1")
    };
    let own = unit.topics.iter().filter(|t| t.usage == TopicUse::Internal && kept(&t.config) && read(&t.name));
    own.filter_map(|t| Some((t.name.clone(), t.partitions?))).collect()
}

/// The purge of one process; stops when dropped.
pub struct Purge {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Purge {
    /// Starts it on a thread of its own; `behind` are the topics that go behind the stream unit's commits.
    pub fn start<C: Cluster>(cluster: C, app: ApplicationId, shared: Arc<Shared>, behind: Vec<(TopicName, u32)>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let run = move || {
            let mut done = BTreeMap::new();
            while !told.load(Ordering::Acquire) {
                std::thread::park_timeout(EVERY);
                if let Err(fault) = once(&cluster, &app, &shared.purgeable(), &behind, &mut done) {
                    tracing::debug!(%fault, "purging what is done; tried again later");
                }
            }
        };
        let thread = std::thread::Builder::new().name("purge".into()).spawn(run);
        if let Err(e) = &thread {
            tracing::warn!(error = %e, "nothing is purged: the thread did not start");
        }
        Self { stop, thread: thread.ok() }
    }
}

impl Drop for Purge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// One round; `done` remembers what was deleted, so that nothing is asked twice.
fn once<C: Cluster>(
    cluster: &C,
    app: &ApplicationId,
    outbox: &BTreeMap<Partition, NextOffset>,
    behind: &[(TopicName, u32)],
    done: &mut BTreeMap<Tp, NextOffset>,
) -> KResult<()> {
    let admin = cluster.admin()?;
    let name = topics::outbox(app);
    let mut due: Vec<(Tp, NextOffset)> = outbox.iter().map(|(p, to)| (Tp { topic: name.clone(), partition: *p }, *to)).collect();
    let tps: Vec<Tp> = behind.iter().flat_map(|(t, n)| (0..*n).map(|p| Tp::new(t.clone(), p as i32))).collect();
    if !tps.is_empty() {
        due.extend(admin.committed(&GroupId::new(app.as_str()), &tps)?);
    }
    due.retain(|(tp, to)| to.0 > 0 && done.get(tp).is_none_or(|d| d < to));
    if !due.is_empty() {
        admin.delete_records(&due)?;
        done.extend(due);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::memory::MemoryCluster;
    use crate::kafka::{Input, Isolation, NewTopic, Reading, Slot, SlotMark, Source, TxLimits, TxSink, Wake};
    use crate::record::OutRecord;
    use crate::time::{ManualClock, MonoTime, Now, WallTime};

    /// If this broke, intake and return topics would grow for ever; or, purged too far, a request would be gone unread.
    #[test]
    fn what_the_unit_has_committed_is_purged_and_nothing_else() {
        let now = Now { wall: WallTime(1_000), mono: MonoTime(1_000) };
        let cluster = MemoryCluster::new(Arc::new(ManualClock::at(now)));
        let topic = TopicName::new("app-operations-repartition");
        let tp = Tp::new(topic.clone(), 0);
        let admin = cluster.admin().expect("an admin client");
        let new = NewTopic { name: topic.clone(), partitions: 1, replication: 1, config: BTreeMap::new() };
        admin.create(&[new]).expect("creates");
        let record = OutRecord {
            topic: &topic,
            partition: Some(tp.partition),
            key: None,
            value: Some(b"v"),
            headers: None,
            timestamp: None,
        };
        for _ in 0..3 {
            cluster.publish(std::slice::from_ref(&record), Duration::from_secs(1)).expect("publishes");
        }
        let slot = Slot { unit: "app".into(), group: GroupId::new("app"), number: 0 };
        let mut source = cluster.source(&slot, std::slice::from_ref(&topic), Wake::none()).expect("joins");
        let given = (0..100).find_map(|_| match source.next() {
            Some(Input::Assigned(given)) => Some(given),
            _ => None,
        });
        let start = (tp.clone(), NextOffset(0), Reading::Shared);
        source.confirm(&given.expect("the group gives it"), &[start]).expect("confirms");
        let mut sink = cluster.sink(&slot, TxLimits::default()).expect("a producer");
        sink.init().and_then(|()| sink.begin()).expect("begins");
        let stamp = source.stamp().expect("a stamp");
        sink.offsets(&[(tp.clone(), NextOffset(2))], &SlotMark::default(), &stamp).expect("offsets");
        sink.commit(Duration::from_secs(1)).expect("commits");

        let mut done = BTreeMap::new();
        once(&cluster, &ApplicationId::new("app"), &BTreeMap::new(), &[(topic, 1)], &mut done).expect("purges");
        let mut reader = cluster.reader(Isolation::Committed).expect("a reader");
        assert_eq!(reader.ends(&tp, Isolation::Committed).expect("ends").0, NextOffset(2));
    }
}
