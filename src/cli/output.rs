//! Printing: formats, errors with their exit code, logs.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::json;
use tracing_subscriber::EnvFilter;

use crate::config::yaml::Diagnostics;
use crate::error::Error;

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One JSON object with a `schema` field; lists print JSON Lines.
    Json,
}

/// Prints an error on stderr (and as JSON on stdout where asked for) and answers its exit code.
pub fn fail(error: &Error, format: Format) -> ExitCode {
    if format == Format::Json {
        let mut causes = Vec::new();
        let mut at = std::error::Error::source(error);
        while let Some(e) = at {
            causes.push(e.to_string());
            at = e.source();
        }
        let object = json!({
            "schema": "readback.error/1", "code": error.code.to_string(), "doing": error.doing, "causes": causes, "next": error.next,
        });
        println!("{object}");
    }
    let diagnostics = error.source.as_deref().and_then(|e| e.downcast_ref::<Diagnostics>());
    if let Some(d) = diagnostics {
        // All of them, each at its place; the summary names the first one's page.
        eprintln!("{}", d.render(std::io::stderr().is_terminal()));
        return ExitCode::from(error.fault.exit_code());
    }
    eprintln!("{error}");
    if format == Format::Table {
        eprintln!("`readback explain {}` tells more.", error.code);
    }
    ExitCode::from(error.fault.exit_code())
}

/// Logs go to stderr; a directive that can't be read falls back to `warn` and says so.
pub fn init_logs(directives: &str, as_json: bool) {
    let (filter, wrong) = match EnvFilter::try_new(directives) {
        Ok(f) => (f, None),
        Err(e) => (EnvFilter::new("warn"), Some(e)),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = if as_json { builder.json().try_init() } else { builder.try_init() };
    if let Err(e) = set {
        eprintln!("logs were set up before: {e}");
    }
    if let Some(e) = wrong {
        tracing::warn!(error = %e, directives, "the log directives can't be read; logging at `warn`");
    }
}
