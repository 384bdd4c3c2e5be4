//! Orders of `readback ops` by the topics: what was looked at, the record of it, the command, its answer, the record of that.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;

use crate::admin::orders;
use crate::admin::views::{CommandAnswer, Operations, Seen};
use crate::console::audit::{Came, Entry};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, OperationId, OperationKey, Tenant};
use crate::intents::{Command, Via};
use crate::kafka::Cluster;
use crate::outbox::commands::Order;
use crate::time::WallTime;

use crate::cli::Format;
use crate::cli::scribe::Scribe;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// What every command needs.
#[derive(Debug, Args)]
pub(super) struct OrderArgs {
    /// The operation ID, root or derived.
    pub(super) operation: String,
    /// Its tenant, where the ID is not unique.
    #[arg(long)]
    pub(super) tenant: Option<String>,
    /// Why; kept beside the decision, its first 500 characters.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(super) reason: String,
    /// Who decides: recorded as given. With --api it is whose token that is.
    #[arg(long, env = "USER", value_parser = NonEmptyStringValueParser::new())]
    by: Option<String>,
    /// What you looked at: a link or reference.
    #[arg(long)]
    pub(super) evidence: Option<String>,
}

/// The second person, where one is needed: before settle.
#[derive(Debug, Default, Args)]
pub(super) struct SecondArgs {
    /// The name of a second person: recorded as given, proved by nothing.
    #[arg(long)]
    second: Option<String>,
    /// With --api: let the order wait for a second person, who confirms it under their own name (`ops confirm`, or at the console).
    #[arg(long, conflicts_with = "second")]
    pub(super) ask_second: bool,
}

impl SecondArgs {
    /// A name that somebody types is nothing that the console takes.
    pub fn for_api(&self) -> Result<bool> {
        match &self.second {
            Some(_) => Err(usage("ordering at the console: --second names somebody, and proves nothing")
                .next("give --ask-second: the order waits until that person confirms it, by a token of their own")),
            None => Ok(self.ask_second),
        }
    }

    fn typed(&self) -> Result<Option<String>> {
        match self.ask_second {
            true => {
                Err(usage("asking a second person: that is the console's matter").next("name it with --api, or in READBACK_API"))
            }
            false => Ok(self.second.clone()),
        }
    }
}

fn usage(what: &str) -> Error {
    Error::new(codes::USAGE, Fault::Configuration, what)
}

/// Where orders are given.
pub(super) struct Desk<'a, C: Cluster> {
    /// The cluster.
    pub cluster: &'a C,
    /// Whose operations.
    pub app: &'a ApplicationId,
    /// What is known of them.
    pub operations: &'a mut Operations,
    /// The time.
    pub now: WallTime,
    /// How the answer is printed.
    pub format: Format,
}

/// What is ordered, apart from what every order has.
pub(super) struct Wanted<'a> {
    /// Its word on the audit topic.
    pub action: &'a str,
    /// The version that was seen.
    pub seen: Option<i64>,
    /// The second person.
    pub second: &'a SecondArgs,
}

/// The one operation that is meant, and what is known of it; `None`: nobody knows it yet.
pub(super) type Known<'a> = Option<(&'a OperationKey, &'a Seen)>;

