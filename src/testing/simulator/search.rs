//! Many seeds, on both cores; and a failing schedule cut down to what is needed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::intents::Status;

use super::schedule::{Off, Schedule};
use super::world::{Applications, Outcome, run};

/// What a search came to.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Schedules that were played.
    pub played: u64,
    /// The failing one with the least seed.
    pub failing: Option<(Schedule, Outcome)>,
    /// How operations ended.
    pub ends: BTreeMap<Status, u64>,
    /// How often what struck.
    pub struck: BTreeMap<&'static str, u64>,
    /// Turns of all threads.
    pub turns: u64,
}

impl Found {
    fn add(&mut self, schedule: Schedule, outcome: Outcome) {
        self.played += 1;
        self.turns += outcome.turns;
        outcome.ends.iter().for_each(|(s, n)| *self.ends.entry(*s).or_default() += n);
        outcome.struck.iter().for_each(|(s, n)| *self.struck.entry(s).or_default() += n);
        let first = self.failing.as_ref().is_none_or(|(had, _)| schedule.seed < had.seed);
        if !outcome.violations.is_empty() && first {
            self.failing = Some((schedule, outcome));
        }
    }
}

/// Plays every seed on `threads` threads until one fails.
pub fn search(seeds: Range<u64>, threads: usize, off: Off) -> Found {
    search_by(Schedule::draw, seeds, threads, off)
}

/// The same with schedules that are drawn in this way.
pub fn search_by(draw: impl Fn(u64) -> Schedule + Sync, seeds: Range<u64>, threads: usize, off: Off) -> Found {
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let apps = Applications::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let schedule = draw(seed);
                    let outcome = run(&apps, &schedule, off);
                    if !outcome.violations.is_empty() {
                        next.store(seeds.end, Ordering::Relaxed);
                    }
                    found.lock().expect("nobody panicked").add(schedule, outcome);
                }
            });
        }
    });
    found.into_inner().expect("nobody panicked")
}

/// Leaves out whatever the failure does not need.
pub fn shrink(schedule: Schedule, off: Off) -> (Schedule, Outcome) {
    let apps = Applications::new();
    let mut least = (schedule.clone(), run(&apps, &schedule, off));
    loop {
        let smaller = smaller(&least.0).into_iter().find_map(|s| {
            let outcome = run(&apps, &s, off);
            (!outcome.violations.is_empty()).then_some((s, outcome))
        });
        match smaller {
            Some(found) => least = found,
            None => return least,
        }
    }
}

/// Every schedule with one thing less.
fn smaller(s: &Schedule) -> Vec<Schedule> {
    let mut all = Vec::new();
    for i in 0..s.strikes.len() {
        let mut less = s.clone();
        less.strikes.remove(i);
        all.push(less);
    }
    for i in (0..s.operations.len()).filter(|_| s.operations.len() > 1) {
        let mut less = s.clone();
        less.operations.remove(i);
        all.push(less);
    }
    for i in 0..s.operations.len() {
        let op = &s.operations[i];
        if !op.again.is_empty() {
            let mut less = s.clone();
            less.operations[i].again.pop();
            all.push(less);
        }
        if !op.afterthoughts.is_empty() {
            let mut less = s.clone();
            less.operations[i].afterthoughts.pop();
            all.push(less);
        }
        if op.cancelled.is_some() {
            let mut less = s.clone();
            less.operations[i].cancelled = None;
            all.push(less);
        }
    }
    if s.stormy {
        all.push(Schedule { stormy: false, ..s.clone() });
    }
    if s.skew != [0, 0] {
        all.push(Schedule { skew: [0, 0], ..s.clone() });
    }
    all
}
