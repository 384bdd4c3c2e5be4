//! Completion by webhook: how a target signs what it posts to us, and what a body says of which operation. Only the body is read,
//! since only the body is signed.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::answers::reference;
use super::call::expression;
use super::compiled::{WebhookMeaning, WebhookRules};
use super::lint::{at, refuse};
use super::model::{Call, Carrier, Completion, Webhook};
use super::shape;
use crate::config::yaml::{Diagnostics, Fields, Node};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::WireKey;
use crate::intents::{AnswerClass, unhex};
use crate::time::{WallTime, show_duration};

/// How a target signs. All are HMAC-SHA-256 over the exact bytes of the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// `t=<seconds>,v1=<hex>` over `<seconds>.<body>`.
    Stripe,
    /// `sha256=<hex>` over the body: carries no time.
    GitHub,
    /// `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,<base64> …` over `<id>.<seconds>.<body>`.
    Standard,
}

/// Why a post is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unbelieved {
    /// It carries no signature of this scheme.
    Unsigned,
    /// The signature is not the target's.
    Forged,
    /// Signed too long ago, or in the future.
    Stale,
}

/// What a webhook says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Our key, as the target got it with the call.
    pub key: WireKey,
    /// `Applied` or `Rejected`.
    pub class: AnswerClass,
    /// The target's reference.
    pub reference: Option<String>,
}

/// Reads `webhook`.
pub(super) fn webhook(node: &Node, d: &mut Diagnostics) -> Option<(Webhook, WebhookRules)> {
    let f = shape::WEBHOOK.read(node, d)?;
    let path = f.get("path").and_then(|n| {
        let text = n.text(d)?;
        let plain =
            text.starts_with('/') && text.len() > 1 && text.chars().all(|c| c.is_ascii_alphanumeric() || "/-_.".contains(c));
        if plain { Some(text) } else { n.wrong("a path such as /webhooks/payments", d) }
    });
    let schemes = [("stripe", Scheme::Stripe), ("github", Scheme::GitHub), ("standard", Scheme::Standard)];
    let scheme = f.get("signature").and_then(|n| n.one_of(&schemes, d));
    let default = match scheme {
        Some(Scheme::GitHub) => "x-hub-signature-256",
        Some(Scheme::Standard) => "webhook-signature",
        _ => "stripe-signature",
    };
    let header = word_or(&f, "header", default, d).to_ascii_lowercase();
    let secret = f.get("secret").and_then(|n| n.secret(d));
    let tolerance = f.get("tolerance").map_or(Some(Duration::from_secs(300)), |n| n.duration(d));
    let within = f.get("within").and_then(|n| n.duration(d));
    let key = f.get("key").and_then(|n| expression(n, &["body"], d));
    let list = f.get("means").map(Node::list).unwrap_or_default();
    let means: Vec<WebhookMeaning> = list.iter().filter_map(|n| meaning(n, d)).collect();
    let whole = means.len() == list.len();
    let rules = WebhookRules { scheme: scheme?, header, secret: secret?, tolerance: tolerance?, key: key?, means };
    whole.then_some((Webhook { path: path?, within: within? }, rules))
}

fn word_or(f: &Fields<'_>, key: &str, default: &str, d: &mut Diagnostics) -> String {
    f.text(key, d).unwrap_or_else(|| default.to_owned())
}

fn meaning(node: &Node, d: &mut Diagnostics) -> Option<WebhookMeaning> {
    let f = shape::WEBHOOK_MEANING.read(node, d)?;
    let words = [("applied", AnswerClass::Applied), ("rejected", AnswerClass::Rejected)];
    let means = f.get("means").and_then(|n| n.one_of(&words, d));
    let when = f.get("when").and_then(|n| expression(n, &["body"], d));
    let evidence = f.get("evidence").map(|n| expression(n, &["body"], d));
    Some(WebhookMeaning { when: when?, means: means?, evidence: evidence.map_or(Some(None), |e| e.map(Some))? })
}

/// A completion that nobody could tell, or that nothing could be told by.
pub(super) fn lint(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    let declared = f.has("webhook");
    if (call.completion == Completion::Webhook) != declared {
        let why = "`completion: webhook` and the block `webhook` belong together";
        return refuse(d, at(f, if declared { "webhook" } else { "completion" }), "a completion that is half declared", why);
    }
    let (Some(webhook), Some(rules)) = (&call.webhook, &call.compiled.webhook) else { return };
    let site = at(f, "webhook");
    if call.key.carrier == Carrier::None {
        refuse(d, site, "a webhook without a key", "nothing in it could be told to be this operation's: send `{key}`");
    }
    if call.proposal {
        refuse(d, site, "a proposal by webhook", "a proposal is the answer itself");
    }
    if !rules.means.iter().any(|m| m.means == AnswerClass::Applied) {
        refuse(d, site, "no webhook says that it happened", "an accepted call would never be known to be done");
    }
    if call.budget.unknown_max_age <= webhook.within {
        let why = format!("policy.unknown_after must exceed webhook.within, which is {}", show_duration(webhook.within));
        refuse(d, site, "what is waited for is parked before it may come", &why);
    }
    if rules.scheme == Scheme::GitHub {
        d.warning(codes::WEAK_SETTING, site, "this signature carries no time")
            .label("an old webhook can be posted again; it says what it said, of the same operation");
    }
}

