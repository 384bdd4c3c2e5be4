//! A seeded simulator: the real units of an application on the in-process log, on virtual time, with every fault of one seed.
//! Judged only by what anybody can see: the results topic and the target's own books.
//!
//! A seed gives a [`Schedule`]; [`run`] plays it. The same schedule gives the same run, turn by turn.

mod apps;
mod happen;
mod heard;
mod operator;
mod plans;
mod schedule;
mod search;
mod undone;
mod whole;
mod world;

pub use schedule::{Afterthought, Again, App, Broken, Class, Off, Planned, Schedule, Strike, Struck};
pub use search::{Found, search, search_by, shrink};
pub use world::{Applications, Outcome, run};
