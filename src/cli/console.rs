//! `readback console`: the console alone, and tokens for its file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::admin::{AdminServer, Health};
use crate::app;
use crate::console::books::Subject;
use crate::console::people::{self, Role};
use crate::console::server::router;
use crate::console::submit::Doors;
use crate::console::{Console, Settings};
use crate::error::Result;
use crate::kafka::RdCluster;
use crate::time::SystemClock;

use super::{Connection, load, ops};

/// Serve pages and an API for people on duty.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  readback console --app orders --brokers localhost:9092             read-only, on 127.0.0.1:9465
  readback console token --name you@team --role operator >> tokens   a line for the file; the token itself on stderr
  READBACK_CONSOLE__TOKENS=tokens readback console --app orders --listen 0.0.0.0:9465
`readback run` serves it beside metrics and health where `admin.console` is true.
Without console.tokens nobody can sign in: it is read-only, and only 127.0.0.1 is listened on."
)]
pub struct ConsoleArgs {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    connection: Connection,
    /// The application; may be left out where the cluster has one only.
    #[arg(long, env = "READBACK_APP")]
    app: Option<String>,
    /// The topology, for the graph, budgets, dead letters and the guarantee report: its directory or its `topology.yaml`.
    #[arg(long)]
    topology: Option<PathBuf>,
    /// Where it listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9465")]
    listen: String,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a token: its line for the file on stdout, the token itself on stderr.
    Token {
        /// The name that stands beside decisions.
        #[arg(long)]
        name: String,
        /// What they may do; may be given several times.
        #[arg(long, required = true, value_enum)]
        role: Vec<Role>,
    },
}

/// Serves the console until SIGTERM, or makes a token.
pub fn run(args: &ConsoleArgs) -> Result<ExitCode> {
    if let Some(What::Token { name, role }) = &args.what {
        let (token, line) = people::make(name, role)?;
        println!("{line}");
        eprintln!("the token of {name}, shown this once: {token}");
        return Ok(ExitCode::SUCCESS);
    }
    let config = args.connection.load()?;
    let cluster = RdCluster::new(app::kafka_config(&config))?;
    let settings = Settings::of(&config, &args.listen);
    let declared = args.topology.as_deref().map(load::offline).transpose()?;
    let named = args.app.clone().or_else(|| declared.as_ref().map(|d| d.application.id.to_string()));
    let id = ops::the_app(named.as_deref(), &cluster)?;
    let mut console = Console::start(&cluster, &id, &settings, Arc::new(SystemClock))?.configured(args.connection.explain()?);
    if let Some(declared) = declared {
        let application = Arc::new(declared.application);
        let avro = app::registry(&config)?.map(|r| Arc::new(r) as _);
        let doors = Doors::of(&application, avro, config.effects.clock_error.0);
        console = console.taking(doors).of(Subject { application, config: config.clone(), warnings: declared.warnings });
    }
    let runtime = super::http_runtime()?;
    let stop = app::interrupted(runtime.handle(), app::SecondSignal::Exits)?;
    let (console, health) = (Arc::new(console), Arc::new(Health::default()));
    health.waiting("operations", "being read");
    let serve = AdminServer::start(&args.listen, prometheus::Registry::new(), health.clone(), None, router(console.clone()));
    let server = runtime.block_on(serve)?;
    eprintln!("the console of {id} is at http://{}/", server.address);
    while !stop.load(Ordering::Acquire) {
        let progress = console.kept().progress();
        match progress.problem.or_else(|| (!progress.whole).then(|| "being read".to_owned())) {
            Some(reason) => health.waiting("operations", reason),
            None => health.ready("operations"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(server);
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}
