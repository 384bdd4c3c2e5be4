//! What the console asks of Kafka and writes to it: evidence at its place, commands, the audit topic, members and their lag.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::admin::dead_letters::{DeadLetters, Place as LetterPlace};
use crate::admin::orders;
use crate::admin::replay::{Known, ReplayOrder, Replayed, Replayer};
use crate::admin::views::{Half, News, Seen};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, GroupId, OperationKey, TopicName, Tp};
use crate::intents::{Command, headers, topics};
use crate::kafka::{Cluster, Isolation, KafkaFault, Member, NewTopic, Reader};
use crate::offset::NextOffset;
use crate::record::{Headers, OutRecord};

use super::audit::Entry;
use super::index::{Listed, Place};
use super::letters::Row;
use super::tail::{changelog, is_of};

/// A consumer group of the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its name.
    pub name: GroupId,
    /// Its live members.
    pub members: Vec<Member>,
    /// Its partitions of the application's own topics, with the offsets between position and end where both are known.
    pub partitions: Vec<(Tp, Option<i64>)>,
}

/// The application's topics, as far as the console needs them.
pub trait Books: Send + Sync {
    /// The evidence of an operation: `None` where the index is older than the topic, and another look helps.
    fn read(&self, listed: &Listed) -> Result<Option<Seen>>;
    /// Writes a command.
    fn order(&self, command: &Command) -> Result<()>;
    /// Writes a record of what somebody did.
    fn audit(&self, entry: &Entry) -> Result<()>;
    /// The dead letters of a topic that rest, without what they hold.
    fn dead_letters(&self, topic: &TopicName) -> Result<BTreeMap<LetterPlace, Row>>;
    /// Sends a letter back, knowing these operations.
    fn replay(&self, place: &LetterPlace, known: &BTreeMap<OperationKey, Seen>, order: &ReplayOrder) -> Result<Replayed>;
    /// Groups, members, lag.
    fn groups(&self) -> Result<Vec<Group>>;
}

/// The books of an application on a cluster.
pub struct KafkaBooks<C: Cluster> {
    cluster: C,
    app: ApplicationId,
    /// One reader for all who look, and where it was made.
    reader: Mutex<Option<Box<dyn Reader>>>,
    audited: Mutex<bool>,
}

/// Longest wait for a record that must be there.
const LOOK: Duration = Duration::from_secs(10);
const WRITE: Duration = Duration::from_secs(20);

fn away(doing: &str) -> impl Fn(KafkaFault) -> Error + '_ {
    move |fault| {
        Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, doing).because(fault).next("check that the brokers answer")
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: Cluster> KafkaBooks<C> {
    /// Of `app` on `cluster`.
    pub fn new(cluster: C, app: ApplicationId) -> Self {
        Self { cluster, app, reader: Mutex::default(), audited: Mutex::default() }
    }

    fn half(&self, reader: &mut dyn Reader, half: Half, place: Place) -> Result<Option<Seen>> {
        let doing = "reading the evidence of an operation";
        let tp = changelog(&self.app, half, place);
        reader.assign(&[(tp, NextOffset(place.offset))]).map_err(away(doing))?;
        let until = Instant::now() + LOOK;
        while Instant::now() < until {
            let Some(record) = reader.poll(Duration::from_millis(100)).map_err(away(doing))? else { continue };
            if record.offset.0 != place.offset {
                // It was replaced and compacted away; the tail will know the newer one.
                return Ok(None);
            }
            return Ok(match News::read(&record, half)? {
                Some(News::Stands(_, seen)) => Some(*seen),
                _ => None,
            });
        }
        Err(Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, doing).because("no record came within 10 s"))
    }

    /// The audit topic is kept for ever: nobody but the cluster's owner deletes from it.
    fn audit_topic(&self) -> Result<()> {
        let mut known = held(&self.audited);
        if *known {
            return Ok(());
        }
        let (name, doing) = (topics::audit(&self.app), "making the audit topic");
        let admin = self.cluster.admin().map_err(away(doing))?;
        if admin.topic(&name).map_err(away(doing))?.is_none() {
            let config = BTreeMap::from([("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")]);
            let config = config.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            admin.create(&[NewTopic { name: name.clone(), partitions: 1, replication: -1, config }]).map_err(away(doing))?;
            crate::runtime::wait_for_topic(admin.as_ref(), &name)?;
        }
        *known = true;
        Ok(())
    }

    fn partitions(&self, group: &GroupId, names: &[TopicName]) -> Result<Vec<(Tp, Option<i64>)>> {
        let doing = "reading a group's positions";
        let admin = self.cluster.admin().map_err(away(doing))?;
        let mut tps = Vec::new();
        for name in names {
            let info = admin.topic(name).map_err(away(doing))?;
            tps.extend(info.iter().flat_map(|t| (0..t.partitions).map(|p| Tp::new(name.clone(), p as i32))));
        }
        let committed: BTreeMap<Tp, NextOffset> = admin.committed(group, &tps).map_err(away(doing))?.into_iter().collect();
        let mut reader = self.cluster.reader(Isolation::Committed).map_err(away(doing))?;
        let mut found = Vec::new();
        for tp in tps {
            let (_, end) = reader.ends(&tp, Isolation::Committed).map_err(away(doing))?;
            let left = committed.get(&tp).map(|at| (end.0 - at.0).max(0));
            found.push((tp, left));
        }
        Ok(found)
    }
}

