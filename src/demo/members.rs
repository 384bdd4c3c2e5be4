//! The two members of the demo: real processes of this very program, killed and started again.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::error::{Error, Fault, Result, codes};

/// What a member needs to start.
#[derive(Clone, Debug)]
pub struct MemberSetup {
    /// This program.
    pub program: PathBuf,
    /// The topology's directory.
    pub topology: PathBuf,
    /// Where state and logs go.
    pub dir: PathBuf,
    /// Environment: brokers, registry, targets.
    pub env: Vec<(String, String)>,
}

/// A member of the demo, whatever it runs on.
pub trait Member {
    /// `kill -9`, then the same slot again at once, as a supervisor would.
    fn kill_and_restart(&mut self) -> Result<()>;
    /// Whether it still runs. A death at a fail point that it was given is answered as a supervisor would.
    fn check(&mut self) -> Result<()>;
    /// Stops its time, as a suspended machine does.
    fn stand_still(&self);
    /// Lets it go on.
    fn go_on(&self);
    /// Stops it in order, within `limit`.
    fn stop(&mut self, limit: Duration) -> Result<()>;
    /// How often it was killed.
    fn kills(&self) -> u32;
}

/// One member process in its slot.
pub struct MemberProcess {
    setup: MemberSetup,
    ordinal: u32,
    child: Option<Child>,
    kills: u32,
    /// Where this process and the next ones end.
    fail_points: VecDeque<String>,
    /// Whether this process was given such a point.
    doomed: bool,
}

impl MemberProcess {
    /// Starts member `ordinal`; its first processes end at these fail points, one each.
    pub fn start(setup: &MemberSetup, ordinal: u32, fail_points: &[String]) -> Result<Self> {
        let fail_points = fail_points.iter().cloned().collect();
        let mut member = Self { setup: setup.clone(), ordinal, child: None, kills: 0, fail_points, doomed: false };
        member.spawn()?;
        Ok(member)
    }

    /// Its log file.
    pub fn log(&self) -> PathBuf {
        self.setup.dir.join(format!("member-{}.log", self.ordinal))
    }

    fn spawn(&mut self) -> Result<()> {
        let fail_point = self.fail_points.pop_front();
        self.doomed = fail_point.is_some();
        let doing = || format!("starting member {} of the demo", self.ordinal);
        let log =
            open_log(&self.log()).map_err(|e| Error::new(codes::FILE_UNREADABLE, Fault::Configuration, doing()).because(e))?;
        let child = Command::new(&self.setup.program)
            .arg("run")
            .arg(&self.setup.topology)
            .envs(self.setup.env.iter().map(|(k, v)| (k, v)))
            .env("READBACK_STATE__DIR", self.setup.dir.join(format!("state-{}", self.ordinal)))
            .env("READBACK_SLOTS__ORDINAL", self.ordinal.to_string())
            .env("READBACK_ADMIN__LISTEN", "127.0.0.1:0")
            .envs(fail_point.map(|p| ("READBACK_FAIL", p)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| Error::new(codes::BUG, Fault::Bug, doing()).because(e))?;
        self.child = Some(child);
        Ok(())
    }
}

impl Member for MemberProcess {
    fn kill_and_restart(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.kills += 1;
        self.spawn()
    }

    fn check(&mut self) -> Result<()> {
        let Some(child) = &mut self.child else { return Ok(()) };
        match child.try_wait() {
            Ok(Some(status)) if self.doomed && status.code().is_none() => {
                self.kills += 1;
                self.spawn()
            }
            Ok(Some(status)) => Err(Error::new(
                codes::BUG,
                Fault::Bug,
                format!("member {} ended by itself with {status}; its log: {}", self.ordinal, self.log().display()),
            )),
            _ => Ok(()),
        }
    }

    fn stand_still(&self) {
        self.child.iter().for_each(|c| signal(c, Signal::STOP));
    }

    fn go_on(&self) {
        self.child.iter().for_each(|c| signal(c, Signal::CONT));
    }

    fn stop(&mut self, limit: Duration) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        signal(&child, Signal::TERM);
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if let Ok(Some(status)) = child.try_wait() {
                return match status.code() {
                    Some(0) => Ok(()),
                    // It met its fail point on the way out.
                    None if self.doomed => {
                        self.kills += 1;
                        Ok(())
                    }
                    _ => Err(Error::new(codes::BUG, Fault::Bug, format!("member {} stopped with {status}", self.ordinal))
                        .next(format!("read {}", self.log().display()))),
                };
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(Error::new(codes::STOP_TIMEOUT, Fault::Bug, format!("member {} did not stop within {limit:?}", self.ordinal)))
    }

    fn kills(&self) -> u32 {
        self.kills
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn open_log(path: &Path) -> std::io::Result<std::fs::File> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::OpenOptions::new().create(true).append(true).open(path)
}
