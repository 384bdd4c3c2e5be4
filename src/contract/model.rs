//! A contract after parsing and lint: every field typed, every reference resolved, nothing left to guess at run time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::yaml::Diagnostics;
use crate::ids::{CallName, ContractName};

use super::Promise;

/// One target API and its calls.
#[derive(Clone, Debug)]
pub struct Contract {
    /// Its name; `orders` of `orders#create`.
    pub name: ContractName,
    /// Its version; an operation keeps the version of its intent.
    pub version: i64,
    /// When someone last compared this with the real API, `YYYY-MM-DD`.
    pub verified_on: String,
    /// The target.
    pub target: Target,
    /// Its calls.
    pub calls: BTreeMap<CallName, Call>,
    /// What is possible but weak.
    pub warnings: Diagnostics,
}

impl Contract {
    /// The call of this name.
    pub fn call(&self, name: &CallName) -> Option<&Call> {
        self.calls.get(name)
    }
}

/// What a promise rests on and nobody can check from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assumption {
    /// In words.
    pub text: String,
    /// `contracts/orders.yaml:28`.
    pub at: String,
}

/// Where the target is and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The base URL, references resolved: `https://orders.internal`.
    pub base_url: String,
    /// Hosts that may be connected to.
    pub hosts: Vec<String>,
    /// Whether private and loopback addresses are allowed.
    pub private: bool,
    /// In which version of HTTP it is spoken to.
    pub protocol: Protocol,
    /// Credentials, by reference; read at send time.
    pub credentials: Vec<Credentials>,
}

/// In which version of HTTP a target is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// What the target chooses over TLS, for calls that may share a connection's streams; HTTP/1.1 for all others.
    Auto,
    /// HTTP/2; without TLS by prior knowledge.
    Http2,
}

/// A header whose value holds a secret that is read at send time.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// `authorization`.
    pub header: String,
    /// `Bearer `.
    pub prefix: String,
    /// Where the secret is.
    pub secret: crate::config::SecretRef,
}

/// One call. Expressions and templates are compiled and private to `contract/`; they are asked by methods.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name.
    pub name: CallName,
    /// The idempotency key on the wire.
    pub key: KeySpec,
    /// What the target does with a key that it has seen.
    pub dedupe: Option<Dedupe>,
    /// What the target refuses by itself, so that a re-send is no second effect.
    pub fence: Option<Fence>,
    /// Whether the resource must still stand at the version that the requester saw.
    pub precondition: Option<Precondition>,
    /// What makes an effect confirmed.
    pub confirm: Confirm,
    /// How it is read back.
    pub readback: Option<Readback>,
    /// `L`: how long a request may still arrive after its last byte left us. `None` = unbounded.
    pub in_flight: Option<Bound>,
    /// Whether intermediaries that may copy or retry requests are ruled out.
    pub no_intermediaries: bool,
    /// When an applied answer is the effect.
    pub completion: Completion,
    /// How the target tells by itself, where it does.
    pub webhook: Option<Webhook>,
    /// What undoes an effect of it that was cancelled too late, or whose plan is undone.
    pub compensate: Option<Compensate>,
    /// Whether this call asks for a proposal (duplicates accepted and counted).
    pub proposal: bool,
    /// The retry budget and limits.
    pub budget: Budget,
    /// What happens where nothing proves the outcome.
    pub unprovable: Unprovable,
    /// Whether an operation behind a parked one waits or goes on.
    pub lane: LaneRule,
    /// What its promise rests on.
    pub assumptions: Vec<Assumption>,
    /// Digest of its definition as written, whatever the layout: what an approver approves is bound to it.
    pub definition: String,
    /// The compiled rest.
    pub(super) compiled: super::compiled::Compiled,
}

impl Call {
    /// The path as its author wrote it, with the names of parameters: `/orders/{id}`.
    pub fn path_template(&self) -> String {
        self.compiled.request.path.pattern()
    }
    /// The path of the readback, likewise; empty where there is none.
    pub fn readback_path_template(&self) -> String {
        self.compiled.readback.as_ref().map(|r| r.request.path.pattern()).unwrap_or_default()
    }
}

/// The key on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeySpec {
    /// Where it goes.
    pub carrier: Carrier,
    /// Its shape.
    pub format: KeyFormat,
}

/// Where the key goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// Into the body, by the placeholder `{key}`.
    Body,
    /// Into the path or query, by the placeholder.
    Url,
    /// A header of this name.
    Header(String),
    /// Nowhere: the target knows no key.
    None,
}

/// The key's shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyFormat {
    /// A UUID.
    Uuid,
    /// Lower-case hex of this many characters, at most 64.
    Hex(usize),
}

/// How long the target remembers a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retention {
    /// For ever.
    Forever,
    /// For this long after the first use, less a margin.
    For(Duration),
}

/// The target drops a second request under the same key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dedupe {
    /// `R`.
    pub retention: Retention,
    /// Status for the same key with another body.
    pub other_body: Option<u16>,
    /// Status while the first is running.
    pub while_running: Option<u16>,
}

