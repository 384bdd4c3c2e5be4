//! Read-only views of operations: committed records of the two compacted changelogs, read from their start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::agent::Purse;
use crate::effects::{LedgerRecord, Phase};
use crate::error::{Code, Error, Fault, Result, codes};
use crate::ids::{ApplicationId, CommandId, OperationId, OperationKey, Partition, Tenant, TopicName, Tp};
use crate::intents::{Scope, Status, Switch, topics};
use crate::kafka::{Cluster, Isolation, KafkaFault, Reader};
use crate::offset::NextOffset;
use crate::outbox::{Answered, OperationRecord};
use crate::record::InRecord;
use crate::serdes::internal;

/// One operation as the two halves know it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The operation record of the stream half; none for derived operations.
    pub record: Option<OperationRecord>,
    /// The ledger record of the effect half; none before the hand-over.
    pub ledger: Option<LedgerRecord>,
}

impl Seen {
    /// The status as results show it: the ledger's once there is one.
    pub fn status(&self) -> Option<Status> {
        match (&self.ledger, &self.record) {
            (Some(l), _) if l.phase != Phase::Held => Some(l.shown()),
            (_, Some(r)) => Some(r.status),
            _ => None,
        }
    }
    /// Which operation.
    pub fn key(&self) -> Option<OperationKey> {
        self.ledger.as_ref().map(LedgerRecord::key).or_else(|| self.record.as_ref().map(OperationRecord::key))
    }
    /// The answer to a command, where it is kept here.
    pub fn answer(&self, command: &CommandId) -> Option<CommandAnswer> {
        let ledger = self.ledger.iter().flat_map(|l| &l.answered).find(|a| a.command_id == *command);
        if let Some(a) = ledger {
            let code = a.code.map(|c| Code(u16::try_from(c).unwrap_or_default()).to_string());
            return Some(CommandAnswer { code, detail: a.detail.clone() });
        }
        let record = self.record.iter().flat_map(|r| &r.answered).find(|a| a.id == *command)?;
        Some(CommandAnswer { code: refusal(record), detail: record.detail.clone().unwrap_or_default() })
    }
    /// The version to compare and set on.
    pub fn version(&self) -> i64 {
        let ledger = self.ledger.as_ref().map(|l| l.version);
        ledger.into_iter().chain(self.record.as_ref().map(|r| r.version)).max().unwrap_or_default()
    }
}

/// Why a command was refused, where it was. A command that ended the operation is answered with the code of that end: a denial that
/// was taken has `DENIED`, a cancellation `CANCELLED`.
pub fn refusal(answered: &Answered) -> Option<String> {
    const REFUSED: [Code; 3] = [codes::COMMAND_REFUSED, codes::STALE_VERSION, codes::UNKNOWN_OPERATION];
    let code = answered.code.as_ref()?;
    let refused = !answered.status.is_end() || REFUSED.iter().any(|c| c.to_string() == *code);
    refused.then(|| code.clone())
}

/// Which half of an operation a changelog holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// The operation record of the stream half.
    Record,
    /// The ledger record of the effect half.
    Ledger,
}

/// What a record of the two changelogs says.
#[derive(Clone, Debug)]
pub enum News {
    /// This half of an operation stands so.
    Stands(Half, Box<Seen>),
    /// This half is no longer kept.
    Gone(Half, OperationKey),
    /// The exact request of an operation stands here.
    Body(OperationKey),
    /// The exact request of an operation is no longer kept.
    BodyGone(OperationKey),
    /// What is left of a tenant's budgets in this partition; `None`: it is no longer kept.
    Purse(Tenant, Option<Purse>),
    /// What a scope (`target/mail`) is told in this partition: paused; `None`: it goes on.
    Paused(String, Option<Switch>),
}

