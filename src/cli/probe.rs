//! `readback probe T#call`: tries a contract against a sandbox with real calls, and says which of its claims hold there.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, json};

use crate::config::yaml;
use crate::contract::{self, Call, Contract, Parameters};
use crate::error::{Error, Fault, Result, codes};
use crate::http::{HyperPort, host_of};
use crate::ids::CallName;
use crate::probe::{Probe, Report};
use crate::time::SystemClock;

use super::ops::span;
use super::{Format, load};

/// Try a contract against a sandbox: real calls, real effects.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback probe topology/orders#orders#create --set sku=A-1 --set quantity=2 --base-url http://127.0.0.1:8080
  readback probe topology/contracts/resend.yaml#send --parameters mail.json --yes-this-makes-effects
Without --yes-this-makes-effects it calls nothing, and says how many effects it would make. Each has a key of its own; what was made
is listed, so that you can clean up. What no probe can show: how long a request may still arrive, and how long a key is remembered.
Exit codes: 0 nothing contradicts the file · 1 a claim does not hold · 2 usage · 3 the target can't be reached")]
pub struct ProbeArgs {
    /// Which call: `contract.yaml#call`, `topology#call` or `topology#contract#call`.
    what: String,
    /// A parameter that the sandbox takes, `name=value`; text where the contract says so, else JSON.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// A JSON object of parameters; --set goes before it.
    #[arg(long)]
    parameters: Option<PathBuf>,
    /// The sandbox, where it is not the contract's base URL; its host must be among the contract's.
    #[arg(long)]
    base_url: Option<String>,
    /// The version of the resource, where the call holds for one version only.
    #[arg(long)]
    resource_version: Option<String>,
    /// How wrong a clock may be.
    #[arg(long, default_value = "250ms", value_parser = span)]
    clock_error: Duration,
    /// Make the effects.
    #[arg(long)]
    yes_this_makes_effects: bool,
}

/// Runs a probe.
///
/// # Errors
/// What the files and the arguments say.
pub fn run(args: &ProbeArgs, format: Format) -> Result<ExitCode> {
    let (contract, call) = meant(args)?;
    let parameters = parameters(args, contract.call(&call))?;
    let mut probe = Probe::new(&contract, &call, parameters, args.resource_version.clone())?;
    probe.clock_error = args.clock_error;
    let (kept, broken) = probe.effects();
    let at = format!("{}#{call} at {}", contract.name, contract.target.base_url);
    if !args.yes_this_makes_effects {
        return Err(Error::new(codes::USAGE, Fault::Configuration, format!("probing {at}: nothing was called"))
            .because(format!("it makes {kept} effects where the target keeps its word, and up to {broken} more where it does not"))
            .next("give --yes-this-makes-effects, against a sandbox"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| Error::new(codes::CLIENT_FAILED, Fault::Bug, "starting the HTTP client").because(e))?;
    let port = HyperPort::new(runtime.handle().clone(), Arc::new(SystemClock), None)?;
    eprintln!("probing {at}: {kept} effects, up to {broken} more where it does not keep its word");
    let report = probe.run(&port)?;
    match format {
        Format::Table => print!("{}", table(&report)),
        Format::Json => println!(
            "{}",
            json!({
                "schema": "readback.probe/1", "contract": contract.name, "version": contract.version, "call": call,
                "target": contract.target.base_url, "verdict": verdict(&report), "claims": report.claims, "made": report.made,
            })
        ),
    }
    Ok(match () {
        () if report.is_broken() => ExitCode::from(Fault::Verdict.exit_code()),
        () if !report.reached => ExitCode::from(Fault::Unreachable.exit_code()),
        () => ExitCode::SUCCESS,
    })
}

fn verdict(report: &Report) -> &'static str {
    match () {
        () if report.is_broken() => "broken",
        () if !report.reached => "unreachable",
        () => "nothing contradicts",
    }
}

fn table(report: &Report) -> String {
    let width = report.claims.iter().map(|c| c.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for c in &report.claims {
        text += &format!("{:<width$}  {:<17}  {}\n{:width$}  {:<17}  {}\n", c.name, c.finding.words(), c.says, "", "", c.evidence);
    }
    if !report.made.is_empty() {
        text += "\nmade:\n";
    }
    for m in &report.made {
        let reference = m.reference.as_ref().map(|r| format!(", reference {r}")).unwrap_or_default();
        text += &format!("  key {}{reference}{}\n", m.key, if m.certain { "" } else { ": perhaps, no answer says so" });
    }
    text
}

/// The contract and the call that are meant, at the address that is meant.
fn meant(args: &ProbeArgs) -> Result<(Contract, CallName)> {
    let usage = |what: String| {
        Error::new(codes::USAGE, Fault::Configuration, what)
            .next("write contract.yaml#call, topology#call or topology#contract#call")
    };
    let (path, rest) = args.what.split_once('#').ok_or_else(|| usage(format!("looking for the call of `{}`", args.what)))?;
    // With another address the one in the file is not needed.
    let read = || found(Path::new(path), rest, &usage);
    let (mut contract, call) = if args.base_url.is_some() { yaml::offline(read)? } else { read()? };
    if let Some(url) = &args.base_url {
        let host = host_of(url).unwrap_or_default();
        if !contract.target.hosts.iter().any(|h| h.eq_ignore_ascii_case(&host)) {
            return Err(Error::new(
                codes::BAD_VALUE,
                Fault::Configuration,
                format!("probing at `{url}`: not a host of the contract"),
            )
            .because(format!("it allows {}", contract.target.hosts.join(", ")))
            .next("add the sandbox to `hosts` in the contract, or name one that is there"));
        }
        contract.target.base_url = url.trim_end_matches('/').to_owned();
    }
    Ok((contract, call))
}

fn found(path: &Path, rest: &str, usage: &dyn Fn(String) -> Error) -> Result<(Contract, CallName)> {
    let is_contract = path.is_file() && path.file_name().is_some_and(|n| n != "topology.yaml");
    if is_contract {
        return Ok((contract::load(path).map_err(Error::from)?, CallName::new(rest)));
    }
    let contracts = load::declared(path)?.application.contracts;
    let (name, call) = rest.split_once('#').map_or((None, rest), |(name, call)| (Some(name), call));
    let call = CallName::new(call);
    let mut fit = contracts.values().filter(|c| name.is_none_or(|n| c.name.as_str() == n) && c.call(&call).is_some());
    match (fit.next(), fit.next()) {
        (Some(one), None) => Ok((Contract::clone(one), call)),
        (None, _) => Err(usage(format!("looking for `{rest}`: no contract of the topology has it"))),
        (Some(_), Some(_)) => Err(usage(format!("looking for `{rest}`: several contracts have it"))),
    }
}

fn parameters(args: &ProbeArgs, call: Option<&Call>) -> Result<Parameters> {
    let mut all = Map::new();
    if let Some(path) = &args.parameters {
        let doing = || format!("reading {}", path.display());
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::new(codes::FILE_UNREADABLE, Fault::Configuration, doing()).because(e))?;
        all = serde_json::from_str(&text).map_err(|e| {
            Error::new(codes::BAD_VALUE, Fault::Configuration, doing()).because(e).next("write a JSON object of parameters")
        })?;
    }
    for given in &args.set {
        let (name, value) = given.split_once('=').ok_or_else(|| {
            Error::new(codes::USAGE, Fault::Configuration, format!("reading --set {given}")).next("write name=value")
        })?;
        all.insert(name.to_owned(), call.map_or_else(|| value.into(), |call| call.typed(name, value)));
    }
    Ok(Parameters(all))
}
