//! Traces of operations, as OpenTelemetry has them. An operation's spans are made in several processes and transactions; what joins them
//! is the operation's own `traceparent`, which admission writes into its record and which intent, ledger and results carry on.
//!
//! Only what is sampled is looked at. A span holds names, numbers and outcomes: never a body, a query or a header of a request. Spans
//! are handed to a queue that never blocks; `export` takes them from there to a collector.

mod context;
#[cfg(feature = "otel")]
mod export;
mod metrics;
mod settings;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::ids::OperationKey;
use crate::time::WallTime;

pub use context::TraceContext;
#[cfg(feature = "otel")]
pub use export::{Collector, Exporter, Headers};
pub use metrics::Metrics;
pub use settings::TraceSettings;

/// Which side of a call a span tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanKind {
    /// A record that is taken.
    Consumer,
    /// A call to somebody else.
    Client,
    /// What happens within.
    Internal,
}

/// A value of an attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Value::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Number(number)
    }
}

/// A span that is over.
#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    /// Its trace, and itself.
    pub context: TraceContext,
    /// Whose child it is; none of a root.
    pub parent: Option<[u8; 8]>,
    /// Whether the parent was made by another process.
    pub remote: bool,
    /// Its side.
    pub kind: SpanKind,
    /// Its name: few different ones.
    pub name: String,
    /// When it began.
    pub began: WallTime,
    /// When it was over.
    pub ended: WallTime,
    /// What else there is to know.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it counts as failed, where it does; without payload.
    pub failed: Option<Cow<'static, str>>,
}

impl Span {
    /// A child of `parent`, told from its siblings by `id`.
    pub fn of(parent: TraceContext, id: &str, kind: SpanKind, name: String, began: WallTime, ended: WallTime) -> Self {
        Self {
            context: parent.child(id),
            parent: Some(parent.span),
            remote: false,
            kind,
            name,
            began,
            ended: ended.max(began),
            attributes: Vec::new(),
            failed: None,
        }
    }

    /// Says whose operation it is part of.
    #[must_use]
    pub fn about(self, key: &OperationKey) -> Self {
        let of = |text: &str| Value::Text(text.to_owned().into());
        self.with("readback.operation.id", of(key.operation.as_str()))
            .with("readback.tenant", of(key.tenant.as_str()))
            .with("readback.step", of(key.step.as_str()))
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }
}

/// Takes spans that are over; must not block.
pub type Sink = Arc<dyn Fn(Span) + Send + Sync>;

/// What is sampled, and where spans go; does nothing where nobody asks for traces. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<On>>);

struct On {
    sink: Sink,
    ratio: f64,
    follow: bool,
    propagate: bool,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Tracer(on)" } else { "Tracer(off)" })
    }
}

impl Tracer {
    /// One that hands its spans to `sink`.
    pub fn new(settings: &TraceSettings, sink: Sink) -> Self {
        let TraceSettings { ratio, follow, propagate } = *settings;
        Self(Some(Arc::new(On { sink, ratio, follow, propagate })))
    }

    /// Whether anybody asks for traces.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// What a request's `traceparent` means for the operation that it becomes: the operation's own context and its parent, where it is
    /// sampled. A header that is there decides by its flag, unless the settings say that ours does; without one a share is sampled.
    pub fn admit(&self, incoming: Option<&str>, key: &OperationKey) -> Option<(TraceContext, Option<[u8; 8]>)> {
        let on = self.0.as_ref()?;
        match incoming.filter(|_| on.follow) {
            Some(text) => TraceContext::sampled(text).map(|parent| (parent.child(&key.joined()), Some(parent.span))),
            None if on.ratio <= 0.0 => None,
            None => Some(TraceContext::root(key)).filter(|c| c.within(on.ratio)).map(|c| (c, None)),
        }
    }

    /// The context of an operation whose spans are wanted.
    pub fn wanted(&self, traceparent: Option<&str>) -> Option<TraceContext> {
        self.0.as_ref().and(traceparent).and_then(TraceContext::sampled)
    }

    /// Whether targets are told the context of the calls that they get.
    pub fn propagates(&self) -> bool {
        self.0.as_ref().is_some_and(|on| on.propagate)
    }

    /// Hands a span on.
    pub fn end(&self, span: Span) {
        if let Some(on) = &self.0 {
            (on.sink)(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn tracer(ratio: f64, follow: bool) -> Tracer {
        Tracer::new(&TraceSettings { ratio, follow, propagate: true }, Arc::new(|_| {}))
    }

    /// If this broke, a caller's decision to trace would be lost here, or traces that nobody wanted would be made of everything.
    #[test]
    fn the_callers_flag_decides_and_a_share_of_the_rest() {
        let key = OperationKey { tenant: "acme".into(), operation: "op-1".into(), step: "place".into() };
        let not = SAMPLED.replace("-01", "-00");
        let (own, parent) = tracer(0.0, true).admit(Some(SAMPLED), &key).expect("sampled by its caller");
        assert_eq!(parent, TraceContext::sampled(SAMPLED).map(|c| c.span));
        assert!(own.to_string().starts_with("00-0af7651916cd43dd8448eb211c80319c-") && own.to_string() != SAMPLED);
        assert_eq!(tracer(1.0, true).admit(Some(&not), &key), None);
        assert_eq!(tracer(0.0, true).admit(None, &key), None);
        assert!(tracer(1.0, true).admit(None, &key).is_some_and(|(_, parent)| parent.is_none()));
        assert!(tracer(1.0, false).admit(Some(&not), &key).is_some(), "our own sampler decides");
        assert_eq!(Tracer::default().admit(Some(SAMPLED), &key), None);
        assert_eq!(Tracer::default().wanted(Some(SAMPLED)), None);
    }

    /// If this broke, what nobody samples would be paid for by everybody. What a look costs is printed:
    /// `cargo test --lib what_is_not_sampled -- --nocapture`.
    #[test]
    fn what_is_not_sampled_is_only_looked_at() {
        let spans = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = spans.clone();
        let settings = TraceSettings { ratio: 0.5, follow: true, propagate: true };
        let tracer = Tracer::new(
            &settings,
            Arc::new(move |_| {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }),
        );
        let not = SAMPLED.replace("-01", "-00");
        let (began, looks) = (std::time::Instant::now(), 100_000);
        let wanted = (0..looks).filter(|_| tracer.wanted(std::hint::black_box(Some(&not))).is_some()).count();
        println!("{} ns a look", began.elapsed().as_nanos() / looks);
        assert_eq!((wanted, spans.load(std::sync::atomic::Ordering::Relaxed)), (0, 0));
    }
}
