//! A console, as the command line asks it: by a token of one's own, which is named and never shown. Whoever orders here is who they
//! have shown to be; roles, versions, second person and audit are the console's.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::config::SecretRef;
use crate::console::is_loopback;
use crate::error::{Code, Error, Fault, Result, codes};
use crate::http::{self, Login};

/// For a whole exchange: the console waits 20 s for a member's answer.
const LIMIT: Duration = Duration::from_secs(40);
/// Largest answer.
const MOST: usize = 16 << 20;

/// Which console, and who asks.
#[derive(Debug, Args)]
pub(super) struct ApiArgs {
    /// Ask the console at this address in place of the topics, as who you have signed in: `https://console.acme.example`.
    #[arg(long, env = "READBACK_API", global = true, value_name = "URL")]
    api: Option<String>,
    /// Where your token for it is: `env:NAME` or `file:PATH`, never the token itself.
    #[arg(long, global = true, value_name = "WHERE", default_value = "env:READBACK_TOKEN")]
    token: String,
    /// Who signed its certificate (PEM), where the system does not know them.
    #[arg(long, global = true, value_name = "FILE")]
    api_ca: Option<PathBuf>,
}

/// Where a token is. What stands there may be one: an error does not repeat it, as the parser of flags would.
fn token(text: &str) -> Result<SecretRef> {
    match text.split_once(':') {
        Some(("env", name)) if !name.is_empty() => Ok(SecretRef::Env(name.to_owned())),
        Some(("file", path)) if !path.is_empty() => Ok(SecretRef::File(PathBuf::from(path))),
        _ => Err(Error::new(codes::USAGE, Fault::Configuration, "reading where the token is (--token)")
            .because("it names neither a variable nor a file")
            .next("write env:NAME or file:PATH: a token on a command line is seen by whoever lists processes")),
    }
}

/// A console that is asked.
pub(super) struct Api {
    base: String,
    token: SecretRef,
    ca: Option<PathBuf>,
    runtime: Runtime,
}

/// A refusal as the console words it.
#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
    #[serde(default)]
    next: Option<String>,
}

impl ApiArgs {
    /// The console that is named; `None`: the topics are read and written directly.
    ///
    /// # Errors
    /// `USAGE` for an address that a token must not be sent to.
    pub fn open(&self) -> Result<Option<Api>> {
        let Some(url) = self.api.as_deref().map(str::trim).filter(|u| !u.is_empty()) else { return Ok(None) };
        let base = address(url)?;
        Ok(Some(Api { base, token: token(&self.token)?, ca: self.api_ca.clone(), runtime: crate::cli::http_runtime()? }))
    }
}

/// An address without path; in the clear only on this machine, since a token goes there.
fn address(url: &str) -> Result<String> {
    let wrong = |why: &str| {
        Error::new(codes::USAGE, Fault::Configuration, "reading the console's address (--api, READBACK_API)")
            .because(why.to_owned())
            .next("write https://host, or http://127.0.0.1:9465 on its own machine")
    };
    let url = url.trim_end_matches('/');
    let host = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(host), _) => host,
        (_, Some(host)) if is_loopback(host) || is_loopback(&format!("{host}:80")) => host,
        (_, Some(_)) => return Err(wrong("a token must not go to another machine in the clear")),
        _ => return Err(wrong("it begins with https://")),
    };
    match host.is_empty() || host.contains(['/', '?', '#', '@']) || host.contains(char::is_whitespace) {
        true => Err(wrong("it has a host and a port, and nothing else")),
        false => Ok(url.to_owned()),
    }
}

