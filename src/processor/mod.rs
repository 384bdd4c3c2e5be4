//! The Processor API: typed nodes, context, punctuation.
