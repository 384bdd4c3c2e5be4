//! What becomes of one post. Pure but for the secret, which is read when it is needed.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::contract::{Contract, Told, Unbelieved};
use crate::error::{Error, codes};
use crate::ids::{CallName, ContractName, DispatchToken, OperationId, StepName, Tenant};
use crate::intents::{Control, ControlKind, Hearsay, hex};
use crate::time::WallTime;

/// Posts that are remembered, so that one that comes again is answered without being written again.
const REMEMBERED: usize = 10_000;

/// The paths that are listened on, and the calls whose targets post there.
#[derive(Clone, Default)]
pub struct Book {
    paths: BTreeMap<String, Vec<(Arc<Contract>, CallName)>>,
}

/// One post.
#[derive(Clone, Copy, Debug)]
pub struct Posted<'a> {
    /// Its path.
    pub path: &'a str,
    /// Its headers, names in lower case.
    pub headers: &'a BTreeMap<String, String>,
    /// Its body, as it came.
    pub body: &'a [u8],
}

/// What becomes of a post.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// It speaks of an operation: to be written, then answered with 2xx.
    Told(Box<Control>),
    /// The target's own, and says nothing of any operation.
    Ignored,
    /// Not believed.
    Unbelieved(Unbelieved),
    /// Nobody posts there.
    NoSuchPath,
    /// The target's own, and not as its contract says: why, without payload.
    Unreadable(String),
}

impl Book {
    /// All webhooks of these contracts.
    pub fn of<'c>(contracts: impl IntoIterator<Item = &'c Arc<Contract>>) -> Self {
        let mut book = Self::default();
        for contract in contracts {
            for (name, call) in &contract.calls {
                if let Some(webhook) = &call.webhook {
                    book.paths.entry(webhook.path.clone()).or_default().push((contract.clone(), name.clone()));
                }
            }
        }
        book
    }

    /// Whether nobody posts anything.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.keys().map(String::as_str)
    }

    /// The contract whose target posts on a path, for metrics.
    pub fn contract_at(&self, path: &str) -> Option<&ContractName> {
        self.paths.get(path).and_then(|all| all.first()).map(|(contract, _)| &contract.name)
    }

    /// Believes a post or not, and reads it: by the first call of its path whose signature fits and whose rules speak of it.
    ///
    /// # Errors
    /// Where a secret can't be read.
    pub fn receive(&self, posted: &Posted<'_>, now: WallTime) -> Result<Outcome, Error> {
        let Some(calls) = self.paths.get(posted.path) else { return Ok(Outcome::NoSuchPath) };
        let header = |name: &str| posted.headers.get(name).map(String::as_str);
        let mut outcome = Outcome::Unbelieved(Unbelieved::Unsigned);
        for (contract, name) in calls {
            let Some(call) = contract.call(name) else { continue };
            match call.signed(header, posted.body, now)? {
                Err(why) => {
                    if matches!(outcome, Outcome::Unbelieved(_)) {
                        outcome = Outcome::Unbelieved(why);
                    }
                }
                Ok(()) => match call.told(posted.body) {
                    Ok(Some(told)) => return Ok(Outcome::Told(Box::new(said(&contract.name, told, posted.body, now)))),
                    Ok(None) => outcome = Outcome::Ignored,
                    Err(why) => outcome = Outcome::Unreadable(why),
                },
            }
        }
        Ok(outcome)
    }
}

/// Hearsay whose token is the operation's key: nobody but the target and its owner has it.
fn said(contract: &ContractName, told: Told, body: &[u8], now: WallTime) -> Control {
    Control {
        kind: ControlKind::Webhook,
        tenant: Tenant::new(""),
        operation_id: OperationId::new(""),
        step: StepName::new(""),
        deadline: now,
        command: None,
        hearsay: Some(Hearsay {
            attempt: 0,
            token: DispatchToken::new(told.key.as_str()),
            class: told.class,
            status: None,
            digest: Some(hex(&Sha256::digest(body))),
            reference: told.reference,
            seen_at: now,
        }),
        contract: Some(contract.clone()),
        identity_hash: None,
    }
}

/// The posts that were written lately: one that comes again says nothing new.
#[derive(Debug, Default)]
pub struct Seen {
    known: HashSet<[u8; 32]>,
    order: VecDeque<[u8; 32]>,
}

impl Seen {
    /// A post's digest: path and body.
    pub fn digest(posted: &Posted<'_>) -> [u8; 32] {
        let mut h = Sha256::new();
        h.update((posted.path.len() as u64).to_be_bytes());
        h.update(posted.path.as_bytes());
        h.update(posted.body);
        h.finalize().into()
    }

    /// Whether it was written already.
    pub fn knows(&self, digest: &[u8; 32]) -> bool {
        self.known.contains(digest)
    }

    /// It is written.
    pub fn remember(&mut self, digest: [u8; 32]) {
        if self.known.insert(digest) {
            self.order.push_back(digest);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

impl Outcome {
    /// The status that it is answered with, and a word for metrics. A target posts again what is not answered with 2xx.
    pub fn answer(&self) -> (u16, &'static str) {
        match self {
            Outcome::Told(_) => (200, "taken"),
            Outcome::Ignored => (200, "ignored"),
            Outcome::Unbelieved(Unbelieved::Unsigned) => (401, "unsigned"),
            Outcome::Unbelieved(Unbelieved::Forged) => (401, "forged"),
            Outcome::Unbelieved(Unbelieved::Stale) => (401, "stale"),
            Outcome::NoSuchPath => (404, "no_such_path"),
            Outcome::Unreadable(_) => (422, "unreadable"),
        }
    }

    /// The code of a refusal, for the log.
    pub fn code(&self) -> Option<crate::error::Code> {
        match self {
            Outcome::Told(_) | Outcome::Ignored | Outcome::NoSuchPath => None,
            Outcome::Unbelieved(_) => Some(codes::WEBHOOK_UNBELIEVED),
            Outcome::Unreadable(_) => Some(codes::WEBHOOK_UNREADABLE),
        }
    }
}
