//! Everything that needs a real broker. The stack is started by the first test and stops when the process is gone.

mod conformance;

use std::sync::OnceLock;
use std::time::Duration;

use readback::demo::stack::{Stack, StackOptions};
use readback::kafka::rdkafka::{RdCluster, RdConfig};

/// The stack that all tests of this binary share.
fn stack() -> &'static Stack {
    static STACK: OnceLock<Stack> = OnceLock::new();
    STACK.get_or_init(|| {
        let options = StackOptions::from_env().expect("the environment names a whole cluster or none");
        Stack::up(&options).unwrap_or_else(|e| panic!("these tests need a real broker\n{e}"))
    })
}

/// A cluster client with the shortest session that a broker allows.
fn cluster() -> RdCluster {
    let config = RdConfig { session: Duration::from_secs(6), ..RdConfig::new(stack().brokers()) };
    RdCluster::new(config).expect("settings")
}
