//! A YAML value with its place, and typed looks at it that report what does not fit.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{SecretCommand, SecretRef};
use crate::error::codes;
use crate::time::parse_duration;

use super::units::{self, Rate};
use super::{Diagnostics, Site, nearest};

/// A key of a map with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// The text.
    pub text: String,
    /// Where.
    pub at: Site,
}

/// A value with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Where.
    pub at: Site,
}

/// What a node is. Scalars keep their text: what it means is said by whoever reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A scalar.
    Scalar {
        /// Its text, escapes and folding done.
        text: String,
        /// Whether it stood there without quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A map, in the file's order, keys unique.
    Map(Vec<(Name, Node)>),
}

impl Node {
    /// What people call it.
    pub fn word(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar { plain: false, .. } => "a string",
            Kind::Scalar { text, .. } => match text.as_str() {
                "" | "null" | "~" => "nothing",
                "true" | "false" => "true or false",
                t if t.parse::<f64>().is_ok() => "a number",
                _ => "a string",
            },
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    /// The text of any scalar, quotes or not: names, expressions, words.
    pub fn scalar(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The value alone: one text for one meaning, whatever the order of keys, the layout and the comments.
    pub fn canonical(&self) -> String {
        match &self.kind {
            Kind::Scalar { text, plain } => format!("{}{text:?}", if *plain { "" } else { "=" }),
            Kind::List(all) => format!("[{}]", all.iter().map(Node::canonical).collect::<Vec<_>>().join(",")),
            Kind::Map(all) => {
                let mut members: Vec<_> = all.iter().map(|(name, node)| format!("{:?}:{}", name.text, node.canonical())).collect();
                members.sort();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// Whether nothing stands there: `key:` or `key: null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true } if matches!(text.as_str(), "" | "null" | "~"))
    }

    /// The entries of a map, or an error.
    pub fn map(&self, d: &mut Diagnostics) -> Option<&[(Name, Node)]> {
        match &self.kind {
            Kind::Map(entries) => Some(entries),
            _ => self.wrong("a map", d),
        }
    }

    /// The elements of a list; a single value counts as a list of one.
    pub fn list(&self) -> &[Node] {
        match &self.kind {
            Kind::List(elements) => elements,
            _ => std::slice::from_ref(self),
        }
    }

    /// A text: a scalar, or `{ env: X }` or `{ file: … }` read now. A `$` is just a `$`.
    pub fn text(&self, d: &mut Diagnostics) -> Option<String> {
        match &self.kind {
            Kind::Scalar { text, .. } if !self.is_null() => Some(text.clone()),
            Kind::Map(entries) if is_reference(entries) => self.resolved(d),
            _ => self.wrong("a string", d),
        }
    }

    /// Whether this is `{ env: X }` or another reference to something outside the file.
    pub fn is_outside(&self) -> bool {
        matches!(&self.kind, Kind::Map(entries) if is_reference(entries))
    }

    /// A CEL expression: any scalar as it stands.
    pub fn expression(&self, d: &mut Diagnostics) -> Option<&str> {
        match self.scalar() {
            Some(text) if !text.trim().is_empty() => Some(text),
            _ => self.wrong("an expression", d),
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self, d: &mut Diagnostics) -> Option<bool> {
        match self.plain() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => self.wrong("true or false", d),
        }
    }

    /// A whole number within bounds, both included.
    pub fn integer(&self, min: i64, max: i64, d: &mut Diagnostics) -> Option<i64> {
        match self.plain().and_then(|t| t.replace('_', "").parse::<i64>().ok()) {
            Some(n) if (min..=max).contains(&n) => Some(n),
            _ if max == i64::MAX => self.wrong(&format!("a whole number, at least {min}"), d),
            _ => self.wrong(&format!("a whole number from {min} to {max}"), d),
        }
    }

    /// A number.
    pub fn number(&self, d: &mut Diagnostics) -> Option<f64> {
        match self.plain().and_then(|t| t.parse::<f64>().ok()).filter(|n| n.is_finite()) {
            Some(n) => Some(n),
            None => self.wrong("a number", d),
        }
    }

    /// `250ms`, `5s`, `30m`, `2h`, `7d`.
    pub fn duration(&self, d: &mut Diagnostics) -> Option<Duration> {
        match self.scalar().and_then(parse_duration) {
            Some(time) => Some(time),
            None => self.wrong("a duration with its unit, such as 250ms, 5s, 30m, 2h or 7d", d),
        }
    }

    /// `256 KB` in bytes.
    pub fn size(&self, d: &mut Diagnostics) -> Option<usize> {
        match self.scalar().and_then(units::parse_size) {
            Some(bytes) => Some(bytes),
            None => self.wrong("a size with its unit, such as 512 B, 256 KB or 1 MB", d),
        }
    }

    /// `2M/day`.
    pub fn rate(&self, d: &mut Diagnostics) -> Option<Rate> {
        match self.scalar().and_then(units::parse_rate) {
            Some(rate) => Some(rate),
            None => self.wrong("an amount per time, such as 500/hour or 2M/day", d),
        }
    }

    /// One of these words.
    pub fn one_of<T: Clone>(&self, words: &[(&str, T)], d: &mut Diagnostics) -> Option<T> {
        let text = self.scalar().unwrap_or_default();
        if let Some((_, value)) = words.iter().find(|(w, _)| *w == text) {
            return Some(value.clone());
        }
        let known = words.iter().map(|(w, _)| *w);
        let all = known.clone().collect::<Vec<_>>().join(", ");
        let what = d.error(codes::BAD_VALUE, &self.at, format!("`{text}` is not one of: {all}"));
        if let Some(near) = nearest(text, known) {
            what.label(format!("did you mean `{near}`?"));
        }
        None
    }

    /// Where a secret is: `{ env: NAME }`, `{ file: PATH }` or `{ command: [PROGRAM, …] }`, read when it is used; also under
    /// `{ secret: … }`.
    pub fn secret(&self, d: &mut Diagnostics) -> Option<SecretRef> {
        let entries = match &self.kind {
            Kind::Map(entries) if is_reference(entries) || is_command(entries) => entries,
            _ => {
                // The line is not drawn: what stands there may be the secret itself.
                d.general(codes::BAD_VALUE, format!("{:?}: a secret is named by a reference, never written out", self.at))
                    .note("write { env: NAME }, { file: PATH } or { command: [PROGRAM, ARGUMENT] }");
                return None;
            }
        };
        let (name, target) = &entries[0];
        match name.text.as_str() {
            "secret" => target.secret(d),
            "env" => Some(SecretRef::Env(target.scalar_of("the name of a variable", d)?)),
            "command" => {
                let argv: Option<Vec<String>> = target.list().iter().map(|n| n.scalar().map(str::to_owned)).collect();
                match argv.and_then(SecretCommand::new) {
                    Some(command) => Some(SecretRef::Command(command)),
                    None => target.wrong("a program with its arguments, such as [vault, read, -field=value, kafka]", d),
                }
            }
            _ => Some(SecretRef::File(self.relative(&target.scalar_of("a path", d)?))),
        }
    }

    /// A path; relative ones start from the directory of the file they stand in.
    pub fn path(&self, d: &mut Diagnostics) -> Option<PathBuf> {
        self.text(d).map(|text| self.relative(&text))
    }

    /// Reports that something else belongs here.
    pub fn wrong<T>(&self, wanted: &str, d: &mut Diagnostics) -> Option<T> {
        let found = match &self.kind {
            Kind::Scalar { text, plain: true } if !self.is_null() && text.len() <= 40 => format!("`{text}`"),
            Kind::Scalar { text, plain: false } if text.len() <= 40 => format!("`\"{text}\"`"),
            _ => self.word().to_owned(),
        };
        d.error(codes::BAD_VALUE, &self.at, format!("expected {wanted}, found {found}")).label("this");
        None
    }

    fn plain(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, plain: true } => Some(text),
            _ => None,
        }
    }

    fn scalar_of(&self, wanted: &str, d: &mut Diagnostics) -> Option<String> {
        match self.scalar() {
            Some(text) if !text.is_empty() => Some(text.to_owned()),
            _ => self.wrong(wanted, d),
        }
    }

    fn relative(&self, path: &str) -> PathBuf {
        self.at.directory().join(path)
    }

    fn resolved(&self, d: &mut Diagnostics) -> Option<String> {
        if matches!(&self.kind, Kind::Map(e) if e[0].0.text == "secret") {
            d.error(codes::BAD_VALUE, &self.at, "a secret can't stand here").label("this text is shown to people");
            return None;
        }
        match self.secret(d)?.resolve() {
            Ok(value) => Some(value.expose().to_owned()),
            Err(e) => {
                let what = d.error(codes::MISSING_SECRET, &self.at, e.doing.clone()).label("not there");
                if let Some(next) = e.next {
                    what.note(next);
                }
                None
            }
        }
    }
}

thread_local! {
    static OFFLINE: Cell<bool> = const { Cell::new(false) };
}

/// Reads files as on a machine that knows nothing of where they run: [`is_offline`] tells readers to make do without addresses
/// that stand outside the files. For recorded tests and simulations, whose results must not depend on the environment.
pub fn offline<T>(read: impl FnOnce() -> T) -> T {
    let before = OFFLINE.replace(true);
    let done = read();
    OFFLINE.set(before);
    done
}

/// Whether this thread is within [`offline`].
pub fn is_offline() -> bool {
    OFFLINE.get()
}

/// Only where a secret is wanted: a program is run for nothing else.
fn is_command(entries: &[(Name, Node)]) -> bool {
    matches!(entries, [(name, _)] if name.text == "command")
}

fn is_reference(entries: &[(Name, Node)]) -> bool {
    matches!(entries, [(name, _)] if matches!(name.text.as_str(), "env" | "file" | "secret"))
}
