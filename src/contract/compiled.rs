//! Templates and predicates of a call, compiled.

/// The compiled part of a call.
#[derive(Clone, Debug, Default)]
pub struct Compiled {}