impl<C: Cluster> Books for KafkaBooks<C> {
    fn read(&self, listed: &Listed) -> Result<Option<Seen>> {
        let mut slot = held(&self.reader);
        let mut reader = match slot.take() {
            Some(reader) => reader,
            None => self.cluster.finder(Isolation::Committed).map_err(away("reading the evidence of an operation"))?,
        };
        let mut seen = Seen::default();
        for (half, place) in [(Half::Record, listed.record), (Half::Ledger, listed.ledger)] {
            let Some(place) = place else { continue };
            // A reader that failed is not kept.
            match self.half(reader.as_mut(), half, place)?.filter(|s| is_of(s, &listed.key)) {
                Some(found) => match half {
                    Half::Record => seen.record = found.record,
                    Half::Ledger => seen.ledger = found.ledger,
                },
                None => {
                    *slot = Some(reader);
                    return Ok(None);
                }
            }
        }
        *slot = Some(reader);
        Ok(Some(seen))
    }

    fn order(&self, command: &Command) -> Result<()> {
        orders::publish(&self.cluster, &self.app, command)
    }

    fn audit(&self, entry: &Entry) -> Result<()> {
        self.audit_topic()?;
        let bug = |e| Error::new(codes::BUG, Fault::Bug, "writing an audit record").because(e);
        let value = serde_json::to_vec(entry).map_err(bug)?;
        let topic = topics::audit(&self.app);
        let headers = Headers::new().with(headers::SCHEMA, "audit/1");
        let key = (!entry.operation.is_empty()).then_some(entry.operation.as_bytes());
        let record =
            OutRecord { topic: &topic, partition: None, timestamp: None, key, value: Some(&value), headers: Some(&headers) };
        self.cluster.publish(&[record], WRITE).map_err(away("writing an audit record"))?;
        Ok(())
    }

    fn dead_letters(&self, topic: &TopicName) -> Result<BTreeMap<LetterPlace, Row>> {
        DeadLetters::heads(&self.cluster, topic, &|letter| Row::from(letter))
    }

    fn replay(&self, place: &LetterPlace, known: &BTreeMap<OperationKey, Seen>, order: &ReplayOrder) -> Result<Replayed> {
        let doing = "sending a dead letter back";
        let admin = self.cluster.admin().map_err(away(doing))?;
        let counts: BTreeMap<TopicName, u32> =
            admin.topics().map_err(away(doing))?.into_iter().map(|t| (t.name, t.partitions)).collect();
        let known = Known { operations: known, partitions: &|topic| counts.get(topic).copied() };
        let done = Replayer::open(&self.cluster, &self.app)?.replay(&place.tp.topic, std::slice::from_ref(place), &known, order)?;
        done.into_iter().next().ok_or_else(|| Error::new(codes::BUG, Fault::Bug, "a replay that says nothing of its letter"))
    }

    fn groups(&self) -> Result<Vec<Group>> {
        let app = &self.app;
        let stream = [topics::repartition(app, &"operations".into()), topics::commands(app), topics::plans(app)];
        let effects = [topics::outbox(app), topics::control(app)];
        let admin = self.cluster.admin().map_err(away("reading groups"))?;
        let mut found = Vec::new();
        for (name, names) in [(app.to_string(), &stream[..]), (topics::effects_unit(app).to_string(), &effects[..])] {
            let name = GroupId::from(name);
            let members = admin.members(&name).map_err(away("reading a group's members"))?;
            found.push(Group { partitions: self.partitions(&name, names)?, name, members });
        }
        Ok(found)
    }
}
