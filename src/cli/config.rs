//! `readback config show`: each setting as it holds, and where it comes from.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::error::Result;

use super::{Connection, Format};

/// Look at the configuration.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show each setting as it holds, and where it comes from; secrets are named, never shown.
    #[command(after_help = "Examples:
  readback config show --config readback.yaml
  READBACK_STATE__DIR=/data readback config show --brokers kafka-1:9092
  readback config show --output json | jq -r 'select(.from != \"default\") | .key'
Later layers win key by key: default, file, environment, flags.")]
    Show,
}

/// Shows it.
pub fn run(args: &ConfigArgs, format: Format) -> Result<ExitCode> {
    let What::Show = args.what;
    let all = args.connection.explain()?;
    let width = |f: &dyn Fn(&crate::config::Setting) -> usize| all.iter().map(f).max().unwrap_or_default();
    let (keys, values) = (width(&|s| s.key.chars().count()), width(&|s| s.value.chars().count()));
    for s in &all {
        match format {
            Format::Json => {
                println!("{}", json!({ "schema": "readback.setting/1", "key": s.key, "value": s.value, "from": s.from }))
            }
            Format::Table => println!("{:<keys$}  {:<values$}  {}", s.key, s.value, s.from),
        }
    }
    Ok(ExitCode::SUCCESS)
}