impl Call {
    /// Whether a post is the target's own, and of now. `header` gives a header by its lower-case name; the secret is read now.
    ///
    /// # Errors
    /// Where the secret can't be read or, for `standard`, is no base64.
    pub fn signed<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &[u8],
        now: WallTime,
    ) -> Result<std::result::Result<(), Unbelieved>> {
        let Some(rules) = &self.compiled.webhook else { return Ok(Err(Unbelieved::Unsigned)) };
        let secret = rules.secret.resolve()?;
        let key = match rules.scheme {
            Scheme::Standard => {
                let text = secret.expose();
                let wrong = |e| Error::new(codes::BAD_VALUE, Fault::Configuration, "reading the secret of a webhook").because(e);
                STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).map_err(wrong)?
            }
            Scheme::Stripe | Scheme::GitHub => secret.expose().as_bytes().to_vec(),
        };
        Ok(rules.believed(&key, header, body, now))
    }

    /// What a believed body says of an operation of this call; `None` = nothing. The error says what is wrong, without payload.
    pub fn told(&self, body: &[u8]) -> std::result::Result<Option<Told>, String> {
        let Some(rules) = &self.compiled.webhook else { return Ok(None) };
        let body: Value = serde_json::from_slice(body).map_err(|_| "the body is no JSON".to_owned())?;
        let variables = [("body", &body)];
        for line in &rules.means {
            // A body without what a condition asks for is another kind of event.
            if !matches!(line.when.eval_bool(&variables), Ok(true)) {
                continue;
            }
            let key = rules.key.eval(&variables).ok().and_then(|v| reference(&v)).ok_or("`key` gives no text")?;
            let shown = line.evidence.as_ref().map(|e| e.eval(&variables).ok().and_then(|v| reference(&v)));
            let shown = shown.map_or(Ok(None), |r| r.map(Some).ok_or("`evidence` gives no text"))?;
            return Ok(Some(Told { key: WireKey::from(key), class: line.means, reference: shown }));
        }
        Ok(None)
    }
}

impl WebhookRules {
    fn believed<'h>(
        &self,
        key: &[u8],
        header: impl Fn(&str) -> Option<&'h str>,
        body: &[u8],
        now: WallTime,
    ) -> std::result::Result<(), Unbelieved> {
        let text = header(&self.header).ok_or(Unbelieved::Unsigned)?;
        let (before, time, given) = match self.scheme {
            Scheme::GitHub => (String::new(), None, text.strip_prefix("sha256=").and_then(unhex).into_iter().collect::<Vec<_>>()),
            Scheme::Stripe => {
                let parts = || text.split(',').filter_map(|p| p.trim().split_once('='));
                let time = parts().find(|(k, _)| *k == "t").map(|(_, v)| v).ok_or(Unbelieved::Unsigned)?;
                (format!("{time}."), Some(time), parts().filter(|(k, _)| *k == "v1").filter_map(|(_, v)| unhex(v)).collect())
            }
            Scheme::Standard => {
                let (id, time) = header("webhook-id").zip(header("webhook-timestamp")).ok_or(Unbelieved::Unsigned)?;
                let all = text.split(' ').filter_map(|s| STANDARD.decode(s.strip_prefix("v1,")?).ok());
                (format!("{id}.{time}."), Some(time), all.collect())
            }
        };
        if given.is_empty() {
            return Err(Unbelieved::Unsigned);
        }
        // Each is compared in constant time; several are there while a secret is rotated.
        let ours = given.iter().take(8).any(|g| mac(key, &before, body).verify_slice(g).is_ok());
        if !ours {
            return Err(Unbelieved::Forged);
        }
        let Some(time) = time else { return Ok(()) };
        let at = time.parse::<i64>().ok().and_then(|s| s.checked_mul(1_000)).map(WallTime).ok_or(Unbelieved::Unsigned)?;
        let apart = if at > now { at.since(now) } else { now.since(at) };
        if apart > self.tolerance { Err(Unbelieved::Stale) } else { Ok(()) }
    }
}

fn mac(key: &[u8], before: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of any length"),
    };
    mac.update(before.as_bytes());
    mac.update(body);
    mac
}
