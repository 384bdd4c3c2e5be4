//! `readback check T`: what is promised on every edge, by what, and what is not; with `--live`, whether the cluster lets it.

mod html;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::app::check::{self, Report};
use crate::error::{Error, Fault, Result, codes};
use crate::kafka::Cluster;
use crate::runtime::error_of;

use super::{Connection, Format, load};

/// Check a topology's types, names, contracts and policies, and print what is promised on every edge.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback check topology/orders            reads the files only; needs neither cluster nor environment
  readback check topology/orders --live     compares with the topics, brokers and registry that there are
  readback check topology/orders --live --html report.html --output json > report.json
Exit codes: 0 it can run (perhaps with warnings) · 2 errors in files, or the cluster contradicts · 3 unreachable")]
pub struct CheckArgs {
    #[command(flatten)]
    connection: Connection,
    /// The topology: its directory or its `topology.yaml`.
    topology: PathBuf,
    /// Ask the cluster and the registry too.
    #[arg(long)]
    live: bool,
    /// Print the permissions that members and tools need, as flags of kafka-acls.sh.
    #[arg(long)]
    permissions: bool,
    /// Write the report as a page, too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Checks an application.
pub fn run(args: &CheckArgs, format: Format) -> Result<ExitCode> {
    let declared = load::offline(&args.topology)?;
    let config = args.connection.load()?;
    let cluster = crate::kafka::RdCluster::new(crate::app::kafka_config(&config))?;
    let mut report = Report::offline(&declared.application, &config, &declared.warnings);
    if args.live {
        let admin = cluster.admin().map_err(error_of)?;
        let registry = crate::app::registry(&config)?;
        check::try_permissions(&mut report, &cluster)?;
        let asked = check::against(&mut report, &declared.application, &config, admin.as_ref(), registry.as_ref());
        check::or_refused(&mut report, asked)?;
    }
    if let Some(file) = &args.html {
        let page = html::page(&report, &chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true));
        std::fs::write(file, page).map_err(|e| {
            Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("writing the report to {}", file.display()))
                .because(e)
                .next("name a file in a directory that can be written")
        })?;
        eprintln!("wrote {}", file.display());
    }
    match format {
        Format::Table => {
            let permissions = if args.permissions { text::permissions(&report) } else { String::new() };
            print!("{}{permissions}", text::table(&report));
        }
        Format::Json => println!("{}", report.json()),
    }
    Ok(match report.contradictions.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Fault::Configuration.exit_code()),
    })
}
