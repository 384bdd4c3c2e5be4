//! A collector of traces: OTLP over HTTP, decoded by the crates that standardise it; keeps the bytes, too.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

/// What came.
#[derive(Clone, Default)]
pub struct Got {
    /// Every span, with its service's name.
    pub spans: Vec<(String, Span)>,
    /// All bodies as they came.
    pub bytes: Vec<u8>,
    /// The heads of the requests.
    pub heads: String,
}

/// A collector that listens until the test ends.
pub struct Collector {
    /// Where traces go.
    pub endpoint: String,
    got: Arc<Mutex<Got>>,
}

impl Collector {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().expect("bound"));
        let got = Arc::new(Mutex::new(Got::default()));
        let keep = got.clone();
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| serve(stream, &keep)));
        Self { endpoint, got }
    }
    pub fn got(&self) -> Got {
        self.got.lock().expect("a lock").clone()
    }
}

fn serve(mut stream: TcpStream, got: &Mutex<Got>) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 65_536];
    let (head, body) = loop {
        let Ok(n) = stream.read(&mut chunk) else { return };
        if n == 0 {
            return;
        }
        bytes.extend_from_slice(&chunk[..n]);
        let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")).and_then(|n| n.trim().parse::<usize>().ok());
        if bytes.len() >= at + 4 + length.unwrap_or(0) {
            break (head, bytes[at + 4..].to_vec());
        }
    };
    let request = ExportTraceServiceRequest::decode(&body[..]).expect("a request of OTLP");
    let mut got = got.lock().expect("a lock");
    for resource in request.resource_spans {
        let attributes = resource.resource.unwrap_or_default().attributes;
        let service = attributes.iter().find(|a| a.key == "service.name").map(|a| format!("{:?}", a.value)).unwrap_or_default();
        let spans = resource.scope_spans.into_iter().flat_map(|s| s.spans);
        got.spans.extend(spans.map(|s| (service.clone(), s)));
    }
    got.bytes.extend(body);
    got.heads.push_str(&head);
    drop(got);
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}
