//! Secrets: references are written out in files and resolved when used; the value can't be printed.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, Fault, Result, codes};

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
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret is. A `$` in a value is just a `$` (C112).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretRef {
    /// `{ env: NAME }`: an environment variable; unset is an error, never an empty string (C113).
    Env(String),
    /// `{ file: PATH }`: a file's content without its last line end, read at each use, so that rotation needs no restart.
    File(PathBuf),
    /// A value written out: allowed for tests and local stacks.
    Literal(Secret),
}

impl SecretRef {
    /// Reads the secret now.
    pub fn resolve(&self) -> Result<Secret> {
        match self {
            SecretRef::Env(name) => std::env::var(name).map(Secret::new).map_err(|e| {
                Error::new(codes::MISSING_SECRET, Fault::Configuration, format!("reading the environment variable {name}"))
                    .because(e)
                    .next(format!("set {name}, or point the reference elsewhere"))
            }),
            SecretRef::File(path) => std::fs::read_to_string(path)
                .map(|text| Secret::new(text.strip_suffix('\n').map(|t| t.strip_suffix('\r').unwrap_or(t)).unwrap_or(&text)))
                .map_err(|e| {
                    Error::new(codes::MISSING_SECRET, Fault::Configuration, format!("reading the secret file {}", path.display()))
                        .because(e)
                        .next("create the file, or point the reference elsewhere")
                }),
            SecretRef::Literal(value) => Ok(value.clone()),
        }
    }
}
