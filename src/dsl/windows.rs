//! Windows by Kafka Streams' names: how event time is cut, and how long a window waits for records that come late.

use std::time::Duration;

use crate::error::codes;
use crate::processor::millis;
use crate::serdes::Window;
use crate::time::WallTime;
use crate::topology::Graph;

/// Windows of one size on a fixed grid: tumbling where the next one begins at the end of the last, hopping where they overlap. The
/// end does not belong to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "TumblingWindows")]
#[doc(alias = "HoppingWindows")]
pub struct TimeWindows {
    pub(super) size: Duration,
    pub(super) advance: Duration,
    pub(super) grace: Duration,
}

impl TimeWindows {
    /// Tumbling windows that close at their end: whatever comes later is dropped.
    pub fn of_size_with_no_grace(size: Duration) -> Self {
        Self::of_size_and_grace(size, Duration::ZERO)
    }
    /// Tumbling windows that take records until stream time is `grace` past their end.
    pub fn of_size_and_grace(size: Duration, grace: Duration) -> Self {
        Self { size, advance: size, grace }
    }
    /// Hopping windows: one begins each `advance`.
    #[must_use]
    pub fn advance_by(mut self, advance: Duration) -> Self {
        self.advance = advance;
        self
    }

    /// The windows that a record of this time belongs to, the earliest first. None begins before 1970, as in Kafka Streams.
    pub(super) fn windows_of(self, at: WallTime) -> impl Iterator<Item = Window> {
        let (size, advance) = (millis(self.size), millis(self.advance).max(1));
        let first = (at.0 - size + advance).max(0) / advance * advance;
        let starts = std::iter::successors(Some(first), move |s| s.checked_add(advance)).take_while(move |s| *s <= at.0);
        starts.map(move |s| Window { start: WallTime(s), end: WallTime(s.saturating_add(size)) })
    }
}

/// Windows that end at a record or begin just after one: every span of `time_difference` in which other records than before lie
/// together. Both ends belong to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlidingWindows {
    pub(super) difference: Duration,
    pub(super) grace: Duration,
}

impl SlidingWindows {
    /// Records at most this far apart share a window; it closes once stream time has passed its end.
    pub fn of_time_difference_with_no_grace(difference: Duration) -> Self {
        Self { difference, grace: Duration::ZERO }
    }
    /// Records at most this far apart share a window, which takes records until stream time is `grace` past its end.
    pub fn of_time_difference_and_grace(difference: Duration, grace: Duration) -> Self {
        Self { difference, grace }
    }
}

/// Sessions: records of a key that are at most `gap` apart. A record that lies between two sessions makes them one. Both ends belong
/// to the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionWindows {
    pub(super) gap: Duration,
    pub(super) grace: Duration,
}

impl SessionWindows {
    /// Sessions that end after `gap` without a record.
    pub fn of_inactivity_gap_with_no_grace(gap: Duration) -> Self {
        Self { gap, grace: Duration::ZERO }
    }
    /// Sessions that end after `gap` without a record and take late ones for `grace` more.
    pub fn of_inactivity_gap_and_grace(gap: Duration, grace: Duration) -> Self {
        Self { gap, grace }
    }
}

/// One window for each key that begins at a time and never ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnlimitedWindows {
    pub(super) start: WallTime,
}

impl UnlimitedWindows {
    /// A window from 1970 on.
    pub fn of() -> Self {
        Self { start: WallTime(0) }
    }
    /// A window from this time on; earlier records are in none.
    #[must_use]
    pub fn start_on(self, start: WallTime) -> Self {
        Self { start }
    }
}

/// Which records of two streams meet: those of equal keys whose times are close enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinWindows {
    pub(super) before: Duration,
    pub(super) after: Duration,
    pub(super) grace: Duration,
}

impl JoinWindows {
    /// Times at most this far apart; a window closes once stream time has passed its end.
    pub fn of_time_difference_with_no_grace(difference: Duration) -> Self {
        Self::of_time_difference_and_grace(difference, Duration::ZERO)
    }
    /// Times at most this far apart; a window takes records until stream time is `grace` past its end.
    pub fn of_time_difference_and_grace(difference: Duration, grace: Duration) -> Self {
        Self { before: difference, after: difference, grace }
    }
    /// The other side's record may be at most this much earlier.
    #[must_use]
    pub fn before(mut self, before: Duration) -> Self {
        self.before = before;
        self
    }
    /// The other side's record may be at most this much later.
    #[must_use]
    pub fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }
}

/// When a windowed result is passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EmitStrategy {
    /// At each record that changes it.
    #[default]
    #[doc(alias = "onWindowUpdate")]
    OnWindowUpdate,
    /// Once, when no record can change it any more.
    #[doc(alias = "onWindowClose")]
    OnWindowClose,
}

/// Notes what is wrong with windows of a step.
pub(super) fn check(graph: &mut Graph, step: &str, what: Result<(), &str>) {
    if let Err(why) = what {
        graph.problem(codes::BAD_VALUE, format!("the windows of `{step}`: {why}"));
    }
}

impl TimeWindows {
    pub(super) fn verdict(self) -> Result<(), &'static str> {
        match (millis(self.size), millis(self.advance)) {
            (0, _) => Err("their size must be a millisecond or more"),
            (_, 0) => Err("they must advance by a millisecond or more"),
            (size, advance) if advance > size => Err("they advance by more than their size, so some records would be in none"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(w: TimeWindows, at: i64) -> Vec<i64> {
        w.windows_of(WallTime(at)).map(|w| w.start.0).collect()
    }

    /// If this broke, records at a boundary would be counted in a neighbouring window, or in one too many.
    #[test]
    fn windows_begin_at_their_start_and_end_before_their_end() {
        let tumbling = TimeWindows::of_size_with_no_grace(Duration::from_millis(10));
        assert_eq!(starts(tumbling, 9), [0]);
        assert_eq!(starts(tumbling, 10), [10]);
        let hopping = tumbling.advance_by(Duration::from_millis(5));
        assert_eq!(starts(hopping, 4), [0], "none before 1970");
        assert_eq!(starts(hopping, 9), [0, 5]);
        assert_eq!(starts(hopping, 10), [5, 10]);
        let uneven = tumbling.advance_by(Duration::from_millis(3));
        assert_eq!(starts(uneven, 12), [3, 6, 9, 12]);
        assert_eq!(starts(tumbling.advance_by(Duration::from_millis(10)), -1), [] as [i64; 0]);
    }
}
