//! What became of spans.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use crate::error::{Error, Fault, Result, codes};
use crate::events;

/// Spans by what became of them; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// A collector has them.
    pub exported: IntCounter,
    /// The queue was full.
    pub dropped: IntCounter,
    /// No collector took them.
    pub failed: IntCounter,
}

impl Metrics {
    /// Makes the metrics and registers them. A name that is registered already is an error.
    pub fn new(registry: &Registry) -> Result<Self> {
        let made = || {
            let m = events::SPANS;
            let all = IntCounterVec::new(Opts::new(m.name, m.help), m.labels)?;
            registry.register(Box::new(all.clone()))?;
            prometheus::Result::Ok(all)
        };
        let all = made().map_err(|e| Error::new(codes::BUG, Fault::Bug, "registering the metrics of traces").because(e))?;
        let of = |outcome: &str| all.with_label_values(&[outcome]);
        Ok(Self { exported: of("exported"), dropped: of("dropped"), failed: of("failed") })
    }
}
