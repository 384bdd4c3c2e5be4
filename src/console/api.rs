//! `/api/v1`: operations, their evidence, and orders about them, for programs. One table says which routes there are; router and OpenAPI
//! document both come of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Fault, Result, codes};
use crate::intents::{Resolution, Status, Switch};
use crate::time::parse_duration;

use super::Console;
use super::act::{Action, Ordered, Wanted, act};
use super::index::Page;
use super::letters::{self, Letters, ReplayBody, Replayed};
use super::paging::Paging;
use super::people::Person;
use super::problem::Problem;
use super::search::{Search, pairs};
use super::second;
use super::shown::{Operation, Row};
use super::submit::wire::{SubmitBody, Submitted};
use super::submit::{self, Around};
use super::wire::{
    CommandAnswer, ConfirmBody, DecideBody, Found, Operations, OrderBody, Overview, Paused, Reading, ResolveBody, Session,
    WaitingOrders,
};

/// A call of the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// The OpenAPI document.
    Document,
    /// Counts, and what waits longest.
    Overview,
    /// A page of operations.
    Operations,
    /// A page of those that are unknown or parked, the oldest first.
    Unknowns,
    /// A page of those that wait for an approval, the oldest first.
    Approvals,
    /// One operation with its evidence.
    Operation,
    /// Who asks.
    Session,
    /// Says what happened.
    Resolve,
    /// An order that needs no more than the common body.
    Order(Action),
    /// A decision about a plan.
    Decide(Action),
    /// Orders that wait for a second person.
    Waiting,
    /// The second person's word for one.
    Confirm,
    /// Writes a request, and waits.
    Submit,
    /// Dead letters that rest.
    DeadLetters,
    /// Sends one back.
    Replay,
}

/// One route.
pub struct Route {
    /// Which call.
    pub call: Call,
    /// Its path.
    pub path: &'static str,
    /// What it is for.
    pub summary: &'static str,
}

const fn route(call: Call, path: &'static str, summary: &'static str) -> Route {
    Route { call, path, summary }
}

/// All of them.
pub const ROUTES: &[Route] = &[
    route(Call::Document, "/api/v1/openapi.json", "This document."),
    route(Call::Overview, "/api/v1/overview", "How many operations stand where, and what waits longest."),
    route(Call::Operations, "/api/v1/operations", "A page of operations, the newest change first."),
    route(Call::Unknowns, "/api/v1/unknowns", "Operations that are unknown or parked, the oldest first."),
    route(Call::Approvals, "/api/v1/approvals", "Operations that wait for an approval, the oldest first."),
    route(Call::Session, "/api/v1/session", "Whose token this is, and what it may do."),
    route(Call::Operation, "/api/v1/operations/{operation}", "One operation with all its evidence."),
    route(Call::Resolve, "/api/v1/operations/{operation}/resolve", "Say that the effect exists, or that it does not."),
    route(Call::Order(Action::Force), "/api/v1/operations/{operation}/force", "Order one more send of a parked operation."),
    route(Call::Decide(Action::Approve), "/api/v1/operations/{operation}/approve", "Approve the plan that was shown."),
    route(Call::Decide(Action::Deny), "/api/v1/operations/{operation}/deny", "Deny the plan that was shown."),
    route(Call::Order(Action::Cancel), "/api/v1/operations/{operation}/cancel", "Forbid further sends."),
    route(Call::Order(Action::ReleaseLane), "/api/v1/operations/{operation}/release-lane", "Let what waits behind it go on."),
    route(Call::Waiting, "/api/v1/waiting", "A page of orders that wait for a second person."),
    route(Call::Confirm, "/api/v1/waiting/confirm", "Confirm one, as the second person."),
    route(Call::Submit, "/api/v1/requests/{to}", "Submit a request, and wait until it stands where you ask for."),
    route(Call::DeadLetters, "/api/v1/dead-letters", "A page of dead letters that rest, the oldest first, without payloads."),
    route(Call::Replay, "/api/v1/dead-letters/{letter}/replay", "Send a dead letter back, once."),
];

