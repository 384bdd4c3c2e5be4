//! Health and metrics over HTTP, and read-only views of operations. Everything here reads committed data only.

pub mod dead_letters;
pub mod evidence;
mod health;
mod listen;
pub mod orders;
pub mod payload;
pub mod replay;
mod server;
mod stores;
pub mod views;

pub use health::{Health, Probe};
pub use server::AdminServer;
pub use stores::StoresSlot;
