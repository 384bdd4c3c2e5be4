//! Process configuration: defaults, then file, then environment, then flags; secrets by reference.

mod cel;
mod layers;
mod process;
mod secret;
mod settings;
mod units;
pub mod yaml;

pub use self::cel::{BadExpression, CelExpr};
pub use layers::{Flag, Setting, environment, explain, load};
pub use process::{
    AdminSection, ConsoleSection, EffectsSection, GroupSection, ProcessConfig, RegistryConfig, Slots, StateSection, Threads,
    TopicsSection,
};
pub use secret::{Secret, SecretRef};
pub use settings::process_schema;
pub use units::{ByteSize, Span};
