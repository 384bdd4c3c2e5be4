//! `kill -9` at every named point of thread and effect loop, and a member that stands still past every timeout: nothing lost,
//! nothing doubled by the target's books, results exact.
//!
//! `READBACK_KILL_SEEDS=N` plays more seeds per point than the default, which has to fit beside everything else on two cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use readback::demo::rng::Rng;
use readback::demo::story::{Breaks, DemoOptions};
use readback::runtime::failpoint;

use crate::shared;
use crate::story::{tell, tell_as};

/// Operations of one story: small, so that every point gets several.
const OPERATIONS: usize = 24;
/// Stories side by side: most of a story is waiting.
const AT_ONCE: usize = 8;
/// Seeds per point: each is another story, with other faults of the target, and deaths at other passes of the point.
const SEEDS: u64 = 1;

/// Where the processes of a member die, one after the other: at the point, at its pass that the seed says.
fn deaths(point: &str, seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed);
    // A call whose end nobody took down still counts. The model may be asked four times; four deaths around one call use that up, and
    // then its operation waits for a person or its deadline.
    let around_calls = point.starts_with("effects.");
    let deaths = if around_calls { 1 } else { 2 };
    (0..deaths).map(|nth| armed(point, nth, rng)).collect()
}

/// The first process of a member sees most of the load, those after it have to catch up with little.
fn armed(point: &str, nth: usize, rng: &mut Rng) -> String {
    let early = |rng: &mut Rng, most: u64| 1 + rng.below(if nth == 0 { most } else { most / 3 });
    match point {
        // A part that happens once or twice in a member's life.
        "restore.slice"
        | "claim.before"
        | "claim.after"
        | "confirm.before"
        | "confirm.after"
        | "revoke.before-commit"
        | "revoke.before-release"
        | "revoke.after-release" => format!("{point}:1:kill"),
        // Nothing is taken back unless something fails first.
        "abort.before" | "abort.after" => format!("flush.before:{}:abort,{point}:1:kill", early(rng, 12)),
        "effects.journalled" | "effects.dispatched" => format!("{point}:{}:kill", early(rng, 6)),
        _ => format!("{point}:{}:kill", early(rng, 16)),
    }
}

/// If this broke, a process that dies at some step would lose an effect, repeat one, or show a result that is not so.
#[test]
fn nothing_is_lost_or_doubled_by_kill_9_at_any_point() {
    let _shared = shared();
    let seeds = std::env::var("READBACK_KILL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let stories: Vec<(&str, u64)> =
        (0..seeds).flat_map(|seed| (0..).zip(failpoint::NAMES).map(move |(n, point)| (*point, 100 * (seed + 1) + n))).collect();
    let (next, kills) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|s| {
        for _ in 0..AT_ONCE {
            s.spawn(|| {
                while let Some((point, seed)) = stories.get(next.fetch_add(1, Ordering::SeqCst)) {
                    match killed_at(point, *seed) {
                        Ok(n) => drop(kills.fetch_add(n, Ordering::SeqCst)),
                        Err(said) => wrong.lock().expect("no panic").push(format!("{point}, seed {seed}: {said}")),
                    }
                }
            });
        }
    });
    eprintln!("{} stories, {} kills", stories.len(), kills.into_inner());
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tells one story; answers how many processes died.
fn killed_at(point: &str, seed: u64) -> Result<usize, String> {
    let name = format!("{}-{seed}", point.replace('.', "-"));
    let told = tell(&name, seed, OPERATIONS, Breaks::AtPoints(deaths(point, seed)))?;
    let kills = told.report.faults["kill_9"];
    eprintln!("{point}, seed {seed}: {kills} kills, {} s", told.report.seconds);
    match kills {
        0 => Err("nobody came by".to_owned()),
        _ if !told.wrong.is_empty() => Err(told.wrong.join("; ")),
        n => Ok(n as usize),
    }
}

/// C1: if this broke, the test above would be blind: processes whose calls leave before the record of them is committed, and which
/// die in between, do twice what the record that was taken back had begun. The target's books must show it.
#[test]
fn c01_the_books_show_calls_that_left_before_the_commit() {
    let _shared = shared();
    let doubled = |seed: u64| {
        let mut options = DemoOptions::new(seed, OPERATIONS);
        options.breaks = Breaks::AtPoints(vec!["commit.before:6:kill".into(); 4]);
        options.env = vec![("READBACK_WEAKEN".into(), "journal-before-call".into())];
        let told = tell_as("weakened", options).unwrap_or_else(|e| panic!("{e}"));
        eprintln!("{} kills, {} doubled", told.report.faults["kill_9"], told.report.verdict.doubled);
        told.report.verdict.doubled > 0
    };
    assert!((0..4).any(doubled), "four stories, and nothing was doubled");
}

/// If this broke, a machine that was suspended past session and transaction timeout would wake and do its old work again.
#[test]
fn a_member_that_stands_still_past_every_timeout_is_fenced() {
    let _shared = shared();
    // Session 6 s, transaction 5 s.
    let told = tell("stalled", 7, 60, Breaks::Stalled(Duration::from_secs(14))).unwrap_or_else(|e| panic!("{e}"));
    assert!(told.wrong.is_empty(), "{:?}", told.wrong);
}
