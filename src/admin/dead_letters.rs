//! The dead letters of a topic: what lies there, why, what was replayed already, and how each can go back. Reads committed records.
//!
//! A replay leaves a mark in the letter's own partition, in the transaction that sends the record: so a letter and its mark are kept
//! by the same retention, and nobody can send without marking or mark without sending.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Fault, Result, codes};
use crate::ids::{OperationId, OrderingKey, StepName, TopicName, Tp};
use crate::intents::{Intake, Intent, WorkRequest, dead, headers};
use crate::kafka::{Class, Cluster, Isolation, KResult, KafkaFault, Reader};
use crate::offset::{NextOffset, Offset};
use crate::record::InRecord;
use crate::serdes::internal::{self, Wire};
use crate::time::WallTime;

/// How long open transactions of members may keep the end of the topic from being read.
const WAIT: Duration = Duration::from_secs(30);

/// Where a record lies: `topic-partition-offset`, as commands take it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Topic and partition.
    pub tp: Tp,
    /// Its offset there.
    pub offset: Offset,
}

impl Place {
    /// Reads `orders.dead-3-42` or `orders.dead/3/42`.
    pub fn parse(text: &str) -> Option<Place> {
        let cut = if text.contains('/') { '/' } else { '-' };
        let (rest, offset) = text.rsplit_once(cut)?;
        let (topic, partition) = rest.rsplit_once(cut)?;
        let (partition, offset) = (partition.parse::<u32>().ok()?, offset.parse::<u64>().ok()?);
        let place = Place {
            tp: Tp::new(TopicName::new(topic), i32::try_from(partition).ok()?),
            offset: Offset(i64::try_from(offset).ok()?),
        };
        (!topic.is_empty()).then_some(place)
    }
    /// `topic/partition/offset`, as headers have it.
    pub fn header(&self) -> String {
        format!("{}/{}/{}", self.tp.topic, self.tp.partition, self.offset)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.tp, self.offset)
    }
}

/// A mark among the dead letters: this letter was replayed. JSON, so that people can read it with any tool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// `readback.replayed/1`.
    pub schema: String,
    /// Which letter: `topic/partition/offset`.
    pub letter: String,
    /// Who ordered it.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: WallTime,
    /// Where it went: a topic, and the operation where it is one.
    pub to: String,
}

impl Mark {
    /// The `schema` of a mark.
    pub const SCHEMA: &'static str = "readback.replayed/1";
}

/// What of a letter can go back, and where to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Back {
    /// A request that admission refused: to admission again. The graph that made it is not run twice.
    Request(Box<Intake>),
    /// A record as it came, to the place that it came from.
    Record(Tp),
    /// Nothing: why.
    Nowhere(&'static str),
}

/// One dead letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Letter {
    /// Where it lies.
    pub place: Place,
    /// Why it died: `RB0501`.
    pub code: String,
    /// In words.
    pub reason: String,
    /// Where it came from: `topic/partition/offset`.
    pub origin: String,
    /// The effect step that refused it; none where a step of the graph gave it up.
    pub step: Option<StepName>,
    /// Its operation, where it has one.
    pub operation: Option<OperationId>,
    /// When it died; none on letters of programs that did not write it.
    pub at: Option<WallTime>,
    /// The record.
    pub record: InRecord,
    /// Who replayed it, where somebody did.
    pub replayed: Option<Mark>,
}

impl Letter {
    /// The letter that a record is; `None` where it is none. Whether it was replayed stands in another record.
    pub fn of(record: InRecord) -> Option<Self> {
        let text = |name| record.headers.text(name).map(str::to_owned);
        let code = text(headers::DEAD_CODE)?;
        Some(Self {
            place: Place { tp: record.tp.clone(), offset: record.offset },
            code,
            reason: text(headers::DEAD_REASON).unwrap_or_default(),
            origin: text(headers::DEAD_ORIGIN).unwrap_or_default(),
            step: text(headers::DEAD_STEP).map(StepName::from),
            operation: text(headers::OPERATION).map(OperationId::from),
            at: dead::moment(&record.headers, headers::DEAD_AT),
            record,
            replayed: None,
        })
    }

