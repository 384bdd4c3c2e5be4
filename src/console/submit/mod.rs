//! Submit and wait: one request onto a request topic of the topology, then as long as is asked for until its operation stands where it
//! is asked for. The answer names the level that was reached, never more.

pub mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::agent::{Verdict, admit};
use crate::dsl::{Application, RequestTopic};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::OperationKey;
use crate::intents::{WorkRequest, headers};
use crate::outbox::{Pipeline, Settings};
use crate::record::Headers;
use crate::serdes::{AvroCodec, Target};
use crate::time::WallTime;

use super::Console;
use super::audit::{Came, Entry};
use super::people::{Person, Role};
use super::search::{escape, pairs};
use wire::{Standing, SubmitBody, Submitted, WaitFor};

/// Who may; an admin may, too.
pub const ROLES: &[Role] = &[Role::Operator];
/// Submissions that wait at once; one beyond them is answered without a wait.
pub const WAITING: usize = 32;
/// How long is waited where nothing is said, and at most.
const WITHIN: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(60);
/// How often it is looked whether the operation has changed.
const LOOK: Duration = Duration::from_millis(20);

/// The request topics that are known, and how to write to them.
#[derive(Clone, Default)]
pub struct Doors {
    topics: Vec<RequestTopic>,
    pipelines: Vec<Pipeline>,
    /// For topics whose values are Avro.
    avro: Option<Arc<dyn AvroCodec>>,
    clock_error: Duration,
}

impl Doors {
    /// Those of an application; declared Avro is written through `avro`.
    pub fn of(application: &Application, avro: Option<Arc<dyn AvroCodec>>, clock_error: Duration) -> Self {
        Self { topics: application.requests.clone(), pipelines: application.pipelines.clone(), avro, clock_error }
    }

    fn find(&self, name: &str) -> Result<(&RequestTopic, &Pipeline)> {
        let topic = self.topics.iter().find(|t| t.topic.as_str() == name || t.step.as_str() == name);
        let found = topic.and_then(|t| self.pipelines.iter().find(|p| p.step == t.step).map(|p| (t, p)));
        found.ok_or_else(|| {
            let e = Error::new(
                codes::UNKNOWN_REFERENCE,
                Fault::Configuration,
                format!("looking for the request topic or step {}", crate::outbox::cut(name)),
            );
            let known: Vec<String> = self.topics.iter().map(|t| format!("{} of {}", t.topic, t.step)).collect();
            if known.is_empty() {
                return e
                    .because("no request topic is known here")
                    .next("`readback run` knows them, and `readback console --topology`; a source with `schema: readback/work-request` is one");
            }
            e.because(format!("known are {}", known.join(", ")))
        })
    }
}

/// What a caller sends beside the body.
#[derive(Clone, Debug)]
pub struct Around<'a> {
    /// The topic or step in the path.
    pub to: &'a str,
    /// The query: `wait_for`, `within`.
    pub query: &'a str,
    /// The header `Idempotency-Key`.
    pub key: Option<&'a str>,
    /// The header `traceparent`.
    pub traceparent: Option<&'a str>,
    /// From where.
    pub from: &'a str,
}

