//! The local stack, a real broker and registry, for the demo and the tests: `dev/stack`, carried in the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Fault, Result, codes};

const SCRIPT: &str = include_str!("../../dev/stack");
const POM: &str = include_str!("../../dev/pom.xml");
const COMPOSE: &str = include_str!("../../docker-compose.yml");

/// Where the stack is, or a cluster that exists already.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// Where its data lives.
    pub dir: PathBuf,
    /// Brokers and registry that exist: then nothing is started or stopped.
    pub existing: Option<(String, String)>,
}

impl StackOptions {
    /// `READBACK_BROKERS` with `READBACK_REGISTRY`, else a stack in `READBACK_STACK_DIR` or `target/stack`.
    pub fn from_env() -> Result<Self> {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let existing = match (var("READBACK_BROKERS"), var("READBACK_REGISTRY")) {
            (Some(brokers), Some(registry)) => Some((brokers, registry)),
            (None, None) => None,
            _ => {
                let what = "READBACK_BROKERS and READBACK_REGISTRY must be set together";
                return Err(Error::new(codes::USAGE, Fault::Configuration, what).next("set both, or none to start a local stack"));
            }
        };
        Ok(Self { dir: var("READBACK_STACK_DIR").map_or_else(|| PathBuf::from("target/stack"), PathBuf::from), existing })
    }
}

/// A running stack, held by a lease: when the last holder drops it or dies, the stack stops.
#[derive(Debug)]
pub struct Stack {
    dir: PathBuf,
    started: bool,
    kafka: String,
    brokers: String,
    registry: String,
    proxy: Option<(String, String)>,
    sasl: Option<String>,
    secure: Option<Secure>,
}

/// Where the stack's listeners with TLS are. All are reached as `localhost`, and their certificates are for that name alone.
#[derive(Clone, Debug)]
pub struct Secure {
    /// A login over TLS: `readback` with that password by PLAIN and SCRAM, and by tokens.
    pub sasl: String,
    /// TLS.
    pub tls: String,
    /// TLS that asks for a certificate; the name in it is the user.
    pub mtls: String,
    /// TLS with a certificate that has expired.
    pub expired: String,
    /// The registry over TLS.
    pub registry: String,
    /// `ca.pem`, `other.pem` (nobody's), `client.pem` with `client.key`, `ca.key`, `token.key`.
    pub dir: PathBuf,
}

impl Stack {
    /// Whether this machine has what it takes to start one: Docker that answers, with its compose plugin, or a JDK with Maven.
    pub fn possible() -> bool {
        let answers = |program: &str, args: &[&str]| {
            let run = Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            run.is_ok_and(|s| s.success())
        };
        let docker = || answers("docker", &["info"]) && answers("docker", &["compose", "version"]);
        docker() || (answers("java", &["-version"]) && answers("mvn", &["-v"]))
    }