impl Call {
    /// Whether it orders something.
    pub fn orders(self) -> bool {
        matches!(self, Call::Resolve | Call::Order(_) | Call::Decide(_) | Call::Confirm | Call::Submit | Call::Replay)
    }
    /// Whether it takes the query of a search.
    pub fn searches(self) -> bool {
        matches!(self, Call::Operations | Call::Unknowns | Call::Approvals)
    }
    /// Whether it takes the query of a list that is no search.
    pub fn pages(self) -> bool {
        matches!(self, Call::DeadLetters | Call::Waiting)
    }
    /// The schema of its body.
    pub fn body(self, g: &mut SchemaGenerator) -> Option<Schema> {
        match self {
            Call::Resolve => Some(g.subschema_for::<ResolveBody>()),
            Call::Order(_) => Some(g.subschema_for::<OrderBody>()),
            Call::Decide(_) => Some(g.subschema_for::<DecideBody>()),
            Call::Confirm => Some(g.subschema_for::<ConfirmBody>()),
            Call::Submit => Some(g.subschema_for::<SubmitBody>()),
            Call::Replay => Some(g.subschema_for::<ReplayBody>()),
            _ => None,
        }
    }
    /// The schema of its answer.
    pub fn answer(self, g: &mut SchemaGenerator) -> Schema {
        match self {
            Call::Document => Schema::from(true),
            Call::Overview => g.subschema_for::<Overview>(),
            Call::Operations | Call::Unknowns | Call::Approvals => g.subschema_for::<Operations>(),
            Call::Operation => g.subschema_for::<Operation>(),
            Call::Session => g.subschema_for::<Session>(),
            Call::DeadLetters => g.subschema_for::<Letters>(),
            Call::Submit => g.subschema_for::<Submitted>(),
            Call::Replay => g.subschema_for::<Replayed>(),
            Call::Waiting => g.subschema_for::<WaitingOrders>(),
            Call::Resolve | Call::Order(_) | Call::Decide(_) | Call::Confirm => g.subschema_for::<CommandAnswer>(),
        }
    }
}

/// Largest body that is taken.
pub const BODY: usize = 64 * 1024;

/// What a call needs of its request.
#[derive(Clone)]
pub struct Asked {
    /// The operation in the path.
    pub operation: Option<String>,
    /// The query.
    pub query: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The address that it came from.
    pub from: String,
}

/// Answers a call; blocks where Kafka is asked.
pub fn serve(console: &Arc<Console>, call: Call, asked: &Asked) -> Response {
    answer(console, call, asked).unwrap_or_else(|e| Problem::of(&e).into_response())
}

fn answer(console: &Console, call: Call, asked: &Asked) -> Result<Response> {
    if call == Call::Document {
        return Ok(json(&super::openapi::document()));
    }
    let who = bearer(console, asked)?;
    if call.orders() {
        let Some(who) = who else { return Err(read_only()) };
        return order(console, call, &who, asked);
    }
    let operation = asked.operation.as_deref().unwrap_or_default();
    Ok(match call {
        Call::Operations => json(&listed(console, Search::parse(&asked.query)?)),
        Call::Unknowns => json(&listed(console, narrowed(&asked.query, &[Status::Unknown, Status::Parked])?)),
        Call::Approvals => json(&listed(console, narrowed(&asked.query, &[Status::AwaitingApproval])?)),
        Call::Operation => {
            let (tenant, step) = place(&asked.query)?;
            let listed = console.one(operation, tenant.as_deref(), step.as_deref())?;
            let seen = console.evidence(&listed.key)?;
            json(&Operation::of(&listed.key, &seen, &console.around(&listed.key, &seen)))
        }
        Call::Session => json(&session(who.as_ref())),
        Call::DeadLetters => json(&letters::list(console, &Paging::parse(&asked.query)?)?),
        Call::Waiting => {
            let paging = Paging::parse(&asked.query)?;
            json(&WaitingOrders::page(console.waiters.list(console.now(), |_| true), &paging))
        }
        _ => json(&overview(console)),
    })
}

fn json(value: &impl Serialize) -> Response {
    let body = serde_json::to_string(value).unwrap_or_default();
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Nobody can sign in.
pub fn read_only() -> Error {
    Error::new(codes::NOT_PERMITTED, Fault::Verdict, "ordering something")
        .because("nobody can sign in here: the console is read-only")
        .next("name an issuer in console.oidc, or a file of tokens in console.tokens; `readback console token` makes its lines")
}

/// Whose token the request has; `None` where nobody can sign in.
fn bearer(console: &Console, asked: &Asked) -> Result<Option<Person>> {
    if !console.signs_in() {
        return Ok(None);
    }
    let given = asked.headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let token =
        given.and_then(|v| v.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, t)| t.trim());
    let needed = |why: &str| {
        Error::new(codes::SIGN_IN_REQUIRED, Fault::Verdict, "using the API")
            .because(why.to_owned())
            .next("send `Authorization: Bearer <token>`")
    };
    let token = token.ok_or_else(|| needed("no bearer token came with the request"))?;
    let person = console.by_bearer(token, &asked.from, console.now())?;
    person.map(Some).ok_or_else(|| needed("nobody is known by this token"))
}

