//! Admission: is this a request that may be worked on? Identity was looked up before (life.md 4). Pure.

use crate::error::codes;
use crate::ids::DERIVED;
use crate::intents::{Input, Status, WorkRequest};
use crate::outbox::{AdmitRules, Pipeline, Rule, Settings, Why};
use crate::time::WallTime;

/// Longest text of an identifier in bytes.
const LONGEST_ID: usize = 256;

/// What admission says about an unknown request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Work on it.
    Take,
    /// Its deadline is over, its record's life not yet: a record that ends at once.
    Expired,
    /// The message comes to nothing and leaves no record.
    Message(Status, Why),
}

/// Checks the envelope against the pipeline's rules; budgets come after.
pub fn admit(request: &WorkRequest, pipeline: &Pipeline, settings: &Settings, now: WallTime) -> Verdict {
    let rules = &pipeline.admit;
    if let Err(words) = well_formed(request, pipeline) {
        return Verdict::Message(Status::Invalid, Why::new(codes::REQUEST_INVALID, words));
    }
    let life = request.deadline.plus(rules.remember).plus(settings.clock_error * 2);
    if now >= life && settings.on(Rule::Stale) {
        let words = "its deadline and the time that its ID is remembered are over, so nobody can say whether it ran";
        return Verdict::Message(Status::Stale, Why::new(codes::REQUEST_STALE, words));
    }
    if now >= request.deadline {
        return Verdict::Expired;
    }
    if request.deadline > now.plus(rules.max_deadline) {
        let words = format!("the deadline is more than {} away", crate::time::show_duration(rules.max_deadline));
        return Verdict::Message(Status::Invalid, Why::new(codes::REQUEST_INVALID, words));
    }
    match input(&request.input, rules) {
        Ok(()) => Verdict::Take,
        Err(words) => Verdict::Message(Status::Invalid, Why::new(codes::REQUEST_INVALID, words)),
    }
}

fn well_formed(request: &WorkRequest, pipeline: &Pipeline) -> Result<(), String> {
    let ids = [
        ("operation_id", request.operation_id.as_str()),
        ("tenant", request.tenant.as_str()),
        ("message_id", request.message_id.as_str()),
    ];
    for (name, text) in ids {
        if text.is_empty() || text.len() > LONGEST_ID || text.chars().any(char::is_control) {
            return Err(format!("{name} must have 1 to {LONGEST_ID} bytes and no control characters"));
        }
    }
    if request.operation_id.as_str().contains([DERIVED, '/']) {
        return Err("operation_id must not hold `.` or `/`: they separate what is derived of it".into());
    }
    if pipeline.gate.as_ref().is_some_and(|g| g.other_than_requester) && request.requester.is_empty() {
        return Err("requester must be named where another person has to approve".into());
    }
    let c = request.cost_estimate;
    if [c.tokens, c.bytes, c.tool_calls].iter().any(|n| *n < 0) {
        return Err("a cost estimate must not be negative".into());
    }
    Ok(())
}

fn input(input: &Input, rules: &AdmitRules) -> Result<(), String> {
    if !rules.types.is_empty() && !rules.types.iter().any(|t| same_type(t, &input.media_type)) {
        return Err(format!("input type must be one of {}", rules.types.join(", ")));
    }
    match (&input.inline, &input.locator) {
        (Some(text), None) if text.len() > rules.max_input => {
            Err(format!("the input has {} bytes, {} are allowed", text.len(), rules.max_input))
        }
        (Some(_), None) => Ok(()),
        (None, Some(locator)) => by_locator(locator, input.sha256.as_deref(), rules),
        (None, None) => Err("there is neither an inline input nor a locator".into()),
        (Some(_), Some(_)) => Err("an input is inline or by locator, not both".into()),
    }
}

fn by_locator(locator: &str, sha256: Option<&str>, rules: &AdmitRules) -> Result<(), String> {
    let uri: http::Uri = locator.parse().map_err(|_| "the locator is no URL".to_owned())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("the locator must be an http or https URL".into());
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        return Err("the locator must not hold credentials".into());
    }
    let host = uri.host().unwrap_or_default();
    if !rules.locator_hosts.iter().any(|h| h.eq_ignore_ascii_case(host)) {
        return Err("the locator's host is not among the declared ones".into());
    }
    match sha256 {
        Some(hash) if hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => Ok(()),
        _ => Err("an input by locator needs its sha256 in hex".into()),
    }
}

/// Whether two media types are the same apart from parameters and case.
fn same_type(a: &str, b: &str) -> bool {
    let bare = |t: &str| t.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    bare(a) == bare(b)
}
