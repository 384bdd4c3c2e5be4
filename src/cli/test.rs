//! `readback test T`: recorded input through an application on the in-process log, its output compared with what is expected.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::config::yaml;
use crate::driver::recorded;
use crate::error::Result;

use super::{Format, load};

/// Run recorded input.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The topology's directory, with its `input.jsonl` and `expected.jsonl`.
    topology: PathBuf,
    /// Write what comes of the input to `expected.jsonl` instead of comparing.
    #[arg(long)]
    update: bool,
}

/// Runs it; a difference is an error with its place.
pub fn run(args: &TestArgs, format: Format) -> Result<ExitCode> {
    let application = yaml::offline(|| load::application(&args.topology))?;
    let dir = if args.topology.is_dir() { args.topology.clone() } else { args.topology.with_file_name("") };
    let done = recorded::run(&application, &dir, args.update)?;
    match format {
        Format::Json => println!("{}", json!({ "schema": "readback.test/1", "records": done.records, "updated": args.update })),
        Format::Table if args.update => println!("wrote {} records to {}", done.records, done.expected.display()),
        Format::Table => println!("ok: {} records as in {}", done.records, done.expected.display()),
    }
    Ok(ExitCode::SUCCESS)
}
