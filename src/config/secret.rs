//! Secrets: references are written out in files and resolved when used; the value can't be printed.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, Fault, Result, codes};

use super::command::SecretCommand;

/// A secret's value. Neither `Debug` nor any serializer shows it; there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }
    /// The value, for the wire only.
    pub fn expose(&self) -> &str {
        &self.0
    }
    /// A text as a program or an editor leaves it: without its last line end.
    pub(super) fn of_lines(text: &str) -> Self {
        let text = text.strip_suffix('\n').map_or(text, |t| t.strip_suffix('\r').unwrap_or(t));
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret is. A `$` in a value is just a `$` (C112).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretRef {
    /// `{ env: NAME }`: an environment variable; unset is an error, never an empty string (C113). It can't change while we run.
    Env(String),
    /// `{ file: PATH }`: a file's content without its last line end, read at each use, so that rotation needs no restart.
    File(PathBuf),
    /// `{ command: [program, argument…] }`: what a program prints, asked again once a minute.
    Command(SecretCommand),
    /// A value written out: allowed for tests and local stacks.
    Literal(Secret),
}

impl SecretRef {
    /// Reads the secret now.
    ///
    /// # Errors
    /// `MISSING_SECRET` where it is not there, by its place, never by its value.
    pub fn resolve(&self) -> Result<Secret> {
        match self {
            SecretRef::Env(name) => std::env::var(name).map(Secret::new).map_err(|e| {
                Error::new(codes::MISSING_SECRET, Fault::Configuration, format!("reading the environment variable {name}"))
                    .because(e)
                    .next(format!("set {name}, or point the reference elsewhere"))
            }),
            SecretRef::File(path) => std::fs::read_to_string(path).map(|text| Secret::of_lines(&text)).map_err(|e| {
                Error::new(codes::MISSING_SECRET, Fault::Configuration, format!("reading the secret file {}", path.display()))
                    .because(e)
                    .next("create the file, or point the reference elsewhere")
            }),
            SecretRef::Command(command) => command.secret(),
            SecretRef::Literal(value) => Ok(value.clone()),
        }
    }

    /// Forgets what a command said, so that it is asked again at the next use: for whoever was refused with it.
    pub fn forget(&self) {
        if let SecretRef::Command(command) = self {
            command.forget();
        }
    }
}

/// Where it is, as it is written; never its value.
impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretRef::Env(name) => write!(f, "{{ env: {name} }}"),
            SecretRef::File(path) => write!(f, "{{ file: {} }}", path.display()),
            SecretRef::Command(command) => write!(f, "{{ command: {} }}", command.program()),
            SecretRef::Literal(_) => f.write_str("hidden"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a rotated file would need a restart, or the line end that editors leave would be part of a password.
    #[test]
    fn a_file_is_read_at_each_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("password");
        let secret = SecretRef::File(path.clone());
        for (text, value) in [("one\n", "one"), ("two\r\n", "two"), ("th$ree", "th$ree")] {
            std::fs::write(&path, text).expect("writes");
            assert_eq!(secret.resolve().expect("is there").expose(), value);
        }
        std::fs::remove_file(&path).expect("is there");
        assert_eq!(secret.resolve().expect_err("is gone").code, codes::MISSING_SECRET);
    }
}
