//! Process configuration: defaults, then file, then environment, then flags; secrets by reference.

mod secret;
pub mod yaml;

pub use secret::{Secret, SecretRef};
