//! Kafka Streams' words in Rust: `StreamsBuilder`, `KStream`, `KTable`, and `effect()` for work that ends outside Kafka. One file an
//! operator family. Everything lowers to a [`Topology`](crate::topology::Topology) of typed nodes.

mod application;
mod branch;
mod builder;
mod custom;
mod effect;
mod group;
mod intake;
mod join;
mod outlets;
mod source;
mod stream;
mod table;
mod with;

#[cfg(test)]
pub(crate) mod harness;
#[cfg(test)]
mod tests;

pub use application::{Application, Policy};
pub use branch::Branched;
pub use builder::StreamsBuilder;
pub(crate) use effect::{Defaults, MAX_INPUT, Origin, REMEMBER, input_parameters, plain_admission};
pub use effect::{Effect, Effects, RequestDraft};
pub use group::KGroupedStream;
pub(crate) use intake::millis;
pub use intake::{approval_of, request_of};
pub use stream::KStream;
pub use table::KTable;
pub use with::{Consumed, Grouped, Joined, Materialized, Produced, Repartitioned};

/// For [`params!`](crate::params): its users need not depend on it.
#[doc(hidden)]
pub use ::serde_json;

/// Parameters of a call as an object: `params! { sku: plan.sku, quantity: 3 }`. Values are anything that serde takes.
#[macro_export]
macro_rules! params {
    ($($name:ident : $value:expr),* $(,)?) => {{
        let mut map = $crate::dsl::serde_json::Map::new();
        $(map.insert(stringify!($name).to_owned(), $crate::dsl::serde_json::json!($value));)*
        $crate::contract::Parameters(map)
    }};
}
