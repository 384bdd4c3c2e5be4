//! `readback ops resolve-all`: one verdict for the operations of an incident, each on the version that was seen.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::admin::evidence::{changed_at, why};
use crate::admin::orders::publish;
use crate::admin::views::{CommandAnswer, Operations, Seen};
use crate::console::act::Action;
use crate::console::audit::{Came, Entry};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, CommandId, OperationKey};
use crate::intents::{Command, Resolution, Via};
use crate::kafka::Cluster;
use crate::outbox::commands::{self, Order};
use crate::time::{WallTime, show_duration};

use super::progress::Progress;
use super::scribe::Scribe;
use super::{Format, ops};

/// How long the answers are waited for, all together.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which operations, and what happened to them.
#[derive(Debug, Args)]
pub(super) struct BulkArgs {
    /// Only this status: `parked` or `unknown`.
    #[arg(long, default_value = "parked", value_parser = ["parked", "unknown"])]
    status: String,
    /// Only with this code: `RB0235`.
    #[arg(long)]
    code: Option<String>,
    /// Only this call: `mail#send`.
    #[arg(long)]
    call: Option<String>,
    /// Only this tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// Only those that have stood so for longer.
    #[arg(long, value_parser = ops::span)]
    longer_than: Option<Duration>,
    /// Only those that have stood so for less.
    #[arg(long, value_parser = ops::span)]
    shorter_than: Option<Duration>,
    /// The effects exist.
    #[arg(long, conflicts_with = "not_applied", required_unless_present = "not_applied")]
    applied: bool,
    /// They do not.
    #[arg(long)]
    not_applied: bool,
    /// How many you saw; another number changes nothing.
    #[arg(long, required_unless_present = "dry_run")]
    expect: Option<usize>,
    /// Only list what would be resolved.
    #[arg(long)]
    dry_run: bool,
    /// Why; kept beside each decision, its first 500 characters.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,
    /// Who decides: recorded as given.
    #[arg(long, env = "USER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    by: String,
    /// The name of a second person, where one is needed (before settle): recorded as given, proved by nothing.
    #[arg(long)]
    second: Option<String>,
    /// What you looked at: a link or reference.
    #[arg(long)]
    evidence: Option<String>,
}

impl BulkArgs {
    fn takes(&self, key: &OperationKey, seen: &Seen, now: WallTime) -> bool {
        let Some(ledger) = &seen.ledger else { return false };
        let age = now.since(changed_at(seen));
        let call = format!("{}#{}", ledger.contract, ledger.call);
        seen.status().is_some_and(|s| s.word() == self.status)
            && self.code.as_ref().is_none_or(|c| why(seen).0.is_some_and(|own| own.eq_ignore_ascii_case(c)))
            && self.call.as_ref().is_none_or(|c| *c == call)
            && self.tenant.as_ref().is_none_or(|t| key.tenant.as_str() == t)
            && self.longer_than.is_none_or(|d| age > d)
            && self.shorter_than.is_none_or(|d| age < d)
    }

    fn is_open(&self) -> bool {
        let texts = [&self.code, &self.call, &self.tenant];
        texts.iter().all(|t| t.is_none()) && self.longer_than.is_none() && self.shorter_than.is_none()
    }

    fn resolution(&self) -> Resolution {
        if self.applied { Resolution::Applied } else { Resolution::NotApplied }
    }

    fn action(&self) -> Action {
        Action::Resolve(self.resolution())
    }

    /// Which filter has found them, as the audit topic has it.
    fn scope(&self) -> String {
        let age = |d: Option<Duration>| d.map(show_duration);
        let all = [
            ("status", Some(self.status.clone())),
            ("code", self.code.clone()),
            ("call", self.call.clone()),
            ("tenant", self.tenant.clone()),
            ("longer than", age(self.longer_than)),
            ("shorter than", age(self.shorter_than)),
        ];
        let named = all.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        crate::outbox::cut(&named.collect::<Vec<_>>().join(", "))
    }

