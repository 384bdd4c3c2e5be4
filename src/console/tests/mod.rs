//! The console over HTTP, on the in-process log, with a member that answers commands by the real rules.

mod live;
mod orders;
mod pages;
mod served;
mod signing;
