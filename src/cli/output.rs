//! Printing: formats, errors with their exit code, logs.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use clap::builder::styling::AnsiColor;
use serde_json::json;
use tracing_subscriber::EnvFilter;

use crate::config::yaml::Diagnostics;
use crate::error::{Error, Fault, Result, codes};

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
        eprintln!("{}", d.render(coloured(std::io::stderr().is_terminal())));
        return ExitCode::from(error.fault.exit_code());
    }
    eprintln!("{error}");
    if format == Format::Table {
        eprintln!("`readback explain {}` tells more.", error.code);
    }
    ExitCode::from(error.fault.exit_code())
}

/// Whether a stream may be coloured: a terminal that does not say no (`NO_COLOR`, `TERM=dumb`).
fn coloured(terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// What a word means to whoever looks for what is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    /// Somebody must see to it.
    Bad,
    /// It may need somebody.
    Weak,
    /// It is well.
    Good,
    /// As any other.
    Plain,
}

/// The tone of an operation's status.
pub(super) fn tone_of(status: &str) -> Tone {
    match status {
        "parked" => Tone::Bad,
        "unknown" | "awaiting_approval" | "throttled" => Tone::Weak,
        "confirmed" | "resolved_applied" => Tone::Good,
        _ => Tone::Plain,
    }
}

/// A text for stdout in its tone; as it is where stdout takes no colour.
pub(super) fn toned(text: &str, tone: Tone) -> String {
    let color = match tone {
        _ if !coloured(std::io::stdout().is_terminal()) => None,
        Tone::Bad => Some(AnsiColor::Red),
        Tone::Weak => Some(AnsiColor::Yellow),
        Tone::Good => Some(AnsiColor::Green),
        Tone::Plain => None,
    };
    color.map_or(text.to_owned(), |color| {
        let style = color.on_default();
        format!("{}{text}{}", style.render(), style.render_reset())
    })
}

/// Prints a part of the result; that nobody reads it any more is no error.
pub(super) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Logs go to stderr, coloured where people see it and `NO_COLOR` is not set. Fails for directives that can't be read.
pub fn init_logs(directives: &str, as_json: bool) -> Result<()> {
    let filter = EnvFilter::try_new(directives).map_err(|e| {
        Error::new(codes::USAGE, Fault::Configuration, format!("reading the log directives `{directives}` (--log, READBACK_LOG)"))
            .because(e.to_string())
            .next("write a level, or levels of modules: `info`, `warn,readback::effects=debug`")
    })?;
    let color = coloured(std::io::stderr().is_terminal());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(color).with_writer(std::io::stderr);
    let set = if as_json { builder.json().try_init() } else { builder.try_init() };
    set.map_err(|e| Error::new(codes::BUG, Fault::Bug, "setting up logs a second time").because(e))
}
