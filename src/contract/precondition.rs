//! Effects that hold only while their resource stands at the version that the requester saw: who compares, and how the version
//! is read.

use super::call::{expression, request, statuses};
use super::compiled::VersionRules;
use super::model::{Call, Parameters, Precondition};
use super::request::RESOURCE_VERSION;
use super::{answers, lint, shape};
use crate::config::yaml::{Diagnostics, Fields, Node};
use crate::error::{Error, Fault, Result, codes};
use crate::http::Answer;
use crate::intents::{AnswerClass, RenderedRequest};

/// Reads `precondition`; `sent`: whether the request carries the version.
pub(super) fn precondition(
    node: &Node,
    parameters: &[&str],
    sent: bool,
    d: &mut Diagnostics,
) -> Option<(Precondition, Option<VersionRules>)> {
    let f = shape::PRECONDITION.read(node, d)?;
    let never_reused = f.get("never_reused").is_some_and(|n| n.boolean(d).unwrap_or(false));
    let read = f.get("read").map(|n| version_read(n, parameters, d));
    let precondition = Precondition { sent, never_reused, read: read.is_some() };
    Some((precondition, read.map_or(Some(None), |r| r.map(Some))?))
}

fn version_read(node: &Node, parameters: &[&str], d: &mut Diagnostics) -> Option<VersionRules> {
    let f = shape::VERSION_READ.read(node, d)?;
    let request = f.get("request").and_then(|n| request(n, parameters, d));
    let version = f.get("version").and_then(|n| expression(n, &["status", "headers", "body"], d));
    let absent = statuses(&f, "absent", d);
    Some(VersionRules { request: request?, version: version?, absent: absent.unwrap_or_default() })
}

/// A precondition that nobody checks, or an answer about one that there is not.
pub(super) fn lint(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    let answered = call.compiled.answers.iter().any(|r| r.means == AnswerClass::PreconditionFailed);
    let Some(p) = &call.precondition else {
        if answered && !f.has("precondition") {
            let why = "declare `precondition`, and send {resource_version} with the request";
            lint::refuse(d, lint::at(f, "answers"), "`precondition_failed` without a precondition", why);
        }
        return;
    };
    let site = lint::at(f, "precondition");
    if !p.sent && !p.read {
        let why = "send {resource_version} with the request, or say how the version is read";
        lint::refuse(d, site, "a precondition that nobody checks", why);
    }
    if p.sent && !answered {
        let why = "name the answer: { status: 412, means: precondition_failed }";
        lint::refuse(d, site, "the target checks the version, but no answer says that it has changed", why);
    }
    if !p.sent && p.never_reused {
        lint::refuse(
            d,
            site,
            "`never_reused` without {resource_version} in the request",
            "the target can't refuse what it is not told",
        );
    }
    if call.compiled.version.as_ref().is_some_and(|v| v.request.method != "GET") {
        lint::refuse(d, site, "reading a version must not change anything", "ask with GET");
    }
    if !p.sent {
        d.warning(codes::WEAK_SETTING, site, "the version is compared before the send, not with it")
            .label("what changes the resource in between is not seen: send {resource_version} where the target can compare it");
    }
    if p.sent && !call.no_intermediaries && call.readback.is_none() {
        d.warning(codes::WEAK_SETTING, site, "every failed precondition goes to a person")
            .label("a proxy may have sent the request twice, the second answer says \"changed\", and there is no readback");
    }
}

impl Call {
    /// The question for the resource's version.
    ///
    /// # Errors
    /// Where a parameter can't stand where the template puts it, or the contract declares no such question.
    pub fn render_version(&self, parameters: &Parameters) -> Result<RenderedRequest> {
        match &self.compiled.version {
            Some(rules) => self.fill(&rules.request, parameters, &"".into(), None, None),
            None => {
                Err(Error::new(codes::BUG, Fault::Bug, format!("reading a version for {}, which declares no such read", self.name)))
            }
        }
    }

    /// The version that an answer shows; `None` = the resource is not there. The error says why it shows nothing.
    pub fn version_in(&self, answer: &Answer) -> std::result::Result<Option<String>, String> {
        let rules = self.compiled.version.as_ref().ok_or("the contract reads no version")?;
        if rules.absent.contains(&answer.status) {
            return Ok(None);
        }
        if answer.status != 200 {
            return Err(format!("the read of the version was answered with {}", answer.status));
        }
        let value =
            rules.version.eval(&answers::Seen::of(answer).variables(&rules.version)).map_err(|why| format!("`version` {why}"))?;
        answers::reference(&value).map(Some).ok_or_else(|| "`version` gives no text or number".to_owned())
    }

    /// Whether `request` could be this call's read of the version, by its method and path.
    pub fn could_be_version_read(&self, request: &RenderedRequest) -> bool {
        let own = self.compiled.version.as_ref().map(|v| &v.request);
        own.is_some_and(|own| own.method == request.method && own.path.could_be(&request.path))
    }

    /// Whether the request carries the version that the requester saw.
    pub(super) fn sends_version(&self) -> bool {
        self.compiled.request.names().contains(&RESOURCE_VERSION)
    }
}

/// Whether two versions are one. The quotes of an ETag don't count; a weak one never compares, as in HTTP.
pub fn same_version(seen: &str, found: &str) -> bool {
    let bare = |v: &'_ str| v.strip_prefix('"').and_then(|v| v.strip_suffix('"')).map_or_else(|| v.to_owned(), str::to_owned);
    !found.starts_with("W/") && bare(seen) == bare(found)
}
