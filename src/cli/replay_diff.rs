//! `readback replay-diff OLD NEW`: recorded input through two versions of a topology, before anything is replayed through the new one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::config::yaml;
use crate::driver::compare::{self, Comparison, Difference};
use crate::dsl::Application;
use crate::error::{Fault, Result};

use super::{Format, load};

/// Run recorded input through two versions of a topology, and show which operations would mean something else.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback replay-diff releases/7/orders topology/orders
  readback replay-diff old new --input incident.jsonl --output json
Offline: both run the real code on a log in this process, targets answer what was recorded. Approvals are given as they were given
under the old version: one that named another plan does not bind. Prints hashes, names and places, no payload.
Exit codes: 0 the same · 1 something differs · 2 usage or files")]
pub struct ReplayDiffArgs {
    /// The old version: a topology's directory or its `topology.yaml`.
    old: PathBuf,
    /// The new version.
    new: PathBuf,
    /// The recorded input; without it the old version's `input.jsonl`.
    #[arg(long)]
    input: Option<PathBuf>,
}

/// Runs both and compares.
///
/// # Errors
/// What the files say.
pub fn run(args: &ReplayDiffArgs, format: Format) -> Result<ExitCode> {
    let read = |path: &Path| yaml::offline(|| load::application(path));
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    let dir = if args.old.is_dir() { args.old.clone() } else { args.old.with_file_name("") };
    let input = args.input.clone().unwrap_or_else(|| dir.join("input.jsonl"));
    let found = yaml::offline(|| compare::compare(&old, &new, &input))?;
    match format {
        Format::Table => print!("{}", table(&old, &new, &found)),
        Format::Json => {
            let version = |a: &Application| json!({ "application": a.id, "version": a.version });
            println!(
                "{}",
                json!({
                    "schema": "readback.replay-diff/1", "old": version(&old), "new": version(&new), "operations": found.operations,
                    "differences": found.differences, "unanswered": found.unanswered, "unread": found.unread,
                })
            );
        }
    }
    let same = found.differences.is_empty() && found.unread.is_empty();
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::from(Fault::Verdict.exit_code()) })
}

fn table(old: &Application, new: &Application, found: &Comparison) -> String {
    let mut text = format!("{} version {} → {} version {}\n", old.id, old.version, new.id, new.version);
    let mut last = None;
    let mut touched = 0;
    for d in &found.differences {
        if last != Some(&d.operation) {
            text += &match &d.operation {
                Some(key) => format!("\n{} · {} · {}\n", key.operation, key.tenant, key.step),
                None => "\ntopics\n".to_owned(),
            };
            touched += usize::from(d.operation.is_some());
            last = Some(&d.operation);
        }
        text += &line(d);
    }
    for topic in &found.unread {
        text += &format!("\nthe new version does not read {topic}\n");
    }
    for call in &found.unanswered {
        text += &format!("\nno answer to {call} was recorded: how its operations end is not compared\n");
    }
    text + &format!("\n{touched} of {} operations would mean something else\n", found.operations)
}

fn line(d: &Difference) -> String {
    let parts = if d.parts.is_empty() { String::new() } else { format!("   {}", d.parts.join(", ")) };
    format!("  {:<11} {} → {}{parts}\n", d.kind.word(), d.old, d.new)
}
