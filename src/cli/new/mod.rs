//! `readback new DIR`: a topology folder that passes `check` and `test` as written, from a ready contract or an existing topic.

mod avro;
mod fields;
mod files;
mod ready;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::config::yaml;
use crate::driver::recorded;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::TopicName;
use crate::kafka::Cluster;
use crate::runtime::error_of;

use self::avro::Field;
use self::fields::{Given, Mapping};
use self::files::Made;
use self::ready::Ready;
use super::{Connection, Format, load};

/// Write a topology: topology.yaml, its contract and policy, recorded input and what comes of it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback new --list                                         the ready contracts, and what becomes of a lost answer
  readback new mails --contract resend                        reads a topic of its own, mails.requests, as JSON
  readback new notices --contract plain-webhook --topic logistics.shipments.v2 --brokers localhost:9092 \\
           --registry http://localhost:8081                   reads a topic that exists, by the Avro schema of its values
What is written passes `readback check DIR` and `readback test DIR` as it is. Nothing is sent and no topic is made.
Exit codes: 0 written · 2 the directory is not empty, or the topic's schema does not do · 3 unreachable")]
pub struct NewArgs {
    #[command(flatten)]
    connection: Connection,
    /// Where to write it; must be new or empty.
    #[arg(required_unless_present = "list")]
    directory: Option<PathBuf>,
    /// The ready contract; `--list` shows them.
    #[arg(long, required_unless_present = "list")]
    contract: Option<String>,
    /// A topic that exists, with an Avro schema in the registry; without it one is named after the application.
    #[arg(long)]
    topic: Option<String>,
    /// The application's name; default: the directory's.
    #[arg(long)]
    name: Option<String>,
    /// With --topic: what names an intent, in CEL; default: a field that looks like an ID, else the key.
    #[arg(long, requires = "topic", value_name = "CEL")]
    id: Option<String>,
    /// With --topic: when a request is too late, in CEL; default: ten minutes after a field that looks like a time.
    #[arg(long, requires = "topic", value_name = "CEL")]
    deadline: Option<String>,
    /// List the ready contracts.
    #[arg(long)]
    list: bool,
}

/// Where records come from.
struct Source {
    topic: String,
    formats: (&'static str, &'static str),
    key: Option<serde_json::Map<String, serde_json::Value>>,
    mapping: Mapping,
}

/// Writes it, runs its recorded input and keeps what comes of it.
pub fn run(args: &NewArgs, format: Format) -> Result<ExitCode> {
    let (Some(dir), Some(contract), false) = (&args.directory, &args.contract, args.list) else {
        list(format);
        return Ok(ExitCode::SUCCESS);
    };
    let ready = chosen(contract)?;
    must_be_empty(dir)?;
    let app = application(args.name.as_deref(), dir)?;
    let source = match &args.topic {
        None => own(&app, ready),
        Some(topic) => existing(args, topic, ready)?,
    };
    let written = write(dir, &app, ready, &source)?;
    told(dir, &app, ready, &written, format);
    Ok(ExitCode::SUCCESS)
}

fn list(format: Format) {
    for r in ready::ALL {
        match format {
            Format::Table => println!("{:<16} {:<9} {}; a lost answer {}", r.name, r.call, r.about, r.lost),
            Format::Json => println!(
                "{}",
                json!({
                    "schema": "readback.ready/1", "contract": r.name, "call": r.call, "about": r.about, "lost_answer": r.lost,
                    "environment": r.variables(),
                })
            ),
        }
    }
}

fn usage(doing: impl Into<String>) -> Error {
    Error::new(codes::USAGE, Fault::Configuration, doing)
}

fn chosen(name: &str) -> Result<&'static Ready> {
    ready::find(name).ok_or_else(|| {
        let near = yaml::nearest(name, ready::ALL.iter().map(|r| r.name));
        let hint = near.map(|n| format!("did you mean {n}? ")).unwrap_or_default();
        usage(format!("looking for the ready contract {name}: there is none"))
            .next(format!("{hint}`readback new --list` shows all"))
    })
}

fn must_be_empty(dir: &Path) -> Result<()> {
    let doing = || usage(format!("writing a topology to {}", dir.display()));
    match std::fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(doing().because("the directory is not empty").next("name a new one; nothing was written")),
            None => Ok(()),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(doing().because(e)),
    }
}

/// The name of the application: letters, digits, `-`, `_` and `.`, as topics and groups take it.
fn application(given: Option<&str>, dir: &Path) -> Result<String> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => {
            let last = dir.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
            last.chars().map(|c| if taken(c) { c } else { '-' }).collect()
        }
    };
    well_named(&name).map_err(|e| e.next("give one with --name"))?;
    Ok(name)
}

