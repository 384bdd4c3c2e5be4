//! One call: no redirect, no retry, no decompression, whole answers only. In HTTP/1.1 one exchange at a time on a connection; in HTTP/2 as a
//! stream among others.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::dial::{self, Offer, Origin, Resolver, SystemResolver, Tls};
use super::gate::{Gate, Gated, Line, Ready};
use super::hub::Hub;
use super::keep::{Keeper, Open, Place};
use super::stream::{self, Seat};
use super::{Answer, Done, Finished, HttpPort, NotSent, Outgoing, Wire};
use crate::error::Result;
use crate::time::{SharedClock, WallTime};

/// Most bytes of an answer's head.
pub(super) const MAX_HEAD: usize = 64 * 1024;
/// Headers that say how a message is framed: the client writes them, nobody else.
const FRAMING: [HeaderName; 6] =
    [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE, header::TE];

/// The program's way to the network: hyper on a tokio runtime.
pub struct HyperPort {
    runtime: tokio::runtime::Handle,
    shared: Arc<Shared>,
}

struct Shared {
    clock: SharedClock,
    resolver: Arc<dyn Resolver>,
    tls: Tls,
    keeper: Keeper,
    hub: Hub,
}

impl HyperPort {
    /// Calls run on `runtime`. `extra_ca` adds certificates (PEM) to the public roots.
    pub fn new(runtime: tokio::runtime::Handle, clock: SharedClock, extra_ca: Option<&Path>) -> Result<Self> {
        Self::with_resolver(runtime, clock, extra_ca, Arc::new(SystemResolver))
    }

    /// As [`HyperPort::new`], with another resolver.
    pub fn with_resolver(
        runtime: tokio::runtime::Handle,
        clock: SharedClock,
        extra_ca: Option<&Path>,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self> {
        let tls = Tls::new(extra_ca)?;
        let shared = Shared { clock, resolver, tls, keeper: Keeper::default(), hub: Hub::default() };
        Ok(Self { runtime, shared: Arc::new(shared) })
    }
}

impl HttpPort for HyperPort {
    fn start(&self, call: Outgoing, ready: Ready, done: Done) {
        let shared = self.shared.clone();
        let gate = Gate::new(shared.clock.clone(), call.not_after, ready);
        let end = End { clock: shared.clock.clone(), gate: gate.clone(), done: Some(done) };
        self.runtime.spawn(async move {
            let wire = shared.exchange(call, &gate).await;
            end.with(wire);
        });
    }
}

/// Tells the end exactly once, even where the runtime drops the call half-way.
struct End {
    clock: SharedClock,
    gate: Arc<Gate>,
    done: Option<Done>,
}

impl End {
    fn with(mut self, wire: Wire) {
        self.tell(wire);
    }

    fn tell(&mut self, wire: Wire) {
        if let Some(done) = self.done.take() {
            let ended = self.clock.now().wall;
            let target_date = match &wire {
                Wire::Answered(answer) => answer.header("date").and_then(http_date),
                _ => None,
            };
            done(Finished { wire, began: self.gate.began().unwrap_or(ended), ended, target_date });
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.tell(judged(&self.gate, "the call was dropped"));
    }
}

/// What the gate proves about a call that brought no whole answer.
fn judged(gate: &Gate, why: &str) -> Wire {
    match gate.nothing_left() {
        Some(reason) => Wire::NotSent(reason),
        None => Wire::MaybeSent(why.to_owned()),
    }
}

/// What carries a call.
enum Carrier {
    /// A connection with nobody else on it.
    One(Open),
    /// A place on a connection that is shared.
    Many(Seat),
}

impl Shared {
    async fn exchange(self: &Arc<Self>, call: Outgoing, gate: &Arc<Gate>) -> Wire {
        let Some(origin) = Origin::parse(&call.to.base_url) else { return Wire::NotSent(NotSent::Unsendable) };
        let Some(request) = request_of(&call, &origin) else { return Wire::NotSent(NotSent::Unsendable) };
        if !call.to.allows(&origin.host) {
            return Wire::NotSent(NotSent::Forbidden);
        }
        let place = Place { origin, private: call.to.private };
        let mut open = match self.open(&place, &call, gate).await {
            Ok(Carrier::One(open)) => open,
            Ok(Carrier::Many(seat)) => {
                let Some((head, body)) = streamed(request, &place.origin) else { return Wire::NotSent(NotSent::Unsendable) };
                return seat.converse(head, body, &call.limits, gate).await;
            }
            Err(reason) => return Wire::NotSent(reason),
        };
        let wire = converse(&mut open, request.map(Full::new), &call, gate).await;
        if call.via.keeps() && matches!(wire, Wire::Answered(_)) && self.keeper.put(place, open).await {
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.keeper.look_after().await });
        }
        wire
    }

