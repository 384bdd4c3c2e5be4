//! Dead letters go back: each once. What is sent and the mark that says so are one transaction of a producer that only one person can
//! hold: whoever comes later takes back what an earlier one left open, and reads its marks before anything is sent.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::agent::intake_topic;
use crate::error::{Code, Error, Fault, Result, codes};
use crate::ids::{ApplicationId, GroupId, MessageId, OperationKey, Partition, TopicName, UnitName, partition_of};
use crate::intents::{Intake, Status, headers, hex};
use crate::kafka::{Class, Cluster, KResult, KafkaFault, Slot, TxLimits, TxSink};
use crate::outbox::Stage;
use crate::record::{Headers, OutRecord};
use crate::serdes::internal::{Wire, encode};
use crate::time::WallTime;

use super::dead_letters::{Back, DeadLetters, Letter, Mark, Place};
use super::views::Seen;

/// Longest time that one call to the cluster is repeated.
const PATIENCE: Duration = Duration::from_secs(30);
/// Letters of one transaction.
const BATCH: usize = 500;

/// Who orders the replay, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayOrder {
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: WallTime,
    /// A new deadline for requests; without one they keep their own.
    pub deadline: Option<WallTime>,
}

/// What became of one letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// Which.
    pub place: Place,
    /// Where it went, or why it did not go.
    pub outcome: std::result::Result<String, Refusal>,
}

/// Why a letter stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// In words.
    pub words: String,
}

impl Refusal {
    fn new(code: Code, words: impl Into<String>) -> Self {
        Self { code, words: words.into() }
    }
}

/// What the cluster knows that a replay depends on.
pub struct Known<'a> {
    /// The application's operations; empty where it has none.
    pub operations: &'a std::collections::BTreeMap<OperationKey, Seen>,
    /// How many partitions a topic has; `None` where it is not there.
    pub partitions: &'a dyn Fn(&TopicName) -> Option<u32>,
}

/// A record on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Going {
    topic: TopicName,
    partition: Partition,
    timestamp: Option<WallTime>,
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Headers,
    to: String,
}

impl Going {
    fn as_record(&self) -> OutRecord<'_> {
        OutRecord {
            topic: &self.topic,
            partition: Some(self.partition),
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: Some(&self.headers),
        }
    }
}

/// What a letter becomes when it goes back, or why it stays. Reads nothing but what it is given.
///
/// # Errors
/// A record that can't be encoded.
pub fn plan(
    app: &ApplicationId,
    letter: &Letter,
    known: &Known<'_>,
    order: &ReplayOrder,
) -> Result<std::result::Result<Going, Refusal>> {
    if let Some(mark) = &letter.replayed {
        let words = format!("{} replayed it at {}: {}", mark.by, mark.at, mark.reason);
        return Ok(Err(Refusal::new(codes::REPLAYED_ALREADY, words)));
    }
    match letter.back() {
        Back::Nowhere(why) => Ok(Err(Refusal::new(codes::REPLAY_REFUSED, why))),
        Back::Record(to) => Ok(match (known.partitions)(&to.topic) {
            Some(n) if i64::from(to.partition.0) < i64::from(n) => Ok(as_it_came(letter, to.topic, to.partition)),
            _ => Err(Refusal::new(codes::REPLAY_REFUSED, format!("it came from {to}, which is not there any more"))),
        }),
        Back::Request(intake) => match readmitted(*intake, letter, known, order) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(intake) => to_admission(app, &intake, letter, known),
        },
    }
}

/// What would become of the letter at a place.
///
/// # Errors
/// As [`plan`].
pub fn outcome(
    app: &ApplicationId,
    there: &DeadLetters,
    place: &Place,
    known: &Known<'_>,
    order: &ReplayOrder,
) -> Result<Replayed> {
    let going = match there.letters.get(place) {
        Some(letter) => plan(app, letter, known, order)?,
        None => Err(nothing_there()),
    };
    Ok(Replayed { place: place.clone(), outcome: going.map(|g| g.to) })
}

fn nothing_there() -> Refusal {
    Refusal::new(codes::REPLAY_REFUSED, "no dead letter lies there (any more)")
}

/// The original record: key, value, headers and time as they were.
fn as_it_came(letter: &Letter, topic: TopicName, partition: Partition) -> Going {
    let r = &letter.record;
    let mut names = r.headers.clone();
    names.0.retain(|h| !headers::DEAD.contains(&&*h.name));
    names.set(headers::REPLAY_OF, letter.place.header());
    let to = topic.to_string();
    Going { topic, partition, timestamp: letter.time(), key: r.key.clone(), value: r.value.clone(), headers: names, to }
}

