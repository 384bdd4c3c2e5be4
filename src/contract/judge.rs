//! What a readback shows. Presence is believed wherever it is seen; absence only from a list that provably is whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::answers::{Seen, reference};
use super::compiled::ReadbackRules;
use super::request::KEY;
use super::{Call, Parameters};
use crate::config::CelExpr;
use crate::http::Answer;
use crate::ids::WireKey;

/// What a readback shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A complete list, and nothing of ours in it. Believed only when read at or after settle.
    Absent,
    /// One effect is ours.
    One {
        /// The target's reference of it.
        reference: Option<String>,
        /// Digest of what was shown.
        digest: String,
    },
    /// More than one is ours.
    Two {
        /// How many were seen.
        count: usize,
    },
    /// Our key stands there with other content.
    OtherContent,
    /// Nothing can be said; why, without payload.
    Incomplete(String),
    /// Not finished: ask for the page under this token.
    NextPage(String),
}

/// What the pages so far show.
#[derive(Default)]
struct Found {
    /// Digests of what is ours.
    digests: BTreeSet<String>,
    /// Most on one page: two alike on one page are two, one that moved between pages is one.
    most_on_a_page: usize,
    reference: Option<String>,
    key_seen: bool,
}

impl Call {
    /// Judges the pages read so far, in order. Any error, truncation or throttled page makes absence inconclusive.
    pub fn judge(&self, pages: &[Answer], parameters: &Parameters, key: &WireKey) -> Verdict {
        let (Some(rules), Some(limits)) = (&self.compiled.readback, &self.readback) else {
            return Verdict::Incomplete("the contract declares no readback".into());
        };
        let mut found = Found::default();
        let mut rest = Err("no page was read".to_owned());
        for page in pages {
            rest = rules.page(page, parameters, self, key, &mut found);
            if rest.is_err() {
                break;
            }
        }
        let count = found.digests.len().max(found.most_on_a_page);
        match (count, rest) {
            (2.., _) => Verdict::Two { count },
            (_, Ok(Rest::Page(_))) if pages.len() >= limits.pages as usize => match found.one() {
                Some(one) => one,
                None => Verdict::Incomplete(format!("the list is longer than {} pages", limits.pages)),
            },
            (_, Ok(Rest::Page(token))) => Verdict::NextPage(token),
            (1, _) => found.one().unwrap_or(Verdict::OtherContent),
            (_, Err(why)) => Verdict::Incomplete(why),
            (_, Ok(Rest::Open)) if found.key_seen => Verdict::OtherContent,
            (_, Ok(Rest::Open)) => Verdict::Incomplete("the list says that it is not complete".into()),
            (_, Ok(Rest::Nothing)) if found.key_seen => Verdict::OtherContent,
            (_, Ok(Rest::Nothing)) => Verdict::Absent,
        }
    }

    /// Every declared parameter as expressions see it; one that was left out is null.
    pub(super) fn bound(&self, parameters: &Parameters, key: &WireKey) -> Vec<(String, Value)> {
        let given = |name: &String| parameters.0.get(name).cloned().unwrap_or(Value::Null);
        let mut all: Vec<_> = self.compiled.parameters.keys().map(|n| (n.clone(), given(n))).collect();
        all.push((KEY.to_owned(), key.as_str().into()));
        all
    }
}

/// What comes after a page.
enum Rest {
    /// Another page.
    Page(String),
    /// Nothing: all was listed.
    Nothing,
    /// More, but nobody says how to read it.
    Open,
}

impl Found {
    fn one(&self) -> Option<Verdict> {
        let digest = self.digests.first()?.clone();
        Some(Verdict::One { reference: self.reference.clone(), digest })
    }
}

impl ReadbackRules {
    /// Takes in one page; the error says why it can't be believed.
    fn page(&self, page: &Answer, parameters: &Parameters, call: &Call, key: &WireKey, found: &mut Found) -> Result<Rest, String> {
        if self.absent.contains(&page.status) {
            return Ok(Rest::Nothing);
        }
        if page.status != 200 {
            return Err(format!("the readback was answered with {}", page.status));
        }
        let seen = Seen::of(page);
        if seen.body().is_null() {
            return Err("the readback's answer is not JSON".into());
        }
        let bound = call.bound(parameters, key);
        let ask = |name: &str, e: &CelExpr| {
            let own = bound.iter().map(|(n, v)| (n.as_str(), v));
            let variables: Vec<_> = seen.variables(e).into_iter().chain(own).collect();
            e.eval(&variables).map_err(|why| format!("`{name}` {why}"))
        };
        self.take_in(ask("ours", &self.ours)?, found)?;
        if let Some(same_key) = &self.same_key {
            found.key_seen |= !items(ask("same_key", same_key)?)?.is_empty();
        }
        if let Some(next) = &self.next
            && let Some(token) = token(&ask("next", next)?)?
        {
            return Ok(Rest::Page(token));
        }
        match ask("complete", &self.complete)? {
            Value::Bool(true) => Ok(Rest::Nothing),
            Value::Bool(false) => Ok(Rest::Open),
            _ => Err("`complete` gives neither true nor false".into()),
        }
    }

    fn take_in(&self, ours: Value, found: &mut Found) -> Result<(), String> {
        let ours = items(ours)?;
        found.most_on_a_page = found.most_on_a_page.max(ours.len());
        for item in &ours {
            found.digests.insert(crate::intents::hex(&Sha256::digest(sorted(item).to_string())));
            let shown = self.evidence.as_ref().and_then(|e| e.eval(&[("item", item)]).ok());
            found.reference = found.reference.take().or_else(|| shown.as_ref().and_then(reference));
        }
        Ok(())
    }
}

/// `ours` may be a list, one object, or a truth.
fn items(value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Null | Value::Bool(false) => Ok(Vec::new()),
        one @ (Value::Object(_) | Value::Bool(true)) => Ok(vec![one]),
        _ => Err("`ours` gives neither a list, an object nor a truth".into()),
    }
}

/// The same value with its members in order, so that the same item has the same digest.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            Value::Object(members.into_iter().collect())
        }
        other => other.clone(),
    }
}

/// A page token; null, false and empty mean that there is none.
fn token(value: &Value) -> Result<Option<String>, String> {
    match value {
        Value::Null | Value::Bool(false) => Ok(None),
        Value::String(s) if s.is_empty() => Ok(None),
        Value::String(s) => Ok(Some(s.clone())),
        Value::Number(n) => Ok(Some(n.to_string())),
        _ => Err("`next` gives no page token".into()),
    }
}
