//! When to commit: pure arithmetic over times. Committing at once is worse in the tail than a short gap, and commits should
//! take at most a fifth of the time.

use std::time::Duration;

use crate::task::Urgency;
use crate::time::MonoTime;

/// The shortest gap between two transactions, and the only one of effect units.
pub(crate) const SHORTEST_GAP: Duration = Duration::from_millis(5);

/// The open transaction as the rule sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    /// When it began.
    pub opened: MonoTime,
    /// What its tasks wish.
    pub urgency: Urgency,
    /// Whether the last whole turn brought nothing.
    pub drained: bool,
    /// Whether a bound of records or bytes is reached.
    pub full: bool,
}

/// Remembers how long commits take and when the last one ended.
#[derive(Debug)]
pub(crate) struct Pace {
    flat: bool,
    interval: Duration,
    average: Duration,
    ended: Option<MonoTime>,
}

impl Pace {
    pub(crate) fn new(flat: bool, interval: Duration) -> Self {
        Self { flat, interval, average: Duration::ZERO, ended: None }
    }

    /// Takes note of a commit.
    pub(crate) fn finished(&mut self, started: MonoTime, ended: MonoTime) {
        let took = ended.since(started);
        self.average = if self.average.is_zero() { took } else { (self.average * 7 + took) / 8 };
        self.ended = Some(ended);
    }

    /// The least time between the end of one commit and the next.
    pub(crate) fn gap(&self) -> Duration {
        if self.flat { SHORTEST_GAP } else { (self.average * 4).min(self.interval).max(SHORTEST_GAP) }
    }

    /// When the open transaction is to be committed, as things stand.
    pub(crate) fn due(&self, p: &Pressure) -> MonoTime {
        if p.full {
            return MonoTime(0);
        }
        let oldest = p.opened.plus(self.interval);
        let after = |gap| self.ended.map_or(MonoTime(0), |e| e.plus(gap));
        match p.urgency {
            Urgency::Within(gap) => oldest.min(after(gap)),
            Urgency::WhenDrained if p.drained || self.flat => oldest.min(after(self.gap())),
            Urgency::WhenDrained | Urgency::None => oldest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> MonoTime {
        MonoTime(ms * 1_000_000)
    }

    /// If this broke, slow commits would eat the whole thread, or fast ones would wait for nothing.
    #[test]
    fn the_gap_is_four_commits_within_its_bounds() {
        let mut pace = Pace::new(false, 100 * MS);
        assert_eq!(pace.gap(), SHORTEST_GAP);
        pace.finished(at(0), at(10));
        assert_eq!(pace.gap(), 40 * MS);
        for i in 0..50 {
            pace.finished(at(i * 1000), at(i * 1000 + 500));
        }
        assert_eq!(pace.gap(), 100 * MS);
        assert_eq!(Pace::new(true, 100 * MS).gap(), SHORTEST_GAP);
        assert_eq!(Pace::new(false, MS).gap(), SHORTEST_GAP);
    }

    /// If this broke, a busy unit would never commit, or an idle one would sit on finished work for the whole interval.
    #[test]
    fn a_commit_is_due_by_age_by_need_or_by_size() {
        let mut pace = Pace::new(false, 100 * MS);
        pace.finished(at(999), at(1000));
        let p = Pressure { opened: at(1001), urgency: Urgency::WhenDrained, drained: false, full: false };
        assert_eq!(pace.due(&p), at(1101), "by age");
        assert_eq!(pace.due(&Pressure { drained: true, ..p }), at(1005), "drained: after the gap");
        assert_eq!(pace.due(&Pressure { urgency: Urgency::Within(7 * MS), ..p }), at(1007), "somebody waits");
        assert_eq!(pace.due(&Pressure { urgency: Urgency::None, drained: true, ..p }), at(1101));
        assert_eq!(pace.due(&Pressure { full: true, ..p }), MonoTime(0));
        let mut flat = Pace::new(true, 100 * MS);
        flat.finished(at(999), at(1000));
        assert_eq!(flat.due(&p), at(1005), "under load too");
    }
}
