//! The graph: nodes, sub-topologies, units, co-partitioning, describe.
