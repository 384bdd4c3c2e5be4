//! Kafka Streams' words in Rust: `StreamsBuilder`, `KStream`, `KTable`, and `effect()` for work that ends outside Kafka. One file an
//! operator family. Everything lowers to a [`Topology`](crate::topology::Topology) of typed nodes.

mod application;
mod branch;
mod builder;
mod change;
mod cogroup;
mod custom;
mod effect;
mod foreign_key;
mod global;
mod group;
mod held_back;
mod intake;
mod join;
mod join_sides;
mod keeping;
mod outlets;
mod record_cache;
mod session_windows;
mod sliding;
mod source;
mod stores;
mod stream;
mod stream_join;
mod subscription;
mod suppress;
mod table;
mod table_group;
mod table_join;
mod time_windows;
mod windowed;
mod windows;
mod wire;
mod with;

#[cfg(test)]
mod api_tests;
#[cfg(test)]
pub(crate) mod harness;
#[cfg(test)]
mod stream_join_tests;
#[cfg(test)]
mod suppress_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod windows_tests;

pub use application::{Application, Policy, RequestTopic};
pub use branch::Branched;
pub use builder::StreamsBuilder;
pub use cogroup::{CogroupedKStream, WindowedCogroup};
pub(crate) use effect::{Defaults, MAX_INPUT, Origin, REMEMBER, input_parameters, plain_admission};
pub use effect::{Effect, Effects, RequestDraft};
pub use global::GlobalKTable;
pub(crate) use group::Fold;
pub use group::{Grouping, KGroupedStream};
pub(crate) use intake::millis;
pub use intake::{approval_of, request_of};
pub use keeping::NamedStore;
pub(crate) use session_windows::Folding;
pub use session_windows::SessionWindowedKStream;
pub use stream::KStream;
pub use stream_join::StreamJoined;
pub use suppress::{AnyBuffer, BufferConfig, EagerBuffer, StrictBuffer, Suppressed};
pub use table::KTable;
pub use table_group::KGroupedTable;
pub use windowed::{TimeWindowedKStream, Windowing};
pub use windows::{EmitStrategy, JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows};
pub(crate) use with::Goal;
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
