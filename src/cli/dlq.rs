//! `readback dlq`: dead letters, why they died, and their way back. Reads committed records; a replay writes the record and its mark
//! in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::admin::dead_letters::{Back, DeadLetters, Letter, Place};
use crate::admin::payload;
use crate::admin::replay::{Known, ReplayOrder, Replayed, Replayer};
use crate::admin::views::Operations;
use crate::driver::Output;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, TopicName};
use crate::kafka::Cluster;
use crate::runtime::error_of;
use crate::time::{Clock, SystemClock, WallTime, show_duration};

use super::ops::{span, the_app};
use super::{Connection, Format, load};

/// Most characters of a header that are shown.
const HEADER: usize = 200;

/// Look at dead letters, and send them back.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback dlq list --topology topology/orders                 what rests, the oldest first
  readback dlq list --topic orders.dead --code RB0701 --older-than 1h
  readback dlq show orders.dead-2-17                           why it died, its headers, the shape of its payload
  readback dlq replay orders.dead-2-17 --reason \"the step's mapping is fixed\"
  readback dlq replay --topic orders.dead --code RB0502 --all --reason \"the schema is registered now\"
A letter goes back once: the record and the mark that says so are one transaction, and a second order is refused (RB0721).
Exit codes: 0 done · 1 some stayed · 2 usage · 3 unreachable · 5 somebody else replays at this moment")]
pub struct DlqArgs {
    #[command(flatten)]
    connection: Connection,
    /// The application; may be left out where the cluster has one only.
    #[arg(long, env = "READBACK_APP", global = true)]
    app: Option<String>,
    /// The topology whose dead letters are meant.
    #[arg(long, global = true)]
    topology: Option<PathBuf>,
    /// The topic of the dead letters, where no topology is given.
    #[arg(long, global = true)]
    topic: Option<String>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List dead letters, the oldest first.
    List {
        #[command(flatten)]
        filter: Filter,
        /// Those that were replayed, too.
        #[arg(long)]
        replayed: bool,
        /// At most so many.
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// Go on after this one.
        #[arg(long, value_parser = place)]
        after: Option<Place>,
    },
    /// Show one: why it died, its headers, and the shape of its payload.
    Show {
        /// Where it lies: `topic-partition-offset`.
        #[arg(value_parser = place)]
        letter: Place,
        /// Print the payload itself, too.
        #[arg(long)]
        payload: bool,
    },
    /// Send dead letters back, each once.
    #[command(
        after_help = "A request that admission refused goes to admission again, under its own operation ID: there it is checked as any \
other, and needs its own plan and approval. If that operation has ended, and did not happen, it becomes a new one, `<id>.r<k>`. Any other record goes back to where it came from, with its key, headers and time, and all \
steps that read there see it again. Intents do not go back: they would pass by admission."
    )]
    Replay {
        /// Which: `topic-partition-offset`.
        #[arg(value_parser = place, required_unless_present = "all")]
        letters: Vec<Place>,
        /// All that rest and match the filters, of which there must be one.
        #[arg(long, conflicts_with = "letters")]
        all: bool,
        #[command(flatten)]
        filter: Filter,
        /// Why; kept beside the letter.
        #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
        reason: String,
        /// Who decides.
        #[arg(long, env = "USER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        by: String,
        /// A new deadline for requests, from now; without it they keep their own.
        #[arg(long, value_parser = span)]
        deadline: Option<Duration>,
        /// Only say what would go where.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which letters.
#[derive(Debug, Args)]
struct Filter {
    /// Only with this code: `RB0701`.
    #[arg(long)]
    code: Option<String>,
    /// Only of this effect step.
    #[arg(long)]
    step: Option<String>,
    /// Only from this topic.
    #[arg(long)]
    from: Option<String>,
    /// Only those that rest for longer.
    #[arg(long, value_parser = span)]
    older_than: Option<Duration>,
    /// Only those that rest for less.
    #[arg(long, value_parser = span)]
    newer_than: Option<Duration>,
}

impl Filter {
    fn takes(&self, letter: &Letter, now: WallTime) -> bool {
        let age = now.since(letter.since());
        self.code.as_deref().is_none_or(|c| letter.code.eq_ignore_ascii_case(c))
            && self.step.as_deref().is_none_or(|s| letter.step.as_ref().is_some_and(|step| step.as_str() == s))
            && self.from.as_deref().is_none_or(|t| Place::parse(&letter.origin).is_some_and(|o| o.tp.topic.as_str() == t))
            && self.older_than.is_none_or(|d| age > d)
            && self.newer_than.is_none_or(|d| age < d)
    }
    fn is_empty(&self) -> bool {
        self.code.is_none() && self.step.is_none() && self.from.is_none() && self.older_than.is_none() && self.newer_than.is_none()
    }
}

fn place(text: &str) -> std::result::Result<Place, String> {
    Place::parse(text)
        .ok_or_else(|| format!("`{text}` is no place of a letter; write topic-partition-offset, as `dlq list` prints it"))
}

impl DlqArgs {
    /// Where the cluster is.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The topic that is meant, and the application where the topology names it.
    fn meant(&self) -> Result<(TopicName, Option<ApplicationId>)> {
        let usage = |what: &str, next: &str| Err(Error::new(codes::USAGE, Fault::Configuration, what).next(next));
        match (&self.topic, &self.topology) {
            (Some(topic), _) => Ok((TopicName::new(topic), None)),
            (None, Some(topology)) => {
                let application = load::offline(topology)?.application;
                match application.dead_letters {
                    Some(topic) => Ok((topic, Some(application.id))),
                    None => usage("looking for the dead letters: the topology names no `dead_letters`", "name a topic there"),
                }
            }
            (None, None) => usage("looking for the dead letters: no topic is named", "give --topic or --topology"),
        }
    }
}

/// Runs `readback dlq …` over any cluster.
///
/// # Errors
/// What the cluster says; usage.
pub fn run<C: Cluster>(args: &DlqArgs, cluster: &C, format: Format) -> Result<ExitCode> {
    let now = SystemClock.now().wall;
    match &args.what {
        What::List { filter, replayed, limit, after } => {
            let letters = DeadLetters::read(cluster, &args.meant()?.0)?;
            list(&letters, filter, *replayed, *limit, after.as_ref(), now, format);
            Ok(ExitCode::SUCCESS)
        }
        What::Show { letter, payload } => {
            let letters = DeadLetters::read_some(cluster, &letter.tp.topic, &|place| place == letter)?;
            let found = letters.letters.get(letter).ok_or_else(|| {
                Error::new(
                    codes::REPLAY_REFUSED,
                    Fault::Verdict,
                    format!("looking for {letter}: no dead letter lies there (any more)"),
                )
                .next("`readback dlq list` shows what rests")
            })?;
            show(found, *payload, now, format);
            Ok(ExitCode::SUCCESS)
        }
        What::Replay { letters, filter, reason, by, deadline, dry_run, .. } => {
            let order = ReplayOrder { by: by.clone(), reason: reason.clone(), at: now, deadline: deadline.map(|d| now.plus(d)) };
            replay(args, cluster, letters, filter, &order, *dry_run, format)
        }
    }
}

fn list(there: &DeadLetters, filter: &Filter, replayed: bool, limit: usize, after: Option<&Place>, now: WallTime, format: Format) {
    let mut rows: Vec<&Letter> =
        there.letters.values().filter(|l| (replayed || l.replayed.is_none()) && filter.takes(l, now)).collect();
    rows.sort_by_key(|l| (l.since(), l.place.clone()));
    let from = after.and_then(|a| there.letters.get(a)).map_or(0, |last| behind(&rows, last));
    let total = rows.len();
    let shown: Vec<&Letter> = rows.into_iter().skip(from).take(limit).collect();
    if format == Format::Table {
        println!("{:<32} {:<7} {:<16} {:<24} {:>10}  why", "letter", "code", "step", "operation", "rests for");
    }
    for letter in &shown {
        match format {
            Format::Json => println!("{}", head(letter)),
            Format::Table => println!(
                "{:<32} {:<7} {:<16} {:<24} {:>10}  {}{}",
                letter.place.to_string(),
                letter.code,
                letter.step.as_ref().map_or("-", |s| s.as_str()),
                letter.operation.as_ref().map_or("-", |o| o.as_str()),
                show_duration(now.since(letter.since())),
                if letter.replayed.is_some() { "replayed · " } else { "" },
                letter.reason,
            ),
        }
    }
    if let Some(last) = shown.last().filter(|_| from + shown.len() < total) {
        eprintln!("{} of {total} shown; --after {} shows more", shown.len(), last.place);
    }
}

/// Where a list goes on behind `last`, which may have been replayed since it was printed and be no row any more.
fn behind(rows: &[&Letter], last: &Letter) -> usize {
    rows.partition_point(|l| (l.since(), &l.place) <= (last.since(), &last.place))
}

/// A letter without headers and payload.
fn head(letter: &Letter) -> Value {
    let back = match letter.back() {
        Back::Request(_) => json!({ "to": "admission" }),
        Back::Record(tp) => json!({ "to": tp.topic, "partition": tp.partition }),
        Back::Nowhere(why) => json!({ "to": null, "why": why }),
    };
    json!({
        "schema": "readback.dead-letter/1", "letter": letter.place.to_string(), "code": letter.code, "reason": letter.reason,
        "step": letter.step, "operation": letter.operation, "origin": letter.origin, "since": letter.since(), "replayed": letter.replayed,
        "back": back,
    })
}

fn show(letter: &Letter, whole: bool, now: WallTime, format: Format) {
    let r = &letter.record;
    let value = Output { key: r.key.clone(), value: r.value.clone(), headers: r.headers.clone(), timestamp: r.timestamp }.json();
    let shown = if whole { value } else { payload::shape(&value) };
    let names: BTreeMap<&str, Option<String>> =
        r.headers.0.iter().map(|h| (&*h.name, h.value.as_ref().map(|v| header(v)))).collect();
    let key = r.key.as_ref().map(|k| header(k));
    let bytes = r.value.as_ref().map_or(0, |v| v.len());
    if format == Format::Json {
        let mut all = head(letter);
        if let Value::Object(members) = &mut all {
            members.insert("key".into(), json!(key));
            members.insert("headers".into(), json!(names));
            members.insert("timestamp".into(), json!(letter.time()));
            members.insert("bytes".into(), json!(bytes));
            members.insert(if whole { "payload" } else { "payload_shape" }.into(), shown);
        }
        return println!("{all}");
    }
    println!("{} · {} · rests for {}", letter.place, letter.code, show_duration(now.since(letter.since())));
    println!("{}   from {}", letter.reason, letter.origin);
    if let Some(step) = &letter.step {
        println!("step {step}, operation {}", letter.operation.as_ref().map_or("-", |o| o.as_str()));
    }
    match &letter.replayed {
        Some(m) => println!("replayed at {} to {} by {}: {}", m.at, m.to, m.by, m.reason),
        None => match letter.back() {
            Back::Request(_) => println!("goes back to admission: readback dlq replay {} --reason …", letter.place),
            Back::Record(tp) => println!("goes back to {tp}: readback dlq replay {} --reason …", letter.place),
            Back::Nowhere(why) => println!("does not go back: {why}"),
        },
    }
    println!("\nkey      {}", key.as_deref().unwrap_or("null"));
    println!("time     {}", letter.time().map_or_else(|| "none".into(), |t| t.to_string()));
    for (name, value) in names {
        println!("header   {name}: {}", value.as_deref().unwrap_or("null"));
    }
    let pretty = serde_json::to_string_pretty(&shown).unwrap_or_default();
    println!(
        "\n{} of {bytes} bytes{}\n{pretty}",
        if whole { "payload" } else { "shape" },
        if whole { "" } else { " (--payload prints it)" }
    );
}

fn header(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let cut: String = text.chars().take(HEADER).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}

fn replay<C: Cluster>(
    args: &DlqArgs,
    cluster: &C,
    letters: &[Place],
    filter: &Filter,
    order: &ReplayOrder,
    dry: bool,
    format: Format,
) -> Result<ExitCode> {
    if letters.is_empty() && filter.is_empty() {
        return Err(Error::new(codes::USAGE, Fault::Configuration, "replaying all dead letters: no filter is given")
            .next("name what was repaired: --code, --step, --from, --older-than or --newer-than"));
    }
    if !letters.is_empty() && !filter.is_empty() {
        return Err(Error::new(codes::USAGE, Fault::Configuration, "replaying named letters: a filter is given, too")
            .next("name letters, or give --all with filters"));
    }
    let (topics, named) = match letters {
        [] => args.meant().map(|(topic, app)| (BTreeSet::from([topic]), app))?,
        some => (
            some.iter().map(|p| p.tp.topic.clone()).collect(),
            args.topology.as_ref().map(|_| args.meant()).transpose()?.and_then(|m| m.1),
        ),
    };
    let app = match (args.app.as_deref(), named) {
        (None, Some(app)) => app,
        (given, _) => the_app(given, cluster)?,
    };
    let seen = match Operations::open(cluster, &app) {
        Ok(mut operations) => super::progress::catch_up(&mut operations).map(|()| operations.seen)?,
        // An application without effects has no operations.
        Err(e) if e.code == codes::TOPIC_MISSING => BTreeMap::new(),
        Err(e) => return Err(e),
    };
    let admin = cluster.admin().map_err(error_of)?;
    let counts: BTreeMap<TopicName, u32> = admin.topics().map_err(error_of)?.into_iter().map(|t| (t.name, t.partitions)).collect();
    let known = Known { operations: &seen, partitions: &|topic| counts.get(topic).copied() };
    let mut stayed = 0;
    for topic in topics {
        let picked = picked(cluster, &topic, letters, filter, order.at)?;
        let done = match dry {
            true => would(&app, cluster, &topic, &picked, &known, order)?,
            false => Replayer::open(cluster, &app)?.replay(&topic, &picked, &known, order)?,
        };
        stayed += done.iter().filter(|d| d.outcome.is_err()).count();
        done.iter().for_each(|d| told(d, dry, format));
    }
    Ok(if stayed == 0 { ExitCode::SUCCESS } else { ExitCode::from(Fault::Verdict.exit_code()) })
}

fn picked<C: Cluster>(cluster: &C, topic: &TopicName, letters: &[Place], filter: &Filter, now: WallTime) -> Result<Vec<Place>> {
    if letters.is_empty() {
        let there = DeadLetters::read(cluster, topic)?;
        return Ok(there.resting().filter(|l| filter.takes(l, now)).map(|l| l.place.clone()).collect());
    }
    let once: BTreeSet<&Place> = letters.iter().filter(|p| p.tp.topic == *topic).collect();
    Ok(once.into_iter().cloned().collect())
}

/// What a replay would do, without being the one who may.
fn would<C: Cluster>(
    app: &ApplicationId,
    cluster: &C,
    topic: &TopicName,
    picked: &[Place],
    known: &Known<'_>,
    order: &ReplayOrder,
) -> Result<Vec<Replayed>> {
    let there = DeadLetters::read(cluster, topic)?;
    picked.iter().map(|place| crate::admin::replay::outcome(app, &there, place, known, order)).collect()
}

fn told(done: &Replayed, dry: bool, format: Format) {
    let verb = if dry { "would go" } else { "went" };
    match (&done.outcome, format) {
        (Ok(to), Format::Table) => println!("{} {verb} to {to}", done.place),
        (Err(no), Format::Table) => println!("{} stays: {} {}", done.place, no.code, no.words),
        (Ok(to), Format::Json) => {
            println!("{}", json!({ "schema": "readback.replay/1", "letter": done.place.to_string(), "to": to, "dry_run": dry }))
        }
        (Err(no), Format::Json) => println!(
            "{}",
            json!({ "schema": "readback.replay/1", "letter": done.place.to_string(), "code": no.code.to_string(), "detail": no.words, "dry_run": dry })
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::intents::headers;
    use crate::kafka::NewTopic;
    use crate::kafka::memory::MemoryCluster;
    use crate::record::{Headers, OutRecord};

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        dlq: DlqArgs,
    }

    /// If this broke, letters would go back that the filter beside them was meant to hold back.
    #[test]
    fn a_filter_beside_named_letters_is_refused() {
        let cluster = MemoryCluster::new(Arc::new(SystemClock));
        let words =
            ["dlq", "--app", "orders", "replay", "orders.dead-0-1", "--code", "RB0501", "--reason", "mended", "--by", "mira"];
        let line = <Line as clap::Parser>::try_parse_from(words).expect("parses");
        let e = run(&line.dlq, &cluster, Format::Table).expect_err("refused");
        assert_eq!(e.code, codes::USAGE, "{e}");
        assert!(<Line as clap::Parser>::try_parse_from(words.map(|w| if w == "mended" { "" } else { w })).is_err(), "no reason");
    }

    /// If this broke, a list that goes on behind a letter which was replayed meanwhile would begin anew, for ever; or a list would
    /// hold every payload of its topic.
    #[test]
    fn a_list_goes_on_behind_a_letter_that_is_gone_from_it() {
        let cluster = MemoryCluster::new(Arc::new(SystemClock));
        let topic = TopicName::new("orders.dead");
        let new = NewTopic { name: topic.clone(), partitions: 1, replication: 1, config: BTreeMap::new() };
        cluster.admin().and_then(|a| a.create(&[new])).expect("made");
        let put = |names: Headers, at: i64, value: &[u8]| {
            let timestamp = Some(WallTime(at));
            let record =
                OutRecord { topic: &topic, partition: None, timestamp, key: None, value: Some(value), headers: Some(&names) };
            cluster.publish(&[record], Duration::from_secs(1)).expect("published");
        };
        for at in 1..=4 {
            put(Headers::new().with(headers::DEAD_CODE, "RB0501"), at, b"payload");
        }
        put(
            Headers::new().with(headers::REPLAYED, "1"),
            5,
            br#"{"schema":"readback.replayed/1","letter":"orders.dead/0/1","by":"mira","reason":"mended","at":5,"to":"orders"}"#,
        );
        let there = DeadLetters::read(&cluster, &topic).expect("reads");
        let rows: Vec<&Letter> = there.resting().collect();
        let offsets = |rows: &[&Letter]| rows.iter().map(|l| l.place.offset.0).collect::<Vec<_>>();
        let last = there.letters.values().find(|l| l.replayed.is_some()).expect("replayed");
        assert_eq!((offsets(&rows), offsets(&rows[behind(&rows, last)..])), (vec![0, 2, 3], vec![2, 3]));
        let heads = DeadLetters::heads(&cluster, &topic, &|l| l.place.offset.0).expect("reads");
        assert_eq!(heads.into_values().collect::<Vec<_>>(), [0, 2, 3]);
        let one = DeadLetters::read_some(&cluster, &topic, &|p| p.offset.0 < 2).expect("reads");
        let found: Vec<_> = one.letters.values().map(|l| (l.place.offset.0, l.replayed.is_some())).collect();
        assert_eq!(found, [(0, false), (1, true)]);
    }
}
