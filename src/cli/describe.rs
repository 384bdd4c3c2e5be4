//! `readback describe T`: the graph, as Kafka Streams prints it, as Mermaid, or as SVG.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::console::draw;
use crate::error::Result;

use super::{Format, load};

/// Print the graph.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback describe topology/orders                 sub-topologies as Kafka Streams prints them
  readback describe topology/orders --as mermaid    for a README or a wiki
  readback describe topology/orders --as svg > orders.svg
It reads the files only.")]
pub struct DescribeArgs {
    /// The topology: its directory or its `topology.yaml`.
    topology: PathBuf,
    /// How it is drawn.
    #[arg(long = "as", value_enum, default_value_t = Drawing::Text)]
    drawing: Drawing,
}

/// How a graph is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Drawing {
    /// As Kafka Streams prints a TopologyDescription.
    Text,
    /// As a Mermaid flowchart.
    Mermaid,
    /// As a picture.
    Svg,
}

/// Prints the graph of an application.
pub fn run(args: &DescribeArgs, format: Format) -> Result<ExitCode> {
    let application = load::offline(&args.topology)?.application;
    let drawn = match args.drawing {
        Drawing::Text => application.topology.describe(),
        Drawing::Mermaid => application.topology.mermaid(),
        Drawing::Svg => draw::standalone(&application.topology) + "\n",
    };
    match format {
        Format::Table => print!("{drawn}"),
        Format::Json => println!(
            "{}",
            json!({
                "schema": "readback.description/1", "application": application.id, "version": application.version,
                "fingerprint": application.topology.fingerprint(), "description": drawn,
            })
        ),
    }
    Ok(ExitCode::SUCCESS)
}
