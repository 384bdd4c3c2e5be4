//! Signing in and out.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use maud::{Markup, html};

use crate::console::Console;
use crate::console::api::Asked;
use crate::console::audit::{Came, Entry};
use crate::console::people::{Person, secret};
use crate::console::problem;
use crate::console::search::{escape, pairs};
use crate::error::{Error, Fault, Result, codes};
use crate::time::WallTime;

use super::operation::form_refused;
use super::{Page, View, Visitor, cookie, html_page, issuer, layout, redirect, secure, session_cookie};

/// The cookie that the sign-in form belongs to.
const BEFORE: &str = "readback-form";

/// Sends somebody to sign in first, and back.
pub fn first(page: Page, asked: &Asked) -> Response {
    let path = super::PAGES.iter().find(|(p, ..)| *p == page).map_or("/", |(_, path, _)| path);
    let path = named(path, asked.operation.as_deref().unwrap_or_default());
    let to = if asked.query.is_empty() { path } else { format!("{path}?{}", asked.query) };
    redirect(&format!("/sign-in?to={}", escape(&to)))
}

/// A path with the name that stood where its parameter is, whatever the parameter is called.
fn named(path: &str, name: &str) -> String {
    match (path.split_once('{'), path.split_once('}')) {
        (Some((before, _)), Some((_, behind))) => format!("{before}{}{behind}", escape(name)),
        _ => path.to_owned(),
    }
}

/// The form, and what it sends.
pub fn serve(console: &Arc<Console>, post: bool, asked: &Asked) -> Response {
    if !console.signs_in() {
        return redirect("/");
    }
    if !post {
        return form(console, asked, None);
    }
    match begin(console, asked) {
        Ok(response) => response,
        Err(e) => form(console, asked, Some(&e)),
    }
}

/// Only a place of ours: another site must not be gone to from here.
pub fn to(asked: &Asked) -> String {
    let to = pairs(&asked.query).into_iter().find(|(name, _)| name == "to").map(|(_, to)| to).unwrap_or_default();
    let ours =
        to.starts_with('/') && !to.starts_with("//") && !to.contains('\\') && !to.chars().any(char::is_control) && to.is_ascii();
    if ours { to } else { "/".to_owned() }
}

fn begin(console: &Console, asked: &Asked) -> Result<Response> {
    let fields = pairs(&String::from_utf8_lossy(&asked.body));
    let get = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.trim()).unwrap_or_default();
    let before = cookie(&asked.headers, BEFORE).unwrap_or_default();
    if !console.sessions.is_form_of(&before, get("form")) {
        return Err(form_refused());
    }
    let now = console.now();
    let person = console.by_token(get("token"), &asked.from, now)?.ok_or_else(|| {
        Error::new(codes::SIGN_IN_REQUIRED, Fault::Verdict, "signing in")
            .because("nobody is known by this token")
            .next("check it, or have a line made by `readback console token`")
    })?;
    // A session that nobody could account for does not begin.
    console.books.audit(&Entry::new(now, &person.name, &asked.from, "sign_in", Came::SignedIn))?;
    let mut response = redirect(&to(asked));
    start(console, asked, &person, now.plus(console.sessions.lasts), &mut response);
    Ok(response)
}

/// Gives the browser a session that lasts until then.
pub fn start(console: &Console, asked: &Asked, person: &Person, until: WallTime, response: &mut Response) {
    let value = console.sessions.begin(person, until);
    let age = until.since(console.now()).as_secs();
    let name = session_cookie(console, &asked.headers);
    set(response, &format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{}", tls_only(console, asked)));
}

/// What a cookie ends with where it must not go in the clear.
pub fn tls_only(console: &Console, asked: &Asked) -> &'static str {
    if secure(console, &asked.headers) { "; Secure" } else { "" }
}

/// Sets a cookie.
pub fn set(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

/// The page that signs in, with what went wrong.
pub fn form(console: &Console, asked: &Asked, e: Option<&Error>) -> Response {
    let before = secret();
    let status = e.map_or(StatusCode::OK, problem::status);
    let mut response = html_page(status, shown(console, asked, &before, e));
    set(
        &mut response,
        &format!("{BEFORE}={before}; Path=/sign-in; HttpOnly; SameSite=Strict; Max-Age=3600{}", tls_only(console, asked)),
    );
    response
}

fn shown(console: &Console, asked: &Asked, before: &str, e: Option<&Error>) -> Markup {
    layout::bare(
        "Sign in",
        console.app.as_str(),
        html! {
            main id="main" {
                h1 { "Readback · " (console.app) }
                @if let Some(e) = e { (layout::problem(e)) }
                @if let Some(oidc) = &console.oidc {
                    p { a.button href={ "/sign-in/oidc?to=" (escape(&to(asked))) } { "Sign in with " (oidc.host) } }
                }
                @if console.people.is_some() {
                    form.order.card method="post" action={ "/sign-in?to=" (escape(&to(asked))) } {
                        input type="hidden" name="form" value=(console.sessions.form_token(before));
                        label for="token" { "Your token" input id="token" type="password" name="token" required autocomplete="current-password" autofocus[console.oidc.is_none()]; }
                        button { "Sign in" }
                    }
                    p.soft { "Whoever runs this makes tokens by " code { "readback console token" } "." }
                }
            }
        },
    )
}

/// Ends a session.
///
/// # Errors
/// `FORM_REFUSED`.
pub fn out(view: &View<'_>, asked: &Asked) -> Result<Response> {
    let Visitor::Known { person, claim, cookie } = view.visitor else { return Ok(redirect("/")) };
    let fields = pairs(&String::from_utf8_lossy(&asked.body));
    let ours = fields.iter().any(|(name, token)| name == "form" && view.console.sessions.is_form_of(cookie, token));
    if !ours {
        return Err(form_refused());
    }
    let now = view.console.now();
    view.console.sessions.end(claim, now);
    let mut entry = Entry::new(now, &person.name, &asked.from, "sign_out", Came::SignedOut);
    entry.session = Some(claim.id());
    view.console.note(&entry);
    let mut response = issuer::leave(view.console, person, asked);
    let name = session_cookie(view.console, &asked.headers);
    set(&mut response, &format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{}", tls_only(view.console, asked)));
    Ok(response)
}