impl News {
    /// Reads a record; `None` where it is of something else. A tombstone has nothing but its key.
    ///
    /// # Errors
    /// `UNDECODABLE` and `INPUT_TOO_LARGE`.
    pub fn read(record: &InRecord, half: Half) -> Result<Option<Self>> {
        let Some(key) = record.key.as_deref() else { return Ok(None) };
        let seen = match (half, &record.value) {
            (Half::Ledger, value) if key.starts_with(b"b/") => {
                let made = if value.is_some() { News::Body } else { News::BodyGone };
                return Ok(key_of(half, key).map(made));
            }
            (Half::Ledger, value) if key.starts_with(b"p/") => {
                let Ok(scope) = std::str::from_utf8(&key[2..]) else { return Ok(None) };
                let switch = value.as_deref().and_then(|v| serde_json::from_slice(v).ok());
                return Ok(Some(News::Paused(scope.to_owned(), switch)));
            }
            (Half::Record, value) if key.starts_with(b"t/") => {
                let Ok(tenant) = std::str::from_utf8(&key[2..]) else { return Ok(None) };
                let purse = value.as_deref().map(internal::decode).transpose()?;
                return Ok(Some(News::Purse(tenant.into(), purse)));
            }
            (_, None) => return Ok(key_of(half, key).map(|k| News::Gone(half, k))),
            (Half::Ledger, Some(value)) if key.starts_with(b"s/") => Seen { record: None, ledger: Some(internal::decode(value)?) },
            (Half::Record, Some(value)) if record.headers.text(crate::intents::headers::SCHEMA) == Some("operation/1") => {
                Seen { record: Some(internal::decode(value)?), ledger: None }
            }
            _ => return Ok(None),
        };
        Ok(Some(News::Stands(half, Box::new(seen))))
    }
}

/// The operation that a changelog's key stands for: `s/<tenant>␟<op>␟<step>` in the ledger (`b/…` its request), `o/<op>␟<tenant>␟<step>`
/// of operations.
fn key_of(half: Half, key: &[u8]) -> Option<OperationKey> {
    let text = std::str::from_utf8(key).ok()?;
    let rest = match half {
        Half::Ledger => text.strip_prefix("s/").or_else(|| text.strip_prefix("b/")),
        Half::Record => text.strip_prefix("o/"),
    };
    let mut parts = rest?.split('\u{1f}');
    let (first, second, step) = (parts.next()?, parts.next()?, parts.next()?);
    let (tenant, operation) = if half == Half::Ledger { (first, second) } else { (second, first) };
    Some(OperationKey { tenant: tenant.into(), operation: OperationId::new(operation), step: step.into() })
}

/// What the answer to a command was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandAnswer {
    /// Why it was refused, where it was.
    pub code: Option<String>,
    /// In words.
    pub detail: String,
}

/// A tail of an application's operations.
pub struct Operations {
    reader: Box<dyn Reader>,
    tps: Vec<Tp>,
    ledger: TopicName,
    /// Which operation a changelog key stands for: a tombstone has nothing but its key.
    places: BTreeMap<(TopicName, Bytes), OperationKey>,
    /// What has changed since it was asked for; none where nobody asks.
    fresh: Option<BTreeSet<OperationKey>>,
    /// Everything read so far.
    pub seen: BTreeMap<OperationKey, Seen>,
    /// What is paused, by partition of the effect unit.
    pub paused: BTreeMap<(Scope, Partition), Switch>,
}

fn unreachable(fault: KafkaFault) -> Error {
    crate::runtime::unreached("reading operations", "check --brokers", fault)
}

/// The applications of a cluster: those with an outbox.
pub fn applications<C: Cluster>(cluster: &C) -> Result<Vec<ApplicationId>> {
    let admin = cluster.admin().map_err(unreachable)?;
    let names = admin.topics().map_err(unreachable)?;
    let app = |t: &TopicName| t.as_str().strip_suffix("-outbox").map(ApplicationId::new);
    Ok(names.iter().filter_map(|t| app(&t.name)).collect())
}

/// A reader of the two changelogs of `app`, at their start, and what it reads.
///
/// # Errors
/// `TOPIC_MISSING` where the application has never run; `BROKER_UNREACHABLE`.
pub fn changelogs<C: Cluster>(cluster: &C, app: &ApplicationId) -> Result<(Box<dyn Reader>, Vec<Tp>)> {
    let admin = cluster.admin().map_err(unreachable)?;
    let ledger = topics::ledger_changelog(app);
    let mut tps = Vec::new();
    for topic in [topics::changelog(app, "operations"), ledger.clone()] {
        let info = admin.topic(&topic).map_err(unreachable)?.ok_or_else(|| {
            Error::new(codes::TOPIC_MISSING, Fault::Unreachable, format!("looking for operations of `{app}`: no topic {topic}"))
                .next("check --app; an application has operations once it has run")
        })?;
        tps.extend((0..info.partitions).map(|p| Tp::new(topic.clone(), p as i32)));
    }
    let mut reader = cluster.reader(Isolation::Committed).map_err(unreachable)?;
    let mut start = Vec::new();
    for tp in &tps {
        let (first, _) = reader.ends(tp, Isolation::Committed).map_err(unreachable)?;
        start.push((tp.clone(), first));
    }
    reader.assign(&start).map_err(unreachable)?;
    Ok((reader, tps))
}

