//! The only importer of the HTTP library. What a call comes to is typed by what the wire proves, not by what a timer says.

mod dial;
mod gate;
mod keep;
mod port;
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
pub use trust::{Form, Login, get, post_form, trusting};

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
    /// Whether it may go over a connection that an earlier call left open, and leave its own for a later one. The wire proves the
    /// same either way; but the other side may close a kept connection just when the call leaves, and then it is *maybe sent*
    /// where a connection of its own would have brought an answer.
    pub keep: bool,
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
    /// No byte of it left: refused, unresolved, window over, host not allowed.
    NotSent(NotSent),
    /// Bytes may have left, and no whole answer came.
    MaybeSent(String),
    /// A whole answer came.
    Answered(Answer),
}

/// Why nothing left.
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
