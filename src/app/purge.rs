//! Deletes records that nobody needs any more: behind what the unit that reads them has committed, never by time. Repartition topics,
//! the intake and the return topic go behind the stream unit's positions. Outbox and control go behind those of the effect unit, which
//! commits a position only with what it led to in the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::ids::{GroupId, TopicName, Tp};
use crate::kafka::{Cluster, KResult};
use crate::offset::NextOffset;
use crate::task::{TopicUse, UnitPlan};

/// How often.
const EVERY: Duration = Duration::from_secs(30);

/// Topics with their partition counts, and the group behind whose positions they are purged.
pub(super) type Behind = (GroupId, Vec<(TopicName, u32)>);

/// A unit's own topics that it reads itself and that never expire by time: the ones to purge behind its commits.
pub(super) fn purged(unit: &UnitPlan) -> Behind {
    let read = |t: &TopicName| unit.subtopologies.iter().flat_map(|s| &s.sources).any(|s| s.topic == *t);
    let kept = |c: &BTreeMap<String, String>| {
        let is = |key: &str, value: &str| c.get(key).is_some_and(|v| v == value);
        is("cleanup.policy", "delete") && is("retention.ms", "-1")
    };
    let own = unit.topics.iter().filter(|t| t.usage == TopicUse::Internal && kept(&t.config) && read(&t.name));
    (unit.group.clone(), own.filter_map(|t| Some((t.name.clone(), t.partitions?))).collect())
}

/// The purge of one process; stops when dropped.
pub struct Purge {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Purge {
    /// Starts it on a thread of its own.
    pub fn start<C: Cluster>(cluster: C, units: Vec<Behind>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let run = move || {
            let mut done = BTreeMap::new();
            while !told.load(Ordering::Acquire) {
                std::thread::park_timeout(EVERY);
                if let Err(fault) = once(&cluster, &units, &mut done) {
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
fn once<C: Cluster>(cluster: &C, units: &[Behind], done: &mut BTreeMap<Tp, NextOffset>) -> KResult<()> {
    let admin = cluster.admin()?;
    let mut due = Vec::new();
    for (group, topics) in units.iter().filter(|(_, topics)| !topics.is_empty()) {
        let tps: Vec<Tp> = topics.iter().flat_map(|(t, n)| (0..*n).map(|p| Tp::new(t.clone(), p as i32))).collect();
        due.extend(admin.committed(group, &tps)?);
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
    use crate::ids::ApplicationId;
    use crate::intents::topics;
    use crate::kafka::memory::MemoryCluster;
    use crate::kafka::{Input, Isolation, NewTopic, Reading, Slot, SlotMark, Source, TxLimits, TxSink, Wake};
    use crate::record::OutRecord;
    use crate::task::{SourceSpec, StartAt, SubtopologyPlan, TaskBuilder};
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
        let others = (GroupId::new("others"), vec![(topic.clone(), 1)]);
        once(&cluster, std::slice::from_ref(&others), &mut done).expect("has nothing to purge");
        let ends = || cluster.reader(Isolation::Committed).and_then(|mut r| r.ends(&tp, Isolation::Committed)).expect("ends");
        assert_eq!(ends().0, NextOffset(0));
        once(&cluster, &[others, (GroupId::new("app"), vec![(topic, 1)])], &mut done).expect("purges");
        assert_eq!(ends().0, NextOffset(2));
    }

    /// If this broke, one of the topics that grow for ever would be forgotten: the control topic was.
    #[test]
    fn everything_that_the_effect_unit_reads_is_purged() {
        let app = ApplicationId::new("orders");
        let source = |topic| SourceSpec { topic, reading: Reading::Split, start: StartAt::Refuse };
        let sources = [topics::outbox(&app), topics::control(&app)].map(source).to_vec();
        let build: TaskBuilder = Arc::new(|_| unreachable!("nothing is run"));
        let unit = UnitPlan {
            application: app.clone(),
            unit: "orders.effects".into(),
            group: GroupId::new("orders.effects"),
            subtopologies: vec![SubtopologyPlan { id: 0, sources, stores: Vec::new(), build }],
            topics: crate::effects::topics(&app, 3),
            flat_gap: true,
        };
        let (group, behind) = purged(&unit);
        assert_eq!(group.as_str(), "orders.effects");
        assert_eq!(behind, [(topics::outbox(&app), 3), (topics::control(&app), 3)]);
    }
}
