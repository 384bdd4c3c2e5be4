//! The effect contract: what one target API can prove. Parsed, linted and asked here; pure.

mod compiled;
mod model;

pub use model::{
    Bound, Budget, Call, Carrier, Completion, Confirm, Contract, Credentials, Dedupe, KeyFormat, KeySpec, LaneRule, Parameters,
    Promise, Readback, Retention, Target, Unprovable,
};
