//! One HTTP/2 connection and the calls on it, each a stream. The client is `h2` itself: what it queues has not been sent, what the other
//! side says of a stream it has not begun is proof, and nothing is sent twice.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::gate::{Gate, Line};
use super::keep::{AGE, IDLE};
use super::port::{MAX_HEAD, answer_of};
use super::tap::{Begun, Tap};
use super::{Answer, CallLimits, NotSent, Wire};

/// Most calls at once on a connection; beyond them there is another one.
const MOST: usize = 100;
/// How much of an answer may come before it is read.
const WINDOW: u32 = 256 * 1024;
/// The same for all answers of a connection.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// A connection that carries many calls.
pub(super) struct Shared {
    sender: SendRequest<Bytes>,
    begun: Begun,
    pinger: tokio::sync::Mutex<Pinger>,
    pings: AtomicU64,
    /// How many streams the other side takes; nothing tells it any more once the connection is over.
    room: watch::Receiver<usize>,
    load: Arc<Mutex<Load>>,
    line: Weak<Line>,
    moves: AbortHandle,
    born: Instant,
}

/// Who is on a connection.
struct Load {
    calls: usize,
    silent_since: Instant,
}

/// Asks whether the other side has heard all that was said; `heard` is the number of the last question that was answered.
struct Pinger {
    pings: PingPong,
    heard: u64,
}

/// One call's place on a connection.
pub(super) struct Seat(Arc<Shared>);

impl Drop for Seat {
    fn drop(&mut self) {
        let mut load = locked(&self.0.load);
        load.calls -= 1;
        load.silent_since = Instant::now();
    }
}

/// A connection that nobody is on ends in peace, any other with a reset.
impl Drop for Shared {
    fn drop(&mut self) {
        end_in_peace(&self.load, &self.line);
        self.moves.abort();
    }
}

fn locked(load: &Mutex<Load>) -> MutexGuard<'_, Load> {
    load.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end_in_peace(load: &Mutex<Load>, line: &Weak<Line>) {
    if locked(load).calls == 0
        && let Some(line) = line.upgrade()
    {
        line.rest();
    }
}

/// Begins HTTP/2 on an open connection, and waits for the other side's settings: before those nobody knows that it speaks it, nor how
/// many streams it takes.
pub(super) async fn begin<S>(stream: S, line: Arc<Line>, until: Instant) -> Result<Arc<Shared>, NotSent>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    line.share();
    let begun = Begun::default();
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(0)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEAD as u32);
    let hands = builder.handshake::<_, Bytes>(Tap::new(stream, begun.clone()));
    let (sender, mut connection) = match timeout_at(until, hands).await {
        Ok(Ok(both)) => both,
        Ok(Err(_)) => return Err(NotSent::NoHttp2),
        Err(_) => return Err(NotSent::Unconnected),
    };
    let Some(pings) = connection.ping_pong() else { return Err(NotSent::Unconnected) };
    let now = Instant::now();
    let load = Arc::new(Mutex::new(Load { calls: 0, silent_since: now }));
    let (tell, room) = watch::channel(0);
    let line = Arc::downgrade(&line);
    let moves = tokio::spawn(drive(connection, tell, load.clone(), line.clone())).abort_handle();
    let pinger = tokio::sync::Mutex::new(Pinger { pings, heard: 0 });
    let shared = Shared { sender, begun, pinger, pings: AtomicU64::new(0), room, load, line, moves, born: now };
    let mut room = shared.room.clone();
    match timeout_at(until, room.wait_for(|streams| *streams > 0)).await {
        Ok(Ok(_)) => Ok(Arc::new(shared)),
        Ok(Err(_)) => Err(NotSent::NoHttp2),
        Err(_) => Err(NotSent::Unconnected),
    }
}

