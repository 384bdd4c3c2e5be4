//! How many operations came to each status within the last minute, as the tail reads it. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::intents::Status;

/// Counts are kept in slots of this length, twelve of them.
const SLOT: Duration = Duration::from_secs(5);
const SLOTS: usize = 12;

/// Counts of the last minute.
#[derive(Default)]
pub struct Flow(VecDeque<(Instant, [u32; Status::ALL.len()])>);

impl Flow {
    /// An operation has come to this status.
    pub fn came(&mut self, status: Status, now: Instant) {
        if self.0.back().is_none_or(|(begun, _)| now.duration_since(*begun) >= SLOT) {
            self.0.push_back((now, [0; Status::ALL.len()]));
        }
        while self.0.len() > SLOTS {
            self.0.pop_front();
        }
        if let Some((_, counts)) = self.0.back_mut() {
            counts[status as usize] = counts[status as usize].saturating_add(1);
        }
    }

    /// How many came to it within the last minute.
    pub fn of(&self, status: Status, now: Instant) -> u64 {
        let recent = self.0.iter().filter(|(begun, _)| now.duration_since(*begun) < SLOT * SLOTS as u32);
        recent.map(|(_, counts)| u64::from(counts[status as usize])).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, the overview would show a flow that has stopped, or none where there is one.
    #[test]
    fn a_flow_is_of_the_last_minute() {
        let (mut flow, start) = (Flow::default(), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        for s in 0..120 {
            flow.came(Status::Confirmed, at(s));
        }
        assert_eq!((flow.of(Status::Confirmed, at(119)), flow.of(Status::Unknown, at(119))), (60, 0));
        assert_eq!(flow.of(Status::Confirmed, at(300)), 0);
        assert!(flow.0.len() <= SLOTS);
    }
}
