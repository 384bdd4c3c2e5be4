//! `readback demo`: the whole story on a real broker on this machine, faults included.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::demo::ground::KafkaGround;
use crate::demo::screen::Report;
use crate::demo::simulated::{BANNER, SimulatedGround};
use crate::demo::stack::{Stack, StackOptions};
use crate::demo::story::{self, DemoOptions};
use crate::error::{Error, Fault, Result, codes};

use super::Format;

/// Run the whole story on a real Kafka: faults on purpose, and the ledger beside the target's own books.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback demo                                     500 operations, everything broken on purpose, about two minutes
  readback demo --slow --seed 7                     the same told step by step, with other faults
  readback demo --brokers host:9092 --registry http://host:8081 --prefix me-
Starts a broker and a registry by Docker, or by a JDK with Maven, and stops them at the end. With --brokers and \
--registry it runs on a cluster that exists (and breaks no broker there). Exit code 1: ledger and books disagree.")]
pub struct DemoArgs {
    /// Repeats the same faults.
    #[arg(long, default_value_t = 11)]
    seed: u64,
    /// How many operations.
    #[arg(long, default_value = "500")]
    operations: std::num::NonZeroUsize,
    /// Explains each stage as it happens.
    #[arg(long)]
    slow: bool,
    /// Bootstrap servers of a cluster that exists.
    #[arg(long, requires = "registry")]
    brokers: Option<String>,
    /// Registry of a cluster that exists.
    #[arg(long, requires = "brokers")]
    registry: Option<String>,
    /// Before the names of application and topics; for a cluster that others use too.
    #[arg(long, default_value = "")]
    prefix: String,
}

/// Runs the demo.
pub fn run(args: &DemoArgs, format: Format) -> Result<ExitCode> {
    let mut stack_options = StackOptions::from_env()?;
    if let (Some(brokers), Some(registry)) = (&args.brokers, &args.registry) {
        stack_options.existing = Some((brokers.clone(), registry.clone()));
    }
    let work = Work::new()?;
    let mut options = DemoOptions::new(args.seed, args.operations.get());
    options.slow = args.slow;
    options.bar = matches!(format, Format::Table);
    options.prefix.clone_from(&args.prefix);
    options.patience = Duration::from_secs(150) * if args.slow { 2 } else { 1 };
    let report = match told(&stack_options, &options, &work.0) {
        Ok(report) => report,
        Err(e) => {
            eprintln!("· state and logs are kept in {}", work.keep().display());
            return Err(e);
        }
    };
    match format {
        Format::Table => {
            print!("{}", report.table());
            // As it was called: after `cargo run` it is not on the path.
            let program = std::env::args().next().unwrap_or_else(|| "readback".to_owned());
            println!(" next");
            for command in ["check", "test", "describe"] {
                println!("   {program} {command} topology/orders");
            }
        }
        Format::Json => {
            let text =
                serde_json::to_string(&report).map_err(|e| Error::new(codes::BUG, Fault::Bug, "printing the report").because(e))?;
            println!("{text}");
        }
    }
    if report.holds {
        return Ok(ExitCode::SUCCESS);
    }
    let kept = work.keep();
    Err(Error::new(codes::BOOKS_DISAGREE, Fault::Verdict, "comparing the ledger with the target's books")
        .next(format!("the members' logs are kept in {}", kept.display())))
}

/// Tells the story on a real cluster, or, where none can be started here, on the in-process log.
fn told(stack: &StackOptions, options: &DemoOptions, work: &Path) -> Result<Report> {
    if stack.existing.is_none() && !Stack::possible() {
        eprintln!("· {BANNER}");
        return story::run(&SimulatedGround::new()?, options, work);
    }
    eprintln!("· starting a broker and a registry (the first time fetches them)");
    let ground = KafkaGround::new(Stack::up(stack)?, stack.existing.is_none())?;
    story::run(&ground, options, work)
}

/// A directory for state and logs, removed at the end unless the verdict is bad.
struct Work(PathBuf);

impl Work {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("readback-demo-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&dir).map_err(|e| {
            Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("creating {}", dir.display())).because(e)
        })?;
        Ok(Self(dir))
    }
    fn keep(self) -> PathBuf {
        let dir = self.0.clone();
        std::mem::forget(self);
        dir
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