    fn command(&self, key: &OperationKey, seen: i64, now: WallTime) -> Command {
        let order = Order {
            tenant: Some(key.tenant.clone()),
            operation_id: key.operation.clone(),
            step: Some(key.step.clone()),
            seen: Some(seen),
            by: self.by.clone(),
            second: self.second.clone(),
            via: Some(Via::CommandLine),
            reason: self.reason.clone(),
            evidence: self.evidence.clone(),
            at: now,
            hold: Duration::from_secs(3_600),
        };
        commands::resolve(order, self.resolution())
    }
}

/// Resolves all that match.
///
/// # Errors
/// Usage; `STALE_VERSION` where it is another number than was seen; what the cluster says.
pub(super) fn run<C: Cluster>(
    args: &BulkArgs,
    cluster: &C,
    app: &ApplicationId,
    operations: &mut Operations,
    now: WallTime,
    format: Format,
) -> Result<ExitCode> {
    let scribe = Scribe::new(cluster, app, &args.by, &args.reason);
    // What only looks is no action.
    let refused = |e: Error| match args.dry_run {
        true => Err(e),
        false => scribe.refused(Entry { scope: Some(args.scope()), ..scribe.entry(args.action().word()) }, e),
    };
    if args.is_open() {
        return refused(
            Error::new(codes::USAGE, Fault::Configuration, "resolving all operations: no filter is given")
                .next("name the incident's: --code, --call, --tenant, --longer-than or --shorter-than"),
        );
    }
    let found: Vec<(OperationKey, i64, Duration)> = operations
        .seen
        .iter()
        .filter(|(key, seen)| args.takes(key, seen, now))
        .map(|(key, seen)| (key.clone(), seen.version(), now.since(changed_at(seen))))
        .collect();
    if args.dry_run {
        found.iter().for_each(|(key, version, age)| would(key, *version, *age, format));
        eprintln!("{} would be resolved: --expect {}", found.len(), found.len());
        return Ok(ExitCode::SUCCESS);
    }
    if args.expect != Some(found.len()) {
        let doing = format!("resolving {} operations: there are {} now", args.expect.unwrap_or_default(), found.len());
        return refused(
            Error::new(codes::STALE_VERSION, Fault::Stale, doing).next("look again with --dry-run; nothing was changed"),
        );
    }
    let mut open: BTreeMap<CommandId, (OperationKey, Entry)> = BTreeMap::new();
    let mut progress = Progress::of("resolving");
    for (key, version, _) in &found {
        let command = args.command(key, *version, now);
        let entry = Entry { scope: Some(args.scope()), ..scribe.entry(args.action().word()).about(&command) };
        scribe.begin(&entry)?;
        if let Err(e) = publish(cluster, app, &command) {
            scribe.came(entry, Came::Unanswered, Some(e.code.to_string()), &e.to_string());
            return Err(e);
        }
        open.insert(command.command_id, (key.clone(), entry));
    }
    let stayed = answers(operations, &mut open, &mut progress, &scribe, format)?;
    drop(progress);
    for (id, (key, entry)) in open.iter() {
        scribe.came(entry.clone(), Came::Unanswered, None, "");
        eprintln!("{} is not answered yet; command {id} stays in the topic and is answered once a member runs", key.operation);
    }
    Ok(match (open.is_empty(), stayed) {
        (false, _) => ExitCode::from(Fault::Unreachable.exit_code()),
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::from(Fault::Verdict.exit_code()),
    })
}