/// Writes one request, and waits.
///
/// # Errors
/// `NOT_PERMITTED`, `UNKNOWN_REFERENCE`, `BAD_VALUE`; what admission would refuse, with its code; `REQUEST_CONFLICT` for a known ID with
/// other content; `BROKER_UNREACHABLE`: then nobody knows whether it was written, and the same ID may be sent again.
pub fn submit(console: &Console, who: &Person, around: &Around<'_>, body: SubmitBody) -> Result<(bool, Submitted)> {
    let now = console.now();
    let mut entry = Entry::new(now, &who.name, around.from, "submit", Came::Refused);
    (entry.step, entry.tenant) = (crate::outbox::cut(around.to), crate::outbox::cut(&body.tenant));
    entry.operation = crate::outbox::cut(body.operation_id.as_deref().or(around.key).unwrap_or_default());
    let done = prepared(console, who, around, body, now).and_then(|p| {
        // A repeat is answered from what is known: it writes nothing.
        if p.known.is_none() {
            write(console, &p, &mut entry)?;
        }
        Ok(p)
    });
    let p = match done {
        Ok(p) => p,
        Err(e) => {
            if entry.came == Came::Refused {
                (entry.code, entry.detail) = (Some(e.code.to_string()), crate::outbox::cut(&e.to_string()));
                console.note(&entry);
            }
            return Err(e);
        }
    };
    let standing = waited(console, &p)?;
    Ok((p.wait_for.is_reached(&standing), answer(&p.key, &standing)))
}

/// A request that may be written.
struct Prepared<'c> {
    door: &'c RequestTopic,
    request: WorkRequest,
    key: OperationKey,
    wait_for: WaitFor,
    within: Duration,
    /// Where its operation stands, where it is known already.
    known: Option<Standing>,
}

fn prepared<'c>(console: &'c Console, who: &Person, around: &Around<'_>, body: SubmitBody, now: WallTime) -> Result<Prepared<'c>> {
    if !who.is(ROLES) {
        return Err(Error::new(codes::NOT_PERMITTED, Fault::Verdict, "submitting a request").because(format!(
            "it takes the role operator, and {} has {}",
            who.name,
            who.words()
        )));
    }
    let (wait_for, within) = asked(around.query)?;
    let (door, pipeline) = console.doors.find(around.to)?;
    let message = format!("api/{}", uuid::Uuid::new_v4());
    let request = body.request(around.key, &who.name, &message, around.traceparent.filter(|t| is_traceparent(t)))?;
    let key = OperationKey { tenant: request.tenant.clone(), operation: request.operation_id.clone(), step: door.step.clone() };
    // Identity before validity, as admission does: a repeat is answered after its deadline, too.
    let known = standing(console, &key)?;
    match &known {
        Some(at) if at.identity.as_ref().is_some_and(|identity| *identity != request.identity()) => return Err(conflict(&key)),
        Some(_) => {}
        None => admitted(console, &request, pipeline, now)?,
    }
    Ok(Prepared { door, request, key, wait_for, within, known })
}

/// What admission would refuse is refused here, and not written.
fn admitted(console: &Console, request: &WorkRequest, pipeline: &Pipeline, now: WallTime) -> Result<()> {
    let refused = |code, words: String| {
        Err(Error::new(code, Fault::Verdict, format!("submitting {}", crate::outbox::cut(request.operation_id.as_str())))
            .because(words))
    };
    // The partition count does not matter to admission.
    match admit(request, pipeline, &Settings::new(1, console.doors.clock_error), now) {
        Verdict::Take => Ok(()),
        Verdict::Expired => refused(codes::REQUEST_EXPIRED, "its deadline has passed".to_owned()),
        Verdict::Message(_, why) => refused(why.code, why.words),
    }
}

fn conflict(key: &OperationKey) -> Error {
    Error::new(codes::REQUEST_CONFLICT, Fault::Stale, format!("submitting {}", key.operation))
        .because("this operation ID is known with other content")
        .next("a retry must send the same request, deadline included; another intent needs an ID of its own")
}

fn asked(query: &str) -> Result<(WaitFor, Duration)> {
    let (mut wait_for, mut within) = (WaitFor::read("accepted")?, WITHIN);
    for (name, value) in pairs(query) {
        match name.as_str() {
            "wait_for" => wait_for = WaitFor::read(&value)?,
            "within" => within = super::api::span(&value)?.min(LONGEST),
            _ => {
                return Err(Error::new(
                    codes::BAD_VALUE,
                    Fault::Configuration,
                    format!("reading `{}` of the query", crate::outbox::cut(&name)),
                )
                .because("known are wait_for, within"));
            }
        }
    }
    Ok((wait_for, within))
}