    /// Starts the stack or joins one that runs; waits until it is healthy. Fails with `STACK_UNAVAILABLE` and what to install.
    pub fn up(options: &StackOptions) -> Result<Stack> {
        if let Some((brokers, registry)) = &options.existing {
            let (brokers, registry) = (brokers.clone(), registry.clone());
            return Ok(Stack {
                dir: options.dir.clone(),
                started: false,
                kafka: String::new(),
                brokers,
                registry,
                proxy: None,
                sasl: None,
                secure: None,
            });
        }
        let dir = install(&options.dir).map_err(|e| {
            Error::new(codes::STACK_UNAVAILABLE, Fault::Configuration, format!("writing to {}", options.dir.display()))
                .because(e)
                .next("set READBACK_STACK_DIR to a directory that can be written")
        })?;
        let env = run(&dir, &["up", "--lease", &std::process::id().to_string()])?;
        let value = |name: &str| {
            let prefix = format!("{name}=");
            env.lines().find_map(|l| l.strip_prefix(&prefix)).unwrap_or_default().to_owned()
        };
        // Three brokers have the plain listener alone.
        let some = |name: &str| Some(value(name)).filter(|v| !v.is_empty());
        let proxy = some("READBACK_STACK_PROXY_LISTEN").zip(some("READBACK_STACK_PROXY_TARGET"));
        let secure = some("READBACK_STACK_SECURE").map(|sasl| Secure {
            sasl,
            tls: value("READBACK_STACK_SSL"),
            mtls: value("READBACK_STACK_MTLS"),
            expired: value("READBACK_STACK_EXPIRED"),
            registry: value("READBACK_STACK_REGISTRY_TLS"),
            dir: value("READBACK_STACK_TLS").into(),
        });
        Ok(Stack {
            dir,
            started: true,
            kafka: value("READBACK_STACK_KAFKA"),
            brokers: value("READBACK_BROKERS"),
            registry: value("READBACK_REGISTRY"),
            proxy,
            sasl: some("READBACK_STACK_SASL"),
            secure,
        })
    }
    /// The version of Kafka; empty where the stack does not tell.
    pub fn kafka(&self) -> &str {
        &self.kafka
    }
    /// `bootstrap.servers`.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }
    /// The registry's base URL.
    pub fn registry(&self) -> &str {
        &self.registry
    }
    /// Where clients sign in by SASL/PLAIN: as `readback`, who may do everything, or as `limited`; each is its own password. `None` on a
    /// cluster that is not ours.
    pub fn sasl(&self) -> Option<&str> {
        self.sasl.as_deref()
    }
    /// Where clients come by TLS. `None` on a cluster that is not ours.
    pub fn secure(&self) -> Option<&Secure> {
        self.secure.as_ref()
    }
    /// Where a proxy must listen, and where it must forward to, so that clients that bootstrap at the first stay on it: the
    /// broker advertises the proxy's address on that listener. `None` on a cluster that is not ours.
    pub fn proxy(&self) -> Option<(&str, &str)> {
        self.proxy.as_ref().map(|(listen, target)| (listen.as_str(), target.as_str()))
    }
    /// `kill -9` of the broker.
    pub fn kill_broker(&self) -> Result<()> {
        self.broker("kill")
    }
    /// Stops the broker in order.
    pub fn stop_broker(&self) -> Result<()> {
        self.broker("stop")
    }
    /// Starts the broker again on the same data and port; waits until it listens.
    pub fn start_broker(&self) -> Result<()> {
        self.broker("start")
    }

    fn broker(&self, order: &str) -> Result<()> {
        if !self.started {
            let what = format!("broker {order}: {} is not ours", self.brokers);
            return Err(Error::new(codes::STACK_UNAVAILABLE, Fault::Configuration, what)
                .next("unset READBACK_BROKERS to run on a local stack"));
        }
        run(&self.dir, &["broker", order]).map(|_| ())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.started
            && let Err(e) = run(&self.dir, &["down", "--lease", &std::process::id().to_string()])
        {
            tracing::warn!("the local stack could not be released: {e}");
        }
    }
}

/// Writes script and files, each in one step, since another process may be reading them. Gives the full path.
fn install(dir: &Path) -> std::io::Result<PathBuf> {
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin)?;
    for (name, text) in [("stack", SCRIPT), ("pom.xml", POM), ("docker-compose.yml", COMPOSE)] {
        let path = bin.join(name);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        let new = bin.join(format!("{name}.{}", std::process::id()));
        std::fs::write(&new, text)?;
        std::fs::rename(&new, &path)?;
    }
    dir.canonicalize()
}

/// Runs the script; its output, or an error in its own words.
fn run(dir: &Path, arguments: &[&str]) -> Result<String> {
    let doing = || format!("local stack: {}", arguments.join(" "));
    let output = Command::new("bash")
        .arg(dir.join("bin/stack"))
        .args(arguments)
        .env("READBACK_STACK_DIR", dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| {
            Error::new(codes::STACK_UNAVAILABLE, Fault::Unreachable, doing())
                .because(e)
                .next("install bash, or set READBACK_BROKERS")
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().rev().find_map(|l| l.strip_prefix("stack: ")).unwrap_or("it failed without a word").to_owned();
    let next = said.lines().find_map(|l| l.trim_start().strip_prefix("next: "));
    let next = next.unwrap_or("look at the logs in the stack's directory, or set READBACK_BROKERS and READBACK_REGISTRY");
    Err(Error::new(codes::STACK_UNAVAILABLE, Fault::Unreachable, doing()).because(why).next(next))
}
