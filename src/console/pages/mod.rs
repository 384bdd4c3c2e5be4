//! Pages: rendered here, complete without a script, from what the API shows too. `live.js` keeps them as things are now.

mod approvals;
mod budgets;
mod calls;
mod evidence;
mod form;
mod guarantees;
mod issuer;
mod layout;
mod letter;
mod letters;
mod members;
mod operation;
mod operations;
mod overview;
mod process;
mod request;
mod sign_in;
mod topology;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use crate::error::{Error, Fault, Result, codes};

use super::api::Asked;
use super::people::Person;
use super::problem::{self, Problem};
use super::search::escape;
use super::session::Claim;
use super::{Console, is_loopback_host};

/// A page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// How things stand.
    Overview,
    /// The list of operations, with its search in the address.
    Operations,
    /// One operation; takes the forms of orders.
    Operation,
    /// What nobody knows yet, or a person must decide.
    Unknowns,
    /// What waits for an approval.
    Approvals,
    /// Dead letters; takes the form that sends one back.
    DeadLetters,
    /// One dead letter with what it holds.
    DeadLetter,
    /// The graph.
    Topology,
    /// Members and partitions.
    Members,
    /// What is promised, compared with the cluster.
    Guarantees,
    /// How this process is configured.
    Configuration,
    /// Where one signs in.
    SignIn,
    /// Leads to the issuer.
    ToIssuer,
    /// Where the issuer sends people back to.
    FromIssuer,
    /// Where one signs out.
    SignOut,
    /// The style of all pages.
    Style,
    /// The script of pages that follow what they show.
    Script,
}

/// Every page with its path, and whether it takes a form.
pub const PAGES: &[(Page, &str, bool)] = &[
    (Page::Overview, "/", false),
    (Page::Operations, "/operations", false),
    (Page::Operation, "/operations/{operation}", true),
    (Page::Unknowns, "/unknowns", false),
    (Page::Approvals, "/approvals", false),
    (Page::DeadLetters, "/dead-letters", true),
    (Page::DeadLetter, "/dead-letters/{letter}", false),
    (Page::Topology, "/topology", false),
    (Page::Members, "/members", false),
    (Page::Guarantees, "/guarantees", false),
    (Page::Configuration, "/configuration", false),
    (Page::SignIn, "/sign-in", true),
    (Page::ToIssuer, "/sign-in/oidc", false),
    (Page::FromIssuer, "/sign-in/callback", false),
    (Page::SignOut, "/sign-out", true),
    (Page::Style, "/style.css", false),
    (Page::Script, "/live.js", false),
];

/// Who looks at a page.
pub enum Visitor {
    /// Whoever reaches this machine: nobody can sign in, and nothing can be ordered.
    Anyone,
    /// Somebody who has signed in.
    Known {
        /// Who.
        person: Person,
        /// Their session.
        claim: Claim,
        /// Its cookie, which forms belong to.
        cookie: String,
    },
}

/// What a page is made of.
pub struct View<'a> {
    /// Whose operations.
    pub console: &'a Console,
    /// Who looks.
    pub visitor: &'a Visitor,
    /// Which page.
    pub page: Page,
}

impl View<'_> {
    /// The hidden fields that make a form ours.
    pub fn form_token(&self) -> Markup {
        match self.visitor {
            Visitor::Anyone => html! {},
            Visitor::Known { cookie, .. } => html! {
                input type="hidden" name="form" value=(self.console.sessions.form_token(cookie));
            },
        }
    }
}

