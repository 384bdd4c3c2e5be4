//! The program as a user runs it: a member that is told to stop, a slot that is taken twice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use readback::demo::files::write_orders;
use rustix::process::{Pid, Signal, kill_process};

use crate::story::program;
use crate::{shared, stack, until};

/// A member of the orders application that runs until it is told to stop; killed when dropped.
pub struct Running {
    child: Child,
    log: std::path::PathBuf,
}

impl Running {
    pub fn start(topology: &Path, state: &Path, name: &str) -> Self {
        Self::with(topology, state, name, &[])
    }
    /// With more settings, by their variables; empty ones are left out.
    pub fn with(topology: &Path, state: &Path, name: &str, more: &[(&str, &str)]) -> Self {
        Self::flagged(0, topology, state, name, more, &[])
    }
    /// The member of this ordinal.
    pub fn numbered(ordinal: u32, topology: &Path, state: &Path, name: &str, more: &[(&str, &str)]) -> Self {
        Self::flagged(ordinal, topology, state, name, more, &[])
    }
    /// With flags of its own.
    pub fn flagged(ordinal: u32, topology: &Path, state: &Path, name: &str, more: &[(&str, &str)], flags: &[&str]) -> Self {
        let log = state.with_file_name(format!("{name}.log"));
        let child = Command::new(program())
            .args(["run", "--ordinal", &ordinal.to_string(), "--log", "info", "--state-dir"])
            .args([state, topology])
            .args(flags)
            .env("READBACK_BROKERS", stack().brokers())
            .env("READBACK_REGISTRY", stack().registry())
            .env("READBACK_ADMIN__LISTEN", "")
            .env("READBACK_REGISTRY__REGISTER", "true")
            .env("READBACK_TOPICS__CREATE", "true")
            .env("READBACK_GROUP__SESSION_TIMEOUT", "6s")
            .env("READBACK_GROUP__TRANSACTION_TIMEOUT", "5s")
            // Nobody listens there: nothing is sent in these tests.
            .envs([("ORDERS_URL", "http://127.0.0.1:9"), ("MODEL_URL", "http://127.0.0.1:9")])
            .envs(more.iter().copied().filter(|(_, value)| !value.is_empty()))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("the program starts");
        Self { child, log }
    }
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
    pub fn until_running(&mut self) {
        until("the member runs", || {
            assert!(self.child.try_wait().expect("status").is_none(), "it ended: {}", self.said());
            self.said().contains("Running").then_some(())
        });
    }
    /// Where its metrics are, with `READBACK_ADMIN__LISTEN` given.
    pub fn until_listening(&self) -> String {
        until("it listens", || {
            let said = self.said();
            let at = said.lines().find(|l| l.contains("metrics and health"))?.split("address=").nth(1)?.to_owned();
            Some(at.split_whitespace().next()?.to_owned())
        })
    }
    /// How it has ended, if it has.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("status")
    }
    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }
    pub fn terminate(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, Signal::TERM).expect("is there");
        until("it leaves on SIGTERM", || self.child.try_wait().expect("status"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn orders(work: &Path, name: &str) -> std::path::PathBuf {
    write_orders(work, &format!("{name}-{}.", &uuid::Uuid::new_v4().simple().to_string()[..6]), "http://127.0.0.1:9")
        .expect("a topology")
}

/// If this broke, a deploy would kill members in the middle of a transaction, and each restart would wait for a timeout.
#[test]
fn sigterm_ends_a_member_in_order() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let mut member = Running::start(&orders(work.path(), "term"), &work.path().join("state"), "member");
    member.until_running();
    let ended = member.terminate();
    assert_eq!(ended.code(), Some(0), "{}", member.said());
}

/// The members that a supervisor said it started.
pub fn started(supervisor: &Running) -> Vec<Pid> {
    let said = supervisor.said();
    let pids = said
        .lines()
        .filter(|l| l.contains("member started"))
        .filter_map(|l| l.split("pid=").nth(1)?.split_whitespace().next()?.parse().ok());
    pids.filter_map(Pid::from_raw).collect()
}

/// If this broke, a crashed member would stay away until somebody starts it and its partitions would stand still until then, a
/// stop would not reach the member, or a member would outlive its supervisor and hold the slot.
#[test]
fn a_supervised_member_that_is_killed_is_back_in_its_slot_and_leaves_with_its_supervisor() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let (topology, state) = (orders(work.path(), "supervised"), work.path().join("state"));
    let mut supervisor = Running::flagged(0, &topology, &state, "supervisor", &[], &["--supervise"]);
    supervisor.until_running();
    let first = started(&supervisor)[0];
    kill_process(first, Signal::KILL).expect("is there");
    until("it is back", || {
        assert!(supervisor.try_wait().is_none(), "the supervisor ended: {}", supervisor.said());
        let back = supervisor.said();
        (started(&supervisor).len() == 2 && back.rsplit("member started").next()?.contains("Running")).then_some(())
    });
    assert_eq!(supervisor.terminate().code(), Some(0), "{}", supervisor.said());
    let mut killed = Running::flagged(0, &topology, &state, "killed", &[], &["--supervise"]);
    killed.until_running();
    let member = started(&killed)[0];
    killed.child.kill().expect("is there");
    until("the member follows", || rustix::process::test_kill_process(member).is_err().then_some(()));
}

