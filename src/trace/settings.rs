//! What is sampled, apart from where it goes.

/// What is sampled, and who is told.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TraceSettings {
    /// Share of the requests that come without a `traceparent` of which a trace is made, 0 to 1.
    pub ratio: f64,
    /// Whether a `traceparent` that comes decides for itself.
    pub follow: bool,
    /// Whether calls to targets carry a `traceparent`.
    pub propagate: bool,
}