/// What the target refuses by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fence {
    /// A second creation under the operation's key, for ever; these statuses say that the key is taken.
    Create(Vec<u16>),
    /// A request that is too old by the time stamp that it carries.
    Age(Age),
}

/// The call that undoes another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compensate {
    /// Which, of the same contract.
    pub call: CallName,
    /// How long from the original's close it may be tried; then it goes to a person.
    pub deadline: Duration,
}

/// The target refuses requests beyond an age.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Age {
    /// The age.
    pub within: Duration,
    /// The header that carries the time stamp of each attempt.
    pub header: String,
    /// How it is written.
    pub format: StampFormat,
    /// The statuses that say: too old, nothing done.
    pub refused: Vec<u16>,
}

/// How a time stamp is written. Each drops what it can't show, so that a stamp is never later than the attempt's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampFormat {
    /// Whole seconds since 1970.
    Unix,
    /// As in `Date`.
    HttpDate,
    /// RFC 3339 with milliseconds, UTC.
    Rfc3339,
}

/// The resource must still stand at the version that the requester saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Precondition {
    /// The request carries the version, and the target compares it in one step with the change.
    pub sent: bool,
    /// The target never uses a version again, so it refuses every copy of a request but one.
    pub never_reused: bool,
    /// It is read before each send.
    pub read: bool,
}

/// What makes an effect confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Confirm {
    /// The target's answer suffices.
    Answer,
    /// Only a readback does.
    Readback,
}

/// Facts of the readback; its template and predicates are in `compiled`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Readback {
    /// `V`: longest time until an effect shows.
    pub lag: Duration,
    /// Most pages that are followed.
    pub pages: u32,
}

/// `L` with its justification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The bound.
    pub within: Duration,
    /// Why it holds.
    pub because: String,
}

/// Where and when a target posts how a call ended; its signature and predicates are in `compiled`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Webhook {
    /// The path on our listener.
    pub path: String,
    /// How long after a call its webhook may come; then it is not waited for any more.
    pub within: Duration,
}

/// When an applied answer is the effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// At once.
    Sync,
    /// Later: polling the readback confirms.
    Poll,
    /// Later: the target posts to us how it ended.
    Webhook,
}

/// Limits of one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Calls at once, all partitions of the process together.
    pub concurrency: usize,
    /// Longest deadline that admission takes.
    pub deadline: Duration,
    /// Attempts per operation.
    pub attempts: u32,
    /// Readbacks per operation before it is parked.
    pub readbacks: u32,
    /// For name, connection and TLS.
    pub connect: Duration,
    /// A call's own limit (`cut`).
    pub timeout: Duration,
    /// How long an attempt may wait between journal and first byte (`window`).
    pub window: Duration,
    /// After this an unknown is parked.
    pub unknown_max_age: Duration,
    /// Largest answer body.
    pub answer: usize,
}

/// What happens where nothing proves the outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unprovable {
    /// A person decides.
    Person,
    /// Sent again; duplicates are accepted and counted.
    DuplicatesAccepted,
}

/// Whether an operation behind a parked one waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneRule {
    /// It waits.
    Block,
    /// It goes on.
    Skip,
}

impl Call {
    /// What may be printed for this call.
    pub fn promise(&self) -> Promise {
        let retention = self.dedupe.as_ref().map(|d| d.retention);
        match (retention, &self.readback, &self.in_flight) {
            _ if self.proposal || self.unprovable == Unprovable::DuplicatesAccepted => Promise::DuplicatesCounted,
            (Some(Retention::Forever), _, _) => Promise::AtMostOneKeyed,
            _ if self.refuses_copies() => Promise::AtMostOneConditional,
            _ if self.creates_once() => Promise::AtMostOneCreated,
            (Some(Retention::For(window)), _, _) => Promise::AtMostOneKeyedWhile(window),
            (None, Some(_), bound) if self.max_age().is_some_and(|age| bound.as_ref().is_none_or(|b| age < b.within)) => {
                Promise::AtMostOneFenced(self.max_age().unwrap_or_default())
            }
            (None, Some(_), Some(_)) => Promise::AtMostOneReadback,
            (None, Some(_), None) => Promise::AtMostOneReadbackPerson,
            (None, None, _) => Promise::AtMostOnePerson,
        }
    }

    /// Whether the target makes at most one thing under the operation's key.
    pub fn creates_once(&self) -> bool {
        matches!(self.fence, Some(Fence::Create(_)))
    }

    /// Beyond which age the target refuses a request.
    pub fn max_age(&self) -> Option<Duration> {
        match &self.fence {
            Some(Fence::Age(age)) => Some(age.within),
            _ => None,
        }
    }

    /// Whether the target refuses every copy of a request but one, for ever.
    pub fn refuses_copies(&self) -> bool {
        self.precondition.is_some_and(|p| p.sent && p.never_reused)
    }
}

/// Typed parameters of a call: a JSON object whose members passed the contract's declarations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parameters(pub serde_json::Map<String, serde_json::Value>);