    /// What carries this call: something that is open where the call may share, else a connection of its own.
    async fn open(self: &Arc<Self>, place: &Place, call: &Outgoing, gate: &Arc<Gate>) -> std::result::Result<Carrier, NotSent> {
        let until = Instant::now() + call.limits.connect;
        let offer = call.via.offer(place.origin.tls);
        let _turn = match offer {
            Offer::One => None,
            Offer::Either | Offer::Two => {
                if let Some(seat) = self.hub.seat(place) {
                    return Ok(Carrier::Many(seat));
                }
                let turn = timeout_at(until, self.hub.turn(place)).await.map_err(|_| NotSent::Unconnected)?;
                // Whoever had the turn before may have left room.
                if let Some(seat) = self.hub.seat(place) {
                    return Ok(Carrier::Many(seat));
                }
                turn
            }
        };
        if call.via.keeps()
            && let Some(kept) = self.keeper.take(place).await
        {
            kept.line.carry(gate.clone());
            return Ok(Carrier::One(kept));
        }
        self.dial(place, call, gate, offer, until).await
    }

    /// Makes a connection. Nothing of the request exists yet: whatever fails here is "not sent".
    async fn dial(
        self: &Arc<Self>,
        place: &Place,
        call: &Outgoing,
        gate: &Arc<Gate>,
        offer: Offer,
        until: Instant,
    ) -> std::result::Result<Carrier, NotSent> {
        let addresses = timeout_at(until, dial::addresses(&place.origin, &call.to, &*self.resolver));
        let addresses = addresses.await.unwrap_or(Err(NotSent::Unresolved))?;
        let line = Line::new(dial::connect(&addresses, until).await?, gate.clone());
        let gated = Gated(line.clone());
        if !place.origin.tls {
            return match offer {
                Offer::Two => self.share(place, gated, line, until).await,
                Offer::One | Offer::Either => shake_hands(gated, line).await,
            };
        }
        let name = dial::server_name(&place.origin.host)?;
        let Ok(Ok(tls)) = timeout_at(until, TlsConnector::from(self.tls.offering(offer)).connect(name, gated)).await else {
            return Err(NotSent::Tls);
        };
        let chosen_two = tls.get_ref().1.alpn_protocol() == Some(dial::HTTP_2);
        match offer {
            Offer::Either | Offer::Two if chosen_two => self.share(place, tls, line, until).await,
            Offer::Two => Err(NotSent::NoHttp2),
            Offer::Either => {
                self.hub.speaks_one(place);
                shake_hands(tls, line).await
            }
            Offer::One => shake_hands(tls, line).await,
        }
    }

    /// Begins HTTP/2 on a connection and keeps it for others.
    async fn share<S>(
        self: &Arc<Self>,
        place: &Place,
        io: S,
        line: Arc<Line>,
        until: Instant,
    ) -> std::result::Result<Carrier, NotSent>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = stream::begin(io, line, until).await?;
        let seat = connection.seat().ok_or(NotSent::Unconnected)?;
        if self.hub.put(place.clone(), connection) {
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.hub.look_after().await });
        }
        Ok(Carrier::Many(seat))
    }
}

async fn shake_hands<S>(stream: S, line: Arc<Line>) -> std::result::Result<Carrier, NotSent>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(MAX_HEAD);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|_| NotSent::Unconnected)?;
    Ok(Carrier::One(Open::new(sender, async { drop(connection.await) }, line, Instant::now())))
}

/// Sends the request and reads the answer, all within `cut`. A connection that is dropped without a whole answer is reset.
async fn converse(open: &mut Open, request: http::Request<Full<Bytes>>, call: &Outgoing, gate: &Arc<Gate>) -> Wire {
    gate.arm();
    let Open { sender, moves, over, .. } = open;
    let answer = async {
        let head = sender.send_request(request).await.map_err(|e| describe(&e))?;
        whole(head, call.limits.body).await
    };
    let talk = async {
        let mut answer = pin!(answer);
        loop {
            tokio::select! {
                biased;
                end = &mut answer => break end,
                () = &mut *moves, if !*over => *over = true,
            }
        }
    };
    match timeout(call.limits.cut, talk).await {
        Ok(Ok(answer)) => {
            gate.answered();
            Wire::Answered(answer)
        }
        Ok(Err(why)) => judged(gate, &why),
        Err(_) => judged(gate, &format!("no whole answer in {}", crate::time::show_duration(call.limits.cut))),
    }
}