/// The request as it comes to admission again: the same operation, in a message of its own.
fn readmitted(mut intake: Intake, letter: &Letter, known: &Known<'_>, order: &ReplayOrder) -> std::result::Result<Intake, Refusal> {
    let no = |words: String| Err(Refusal::new(codes::REPLAY_REFUSED, words));
    let request = &mut intake.request;
    let key = OperationKey { tenant: request.tenant.clone(), operation: request.operation_id.clone(), step: intake.step.clone() };
    if let Some(seen) = known.operations.get(&key) {
        let status = seen.status().map_or("held", Status::word);
        let same = seen.record.as_ref().is_some_and(|r| r.identity_hash == request.identity());
        let ended = seen.record.as_ref().is_some_and(|r| r.stage == Stage::Ended);
        match (same, ended) {
            (false, _) => {
                return no(format!(
                    "{} is the ID of another request ({status}): order this one under an ID of its own",
                    key.operation
                ));
            }
            (true, false) => return no(format!("{} is at work ({status}): it would be answered as a duplicate", key.operation)),
            // What has ended is worked on as a new operation, `<id>.r<k>`; whether it may be is decided where the records are.
            (true, true) if seen.status() == Some(Status::Confirmed) => {
                return no(format!("{} was confirmed: its effect exists", key.operation));
            }
            (true, true) => {}
        }
    }
    request.deadline = order.deadline.unwrap_or(request.deadline);
    if request.deadline <= order.at {
        return no(format!("its deadline ({}) is over: give it a new one with --deadline", request.deadline));
    }
    request.message_id = MessageId::from(format!("replay-{}", digest(&letter.place.header())));
    Ok(intake)
}

fn digest(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    hex(&Sha256::digest(text.as_bytes())[..16])
}

fn to_admission(
    app: &ApplicationId,
    intake: &Intake,
    letter: &Letter,
    known: &Known<'_>,
) -> Result<std::result::Result<Going, Refusal>> {
    let (topic, operation) = (intake_topic(app), &intake.request.operation_id);
    let Some(n) = (known.partitions)(&topic) else {
        return Ok(Err(Refusal::new(codes::REPLAY_REFUSED, format!("{topic} is not there: has the application ever run?"))));
    };
    let mut names = Headers::new().with(headers::SCHEMA, Intake::SCHEMA).with(headers::OPERATION, operation.to_string());
    if let Some(key) = &intake.ordering_key {
        names.push(headers::ORDERING_KEY, key.to_string());
    }
    if let Some(trace) = &intake.request.traceparent {
        names.push(headers::TRACEPARENT, trace.clone());
    }
    names.push(headers::REPLAY_OF, letter.place.header());
    Ok(Ok(Going {
        partition: partition_of(operation.root().as_str().as_bytes(), n),
        timestamp: None,
        key: Some(Bytes::from(operation.to_string())),
        value: Some(encode(intake)?.into()),
        headers: names,
        to: format!("admission as {operation}"),
        topic,
    }))
}

fn mark(letter: &Letter, going: &Going, order: &ReplayOrder) -> Result<Going> {
    let mark = Mark {
        schema: Mark::SCHEMA.to_owned(),
        letter: letter.place.header(),
        by: order.by.clone(),
        reason: order.reason.clone(),
        at: order.at,
        to: going.to.clone(),
    };
    let value = serde_json::to_vec(&mark).map_err(|e| Error::new(codes::BUG, Fault::Bug, "writing a mark as JSON").because(e))?;
    let Place { tp, offset } = letter.place.clone();
    Ok(Going {
        topic: tp.topic,
        partition: tp.partition,
        timestamp: Some(order.at),
        key: Some(Bytes::from(format!("{}/{offset}", headers::REPLAYED))),
        value: Some(value.into()),
        headers: Headers::new().with(headers::REPLAYED, offset.to_string()),
        to: going.to.clone(),
    })
}

/// The one who may replay, until somebody else is.
pub struct Replayer<'a, C: Cluster> {
    cluster: &'a C,
    app: ApplicationId,
    sink: C::Sink,
}

