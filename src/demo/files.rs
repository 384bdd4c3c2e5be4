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

/// Writes the topology under `work`; answers its directory. `prefix` goes before the application's and the topics' names, so that
/// several runs share one cluster; `target` takes the place of the references to the targets' addresses.
pub fn write_orders(work: &Path, prefix: &str, target: &str) -> Result<PathBuf> {
    let dir = work.join("orders");
    for (path, text) in ORDERS {
        let file = dir.join(path);
        let text = text
            .replace("application: orders", &format!("application: {prefix}orders"))
            .replace(" agent.", &format!(" {prefix}agent."));
        let text = ["ORDERS_URL", "MODEL_URL"].iter().fold(text, |t, name| t.replace(&format!("{{ env: {name} }}"), target));
        let wrote = file.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&file, &text));
        wrote.map_err(|e| {
            Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("writing {}", file.display())).because(e)
        })?;
    }
    Ok(dir)
}
