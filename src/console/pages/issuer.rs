//! The way to the issuer and back.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use maud::html;

use crate::console::Console;
use crate::console::api::Asked;
use crate::console::audit::{Came, Entry};
use crate::console::oidc::Oidc;
use crate::console::oidc::claims::vouched;
use crate::console::oidc::flow::{LASTS, Slip};
use crate::console::people::Person;
use crate::console::search::pairs;
use crate::error::{Error, Fault, Result, codes};

use super::sign_in::{form, set, start, tls_only, to};
use super::{cookie, html_page, layout, redirect, secure};

/// Sends a browser to the issuer.
pub fn begin(console: &Arc<Console>, asked: &Asked) -> Response {
    let Some(oidc) = &console.oidc else { return redirect("/sign-in") };
    let slip = Slip::new(&to(asked), console.now());
    match oidc.begin(&slip, &console.sessions, &back(console, oidc, asked), console.now()) {
        Ok(url) => {
            let mut response = redirect(&url);
            keep(console, asked, &slip.cookie(&console.sessions), LASTS.as_secs(), &mut response);
            response
        }
        Err(e) => form(console, asked, Some(&e)),
    }
}

/// Takes the issuer's answer.
pub fn finish(console: &Arc<Console>, asked: &Asked) -> Response {
    let Some(oidc) = &console.oidc else { return redirect("/sign-in") };
    let mut response = match taken(console, oidc, asked) {
        Ok(response) => response,
        Err(e) => match console.wrong(&asked.from, console.now(), &e) {
            Ok(()) => form(console, asked, Some(&e)),
            Err(too_many) => form(console, asked, Some(&too_many)),
        },
    };
    keep(console, asked, "", 0, &mut response);
    response
}

fn taken(console: &Console, oidc: &Oidc, asked: &Asked) -> Result<Response> {
    let now = console.now();
    let refused = |why: &str| {
        Error::new(codes::SIGN_IN_REFUSED, Fault::Verdict, "taking the issuer's answer")
            .because(why.to_owned())
            .next("sign in again, in this browser and in one go")
    };
    let query = pairs(&asked.query);
    let get = |name: &str| query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty());
    let slip = cookie(&asked.headers, slip_cookie(console, asked)).and_then(|c| Slip::read(&c, &console.sessions, now));
    let slip = slip.ok_or_else(|| refused("this browser has no sign-in under way, or it took longer than ten minutes"))?;
    if get("state") != Some(&slip.state) {
        return Err(refused("the answer belongs to another sign-in"));
    }
    // Used up before anything is asked: an answer that comes twice signs in once.
    if !console.sessions.once(&slip.state, slip.until, now) {
        return Err(refused("the answer was taken already"));
    }
    if get("iss").is_some_and(|iss| !oidc.is_issuer(iss)) {
        return Err(refused("the answer is of another issuer"));
    }
    if let Some(error) = get("error") {
        let plain: String = error.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(64).collect();
        return Err(refused(&format!("the issuer says {plain}")));
    }
    let code = get("code").ok_or_else(|| refused("the answer holds no code"))?;
    let vouched = oidc.finish(code, &slip, &console.sessions, &back(console, oidc, asked), now)?;
    // A session that nobody could account for does not begin.
    let mut entry = Entry::new(now, &vouched.person.name, &asked.from, "sign_in", Came::SignedIn);
    entry.subject = Some(crate::outbox::cut(&vouched.subject));
    console.books.audit(&entry)?;
    let until = now.plus(console.sessions.lasts).min(vouched.until);
    let mut response = onward("Signed in", &format!("Welcome, {}.", vouched.person.name), &slip.to, console);
    start(console, asked, &vouched.person, until, &mut response);
    Ok(response)
}

/// What follows a sign-out: where the issuer has a place to end its own session, that.
pub fn leave(console: &Console, person: &Person, asked: &Asked) -> Response {
    let Some(oidc) = console.oidc.as_ref().filter(|_| vouched(&person.token)) else { return redirect("/sign-in") };
    let back = back(console, oidc, asked);
    let home = back.strip_suffix("/callback").unwrap_or(&back);
    match oidc.end_session(home, console.now()) {
        Some(url) => onward("Signed out", &format!("Signed out here. {} ends its own session next.", oidc.host), &url, console),
        None => redirect("/sign-in"),
    }
}

/// A page that leads on by itself. A redirect would not do: after the issuer's one a browser would not send our strict cookie, and our
/// policy for forms lets none lead to another site.
fn onward(title: &str, words: &str, to: &str, console: &Console) -> Response {
    let body = html! { main id="main" { h1 { (title) } p { (words) } p { a href=(to) { "Go on" } } } };
    let mut response = html_page(StatusCode::OK, layout::bare(title, console.app.as_str(), body));
    if let Ok(value) = HeaderValue::from_str(&format!("0; url={to}")) {
        response.headers_mut().insert(header::REFRESH, value);
    }
    response
}

/// Where the issuer sends people back to: as configured, or at the host that they use. The issuer takes only what it has registered.
fn back(console: &Console, oidc: &Oidc, asked: &Asked) -> String {
    let host = asked.headers.get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let scheme = if secure(console, &asked.headers) { "https" } else { "http" };
    oidc.redirect_url.clone().unwrap_or_else(|| format!("{scheme}://{host}/sign-in/callback"))
}

fn slip_cookie(console: &Console, asked: &Asked) -> &'static str {
    if secure(console, &asked.headers) { "__Host-readback-oidc" } else { "readback-oidc" }
}

/// Lax, unlike the session's: the way back begins at the issuer's site.
fn keep(console: &Console, asked: &Asked, value: &str, age: u64, response: &mut Response) {
    let name = slip_cookie(console, asked);
    set(response, &format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{}", tls_only(console, asked)));
}
