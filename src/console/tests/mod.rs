//! The console over HTTP, on the in-process log, with a member that answers commands by the real rules.

mod orders;
mod pages;
mod queries;
mod served;
mod signing;
