//! The guarded schema registry client: what is asked is bounded, what is remembered depends on why it failed, and nothing of a
//! credential or URL reaches a log.
//!
//! Calls at start block the caller within [`Patience`]. Those for a record wait for [`Patience::wait`] at most: a stream thread has
//! other partitions to serve. The requests themselves run on threads of the client's own.

mod ask;
mod client;
mod codec;
mod level;
mod memory;
mod references;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Identity, SecretRef};
use crate::error::{Error, Fault, Result, codes};
use crate::serdes::{ParsedSchema, SchemaSource};

use ask::{Answer, Answered};
use client::{Client, Failure};
use memory::Memory;

/// How the registry knows us.
#[derive(Clone, Debug)]
pub enum RegistryAuth {
    /// It does not ask.
    None,
    /// User and password; a key and its secret in a cloud.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: SecretRef,
    },
    /// A token.
    Bearer(SecretRef),
}

/// Whose certificates are believed, and which one is ours.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// File of authorities (PEM); without it those of the system.
    pub ca: Option<PathBuf>,
    /// Our own, where the registry asks for one.
    pub identity: Option<Identity>,
}

/// How long one call may take, and what is remembered for how long.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// One request.
    pub request: Duration,
    /// Requests in one call, where the failure passes.
    pub tries: u32,
    /// Before the second request; doubled for each after.
    pub backoff: Duration,
    /// How long whoever has a record at hand is kept waiting for an answer; the request goes on.
    pub wait: Duration,
    /// How long an id that the registry does not know is not asked for again (C016).
    pub missing: Duration,
    /// How long an id is not asked for again after a failure that passes or a refusal. Short: it must not look permanent (C017).
    pub failed: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(5),
            tries: 3,
            backoff: Duration::from_millis(100),
            wait: Duration::from_millis(250),
            missing: Duration::from_secs(30),
            failed: Duration::from_secs(1),
        }
    }
}

/// Whether a schema of ours may be added to the registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ensure {
    /// Register it where it is new.
    Register,
    /// It must be there already: a start without it fails.
    MustExist,
}

/// How a subject is named (C025). Reading needs none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubjectNames {
    /// `<topic>-value` or `<topic>-key`.
    Topic,
    /// `<record>`.
    Record,
    /// `<topic>-<record>`.
    TopicRecord,
}

impl SubjectNames {
    /// The subject of a topic's value (or key) with this record.
    pub fn subject(self, topic: &str, record: &str, key: bool) -> String {
        match self {
            SubjectNames::Topic => format!("{topic}-{}", if key { "key" } else { "value" }),
            SubjectNames::Record => record.to_owned(),
            SubjectNames::TopicRecord => format!("{topic}-{record}"),
        }
    }
}

/// The client; cheap to clone.
#[derive(Clone)]
pub struct Registry {
    client: Arc<Client>,
    memory: Arc<Memory>,
    patience: Patience,
    topics: Arc<codec::Topics>,
}

impl Registry {
    /// A client of the registry at `url`; asks nothing yet.
    ///
    /// # Errors
    /// `BAD_VALUE` for a URL without scheme or with credentials in it.
    pub fn new(url: &str, auth: RegistryAuth) -> Result<Self> {
        Self::with(url, auth, Patience::default())
    }

    /// As [`Registry::new`], over TLS with certificates of the house.
    ///
    /// # Errors
    /// As [`Registry::new`].
    pub fn trusting(url: &str, auth: RegistryAuth, trust: Trust) -> Result<Self> {
        Self::made(url, auth, trust, Patience::default())
    }

    /// As [`Registry::new`], with another patience.
    ///
    /// # Errors
    /// As [`Registry::new`].
    pub fn with(url: &str, auth: RegistryAuth, patience: Patience) -> Result<Self> {
        Self::made(url, auth, Trust::default(), patience)
    }

    fn made(url: &str, auth: RegistryAuth, trust: Trust, patience: Patience) -> Result<Self> {
        Ok(Self {
            client: Arc::new(Client::new(url, auth, trust, patience)?),
            memory: Arc::default(),
            patience,
            topics: Arc::default(),
        })
    }

    /// Registers a schema under a subject; answers its id, also where it was there before.
    ///
    /// # Errors
    /// `SCHEMA_INCOMPATIBLE` where the registry's rules forbid it; `REGISTRY_UNREACHABLE`, `REGISTRY_REFUSED`.
    pub fn register(&self, subject: &str, avsc: &str) -> Result<u32> {
        self.client.register(subject, avsc).map_err(|f| self.error(f, format!("registering a schema under {subject}")))
    }

