//! The program: one file a command. stdout is the result, stderr everything else.

/// As the standard one, but for a reader that has gone (`readback explain | head`): then nothing more is printed.
macro_rules! println {
    () => { $crate::cli::output::print("\n") };
    ($($text:tt)*) => { $crate::cli::output::print(&(format!($($text)*) + "\n")) };
}
/// As [`println`], without a line end.
macro_rules! print {
    ($($text:tt)*) => { $crate::cli::output::print(&format!($($text)*)) };
}

mod bench;
mod bulk;
mod check;
mod config;
mod console;
mod demo;
mod describe;
mod diff;
mod dlq;
mod explain;
mod load;
mod metrics;
mod new;
mod ops;
mod output;
mod pause;

mod probe;
mod progress;
mod replay_diff;
mod reset;
mod run;
mod shells;
mod supervise;
mod test;
mod timeline;
mod watch;

pub use output::{Format, fail};

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Flag;

/// A stream processor for work that ends outside Kafka: an effect counts only after it has been read back.
#[derive(Debug, Parser)]
#[command(name = "readback", version, propagate_version = true, max_term_width = 120, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// What is logged: a level, or per-module directives (`info,readback::effects=debug`).
    #[arg(long, global = true, env = "READBACK_LOG", default_value = "warn")]
    log: String,
    /// Logs as JSON lines.
    #[arg(long, global = true)]
    log_json: bool,
}

const EXIT_CODES: &str = "Exit codes: 0 ok · 1 negative verdict · 2 usage or configuration · 3 unreachable · 4 stale version · \
5 slot taken · 70 bug\n`readback explain RB0103` tells more about a code.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the whole story on a real Kafka on this machine: faults on purpose, the ledger beside the target's books.
    Demo(demo::DemoArgs),
    /// Be a member of the consumer groups of an application.
    Run(run::RunArgs),
    /// Check a topology, and print what is promised on every edge; `--live` compares with a real cluster.
    Check(check::CheckArgs),
    /// Print the graph of an application.
    Describe(describe::DescribeArgs),
    /// Run an application on recorded input and compare what comes of it.
    Test(test::TestArgs),
    /// Run recorded input through two versions of a topology, and show which operations would mean something else.
    ReplayDiff(replay_diff::ReplayDiffArgs),
    /// Try a contract against a sandbox: real calls, real effects.
    Probe(probe::ProbeArgs),
    /// Say what a deploy would keep, create, orphan or lose, before it is made.
    Diff(diff::DiffArgs),
    /// Begin an application anew: positions, internal topics, local state; shows what it would do unless told to.
    Reset(reset::ResetArgs),
    /// Look at operations and decide what nobody else can.
    Ops(ops::OpsArgs),
    /// Serve pages and an API for people on duty.
    Console(console::ConsoleArgs),
    /// Write a topology from a ready contract or for a topic that exists.
    New(new::NewArgs),
    /// Show each setting and where it comes from.
    Config(config::ConfigArgs),
    /// List the metrics that a member exposes.
    Metrics(metrics::MetricsArgs),
    /// Measure this installation beside a bare loop.
    Bench(bench::BenchArgs),
    /// Print completions for a shell.
    Completions(shells::CompletionsArgs),
    /// Print the manual, or write a page for each command.
    Man(shells::ManArgs),
    /// Look at dead letters, and send them back.
    Dlq(dlq::DlqArgs),
    /// Explain an error code, or list all of them.
    Explain(explain::ExplainArgs),
}

/// Where the cluster and the registry are; shared by every command that talks to them.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Configuration file (`readback.yaml`).
    #[arg(long, env = "READBACK_CONFIG", global = true)]
    pub config: Option<PathBuf>,
    /// Bootstrap servers, `host:port,…`.
    #[arg(long, global = true)]
    pub brokers: Option<String>,
    /// Schema registry, `http://host:port`.
    #[arg(long, global = true)]
    pub registry: Option<String>,
}

impl Connection {
    /// What is set and where, secrets hidden.
    pub fn explain(&self) -> crate::error::Result<Vec<crate::config::Setting>> {
        crate::config::provenance(self.config.as_deref(), crate::config::environment()?, &self.flags())
    }
    /// The process configuration: defaults, file, environment, then these flags.
    pub fn load(&self) -> crate::error::Result<crate::config::ProcessConfig> {
        crate::config::load(self.config.as_deref(), crate::config::environment()?, &self.flags())
    }

    /// Those of these flags that are settings.
    fn flags(&self) -> Vec<Flag<'_>> {
        let given = [("--brokers", "brokers", &self.brokers), ("--registry", "registry.url", &self.registry)];
        given.into_iter().filter_map(|(name, key, value)| Some(Flag { name, key, value: value.as_deref()? })).collect()
    }
}

/// Runs the program; the caller's `main` returns what this does.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(e) = output::init_logs(&cli.log, cli.log_json) {
        return fail(&e, cli.output);
    }
    progress::printing(cli.output);
    let done = match cli.command {
        Command::Demo(args) => demo::run(&args, cli.output),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args, cli.output),
        Command::Describe(args) => describe::run(&args, cli.output),
        Command::Ops(args) => on_cluster(args.connection()).and_then(|cluster| ops::run(&args, &cluster, cli.output)),
        Command::Console(args) => console::run(&args),
        Command::ReplayDiff(args) => replay_diff::run(&args, cli.output),
        Command::Probe(args) => probe::run(&args, cli.output),
        Command::Dlq(args) => on_cluster(args.connection()).and_then(|cluster| dlq::run(&args, &cluster, cli.output)),
        Command::Test(args) => test::run(&args, cli.output),
        Command::Diff(args) => diff::run(&args, cli.output),
        Command::Reset(args) => reset::run(&args, cli.output),
        Command::Config(args) => config::run(&args, cli.output),
        Command::Metrics(args) => metrics::run(&args, cli.output),
        Command::Bench(args) => bench::run(&args, cli.output),
        Command::Completions(args) => shells::completions(&args),
        Command::Man(args) => shells::man(&args, cli.output),
        Command::New(args) => new::run(&args, cli.output),
        Command::Explain(args) => explain::run(&args, cli.output),
    };
    match done {
        Ok(code) => code,
        Err(e) => fail(&e, cli.output),
    }
}

/// The cluster that the connection names.
fn on_cluster(connection: &Connection) -> crate::error::Result<crate::kafka::RdCluster> {
    crate::kafka::RdCluster::new(crate::app::kafka_config(&connection.load()?))
}

/// What HTTP runs on: targets, metrics, pages.
fn http_runtime() -> crate::error::Result<tokio::runtime::Runtime> {
    use crate::error::{Error, Fault, codes};
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()
        .map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the HTTP runtime").because(e))
}
