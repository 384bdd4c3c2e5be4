//! From a bounded queue to a collector: OTLP over HTTP, encoded by the OpenTelemetry crates, sent by the HTTP client that the tree has.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};

use crate::error::{Error, Fault, Result, codes};
use crate::http::{CallLimits, Destination, HttpPort, Outgoing, Via, Wire, host_of};
use crate::intents::{Pair, RenderedRequest};
use crate::time::WallTime;

use super::{Metrics, Sink, Span, SpanKind, Value};

/// Spans that wait for the exporter; what comes beyond is dropped and counted.
const QUEUE: usize = 4_096;
/// Spans of one export.
const BATCH: usize = 512;
/// How long a span waits for others to go with.
const LINGER: Duration = Duration::from_secs(1);
/// Largest answer of a collector that is read.
const ANSWER: usize = 64 * 1024;

/// Headers of an export, asked for at each: secrets among them change while we run.
pub type Headers = Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

/// Where spans are sent.
pub struct Collector {
    /// `http://collector:4318/v1/traces`.
    pub endpoint: String,
    /// Headers, secrets among them.
    pub headers: Headers,
    /// How long one export may take.
    pub timeout: Duration,
    /// `service.name` and the rest of the resource.
    pub resource: Vec<(String, String)>,
}

/// The thread that exports; what is queued is sent when it is stopped.
pub struct Exporter {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Starts it; spans go into the sink.
    ///
    /// # Errors
    /// `BAD_VALUE` for an endpoint that is no address.
    pub fn start(
        to: Collector,
        http: Arc<dyn HttpPort>,
        runtime: tokio::runtime::Handle,
        metrics: Metrics,
    ) -> Result<(Self, Sink)> {
        let doing = || Error::new(codes::BAD_VALUE, Fault::Configuration, format!("preparing traces for {}", to.endpoint));
        let exporter = Otlp::builder()
            .with_http()
            .with_http_client(Client { http, headers: to.headers, timeout: to.timeout })
            .with_endpoint(&to.endpoint)
            .with_timeout(to.timeout)
            .build();
        let address = || "traces.endpoint is an address such as http://collector:4318/v1/traces";
        let mut exporter = exporter.map_err(|e| doing().because(e).next(address()))?;
        let attributes = to.resource.into_iter().map(|(name, value)| KeyValue::new(name, value));
        exporter.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
        let (sender, receiver) = sync_channel(QUEUE);
        let stop = Arc::new(AtomicBool::new(false));
        let worker = Worker { receiver, exporter, runtime, metrics: metrics.clone(), stop: stop.clone() };
        let thread = std::thread::Builder::new().name("traces".into()).spawn(move || worker.run());
        let thread = thread.map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the thread of traces").because(e))?;
        Ok((Self { stop, thread }, sink(sender, metrics)))
    }

    /// Sends what is queued, within `bound`; what is left then is lost.
    pub fn stop(self, bound: Duration) {
        self.stop.store(true, Ordering::Release);
        let until = Instant::now() + bound;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        match self.thread.is_finished() {
            true => drop(self.thread.join()),
            false => tracing::warn!("traces: the collector did not take the last spans in time"),
        }
    }
}

/// Never waits: a stream thread stands behind it.
fn sink(sender: SyncSender<Span>, metrics: Metrics) -> Sink {
    Arc::new(move |span| {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = sender.try_send(span) {
            metrics.dropped.inc();
        }
    })
}

struct Worker {
    receiver: Receiver<Span>,
    exporter: Otlp,
    runtime: tokio::runtime::Handle,
    metrics: Metrics,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn run(self) {
        let mut told: Option<Instant> = None;
        loop {
            let (batch, last) = self.batch();
            let spans = batch.len() as u64;
            if spans > 0 {
                match self.runtime.block_on(self.exporter.export(batch)) {
                    Ok(()) => self.metrics.exported.inc_by(spans),
                    Err(e) => {
                        self.metrics.failed.inc_by(spans);
                        // Once a minute: a collector that is away is no reason to fill the log.
                        if told.is_none_or(|at| at.elapsed() > Duration::from_secs(60)) {
                            told = Some(Instant::now());
                            tracing::warn!(error = %e, spans, "traces: the collector did not take them");
                        }
                    }
                }
            }
            if last {
                return;
            }
        }
    }

