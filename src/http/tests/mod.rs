//! What the wire proves, against servers that misbehave on purpose.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::*;
use crate::intents::Pair;
use crate::time::{Clock, ManualClock, SharedClock};

mod answers;
mod before;
mod kept;
mod peer;
mod refused;
mod shared;

/// A server on a free port; each connection's request is read, kept and handed to `react`.
struct Server {
    at: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    fn start(react: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = listener.local_addr().expect("bound");
        let (connections, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, keep, react) = (connections.clone(), seen.clone(), Arc::new(react));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let (keep, react) = (keep.clone(), react.clone());
                std::thread::spawn(move || {
                    let request = read_request(&mut stream);
                    if !request.is_empty() {
                        keep.lock().expect("not poisoned").push(request);
                    }
                    react(&mut stream);
                });
            }
        });
        Server { at, connections, seen }
    }

    /// A server that gives this answer and closes.
    fn answering(answer: &'static [u8]) -> Server {
        Server::start(move |s| {
            let _ = s.write_all(answer);
            let _ = s.shutdown(Shutdown::Write);
        })
    }

    fn requests(&self) -> Vec<Vec<u8>> {
        self.seen.lock().expect("not poisoned").clone()
    }
}

/// Head and as much body as its length says; what came, where the client left earlier.
fn read_request(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text.split("content-length: ").nth(1).and_then(|t| t.split("\r\n").next()).and_then(|t| t.parse().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0usize) {
                return bytes;
            }
        }
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => bytes.extend_from_slice(&buffer[..n]),
            _ => return bytes,
        }
    }
}

/// A port with its runtime and a clock that stands still.
struct Kit {
    port: HyperPort,
    clock: Arc<ManualClock>,
    _runtime: tokio::runtime::Runtime,
}

impl Kit {
    fn new() -> Kit {
        Kit::with(Arc::new(SystemResolver), None)
    }

    fn with(resolver: Arc<dyn Resolver>, extra_ca: Option<&std::path::Path>) -> Kit {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let clock = Arc::new(ManualClock::at(Now::default().plus(Duration::from_secs(100))));
        let shared: SharedClock = clock.clone();
        let port = HyperPort::with_resolver(runtime.handle().clone(), shared, extra_ca, resolver).expect("a port");
        Kit { port, clock, _runtime: runtime }
    }

    fn begin(&self, call: Outgoing, ready: bool) -> mpsc::Receiver<Finished> {
        let (tell, told) = mpsc::channel();
        self.port.start(call, Box::new(move || ready), Box::new(move |finished| drop(tell.send(finished))));
        told
    }

    fn run(&self, call: Outgoing) -> Wire {
        self.begin(call, true).recv_timeout(Duration::from_secs(20)).expect("every call ends").wire
    }
}

/// `POST /orders` with a small body.
fn post(at: SocketAddr) -> Outgoing {
    Outgoing {
        to: Arc::new(Destination {
            base_url: format!("http://{at}"),
            hosts: vec!["127.0.0.1".into(), "localhost".into()],
            private: true,
        }),
        request: RenderedRequest {
            method: "POST".into(),
            path: "/orders".into(),
            query: "api_key=MARK".into(),
            headers: vec![Pair { name: "content-type".into(), value: "application/json".into() }],
            body: Some(br#"{"sku":"A-1"}"#.to_vec()),
        },
        secret_headers: vec![("authorization".into(), "Bearer MARK".into())],
        not_after: None,
        via: Via::Own,
        limits: CallLimits { connect: Duration::from_secs(5), cut: Duration::from_secs(5), body: 64 * 1024 },
    }
}

fn maybe(wire: &Wire) -> bool {
    matches!(wire, Wire::MaybeSent(why) if !why.contains("MARK"))
}

fn answered(wire: Wire) -> Answer {
    match wire {
        Wire::Answered(answer) => answer,
        other => panic!("no answer: {other:?}"),
    }
}