/// Waits for the answers, tells each and writes it down; how many were refused. Those that stay open are not answered.
fn answers<C: Cluster>(
    operations: &mut Operations,
    open: &mut BTreeMap<CommandId, (OperationKey, Entry)>,
    progress: &mut Progress,
    scribe: &Scribe<C>,
    format: Format,
) -> Result<usize> {
    let (mut refused, all) = (0, open.len());
    let until = Instant::now() + PATIENCE;
    while !open.is_empty() && Instant::now() < until {
        let Some(id) = open.keys().next().cloned() else { break };
        let left = until.saturating_duration_since(Instant::now());
        let Some(answer) = operations.answer(&id, left)? else { break };
        progress.at((all - open.len()) as u64, all as u64);
        if let Some((key, entry)) = open.remove(&id) {
            refused += usize::from(answer.code.is_some());
            scribe.came(entry, Came::Answered, answer.code.clone(), &answer.detail);
            told(&key, &answer, format);
        }
    }
    Ok(refused)
}

fn would(key: &OperationKey, version: i64, age: Duration, format: Format) {
    match format {
        Format::Table => println!("{} · {} · version {version} · for {}", key.operation, key.tenant, show_duration(age)),
        Format::Json => {
            println!("{}", json!({ "schema": "readback.resolve/1", "operation": key, "version": version, "dry_run": true }))
        }
    }
}