    /// The next spans, and whether they are the last.
    fn batch(&self) -> (Vec<SpanData>, bool) {
        let mut batch = Vec::new();
        let until = Instant::now() + LINGER;
        while batch.len() < BATCH {
            // In short steps: a stop is seen soon.
            match self.receiver.recv_timeout(Duration::from_millis(50)) {
                Ok(span) => batch.push(data(span)),
                Err(RecvTimeoutError::Disconnected) => return (batch, true),
                Err(RecvTimeoutError::Timeout) if self.stop.load(Ordering::Acquire) => return (batch, true),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= until && !batch.is_empty() {
                break;
            }
        }
        (batch, false)
    }
}

fn data(span: Span) -> SpanData {
    let flags = TraceFlags::SAMPLED;
    let context = SpanContext::new(
        TraceId::from_bytes(span.context.trace),
        SpanId::from_bytes(span.context.span),
        flags,
        false,
        TraceState::default(),
    );
    let attribute = |(name, value)| match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Number(number) => KeyValue::new(name, number),
    };
    SpanData {
        span_context: context,
        parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: span.remote,
        span_kind: match span.kind {
            SpanKind::Consumer => opentelemetry::trace::SpanKind::Consumer,
            SpanKind::Client => opentelemetry::trace::SpanKind::Client,
            SpanKind::Internal => opentelemetry::trace::SpanKind::Internal,
        },
        name: span.name.into(),
        start_time: system_time(span.began),
        end_time: system_time(span.ended),
        attributes: span.attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.failed.map_or(Status::Unset, |description| Status::Error { description }),
        instrumentation_scope: InstrumentationScope::builder("readback").with_version(env!("CARGO_PKG_VERSION")).build(),
    }
}

fn system_time(at: WallTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
}

/// The exporter's HTTP client: ours, with the same TLS and the same limits.
struct Client {
    http: Arc<dyn HttpPort>,
    headers: Headers,
    timeout: Duration,
}

/// Without the headers: they hold secrets.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    fn outgoing(&self, request: http::Request<Bytes>) -> Option<Outgoing> {
        let uri = request.uri();
        let base_url = format!("{}://{}", uri.scheme_str()?, uri.authority()?);
        let hosts = vec![host_of(&base_url)?];
        let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
        let headers = request.headers().iter().filter(|(name, _)| **name != http::header::USER_AGENT);
        let headers = headers.filter_map(|(name, value)| Some(Pair { name: name.as_str().to_owned(), value: text(value)? }));
        let rendered = RenderedRequest {
            method: request.method().as_str().to_owned(),
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            headers: headers.collect(),
            body: Some(request.body().to_vec()),
        };
        Some(Outgoing {
            // A collector stands where the settings say, mostly beside us.
            to: Arc::new(Destination { base_url, hosts, private: true }),
            request: rendered,
            secret_headers: (self.headers)(),
            not_after: None,
            via: Via::Own,
            limits: CallLimits { connect: self.timeout.min(Duration::from_secs(5)), cut: self.timeout, body: ANSWER },
        })
    }
}

