//! Process configuration: defaults, then file, then environment, then flags; secrets by reference.

mod cel;
mod secret;
pub mod yaml;

pub use self::cel::CelExpr;
pub use secret::{Secret, SecretRef};
