//! Members of an application as real processes of the program, watched from outside.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use readback::bench::measure::status_mb;

/// CPU time of a process, all threads, in steps of 10 ms.
pub fn cpu_of(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|i| fields.get(*i)?.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Share of a core that a process takes while nothing happens, over ten seconds.
pub fn idle_cpu(pid: u32) -> f64 {
    let cpu = cpu_of(pid);
    std::thread::sleep(Duration::from_secs(10));
    (cpu_of(pid) - cpu).as_secs_f64() / 10.0
}

/// A port that is free now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

/// One `readback run`.
pub struct Member {
    topology: PathBuf,
    dir: PathBuf,
    env: Vec<(String, String)>,
    ordinal: u32,
    port: u16,
    child: Option<Child>,
}

impl Member {
    /// Starts member `ordinal` of a topology's directory; state and log go under `dir`.
    pub fn start(topology: &Path, dir: &Path, env: &[(&str, String)], ordinal: u32) -> Self {
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let mut member = Self { topology: topology.into(), dir: dir.into(), env, ordinal, port: free_port(), child: None };
        member.spawn();
        member
    }

    fn spawn(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.join(format!("member-{}.log", self.ordinal)));
        let child = Command::new(env!("CARGO_BIN_EXE_readback"))
            .arg("run")
            .arg(&self.topology)
            .envs(self.env.iter().cloned())
            .env("READBACK_STATE__DIR", self.dir.join(format!("state-{}", self.ordinal)))
            .env("READBACK_SLOTS__ORDINAL", self.ordinal.to_string())
            .env("READBACK_ADMIN__LISTEN", format!("127.0.0.1:{}", self.port))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn()
            .expect("the member starts");
        self.child = Some(child);
    }

    /// Another command of the program, on the member's cluster.
    pub fn command(&self, words: &[&str]) {
        let done = Command::new(env!("CARGO_BIN_EXE_readback")).args(words).envs(self.env.iter().cloned()).output();
        let done = done.expect("it starts");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Where metrics, health and the console are served.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// `kill -9`, and the same slot again at once, as a supervisor would.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.spawn();
    }

    /// The sum of a metric over all series whose line holds `label`; 0 while it does not answer.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let text = get(self.port, "/metrics").unwrap_or_default();
        let of = |l: &&str| l.starts_with(name) && l[name.len()..].starts_with(['{', ' ']) && l.contains(label);
        text.lines().filter(of).filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Waits until every task of `tasks` runs.
    pub fn wait_for_tasks(&mut self, tasks: f64) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.metric("readback_tasks", "") < tasks {
            let ended = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten());
            assert!(
                ended.is_none() && Instant::now() < until,
                "member {} has not started; its log is in {:?}",
                self.ordinal,
                self.dir
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
