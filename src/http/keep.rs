//! Connections that are kept between calls: for calls whose unknowns resolve themselves. One exchange at a time; a connection that is
//! not provably open and silent is not used; and none is kept for long, since whoever closes it first may do so just when a call leaves.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use super::dial::Origin;
use super::gate::Line;

/// How long a silent connection is kept: servers and proxies close theirs after two seconds and more.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// How old a connection gets, so that a changed name or address is seen.
pub(super) const AGE: Duration = Duration::from_secs(30);
/// Most silent connections to one place.
const MOST: usize = 256;

/// Where a connection leads; addresses are checked when it is made, and by this rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    pub(super) origin: Origin,
    pub(super) private: bool,
}

/// The client's half of an open connection: who sends on it, who moves its bytes, and the socket beneath.
pub(super) struct Open {
    pub(super) sender: SendRequest<Full<Bytes>>,
    pub(super) moves: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) line: Arc<Line>,
    pub(super) over: bool,
    born: Instant,
    silent_since: Instant,
}

impl Open {
    pub(super) fn new(
        sender: SendRequest<Full<Bytes>>,
        moves: impl Future<Output = ()> + Send + 'static,
        line: Arc<Line>,
        now: Instant,
    ) -> Self {
        Self { sender, moves: Box::pin(moves), line, over: false, born: now, silent_since: now }
    }

    /// Whether it can take another call: the exchange is over for both sides, and nothing more was said.
    async fn rests(&mut self) -> bool {
        let ready = poll_fn(|cx| {
            self.over = self.over || self.moves.as_mut().poll(cx).is_ready();
            Poll::Ready(!self.over && matches!(self.sender.poll_ready(cx), Poll::Ready(Ok(()))))
        });
        ready.await && self.line.is_silent()
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now < self.silent_since + IDLE && now < self.born + AGE
    }
}

/// The kept connections of a process, by place.
#[derive(Default)]
pub(super) struct Keeper(Mutex<HashMap<Place, Vec<Open>>>);

impl Keeper {
    fn places(&self) -> MutexGuard<'_, HashMap<Place, Vec<Open>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that is open and silent right now: the one that was used last.
    pub(super) async fn take(&self, place: &Place) -> Option<Open> {
        loop {
            let mut open = self.places().get_mut(place)?.pop()?;
            if open.is_fresh(Instant::now()) && open.rests().await {
                return Some(open);
            }
        }
    }

    /// Keeps a connection behind a whole answer, where it can take another call. Answers whether it is the first one of all: then
    /// somebody has to look after them.
    pub(super) async fn put(&self, place: Place, mut open: Open) -> bool {
        if !open.rests().await {
            return false;
        }
        open.line.rest();
        open.silent_since = Instant::now();
        let mut places = self.places();
        let first = places.is_empty();
        let kept = places.entry(place).or_default();
        if kept.len() < MOST {
            kept.push(open);
        }
        first
    }

    /// Closes what was silent for too long, until nothing is left.
    pub(super) async fn look_after(&self) {
        while !self.places().is_empty() {
            tokio::time::sleep(IDLE).await;
            let now = Instant::now();
            self.places().retain(|_, kept| {
                kept.retain(|open| open.is_fresh(now));
                !kept.is_empty()
            });
        }
    }
}
