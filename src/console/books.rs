//! What the console asks of Kafka and writes to it: evidence at its place, commands, the audit topic, members and their lag.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::admin::dead_letters::{DeadLetters, Letter, Place as LetterPlace};
use crate::admin::orders;
use crate::admin::replay::{Known, ReplayOrder, Replayed, Replayer};
use crate::admin::views::{Half, News, Seen};
use crate::app::check::{self, Report};
use crate::config::ProcessConfig;
use crate::config::yaml::Diagnostics;
use crate::dsl::Application;
use crate::effects::LedgerBody;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, GroupId, OperationKey, TopicName, Tp};
use crate::intents::{Command, topics};
use crate::kafka::{Cluster, Isolation, KafkaFault, Reader};
use crate::offset::NextOffset;
use crate::record::{Headers, InRecord, OutRecord};
use crate::serdes::internal;

use super::audit::{Entry, Trail};
use super::index::{Listed, Place};
use super::lag::{self, Group};
use super::letters::Row;
use super::tail::{changelog, is_of};

/// What the console was told of its application: what its files say, and what this process is set to.
pub struct Subject {
    /// The application.
    pub application: Arc<Application>,
    /// The settings that its promises rest on.
    pub config: ProcessConfig,
    /// What its files were warned of.
    pub warnings: Diagnostics,
}

/// The application's topics, as far as the console needs them.
pub trait Books: Send + Sync {
    /// The evidence of an operation: `None` where the index is older than the topic, and another look helps.
    fn read(&self, listed: &Listed) -> Result<Option<Seen>>;
    /// Writes a command.
    fn order(&self, command: &Command) -> Result<()>;
    /// Writes a request to a topic of the user's.
    fn submit(&self, topic: &TopicName, key: &str, value: &[u8], headers: &Headers) -> Result<()>;
    /// Writes a record of what somebody did.
    fn audit(&self, entry: &Entry) -> Result<()>;
    /// The dead letters of a topic that rest, without what they hold.
    fn dead_letters(&self, topic: &TopicName) -> Result<BTreeMap<LetterPlace, Row>>;
    /// Sends a letter back, knowing these operations.
    fn replay(&self, place: &LetterPlace, known: &BTreeMap<OperationKey, Seen>, order: &ReplayOrder) -> Result<Replayed>;
    /// A letter with what it holds; `None` where none lies there.
    fn letter(&self, place: &LetterPlace) -> Result<Option<Letter>>;
    /// The exact request of an operation; `None` where it is kept no more, or the index is older than the topic.
    fn request(&self, listed: &Listed) -> Result<Option<LedgerBody>>;
    /// Groups, members, lag; `sources` are what the graph reads.
    fn groups(&self, sources: &[TopicName]) -> Result<Vec<Group>>;
    /// The ends of topics, summed over their partitions; topics that are not there are left out.
    fn ends(&self, topics: &[TopicName]) -> Result<BTreeMap<TopicName, i64>>;
    /// What is promised, compared with the cluster as it is now.
    fn check(&self, subject: &Subject) -> Result<Report>;
}

/// The books of an application on a cluster.
pub struct KafkaBooks<C: Cluster> {
    cluster: C,
    app: ApplicationId,
    /// One reader for all who look, and where it was made.
    reader: Mutex<Option<Box<dyn Reader>>>,
    trail: Trail<C>,
}

/// Longest wait for a record that must be there.
const LOOK: Duration = Duration::from_secs(10);
const WRITE: Duration = Duration::from_secs(20);
const EVIDENCE: &str = "reading the evidence of an operation";

pub(super) fn away(doing: &str) -> impl Fn(KafkaFault) -> Error + '_ {
    move |fault| crate::runtime::unreached(doing, "check that the brokers answer", fault)
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: Cluster> KafkaBooks<C> {
    /// Of `app` on `cluster`.
    pub fn new(cluster: C, app: ApplicationId) -> Self {
        Self { trail: Trail::new(cluster.clone(), app.clone()), cluster, app, reader: Mutex::default() }
    }

    /// Does something with the one reader; one that failed is not kept.
    fn reading<T>(&self, doing: &str, with: impl FnOnce(&mut dyn Reader) -> Result<T>) -> Result<T> {
        let mut slot = held(&self.reader);
        let mut reader = match slot.take() {
            Some(reader) => reader,
            None => self.cluster.finder(Isolation::Committed).map_err(away(doing))?,
        };
        let done = with(reader.as_mut())?;
        *slot = Some(reader);
        Ok(done)
    }

    fn half(&self, reader: &mut dyn Reader, half: Half, place: Place) -> Result<Option<Seen>> {
        let Some(record) = at(reader, changelog(&self.app, half, place), place.offset, EVIDENCE)? else { return Ok(None) };
        Ok(match News::read(&record, half)? {
            Some(News::Stands(_, seen)) => Some(*seen),
            _ => None,
        })
    }
}

