//! The console over HTTP: routes, headers that every answer has, and who may ask at all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};

use crate::error::{Error, Fault, codes};
use crate::time::show_duration;

use super::api::{self, Asked, BODY, ROUTES};
use super::live;
use super::pages::{self, PAGES};
use super::problem::Problem;
use super::proxies;
use super::{Console, is_loopback_host};

/// Requests that are answered at once: each takes a thread of the process while Kafka is asked, an order up to 20 s.
pub const AT_ONCE: usize = 64;

/// Headers of every answer: only our own script runs, nothing is framed, nothing is sent on, nothing is kept.
const HEADERS: &[(header::HeaderName, &str)] = &[
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The routes of a console.
pub fn router(console: Arc<Console>) -> axum::Router {
    let mut router = axum::Router::new();
    for route in ROUTES {
        let call = route.call;
        let method = if call.orders() { MethodFilter::POST } else { MethodFilter::GET };
        let to = console.clone();
        let answer = move |path: Named, ConnectInfo(from): ConnectInfo<SocketAddr>, request: Request| async move {
            let answer = move |console: &Arc<Console>, asked: &Asked| api::serve(console, call, asked);
            ask(to, path, from, request, answer).await
        };
        router = router.route(route.path, on(method, answer));
    }
    for &(page, path, takes_form) in PAGES {
        let to = console.clone();
        let answer = move |path: Named, ConnectInfo(from): ConnectInfo<SocketAddr>, request: Request| async move {
            let post = request.method() == Method::POST;
            let answer = move |console: &Arc<Console>, asked: &Asked| pages::serve(console, page, post, asked);
            ask(to, path, from, request, answer).await
        };
        let methods = if takes_form { MethodFilter::GET.or(MethodFilter::POST) } else { MethodFilter::GET };
        router = router.route(path, on(methods, answer));
    }
    let to = console.clone();
    let router = router.route("/events", axum::routing::get(move |request: Request| live::events(to, request)));
    let to = console.clone();
    let router = router.fallback(move |uri: Uri| async move { pages::nowhere(&to, uri.path()) });
    let to = console.clone();
    let router =
        router.method_not_allowed_fallback(move |method: Method, uri: Uri| async move { pages::not_so(&to, uri.path(), &method) });
    router.layer(middleware::from_fn_with_state(console, guard))
}

/// What the address names, where it names something; an error where that is no text.
type Named = Result<Option<Path<String>>, PathRejection>;

async fn ask(
    console: Arc<Console>,
    named: Named,
    from: SocketAddr,
    request: Request,
    answer: impl FnOnce(&Arc<Console>, &Asked) -> Response + Send + 'static,
) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(operation) = named.map(|path| path.map(|Path(operation)| operation)) else {
        return pages::unreadable(&console, parts.uri.path());
    };
    let body = match tokio::time::timeout(console.body_within, to_bytes(body, BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return too_large(),
        Err(_) => return too_slow(console.body_within),
    };
    let Ok(place) = console.room.clone().try_acquire_owned() else { return busy() };
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let from = proxies::client(&console.proxies, from.ip(), &parts.headers).to_string();
    let asked = Asked { operation, query, headers: parts.headers, body, from };
    // The place is held until the answer is made, whether or not anybody still waits for it.
    aside(move || {
        let _place = place;
        answer(&console, &asked)
    })
    .await
}

/// Answers where it may wait for Kafka.
async fn aside(answer: impl FnOnce() -> Response + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(answer).await {
        Ok(response) => response,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn too_large() -> Response {
    let e = Error::new(codes::BAD_VALUE, Fault::Configuration, "reading the body of a request").because("it takes 64 KB at most");
    Problem::of(&e).into_response()
}

fn too_slow(limit: Duration) -> Response {
    let detail = format!("the body of the request did not come within {}", show_duration(limit));
    Problem::coded(StatusCode::REQUEST_TIMEOUT, &codes::BAD_VALUE.to_string(), detail, None).into_response()
}

fn busy() -> Response {
    let e = Error::new(codes::CONSOLE_BUSY, Fault::Unreachable, "asking the console")
        .because(format!("{AT_ONCE} requests are being answered already"))
        .next("try again in a moment");
    let mut response = Problem::of(&e).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Where nobody has to sign in, only this machine may ask, and under a name of its own: another site's name that points here must not
/// read what stands here.
async fn guard(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let refused = refusal(&console, &request);
    let mut response = match refused {
        Some(e) => Problem::of(&e).into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name.clone(), HeaderValue::from_static(value));
    }
    response
}

fn refusal(console: &Console, request: &Request) -> Option<Error> {
    let text = |name: header::HeaderName| request.headers().get(name).map(|v| v.to_str().unwrap_or("?"));
    let host = text(header::HOST).unwrap_or_default();
    let refused = |why: String| Some(Error::new(codes::NOT_PERMITTED, Fault::Verdict, "asking the console").because(why));
    if !console.signs_in() && !is_loopback_host(host) {
        return refused(format!("nobody has to sign in here, and {host} is no name of this machine"));
    }
    if request.method() != Method::POST {
        return None;
    }
    // The token in each form decides; this refuses the rest early. Under our own referrer policy browsers send the origin `null`.
    let site = request.headers().get("sec-fetch-site").map(|v| v.to_str().unwrap_or("?"));
    let same_site = site.is_none_or(|s| ["same-origin", "none"].contains(&s));
    let origin = text(header::ORIGIN).filter(|o| *o != "null");
    let same_origin = origin.is_none_or(|o| o.split_once("://").is_some_and(|(_, of)| of == host));
    if same_site && same_origin { None } else { refused(format!("a form came from {}", origin.unwrap_or("another site"))) }
}
