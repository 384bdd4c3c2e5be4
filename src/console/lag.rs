//! What is left in partitions that a group reads: counted as far as that is cheap, else bounded by offsets; and what an open
//! transaction holds back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::ids::{GroupId, TopicName, Tp};
use crate::kafka::{Admin, Cluster, Isolation, Member, Reader};
use crate::offset::NextOffset;
use crate::time::WallTime;

use super::books::away;

/// A consumer group of the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its name.
    pub name: GroupId,
    /// Its live members.
    pub members: Vec<Member>,
    /// Its partitions.
    pub partitions: Vec<Lag>,
}

/// A partition that a group reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lag {
    /// Which.
    pub tp: Tp,
    /// Where the group stands; `None`: it has never committed there.
    pub committed: Option<NextOffset>,
    /// The last stable offset: nothing behind it is read yet.
    pub stable: NextOffset,
    /// The high watermark.
    pub end: NextOffset,
    /// Committed records between position and last stable offset.
    pub left: Left,
    /// The time of the first of them, as the record itself has it.
    pub oldest: Option<WallTime>,
}

/// How many committed records are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// All of them were read and counted.
    Records(u64),
    /// So many were counted, and with the offsets behind them there are so many at most: markers and what was taken back are among these.
    Between(u64, u64),
}

/// Records, bytes and time that one count may take; what is left beyond is told as a bound.
const COUNTED: u64 = 5_000;
const BYTES: usize = 8 << 20;
const TIME: Duration = Duration::from_millis(1_500);

impl Lag {
    /// Offsets that are written and can't be read yet: an open transaction is among them.
    pub fn held_back(&self) -> i64 {
        (self.end.0 - self.stable.0).max(0)
    }
}

/// Members and partitions of a group.
///
/// # Errors
/// `BROKER_UNREACHABLE`.
pub fn group<C: Cluster>(cluster: &C, name: &GroupId, topics: &[TopicName]) -> Result<Group> {
    let admin = cluster.admin().map_err(away("reading groups"))?;
    let members = admin.members(name).map_err(away("reading a group's members"))?;
    let partitions = partitions(cluster, admin.as_ref(), name, topics)?;
    Ok(Group { name: name.clone(), members, partitions })
}

fn partitions<C: Cluster>(cluster: &C, admin: &dyn Admin, group: &GroupId, topics: &[TopicName]) -> Result<Vec<Lag>> {
    let doing = "reading a group's positions";
    let mut tps = Vec::new();
    for topic in topics {
        let info = admin.topic(topic).map_err(away(doing))?;
        tps.extend(info.iter().flat_map(|t| (0..t.partitions).map(|p| Tp::new(topic.clone(), p as i32))));
    }
    let committed: BTreeMap<Tp, NextOffset> = admin.committed(group, &tps).map_err(away(doing))?.into_iter().collect();
    let mut reader = cluster.reader(Isolation::Committed).map_err(away(doing))?;
    let (mut found, mut behind) = (Vec::new(), Vec::new());
    for tp in tps {
        let (first, stable) = reader.ends(&tp, Isolation::Committed).map_err(away(doing))?;
        let (_, end) = reader.ends(&tp, Isolation::Uncommitted).map_err(away(doing))?;
        let committed = committed.get(&tp).copied();
        let from = committed.map_or(first, |at| at.max(first));
        if from < stable {
            behind.push((tp.clone(), from, stable));
        }
        found.push(Lag { tp, committed, stable, end: end.max(stable), left: Left::Records(0), oldest: None });
    }
    let counted = count(reader.as_mut(), &behind)?;
    for lag in &mut found {
        if let Some((left, oldest)) = counted.get(&lag.tp) {
            (lag.left, lag.oldest) = (*left, *oldest);
        }
    }
    Ok(found)
}

type Counted = BTreeMap<Tp, (Left, Option<WallTime>)>;

