//! The listener: bounded in bodies, time and posts at once. A post is answered when what it says is in Kafka.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use prometheus::{IntCounterVec, Opts, Registry};
use tokio::sync::Semaphore;

use crate::error::{Error, Fault, Result, codes};
use crate::events;
use crate::intents::Control;
use crate::time::SharedClock;

use super::receive::{Book, Outcome, Posted, Seen};

/// Largest body.
const BODY: usize = 256 * 1024;
/// Longest time for a body to come.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// Posts that are worked on at once: each takes a thread while Kafka acknowledges.
const AT_ONCE: usize = 32;

/// Writes what a target told to the control topic; returns when all replicas in sync have it.
pub type Tell = Arc<dyn Fn(&Control) -> Result<()> + Send + Sync>;

/// A running listener; stops when dropped.
pub struct Listener {
    /// Where it listens; the real port where 0 was asked for.
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    book: Book,
    tell: Tell,
    clock: SharedClock,
    room: Arc<Semaphore>,
    seen: Mutex<Seen>,
    posts: IntCounterVec,
}

impl Listener {
    /// Starts listening for the posts of `book`. A taken port names itself and the setting.
    pub async fn start(listen: &str, book: Book, tell: Tell, clock: SharedClock, metrics: &Registry) -> Result<Listener> {
        let refused = |e: std::io::Error| {
            Error::new(codes::BAD_VALUE, Fault::Configuration, format!("listening on {listen} for webhooks"))
                .because(e)
                .next("set webhooks.listen to a free address")
        };
        let listener = tokio::net::TcpListener::bind(listen).await.map_err(refused)?;
        let posts = Self::register(metrics)?;
        let address = listener.local_addr().map_err(refused)?;
        let mut app = axum::Router::new();
        for path in book.paths() {
            app = app.route(path, post(take));
        }
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let shared = Arc::new(Shared { book, tell, clock, room, seen: Mutex::default(), posts });
        let app = app.with_state(shared);
        let task = tokio::spawn(async move {
            if let Err(e) = axum::serve(listener, app).await {
                tracing::error!(error = %e, "webhooks are no longer taken");
            }
        });
        Ok(Listener { address, task })
    }

    /// Makes the count of posts and registers it. A name that is registered already is an error.
    pub(crate) fn register(registry: &Registry) -> Result<IntCounterVec> {
        let m = events::WEBHOOKS;
        IntCounterVec::new(Opts::new(m.name, m.help), m.labels)
            .and_then(|posts| registry.register(Box::new(posts.clone())).map(|()| posts))
            .map_err(|e| Error::new(codes::BUG, Fault::Bug, "registering the metrics of webhooks").because(e))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    // Before the body is read: so many bodies lie in memory at most.
    let Ok(place) = shared.room.clone().try_acquire_owned() else {
        return shared.counted(request.uri().path(), "busy", StatusCode::SERVICE_UNAVAILABLE);
    };
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let body = match tokio::time::timeout(BODY_WITHIN, to_bytes(body, BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return shared.counted(&path, "too_large", StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => return shared.counted(&path, "too_slow", StatusCode::REQUEST_TIMEOUT),
    };
    let mut headers = BTreeMap::new();
    for (name, value) in &parts.headers {
        if let Ok(text) = value.to_str() {
            headers.entry(name.as_str().to_owned()).or_insert_with(|| text.to_owned());
        }
    }
    let worker = shared.clone();
    let answered = tokio::task::spawn_blocking(move || {
        let _place = place;
        worker.answer(&Posted { path: &path, headers: &headers, body: &body })
    });
    answered.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

impl Shared {
    /// Believes, reads, writes, answers; in this order.
    fn answer(&self, posted: &Posted<'_>) -> Response {
        let failed = |e: &Error| {
            tracing::error!(error = %e, path = posted.path, "a webhook can't be taken now; its target will post it again");
            self.counted(posted.path, "failed", StatusCode::SERVICE_UNAVAILABLE)
        };
        let outcome = match self.book.receive(posted, self.clock.now().wall) {
            Ok(outcome) => outcome,
            Err(e) => return failed(&e),
        };
        if let Some(code) = outcome.code() {
            tracing::warn!(%code, path = posted.path, ?outcome, "a webhook is refused");
        }
        let (status, mut word) = outcome.answer();
        if let Outcome::Told(said) = &outcome {
            let digest = Seen::digest(posted);
            if self.seen().knows(&digest) {
                word = "repeated";
            } else if let Err(e) = (self.tell)(said) {
                return failed(&e);
            } else {
                self.seen().remember(digest);
            }
        }
        self.counted(posted.path, word, StatusCode::from_u16(status).unwrap_or(StatusCode::OK))
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self, path: &str, word: &str, status: StatusCode) -> Response {
        let contract = self.book.contract_at(path).map_or("", |c| c.as_str());
        self.posts.with_label_values(&[contract, word]).inc();
        status.into_response()
    }
}
