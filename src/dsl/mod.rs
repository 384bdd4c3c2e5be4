//! Kafka Streams' words in Rust: `StreamsBuilder`, `KStream`, `KTable`, and `effect()` for work that ends outside Kafka. One file an
//! operator family. Everything lowers to a [`Topology`](crate::topology::Topology) of typed nodes.

mod application;
mod branch;
mod builder;
mod change;
mod custom;
mod effect;
mod foreign_key;
mod global;
mod group;
mod intake;
mod join;
mod outlets;
mod source;
mod stream;
mod subscription;
mod table;
mod table_group;
mod table_join;
mod wire;
mod with;

#[cfg(test)]
pub(crate) mod harness;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;

pub use application::{Application, Policy};
pub use branch::Branched;
pub use builder::StreamsBuilder;
pub(crate) use effect::{Defaults, MAX_INPUT, Origin, REMEMBER, input_parameters, plain_admission};
pub use effect::{Effect, Effects, RequestDraft};
pub use global::GlobalKTable;
pub use group::KGroupedStream;
pub(crate) use intake::millis;
pub use intake::{approval_of, request_of};
pub use stream::KStream;
pub use table::KTable;
pub use table_group::KGroupedTable;
pub use with::{Consumed, Grouped, Joined, Materialized, Produced, Repartitioned};

/// Parameters of a call as an object: `params! { sku: plan.sku, quantity: 3 }`. Values are anything that serde takes.
#[macro_export]
macro_rules! params {
    ($($name:ident : $value:expr),* $(,)?) => {{
        let mut map = ::serde_json::Map::new();
        $(map.insert(stringify!($name).to_owned(), ::serde_json::json!($value));)*
        $crate::contract::Parameters(map)
    }};
}
