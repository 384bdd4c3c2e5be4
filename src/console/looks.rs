//! What is asked of the cluster while somebody looks: members and what is left, dead letters that rest, how fast topics grow, what is
//! promised. Nobody looks: nothing is asked. All who look within a few seconds see the same answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::app::check::Report;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{TopicName, Tp};
use crate::time::WallTime;
use crate::topology::Role;

use super::Console;
use super::fresh::Fresh;
use super::lag::{Group, Lag, Standing};

/// Groups as they were a moment ago.
#[derive(Clone)]
pub struct Members {
    /// The groups.
    pub groups: Arc<Vec<Group>>,
    /// Since when partitions whose end is held back by an open transaction were seen so.
    pub held_since: Arc<BTreeMap<Tp, WallTime>>,
    /// When it was asked.
    pub at: WallTime,
}

/// Dead letters that rest.
#[derive(Clone, Debug)]
pub struct Resting {
    /// How many; or why that is not known.
    pub count: std::result::Result<usize, String>,
    /// Since when the oldest rests.
    pub oldest: Option<WallTime>,
    /// When it was asked.
    pub at: WallTime,
}

/// Answers as they were made last.
pub struct Looks {
    members: Fresh<Members>,
    standing: Mutex<Standing>,
    resting: Arc<Fresh<Resting>>,
    report: Fresh<(Arc<Report>, WallTime)>,
    growth: Mutex<Growth>,
}

const MEMBERS: Duration = Duration::from_secs(4);
const RESTING: Duration = Duration::from_secs(15);
const REPORT: Duration = Duration::from_secs(30);

impl Default for Looks {
    fn default() -> Self {
        Self {
            members: Fresh::new(MEMBERS),
            standing: Mutex::default(),
            resting: Arc::new(Fresh::new(RESTING)),
            report: Fresh::new(REPORT),
            growth: Mutex::default(),
        }
    }
}

impl Console {
    /// Groups, members, what is left, and what is held back.
    ///
    /// # Errors
    /// `BROKER_UNREACHABLE`.
    pub fn members(&self) -> Result<Members> {
        self.looks.members.get(|| {
            let sources: Vec<TopicName> = match &self.subject {
                Some(subject) => {
                    let topology = &subject.application.topology;
                    let own = topology.subtopologies().iter().filter(|s| s.foreign.is_none());
                    own.flat_map(|s| topology.sources_of(s)).collect()
                }
                None => Vec::new(),
            };
            let (groups, at) = (self.books.groups(&sources)?, self.now());
            let lags = || -> Box<dyn Iterator<Item = &Lag>> { Box::new(groups.iter().flat_map(|g| &g.partitions)) };
            let held_since = self.looks.standing.lock().unwrap_or_else(PoisonError::into_inner).look(lags(), at);
            Ok(Members { groups: Arc::new(groups), held_since: Arc::new(held_since), at })
        })
    }

    /// Dead letters that rest, without waiting: `None` where nobody knows yet, or no topic is known.
    pub fn resting(&self) -> Option<Resting> {
        let (topic, books, clock) = (self.dead_letters.clone()?, self.books.clone(), self.clock.clone());
        self.looks.resting.last(move || {
            let found = books.dead_letters(&topic);
            let oldest = found.as_ref().ok().and_then(|rows| rows.values().map(|r| WallTime(r.since)).min());
            Resting { count: found.map(|rows| rows.len()).map_err(|e| e.to_string()), oldest, at: clock.now().wall }
        })
    }

    /// What is promised, compared with the cluster, and when that was.
    ///
    /// # Errors
    /// `UNKNOWN_REFERENCE` where this console was told of no topology; what brokers and registry say.
    pub fn report(&self) -> Result<(Arc<Report>, WallTime)> {
        let subject = self.subject.as_ref().ok_or_else(|| {
            Error::new(codes::UNKNOWN_REFERENCE, Fault::Configuration, "looking for what is promised")
                .because("this console was told of no topology")
                .next("start it with --topology, or see a member's own")
        })?;
        self.looks.report.get(|| Ok((Arc::new(self.books.check(subject)?), self.now())))
    }

    /// How many offsets a second the topics of the graph grow by; empty until there are two looks.
    ///
    /// # Errors
    /// `BROKER_UNREACHABLE`.
    pub fn growth(&self) -> Result<BTreeMap<TopicName, f64>> {
        let Some(subject) = &self.subject else { return Ok(BTreeMap::new()) };
        let topology = &subject.application.topology;
        let mut growth = self.looks.growth.lock().unwrap_or_else(PoisonError::into_inner);
        if growth.is_old(Instant::now()) {
            let named = topology.nodes().iter().flat_map(|n| match &n.role {
                Role::Source(topics) => topics.to_vec(),
                Role::Sink(topic) => vec![topic.clone()],
                Role::Step | Role::ComputedSink => Vec::new(),
            });
            let topics: std::collections::BTreeSet<TopicName> = named.collect();
            growth.add(Instant::now(), self.books.ends(&topics.into_iter().collect::<Vec<_>>())?);
        }
        Ok(growth.rates())
    }
}

/// Ends of topics as they were looked at within the last minute.
#[derive(Default)]
struct Growth(VecDeque<(Instant, BTreeMap<TopicName, i64>)>);

impl Growth {
    const EVERY: Duration = Duration::from_secs(2);
    const SPAN: Duration = Duration::from_secs(60);

    fn is_old(&self, now: Instant) -> bool {
        self.0.back().is_none_or(|(at, _)| now.duration_since(*at) >= Self::EVERY)
    }

    fn add(&mut self, now: Instant, ends: BTreeMap<TopicName, i64>) {
        self.0.retain(|(at, _)| now.duration_since(*at) < Self::SPAN);
        self.0.push_back((now, ends));
    }

    /// What was gained between the first look and the last; a topic that was made anew has gained nothing.
    fn rates(&self) -> BTreeMap<TopicName, f64> {
        let (Some((first, before)), Some((last, after))) = (self.0.front(), self.0.back()) else { return BTreeMap::new() };
        let span = last.duration_since(*first).as_secs_f64();
        if span < 1.0 {
            return BTreeMap::new();
        }
        let gained = after.iter().filter_map(|(topic, end)| Some((topic.clone(), (end - before.get(topic)?).max(0))));
        gained.map(|(topic, gain)| (topic, gain as f64 / span)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, the graph would show a flow where nothing moves, or none where it does.
    #[test]
    fn topics_grow_by_what_came_in_the_last_minute() {
        let (mut growth, start) = (Growth::default(), Instant::now());
        let ends = |n: i64| BTreeMap::from([(TopicName::new("in"), n), (TopicName::new("anew"), 100 - n)]);
        growth.add(start, ends(10));
        assert_eq!(growth.rates(), BTreeMap::new());
        assert!(!growth.is_old(start + Duration::from_secs(1)) && growth.is_old(start + Duration::from_secs(2)));
        growth.add(start + Duration::from_secs(10), ends(40));
        assert_eq!(growth.rates(), BTreeMap::from([(TopicName::new("in"), 3.0), (TopicName::new("anew"), 0.0)]));
        growth.add(start + Duration::from_secs(65), ends(40));
        assert_eq!(growth.rates()[&TopicName::new("in")], 0.0, "what is older counts no more");
    }
}