/// A search within what a list is for.
///
/// # Errors
/// `BAD_VALUE`.
pub fn narrowed(query: &str, status: &[Status]) -> Result<Search> {
    let asked = Search::parse(query)?;
    let within: Vec<Status> = asked.status.iter().copied().filter(|s| status.contains(s)).collect();
    let ordered = pairs(query).iter().any(|(key, value)| key == "order" && !value.is_empty());
    let status = if asked.status.is_empty() { status.to_vec() } else { within };
    if status.is_empty() {
        return Err(Error::new(codes::BAD_VALUE, Fault::Configuration, "reading `status` of the search")
            .because("this list has none of those"));
    }
    Ok(Search { status, oldest_first: asked.oldest_first || !ordered, ..asked })
}

/// Tenant and step of a query.
///
/// # Errors
/// `BAD_VALUE`.
pub fn place(query: &str) -> Result<(Option<String>, Option<String>)> {
    let (mut tenant, mut step) = (None, None);
    for (key, value) in pairs(query).into_iter().filter(|(_, v)| !v.is_empty()) {
        match key.as_str() {
            "tenant" => tenant = Some(value),
            "step" => step = Some(value),
            _ => {
                return Err(Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading `{key}` of the query"))
                    .because("known are tenant, step"));
            }
        }
    }
    Ok((tenant, step))
}

/// A page of a list, and how far reading is.
pub fn page(console: &Console, search: &Search) -> (Page, Reading) {
    let progress = console.kept().progress();
    let index = console.kept().index();
    let page = index.page(search, console.now());
    let reading =
        Reading { whole: progress.whole, unreadable: progress.unreadable, left_out: index.left_out, problem: progress.problem };
    (page, reading)
}

fn listed(console: &Console, search: Search) -> Operations {
    let (page, reading) = page(console, &search);
    Operations {
        schema: "readback.operations/1".to_owned(),
        operations: page.rows.iter().map(Row::from).collect(),
        next: page.next.map(|c| c.text()),
        reading,
    }
}

/// How many operations stand where.
pub fn overview(console: &Console) -> Overview {
    let progress = console.kept().progress();
    let index = console.kept().index();
    let words = |counts: BTreeMap<&'static str, usize>| counts.into_iter().map(|(s, n)| (s.to_owned(), n)).collect();
    let oldest = |status| index.oldest(status).as_ref().map(Row::from);
    Overview {
        schema: "readback.overview/1".to_owned(),
        application: console.app.to_string(),
        by_status: words(index.by_status()),
        proposals: words(index.proposals()),
        by_target: index.by_target().into_iter().map(|(target, counts)| (target, words(counts))).collect(),
        oldest_unknown: oldest(Status::Unknown),
        oldest_parked: oldest(Status::Parked),
        oldest_awaiting_approval: oldest(Status::AwaitingApproval),
        paused: index.paused().into_iter().map(|(order, taken)| paused(order, taken)).collect(),
        reading: Reading {
            whole: progress.whole,
            unreadable: progress.unreadable,
            left_out: index.left_out,
            problem: progress.problem,
        },
    }
}

fn paused(order: &Switch, partitions: usize) -> Paused {
    let Switch { scope, by, reason, at, .. } = order;
    Paused { scope: scope.to_string(), by: by.clone(), reason: reason.clone(), at: at.0, partitions }
}

fn session(who: Option<&Person>) -> Session {
    let may = |a: &Action| who.is_some_and(|w| w.is(a.roles()));
    Session {
        name: who.map(|w| w.name.clone()),
        roles: who.map(|w| w.roles.iter().map(|r| r.word().to_owned()).collect()).unwrap_or_default(),
        may: Action::ALL.iter().filter(|a| may(a)).map(|a| a.word().to_owned()).collect(),
    }
}

