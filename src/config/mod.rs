//! Process configuration: defaults, then file, then environment, then flags; secrets by reference.

mod cel;
mod command;
mod layers;
mod net;
mod otel;
mod process;
mod provenance;
mod secret;
mod security;
mod settings;
mod units;
pub mod yaml;

pub use self::cel::{BadExpression, CelExpr};
pub use command::SecretCommand;
pub use layers::{Flag, environment, load};
pub use net::Net;
pub use process::{
    AdminSection, ConsoleSection, EffectsSection, GroupProtocol, GroupSection, MetricsSection, OidcSection, ProcessConfig,
    RegistryConfig, Slots, StateSection, Threads, TopicsSection, TracesSection, WebhooksSection,
};
pub use provenance::{Setting, provenance};
pub use secret::{Secret, SecretRef};
pub use security::{Identity, OAuth, PasswordMechanism, Protocol, Sasl, Security};
pub use settings::process_schema;
pub use units::{ByteSize, Span};