    /// Since when it rests: its death, or else its record's time.
    pub fn since(&self) -> WallTime {
        self.at.or(self.record.timestamp).unwrap_or_default()
    }

    /// The time of the record that died; of a letter that does not say it (by another program, or an older version) its own.
    pub fn time(&self) -> Option<WallTime> {
        dead::moment(&self.record.headers, headers::DEAD_TIME).or(self.record.timestamp)
    }

    /// The request, where it is one.
    pub fn request(&self) -> Option<WorkRequest> {
        let ours = self.record.headers.text(headers::SCHEMA) == Some(WorkRequest::SCHEMA);
        ours.then(|| internal::decode(self.record.value.as_deref()?).ok()).flatten()
    }

    /// How it can go back.
    pub fn back(&self) -> Back {
        let schema = self.record.headers.text(headers::SCHEMA);
        let origin = Place::parse(&self.origin);
        match (schema, &self.step, origin) {
            (Some(s), ..) if s == Intent::SCHEMA => {
                Back::Nowhere("it is an intent: sending it would pass by admission, plan and approval; order the work anew")
            }
            (Some(s), step, _) if s == WorkRequest::SCHEMA => match (self.request(), step) {
                (Some(request), Some(step)) => Back::Request(Box::new(Intake {
                    request,
                    step: step.clone(),
                    ordering_key: self.record.headers.text(headers::ORDERING_KEY).map(OrderingKey::new),
                    origin: self.place.header(),
                })),
                (Some(_), None) => Back::Nowhere("it was written by a version that did not name the step; order the work anew"),
                (None, _) => Back::Nowhere("its request can't be read; order the work anew"),
            },
            (_, _, Some(origin)) => Back::Record(origin.tp),
            (_, _, None) => Back::Nowhere("its origin can't be read"),
        }
    }
}

/// All dead letters of a topic, as far as they are committed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeadLetters {
    /// By their place.
    pub letters: BTreeMap<Place, Letter>,
}

fn unreachable(fault: KafkaFault) -> Error {
    crate::runtime::unreached("reading dead letters", "check --brokers", fault)
}

impl DeadLetters {
    /// Reads a topic from its start to where it ends now, whatever transactions are open there: a mark behind one counts too.
    ///
    /// # Errors
    /// `TOPIC_MISSING`, `BROKER_UNREACHABLE`, and `OFFSETS_BLOCKED` where a transaction stays open before the end.
    pub fn read<C: Cluster>(cluster: &C, topic: &TopicName) -> Result<Self> {
        Self::read_some(cluster, topic, &|_| true)
    }

    /// Reads those that lie at places which are wanted, with their marks; the others pass by.
    ///
    /// # Errors
    /// As [`DeadLetters::read`].
    pub fn read_some<C: Cluster>(cluster: &C, topic: &TopicName, wanted: &dyn Fn(&Place) -> bool) -> Result<Self> {
        let keep = |letter: Letter| wanted(&letter.place).then_some(letter);
        let (mut letters, marks) = Self::fold(cluster, topic, &keep)?;
        for (place, mark) in marks {
            if let Some(letter) = letters.get_mut(&place) {
                letter.replayed = Some(mark);
            }
        }
        Ok(Self { letters })
    }

    /// What `head` keeps of each letter that rests: payloads are not held.
    ///
    /// # Errors
    /// As [`DeadLetters::read`].
    pub fn heads<C: Cluster, T>(cluster: &C, topic: &TopicName, head: &dyn Fn(&Letter) -> T) -> Result<BTreeMap<Place, T>> {
        let (mut heads, marks) = Self::fold(cluster, topic, &|letter| Some(head(&letter)))?;
        marks.iter().for_each(|(place, _)| drop(heads.remove(place)));
        Ok(heads)
    }

