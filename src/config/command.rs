//! Secrets that a program prints: a vault's client, a cloud's. It is run without a shell, for a bounded time, and what it says is kept
//! for a minute; while it is asked again its last answer holds.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Fault, Result, codes};

use super::Secret;

/// How long an answer holds before the program is asked again.
const KEPT: Duration = Duration::from_secs(60);
/// How long it may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How much it may print.
const MOST: u64 = 64 * 1024;

/// A program and its arguments; clones share what it said.
#[derive(Clone)]
pub struct SecretCommand {
    argv: Arc<[String]>,
    said: Arc<Mutex<Said>>,
}

#[derive(Default)]
struct Said {
    last: Option<(Instant, Secret)>,
    asking: bool,
}

impl SecretCommand {
    /// The program and its arguments; `None` without a program.
    pub fn new(argv: Vec<String>) -> Option<Self> {
        argv.first().filter(|program| !program.is_empty())?;
        Some(Self { argv: argv.into(), said: Arc::default() })
    }

    /// The program, without its arguments: they may say more than others should read.
    pub fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// What it printed. Runs it where nothing is known; an answer that is older than a minute is renewed aside.
    pub(super) fn secret(&self) -> Result<Secret> {
        let mut said = self.said();
        match &said.last {
            Some((at, secret)) => {
                let secret = secret.clone();
                if at.elapsed() >= KEPT && !said.asking {
                    said.asking = true;
                    drop(said);
                    self.renew();
                }
                Ok(secret)
            }
            None => {
                drop(said);
                let secret = self.run()?;
                self.said().last = Some((Instant::now(), secret.clone()));
                Ok(secret)
            }
        }
    }

    pub(super) fn forget(&self) {
        self.said().last = None;
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renew(&self) {
        let this = self.clone();
        let work = move || {
            let answer = this.run().inspect_err(|error| tracing::warn!(%error, "a secret stays as it was")).ok();
            let mut said = this.said();
            said.asking = false;
            let kept = said.last.take().map(|(_, secret)| secret);
            // A failure counts as an answer, too: the program is not run at every use.
            said.last = answer.or(kept).map(|secret| (Instant::now(), secret));
        };
        if let Err(e) = std::thread::Builder::new().name("secret".into()).spawn(work) {
            tracing::warn!(error = %e, "a thread for a secret did not start");
            self.said().asking = false;
        }
    }

    fn run(&self) -> Result<Secret> {
        let bad = |why: String| {
            Error::new(codes::MISSING_SECRET, Fault::Configuration, format!("asking {} for a secret", self.program()))
                .because(why)
                .next("run the command by hand as the same user; it must print the secret and end with status 0")
        };
        let mut child = Command::new(self.program())
            .args(&self.argv[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| bad(e.to_string()))?;
        let printed = printed(&mut child).map_err(|e| bad(e.to_string()))?;
        match ended(&mut child).map_err(|e| bad(e.to_string()))? {
            Some(status) if status.success() => {}
            Some(status) => return Err(bad(format!("it ended with {status}"))),
            None => return Err(bad(format!("it did not end within {}", crate::time::show_duration(LIMIT)))),
        }
        let text = printed.join().ok().flatten().ok_or_else(|| bad("it printed no text, or too much".into()))?;
        match Secret::of_lines(&text) {
            empty if empty.expose().is_empty() => Err(bad("it printed nothing".into())),
            secret => Ok(secret),
        }
    }
}

/// Reads what it prints on a thread of its own: a full pipe must not keep it from ending.
fn printed(child: &mut Child) -> std::io::Result<std::thread::JoinHandle<Option<String>>> {
    let out = child.stdout.take();
    std::thread::Builder::new().name("secret-output".into()).spawn(move || {
        let mut text = String::new();
        out?.take(MOST + 1).read_to_string(&mut text).ok()?;
        (text.len() as u64 <= MOST).then_some(text)
    })
}

/// How it ended; `None` where it had to be killed.
fn ended(child: &mut Child) -> std::io::Result<Option<std::process::ExitStatus>> {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl PartialEq for SecretCommand {
    fn eq(&self, other: &Self) -> bool {
        self.argv == other.argv
    }
}

impl Eq for SecretCommand {}

impl std::fmt::Debug for SecretCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretCommand({})", self.program())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> SecretCommand {
        SecretCommand::new(vec!["sh".into(), "-c".into(), script.into()]).expect("a program")
    }

    /// If this broke, a vault would be asked at every call of a target, or never again after a rotation.
    #[test]
    fn what_a_command_says_is_kept_until_it_is_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("secret");
        std::fs::write(&file, "one\n").expect("writes");
        let command = SecretCommand::new(vec!["cat".into(), file.display().to_string()]).expect("a program");
        assert_eq!(command.secret().expect("said").expose(), "one");
        std::fs::write(&file, "two\n").expect("writes");
        assert_eq!(command.clone().secret().expect("kept").expose(), "one");
        command.forget();
        assert_eq!(command.secret().expect("asked again").expose(), "two");
    }

    /// If this broke, a command that fails or prints nothing would sign in with an empty password; or its words would be shown.
    #[test]
    fn a_command_that_fails_is_no_secret() {
        for script in ["echo MARK; exit 3", "true", "echo", "head -c 70000 /dev/zero | tr '\\0' x"] {
            let error = shell(script).secret().expect_err("must fail");
            assert_eq!(error.code, codes::MISSING_SECRET);
            assert!(!error.to_string().contains("MARK"), "{error}");
        }
        assert_eq!(
            SecretCommand::new(vec!["/nowhere/vault".into()]).expect("named").secret().expect_err("none").code,
            codes::MISSING_SECRET
        );
    }
}
