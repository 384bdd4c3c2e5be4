//! `readback.yaml`: how a process runs. What it runs is the topology's matter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::units::{ByteSize, Span};
use super::{Identity, Net, SecretRef, Security};

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
    /// Where targets post what became of their calls.
    pub webhooks: WebhooksSection,
    /// Metrics and health.
    pub admin: AdminSection,
    /// Who may sign in at the console.
    pub console: ConsoleSection,
    /// What metrics tell apart.
    pub metrics: MetricsSection,
    /// Where traces go, and what is sampled.
    pub traces: TracesSection,
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
    /// What the record caches of all threads hold together.
    pub record_cache: ByteSize,
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
    /// How members and coordinator share partitions out.
    pub protocol: GroupProtocol,
    /// A member that is silent for so long is expelled.
    pub session_timeout: Span,
    /// What an unfenced crash can block; below the session timeout.
    pub transaction_timeout: Span,
    /// A transaction is committed at the latest after this.
    pub commit_interval: Span,
}

/// How members and coordinator share partitions out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GroupProtocol {
    /// Static members in slots: who comes back within a session finds its partitions, and with them its stores.
    #[default]
    Classic,
    /// KIP-848: the coordinator assigns, partition by partition, to members that have no slot in the group. For units without stores.
    Consumer,
}

impl GroupProtocol {
    /// Each with its name.
    pub const ALL: [(&'static str, GroupProtocol); 2] =
        [("classic", GroupProtocol::Classic), ("consumer", GroupProtocol::Consumer)];

    /// As the setting and Kafka write it.
    pub fn name(self) -> &'static str {
        match self {
            GroupProtocol::Classic => "classic",
            GroupProtocol::Consumer => "consumer",
        }
    }
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

/// Where targets post what became of their calls.
#[derive(Clone, Debug, Default)]
pub struct WebhooksSection {
    /// `host:port`; port 0 takes a free one, empty = nowhere.
    pub listen: String,
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
    /// Proxies whose word is believed of where a request came from.
    pub trusted_proxies: Vec<Net>,
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
    /// Sign-in by an OpenID Connect issuer.
    pub oidc: Option<OidcSection>,
    /// Where members' `/metrics` are, `host:port` each; empty: the console shows what its own process measures.
    pub members: Vec<String>,
}

/// Sign-in by an OpenID Connect issuer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OidcSection {
    /// The issuer, exactly as its tokens name it.
    pub issuer: String,
    /// Our client ID there.
    pub client_id: String,
    /// Our secret there; without one we are a public client.
    pub client_secret: Option<SecretRef>,
    /// A value of the roles claim, and the roles that it stands for, with commas.
    pub roles: BTreeMap<String, String>,
    /// Where those values stand in a token: a claim, or a path of claims with dots.
    pub roles_claim: String,
    /// The claim that becomes the person's name.
    pub name_claim: String,
    /// Scopes that are asked for, with spaces.
    pub scopes: String,
    /// The audience that bearer tokens for the API must have.
    pub audience: String,
    /// Where the issuer sends people back to; `None`: made of the host that they use.
    pub redirect_url: Option<String>,
    /// Certificates that are trusted beside the public ones.
    pub ca: Option<PathBuf>,
}

/// What metrics tell apart.
#[derive(Clone, Debug, Default)]
pub struct MetricsSection {
    /// Tenants that have series of their own; all others share one.
    pub tenants: Vec<String>,
}

/// Where traces go, and what is sampled.
#[derive(Clone, Debug)]
pub struct TracesSection {
    /// Whether there are any.
    pub enabled: bool,
    /// The collector's address for traces by OTLP over HTTP, with its path; empty = nowhere.
    pub endpoint: String,
    /// Headers for the collector as `name=value,name=value`, by reference.
    pub headers: Option<SecretRef>,
    /// Share of the requests without a `traceparent` that are sampled, 0 to 1.
    pub sample: f64,
    /// Whether a `traceparent` that comes with a request decides by its flag.
    pub follow: bool,
    /// Whether calls to targets carry a `traceparent`.
    pub propagate: bool,
    /// `service.name`; empty = the application's name.
    pub service: String,
    /// More attributes of the resource, `name=value,name=value`.
    pub resource: String,
    /// How long one export may take.
    pub timeout: Span,
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
    /// Names the loss of state that a person agreed to, as the refused start showed it.
    pub accept_reset: Option<String>,
    /// How often settings of topics and brokers are looked at again; zero: never.
    pub watch: Span,
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
            webhooks: WebhooksSection::default(),
            admin: AdminSection::default(),
            console: ConsoleSection::default(),
            metrics: MetricsSection::default(),
            traces: TracesSection::default(),
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
        Self { dir: PathBuf::from("readback-state"), cache: ByteSize(64 << 20), record_cache: ByteSize(10 << 20), standby: false }
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
        Self {
            protocol: GroupProtocol::Classic,
            session_timeout: seconds(15),
            transaction_timeout: seconds(10),
            commit_interval: Span(Duration::from_millis(100)),
        }
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
        Self { listen: "127.0.0.1:9464".into(), stores: false, console: false, trusted_proxies: Vec::new() }
    }
}

impl Default for ConsoleSection {
    fn default() -> Self {
        Self { tokens: None, session: Span(Duration::from_secs(8 * 3_600)), session_secret: None, oidc: None, members: Vec::new() }
    }
}

impl Default for TracesSection {
    fn default() -> Self {
        Self {
            enabled: true,
            endpoint: String::new(),
            headers: None,
            sample: 0.1,
            follow: true,
            propagate: true,
            service: String::new(),
            resource: String::new(),
            timeout: Span(Duration::from_secs(10)),
        }
    }
}

impl Default for TopicsSection {
    fn default() -> Self {
        Self {
            create: false,
            replication: -1,
            partitions: 4,
            accept_loss: Vec::new(),
            accept_reset: None,
            watch: Span(Duration::from_secs(60)),
        }
    }
}