    fn fold<C: Cluster, T>(
        cluster: &C,
        topic: &TopicName,
        keep: &dyn Fn(Letter) -> Option<T>,
    ) -> Result<(BTreeMap<Place, T>, Vec<(Place, Mark)>)> {
        let admin = cluster.admin().map_err(unreachable)?;
        let info = admin.topic(topic).map_err(unreachable)?.ok_or_else(|| {
            Error::new(codes::TOPIC_MISSING, Fault::Unreachable, format!("reading dead letters: no topic {topic}"))
                .next("check --topic, --topology and --brokers")
        })?;
        let mut reader = cluster.reader(Isolation::Committed).map_err(unreachable)?;
        let (mut start, mut ends) = (Vec::new(), Vec::new());
        for p in 0..info.partitions {
            let tp = Tp::new(topic.clone(), p as i32);
            let (first, end) = reader.ends(&tp, Isolation::Uncommitted).map_err(unreachable)?;
            start.push((tp.clone(), first));
            ends.push((tp, first, end));
        }
        reader.assign(&start).map_err(unreachable)?;
        let (mut found, mut marks) = (BTreeMap::new(), Vec::new());
        let until = Instant::now() + WAIT;
        let behind = |at: Option<NextOffset>, first: NextOffset, end: NextOffset| at.unwrap_or(first) < end;
        while ends.iter().any(|(tp, first, end)| behind(reader.position(tp), *first, *end)) {
            if Instant::now() > until {
                return Err(Error::new(codes::OFFSETS_BLOCKED, Fault::Unreachable, format!("reading {topic} to its end"))
                    .because(format!("its last records were not committed within {} s", WAIT.as_secs()))
                    .next("a transaction is open there: look for members that hang, and try again"));
            }
            match reader.poll(Duration::from_millis(100)) {
                Ok(Some(record)) => match record.headers.text(headers::REPLAYED) {
                    Some(of) => marks.extend(marked(&record, of)),
                    None => {
                        let letter = Letter::of(record).map(|l| (l.place.clone(), l));
                        found.extend(letter.and_then(|(place, l)| Some((place, keep(l)?))));
                    }
                },
                Ok(None) => {}
                Err(f) if f.class == Class::Retry => {}
                Err(f) if f.class == Class::Gone => pass_by(reader.as_mut(), &mut ends).map_err(unreachable)?,
                Err(f) => return Err(unreachable(f)),
            }
        }
        Ok((found, marks))
    }

    /// Those that nobody has replayed.
    pub fn resting(&self) -> impl Iterator<Item = &Letter> {
        self.letters.values().filter(|l| l.replayed.is_none())
    }
}

/// The topic's retention took records in front of the reader: it goes on behind them.
fn pass_by(reader: &mut dyn Reader, ends: &mut [(Tp, NextOffset, NextOffset)]) -> KResult<()> {
    for (tp, first, _) in ends.iter_mut() {
        let at = reader.position(tp).unwrap_or(*first);
        *first = reader.ends(tp, Isolation::Uncommitted)?.0.max(at);
    }
    let on: Vec<_> = ends.iter().map(|(tp, first, _)| (tp.clone(), *first)).collect();
    reader.assign(&on)
}

/// Which letter a record says was replayed, and how.
fn marked(record: &InRecord, of: &str) -> Option<(Place, Mark)> {
    let mark = serde_json::from_slice(record.value.as_deref()?).ok()?;
    Some((Place { tp: record.tp.clone(), offset: Offset(of.parse().ok()?) }, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a person could not name a letter whose topic has a dash in its name, or would replay another one.
    #[test]
    fn places_are_read_from_their_end() {
        let place = Place::parse("orders-eu.dead-3-42").expect("a place");
        assert_eq!((place.tp.topic.as_str(), place.tp.partition.0, place.offset.0), ("orders-eu.dead", 3, 42));
        assert_eq!(Place::parse(&place.header()), Some(place.clone()));
        assert_eq!(Place::parse(&place.to_string()), Some(place));
        for wrong in ["", "orders", "orders-1", "-1-2", "orders--1-2x", "orders-x-2"] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
    }
}