    /// The id under which this very schema stands under the subject.
    ///
    /// # Errors
    /// `SCHEMA_MISSING`, `REGISTRY_UNREACHABLE`, `REGISTRY_REFUSED`.
    pub fn id_of(&self, subject: &str, avsc: &str) -> Result<u32> {
        self.client.look_up(subject, avsc).map_err(|f| self.error(f, format!("looking up a schema under {subject}")))
    }

    /// The text of the newest schema under a subject.
    ///
    /// # Errors
    /// `SCHEMA_MISSING`, `SCHEMA_INCOMPATIBLE` where it is no Avro; `REGISTRY_UNREACHABLE`, `REGISTRY_REFUSED`.
    pub fn newest_under(&self, subject: &str) -> Result<String> {
        let found = self.client.newest(subject).map(|(_, text)| text);
        found.map_err(|f| self.error(f, format!("asking for the newest schema under {subject}")))
    }

    /// Whether the registry's rules for this subject allow the schema; a subject that does not exist allows all.
    ///
    /// # Errors
    /// `REGISTRY_UNREACHABLE`, `REGISTRY_REFUSED`.
    pub fn check_compatible(&self, subject: &str, avsc: &str) -> Result<bool> {
        match self.client.compatible(subject, avsc) {
            Err(Failure::Missing) => Ok(true),
            other => other.map_err(|f| self.error(f, format!("checking a schema under {subject}"))),
        }
    }

    /// Which changes the registry allows under a subject: its own level, else the global one (`BACKWARD`, `NONE` …).
    ///
    /// # Errors
    /// `REGISTRY_UNREACHABLE`, `REGISTRY_REFUSED`.
    pub fn compatibility(&self, subject: &str) -> Result<String> {
        let level = self.client.level(Some(subject)).or_else(|failure| match failure {
            Failure::Missing => self.client.level(None),
            other => Err(other),
        });
        level.map_err(|f| self.error(f, format!("asking for the compatibility of {subject}")))
    }

    /// The id of our schema, registered first where `mode` allows.
    ///
    /// # Errors
    /// As [`Registry::register`] and [`Registry::id_of`].
    pub fn ensure(&self, subject: &str, avsc: &str, mode: Ensure) -> Result<u32> {
        match mode {
            Ensure::Register => self.register(subject, avsc),
            Ensure::MustExist => self.id_of(subject, avsc).map_err(|e| match e.code {
                codes::SCHEMA_MISSING => e.next("register it first, or allow registering: registry.register"),
                _ => e,
            }),
        }
    }

    fn error(&self, failure: Failure, doing: String) -> Error {
        let host = &self.client.host;
        match failure {
            Failure::Missing => Error::new(codes::SCHEMA_MISSING, Fault::Data, doing).because(format!("{host} does not know it")),
            Failure::Refused(why) => Error::new(codes::REGISTRY_REFUSED, Fault::Configuration, doing)
                .because(format!("{host}: {why}"))
                .next("check the registry's credentials, certificates and URL; records wait, none is lost"),
            Failure::Passing(why) => Error::new(codes::REGISTRY_UNREACHABLE, Fault::Unreachable, doing)
                .because(format!("{host}: {why}"))
                .next("check that the registry answers at registry.url (--registry), then try again"),
            Failure::Unfit(why) => {
                Error::new(codes::SCHEMA_INCOMPATIBLE, Fault::Configuration, doing).because(format!("{host}: {why}"))
            }
        }
    }

    /// Asks for a schema's text by its id, on a thread of the client.
    fn fetch(&self, id: u32, done: Answered<Arc<ParsedSchema>>) {
        self.client.aside(move |client| parsed(&client.by_id(id)?), done);
    }
}

fn parsed(text: &str) -> Answer<Arc<ParsedSchema>> {
    ParsedSchema::parse_writer(text).map(Arc::new).map_err(|e| Failure::Unfit(e.to_string()))
}

impl SchemaSource for Registry {
    fn by_id(&self, id: u32) -> Result<Arc<ParsedSchema>> {
        self.memory.get(id, self.patience, |done| self.fetch(id, done)).map_err(|f| {
            let data = matches!(f, Failure::Unfit(_));
            let mut error = self.error(f, format!("asking for schema {id}"));
            if data {
                error.fault = Fault::Data;
            }
            error
        })
    }
}
