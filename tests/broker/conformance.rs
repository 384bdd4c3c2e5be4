//! The promises of a cluster, on a real broker.

readback::conformance!(&crate::shared().cluster);
