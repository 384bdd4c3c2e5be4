//! Views of operations.
