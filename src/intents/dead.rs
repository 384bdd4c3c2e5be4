//! What a dead letter says of its death, in headers; the same from every part that gives a record up.

use crate::error::Code;
use crate::ids::{Partition, TopicName};
use crate::record::{Headers, InRecord, OutRecord};
use crate::time::WallTime;

use super::headers as names;

/// The time that one of a letter's headers holds: [`names::DEAD_AT`] or [`names::DEAD_TIME`].
pub fn moment(of: &Headers, name: &str) -> Option<WallTime> {
    of.text(name)?.parse().ok().map(WallTime)
}

/// How a record became a dead letter.
#[derive(Clone, Copy, Debug)]
pub struct Death<'a> {
    /// Why: `RB0501`.
    pub code: Code,
    /// In words, without payload.
    pub reason: &'a str,
    /// Where it came from: `topic/partition/offset`.
    pub origin: &'a str,
    /// When it died. Also the letter's own time: a topic's retention counts by it, and a letter about an old record would be deleted
    /// before anybody saw it.
    pub at: WallTime,
    /// The record's own time, which a replay gives back to it; none where it had none, or where the letter is a new record.
    pub time: Option<WallTime>,
}

impl Death<'_> {
    /// A record's headers with this. What they say of an earlier death is replaced, so that a record that is replayed and fails again
    /// does not grow (C100).
    pub fn on(&self, mut headers: Headers) -> Headers {
        headers.0.retain(|h| !names::DEAD.contains(&&*h.name));
        if let Some(time) = self.time {
            headers.push(names::DEAD_TIME, time.0.to_string());
        }
        headers
            .with(names::DEAD_CODE, self.code.to_string())
            .with(names::DEAD_REASON, self.reason.to_owned())
            .with(names::DEAD_ORIGIN, self.origin.to_owned())
            .with(names::DEAD_AT, self.at.0.to_string())
    }
}

/// A record that goes to the dead letters as it came, with how it died in its headers.
#[derive(Clone, Debug)]
pub struct Buried<'a> {
    record: &'a InRecord,
    headers: Headers,
    at: WallTime,
}

impl<'a> Buried<'a> {
    /// A record that can't be used, found out `at` this time; `reason` holds no payload.
    pub fn of(record: &'a InRecord, code: Code, reason: &str, at: WallTime) -> Self {
        let origin = format!("{}/{}/{}", record.tp.topic, record.tp.partition, record.offset);
        let death = Death { code, reason, origin: &origin, at, time: record.timestamp };
        Self { record, headers: death.on(record.headers.clone()), at }
    }
    /// With one more header, in place of what it said before.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.set(name, value);
        self
    }
    /// As a record to emit.
    pub fn on<'b>(&'b self, topic: &'b TopicName, partition: Option<Partition>) -> OutRecord<'b> {
        OutRecord {
            topic,
            partition,
            timestamp: Some(self.at),
            key: self.record.key.as_deref(),
            value: self.record.value.as_deref(),
            headers: Some(&self.headers),
        }
    }
}
