//! `/events`: tells a page which of its parts have changed, as server-sent events. The page fetches itself anew; what stands in it is told
//! by pages only. Streams are bounded in number, and end with their session.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::error::{Error, Fault, codes};
use crate::ids::OperationKey;
use crate::time::WallTime;

use super::Console;
use super::pages::visitor;
use super::problem::Problem;
use super::search::pairs;

/// Streams at once; each is one page that somebody looks at.
pub const STREAMS: usize = 64;
/// Between two looks; a busy application changes all the time, and nobody reads faster.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// After so many looks the time is a change, too: ages and countdowns go on. It is the heartbeat as well.
const CLOCK: u32 = 5;
/// A reader that takes nothing for so long is gone.
const SLOW: Duration = Duration::from_secs(10);

/// Answers with a stream, for as long as whoever asks may see pages.
pub async fn events(console: Arc<Console>, request: Request) -> Response {
    let of = of(request.uri().query().unwrap_or_default());
    let headers = request.headers().clone();
    if !allowed(&console, &headers).await {
        let e = Error::new(codes::SIGN_IN_REQUIRED, Fault::Verdict, "following what changes").because("nobody is signed in");
        return Problem::of(&e).into_response();
    }
    let Ok(place) = console.streams.clone().try_acquire_owned() else {
        let e = Error::new(codes::CONSOLE_BUSY, Fault::Unreachable, "following what changes")
            .because(format!("{STREAMS} pages are followed already"))
            .next("the page works without it: load it again to see what is new");
        return Problem::of(&e).into_response();
    };
    let (to, from) = channel(4);
    tokio::spawn(async move {
        let _place = place;
        tell(&console, &headers, of.as_ref(), &to).await;
    });
    let mut response = (StatusCode::OK, Body::new(Lines(from))).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

async fn allowed(console: &Arc<Console>, headers: &HeaderMap) -> bool {
    let (console, headers) = (console.clone(), headers.clone());
    let known = tokio::task::spawn_blocking(move || visitor(&console, &headers).is_ok_and(|v| v.is_some()));
    known.await.unwrap_or(false)
}

/// The operation whose page asks.
fn of(query: &str) -> Option<OperationKey> {
    let found = pairs(query);
    let get = |name: &str| found.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    Some(OperationKey { tenant: get("tenant")?.into(), operation: get("operation")?.into(), step: get("step")?.into() })
}

async fn tell(console: &Arc<Console>, headers: &HeaderMap, of: Option<&OperationKey>, to: &Sender<Bytes>) {
    let mut seen = Marks::of(console, of);
    let mut looks = 0;
    let mut line = "retry: 3000\n\n".to_owned();
    loop {
        let sent = tokio::time::timeout(SLOW, async { line.is_empty() || to.send(line.into()).await.is_ok() });
        if to.is_closed() || !sent.await.unwrap_or(false) {
            return;
        }
        tokio::time::sleep(console.look_every).await;
        if !allowed(console, headers).await {
            let _ = to.try_send("event: ended\ndata: the session is over\n\n".into());
            return;
        }
        looks += 1;
        let now = Marks::of(console, of);
        let mut parts = now.changed_since(&seen);
        if looks % CLOCK == 0 {
            parts.push("clock");
        }
        seen = now;
        line = if parts.is_empty() { String::new() } else { format!("event: changed\ndata: {}\n\n", parts.join(" ")) };
    }
}

/// By what a change is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Marks {
    operations: u64,
    operation: Option<(i64, WallTime, Option<i64>)>,
    letters: Option<usize>,
    reading: (bool, bool),
}

impl Marks {
    fn of(console: &Console, of: Option<&OperationKey>) -> Self {
        let progress = console.kept().progress();
        let index = console.kept().index();
        let one = of.and_then(|k| index.find(k.operation.as_str(), Some(k.tenant.as_str()), Some(k.step.as_str())).pop());
        Self {
            operations: index.changes,
            operation: one.map(|l| (l.version, l.changed_at, l.ledger.or(l.record).map(|p| p.offset))),
            letters: console.resting().and_then(|r| r.count.ok()),
            reading: (progress.whole, progress.problem.is_some()),
        }
    }

    /// Which parts of pages are others now.
    fn changed_since(&self, before: &Self) -> Vec<&'static str> {
        let reading = self.reading != before.reading;
        let parts = [
            ("operations", reading || self.operations != before.operations),
            ("operation", reading || self.operation != before.operation),
            ("letters", self.letters != before.letters),
        ];
        parts.into_iter().filter(|(_, changed)| *changed).map(|(part, _)| part).collect()
    }
}

/// What a stream's task says, as a body.
struct Lines(Receiver<Bytes>);

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|line| line.map(|l| Ok(Frame::data(l))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a page would stand still while its operation moves, or load again for what it does not show.
    #[test]
    fn only_what_has_changed_is_told() {
        let one = Marks { operations: 7, operation: Some((3, WallTime(1), Some(4))), letters: Some(2), reading: (true, false) };
        assert_eq!(one.changed_since(&one), Vec::<&str>::new());
        let others = Marks { operations: 8, ..one.clone() };
        assert_eq!(others.changed_since(&one), ["operations"]);
        let its_own = Marks { operations: 8, operation: Some((3, WallTime(1), Some(5))), ..one.clone() };
        assert_eq!(its_own.changed_since(&one), ["operations", "operation"]);
        assert_eq!(Marks { letters: Some(3), ..one.clone() }.changed_since(&one), ["letters"]);
        assert_eq!(Marks { reading: (true, true), ..one.clone() }.changed_since(&one), ["operations", "operation"]);
    }

    /// If this broke, the page of one operation would follow another.
    #[test]
    fn a_page_names_its_operation() {
        let key = of("operation=shipment%2F1&tenant=acme&step=notify").expect("named");
        assert_eq!((key.operation.as_str(), key.tenant.as_str(), key.step.as_str()), ("shipment/1", "acme", "notify"));
        assert_eq!((of(""), of("operation=x")), (None, None));
    }
}