/// What a probe answers: status and body.
pub fn probe(address: &str, path: &str) -> Option<(u16, String)> {
    let mut to = TcpStream::connect(address).ok()?;
    write!(to, "GET {path} HTTP/1.1\r\nHost: readback\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    to.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

/// If this broke, a member that can't reach broker or registry at start would end, or not say why it is not ready, or not stop.
#[test]
fn what_is_unreachable_at_start_is_waited_for_with_the_reason_shown() {
    let _shared = shared();
    let nobody = [("READBACK_BROKERS", "127.0.0.1:9", "RB0301"), ("READBACK_REGISTRY", "http://127.0.0.1:9", "RB0503")];
    for (setting, address, code) in nobody {
        let work = tempfile::tempdir().expect("a directory");
        let topology = orders(work.path(), "unreachable");
        let more = [(setting, address), ("READBACK_ADMIN__LISTEN", "127.0.0.1:0")];
        let mut member = Running::with(&topology, &work.path().join("state"), "member", &more);
        let listens = member.until_listening();
        let reason = until("the reason is shown", || {
            assert!(member.try_wait().is_none(), "it ended: {}", member.said());
            probe(&listens, "/health/ready").filter(|(status, body)| *status == 503 && body.contains(code)).map(|(_, body)| body)
        });
        assert!(reason.contains("127.0.0.1:9"), "{reason}");
        assert_eq!(probe(&listens, "/health/live").map(|(status, _)| status), Some(200));
        assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
    }
}

/// C052: if this broke, a transaction timeout that the broker does not take would be found out by a failing member that does not say
/// which two numbers contradict.
#[test]
fn c052_a_transaction_timeout_above_the_brokers_is_refused_with_both_numbers() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let more = [
        ("READBACK_GROUP__TRANSACTION_TIMEOUT", "20m"),
        ("READBACK_GROUP__SESSION_TIMEOUT", "25m"),
        ("READBACK_KAFKA__MAX_POLL_INTERVAL_MS", "1800000"),
    ];
    let mut member = Running::with(&orders(work.path(), "timeout"), &work.path().join("state"), "member", &more);
    let ended = until("it ends", || member.try_wait());
    assert_eq!(ended.code(), Some(2), "{}", member.said());
    let said = member.said();
    assert!(said.contains("transaction.max.timeout.ms 15 min") && said.contains("20 min"), "{said}");
}

/// C050: if this broke, two processes in one slot would fence each other for ever, or the operator would not be told.
#[test]
fn a_slot_taken_twice_ends_one_process_with_exit_code_5() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let topology = orders(work.path(), "twice");
    let mut first = Running::start(&topology, &work.path().join("one"), "first");
    first.until_running();
    let mut same_directory = Running::start(&topology, &work.path().join("one"), "same");
    let refused = until("the second in one directory ends", || same_directory.child.try_wait().expect("status"));
    assert_eq!(refused.code(), Some(2), "{}", same_directory.said());
    assert!(same_directory.said().contains("RB0602"), "{}", same_directory.said());
    let mut second = Running::start(&topology, &work.path().join("two"), "second");
    let (ended, stays) = until("one of the two ends", || {
        let ended = first.child.try_wait().expect("status");
        let other = second.child.try_wait().expect("status");
        ended.map(|e| (e, false)).or(other.map(|e| (e, true)))
    });
    let (mut left, gone) = if stays { (first, second) } else { (second, first) };
    assert_eq!(ended.code(), Some(5), "{}", gone.said());
    left.until_running();
    assert_eq!(left.terminate().code(), Some(0), "{}", left.said());
}