/// Reads an answer to its end. What is not provably whole is no answer: a close without a length could be a cut.
async fn whole(response: http::Response<Incoming>, most: usize) -> std::result::Result<Answer, String> {
    let (head, mut body) = response.into_parts();
    let bodiless = matches!(head.status.as_u16(), 204 | 304);
    let framed = head.headers.contains_key(header::CONTENT_LENGTH) || head.headers.contains_key(header::TRANSFER_ENCODING);
    if !bodiless && !framed {
        return Err(format!("the answer ({}) says neither its length nor that it comes in chunks", head.status.as_u16()));
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|e| describe(&e))?.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(format!("the answer is larger than {most} bytes"));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(answer_of(&head, bytes.freeze()))
}

/// An answer that came whole.
pub(super) fn answer_of(head: &http::response::Parts, body: Bytes) -> Answer {
    // Header values are bytes: what is no text is kept readable, never a reason to fail.
    let text = |v: &HeaderValue| String::from_utf8_lossy(v.as_bytes()).into_owned();
    let headers = head.headers.iter().map(|(n, v)| (n.as_str().to_owned(), text(v))).collect();
    Answer { status: head.status.as_u16(), headers, body }
}

/// The client's error without anything of the request: kinds only.
fn describe(e: &hyper::Error) -> String {
    let what = match () {
        () if e.is_incomplete_message() => "the connection ended before the answer did",
        () if e.is_parse() || e.is_parse_status() => "the answer is not HTTP",
        () if e.is_parse_too_large() => "the answer's head is too large",
        () if e.is_body_write_aborted() => "the request was cut",
        () if e.is_canceled() || e.is_closed() => "the connection closed",
        () => "the connection broke",
    };
    what.to_owned()
}

/// The request as HTTP/1.1 has it; `None` where it can't be put on the wire.
fn request_of(call: &Outgoing, origin: &Origin) -> Option<http::Request<Bytes>> {
    let r = &call.request;
    let target = if r.query.is_empty() { r.path.clone() } else { format!("{}?{}", r.path, r.query) };
    if !target.starts_with('/') {
        return None;
    }
    let body = r.body.clone().map(Bytes::from).unwrap_or_default();
    let mut request = http::Request::builder()
        .method(r.method.as_str())
        .uri(target)
        .header(header::HOST, origin.host_header())
        .header(header::USER_AGENT, concat!("readback/", env!("CARGO_PKG_VERSION")))
        .body(body)
        .ok()?;
    if !call.via.keeps() {
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let template = r.headers.iter().map(|p| (p.name.as_str(), p.value.as_str(), false));
    let secret = call.secret_headers.iter().map(|(n, v)| (n.as_str(), v.as_str(), true));
    for (name, value, sensitive) in template.chain(secret) {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(value).ok()?;
        // Obsolete text beyond ASCII is read differently by every target.
        if FRAMING.contains(&name) || !value.as_bytes().is_ascii() {
            return None;
        }
        value.set_sensitive(sensitive);
        request.headers_mut().insert(name, value);
    }
    Some(request)
}

/// The same request as the head of a stream, and its body: the host stands in the address, and no header speaks of the connection.
fn streamed(request: http::Request<Bytes>, origin: &Origin) -> Option<(http::Request<()>, Bytes)> {
    let (mut head, body) = request.into_parts();
    let mut uri = head.uri.into_parts();
    uri.scheme = Some(if origin.tls { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
    uri.authority = Some(origin.host_header().parse().ok()?);
    head.uri = http::Uri::from_parts(uri).ok()?;
    head.version = http::Version::HTTP_2;
    head.headers.remove(header::HOST);
    head.headers.remove(header::CONNECTION);
    if !body.is_empty() {
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    Some((http::Request::from_parts(head, ()), body))
}

/// Whether a call may set this header: a name that HTTP knows as one, and none that frames the message.
pub fn settable_header(name: &str) -> bool {
    HeaderName::from_bytes(name.as_bytes()).is_ok_and(|n| !FRAMING.contains(&n))
}

/// Reads an HTTP date in any of its three forms.
pub fn http_date(text: &str) -> Option<WallTime> {
    let at = httpdate::parse_http_date(text.trim()).ok()?;
    let since: Duration = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(WallTime)
}

/// Writes a time as `Date` does, in whole seconds.
pub fn http_date_of(at: WallTime) -> String {
    let since = Duration::from_millis(u64::try_from(at.0).unwrap_or(0));
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}