/// Moves a connection's bytes to its end, and tells how many streams it has room for.
async fn drive<S>(mut connection: Connection<S, Bytes>, room: watch::Sender<usize>, load: Arc<Mutex<Load>>, line: Weak<Line>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    poll_fn(|cx| {
        let over = Pin::new(&mut connection).poll(cx).is_ready();
        room.send_if_modified(|streams| std::mem::replace(streams, connection.max_concurrent_send_streams()) != *streams);
        if over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    end_in_peace(&load, &line);
}

impl Shared {
    /// A place on it, where it takes another call.
    pub(super) fn seat(self: &Arc<Self>) -> Option<Seat> {
        let mut load = locked(&self.load);
        if load.calls >= MOST.min(*self.room.borrow()) {
            return None;
        }
        load.calls += 1;
        Some(Seat(Arc::clone(self)))
    }

    /// Whether new calls may go over it: neither old nor long silent, and the other side has not said that it goes.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        let load = locked(&self.load);
        let silent = load.calls == 0 && now >= load.silent_since + IDLE;
        !silent && now < self.born + AGE && self.room.has_changed().is_ok() && self.takes_streams()
    }

    fn takes_streams(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        !matches!(self.sender.clone().poll_ready(&mut cx), Poll::Ready(Err(_)))
    }

    /// Whether the other side has read all that was written before this question.
    async fn heard_all(&self) -> bool {
        let asked = self.pings.load(Ordering::Acquire);
        let mut pinger = self.pinger.lock().await;
        if pinger.heard <= asked {
            let number = self.pings.fetch_add(1, Ordering::AcqRel) + 1;
            if pinger.pings.ping(Ping::opaque()).await.is_err() {
                return false;
            }
            pinger.heard = number;
        }
        true
    }

    /// Ends the connection: once this is back, not another byte leaves. Whoever else is on it is told by its own stream.
    fn cut(&self) {
        if let Some(line) = self.line.upgrade() {
            line.cut();
        }
        self.moves.abort();
    }

    /// What is known of a stream that came to no answer, for no reason that proves anything. One of which no byte was written has not
    /// been sent, once it can't be any more.
    fn left(&self, stream: u32, why: String) -> Wire {
        if !self.begun.has(stream) {
            self.cut();
            if !self.begun.has(stream) {
                return Wire::NotSent(NotSent::Unconnected);
            }
        }
        Wire::MaybeSent(why)
    }
}

/// How a stream ended without a whole answer.
enum End {
    /// The other side has said that it did nothing with it.
    Refused,
    /// The other side, or the connection, has ended it.
    Theirs(String),
    /// We don't read on.
    Ours(String),
}

impl Seat {
    /// Sends the request and reads the answer, all within `cut`. Its last part is for the proof that nothing of the request is still on
    /// its way in here; without that proof the connection is reset, since the kernel would go on sending what it has.
    pub(super) async fn converse(&self, request: http::Request<()>, body: Bytes, limits: &CallLimits, gate: &Gate) -> Wire {
        let shared = &self.0;
        let until = Instant::now() + limits.cut;
        let proof = (limits.cut / 8).min(Duration::from_secs(1));
        if let Err(why) = gate.leave() {
            return Wire::NotSent(why);
        }
        let bodiless = body.is_empty();
        let (answer, mut stream) = match shared.sender.clone().send_request(request, bodiless) {
            Ok(both) => both,
            // Nothing was queued.
            Err(e) => return Wire::NotSent(unqueued(&e)),
        };
        let number = u32::from(stream.stream_id());
        if !bodiless {
            // Where the stream has ended already, the answer says how.
            let _ = stream.send_data(body, true);
        }
        let answer = async {
            let head = answer.await.map_err(|e| unanswered(&e))?;
            whole(head, limits.body).await
        };
        match timeout_at(until - proof, answer).await {
            Ok(Ok(answer)) => Wire::Answered(answer),
            Ok(Err(End::Refused)) => Wire::NotSent(NotSent::Refused),
            Ok(Err(End::Theirs(why))) => shared.left(number, why),
            Ok(Err(End::Ours(why))) => self.give_up(stream, number, until, why).await,
            Err(_) => {
                let why = format!("no whole answer in {}", crate::time::show_duration(limits.cut));
                self.give_up(stream, number, until, why).await
            }
        }
    }

    /// Takes back what is queued of a stream, and makes sure by `until` that what has left has arrived.
    async fn give_up(&self, mut stream: SendStream<Bytes>, number: u32, until: Instant, why: String) -> Wire {
        let shared = &self.0;
        stream.send_reset(Reason::CANCEL);
        let arrived = shared.begun.has(number) && timeout_at(until, shared.heard_all()).await.unwrap_or(false);
        if !arrived {
            shared.cut();
        }
        shared.left(number, why)
    }
}

/// Why nothing was queued.
fn unqueued(e: &h2::Error) -> NotSent {
    match () {
        () if e.is_go_away() && e.is_remote() => NotSent::Refused,
        () if e.is_io() || e.reason().is_some() => NotSent::Unconnected,
        () => NotSent::Unsendable,
    }
}

/// How a stream ended before an answer began. A REFUSED_STREAM, and a GOAWAY that names an earlier stream as the last one, say that
/// nothing was done with it; the client tells a GOAWAY of the other side to those streams alone. All else says nothing.
fn unanswered(e: &h2::Error) -> End {
    let refused = e.is_go_away() || e.reason() == Some(Reason::REFUSED_STREAM);
    if e.is_remote() && refused { End::Refused } else { End::Theirs(describe(e)) }
}

/// Reads an answer to its end. Whatever ends a stream before its END_STREAM ends it too early, whatever reason is named.
async fn whole(response: http::Response<RecvStream>, most: usize) -> Result<Answer, End> {
    let (head, mut body) = response.into_parts();
    let mut bytes = BytesMut::new();
    let theirs = |e: h2::Error| End::Theirs(describe(&e));
    while let Some(data) = body.data().await {
        let data = data.map_err(theirs)?;
        if bytes.len() + data.len() > most {
            return Err(End::Ours(format!("the answer is larger than {most} bytes")));
        }
        bytes.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).map_err(theirs)?;
    }
    body.trailers().await.map_err(theirs)?;
    match body.is_end_stream() {
        true => Ok(answer_of(&head, bytes.freeze())),
        false => Err(End::Theirs("the stream ended before the answer did".to_owned())),
    }
}

/// The client's error without anything of request or answer: kinds only.
fn describe(e: &h2::Error) -> String {
    let whose = if e.is_remote() { "the target" } else { "the client" };
    match e.reason() {
        Some(reason) if e.is_go_away() => format!("{whose} ended the connection: {}", reason.description()),
        Some(reason) => format!("{whose} reset the stream: {}", reason.description()),
        None => "the connection broke".to_owned(),
    }
}
