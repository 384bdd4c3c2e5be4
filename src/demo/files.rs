//! The demo's topology, carried in the program so that it runs from anywhere.

use std::path::{Path, PathBuf};

use crate::error::{Error, Fault, Result, codes};

macro_rules! carried {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../topology/orders/", $path)))),*]
    };
}

/// Every file of `topology/orders/` that a run needs.
const ORDERS: &[(&str, &str)] = carried![
    "topology.yaml",
    "contracts/orders.yaml",
    "contracts/model.yaml",
    "policies/orders.cedar",
    "prompts/buyer.v7.md",
    "schemas/order-plan.schema.json",
];

/// Writes the topology under `work`; answers its directory.
pub fn write_orders(work: &Path) -> Result<PathBuf> {
    let dir = work.join("orders");
    for (path, text) in ORDERS {
        let file = dir.join(path);
        let wrote = file.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&file, text));
        wrote.map_err(|e| {
            Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("writing {}", file.display())).because(e)
        })?;
    }
    Ok(dir)
}
