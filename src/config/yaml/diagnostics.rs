//! What is wrong with files, all at once, each at its place.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ariadne::{Config, IndexType, Label, Report, ReportKind, Source};

use crate::error::{Code, Error, Fault};

/// A file's name as people gave it, and its text.
#[derive(PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// The path as it is shown.
    pub path: String,
    /// The text.
    pub text: String,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Site {
    /// The file.
    pub file: Arc<SourceFile>,
    /// Bytes.
    pub span: Range<usize>,
}

impl Site {
    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.before().matches('\n').count() + 1
    }
    /// The column in characters, from 1.
    pub fn column(&self) -> usize {
        self.before().rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1
    }
    /// The directory that relative paths in this file start from.
    pub fn directory(&self) -> &Path {
        Path::new(&self.file.path).parent().unwrap_or(Path::new(""))
    }
    /// Whether a line of the one is a line of the other.
    fn shares_a_line(&self, other: &Site) -> bool {
        self.file == other.file && self.line() <= other.last_line() && other.line() <= self.last_line()
    }
    /// The lines that a drawing of it would show.
    fn lines(&self) -> impl Iterator<Item = &str> {
        self.file.text.lines().take(self.last_line()).skip(self.line() - 1)
    }
    fn last_line(&self) -> usize {
        self.line() + self.file.text.get(self.span.clone()).unwrap_or_default().matches('\n').count()
    }
    fn before(&self) -> &str {
        self.file.text.get(..self.span.start).unwrap_or_default()
    }
}

/// `contracts/orders.yaml:28`.
impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.path, self.line())
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.path, self.line(), self.column())
    }
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Nothing is started.
    Error,
    /// Possible, but weak.
    Warning,
}

/// One thing to say about a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// How bad.
    pub severity: Severity,
    /// Its code.
    pub code: Code,
    /// What, in one line.
    pub message: String,
    /// Where; `None` for what no line can be blamed for.
    pub at: Option<Site>,
    /// Written under the place: `did you mean …?`.
    pub label: String,
    /// What else helps.
    pub notes: Vec<String>,
}

impl Diagnostic {
    /// Written under the place.
    pub fn label(&mut self, text: impl Into<String>) -> &mut Self {
        self.label = text.into();
        self
    }
    /// Written below.
    pub fn note(&mut self, text: impl Into<String>) -> &mut Self {
        self.notes.push(text.into());
        self
    }
    /// Tells its place in words: the lines are not drawn.
    fn undraw(&mut self) {
        let Some(at) = self.at.take() else { return };
        self.message = format!("{at:?}: {}", self.message);
        if self.label.starts_with("did you mean") {
            self.notes.insert(0, std::mem::take(&mut self.label));
        }
    }
    /// As people read it.
    pub fn render(&self, color: bool) -> String {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let head = format!("{word}[{}]: {}\n", self.code, self.message.replace('\n', " "));
        match &self.at {
            Some(site) => head + &self.excerpt(site, color),
            None => self.notes.iter().fold(head, |text, note| text + "   " + note + "\n"),
        }
    }

    /// The lines around the place. The drawing's own first line is left out: ours has the code in front.
    fn excerpt(&self, site: &Site, color: bool) -> String {
        let id = site.file.path.as_str();
        let span = (id, site.span.clone());
        let label = Label::new(span.clone()).with_message(if self.label.is_empty() { "here" } else { &self.label });
        let mut report = Report::build(ReportKind::Error, span)
            .with_config(Config::default().with_color(color).with_index_type(IndexType::Byte).with_compact(true))
            .with_label(label);
        report.with_notes(&self.notes);
        let mut drawn = Vec::new();
        if report.finish().write((id, Source::from(site.file.text.as_str())), &mut drawn).is_err() {
            return format!("   at {site:?}: {}\n", self.label);
        }
        let drawn = String::from_utf8_lossy(&drawn).into_owned();
        drawn.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default()
    }
}

