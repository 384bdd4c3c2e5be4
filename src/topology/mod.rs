//! The graph: nodes, sub-topologies, stores, internal topics, and how tasks are made of it. Typed steps live in factories, so that
//! no record is boxed on its way.

mod describe;
mod graph;
mod layout;
mod plan;
mod stores;
mod stream_task;

pub use graph::{GlobalCheck, Graph, Ingest, KeeperFactory, Node, NodeId, Parts, Role, SourceFactory, Subtopology, Topology};
pub use layout::Layout;
pub use plan::Environments;
pub use stores::StoreInfo;
pub use stream_task::StreamTask;
