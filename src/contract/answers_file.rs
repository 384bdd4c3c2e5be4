//! The `answers` of a contract file.

use super::call::expression;
use super::compiled::AnswerRule;
use super::shape;
use crate::config::yaml::{Diagnostics, Node};
use crate::intents::AnswerClass;

/// What answers may mean, as files say it.
const MEANINGS: [(&str, AnswerClass); 8] = [
    ("applied", AnswerClass::Applied),
    ("not_applied", AnswerClass::NotApplied),
    ("in_progress", AnswerClass::InProgress),
    ("key_conflict", AnswerClass::KeyConflict),
    ("precondition_failed", AnswerClass::PreconditionFailed),
    ("rejected", AnswerClass::Rejected),
    ("retry_later", AnswerClass::RetryLater),
    ("unknown", AnswerClass::Unknown),
];

/// Reads the list; each rule that can be read, in order.
pub(super) fn answers(node: &Node, d: &mut Diagnostics) -> Vec<AnswerRule> {
    node.list().iter().filter_map(|n| answer(n, d)).collect()
}

fn answer(node: &Node, d: &mut Diagnostics) -> Option<AnswerRule> {
    let f = shape::ANSWER.read(node, d)?;
    let statuses: Option<Vec<_>> = f.get("status").map(|n| n.list().iter().filter_map(|s| statuses(s, d)).collect());
    let means = f.get("means").and_then(|n| n.one_of(&MEANINGS, d));
    let mut ask = |key: &str| f.get(key).map(|n| expression(n, &["status", "headers", "body"], d));
    let (when, evidence) = (ask("when"), ask("evidence"));
    // A condition that does not compile must not become "always".
    if matches!(when, Some(None)) || matches!(evidence, Some(None)) {
        return None;
    }
    Some(AnswerRule { statuses: statuses?, when: when.flatten(), means: means?, evidence: evidence.flatten() })
}

/// `404`, `500-599` or `5xx`.
fn statuses(node: &Node, d: &mut Diagnostics) -> Option<(u16, u16)> {
    let text = node.scalar().unwrap_or_default();
    let one = |t: &str| t.trim().parse::<u16>().ok().filter(|s| (100..600).contains(s));
    let range = match (text.strip_suffix("xx").and_then(|h| h.parse::<u16>().ok()), text.split_once('-')) {
        (Some(hundred @ 1..=5), _) => Some((hundred * 100, hundred * 100 + 99)),
        (_, Some((from, to))) => one(from).zip(one(to)).filter(|(from, to)| from <= to),
        _ => one(text).map(|s| (s, s)),
    };
    match range {
        Some(range) => Some(range),
        None => node.wrong("a status such as 404, or a range such as 500-599 or 5xx", d),
    }
}
