//! Process configuration: defaults, then file, then environment, then flags; secrets by reference.

mod cel;
mod layers;
mod process;
mod provenance;
mod secret;
mod settings;
mod units;
pub mod yaml;

pub use self::cel::{BadExpression, CelExpr};
pub use layers::{Flag, environment, load};
pub use process::{
    AdminSection, ConsoleSection, EffectsSection, GroupSection, OidcSection, ProcessConfig, RegistryConfig, Slots, StateSection,
    Threads, TopicsSection,
};
pub use provenance::{Setting, provenance};
pub use secret::{Secret, SecretRef};
pub use settings::process_schema;
pub use units::{ByteSize, Span};
