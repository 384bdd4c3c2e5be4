//! The console over HTTP, on the in-process log, with a member that answers commands by the real rules.

mod evidence;
mod issuer;
mod live;
mod oidc;
mod orders;
mod pages;
mod queries;
mod resting;
mod second;
pub(crate) mod served;
mod signing;
mod submit;
