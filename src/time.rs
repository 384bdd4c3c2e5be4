//! Three kinds of time, three types: wall clock, suspend-proof monotonic clock, and the pair read together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Wall time in milliseconds since 1970, UTC. Used across processes, always with a declared error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub i64);

/// Monotonic time that goes on in suspend (CLOCK_BOOTTIME), in nanoseconds. Compared within one process only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MonoTime(pub u64);

/// Both clocks, read in one pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// What a clock on the wall shows.
    pub wall: WallTime,
    /// What never goes back.
    pub mono: MonoTime,
}

impl WallTime {
    /// This time, `d` later (saturating).
    pub fn plus(self, d: Duration) -> WallTime {
        WallTime(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
    /// This time, `d` earlier (saturating).
    pub fn minus(self, d: Duration) -> WallTime {
        WallTime(self.0.saturating_sub(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
    /// How long after `earlier` this is; zero where it is not.
    pub fn since(self, earlier: WallTime) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match chrono::DateTime::from_timestamp_millis(self.0) {
            Some(t) => write!(f, "{}", t.format("%Y-%m-%dT%H:%M:%S%.3fZ")),
            None => write!(f, "{} ms", self.0),
        }
    }
}

impl MonoTime {
    /// This time, `d` later (saturating).
    pub fn plus(self, d: Duration) -> MonoTime {
        MonoTime(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
    /// How long after `earlier` this is; zero where it is not.
    pub fn since(self, earlier: MonoTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Now {
    /// Both clocks moved on by `d`.
    pub fn plus(self, d: Duration) -> Now {
        Now { wall: self.wall.plus(d), mono: self.mono.plus(d) }
    }
}

/// Where time comes from: the system, or a simulation's hand.
pub trait Clock: Send + Sync {
    /// Both clocks, read in one pair.
    fn now(&self) -> Now;
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let mono = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Now {
            wall: WallTime(i64::try_from(wall.as_millis()).unwrap_or(i64::MAX)),
            mono: MonoTime(mono.tv_sec as u64 * 1_000_000_000 + mono.tv_nsec as u64),
        }
    }
}

/// A clock that moves only when told to: for tests, the driver and the simulator.
#[derive(Debug, Default)]
pub struct ManualClock(std::sync::Mutex<Now>);

impl ManualClock {
    /// Starts at `now`.
    pub fn at(now: Now) -> Self {
        Self(std::sync::Mutex::new(now))
    }
    /// Moves both clocks on by `d`.
    pub fn advance(&self, d: Duration) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now = now.plus(d);
    }
    /// Sets both clocks.
    pub fn set(&self, to: Now) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = to;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Reads `250ms`, `5s`, `30m`, `2h`, `7d`: a number and one unit. `None` where it is anything else.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..split].parse().ok()?;
    let unit = match text[split..].trim() {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

/// Prints a duration as people write it: `250 ms`, `5 s`, `2 min 10 s`, `3 h 4 min`, `7 d`.
pub fn show_duration(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0 if d.as_millis() > 0 => format!("{} ms", d.as_millis()),
        0..60 => format!("{s} s"),
        60..3_600 if s.is_multiple_of(60) => format!("{} min", s / 60),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..172_800 if (s / 60).is_multiple_of(60) => format!("{} h", s / 3_600),
        3_600..172_800 => format!("{} h {} min", s / 3_600, (s / 60) % 60),
        _ => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a contract's `L` or `V` would be read as another time than its author wrote.
    #[test]
    fn durations_are_read_with_their_unit() {
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5h"), Some(Duration::from_secs(5_400)));
        assert_eq!(parse_duration("7 d"), Some(Duration::from_secs(604_800)));
        for wrong in ["5", "s", "5 weeks", "-5s", ""] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }
}