/// W3C trace context: anything else would be passed on for ever.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |t: &str, n: usize| t.len() == n && t.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    matches!(parts[..], [version, trace, span, flags] if hex(version, 2) && hex(trace, 32) && hex(span, 16) && hex(flags, 2))
}

fn write(console: &Console, p: &Prepared<'_>, entry: &mut Entry) -> Result<()> {
    let bug = |e| Error::new(codes::BUG, Fault::Bug, "writing a request").because(e);
    let value = serde_json::to_value(&p.request).map_err(bug)?;
    let target = Target { topic: &p.door.topic, avro: console.doors.avro.as_deref() };
    let bytes = p.door.values.encode(&value, target)?.unwrap_or_default();
    let mut names = Headers::new()
        .with(headers::OPERATION, p.request.operation_id.to_string())
        .with(headers::CE_ID, p.request.message_id.to_string())
        .with(headers::CE_TYPE, "readback.request")
        .with(headers::CE_SOURCE, format!("/{}/api", console.app))
        .with(headers::CE_SPECVERSION, "1.0");
    if let Some(trace) = &p.request.traceparent {
        names.push(headers::TRACEPARENT, trace.clone());
    }
    (entry.came, entry.operation) = (Came::Ordered, p.key.operation.to_string());
    (entry.tenant, entry.step) = (p.key.tenant.to_string(), p.key.step.to_string());
    entry.detail = format!("to {}, content {}", p.door.topic, p.request.identity());
    // What can't be written down is not done.
    console.books.audit(entry)?;
    console.books.submit(&p.door.topic, p.key.operation.as_str(), &bytes, &names)
}

/// Where an operation stands, by its evidence; `None` where nobody has read the request yet.
fn standing(console: &Console, key: &OperationKey) -> Result<Option<Standing>> {
    let found = console.kept().index().find(key.operation.as_str(), Some(key.tenant.as_str()), Some(key.step.as_str()));
    // Without a status only commands came so far.
    let Some(listed) = found.into_iter().find(|l| l.status.is_some()) else { return Ok(None) };
    // It may have changed since the tail read it: the next look finds it.
    Ok(console.books.read(&listed)?.map(|seen| Standing::of(&seen)))
}

fn waited(console: &Console, p: &Prepared<'_>) -> Result<Standing> {
    let mut at = p.known.clone().unwrap_or(Standing::QUEUED);
    let until = Instant::now() + p.within;
    let place = console.waiting.clone().try_acquire_owned();
    let mut version = None;
    while !p.wait_for.is_reached(&at) && !at.ended() && place.is_ok() && Instant::now() < until {
        std::thread::sleep(LOOK);
        let listed = console.kept().index().find(p.key.operation.as_str(), Some(p.key.tenant.as_str()), Some(p.key.step.as_str()));
        let now = listed.first().map(|l| (l.record, l.ledger));
        if now.is_none() || now == version {
            continue;
        }
        // Evidence that can't be read now is looked for again; the request is written all the same.
        let Ok(Some(found)) = standing(console, &p.key) else { continue };
        if found.identity.as_ref().is_some_and(|identity| *identity != p.request.identity()) {
            return Err(conflict(&p.key));
        }
        (at, version) = (found, now);
    }
    Ok(at)
}

fn answer(key: &OperationKey, at: &Standing) -> Submitted {
    let (operation, tenant, step) = (key.operation.to_string(), key.tenant.to_string(), key.step.to_string());
    let link = format!("/api/v1/operations/{}?tenant={}&step={}", escape(&operation), escape(&tenant), escape(&step));
    Submitted {
        schema: "readback.submitted/1".to_owned(),
        operation,
        tenant,
        step,
        level: at.level,
        status: at.status.map(|s| s.word().to_owned()),
        ended: at.ended(),
        version: at.version,
        link,
    }
}
