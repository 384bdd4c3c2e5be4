//! `kill -9` at every named point of thread and effect loop, and a member that stands still past every timeout: nothing lost,
//! nothing doubled by the target's books, results exact.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use readback::demo::story::Breaks;
use readback::runtime::failpoint;

use crate::shared;
use crate::story::tell;

/// Operations of one story: small, so that every point gets one.
const OPERATIONS: usize = 36;
/// Stories side by side.
const AT_ONCE: usize = 6;

/// What to arm for a point: late enough that something is under way.
fn armed(point: &str) -> String {
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
        "abort.before" | "abort.after" => format!("flush.before:9:abort,{point}:1:kill"),
        "effects.journalled" | "effects.dispatched" => format!("{point}:4:kill"),
        _ => format!("{point}:12:kill"),
    }
}

/// If this broke, a process that dies at some step would lose an effect, repeat one, or show a result that is not so.
#[test]
fn nothing_is_lost_or_doubled_by_kill_9_at_any_point() {
    let _shared = shared();
    let next = AtomicUsize::new(0);
    let wrong: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|s| {
        for _ in 0..AT_ONCE {
            s.spawn(|| {
                while let Some((n, point)) = failpoint::NAMES.iter().enumerate().nth(next.fetch_add(1, Ordering::SeqCst)) {
                    let said = killed_at(point, 100 + n as u64);
                    wrong.lock().expect("no panic").extend(said);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn killed_at(point: &str, seed: u64) -> Option<String> {
    let name = point.replace('.', "-");
    match tell(&name, seed, OPERATIONS, Breaks::AtPoint(armed(point))) {
        Err(e) => Some(format!("{point}: {e}")),
        Ok(told) if told.report.faults["kill_9"] == 0 => Some(format!("{point}: nobody came by")),
        Ok(told) if !told.wrong.is_empty() => Some(format!("{point}: {}", told.wrong.join("; "))),
        Ok(told) => {
            eprintln!("{point}: {} kills, {} s", told.report.faults["kill_9"], told.report.seconds);
            None
        }
    }
}

/// If this broke, a machine that was suspended past session and transaction timeout would wake and do its old work again.
#[test]
fn a_member_that_stands_still_past_every_timeout_is_fenced() {
    let _shared = shared();
    // Session 6 s, transaction 5 s.
    let told = tell("stalled", 7, 60, Breaks::Stalled(Duration::from_secs(14))).unwrap_or_else(|e| panic!("{e}"));
    assert!(told.wrong.is_empty(), "{:?}", told.wrong);
}