fn taken(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// Whether topics and groups can be named after it.
pub(super) fn well_named(name: &str) -> Result<()> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.len() <= 200 && name.chars().all(taken) {
        return Ok(());
    }
    Err(usage(format!("naming the application `{name}`"))
        .because("a name begins with a letter or digit; topics and groups take letters, digits, `-`, `_` and `.`"))
}

fn own(app: &str, ready: &Ready) -> Source {
    Source { topic: format!("{app}.requests"), formats: ("string", "json"), key: None, mapping: Mapping::own(ready) }
}

/// A topic as cluster and registry have it.
fn existing(args: &NewArgs, topic: &str, ready: &Ready) -> Result<Source> {
    let config = args.connection.load()?;
    let registry = crate::app::registry(&config)?.ok_or_else(|| {
        usage(format!("reading the schema of {topic}")).because("no registry is named").next("give --registry, or set registry.url")
    })?;
    let cluster = crate::kafka::RdCluster::new(crate::app::kafka_config(&config))?;
    let admin = cluster.admin().map_err(error_of)?;
    if admin.topic(&TopicName::new(topic)).map_err(error_of)?.is_none() {
        let doing = format!("looking for topic {topic} on {}", config.brokers);
        return Err(Error::new(codes::TOPIC_MISSING, Fault::Configuration, doing).next("check its name, or leave --topic out"));
    }
    let read = |subject: String| -> Result<Vec<Field>> {
        let doing = format!("reading the schema of {topic} ({subject})");
        let text = registry.newest_under(&subject)?;
        avro::fields(&text).map_err(|why| Error::new(codes::SCHEMA_INCOMPATIBLE, Fault::Configuration, doing).because(why))
    };
    let values = read(format!("{topic}-value")).map_err(|e| match e.code {
        codes::SCHEMA_MISSING => Error { fault: Fault::Configuration, ..e }
            .next("register the schema of its values, or leave --topic out and write the source by hand"),
        _ => e,
    })?;
    let key = match read(format!("{topic}-key")) {
        Ok(fields) => Some(fields.into_iter().map(|f| (f.name, f.sample)).collect()),
        Err(e) if e.code == codes::SCHEMA_MISSING || e.code == codes::SCHEMA_INCOMPATIBLE => None,
        Err(e) => return Err(e),
    };
    let given = Given { id: args.id.clone(), deadline: args.deadline.clone() };
    let mapping = Mapping::of_schema(ready, topic, &values, &given).map_err(|fields| {
        usage(format!("finding out when a request of {topic} is too late"))
            .because(format!("no field of its values looks like a time: {fields}"))
            .next("give --deadline, such as 'timestamp(value.made) + duration(\"1h\")'")
    })?;
    Ok(Source { topic: topic.to_owned(), formats: (if key.is_some() { "avro" } else { "string" }, "avro"), key, mapping })
}

/// What was written.
struct Written {
    files: Vec<String>,
    /// The policy among them, and what it says.
    policy: (String, String),
    /// How many records come of the input.
    records: usize,
}

/// Writes the files, plays the input and writes what comes of it.
fn write(dir: &Path, app: &str, ready: &Ready, source: &Source) -> Result<Written> {
    let made =
        Made { app, ready, mapping: &source.mapping, topic: &source.topic, formats: source.formats, key: source.key.as_ref() };
    let mut names = Vec::new();
    for (name, text) in made.files() {
        let path = dir.join(&name);
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, text));
        written.map_err(|e| {
            Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("writing {}", path.display()))
                .because(e)
                .next("name a directory that can be written")
        })?;
        names.push(name);
    }
    let application = load::offline(dir)?.application;
    let done = recorded::run(&application, dir, true)?;
    names.push("expected.jsonl".to_owned());
    Ok(Written { files: names, policy: (made.policy_file(), made.policy_says()), records: done.records })
}

fn told(dir: &Path, app: &str, ready: &Ready, written: &Written, format: Format) {
    let Written { files, policy: (policy, says), records } = written;
    let shown = dir.display();
    let next = [format!("readback check {shown}"), format!("readback test {shown}"), format!("readback run {shown}")];
    match format {
        Format::Json => println!(
            "{}",
            json!({
                "schema": "readback.new/1", "application": app, "directory": dir, "files": files, "records": records,
                "policy": policy, "policy_says": says,
                "environment": ready.variables(), "next": next,
            })
        ),
        Format::Table => {
            println!("wrote {app} to {shown}: {}", files.join(", "));
            println!("\n policy, asked when an intent is written and again before every send");
            println!("   {policy}   {says}");
            println!("\n next");
            println!("   {}   what is promised, and what you assume", next[0]);
            println!("   {}    {records} records come of input.jsonl; after a change `--update` writes them anew", next[1]);
            println!("   {}     with {} set", next[2], ready.variables().join(" and "));
        }
    }
}

#[cfg(test)]
mod tests;