impl Operations {
    /// Opens the changelogs of `app` at their start.
    pub fn open<C: Cluster>(cluster: &C, app: &ApplicationId) -> Result<Self> {
        let (reader, tps) = changelogs(cluster, app)?;
        let ledger = topics::ledger_changelog(app);
        Ok(Self { reader, tps, ledger, places: BTreeMap::new(), fresh: None, seen: BTreeMap::new(), paused: BTreeMap::new() })
    }

    /// Reads up to what is committed now.
    pub fn catch_up(&mut self) -> Result<()> {
        self.catch_up_telling(&mut |_, _| {})
    }

    /// As [`Operations::catch_up`]; tells how many offsets are done, of all.
    pub fn catch_up_telling(&mut self, told: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let mut ends: Vec<(Tp, NextOffset)> = Vec::new();
        for tp in &self.tps {
            let (_, end) = self.reader.ends(tp, Isolation::Committed).map_err(unreachable)?;
            ends.push((tp.clone(), end));
        }
        let until = Instant::now() + Duration::from_secs(60);
        while ends.iter().any(|(tp, end)| self.reader.position(tp).is_none_or(|at| at < *end) && end.0 > 0) {
            if Instant::now() > until {
                return Err(Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, "reading operations up to their end"));
            }
            self.step(Duration::from_millis(100))?;
            let done = ends.iter().map(|(tp, end)| self.reader.position(tp).map_or(0, |at| at.0.min(end.0))).sum::<i64>();
            let all = ends.iter().map(|(_, end)| end.0).sum::<i64>();
            told(done.unsigned_abs(), all.unsigned_abs());
        }
        Ok(())
    }

    /// Reads on until the answer to `command` is committed, at most for `limit`.
    pub fn answer(&mut self, command: &CommandId, limit: Duration) -> Result<Option<CommandAnswer>> {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            self.step(Duration::from_millis(100))?;
            if let Some(found) = self.seen.values().find_map(|s| s.answer(command)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Operations under a short ID: exact first, else none.
    pub fn find(&self, id: &OperationId) -> Vec<(&OperationKey, &Seen)> {
        self.seen.iter().filter(|(k, _)| k.operation == *id).collect()
    }

    /// Reads on for at most `limit`; the operations whose records have changed.
    pub fn follow(&mut self, limit: Duration) -> Result<BTreeSet<OperationKey>> {
        self.fresh.get_or_insert_default();
        self.step(limit)?;
        Ok(self.fresh.replace(BTreeSet::new()).unwrap_or_default())
    }

    fn changed(&mut self, key: &OperationKey) {
        if let Some(fresh) = &mut self.fresh {
            fresh.insert(key.clone());
        }
    }

    fn step(&mut self, limit: Duration) -> Result<()> {
        let mut limit = limit;
        while let Some(record) = self.reader.poll(limit).map_err(unreachable)? {
            self.fold(record)?;
            limit = Duration::ZERO;
        }
        Ok(())
    }

    fn fold(&mut self, record: InRecord) -> Result<()> {
        let Some(key) = record.key else { return Ok(()) };
        if record.tp.topic == self.ledger && key.starts_with(b"p/") {
            self.switched(&key, record.value.as_deref(), record.tp.partition);
            return Ok(());
        }
        let place = (record.tp.topic, key);
        let of_ledger = place.0 == self.ledger;
        match (of_ledger, record.value) {
            (true, Some(value)) if place.1.starts_with(b"s/") => {
                let ledger: LedgerRecord = internal::decode(&value)?;
                let key = ledger.key();
                self.places.insert(place, key.clone());
                self.changed(&key);
                self.seen.entry(key).or_default().ledger = Some(ledger);
            }
            (false, Some(value)) if record.headers.text(crate::intents::headers::SCHEMA) == Some("operation/1") => {
                let operation: OperationRecord = internal::decode(&value)?;
                let key = operation.key();
                self.places.insert(place, key.clone());
                self.changed(&key);
                self.seen.entry(key).or_default().record = Some(operation);
            }
            (_, None) => self.forget(&place, of_ledger),
            _ => {}
        }
        Ok(())
    }

    fn switched(&mut self, key: &[u8], value: Option<&[u8]>, partition: Partition) {
        match value.and_then(|v| serde_json::from_slice::<Switch>(v).ok()) {
            Some(switch) => drop(self.paused.insert((switch.scope.clone(), partition), switch)),
            None => self.paused.retain(|(scope, p), _| *p != partition || format!("p/{scope}").as_bytes() != key),
        }
    }

    /// How many partitions the effect unit has.
    pub fn partitions(&self) -> usize {
        self.tps.iter().filter(|tp| tp.topic == self.ledger).count()
    }

    /// Reads on until every partition has taken an order to pause or to go on, at most for `limit`; answers how many have.
    pub fn until_switched(&mut self, order: &Switch, limit: Duration) -> Result<usize> {
        let (until, all) = (Instant::now() + limit, self.partitions());
        loop {
            let of = |s: &Switch| s.command_id == order.command_id;
            let paused = self.paused.iter().filter(|((scope, _), s)| *scope == order.scope && (of(s) || !order.paused)).count();
            let done = if order.paused { paused } else { all - paused };
            if done == all || Instant::now() > until {
                return Ok(done);
            }
            self.step(Duration::from_millis(100))?;
        }
    }

    /// A record was deleted; an operation that neither half keeps any more is gone.
    fn forget(&mut self, place: &(TopicName, Bytes), of_ledger: bool) {
        let Some(key) = self.places.remove(place) else { return };
        let Some(seen) = self.seen.get_mut(&key) else { return };
        match of_ledger {
            true => seen.ledger = None,
            false => seen.record = None,
        }
        if seen.ledger.is_none() && seen.record.is_none() {
            self.seen.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::intents::headers;
    use crate::kafka::NewTopic;
    use crate::kafka::memory::MemoryCluster;
    use crate::record::{Headers, OutRecord};
    use crate::time::{ManualClock, MonoTime, Now, WallTime};

    /// If this broke, `ops list` would show operations that were forgotten long ago, and invite commands on them.
    #[test]
    fn what_was_deleted_is_no_longer_shown() {
        let now = Now { wall: WallTime(1_000), mono: MonoTime(1_000) };
        let cluster = MemoryCluster::new(Arc::new(ManualClock::at(now)));
        let app = ApplicationId::new("orders");
        let (operations, ledger) = (topics::changelog(&app, "operations"), topics::ledger_changelog(&app));
        let topic = |name: &TopicName| NewTopic { name: name.clone(), partitions: 1, replication: 1, config: BTreeMap::new() };
        cluster.admin().and_then(|a| a.create(&[topic(&operations), topic(&ledger)])).expect("creates");
        let held = |id: &str| {
            let key = OperationKey { tenant: "acme".into(), operation: OperationId::new(id), step: "place-order".into() };
            internal::encode(&LedgerRecord::held(key, WallTime(9_000))).expect("encodes")
        };
        let schema = Headers::new().with(headers::SCHEMA, "ledger-status/1");
        let put = |key: &str, value: Option<&[u8]>| {
            let record = OutRecord {
                topic: &ledger,
                partition: None,
                timestamp: None,
                key: Some(key.as_bytes()),
                value,
                headers: Some(&schema),
            };
            cluster.publish(&[record], Duration::from_secs(1)).expect("publishes");
        };
        let (one, two) = (held("op-1"), held("op-2"));
        put("s/1", Some(&one));
        put("s/2", Some(&two));
        put("s/1", None);
        let mut seen = Operations::open(&cluster, &app).expect("opens");
        seen.catch_up().expect("reads");
        let shown: Vec<&str> = seen.seen.keys().map(|k| k.operation.as_str()).collect();
        assert_eq!(shown, ["op-2"]);
    }
}
