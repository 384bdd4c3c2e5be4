//! What people did, or tried to do, as records of `<app>-audit`: JSON, one object each, keyed by the operation. Pages, API and command
//! line write the same ones; those of the command line say that nobody has proved who it was.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::ApplicationId;
use crate::intents::{Command, headers, topics};
use crate::kafka::{Cluster, KafkaFault, NewTopic};
use crate::record::{Headers, OutRecord};
use crate::time::WallTime;

use super::second::Waiting;

/// How long a record may take to be written.
const WRITE: Duration = Duration::from_secs(20);

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// Refused here; nothing was written.
    Refused,
    /// It waits for a second person; nothing is ordered yet.
    Waits,
    /// The command is about to be written to the commands topic.
    Ordered,
    /// A member answered the command.
    Answered,
    /// No member has answered yet, and the command stays in the topic; or nobody knows whether it was done.
    Unanswered,
    /// A session began.
    SignedIn,
    /// A session was ended.
    SignedOut,
    /// Values were shown that are hidden otherwise.
    Shown,
}

/// By which way somebody came, and with it whether they have shown who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// Pages and API of the console: whoever is named has signed in, or shown a token of their own.
    Console,
    /// The command line, straight to the topics: names are recorded as they were given.
    Cli,
}

/// One record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Entry {
    /// `readback.audit/1`.
    pub schema: &'static str,
    /// When.
    pub at: String,
    /// Who; empty where nobody is known.
    pub who: String,
    /// By which way.
    pub via: Via,
    /// Whether `who` and `second` have shown that it is them.
    pub verified: bool,
    /// From which address; on the command line from which machine.
    pub from: String,
    /// What: `resolve_applied`, `approve`, `sign_in` …
    pub action: String,
    /// What came of it.
    pub came: Came,
    /// About which operation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// Whose operation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// At which step.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// Which dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letter: Option<String>,
    /// What else it is about: what is paused, whose state is given up, which filter has found the operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The version that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<i64>,
    /// The plan that a decision is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_hash: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// The second person: at the console they have shown a token of their own or signed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<String>,
    /// Somebody's subject at the issuer, where that vouched for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The session that was ended: other processes end it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// An order that waits, and our seal over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// The seal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// The command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Why not, where it was refused here or by the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Entry {
    /// A record of the console with what every one has; `who` is empty where nobody is known.
    pub fn new(at: WallTime, who: &str, from: &str, action: &str, came: Came) -> Self {
        Self {
            schema: "readback.audit/1",
            at: at.to_string(),
            who: who.to_owned(),
            via: Via::Console,
            verified: !who.is_empty(),
            from: from.to_owned(),
            action: action.to_owned(),
            came,
            operation: String::new(),
            tenant: String::new(),
            step: String::new(),
            letter: None,
            scope: None,
            seen: None,
            plan_hash: None,
            reason: String::new(),
            evidence: None,
            second: None,
            subject: None,
            session: None,
            waiting: None,
            seal: None,
            command: None,
            code: None,
            detail: String::new(),
        }
    }

    /// A record of the command line: whoever it names has only been named.
    pub fn typed(at: WallTime, who: &str, machine: &str, action: &str, came: Came) -> Self {
        Self { via: Via::Cli, verified: false, ..Self::new(at, who, machine, action, came) }
    }

    /// The same, of somebody who has signed in.
    #[must_use]
    pub fn of(self, who: &str) -> Self {
        Self { who: who.to_owned(), verified: !who.is_empty(), ..self }
    }

    /// What a command is about, and what it says.
    #[must_use]
    pub fn about(mut self, command: &Command) -> Self {
        self.operation = command.operation_id.to_string();
        self.tenant = command.tenant.to_string();
        self.step = command.step.as_ref().map(ToString::to_string).unwrap_or_default();
        (self.seen, self.reason) = (command.seen, command.reason.clone());
        (self.evidence, self.second) = (command.evidence.clone(), command.second.clone());
        self.plan_hash = command.approval.as_ref().map(|a| a.plan_hash.to_string()).filter(|h| !h.is_empty());
        self.command = Some(command.command_id.to_string());
        self
    }

    /// Why not.
    pub fn refuse(&mut self, e: &Error) {
        (self.came, self.code, self.detail) = (Came::Refused, Some(e.code.to_string()), crate::outbox::cut(&e.to_string()));
    }
}

/// The audit topic of an application.
pub struct Trail<C: Cluster> {
    cluster: C,
    app: ApplicationId,
    made: Mutex<bool>,
}

fn away(doing: &str) -> impl Fn(KafkaFault) -> Error + '_ {
    move |fault| {
        crate::runtime::unreached(doing, "check that the brokers answer; what can't be written down there is not done", fault)
    }
}

impl<C: Cluster> Trail<C> {
    /// Of `app` on `cluster`.
    pub fn new(cluster: C, app: ApplicationId) -> Self {
        Self { cluster, app, made: Mutex::default() }
    }

    /// Writes a record, and waits until it is there.
    ///
    /// # Errors
    /// `BROKER_UNREACHABLE`, `NOT_PERMITTED` and what else the cluster says.
    pub fn write(&self, entry: &Entry) -> Result<()> {
        self.made()?;
        let bug = |e| Error::new(codes::BUG, Fault::Bug, "writing an audit record").because(e);
        let value = serde_json::to_vec(entry).map_err(bug)?;
        let topic = topics::audit(&self.app);
        let headers = Headers::new().with(headers::SCHEMA, "audit/1");
        let key = (!entry.operation.is_empty()).then_some(entry.operation.as_bytes());
        let record =
            OutRecord { topic: &topic, partition: None, timestamp: None, key, value: Some(&value), headers: Some(&headers) };
        self.cluster.publish(&[record], WRITE).map_err(away("writing an audit record"))?;
        Ok(())
    }

    /// The topic is kept for ever: nobody but the cluster's owner deletes from it.
    fn made(&self) -> Result<()> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if *made {
            return Ok(());
        }
        let (name, doing) = (topics::audit(&self.app), "making the audit topic");
        let admin = self.cluster.admin().map_err(away(doing))?;
        if admin.topic(&name).map_err(away(doing))?.is_none() {
            let config = BTreeMap::from([("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")]);
            let config = config.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            admin.create(&[NewTopic { name: name.clone(), partitions: 1, replication: -1, config }]).map_err(away(doing))?;
            crate::runtime::wait_for_topic(admin.as_ref(), &name)?;
        }
        *made = true;
        Ok(())
    }
}
