//! `readback run --supervise`: a parent that starts the member again at once, in the same slot, when it crashes. The parent has no
//! client and no state, so that what ends a member does not end it.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::app;
use crate::error::{Error, Fault, Result, codes};

/// How often the parent looks.
const LOOK: Duration = Duration::from_millis(20);
/// A member that lived for so long did not fail at its start.
const LIVED: Duration = Duration::from_secs(60);
/// The longest wait before a member that fails again and again is started again.
const LONGEST: Duration = Duration::from_secs(30);

/// What a member's end asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// It is over, with this code: it was told to stop, or another start would end in the same way.
    Leave(u8),
    /// Start it again.
    Again,
}

/// Runs this program's member as a child until it is told to stop, or ends in a way that no new start mends.
pub fn supervise() -> Result<ExitCode> {
    let runtime = super::http_runtime()?;
    let stop = app::interrupted(runtime.handle(), app::SecondSignal::Exits)?;
    let mut failures = Failures::default();
    loop {
        let mut member = start()?;
        let began = Instant::now();
        tracing::info!(pid = member.id(), "member started");
        let ended = wait(&mut member, &stop)?;
        match next(ended, stop.load(Ordering::Acquire)) {
            Next::Leave(code) => return Ok(ExitCode::from(code)),
            Next::Again => {
                let pause = failures.after(began.elapsed());
                tracing::warn!(%ended, again_in_s = pause.as_secs(), "the member crashed; it is started again in its slot");
                let until = Instant::now() + pause;
                while Instant::now() < until && !stop.load(Ordering::Acquire) {
                    std::thread::sleep(LOOK);
                }
                if stop.load(Ordering::Acquire) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
    }
}

/// Makes this process leave in order when its parent `parent` is gone, also if that was killed.
pub fn follow(parent: u32) -> Result<()> {
    let doing = || Error::new(codes::BUG, Fault::Bug, "tying this member to its supervisor");
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(|e| doing().because(e))?;
    // It may have gone before we asked.
    let now = rustix::process::getppid().map(|p| p.as_raw_nonzero().get().unsigned_abs());
    if now == Some(parent) { Ok(()) } else { Err(doing().next("start the supervisor again")) }
}

/// The same command line as a plain member. A process group of its own: Ctrl-C is told to it by us, once.
fn start() -> Result<Child> {
    let doing = || Error::new(codes::BUG, Fault::Bug, "starting the member");
    let program = std::env::current_exe().map_err(|e| doing().because(e))?;
    Command::new(program)
        .args(member_args(std::env::args_os().skip(1), std::process::id()))
        .process_group(0)
        .spawn()
        .map_err(|e| doing().because(e))
}

fn member_args(ours: impl Iterator<Item = OsString>, parent: u32) -> Vec<OsString> {
    let followed = OsString::from(format!("--supervised-by={parent}"));
    ours.map(|a| if a == "--supervise" { followed.clone() } else { a }).collect()
}

/// Waits for its end; a stop is passed on, once.
fn wait(member: &mut Child, stop: &AtomicBool) -> Result<ExitStatus> {
    let mut told = false;
    loop {
        let ended = member.try_wait().map_err(|e| Error::new(codes::BUG, Fault::Bug, "waiting for the member").because(e))?;
        if let Some(status) = ended {
            return Ok(status);
        }
        if stop.load(Ordering::Acquire) && !told {
            told = true;
            if let Some(pid) = i32::try_from(member.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        std::thread::sleep(LOOK);
    }
}

fn next(ended: ExitStatus, stopped: bool) -> Next {
    let code = ended.code().and_then(|c| u8::try_from(c).ok());
    match code {
        Some(code) if stopped => Next::Leave(code),
        None if stopped => Next::Leave(128u8.saturating_add(ended.signal().and_then(|s| u8::try_from(s).ok()).unwrap_or_default())),
        // In order, or by what only a person can change: configuration, a stale version, a slot that another member holds.
        Some(code @ (0 | 2 | 4 | 5)) => Next::Leave(code),
        _ => Next::Again,
    }
}

/// Starts that failed one after the other.
#[derive(Default)]
struct Failures(u32);

impl Failures {
    /// How long to wait after a life of `lived`: the first crash costs nothing, a member that can't live does not spin.
    fn after(&mut self, lived: Duration) -> Duration {
        if lived >= LIVED {
            self.0 = 0;
        }
        let pause = match self.0 {
            0 => Duration::ZERO,
            n => Duration::from_secs(1 << n.saturating_sub(1).min(5)).min(LONGEST),
        };
        self.0 = self.0.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    /// If this broke, a wrong setting would be tried for ever, or a crash would end the member for good.
    #[test]
    fn crashes_are_started_again_and_what_a_person_must_change_is_not() {
        let by_signal = ExitStatus::from_raw(9);
        for (ended, then) in [
            (code(0), Next::Leave(0)),
            (code(2), Next::Leave(2)),
            (code(5), Next::Leave(5)),
            (code(1), Next::Again),
            (code(3), Next::Again),
            (code(70), Next::Again),
            (code(101), Next::Again),
            (by_signal, Next::Again),
        ] {
            assert_eq!(next(ended, false), then, "{ended}");
        }
        assert_eq!(next(by_signal, true), Next::Leave(137));
        assert_eq!(next(code(70), true), Next::Leave(70));
    }

    /// If this broke, a member that can't live would be started in a loop, or one that crashed once would wait.
    #[test]
    fn the_first_crash_costs_nothing_and_further_ones_wait_longer() {
        let mut failures = Failures::default();
        let quick = Duration::from_secs(1);
        let pauses: Vec<u64> = (0..8).map(|_| failures.after(quick).as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(failures.after(LIVED), Duration::ZERO);
        assert_eq!(failures.after(quick).as_secs(), 1);
    }

    /// If this broke, the child would supervise a child of its own.
    #[test]
    fn the_member_gets_the_same_line_and_its_parent() {
        let line = ["run", "--supervise", "topology/orders", "--ordinal", "2"].map(OsString::from);
        let args = member_args(line.into_iter(), 7);
        assert_eq!(args, ["run", "--supervised-by=7", "topology/orders", "--ordinal", "2"].map(OsString::from));
    }
}
