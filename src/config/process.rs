//! `readback.yaml`: how a process runs. What it runs is the topology's matter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::units::{ByteSize, Span};
use super::{Identity, SecretRef, Security};

/// The whole of `readback.yaml`, every field with a default that fits a laptop.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// Bootstrap servers, `host:port,host:port`.
    pub brokers: String,
    /// The schema registry.
    pub registry: RegistryConfig,
    /// How clients reach the brokers; without it in the clear, or as the raw settings say.
    pub security: Option<Security>,
    /// Raw client settings; those that the product owns are refused.
    pub kafka: BTreeMap<String, String>,
    /// Stores on disk.
    pub state: StateSection,
    /// Threads a unit.
    pub threads: Threads,
    /// Which slots this process takes.
    pub slots: Slots,
    /// Group and transaction times.
    pub group: GroupSection,
    /// The effect stage.
    pub effects: EffectsSection,
    /// Metrics and health.
    pub admin: AdminSection,
    /// Who may sign in at the console.
    pub console: ConsoleSection,
    /// Topics at start.
    pub topics: TopicsSection,
    /// Longest time from SIGTERM to exit.
    pub stop_within: Span,
}

/// The schema registry.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// `http://host:port`, with a path where the registry has one; empty = none.
    pub url: String,
    /// Basic authentication: the user.
    pub username: Option<String>,
    /// Basic authentication: the password, by reference.
    pub password: Option<SecretRef>,
    /// Bearer token, by reference.
    pub token: Option<SecretRef>,
    /// Certificates that the registry's must go back to (PEM); without it those of the system.
    pub ca: Option<PathBuf>,
    /// Our own certificate, where the registry asks for one.
    pub identity: Option<Identity>,
    /// Register missing schemas (`true`) or require that they are there.
    pub register: bool,
}

/// Stores on disk.
#[derive(Clone, Debug)]
pub struct StateSection {
    /// The state directory. Each process takes a directory in it, named by its first slot.
    pub dir: PathBuf,
    /// Block and object cache of all stores together.
    pub cache: ByteSize,
    /// Keep copies of the stores that come here if another process is gone.
    pub standby: bool,
}

/// Threads a unit.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// Of the stream unit.
    pub stream: u32,
    /// Of the effect unit.
    pub effects: u32,
}

/// Which slots this process takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slots {
    /// This process's ordinal; slot = ordinal × threads + thread. Without it the pod's or host's name decides, then the lock.
    pub ordinal: Option<u32>,
}

/// Group and transaction times.
#[derive(Clone, Copy, Debug)]
pub struct GroupSection {
    /// A member that is silent for so long is expelled.
    pub session_timeout: Span,
    /// What an unfenced crash can block; below the session timeout.
    pub transaction_timeout: Span,
    /// A transaction is committed at the latest after this.
    pub commit_interval: Span,
}

/// The effect stage.
#[derive(Clone, Debug)]
pub struct EffectsSection {
    /// ε: declared wall-clock error of this host. Printed as an assumption.
    pub clock_error: Span,
    /// P: longest pause assumed between the last check and the first byte. Printed as an assumption.
    pub max_pause: Span,
    /// How long closed ledger records are kept beyond close and deadline.
    pub audit: Span,
    /// Open operations a partition holds before its outbox is left waiting.
    pub max_open: usize,
    /// The key under which wire keys are derived.
    pub key_secret: Option<SecretRef>,
}

/// Metrics and health.
#[derive(Clone, Debug)]
pub struct AdminSection {
    /// Where `/metrics` and `/health` listen; port 0 takes a free one, empty = nowhere.
    pub listen: String,
    /// Whether `/stores` answers there, too: stores hold payloads, and the port has no login.
    pub stores: bool,
    /// Whether the console is served there, too.
    pub console: bool,
}

/// Who may sign in at the console.
#[derive(Clone, Debug)]
pub struct ConsoleSection {
    /// The file of tokens; without one nobody can sign in: the console is read-only and stays on loopback.
    pub tokens: Option<PathBuf>,
    /// How long a session lasts.
    pub session: Span,
    /// What sessions are signed with, where several processes share them.
    pub session_secret: Option<SecretRef>,
}

/// Topics at start.
#[derive(Clone, Debug)]
pub struct TopicsSection {
    /// Whether missing topics of the user are created; internal ones always are.
    pub create: bool,
    /// Replication of created topics; −1 = the broker's default.
    pub replication: i32,
    /// Partitions of created user topics.
    pub partitions: u32,
    /// Topics of ours whose loss is accepted: without this a start is refused where one was deleted or cut short.
    pub accept_loss: Vec<String>,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            brokers: "localhost:9092".into(),
            registry: RegistryConfig::default(),
            security: None,
            kafka: BTreeMap::new(),
            state: StateSection::default(),
            threads: Threads::default(),
            slots: Slots::default(),
            group: GroupSection::default(),
            effects: EffectsSection::default(),
            admin: AdminSection::default(),
            console: ConsoleSection::default(),
            topics: TopicsSection::default(),
            stop_within: Span(Duration::from_secs(20)),
        }
    }
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self { url: String::new(), username: None, password: None, token: None, ca: None, identity: None, register: true }
    }
}

impl Default for StateSection {
    fn default() -> Self {
        Self { dir: PathBuf::from("readback-state"), cache: ByteSize(64 << 20), standby: false }
    }
}

impl Default for Threads {
    fn default() -> Self {
        Self { stream: 1, effects: 1 }
    }
}

impl Default for GroupSection {
    fn default() -> Self {
        let seconds = |s| Span(Duration::from_secs(s));
        Self { session_timeout: seconds(15), transaction_timeout: seconds(10), commit_interval: Span(Duration::from_millis(100)) }
    }
}

impl Default for EffectsSection {
    fn default() -> Self {
        Self {
            clock_error: Span(Duration::from_millis(250)),
            max_pause: Span(Duration::from_secs(2)),
            audit: Span(Duration::from_secs(30 * 86_400)),
            max_open: 100_000,
            key_secret: None,
        }
    }
}

impl Default for AdminSection {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9464".into(), stores: false, console: false }
    }
}

impl Default for ConsoleSection {
    fn default() -> Self {
        Self { tokens: None, session: Span(Duration::from_secs(8 * 3_600)), session_secret: None }
    }
}

impl Default for TopicsSection {
    fn default() -> Self {
        Self { create: false, replication: -1, partitions: 4, accept_loss: Vec::new() }
    }
}