/// Makes the command.
pub(super) type Make<'a> = &'a dyn Fn(Order, Known<'_>) -> Result<Command>;

impl<C: Cluster> Desk<'_, C> {
    /// Gives an order; on the audit topic it stands before it is given.
    ///
    /// # Errors
    /// What is wrong with it, or keeps it from being written down; each refusal is on the audit topic.
    pub fn give(&mut self, args: &OrderArgs, wanted: &Wanted<'_>, make: Make<'_>) -> Result<ExitCode> {
        let by = args.by.as_deref().ok_or_else(|| usage("ordering: nobody is named").next("give --by, or set USER"))?;
        let scribe = Scribe::new(self.cluster, self.app, by, &args.reason);
        let made = wanted.second.typed().and_then(|second| {
            let known = self.known(args, wanted.seen)?;
            make(self.order(args, by, wanted.seen, second, known), known)
        });
        match made {
            Ok(command) => self.send(&scribe, scribe.entry(wanted.action).about(&command), &command),
            Err(e) => {
                let mut entry = scribe.entry(wanted.action);
                (entry.operation, entry.seen) = (crate::outbox::cut(&args.operation), wanted.seen);
                entry.tenant = args.tenant.as_deref().map(crate::outbox::cut).unwrap_or_default();
                scribe.refused(entry, e)
            }
        }
    }

    /// A cancel may come before its operation is known: it is held.
    fn known(&self, args: &OrderArgs, seen: Option<i64>) -> Result<Known<'_>> {
        match super::one(self.operations, &args.operation, args.tenant.as_deref()) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.code == codes::UNKNOWN_OPERATION && seen.is_none() => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn order(&self, args: &OrderArgs, by: &str, seen: Option<i64>, second: Option<String>, known: Known<'_>) -> Order {
        let key = known.map(|(key, _)| key);
        Order {
            tenant: key.map(|k| k.tenant.clone()).or_else(|| args.tenant.as_deref().map(Tenant::new)),
            operation_id: OperationId::new(&args.operation),
            step: key.map(|k| k.step.clone()),
            seen,
            by: by.to_owned(),
            second,
            via: Some(Via::CommandLine),
            reason: args.reason.clone(),
            evidence: args.evidence.clone(),
            at: self.now,
            hold: Duration::from_secs(3_600),
        }
    }

    fn send(&mut self, scribe: &Scribe<C>, entry: Entry, command: &Command) -> Result<ExitCode> {
        scribe.begin(&entry)?;
        if let Err(e) = orders::publish(self.cluster, self.app, command) {
            scribe.came(entry, Came::Unanswered, Some(e.code.to_string()), &e.to_string());
            return Err(e);
        }
        if command.step.is_none() {
            let held = "nobody knows this operation yet; the command is held for an hour and answered on the results topic";
            scribe.came(entry, Came::Unanswered, None, held);
            self.tell(command, &CommandAnswer { code: None, detail: held.to_owned() });
            return Ok(ExitCode::SUCCESS);
        }
        let answer = self.operations.answer(&command.command_id, PATIENCE);
        let Some(answer) = answer.as_ref().ok().and_then(Option::as_ref) else {
            scribe.came(entry, Came::Unanswered, None, "");
            answer?;
            return Err(unanswered(command.command_id.as_str()));
        };
        scribe.came(entry, Came::Answered, answer.code.clone(), &answer.detail);
        self.tell(command, answer);
        Ok(told(answer.code.as_deref()))
    }

    fn tell(&self, command: &Command, answer: &CommandAnswer) {
        let id = &command.command_id;
        match self.format {
            Format::Json if command.step.is_none() => {
                println!("{}", json!({ "schema": "readback.command/1", "command": id, "detail": answer.detail }));
            }
            Format::Json => {
                println!(
                    "{}",
                    json!({ "schema": "readback.command/1", "command": id, "code": answer.code, "detail": answer.detail })
                );
            }
            Format::Table => println!("{}", answer.detail),
        }
    }
}

/// Nobody has answered a command: it is not done, and not refused.
pub(super) fn unanswered(command: &str) -> Error {
    Error::new(codes::UNKNOWN_OPERATION, Fault::Unreachable, "waiting for the answer to the command")
        .because("no member answered within 20 s")
        .next(format!("the command {command} stays in the topic and is answered once a member runs; look again with `ops show`"))
}

/// How the program ends with the answer to a command.
fn told(code: Option<&str>) -> ExitCode {
    match code {
        None => ExitCode::SUCCESS,
        Some("RB0709") => ExitCode::from(Fault::Stale.exit_code()),
        Some(code) => {
            eprintln!("refused: {code}; `readback explain {code}` tells more");
            ExitCode::from(Fault::Verdict.exit_code())
        }
    }
}
