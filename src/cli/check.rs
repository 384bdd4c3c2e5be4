//! `readback check T`: what is promised on every edge, by what, and what is not; with `--live`, whether the cluster lets it.

mod html;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::app::check::{self, Finding, Report, Rests};
use crate::error::{Error, Fault, Result, codes};
use crate::kafka::Cluster;
use crate::runtime::error_of;

use super::output::{Tone, toned};
use super::{Connection, Format, load};

/// Widest line of a reason before it is broken.
const WIDTH: usize = 72;

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
        check::against(&mut report, &declared.application, &config, admin.as_ref(), registry.as_ref())?;
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
        Format::Table => print!("{}{}", table(&report), if args.permissions { permissions(&report) } else { String::new() }),
        Format::Json => println!("{}", report.json()),
    }
    Ok(match report.contradictions.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Fault::Configuration.exit_code()),
    })
}

/// The report for people: columns aligned, long reasons broken.
fn table(report: &Report) -> String {
    let mut head = vec![report.application.clone(), format!("version {}", report.version)];
    head.extend(report.cluster.iter().cloned());
    let mut text = head.join(" · ") + "\n\n";
    let mut rows = vec![["edge".to_owned(), "promise".to_owned(), "because".to_owned()]];
    for edge in &report.edges {
        for (i, p) in edge.promises.iter().enumerate() {
            for (j, line) in wrapped(&p.because).into_iter().enumerate() {
                let shown = |show: bool, text: &str| if show { text.to_owned() } else { String::new() };
                rows.push([shown(i == 0 && j == 0, &edge.edge), shown(j == 0, &p.promise), line]);
            }
        }
    }
    text += &aligned(&rows);
    if !report.assumptions.is_empty() {
        text += "\n you assume\n";
        let numbered = report.assumptions.iter().enumerate();
        text += &aligned(&numbered.map(|(i, a)| [format!(" A{}", i + 1), a.text.clone(), a.at.clone()]).collect::<Vec<_>>());
    }
    text += &rests(report);
    text += &findings("contradictions", Tone::Bad, &report.contradictions);
    text += &findings("warnings", Tone::Weak, &report.warnings);
    text + "\n not promised: " + &report.not_promised.join("; ") + "\n"
}

/// What each edge rests on and where it ends; edges with the same are told together.
fn rests(report: &Report) -> String {
    let mut groups: Vec<(Vec<&str>, &Rests)> = Vec::new();
    for edge in &report.edges {
        match groups.iter_mut().find(|(_, rests)| *rests == &edge.rests) {
            Some((edges, _)) => edges.push(&edge.edge),
            None => groups.push((vec![&edge.edge], &edge.rests)),
        }
    }
    let mut text = "\n what each edge rests on, and where it ends\n".to_owned();
    for (edges, rests) in groups {
        for line in wrapped(&edges.join(" · ")) {
            text += &format!("  {line}\n");
        }
        let mut last = "";
        let assumed: Vec<String> = rests.assumes.iter().map(|n| format!("A{n}")).collect();
        let mut row = |what: &'static str, line: &str| {
            for line in wrapped(line) {
                text += &format!("    {:<10} {line}\n", if last == what { "" } else { what });
                last = what;
            }
        };
        rests.settings.iter().for_each(|t| row("rests on", t));
        if !assumed.is_empty() {
            row("assumes", &assumed.join(" "));
        }
        rests.broken_by.iter().for_each(|t| row("broken by", t));
        rests.not_promised.iter().for_each(|t| row("not", t));
    }
    text
}

/// What to allow, by who needs it.
fn permissions(report: &Report) -> String {
    let mut text = "\n permissions: kafka-acls.sh --bootstrap-server … --add --allow-principal User:… and\n".to_owned();
    let mut last = "";
    for p in &report.permissions {
        if p.who != last {
            text += &format!("  {}\n", p.who);
            last = p.who;
        }
        text += &format!("    {}\n", p.flags());
    }
    text
}

fn findings(title: &str, tone: Tone, all: &[Finding]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!("\n {title}\n");
    for f in all {
        text += &format!("  {}  {}\n", toned(&f.code, tone), f.text);
        for line in wrapped(&f.topics.join(", ")).iter().filter(|l| !l.is_empty()) {
            text += &format!("          {line}\n");
        }
        if !f.hint.is_empty() {
            text += &format!("          {}\n", f.hint);
        }
    }
    text
}

/// Three columns, the first two as wide as their widest cell.
fn aligned(rows: &[[String; 3]]) -> String {
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    let line = |r: &[String; 3]| {
        let line = format!(" {:<first$}  {:<second$}  {}", r[0], r[1], r[2]);
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + word.chars().count() >= WIDTH {
            lines.push(word.to_owned());
        } else {
            let space = if lines[last].is_empty() { "" } else { " " };
            lines[last] = format!("{}{space}{word}", lines[last]);
        }
    }
    lines
}