type Answered<'a> = Pin<Box<dyn Future<Output = std::result::Result<http::Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(&'life0 self, request: http::Request<Bytes>) -> Answered<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let outgoing = self.outgoing(request);
        Box::pin(async move {
            let outgoing = outgoing.ok_or("the endpoint is no address")?;
            let (tell, told) = tokio::sync::oneshot::channel();
            self.http.start(outgoing, Box::new(|| true), Box::new(move |finished| drop(tell.send(finished))));
            match told.await.map_err(|_| "the call was dropped")?.wire {
                Wire::Answered(answer) => Ok(http::Response::builder().status(answer.status).body(answer.body)?),
                Wire::NotSent(why) => Err(why.label().into()),
                Wire::MaybeSent(why) => Err(why.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message as _;

    use super::*;
    use crate::http::{Answer, Done, Finished};
    use crate::trace::TraceContext;

    /// A collector that keeps what it gets, or does not answer.
    #[derive(Default)]
    struct Fake {
        got: Mutex<Vec<Outgoing>>,
        kept: Mutex<Vec<Done>>,
        silent: bool,
    }

    impl HttpPort for Fake {
        fn start(&self, call: Outgoing, ready: Box<dyn FnOnce() -> bool + Send>, done: Done) {
            assert!(ready());
            self.got.lock().unwrap().push(call);
            if self.silent {
                return self.kept.lock().unwrap().push(done);
            }
            let wire = Wire::Answered(Answer { status: 200, headers: Vec::new(), body: Bytes::new() });
            done(Finished { wire, began: WallTime(0), ended: WallTime(0), target_date: None });
        }
    }

    fn span(n: usize) -> Span {
        let parent = TraceContext { trace: [1; 16], span: [2; 8] };
        Span::of(parent, &n.to_string(), SpanKind::Client, "POST /orders".into(), WallTime(1_000), WallTime(3_000))
            .with("http.response.status_code", 201)
    }

    fn start(fake: &Arc<Fake>) -> (tokio::runtime::Runtime, Exporter, Sink, Metrics) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let collector = Collector {
            endpoint: "http://collector:4318/v1/traces".into(),
            headers: Arc::new(|| vec![("authorization".into(), "Bearer MARK".into())]),
            timeout: Duration::from_secs(5),
            resource: vec![("service.name".into(), "orders".into())],
        };
        let (exporter, sink) = Exporter::start(collector, fake.clone(), runtime.handle().clone(), metrics.clone()).unwrap();
        (runtime, exporter, sink, metrics)
    }

    /// If this broke, no collector would understand what it gets, or the last spans before a stop would be lost.
    #[test]
    fn spans_go_as_otlp_and_the_last_ones_at_the_stop() {
        let fake = Arc::new(Fake::default());
        let (_runtime, exporter, sink, metrics) = start(&fake);
        (0..600).for_each(|n| sink(span(n)));
        exporter.stop(Duration::from_secs(20));
        let got = fake.got.lock().unwrap();
        assert_eq!((metrics.exported.get(), metrics.dropped.get(), metrics.failed.get()), (600, 0, 0));
        let call = &got[0];
        assert_eq!((call.request.path.as_str(), &*call.to.base_url), ("/v1/traces", "http://collector:4318"));
        assert_eq!(call.secret_headers, [("authorization".to_owned(), "Bearer MARK".to_owned())]);
        let read = |o: &Outgoing| ExportTraceServiceRequest::decode(&o.request.body.clone().unwrap()[..]).unwrap();
        let first = read(call).resource_spans.remove(0);
        let resource = first.resource.unwrap().attributes;
        assert!(resource.iter().any(|a| a.key == "service.name" && format!("{:?}", a.value).contains("orders")), "{resource:?}");
        let sent = &first.scope_spans[0].spans[0];
        assert_eq!((&sent.trace_id[..], &sent.parent_span_id[..], sent.kind), (&[1; 16][..], &[2; 8][..], 3));
        assert_eq!(sent.end_time_unix_nano - sent.start_time_unix_nano, 2_000_000_000);
        let all: usize = got.iter().map(|o| read(o).resource_spans[0].scope_spans[0].spans.len()).sum();
        assert_eq!(all, 600);
    }

    /// If this broke, a collector that hangs would stop the stream thread, or keep a member from ending.
    #[test]
    fn a_collector_that_hangs_holds_nobody_up() {
        let fake = Arc::new(Fake { silent: true, ..Fake::default() });
        let (_runtime, exporter, sink, metrics) = start(&fake);
        let all = 3 * QUEUE;
        (0..all).for_each(|n| sink(span(n)));
        assert!(metrics.dropped.get() as usize >= all - QUEUE - 2 * BATCH, "{}", metrics.dropped.get());
        exporter.stop(Duration::from_millis(50));
        assert_eq!(metrics.exported.get(), 0);
        fake.kept.lock().unwrap().clear();
    }
}