fn order(console: &Console, call: Call, who: &Person, asked: &Asked) -> Result<Response> {
    let operation = asked.operation.as_deref().unwrap_or_default();
    let (action, wanted) = match call {
        Call::Submit => return submitted(console, who, asked),
        Call::Replay => {
            let body: ReplayBody = read(asked)?;
            let deadline = body.deadline.as_deref().map(span).transpose()?;
            return Ok(json(&letters::replay(console, who, &asked.from, operation, &body.reason, deadline)?));
        }
        Call::Confirm => {
            let body: ConfirmBody = read(asked)?;
            return Ok(ordered(second::confirm(console, who, &asked.from, &body.command, &body.reason)?));
        }
        Call::Resolve => {
            let body: ResolveBody = read(asked)?;
            let resolution = match body.resolution {
                Found::Applied => Resolution::Applied,
                Found::NotApplied => Resolution::NotApplied,
            };
            let (second_token, ask_second) = (body.second_token.clone(), body.ask_second);
            (Action::Resolve(resolution), Wanted { second_token, ask_second, ..body.common(operation) })
        }
        Call::Decide(action) => {
            let body: DecideBody = read(asked)?;
            let expires = body.expires.as_deref().map(span).transpose()?;
            (action, Wanted { plan_hash: Some(body.plan_hash.clone()), expires, ..body.common(operation) })
        }
        Call::Order(action) => {
            let body: OrderBody = read(asked)?;
            let (second_token, ask_second) = (body.second_token.clone(), body.ask_second);
            (action, Wanted { second_token, ask_second, ..body.common(operation) })
        }
        _ => return Err(Error::new(codes::BUG, Fault::Bug, "ordering by a call that only reads")),
    };
    Ok(ordered(act(console, who, &asked.from, action, &wanted)?))
}

fn submitted(console: &Console, who: &Person, asked: &Asked) -> Result<Response> {
    let header = |name: &str| asked.headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim).filter(|v| !v.is_empty());
    let around = Around {
        to: asked.operation.as_deref().unwrap_or_default(),
        query: &asked.query,
        key: header("idempotency-key"),
        traceparent: header("traceparent"),
        from: &asked.from,
    };
    let (reached, done) = submit::submit(console, who, &around, read(asked)?)?;
    let mut response = json(&done);
    *response.status_mut() = if reached { StatusCode::OK } else { StatusCode::ACCEPTED };
    if let Ok(link) = HeaderValue::from_str(&done.link) {
        response.headers_mut().insert(header::LOCATION, link);
    }
    Ok(response)
}

/// A duration as people write it.
///
/// # Errors
/// `BAD_VALUE`.
pub fn span(text: &str) -> Result<Duration> {
    parse_duration(text).ok_or_else(|| {
        Error::new(codes::BAD_VALUE, Fault::Configuration, "reading a duration")
            .because(format!("`{text}` is no duration; write 30m or 2h"))
    })
}

fn read<T: DeserializeOwned>(asked: &Asked) -> Result<T> {
    let wrong = |why: String| Error::new(codes::BAD_VALUE, Fault::Configuration, "reading the body of an order").because(why);
    let kind = asked.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !kind.trim_start().to_ascii_lowercase().starts_with("application/json") {
        return Err(wrong("send it as application/json".to_owned()));
    }
    serde_json::from_slice(&asked.body).map_err(|e| wrong(e.to_string()))
}

fn ordered(done: Ordered) -> Response {
    let command = done.command.to_string();
    let schema = "readback.command/1".to_owned();
    let waits_until = done.waits.map(|at| at.0);
    match done.answer {
        Some((None, detail)) => json(&CommandAnswer { schema, command, answered: true, waits_until, detail }),
        Some((Some(code), detail)) => {
            let stale = code == codes::STALE_VERSION.to_string();
            let status = if stale { StatusCode::CONFLICT } else { StatusCode::UNPROCESSABLE_ENTITY };
            Problem::coded(status, &code, detail, None).into_response()
        }
        None => {
            let detail = match waits_until {
                Some(_) => "nothing is ordered yet: a second person must confirm it",
                None => "no member has answered yet: the order stands in the topic and is answered once one runs",
            };
            let detail = detail.to_owned();
            let mut response = json(&CommandAnswer { schema, command, answered: false, waits_until, detail });
            *response.status_mut() = StatusCode::ACCEPTED;
            response
        }
    }
}
