//! The only importer of the HTTP libraries. What a call comes to is typed by what the wire proves, not by what a timer says.

mod dial;
mod gate;
mod hub;
mod keep;
mod port;
mod stream;
mod tap;
mod told;
mod trust;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::intents::RenderedRequest;
use crate::time::{Now, WallTime};

pub use dial::{Resolved, Resolver, SystemResolver, host_of};
pub use port::{HyperPort, http_date, http_date_of, settable_header};
pub use told::Told;
pub use trust::{Asker, Form, Login, get, post_form, post_json, trusting};

/// Where a call goes and how far it may go.
#[derive(Clone, Debug)]
pub struct Destination {
    /// `https://orders.internal:8443`, no path.
    pub base_url: String,
    /// Hosts that may be connected to; anything else is not sent.
    pub hosts: Vec<String>,
    /// Whether private and loopback addresses are allowed.
    pub private: bool,
}

impl Destination {
    /// Whether this host may be connected to.
    fn allows(&self, host: &str) -> bool {
        self.hosts.iter().any(|h| h.eq_ignore_ascii_case(host))
    }
}

/// Limits of one call.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// For the connection, part of "not sent".
    pub connect: Duration,
    /// The call's own limit from its first byte; on the cut the connection is reset.
    pub cut: Duration,
    /// Largest answer body; what is beyond is not read, and the answer counts as maybe sent.
    pub body: usize,
}

/// On what a call may go. The wire proves the same on all of them; what differs is how often no answer comes, and how close to its
/// first byte a call is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// HTTP/1.1, on a connection of its own.
    Own,
    /// HTTP/1.1, also on a connection that an earlier call left open, and leaving its own for a later one. The other side may close
    /// such a connection just when the call leaves, and then it is *maybe sent* where one of its own would have brought an answer.
    Kept,
    /// HTTP/2 among other calls where the target chooses it over TLS, else as [`Via::Kept`]. A stream is checked when it is queued, not
    /// on the socket; and a connection that breaks leaves all that is on it *maybe sent*.
    Either,
    /// HTTP/2 alone: without TLS by prior knowledge.
    Http2,
}

impl Via {
    /// Whether a connection in HTTP/1.1 may be an earlier call's, and a later one's.
    fn keeps(self) -> bool {
        self != Via::Own
    }

    /// Which versions the target may choose from. Without TLS there is no choice.
    fn offer(self, tls: bool) -> dial::Offer {
        match self {
            Via::Own | Via::Kept => dial::Offer::One,
            Via::Either if tls => dial::Offer::Either,
            Via::Either => dial::Offer::One,
            Via::Http2 => dial::Offer::Two,
        }
    }
}

/// A call ready to go. Not `Clone`: one hand-over, one call.
pub struct Outgoing {
    /// Where to.
    pub to: Arc<Destination>,
    /// The exact request.
    pub request: RenderedRequest,
    /// Headers that hold secrets, resolved at send time, never logged.
    pub secret_headers: Vec<(String, String)>,
    /// Right before the first byte both clocks must still be within this window; `None` for reads.
    pub not_after: Option<Now>,
    /// How it may get there.
    pub via: Via,
    /// Limits.
    pub limits: CallLimits,
}

/// Method, path and size; no query, no header, no body: they may hold secrets and payload.
impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.request.body.as_ref().map_or(0, Vec::len);
        write!(f, "{} {} ({bytes} bytes) to {:?}", self.request.method, self.request.path, self.to.hosts)
    }
}

/// An answer in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its whole body.
    pub body: Bytes,
}

impl Answer {
    /// The first value under a name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// What the wire proves about a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wire {
    /// No byte of it left (unresolved, refused, window over, host not allowed), or the other side has said in HTTP/2's own words that
    /// it did nothing with it.
    NotSent(NotSent),
    /// Bytes may have left, and no whole answer came.
    MaybeSent(String),
    /// A whole answer came.
    Answered(Answer),
}

/// Why nothing left, or nothing was done with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NotSent {
    /// The window was over before the first byte.
    WindowOver,
    /// Name resolution failed (passing).
    Unresolved,
    /// The connection was refused or timed out.
    Unconnected,
    /// TLS failed before any request byte.
    Tls,
    /// The contract wants HTTP/2, and the other side does not speak it.
    NoHttp2,
    /// REFUSED_STREAM, or a GOAWAY that names an earlier stream as the last one: the other side did nothing with it.
    Refused,
    /// The host or address is not allowed.
    Forbidden,
    /// The request can't be put on the wire (a header that is none).
    Unsendable,
    /// The call was taken back before it was handed to the network.
    Burned,
}

impl NotSent {
    /// A bounded metric label.
    pub fn label(self) -> &'static str {
        match self {
            NotSent::WindowOver => "window_over",
            NotSent::Unresolved => "unresolved",
            NotSent::Unconnected => "unconnected",
            NotSent::Tls => "tls",
            NotSent::NoHttp2 => "no_http2",
            NotSent::Refused => "refused",
            NotSent::Forbidden => "forbidden",
            NotSent::Unsendable => "unsendable",
            NotSent::Burned => "burned",
        }
    }
}

/// A finished call with its times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    /// What the wire proves.
    pub wire: Wire,
    /// Wall time just before its request was written (or would have been).
    pub began: WallTime,
    /// Wall time when it was over.
    pub ended: WallTime,
    /// The target's own clock, from its `Date`.
    pub target_date: Option<WallTime>,
}

/// Called once with the end of a call, on any thread; must not block.
pub type Done = Box<dyn FnOnce(Finished) + Send>;

/// Starts calls. The program's is hyper on tokio; the simulator's moves with its virtual clock.
pub trait HttpPort: Send + Sync {
    /// Starts `call`; `ready` is asked as the very last act before the first byte: `false` = burned, nothing leaves.
    fn start(&self, call: Outgoing, ready: Box<dyn FnOnce() -> bool + Send>, done: Done);
}

#[cfg(test)]
mod tests;
