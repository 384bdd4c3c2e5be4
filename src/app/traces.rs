//! Where this process's traces go, by its configuration.

use std::sync::Arc;
#[cfg(feature = "otel")]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::Registry as MetricRegistry;

use crate::config::ProcessConfig;
#[cfg(feature = "otel")]
use crate::config::SecretRef;
use crate::error::Result;
use crate::http::HttpPort;
use crate::ids::ApplicationId;
use crate::trace::{Metrics, TraceSettings, Tracer};

/// The traces of one process; those that wait are sent when they are stopped.
pub(super) struct Traces {
    /// Makes spans.
    pub tracer: Tracer,
    #[cfg(feature = "otel")]
    exporter: Option<crate::trace::Exporter>,
}

impl Traces {
    /// Traces as they are asked for; none without an endpoint.
    ///
    /// # Errors
    /// `MISSING_SECRET` where the collector's headers can't be read, `BAD_VALUE` for an endpoint that is no address.
    pub fn start(
        application: &ApplicationId,
        config: &ProcessConfig,
        http: &Arc<dyn HttpPort>,
        runtime: &tokio::runtime::Handle,
        metrics: &MetricRegistry,
    ) -> Result<Self> {
        let metrics = Metrics::new(metrics)?;
        let section = &config.traces;
        if !section.enabled || section.endpoint.is_empty() {
            return Ok(Self::none());
        }
        let settings = TraceSettings { ratio: section.sample, follow: section.follow, propagate: section.propagate };
        Self::to_collector(application, config, &settings, (http, runtime, metrics))
    }

    #[cfg(feature = "otel")]
    fn to_collector(
        application: &ApplicationId,
        config: &ProcessConfig,
        settings: &TraceSettings,
        (http, runtime, metrics): (&Arc<dyn HttpPort>, &tokio::runtime::Handle, Metrics),
    ) -> Result<Self> {
        let section = &config.traces;
        let headers = headers(section.headers.as_ref())?;
        let mut resource = pairs(&section.resource);
        if !section.service.is_empty() {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), section.service.clone()));
        } else if !resource.iter().any(|(key, _)| key == "service.name") {
            resource.push(("service.name".to_owned(), application.to_string()));
        }
        resource.push(("readback.application".to_owned(), application.to_string()));
        let (endpoint, timeout) = (section.endpoint.clone(), section.timeout.0);
        let collector = crate::trace::Collector { endpoint, headers, timeout, resource };
        let (exporter, sink) = crate::trace::Exporter::start(collector, http.clone(), runtime.clone(), metrics)?;
        Ok(Self { tracer: Tracer::new(settings, sink), exporter: Some(exporter) })
    }

    #[cfg(not(feature = "otel"))]
    fn to_collector(
        _: &ApplicationId,
        _: &ProcessConfig,
        _: &TraceSettings,
        _: (&Arc<dyn HttpPort>, &tokio::runtime::Handle, Metrics),
    ) -> Result<Self> {
        tracing::warn!("traces.endpoint is set, but this program was built without the feature `otel`: there are no traces");
        Ok(Self::none())
    }

    fn none() -> Self {
        Self {
            tracer: Tracer::default(),
            #[cfg(feature = "otel")]
            exporter: None,
        }
    }

    /// Sends what waits, within `bound`.
    pub fn stop(self, bound: Duration) {
        #[cfg(feature = "otel")]
        if let Some(exporter) = self.exporter {
            exporter.stop(bound);
        }
        #[cfg(not(feature = "otel"))]
        let _ = bound;
    }
}

/// The collector's headers, as they stand at each export. One that can't be read again stays as it was.
#[cfg(feature = "otel")]
fn headers(of: Option<&SecretRef>) -> Result<crate::trace::Headers> {
    let Some(of) = of.cloned() else { return Ok(Arc::new(Vec::new)) };
    let last = Mutex::new(of.resolve()?);
    Ok(Arc::new(move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        match of.resolve() {
            Ok(now) => *last = now,
            Err(error) => tracing::debug!(%error, "the collector's headers can't be read again; the old ones stay"),
        }
        pairs(last.expose())
    }))
}

/// `name=value,name=value`, values percent-encoded, as OpenTelemetry's variables have it.
#[cfg(feature = "otel")]
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |part: &str| part.split_once('=').map(|(name, value)| (name.trim().to_owned(), decoded(value.trim())));
    text.split(',').filter_map(pair).filter(|(name, _)| !name.is_empty()).collect()
}

#[cfg(feature = "otel")]
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(all(test, feature = "otel"))]
mod tests {
    use super::*;

    /// If this broke, a collector would refuse a token that has a space in it, or all would be one service.
    #[test]
    fn pairs_are_read_as_the_standard_writes_them() {
        let read = pairs(" authorization=Bearer%20abc==, x-tenant = a ,,=b,100%=5%");
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read, [of("authorization", "Bearer abc=="), of("x-tenant", "a"), of("100%", "5%")]);
    }

    /// If this broke, a collector whose token has run out would get no traces until somebody restarts the member.
    #[test]
    fn the_collectors_headers_are_read_at_each_export() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("headers");
        std::fs::write(&file, "authorization=Bearer%20one\n").expect("writes");
        let now = headers(Some(&SecretRef::File(file.clone()))).expect("reads");
        let bearer = |token: &str| vec![("authorization".to_owned(), format!("Bearer {token}"))];
        assert_eq!(now(), bearer("one"));
        std::fs::write(&file, "authorization=Bearer%20two\n").expect("writes");
        assert_eq!(now(), bearer("two"));
        std::fs::remove_file(&file).expect("is there");
        assert_eq!(now(), bearer("two"), "it is only away");
        assert!(headers(Some(&SecretRef::File(file))).is_err(), "at the start it must be there");
        assert_eq!(headers(None).expect("none")(), []);
    }
}