impl<'a, C: Cluster> Replayer<'a, C> {
    /// Becomes the one who may; what another one has open is taken back.
    ///
    /// # Errors
    /// `BROKER_UNREACHABLE`, and what the cluster does not allow.
    pub fn open(cluster: &'a C, app: &ApplicationId) -> Result<Self> {
        let unit = UnitName::from(format!("{app}-dead-letters"));
        let slot = Slot { group: GroupId::from(unit.to_string()), unit, number: 0 };
        let mut sink = cluster.sink(&slot, TxLimits { transaction: PATIENCE, reports: false }).map_err(failed)?;
        patiently(|| sink.init()).map_err(failed)?;
        Ok(Self { cluster, app: app.clone(), sink })
    }

    /// Replays letters of a topic. Their marks are read here, after everybody before us was shut out.
    ///
    /// # Errors
    /// `BROKER_UNREACHABLE` and others, where nothing of the last transaction was sent; `COMMIT_UNCLEAR` where nobody knows: then the
    /// same order again finds the marks, and sends what is missing.
    pub fn replay(&mut self, topic: &TopicName, picked: &[Place], known: &Known<'_>, order: &ReplayOrder) -> Result<Vec<Replayed>> {
        let wanted: BTreeSet<&Place> = picked.iter().collect();
        let there = DeadLetters::read_some(self.cluster, topic, &|place| wanted.contains(place))?;
        let mut done = Vec::new();
        for places in picked.chunks(BATCH) {
            let mut records = Vec::new();
            for place in places {
                let outcome = match there.letters.get(place) {
                    None => Err(nothing_there()),
                    Some(letter) => match plan(&self.app, letter, known, order)? {
                        Err(refusal) => Err(refusal),
                        Ok(going) => {
                            let marked = mark(letter, &going, order)?;
                            let to = going.to.clone();
                            records.extend([going, marked]);
                            Ok(to)
                        }
                    },
                };
                done.push(Replayed { place: place.clone(), outcome });
            }
            self.send(&records)?;
        }
        Ok(done)
    }

    #[cfg(test)]
    pub(crate) fn send_marked(&mut self, letter: &Letter, going: Going, order: &ReplayOrder) -> Result<()> {
        let marked = mark(letter, &going, order)?;
        self.send(&[going, marked])
    }

    fn send(&mut self, records: &[Going]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        // A topic may refuse a record's old time; then the producer gives it another one the next time.
        let mut tries = 3;
        loop {
            match self.transaction(records) {
                Err(f) if f.class == Class::Abort && tries > 1 => tries -= 1,
                Err(f) if matches!(f.class, Class::OutcomeUnknown) => {
                    return Err(Error::new(codes::COMMIT_UNCLEAR, Fault::Unreachable, "replaying dead letters")
                        .because(f)
                        .next("order it again: what was sent is marked, and only the rest is sent"));
                }
                done => return done.map_err(failed),
            }
        }
    }

    fn transaction(&mut self, records: &[Going]) -> KResult<()> {
        self.sink.begin()?;
        let sent = self.fill(records).and_then(|()| {
            let last = self.sink.commit(PATIENCE);
            last.map_err(|f| if f.class == Class::Retry { KafkaFault { class: Class::OutcomeUnknown, ..f } } else { f })
        });
        if sent.as_ref().is_err_and(|f| f.class != Class::OutcomeUnknown) {
            self.sink.abort(PATIENCE)?;
        }
        sent
    }

    fn fill(&mut self, records: &[Going]) -> KResult<()> {
        for going in records {
            while let Err(f) = self.sink.send(going.as_record()) {
                if f.class != Class::Retry {
                    return Err(f);
                }
                self.sink.flush(Duration::from_millis(10)).or_else(|f| if f.class == Class::Retry { Ok(()) } else { Err(f) })?;
            }
        }
        self.sink.flush(PATIENCE)
    }
}

fn failed(f: KafkaFault) -> Error {
    let (code, fault) = match f.class {
        Class::Config => (codes::NOT_AUTHORIZED, Fault::Configuration),
        Class::Fenced => (codes::SLOT_TAKEN, Fault::SlotTaken),
        _ => (codes::BROKER_UNREACHABLE, Fault::Unreachable),
    };
    Error::new(code, fault, "replaying dead letters")
        .because(f)
        .next("nothing of the last transaction was sent, and what went before is marked: order it again")
}

fn patiently(mut call: impl FnMut() -> KResult<()>) -> KResult<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match call() {
            Err(f) if f.class == Class::Retry && Instant::now() < until => {}
            done => return done,
        }
    }
}