impl Api {
    /// Asks for something below `/api/v1`.
    ///
    /// # Errors
    /// `CONSOLE_UNREACHABLE`; what the console refuses, by its own code.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let client = http::trusting(self.ca.as_deref(), None)?;
        let login = Login::Bearer(self.token.resolve()?);
        let (status, body) = self
            .runtime
            .block_on(http::get(client, &self.at(path), login, LIMIT, MOST))
            .map_err(|why| self.away(&why).next("check --api, and that the console runs"))?;
        self.read(status, &body)
    }

    /// Orders something; `command` is its ID, so that a repeat is answered and not done twice.
    ///
    /// # Errors
    /// As [`Api::get`]; where no answer came, nobody knows whether it was taken.
    pub fn post(&self, path: &str, body: &Value, command: &str) -> Result<Value> {
        let client = http::trusting(self.ca.as_deref(), None)?;
        let login = Login::Bearer(self.token.resolve()?);
        let body = body.to_string().into_bytes();
        let (status, body) =
            self.runtime.block_on(http::post_json(client, &self.at(path), login, body, LIMIT, MOST)).map_err(|why| {
                self.away(&why).next(format!(
                    "nobody knows whether the order {command} was taken: `readback ops show` tells; repeat it if it was not"
                ))
            })?;
        self.read(status, &body)
    }

    fn at(&self, path: &str) -> String {
        format!("{}/api/v1{path}", self.base)
    }

    fn away(&self, why: &str) -> Error {
        Error::new(codes::CONSOLE_UNREACHABLE, Fault::Unreachable, format!("asking the console at {}", self.base))
            .because(why.to_owned())
    }

    fn read<T: DeserializeOwned>(&self, status: u16, body: &[u8]) -> Result<T> {
        if (200..300).contains(&status) {
            return serde_json::from_slice(body).map_err(|e| self.away(&e.to_string()).next("check --api: that is no console"));
        }
        Err(match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => refusal(status, problem),
            Err(_) => self.away(&format!("it answered {status}, and not as a console does")).next("check --api"),
        })
    }
}

/// A problem of the console's as an error of ours: the same code, and the exit code of what it means.
fn refusal(status: u16, problem: Problem) -> Error {
    let code = problem.code.strip_prefix("RB").and_then(|n| n.parse().ok()).map(Code);
    let code = code.filter(|code| codes::ALL.iter().any(|(known, _)| known == code)).unwrap_or(codes::CONSOLE_UNREACHABLE);
    let fault = match status {
        409 => Fault::Stale,
        400 => Fault::Configuration,
        408 | 500.. => Fault::Unreachable,
        _ => Fault::Verdict,
    };
    let e = Error::new(code, fault, problem.detail);
    match problem.next {
        Some(next) => e.next(next),
        None => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a script could not tell an order that is stale from one that is refused, or a console that is away from both.
    #[test]
    fn a_problem_has_its_code_and_its_exit_code() {
        let of = |status, code: &str| {
            let problem = Problem { code: code.to_owned(), detail: "d".to_owned(), next: Some("n".to_owned()) };
            let e = refusal(status, problem);
            (e.code, e.fault.exit_code())
        };
        assert_eq!(of(409, "RB0709"), (codes::STALE_VERSION, 4));
        assert_eq!(of(409, "RB0809"), (codes::NOT_WAITING, 4));
        assert_eq!(of(403, "RB0802"), (codes::NOT_PERMITTED, 1));
        assert_eq!(of(404, "RB0708"), (codes::UNKNOWN_OPERATION, 1));
        assert_eq!(of(422, "RB0710"), (codes::COMMAND_REFUSED, 1));
        assert_eq!(of(400, "RB0105"), (codes::BAD_VALUE, 2));
        assert_eq!(of(503, "RB0806"), (codes::CONSOLE_BUSY, 3));
        assert_eq!(of(503, "RB9999"), (codes::CONSOLE_UNREACHABLE, 3), "of a later version");
    }

    /// If this broke, a token would go over the network in the clear, stand in a list of processes, or be printed.
    #[test]
    fn a_token_is_named_and_goes_nowhere_in_the_clear() {
        for good in [
            "https://console.acme.example",
            "https://console:8443/",
            "http://127.0.0.1:9465",
            "http://localhost",
            "http://[::1]:9465",
        ] {
            assert_eq!(address(good).unwrap_or_else(|e| panic!("{good}: {e}")), good.trim_end_matches('/'));
        }
        for wrong in ["http://console.acme.example", "console:9465", "https://", "https://a/b", "https://user:pass@a", "ftp://a"] {
            assert_eq!(address(wrong).expect_err(wrong).code, codes::USAGE, "{wrong}");
        }
        assert_eq!(token("env:MINE").expect("reads"), SecretRef::Env("MINE".into()));
        assert_eq!(token("file:/run/me").expect("reads"), SecretRef::File("/run/me".into()));
        for wrong in ["rbt_5be2", "env:", "token:rbt_5be2"] {
            assert!(!token(wrong).expect_err("is refused").to_string().contains("5be2"));
        }
    }
}