/// Everything that is wrong with what was read. Reading goes on after an error, so that people see all of them at once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Nothing wrong yet.
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds an error at a place.
    pub fn error(&mut self, code: Code, at: &Site, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, code, Some(at.clone()), message.into())
    }
    /// Adds a warning at a place.
    pub fn warning(&mut self, code: Code, at: &Site, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Warning, code, Some(at.clone()), message.into())
    }
    /// Adds an error that no line can be blamed for.
    pub fn general(&mut self, code: Code, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, code, None, message.into())
    }
    /// Draws no line in which one of these secrets stands.
    pub fn hide(&mut self, secrets: &[&Site]) {
        let shown = |one: &Diagnostic| one.at.as_ref().is_some_and(|at| secrets.iter().any(|s| s.shares_a_line(at)));
        self.all.iter_mut().filter(|one| shown(one)).for_each(Diagnostic::undraw);
    }
    /// Draws no line that names a secret: where a file can't be parsed, nobody knows whether it is written out there.
    pub(super) fn hide_what_may_be_secret(&mut self) {
        let shown = |one: &Diagnostic| one.at.as_ref().is_some_and(|at| at.lines().any(may_hold_a_secret));
        self.all.iter_mut().filter(|one| shown(one)).for_each(Diagnostic::undraw);
    }
    /// Takes over what another reading found.
    pub fn absorb(&mut self, other: Diagnostics) {
        self.all.extend(other.all);
    }
    /// All of them, in the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.all.iter()
    }
    /// Whether anything is an error.
    pub fn has_errors(&self) -> bool {
        self.all.iter().any(|d| d.severity == Severity::Error)
    }
    /// Whether nothing was said at all.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// `value` where there is no error, else everything that was found. Warnings alone are lost: keep them first.
    pub fn or<T>(self, value: Option<T>) -> Result<T, Diagnostics> {
        match value {
            Some(value) if !self.has_errors() => Ok(value),
            _ => Err(self),
        }
    }
    /// As people read it, with a count at the end. Beside errors no warnings: half of them would follow from the errors.
    pub fn render(&self, color: bool) -> String {
        let worst = self.all.iter().map(|d| d.severity).min();
        let mut text = String::new();
        for d in self.all.iter().filter(|d| Some(d.severity) == worst) {
            text += &d.render(color);
            text.push('\n');
        }
        text + &self.summary()
    }
    /// `2 errors; nothing was started. …`, or the count of warnings where there is no error.
    fn summary(&self) -> String {
        let count = |s| self.all.iter().filter(|d| d.severity == s).count();
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        match self.all.iter().find(|d| d.severity == Severity::Error) {
            Some(first) => {
                let errors = plural(count(Severity::Error), "error");
                format!("{errors}; nothing was started. `readback explain {}` tells more.", first.code)
            }
            None => plural(count(Severity::Warning), "warning"),
        }
    }

    fn add(&mut self, severity: Severity, code: Code, at: Option<Site>, message: String) -> &mut Diagnostic {
        let at_end = self.all.len();
        self.all.push(Diagnostic { severity, code, message, at, label: String::new(), notes: Vec::new() });
        &mut self.all[at_end]
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// As one error of the process, with the first code and everything that was found as its cause.
impl From<Diagnostics> for Error {
    fn from(d: Diagnostics) -> Self {
        let first = d.all.iter().find(|d| d.severity == Severity::Error);
        let code = first.map_or(crate::error::codes::BUG, |d| d.code);
        let doing = first.map_or_else(|| "reading files".to_owned(), |d| d.message.clone());
        Error::new(code, Fault::Configuration, doing).because(d)
    }
}

/// Whether a line has a word by which secrets go, with something behind it.
fn may_hold_a_secret(line: &str) -> bool {
    const NAMES: [&str; 6] = ["password", "secret", "token", "authorization", "credential", "api"];
    let line = line.to_lowercase();
    NAMES
        .iter()
        .filter_map(|name| line.split_once(name))
        .any(|(_, rest)| rest.split_once([':', '=']).is_some_and(|(_, v)| !v.trim().is_empty()))
}

/// The known name nearest to `word`, if one is near enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |k: &'a str| (strsim::damerau_levenshtein(word, k), k);
    known.into_iter().map(near).filter(|(d, k)| *d <= 1 + k.len().max(word.len()) / 4).min().map(|(_, k)| k)
}
