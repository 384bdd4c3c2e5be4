//! Targets that refuse by themselves what must not take effect: a second thing under an ID, or a request that is too old.

use super::call::statuses;
use super::compiled::SignRules;
use super::lint::{at, refuse};
use super::model::{Age, Call, Carrier, Fence, StampFormat};
use super::read::{header_name, word};
use super::{shape, sign};
use crate::config::yaml::{Diagnostics, Fields, Node};
use crate::error::codes;
use crate::intents::AnswerClass;
use crate::time::WallTime;

/// Reads `fence`.
pub(super) fn fence(node: &Node, d: &mut Diagnostics) -> Option<(Fence, Option<SignRules>)> {
    let f = shape::FENCE.read(node, d)?;
    match (f.get("create"), f.get("age")) {
        (Some(n), None) => {
            let f = shape::FENCE_CREATE.read(n, d)?;
            Some((Fence::Create(statuses(&f, "exists", d)?), None))
        }
        (None, Some(n)) => age(n, d).map(|(age, sign)| (Fence::Age(age), sign)),
        _ => {
            d.error(codes::MISSING_KEY, &node.at, "a fence is `create` or `age`").label("one of the two");
            None
        }
    }
}

fn age(node: &Node, d: &mut Diagnostics) -> Option<(Age, Option<SignRules>)> {
    let f = shape::FENCE_AGE.read(node, d)?;
    let within = f.get("within").and_then(|n| n.duration(d));
    let header = f.get("header").and_then(|n| header_name(&n.text(d)?, n, d));
    let formats = [("unix", StampFormat::Unix), ("http_date", StampFormat::HttpDate), ("rfc3339", StampFormat::Rfc3339)];
    let format = word(&f, "format", &formats, StampFormat::Unix, d);
    let refused = statuses(&f, "refused", d);
    let sign = f.get("sign").map(|n| sign::sign(n, d));
    Some((Age { within: within?, header: header?, format, refused: refused? }, sign.map_or(Some(None), |s| s.map(Some))?))
}

/// A fence that nobody meets, or whose refusal nobody could tell from success.
pub(super) fn lint(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    sign::lint(call, f, d);
    let Some(fence) = &call.fence else { return };
    let site = at(f, "fence");
    let readback = f.has("readback");
    let (said, means) = match fence {
        Fence::Create(exists) => (exists, AnswerClass::KeyConflict),
        Fence::Age(age) => (&age.refused, AnswerClass::RetryLater),
    };
    match fence {
        Fence::Create(_) if call.key.carrier == Carrier::None => {
            refuse(d, site, "a conditional create without an ID in the request", "send the key as the ID of what is made");
        }
        Fence::Create(_) if !readback => {
            refuse(d, site, "a taken ID that nobody reads back", "it may be ours or hold other content: declare a readback of it");
        }
        Fence::Age(_) if !readback => {
            let why = "what was refused and what was done look alike once the answer is lost: declare a readback";
            refuse(d, site, "an age limit without a readback", why);
        }
        Fence::Age(age) if age.within <= call.budget.window + call.budget.timeout => {
            let why = "`within` must exceed policy.window + policy.timeout";
            refuse(d, site, "attempts would be refused before they arrive", why);
        }
        _ => {}
    }
    for status in said {
        if call.compiled.answers.iter().any(|r| r.covers(*status) && r.means != means && r.when.is_none()) {
            refuse(d, site, &format!("{status} has two meanings"), "`fence` and `answers` must agree");
        }
    }
}

impl Call {
    /// What the fence says of an answer, where it is the fence's.
    pub(super) fn fenced(&self, status: u16) -> Option<AnswerClass> {
        match self.fence.as_ref()? {
            Fence::Create(exists) => exists.contains(&status).then_some(AnswerClass::KeyConflict),
            Fence::Age(age) => age.refused.contains(&status).then_some(AnswerClass::RetryLater),
        }
    }

    /// The header that an attempt carries under an age limit, by the time when it was journalled.
    pub fn stamp(&self, journalled_at: WallTime) -> Option<(String, String)> {
        let Some(Fence::Age(age)) = &self.fence else { return None };
        Some((age.header.clone(), age.format.write(journalled_at)))
    }
}

impl StampFormat {
    /// The time as text, never later than `at`.
    pub fn write(self, at: WallTime) -> String {
        let seconds = at.0.max(0) / 1000;
        match self {
            StampFormat::Unix => seconds.to_string(),
            StampFormat::HttpDate => crate::http::http_date_of(WallTime(seconds * 1000)),
            StampFormat::Rfc3339 => at.to_string(),
        }
    }

    /// The time in a text, as a target reads it.
    pub fn read(self, text: &str) -> Option<WallTime> {
        match self {
            StampFormat::Unix => text.parse::<i64>().ok().map(|s| WallTime(s.saturating_mul(1000))),
            StampFormat::HttpDate => crate::http::http_date(text),
            StampFormat::Rfc3339 => chrono::DateTime::parse_from_rfc3339(text).ok().map(|t| WallTime(t.timestamp_millis())),
        }
    }
}