/// Answers a page.
pub fn serve(console: &Arc<Console>, page: Page, post: bool, asked: &Asked) -> Response {
    if page == Page::Style {
        return ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("style.css")).into_response();
    }
    if page == Page::Script {
        return ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("live.js")).into_response();
    }
    match page {
        Page::SignIn => return sign_in::serve(console, post, asked),
        Page::ToIssuer => return issuer::begin(console, asked),
        Page::FromIssuer => return issuer::finish(console, asked),
        _ => {}
    }
    let visitor = match visitor(console, &asked.headers) {
        Ok(Some(visitor)) => visitor,
        Ok(None) => return sign_in::first(page, asked),
        Err(e) => return failed(&View { console, visitor: &Visitor::Anyone, page }, &e),
    };
    let view = View { console, visitor: &visitor, page };
    let made = match page {
        Page::Overview => overview::page(&view),
        Page::Operations => operations::page(&view, &asked.query),
        Page::Unknowns => operations::unknowns(&view, &asked.query),
        Page::Approvals => approvals::page(&view, &asked.query),
        Page::DeadLetters if post => return letters::replay(&view, asked).unwrap_or_else(|e| failed(&view, &e)),
        Page::DeadLetters => letters::page(&view),
        Page::DeadLetter => letter::page(&view, asked),
        Page::Topology => topology::page(&view),
        Page::Members => members::page(&view),
        Page::Guarantees => guarantees::page(&view),
        Page::Configuration => Ok(members::configuration(&view)),
        Page::Operation if post => return operation::order(&view, asked).unwrap_or_else(|e| failed(&view, &e)),
        Page::Operation => operation::page(&view, asked),
        Page::SignOut if post => return sign_in::out(&view, asked).unwrap_or_else(|e| failed(&view, &e)),
        Page::SignOut | Page::SignIn | Page::ToIssuer | Page::FromIssuer | Page::Style | Page::Script => return redirect("/"),
    };
    match made {
        Ok(body) => ok(body),
        Err(e) => failed(&view, &e),
    }
}

/// Who has signed in; `None` where somebody should.
pub(super) fn visitor(console: &Console, headers: &HeaderMap) -> Result<Option<Visitor>> {
    if !console.signs_in() {
        return Ok(Some(Visitor::Anyone));
    }
    let Some(cookie) = cookie(headers, session_cookie(console, headers)) else { return Ok(None) };
    let Some(claim) = console.sessions.read(&cookie, console.now()) else { return Ok(None) };
    let person = console.person_of(&claim)?;
    Ok(person.map(|person| Visitor::Known { person, claim, cookie }))
}

/// Whether cookies go over TLS only: away from loopback, and where a proxy on this machine passes a name or a protocol of its own.
fn secure(console: &Console, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let named = text("host").is_some_and(|host| !is_loopback_host(host));
    console.secure || named || text("x-forwarded-proto").is_some_and(|p| p.eq_ignore_ascii_case("https"))
}

/// The name of the session's cookie: over TLS one that no other host can set.
fn session_cookie(console: &Console, headers: &HeaderMap) -> &'static str {
    if secure(console, headers) { "__Host-readback" } else { "readback" }
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(';'));
    all.filter_map(|pair| pair.trim().split_once('=')).find(|(n, _)| *n == name).map(|(_, value)| value.to_owned())
}

fn ok(body: Markup) -> Response {
    html_page(StatusCode::OK, body)
}

fn html_page(status: StatusCode, body: Markup) -> Response {
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], body.into_string()).into_response()
}

fn redirect(to: &str) -> Response {
    let to = HeaderValue::from_str(to).unwrap_or_else(|_| HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// The answer to an address that leads nowhere, for whoever asks: an empty one would look like a fault of ours.
pub fn nowhere(console: &Console, path: &str) -> Response {
    if path.starts_with("/api/") {
        let e = Error::new(codes::UNKNOWN_REFERENCE, Fault::Configuration, "using the API").because("there is no such call");
        return Problem::of(&e.next("see /api/v1/openapi.json")).into_response();
    }
    let body = html! {
        main id="main" { h1 { "Nothing is here" } p { "No page has this address. " a href="/" { "Overview" } } }
    };
    html_page(StatusCode::NOT_FOUND, layout::bare("Nothing is here", console.app.as_str(), body))
}

/// The page of an error.
fn failed(view: &View<'_>, e: &Error) -> Response {
    let body = layout::page(
        view,
        "It can't be shown",
        html! {
            h1 { "That did not work" }
            (layout::problem(e))
            p { a href="/" { "Overview" } }
        },
    );
    html_page(problem::status(e), body)
}

/// Where an operation's page is.
fn link(key: &crate::ids::OperationKey) -> String {
    format!(
        "/operations/{}?tenant={}&step={}",
        escape(key.operation.as_str()),
        escape(key.tenant.as_str()),
        escape(key.step.as_str())
    )
}