/// The record at a place; `None` where it was replaced and compacted away: the tail will know the newer one.
fn at(reader: &mut dyn Reader, tp: Tp, offset: i64, doing: &str) -> Result<Option<InRecord>> {
    reader.assign(&[(tp, NextOffset(offset))]).map_err(away(doing))?;
    let until = Instant::now() + LOOK;
    while Instant::now() < until {
        let Some(record) = reader.poll(Duration::from_millis(100)).map_err(away(doing))? else { continue };
        return Ok((record.offset.0 == offset).then_some(record));
    }
    Err(Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, doing).because("no record came within 10 s"))
}

impl<C: Cluster> Books for KafkaBooks<C> {
    fn read(&self, listed: &Listed) -> Result<Option<Seen>> {
        self.reading(EVIDENCE, |reader| {
            let mut seen = Seen::default();
            for (half, place) in [(Half::Record, listed.record), (Half::Ledger, listed.ledger)] {
                let Some(place) = place else { continue };
                match (self.half(reader, half, place)?.filter(|s| is_of(s, &listed.key)), half) {
                    (None, _) => return Ok(None),
                    (Some(found), Half::Record) => seen.record = found.record,
                    (Some(found), Half::Ledger) => seen.ledger = found.ledger,
                }
            }
            Ok(Some(seen))
        })
    }

    fn order(&self, command: &Command) -> Result<()> {
        orders::publish(&self.cluster, &self.app, command)
    }

    fn submit(&self, topic: &TopicName, key: &str, value: &[u8], headers: &Headers) -> Result<()> {
        let key = Some(key.as_bytes());
        let record = OutRecord { topic, partition: None, timestamp: None, key, value: Some(value), headers: Some(headers) };
        let done = self.cluster.publish(&[record], WRITE).map(|_| ());
        done.map_err(away("writing a request"))
            .map_err(|e| e.next("nobody knows whether it was written: send it again with the same ID"))
    }

    fn audit(&self, entry: &Entry) -> Result<()> {
        self.trail.write(entry)
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

    fn letter(&self, place: &LetterPlace) -> Result<Option<Letter>> {
        let doing = "reading a dead letter";
        let found = self.reading(doing, |reader| {
            let (first, end) = reader.ends(&place.tp, Isolation::Committed).map_err(away(doing))?;
            let there = (first.0..end.0).contains(&place.offset.0);
            if there { at(reader, place.tp.clone(), place.offset.0, doing) } else { Ok(None) }
        })?;
        Ok(found.and_then(Letter::of))
    }

    fn request(&self, listed: &Listed) -> Result<Option<LedgerBody>> {
        let Some(place) = listed.body else { return Ok(None) };
        let doing = "reading the request of an operation";
        let tp = changelog(&self.app, Half::Ledger, place);
        let Some(record) = self.reading(doing, |reader| at(reader, tp, place.offset, doing))? else { return Ok(None) };
        match News::read(&record, Half::Ledger)? {
            Some(News::Body(key)) if key == listed.key => record.value.as_deref().map(internal::decode).transpose(),
            _ => Ok(None),
        }
    }

    fn groups(&self, sources: &[TopicName]) -> Result<Vec<Group>> {
        let app = &self.app;
        let own = [topics::repartition(app, &"operations".into()), topics::commands(app), topics::plans(app)];
        let mut stream: Vec<TopicName> = sources.iter().chain(&own).cloned().collect();
        let mut seen = BTreeSet::new();
        stream.retain(|t| seen.insert(t.clone()));
        let effects = [topics::outbox(app), topics::control(app)];
        let stream = lag::group(&self.cluster, &GroupId::from(app.to_string()), &stream)?;
        let effects = lag::group(&self.cluster, &GroupId::from(topics::effects_unit(app).to_string()), &effects)?;
        Ok([stream, effects].into_iter().filter(|g| !g.partitions.is_empty() || !g.members.is_empty()).collect())
    }

    fn ends(&self, topics: &[TopicName]) -> Result<BTreeMap<TopicName, i64>> {
        let doing = "asking how far topics are";
        let admin = self.cluster.admin().map_err(away(doing))?;
        let mut found = BTreeMap::new();
        for topic in topics {
            let Some(info) = admin.topic(topic).map_err(away(doing))? else { continue };
            let end = |p| {
                let tp = Tp::new(topic.clone(), p as i32);
                self.reading(doing, |reader| reader.ends(&tp, Isolation::Uncommitted).map_err(away(doing))).map(|(_, end)| end.0)
            };
            found.insert(topic.clone(), (0..info.partitions).map(end).sum::<Result<i64>>()?);
        }
        Ok(found)
    }

    fn check(&self, subject: &Subject) -> Result<Report> {
        let admin = self.cluster.admin().map_err(away("asking what the cluster is set to"))?;
        let registry = crate::app::registry(&subject.config)?;
        let mut report = Report::offline(&subject.application, &subject.config, &subject.warnings);
        check::against(&mut report, &subject.application, &subject.config, admin.as_ref(), registry.as_ref())?;
        Ok(report)
    }
}
