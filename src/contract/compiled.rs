//! Templates and predicates of a call, compiled.

use std::collections::BTreeMap;
use std::time::Duration;

use super::params::Parameter;
use super::template::{JsonTemplate, Template};
use super::webhook::Scheme;
use crate::config::yaml::Site;
use crate::config::{CelExpr, SecretRef};
use crate::intents::AnswerClass;

/// The compiled part of a call.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) parameters: BTreeMap<String, Parameter>,
    pub(super) request: RequestTemplate,
    pub(super) answers: Vec<AnswerRule>,
    pub(super) readback: Option<ReadbackRules>,
    pub(super) version: Option<VersionRules>,
    pub(super) undo: Option<UndoRules>,
    pub(super) sign: Option<SignRules>,
    pub(super) proposal: Option<ProposalRules>,
    pub(super) webhook: Option<WebhookRules>,
    pub(super) look_at: Option<Template>,
}

/// A request with holes.
#[derive(Clone, Debug)]
pub(super) struct RequestTemplate {
    pub(super) method: String,
    pub(super) path: Template,
    pub(super) query: Vec<(String, Template)>,
    pub(super) headers: Vec<(String, Template)>,
    pub(super) json: Option<JsonTemplate>,
}

impl RequestTemplate {
    /// All placeholders.
    pub(super) fn names(&self) -> Vec<&str> {
        let texts = self.query.iter().chain(&self.headers).flat_map(|(_, t)| t.names());
        self.path.names().chain(texts).chain(self.json.iter().flat_map(JsonTemplate::names)).collect()
    }
}

/// One line of `answers`: first match wins.
#[derive(Clone, Debug)]
pub(super) struct AnswerRule {
    pub(super) statuses: Vec<(u16, u16)>,
    pub(super) when: Option<CelExpr>,
    pub(super) means: AnswerClass,
    pub(super) evidence: Option<CelExpr>,
}

impl AnswerRule {
    pub(super) fn covers(&self, status: u16) -> bool {
        self.statuses.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}

/// How a readback is asked and judged.
#[derive(Clone, Debug)]
pub(super) struct ReadbackRules {
    pub(super) request: RequestTemplate,
    /// Statuses that say by themselves that nothing is there: 404 under a path that holds the key.
    pub(super) absent: Vec<u16>,
    /// This page, with those before it, lists everything.
    pub(super) complete: CelExpr,
    /// What is ours: a list, one object, or true.
    pub(super) ours: CelExpr,
    /// What holds our key, with whatever content.
    pub(super) same_key: Option<CelExpr>,
    /// The token of the next page, or null.
    pub(super) next: Option<CelExpr>,
    /// The target's reference of one of ours, as `item`.
    pub(super) evidence: Option<CelExpr>,
}

/// How the version of the resource is read before a send.
#[derive(Clone, Debug)]
pub(super) struct VersionRules {
    pub(super) request: RequestTemplate,
    /// The version in a 200.
    pub(super) version: CelExpr,
    /// Statuses that say that the resource is not there.
    pub(super) absent: Vec<u16>,
}

/// How an attempt is signed.
#[derive(Clone, Debug)]
pub(super) struct SignRules {
    pub(super) header: String,
    pub(super) prefix: String,
    /// In base64, else in hex.
    pub(super) base64: bool,
    pub(super) over: Vec<Part>,
    pub(super) secret: SecretRef,
}

/// What a signature is made over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Text(String),
    Stamp,
    Key,
    Method,
    /// With the query.
    Path,
    Body,
}

/// How a webhook is believed and read.
#[derive(Clone, Debug)]
pub(super) struct WebhookRules {
    pub(super) scheme: Scheme,
    /// The header with the signature, in lower case.
    pub(super) header: String,
    pub(super) secret: SecretRef,
    pub(super) tolerance: Duration,
    /// Our key in the body.
    pub(super) key: CelExpr,
    pub(super) means: Vec<WebhookMeaning>,
}

/// One line of `webhook.means`: first match wins.
#[derive(Clone, Debug)]
pub(super) struct WebhookMeaning {
    pub(super) when: CelExpr,
    pub(super) means: AnswerClass,
    pub(super) evidence: Option<CelExpr>,
}

/// With what the compensating call is made.
#[derive(Clone, Debug)]
pub(super) struct UndoRules {
    pub(super) parameters: Vec<(String, CelExpr)>,
    /// Where it stands.
    pub(super) at: Site,
}

/// What a proposal's answer holds.
#[derive(Clone, Debug)]
pub(super) struct ProposalRules {
    /// The proposal's text.
    pub(super) body: CelExpr,
    /// What it did cost, in tokens.
    pub(super) tokens: Option<CelExpr>,
}