/// Reads from each position on, as far as it is cheap.
fn count(reader: &mut dyn Reader, behind: &[(Tp, NextOffset, NextOffset)]) -> Result<Counted> {
    let doing = "counting what is left";
    let start: Vec<(Tp, NextOffset)> = behind.iter().map(|(tp, from, _)| (tp.clone(), *from)).collect();
    if start.is_empty() {
        return Ok(Counted::new());
    }
    reader.assign(&start).map_err(away(doing))?;
    let (until, mut all, mut bytes) = (Instant::now() + TIME, 0, 0);
    let mut seen: BTreeMap<Tp, (u64, Option<WallTime>)> = BTreeMap::new();
    let read_up = |reader: &dyn Reader| behind.iter().all(|(tp, _, stable)| reader.position(tp).is_some_and(|at| at >= *stable));
    while all < COUNTED && bytes < BYTES && Instant::now() < until && !read_up(reader) {
        let Some(record) = reader.poll(Duration::from_millis(50)).map_err(away(doing))? else { continue };
        all += 1;
        bytes += record.value.as_ref().map_or(0, |v| v.len());
        let (n, _) = seen.entry(record.tp).or_insert((0, record.timestamp));
        *n += 1;
    }
    let told = |(tp, from, stable): &(Tp, NextOffset, NextOffset)| {
        let (n, oldest) = seen.get(tp).copied().unwrap_or_default();
        let at = reader.position(tp).unwrap_or(*from);
        let beyond = u64::try_from(stable.0 - at.0).unwrap_or(0);
        let left = if beyond == 0 { Left::Records(n) } else { Left::Between(n, n + beyond) };
        (tp.clone(), (left, oldest))
    };
    Ok(behind.iter().map(told).collect())
}

/// Since when the last stable offset of partitions stands still before their end, as far as somebody has looked.
#[derive(Default)]
pub struct Standing(BTreeMap<Tp, (NextOffset, WallTime)>);

impl Standing {
    /// Takes a look; answers since when each partition that is held back was seen so.
    pub fn look<'a>(&mut self, lags: impl Iterator<Item = &'a Lag>, now: WallTime) -> BTreeMap<Tp, WallTime> {
        let held = lags.filter(|l| l.held_back() > 0);
        let since = |l: &Lag| match self.0.get(&l.tp) {
            Some((stable, since)) if *stable == l.stable => (l.stable, *since),
            _ => (l.stable, now),
        };
        self.0 = held.map(|l| (l.tp.clone(), since(l))).collect();
        self.0.iter().map(|(tp, (_, since))| (tp.clone(), *since)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kafka::memory::{Limits, MemoryCluster};
    use crate::kafka::{NewTopic, Slot, TxLimits, TxSink};
    use crate::record::OutRecord;
    use crate::time::SystemClock;

    fn record(topic: &TopicName) -> OutRecord<'_> {
        OutRecord { topic, partition: None, timestamp: Some(WallTime(7_000)), key: Some(b"k"), value: Some(b"v"), headers: None }
    }

    /// If this broke, markers of transactions would stand there as work that is left, or a transaction that hangs would not be seen.
    #[test]
    fn records_are_counted_and_markers_are_not() {
        let cluster = MemoryCluster::with(Arc::new(SystemClock), Limits::default());
        let (topic, name) = (TopicName::new("in"), GroupId::from("g"));
        let new = NewTopic { name: topic.clone(), partitions: 1, replication: 1, config: BTreeMap::new() };
        let admin = cluster.admin().expect("admin");
        admin.create(&[new]).expect("creates");
        let slot = Slot { unit: "u".into(), group: name.clone(), number: 0 };
        let mut sink = cluster.sink(&slot, TxLimits::default()).expect("a sink");
        sink.init().expect("fences");
        let limit = Duration::from_secs(1);
        for commit in [true, false, true] {
            sink.begin().expect("begins");
            sink.send(record(&topic)).expect("sends");
            match commit {
                true => sink.commit(limit).expect("commits"),
                false => sink.abort(limit).expect("aborts"),
            }
        }
        let look = || group(&cluster, &name, std::slice::from_ref(&topic)).expect("looks").partitions.remove(0);
        let lag = look();
        assert_eq!((lag.committed, lag.left, lag.oldest), (None, Left::Records(2), Some(WallTime(7_000))));
        assert_eq!((lag.stable, lag.end, lag.held_back()), (NextOffset(6), NextOffset(6), 0));
        admin.reposition(&name, &[(lag.tp.clone(), NextOffset(5))]).expect("sets");
        assert_eq!(look().left, Left::Records(0), "what is left is the marker of a transaction");
        sink.begin().expect("begins");
        sink.send(record(&topic)).expect("sends");
        sink.flush(limit).expect("flushes");
        let held = look();
        assert_eq!((held.held_back(), held.left), (1, Left::Records(0)));
        let mut standing = Standing::default();
        assert_eq!(standing.look([&lag].into_iter(), WallTime(1)), BTreeMap::new());
        standing.look([&held].into_iter(), WallTime(2));
        assert_eq!(standing.look([&held].into_iter(), WallTime(9))[&held.tp], WallTime(2));
        let moved = Lag { stable: NextOffset(7), end: NextOffset(9), ..held };
        assert_eq!(standing.look([&moved].into_iter(), WallTime(9))[&moved.tp], WallTime(9), "another transaction");
    }
}