fn told(key: &OperationKey, answer: &CommandAnswer, format: Format) {
    match format {
        Format::Table => {
            let code = answer.code.as_ref().map(|c| format!("{c} ")).unwrap_or_default();
            println!("{} · {}: {code}{}", key.operation, key.tenant, answer.detail);
        }
        Format::Json => {
            println!(
                "{}",
                json!({ "schema": "readback.resolve/1", "operation": key, "code": answer.code, "detail": answer.detail })
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::contract::{self, Parameters};
    use crate::driver::{Scripted, TopologyTestDriver};
    use crate::dsl::{Consumed, Effect, StreamsBuilder};
    use crate::kafka::memory::Call;
    use crate::kafka::{Class, Isolation};
    use crate::record::Headers;
    use crate::serdes::Serdes;

    const MAIL: &str = r#"contract: mail
version: 1
verified_on: 2026-11-20
target: { base_url: "https://mail.internal", hosts: [mail.internal] }
calls:
  send:
    parameters: { to: { type: string } }
    request: { method: POST, path: /messages, json: { to: "{to}", ref: "{key}" } }
    key: { carrier: body }
    answers: [{ status: 202, means: applied }]
    person: { look_at: "https://mail.internal/sent?ref={key}" }
"#;

    #[derive(Debug, Parser)]
    struct Given {
        #[command(flatten)]
        args: BulkArgs,
    }

    fn given(more: &[&str]) -> BulkArgs {
        let base = ["x", "--applied", "--reason", "INC-42", "--by", "person@acme"];
        Given::try_parse_from(base.iter().chain(more)).unwrap_or_else(|e| panic!("{e}")).args
    }

    /// Three operations whose answers were lost, and that nothing can prove.
    fn parked() -> TopologyTestDriver {
        let contract = contract::parse("mail.yaml", MAIL).unwrap_or_else(|d| panic!("{d}"));
        let builder = StreamsBuilder::new("mails");
        let effect = Effect::named("ask")
            .operation_id(|_, v: &serde_json::Value| v["id"].as_str().unwrap_or_default().to_owned())
            .request(|draft, _| draft.tenant("acme").resource("mail/1").deadline(WallTime(1_767_225_600_000 + 600_000)))
            .parameters(|v| Parameters(v["parameters"].as_object().cloned().unwrap_or_default()));
        let asks = builder.stream("asks", Consumed::with(Serdes::string(), Serdes::json::<serde_json::Value>()));
        asks.effect(&std::sync::Arc::new(contract), "send", effect).results().to("results");
        let mut driver = TopologyTestDriver::new(&builder.build().expect("builds")).expect("starts");
        driver.serve(|_, _| Scripted::Lost);
        for n in 1..=3 {
            let ask = json!({ "id": format!("op-{n}"), "parameters": { "to": "a@example.org" } }).to_string();
            driver.pipe("asks", Some(b"k"), Some(ask.as_bytes()), Headers::new(), None).expect("piped");
        }
        driver.advance(Duration::from_secs(5)).expect("advances");
        driver
    }

    fn open(driver: &TopologyTestDriver) -> Operations {
        let mut operations = Operations::open(driver.cluster(), &ApplicationId::new("mails")).expect("opens");
        operations.catch_up().expect("reads");
        operations
    }

    fn audited(driver: &TopologyTestDriver) -> Vec<serde_json::Value> {
        let topic = crate::intents::topics::audit(&ApplicationId::new("mails"));
        let records = driver.cluster().records(&topic, Isolation::Committed);
        records.iter().map(|r| serde_json::from_slice(r.value.as_deref().unwrap_or_default()).expect("JSON")).collect()
    }

    fn statuses(driver: &TopologyTestDriver) -> Vec<String> {
        open(driver).seen.values().filter_map(|s| s.status()).map(|s| s.word().to_owned()).collect()
    }

    /// If this broke, a verdict on the seventeen that were looked at would also be given on the eighteenth, that came meanwhile.
    #[test]
    fn another_number_than_was_seen_changes_nothing() {
        let mut driver = parked();
        let (app, cluster) = (ApplicationId::new("mails"), driver.cluster().clone());
        let now = driver.now();
        let refused = |args: &BulkArgs| run(args, &cluster, &app, &mut open(&driver), now, Format::Json).expect_err("refused").code;
        assert_eq!(refused(&given(&["--expect", "2", "--call", "mail#send"])), codes::STALE_VERSION);
        assert_eq!(refused(&given(&["--expect", "1", "--code", "RB0231"])), codes::STALE_VERSION, "of another code there is none");
        assert_eq!(refused(&given(&["--expect", "3"])), codes::USAGE, "all of them, whatever they are");
        assert_eq!(audited(&driver).iter().map(|a| a["came"].as_str()).collect::<Vec<_>>(), [Some("refused"); 3]);
        let listed = run(&given(&["--dry-run", "--code", "rb0235"]), &cluster, &app, &mut open(&driver), now, Format::Json);
        assert_eq!(listed.expect("lists"), ExitCode::SUCCESS);
        driver.advance(Duration::from_secs(5)).expect("advances");
        assert_eq!(statuses(&driver), ["parked", "parked", "parked"]);
        assert_eq!(audited(&driver).len(), 3, "who only looks does nothing");
        // What can't be written down is not done.
        cluster.fail_next(Call::Publish, None, Class::Config);
        run(&given(&["--expect", "3", "--call", "mail#send"]), &cluster, &app, &mut open(&driver), now, Format::Json)
            .expect_err("is not ordered");
        driver.advance(Duration::from_secs(5)).expect("advances");
        assert_eq!(statuses(&driver), ["parked", "parked", "parked"]);
    }

    /// If this broke, an operator would resolve the operations of an outage one by one at 3 a.m., or believe that they were.
    #[test]
    fn an_incident_is_resolved_at_once() {
        let mut driver = parked();
        let (cluster, now, mut operations) = (driver.cluster().clone(), driver.now(), open(&driver));
        let done = std::thread::spawn(move || {
            let args = given(&["--expect", "3", "--call", "mail#send", "--code", "RB0235"]);
            run(&args, &cluster, &ApplicationId::new("mails"), &mut operations, now, Format::Json)
        });
        while !done.is_finished() {
            driver.advance(Duration::from_millis(100)).expect("advances");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(done.join().expect("joins").expect("resolves"), ExitCode::SUCCESS);
        assert_eq!(statuses(&driver), ["resolved_applied", "resolved_applied", "resolved_applied"]);
        let all = audited(&driver);
        let came = |word: &str| all.iter().filter(|a| a["came"] == word && a["action"] == "resolve_applied").count();
        assert_eq!((came("ordered"), came("answered"), all.len()), (3, 3, 6), "{all:?}");
        assert!(
            all.iter().all(|a| a["scope"] == "status parked, code RB0235, call mail#send" && a["verified"] == false),
            "{all:?}"
        );
    }
}
