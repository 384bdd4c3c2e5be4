//! Health and metrics over HTTP, and read-only views of operations. Everything here reads committed data only.

mod health;
mod server;
pub mod views;

pub use health::{Health, Probe};
pub use server::AdminServer;
