//! What a topology itself costs: its recorded input through the real code on the in-process log, again and again, beside reading the same
//! lines as JSON and nothing else. No broker takes part.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::driver::recorded;
use crate::dsl::Application;
use crate::error::{Error, Fault, Result, codes};

use super::measure::{Told, cpu_of_self};

/// One side.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Cost {
    /// CPU of an input record, in microseconds.
    pub cpu_us: f64,
    /// How often the whole input was run.
    pub runs: u64,
}

/// Both sides for so long each, and how many records one input holds.
///
/// # Errors
/// What the recorded run says; an input without records.
pub fn compare(application: &Application, dir: &Path, time: Duration, told: &dyn Told) -> Result<([Cost; 2], usize)> {
    let inputs = recorded::run(application, dir, false)?.inputs;
    if inputs == 0 {
        return Err(Error::new(codes::USAGE, Fault::Configuration, format!("measuring {}: no record is fed", dir.display())));
    }
    let file = dir.join("input.jsonl");
    let read = || -> Result<()> {
        let doing = || Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading {}", file.display()));
        let text = std::fs::read_to_string(&file).map_err(|e| doing().because(e))?;
        for line in text.lines().filter(|l| !l.trim().is_empty()) {
            std::hint::black_box(serde_json::from_str::<Value>(line).map_err(|e| doing().because(e))?);
        }
        Ok(())
    };
    let heard = |part: &'static str| move |done: Duration| told.at(part, millis(done.min(time)), millis(time));
    let bare = cost(inputs, time, &read, &heard("the lines alone, in ms"))?;
    let ours = cost(inputs, time, &|| recorded::run(application, dir, false).map(drop), &heard("Readback, in ms"))?;
    Ok(([bare, ours], inputs))
}

/// Between two words of how far it is.
const SELDOM: Duration = Duration::from_millis(50);

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn cost(inputs: usize, time: Duration, once: &dyn Fn() -> Result<()>, heard: &dyn Fn(Duration)) -> Result<Cost> {
    let (began, cpu) = (Instant::now(), cpu_of_self());
    let (mut runs, mut told) = (0, Duration::ZERO);
    while runs == 0 || began.elapsed() < time {
        once()?;
        runs += 1;
        // Seldom: telling must not count as reading.
        let took = began.elapsed();
        if took >= told + SELDOM {
            heard(took);
            told = took;
        }
    }
    let spent = (cpu_of_self() - cpu).as_secs_f64() * 1e6;
    Ok(Cost { cpu_us: spent / (runs as f64 * inputs as f64), runs })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, the cost of a topology would be made up, or of another input.
    #[test]
    fn a_topologys_input_is_run_on_both_sides() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/webhook");
        let application = crate::config::yaml::offline(|| crate::declare::load(&dir)).expect("loads").application;
        let ([bare, ours], inputs) = compare(&application, &dir, Duration::from_millis(50), &()).expect("runs");
        assert_eq!(inputs, 7);
        assert!(bare.runs >= ours.runs && ours.runs >= 1 && bare.cpu_us > 0.0 && ours.cpu_us > bare.cpu_us, "{bare:?} {ours:?}");
    }
}
