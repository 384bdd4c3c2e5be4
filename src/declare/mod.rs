//! topology.yaml to the same Topology.
