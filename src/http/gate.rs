//! The last check before the first byte. It sits on the socket itself, beneath TLS and the client's buffers, so that no queue in
//! between can widen the send window.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::NotSent;
use crate::time::{Now, SharedClock, WallTime};

/// Asked once, as the very last act: `false` = taken back.
pub(super) type Ready = Box<dyn FnOnce() -> bool + Send>;

/// The connection is still being made: handshake bytes pass, no request byte can exist.
const CONNECTING: u8 = 0;
/// The next byte is the request's first: it is checked.
const ARMED: u8 = 1;
/// Checked; bytes pass and are counted.
const OPEN: u8 = 2;
/// The window was over.
const LATE: u8 = 3;
/// The call was taken back.
const BURNED: u8 = 4;

/// What is known of one call's bytes. Written by the socket, read by whoever judges the call.
pub(super) struct Gate {
    clock: SharedClock,
    not_after: Option<Now>,
    ready: Mutex<Option<Ready>>,
    phase: AtomicU8,
    written: AtomicU64,
    began: Mutex<Option<WallTime>>,
    whole: AtomicBool,
}

impl Gate {
    pub(super) fn new(clock: SharedClock, not_after: Option<Now>, ready: Ready) -> Arc<Self> {
        Arc::new(Self {
            clock,
            not_after,
            ready: Mutex::new(Some(ready)),
            phase: AtomicU8::new(CONNECTING),
            written: AtomicU64::new(0),
            began: Mutex::new(None),
            whole: AtomicBool::new(false),
        })
    }

    /// From here on the next byte is the request's.
    pub(super) fn arm(&self) {
        self.phase.store(ARMED, Ordering::Release);
    }

    /// The same check for a stream, whose bytes go through a queue with those of others: from here on they may leave at any time.
    pub(super) fn leave(&self) -> Result<(), NotSent> {
        self.arm();
        let passed = self.pass().is_ok();
        self.count(1);
        if passed { Ok(()) } else { Err(self.nothing_left().unwrap_or(NotSent::Burned)) }
    }

    /// The answer came whole: the connection may end in peace. Any other end is a reset.
    pub(super) fn answered(&self) {
        self.whole.store(true, Ordering::Release);
    }

    /// Wall time just before the first byte, where one was written.
    pub(super) fn began(&self) -> Option<WallTime> {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why no byte of the request can have left; `None` where one may have.
    pub(super) fn nothing_left(&self) -> Option<NotSent> {
        match self.phase.load(Ordering::Acquire) {
            LATE => Some(NotSent::WindowOver),
            BURNED => Some(NotSent::Burned),
            _ if self.written.load(Ordering::Acquire) > 0 => None,
            _ => Some(NotSent::Unconnected),
        }
    }

    /// Called before each write. Window first, hand-over last: whoever gets `true` from `ready` sees the byte go.
    fn pass(&self) -> io::Result<()> {
        match self.phase.load(Ordering::Acquire) {
            CONNECTING | OPEN => return Ok(()),
            ARMED => {}
            _ => return Err(io::Error::other("the send window is closed")),
        }
        let now = self.clock.now();
        let inside = self.not_after.is_none_or(|end| now.wall <= end.wall && now.mono <= end.mono);
        let phase = match inside {
            false => LATE,
            true if self.hand_over() => OPEN,
            true => BURNED,
        };
        self.phase.store(phase, Ordering::Release);
        match phase {
            OPEN => {
                *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Some(now.wall);
                Ok(())
            }
            _ => Err(io::Error::other("the send window is closed")),
        }
    }

    fn hand_over(&self) -> bool {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner).take();
        ready.is_some_and(|ready| ready())
    }

    /// Handshake bytes are not the request's.
    fn count(&self, bytes: usize) {
        if self.phase.load(Ordering::Acquire) == OPEN {
            self.written.fetch_add(bytes as u64, Ordering::AcqRel);
        }
    }
}

/// Whose bytes go over a connection.
enum On {
    /// Nobody's: it is kept for the next call, and not a byte may leave.
    Nobody,
    /// Those of one call, behind its gate.
    One(Arc<Gate>),
    /// Those of many streams; each call was checked before its stream was queued.
    Many,
    /// Nobody's any more: whatever still wants to leave is refused, and the end is a reset.
    Cut,
}

/// A connection's socket, and who is on it.
pub(super) struct Line {
    tcp: TcpStream,
    on: Mutex<On>,
}

impl Line {
    pub(super) fn new(tcp: TcpStream, gate: Arc<Gate>) -> Arc<Self> {
        Arc::new(Self { tcp, on: Mutex::new(On::One(gate)) })
    }

    fn on(&self) -> MutexGuard<'_, On> {
        self.on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on its bytes are this call's.
    pub(super) fn carry(&self, gate: Arc<Gate>) {
        *self.on() = On::One(gate);
    }

    /// What it carried is over, the answers whole: until the next call not a byte may leave. What was cut stays cut.
    pub(super) fn rest(&self) {
        let mut on = self.on();
        if !matches!(*on, On::Cut) {
            *on = On::Nobody;
        }
    }

    /// From here on it carries streams.
    pub(super) fn share(&self) {
        *self.on() = On::Many;
    }

    /// Not another byte enters the socket once this is back.
    pub(super) fn cut(&self) {
        *self.on() = On::Cut;
    }

    /// Whether the other side is still there and has said nothing: neither an end nor a byte waits to be read.
    pub(super) fn is_silent(&self) -> bool {
        let peeked = socket2::SockRef::from(&self.tcp).peek(&mut [MaybeUninit::uninit()]);
        matches!(peeked, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// Writes what the socket takes, where whoever is on it may write.
    fn write(&self, buf: &[u8]) -> io::Result<usize> {
        // Held while the socket takes its bytes: a cut is in front of them or behind.
        let on = self.on();
        match &*on {
            On::Many => self.tcp.try_write(buf),
            On::One(gate) => {
                gate.pass()?;
                let taken = self.tcp.try_write(buf)?;
                gate.count(taken);
                Ok(taken)
            }
            On::Nobody => Err(io::Error::other("no call is on this connection")),
            On::Cut => Err(io::Error::other("the connection was cut")),
        }
    }
}

/// On a cut the connection is reset: otherwise the kernel would go on sending what it has buffered.
impl Drop for Line {
    fn drop(&mut self) {
        let at_peace = match &*self.on() {
            On::Nobody => true,
            On::One(gate) => gate.whole.load(Ordering::Acquire),
            On::Many | On::Cut => false,
        };
        if !at_peace {
            let _ = socket2::SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO));
        }
    }
}

/// A socket behind the gate of its call.
pub(super) struct Gated(pub(super) Arc<Line>);

impl AsyncRead for Gated {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.tcp.poll_read_ready(cx))?;
            match self.0.tcp.try_read(buf.initialize_unfilled()) {
                Ok(n) => {
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl AsyncWrite for Gated {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.tcp.poll_write_ready(cx))?;
            match self.0.write(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                end => return Poll::Ready(end),
            }
        }
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    /// No half-close: a target may take it for a client that has gone.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
