//! Process configuration: defaults, then file, then environment, then flags; secrets by reference.

mod cel;
mod layers;
mod process;
mod secret;
mod units;
pub mod yaml;

pub use self::cel::CelExpr;
pub use layers::load;
pub use process::{
    AdminSection, EffectsSection, GroupSection, ProcessConfig, Reference, RegistryConfig, Slots, StateSection, Threads,
    TopicsSection, process_schema,
};
pub use secret::{Secret, SecretRef};
pub use units::{ByteSize, Rate, Span};
