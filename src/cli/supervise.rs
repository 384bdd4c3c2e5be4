//! `readback run --supervise`: a parent that starts the member again at once, in the same slot, when it crashes. The parent has no
//! client and no state, so that what ends a member does not end it. On SIGUSR2 it starts a successor that takes over from the member.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
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

/// Why a member may have ended without having crashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// By nobody that we know of.
    Nothing,
    /// By us: everything is to stop.
    Stop,
    /// By a successor that we started, which is gone, too.
    HandOver,
}

/// Runs this program's member as a child until it is told to stop, or ends in a way that no new start mends. SIGUSR2 starts a successor
/// that takes over from it: with what program, configuration and topology there are then.
pub fn supervise() -> Result<ExitCode> {
    let runtime = super::http_runtime()?;
    let orders = Orders { stop: app::interrupted(runtime.handle(), app::SecondSignal::Exits)?, renew: renewals(runtime.handle())? };
    // Asked once: after an upgrade the name of this process's own file is that of a deleted one.
    let program = std::env::current_exe().map_err(|e| starting().because(e))?;
    let mut failures = Failures::default();
    loop {
        let mut members = Members { member: Member::start(&program, false)?, successor: None, handing_over: false };
        let ended = members.wait(&program, &orders)?;
        let told = match () {
            () if orders.stop.load(Ordering::Acquire) => Told::Stop,
            () if members.handing_over => Told::HandOver,
            () => Told::Nothing,
        };
        match next(ended, told) {
            Next::Leave(code) => return Ok(ExitCode::from(code)),
            Next::Again => {
                let pause = failures.after(members.member.began.elapsed());
                tracing::warn!(%ended, again_in_s = pause.as_secs(), "the member ended; it is started again in its slot");
                let until = Instant::now() + pause;
                while Instant::now() < until && !orders.stop.load(Ordering::Acquire) {
                    std::thread::sleep(LOOK);
                }
                if orders.stop.load(Ordering::Acquire) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
    }
}

/// What people order by signals.
struct Orders {
    /// SIGTERM, SIGINT.
    stop: Arc<AtomicBool>,
    /// SIGUSR2.
    renew: Arc<AtomicBool>,
}

/// A flag that SIGUSR2 sets.
fn renewals(runtime: &tokio::runtime::Handle) -> Result<Arc<AtomicBool>> {
    let renew = Arc::new(AtomicBool::new(false));
    let flag = renew.clone();
    let _inside = runtime.enter();
    let mut usr2 = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined2())
        .map_err(|e| Error::new(codes::BUG, Fault::Bug, "listening for signals").because(e))?;
    runtime.spawn(async move {
        while usr2.recv().await.is_some() {
            flag.store(true, Ordering::Release);
        }
    });
    Ok(renew)
}

/// Makes this process leave in order when its parent `parent` is gone, also if that was killed.
pub fn follow(parent: u32) -> Result<()> {
    let doing = || Error::new(codes::BUG, Fault::Bug, "tying this member to its supervisor");
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(|e| doing().because(e))?;
    // It may have gone before we asked.
    let now = rustix::process::getppid().map(|p| p.as_raw_nonzero().get().unsigned_abs());
    if now == Some(parent) { Ok(()) } else { Err(doing().next("start the supervisor again")) }
}

/// A child of ours.
struct Member {
    child: Child,
    began: Instant,
}

impl Member {
    /// The same command line as a plain member. A process group of its own: Ctrl-C is told to it by us, once.
    fn start(program: &Path, takes_over: bool) -> Result<Self> {
        let child = Command::new(program)
            .args(member_args(std::env::args_os().skip(1), std::process::id(), takes_over))
            .process_group(0)
            .spawn()
            .map_err(|e| starting().because(e))?;
        tracing::info!(pid = child.id(), takes_over, "member started");
        Ok(Self { child, began: Instant::now() })
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|e| Error::new(codes::BUG, Fault::Bug, "waiting for the member").because(e))
    }

    fn tell_to_stop(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn starting() -> Error {
    Error::new(codes::BUG, Fault::Bug, "starting the member")
}

/// The member and, for the time of a hand-over, the one after it.
struct Members {
    member: Member,
    successor: Option<Member>,
    /// Whether the member may have left because a successor, by now gone, asked it to.
    handing_over: bool,
}

impl Members {
    /// Waits for the end of the last one; a stop is passed on, once.
    fn wait(&mut self, program: &Path, orders: &Orders) -> Result<ExitStatus> {
        let mut told = false;
        loop {
            if let Some(ended) = self.member.ended()? {
                match self.successor.take() {
                    None => return Ok(ended),
                    Some(successor) => {
                        tracing::info!(pid = successor.child.id(), before = %ended, "the successor is the member now");
                        (self.member, self.handing_over) = (successor, false);
                        continue;
                    }
                }
            }
            if let Some(successor) = &mut self.successor
                && let Some(ended) = successor.ended()?
            {
                tracing::warn!(%ended, "the successor is gone; a member that it has not asked to leave goes on");
                (self.successor, self.handing_over) = (None, true);
            }
            let stop = orders.stop.load(Ordering::Acquire);
            if orders.renew.swap(false, Ordering::AcqRel) && !stop {
                self.begin_hand_over(program);
            }
            if stop && !told {
                told = true;
                std::iter::once(&self.member).chain(&self.successor).for_each(Member::tell_to_stop);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// A successor that can't be started changes nothing.
    fn begin_hand_over(&mut self, program: &Path) {
        if self.successor.is_some() {
            return tracing::warn!("a successor is under way already");
        }
        match Member::start(program, true) {
            Ok(successor) => self.successor = Some(successor),
            Err(error) => tracing::error!(%error, "no successor; the member goes on"),
        }
    }
}

fn member_args(ours: impl Iterator<Item = OsString>, parent: u32, takes_over: bool) -> Vec<OsString> {
    let flag = || OsString::from("--take-over");
    let followed = || std::iter::once(OsString::from(format!("--supervised-by={parent}"))).chain(takes_over.then(flag));
    ours.filter(|a| !takes_over || *a != flag())
        .flat_map(|a| if a == "--supervise" { followed().collect() } else { vec![a] })
        .collect()
}

fn next(ended: ExitStatus, told: Told) -> Next {
    let code = ended.code().and_then(|c| u8::try_from(c).ok());
    match code {
        Some(code) if told == Told::Stop => Next::Leave(code),
        None if told == Told::Stop => {
            Next::Leave(128u8.saturating_add(ended.signal().and_then(|s| u8::try_from(s).ok()).unwrap_or_default()))
        }
        // It made room for one that is gone.
        Some(0) if told == Told::HandOver => Next::Again,
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
            assert_eq!(next(ended, Told::Nothing), then, "{ended}");
        }
        assert_eq!(next(by_signal, Told::Stop), Next::Leave(137));
        assert_eq!(next(code(70), Told::Stop), Next::Leave(70));
        // If this broke, a successor that dies after it has asked would leave the slots without anybody.
        assert_eq!(next(code(0), Told::HandOver), Next::Again);
        assert_eq!(next(code(2), Told::HandOver), Next::Leave(2));
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
        let args = member_args(line.clone().into_iter(), 7, false);
        assert_eq!(args, ["run", "--supervised-by=7", "topology/orders", "--ordinal", "2"].map(OsString::from));
        let args = member_args(line.into_iter().chain(["--take-over".into()]), 7, true);
        assert_eq!(args, ["run", "--supervised-by=7", "--take-over", "topology/orders", "--ordinal", "2"].map(OsString::from));
    }
}
