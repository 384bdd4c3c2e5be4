//! Clocks and distributions.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{Error, Fault, Result, codes};

/// Without progress for so long a run is given up.
const STUCK: Duration = Duration::from_secs(60);

/// One steady run of a process, from the first record that came through to the last.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Run {
    /// How many came through in that time.
    pub records: f64,
    /// How long that took.
    pub seconds: f64,
    /// Records a second.
    pub per_second: f64,
    /// CPU of the whole process a record, in microseconds.
    pub cpu_us: f64,
    /// Its peak memory.
    pub rss_mb: f64,
}

/// Who hears how far a measurement is; `()` does not listen.
pub trait Told {
    /// So many of all are done of a part.
    fn at(&self, _part: &str, _done: u64, _all: u64) {}
    /// A run of a side is over.
    fn ran(&self, _side: &str, _run: &Run) {}
}

impl Told for () {}

/// Watches this process until `total` are through; `through` counts what is done for good, and `told` hears of it as `part`.
///
/// # Errors
/// Where nothing moves for a minute.
pub fn steady(part: &str, total: u64, through: &dyn Fn() -> u64, told: &dyn Told) -> Result<Run> {
    let look = || (Instant::now(), through(), cpu_of_self());
    let (mut moved, mut first) = ((Instant::now(), 0), None);
    loop {
        std::thread::sleep(Duration::from_millis(5));
        let now = look();
        told.at(part, now.1.min(total), total);
        if now.1 > moved.1 {
            moved = (now.0, now.1);
        }
        if moved.0.elapsed() > STUCK {
            let doing = format!("measuring: stuck at {} of {total} records", moved.1);
            return Err(Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, doing).next("see what `--log info` tells"));
        }
        if first.is_none() && now.1 > 0 {
            first = Some(now);
        }
        let Some(began) = first.filter(|_| now.1 >= total) else { continue };
        if (now.1 - began.1) * 2 < total {
            let doing = format!("measuring {total} records: the first commit took {} of them, so the rest tells nothing", began.1);
            return Err(Error::new(codes::USAGE, Fault::Configuration, doing).next("give ten times as many: --records"));
        }
        let (records, seconds) = ((now.1 - began.1) as f64, (now.0 - began.0).as_secs_f64());
        let cpu = (now.2 - began.2).as_secs_f64() * 1e6;
        return Ok(Run {
            records,
            seconds,
            per_second: records / seconds,
            cpu_us: cpu / records,
            rss_mb: status_mb(std::process::id(), "VmHWM"),
        });
    }
}

/// CPU time of this process, all threads.
pub fn cpu_of_self() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or_default())
}

/// A line of `/proc/<pid>/status` in MB.
pub fn status_mb(pid: u32, name: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// The value at `q` (0 to 1) of a distribution; NaN where it is empty.
pub fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * q) as usize).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// The machine in plain words.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kb: u64 = info.lines().next().and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse().ok()).unwrap_or(0);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    format!("{cores} cores, {} GB; load before the run {load}", kb >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// If this broke, a p99 would be printed that is the worst, or the best, of all.
    #[test]
    fn quantiles_are_where_they_belong() {
        let mut values: Vec<f64> = (0..1000).rev().map(f64::from).collect();
        assert_eq!((quantile(&mut values, 0.5), quantile(&mut values, 0.99), quantile(&mut values, 1.0)), (500.0, 990.0, 999.0));
        assert!(quantile(&mut [], 0.5).is_nan());
    }

    /// If this broke, a rate would be made up where a few commits took everything.
    #[test]
    fn too_few_records_are_no_measurement() {
        let through = AtomicU64::new(600);
        let refused = steady("x", 1_000, &|| through.fetch_add(400, Ordering::Relaxed), &()).expect_err("one commit took most");
        assert_eq!((refused.code, refused.fault), (codes::USAGE, Fault::Configuration));
    }

    /// If this broke, a rate would count the start of clients, or records that were there before.
    #[test]
    fn a_rate_counts_from_the_first_commit() {
        let through = AtomicU64::new(0);
        let next = || through.fetch_add(100, Ordering::Relaxed);
        let run = steady("x", 1_000, &next, &()).expect("moves");
        assert_eq!(run.records, 900.0);
        assert!(run.per_second > 1_000.0 && run.per_second < 30_000.0, "{run:?}");
    }
}
