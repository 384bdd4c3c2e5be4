//! Composition: topology, contracts and targets to a running process.
