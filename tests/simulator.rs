//! The whole product on virtual time against seeded faults, judged by results and books only.
//!
//! `READBACK_SCHEDULES=N` plays more schedules than the default, `READBACK_SEED=n` replays one and prints what happened.

use readback::app::Weakened;
use readback::testing::simulator::{Applications, Schedule, run, search, shrink};

/// Schedules of a default run; in full by `READBACK_SCHEDULES=1000000`.
const SCHEDULES: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// If this broke, some order of crashes, pauses, lost commits, lost requests and late answers would double an effect, lose an
/// operation or call one by a name that the target's books do not bear out.
#[test]
fn no_schedule_breaks_a_promise() {
    if let Some(seed) = number("READBACK_SEED") {
        return replay(seed);
    }
    let found = search(0..number("READBACK_SCHEDULES").unwrap_or(SCHEDULES), 2, Weakened::default());
    println!("{} schedules, {} turns\nends: {:?}\nstruck: {:?}", found.played, found.turns, found.ends, found.struck);
    if let Some((schedule, outcome)) = found.failing {
        let seed = schedule.seed;
        let (least, _) = shrink(schedule, Weakened::default());
        panic!("seed {seed}: {:?}\nstill fails as {least:#?}\nREADBACK_SEED={seed} replays it", outcome.violations);
    }
}

fn replay(seed: u64) {
    let schedule = Schedule::draw(seed);
    let outcome = run(&Applications::new(), &schedule, Weakened::default());
    println!("{schedule:#?}\n{}", outcome.timeline.join("\n"));
    assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
}
