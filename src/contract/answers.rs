//! What an answer means. First match wins; whatever the contract does not speak of is unknown, never "failed".

use std::cell::OnceCell;
use std::time::Duration;

use serde_json::{Map, Value};

use super::compiled::AnswerRule;
use super::{Call, Completion};
use crate::config::CelExpr;
use crate::http::Answer;
use crate::intents::{AnswerClass, Cost};
use crate::time::WallTime;

/// The longest wait that a target may order.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3_600);
/// Longest reference that is kept.
const MAX_REFERENCE: usize = 256;

/// When the target says to come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryAfter {
    /// So long after the answer.
    In(Duration),
    /// At this time of the target's clock.
    At(WallTime),
}

impl RetryAfter {
    /// Reads `Retry-After`, seconds or any of the three date forms (C071); `None` where there is none or it is neither.
    pub fn of(answer: &Answer) -> Option<RetryAfter> {
        let text = answer.header("retry-after")?.trim();
        match text.parse::<u32>() {
            Ok(seconds) => Some(RetryAfter::In(Duration::from_secs(u64::from(seconds)).min(MAX_RETRY_AFTER))),
            Err(_) => crate::http::http_date(text).map(RetryAfter::At),
        }
    }

    /// When to come back, given when the answer came; never in the past, at most a day on.
    pub fn due(self, answered: WallTime) -> WallTime {
        match self {
            RetryAfter::In(wait) => answered.plus(wait),
            RetryAfter::At(at) => at.clamp(answered, answered.plus(MAX_RETRY_AFTER)),
        }
    }
}

/// What a proposal's answer holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposed {
    /// The proposal as text: data, never executed.
    pub body: String,
    /// What it did cost.
    pub cost: Cost,
}

impl Call {
    /// What a whole answer means, the target's reference in it, and when it says to come back.
    pub fn classify(&self, answer: &Answer) -> (AnswerClass, Option<String>, Option<RetryAfter>) {
        let seen = Seen::of(answer);
        let (class, reference) = self.matched(&seen);
        let class = match class {
            // A redirect is another page's answer (C074).
            _ if (300..400).contains(&answer.status) && class == AnswerClass::Applied => AnswerClass::Unknown,
            AnswerClass::Applied if self.completion != Completion::Sync => AnswerClass::InProgress,
            AnswerClass::Unknown if self.completion != Completion::Sync && answer.status == 202 => AnswerClass::InProgress,
            class => class,
        };
        (class, reference, RetryAfter::of(answer))
    }

    /// The proposal in an answer that reads as applied; the error says what is not there.
    pub fn proposed(&self, answer: &Answer) -> Result<Proposed, String> {
        let rules = self.compiled.proposal.as_ref().ok_or("the contract asks for no proposal")?;
        let seen = Seen::of(answer);
        let body = match rules.body.eval(&seen.variables(&rules.body)).map_err(|e| format!("`proposal.body` {e}"))? {
            Value::String(text) => text,
            Value::Null => return Err("`proposal.body` gives nothing".into()),
            other => other.to_string(),
        };
        let tokens = match &rules.tokens {
            Some(e) => e.eval(&seen.variables(e)).ok().and_then(|v| v.as_i64()).unwrap_or(0),
            None => 0,
        };
        let bytes = i64::try_from(answer.body.len()).unwrap_or(i64::MAX);
        Ok(Proposed { body, cost: Cost { tokens, bytes, tool_calls: 1 } })
    }

    fn matched(&self, seen: &Seen<'_>) -> (AnswerClass, Option<String>) {
        let dedupe = self.dedupe.as_ref();
        if dedupe.is_some_and(|d| d.other_body == Some(seen.answer.status)) {
            return (AnswerClass::KeyConflict, None);
        }
        if dedupe.is_some_and(|d| d.while_running == Some(seen.answer.status)) {
            return (AnswerClass::InProgress, None);
        }
        if let Some(class) = self.fenced(seen.answer.status) {
            return (class, None);
        }
        for rule in self.compiled.answers.iter().filter(|r| r.covers(seen.answer.status)) {
            match rule.when.as_ref().map(|when| when.eval_bool(&seen.variables(when))) {
                Some(Ok(false)) => continue,
                // An answer that the predicate can't be asked about is not the answer that the contract describes; the rules
                // below were written for what the ones above let through.
                Some(Err(_)) => return (AnswerClass::Unknown, None),
                None | Some(Ok(true)) => return seen.under(rule),
            }
        }
        (AnswerClass::Unknown, None)
    }
}

/// An answer as expressions see it; each part is made when the first expression reads it.
pub(super) struct Seen<'a> {
    answer: &'a Answer,
    status: Value,
    headers: OnceCell<Value>,
    body: OnceCell<Value>,
}

/// What stands for a part that nobody reads.
const UNREAD: Value = Value::Null;

impl<'a> Seen<'a> {
    pub(super) fn of(answer: &'a Answer) -> Self {
        Seen { answer, status: answer.status.into(), headers: OnceCell::new(), body: OnceCell::new() }
    }

    /// The body, read as JSON only where the answer says that it is (C073); else null.
    pub(super) fn body(&self) -> &Value {
        self.body.get_or_init(|| {
            let stated = self.answer.header("content-type").unwrap_or_default();
            let media = stated.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            let is_json = media == "application/json" || media.ends_with("+json");
            if is_json { serde_json::from_slice(&self.answer.body).unwrap_or(Value::Null) } else { Value::Null }
        })
    }

    fn headers(&self) -> &Value {
        self.headers.get_or_init(|| {
            let mut headers = Map::new();
            for (name, value) in &self.answer.headers {
                headers.entry(name.clone()).or_insert_with(|| Value::from(value.as_str()));
            }
            headers.into()
        })
    }

    /// The variables of `answers` and of a readback, as far as this expression reads them.
    pub(super) fn variables(&self, e: &CelExpr) -> [(&'static str, &Value); 3] {
        let headers = if e.mentions("headers") { self.headers() } else { &UNREAD };
        let body = if e.mentions("body") { self.body() } else { &UNREAD };
        [("status", &self.status), ("headers", headers), ("body", body)]
    }

    /// A rule's meaning. Where the evidence it names isn't there, the answer is not what the contract describes.
    fn under(&self, rule: &AnswerRule) -> (AnswerClass, Option<String>) {
        match &rule.evidence {
            None => (rule.means, None),
            Some(evidence) => match evidence.eval(&self.variables(evidence)).ok().and_then(|v| reference(&v)) {
                Some(text) => (rule.means, Some(text)),
                None => (AnswerClass::Unknown, None),
            },
        }
    }
}

/// A reference as people read it: a short text or number.
pub(super) fn reference(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(s) if !s.is_empty() => s.clone(),
        Value::Number(n) => n.to_string(),
        _ => return None,
    };
    Some(text.chars().filter(|c| !c.is_control()).take(MAX_REFERENCE).collect())
}
