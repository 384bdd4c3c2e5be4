//! What the demo prints: progress on stderr, the table or one JSON object on stdout.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::time::show_duration;

use super::target::Books;
use super::verdict::Verdict;

/// Everything the demo reports; the JSON object of `--output json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `readback.demo/1`.
    pub schema: &'static str,
    /// What repeats the faults.
    pub seed: u64,
    /// What ran underneath: `Kafka` or `in-process log (not Kafka)`.
    pub ran_on: String,
    /// Members.
    pub members: usize,
    /// Seconds from the first request to the verdict.
    pub seconds: f64,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Faults that were really played, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Orders that retrying on error would have placed too many.
    pub retrying_would_double: u64,
    /// Orders that giving up on error would have misreported.
    pub giving_up_would_misreport: u64,
    /// Whether ledger and books agree.
    pub holds: bool,
}

impl Report {
    /// Joins verdict, books and the faults that the story itself played.
    pub fn new(
        seed: u64,
        ran_on: String,
        members: usize,
        took: Duration,
        verdict: Verdict,
        books: &Books,
        own: &[(&str, u64)],
    ) -> Self {
        let mut faults: BTreeMap<String, u64> = books.faults.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
        faults.extend(own.iter().map(|(k, v)| ((*k).to_owned(), *v)));
        let holds = verdict.holds();
        Self {
            schema: "readback.demo/1",
            seed,
            ran_on,
            members,
            seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
            verdict,
            faults,
            retrying_would_double: books.would_double,
            giving_up_would_misreport: books.would_misreport,
            holds,
        }
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let v = &self.verdict;
        let mut out = String::new();
        let took = show_duration(Duration::from_secs_f64(self.seconds));
        let _ = writeln!(
            out,
            "\nreadback demo · seed {} · {} operations · {} members · {} · {took}\n",
            self.seed, v.operations, self.members, self.ran_on
        );
        let _ = writeln!(out, " {:<32} {:>8} {:>22}", "outcome", "ledger", "orders at the target");
        for row in &v.rows {
            let (name, note) = words(&row.outcome);
            let _ = writeln!(out, " {name:<32} {:>8} {:>22}{note}", row.ledger, row.at_target);
        }
        let sign = if v.unknown_is_undecidable { '=' } else { '≠' };
        let _ = writeln!(
            out,
            "\n lost {} · doubled {} · unknown {} {sign} undecidable {}\n",
            v.lost, v.doubled, v.unknown, v.undecidable
        );
        let faults: Vec<String> = self.faults.iter().map(|(k, n)| format!("{} {n}", k.replace('_', " "))).collect();
        let _ = writeln!(out, " broken on purpose   {}", faults.join(" · "));
        let _ = writeln!(
            out,
            " without readback    retrying on error would have placed {} orders too many; giving up on error would have misreported {}",
            self.retrying_would_double, self.giving_up_would_misreport
        );
        for line in v.wrong.iter().take(10) {
            let _ = writeln!(out, " WRONG               {line}");
        }
        let verdict = if self.holds { "ledger and books agree" } else { "LEDGER AND BOOKS DISAGREE" };
        let _ = writeln!(out, "\n {verdict}\n");
        out
    }
}

fn words(outcome: &str) -> (&str, &'static str) {
    match outcome {
        "refused" => ("refused by the target", ""),
        "denied" => ("denied by policy or approver", ""),
        "expired" => ("expired before the first send", ""),
        "parked" => ("parked (unknown)", "  (only these books can tell)"),
        other => (other, ""),
    }
}

/// Live progress: a bar on a terminal where people read, a line now and then elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    slow: bool,
    last: Option<Instant>,
}

impl Progress {
    /// `slow` explains each stage as it happens; `bar` where no program reads what is printed.
    pub fn new(slow: bool, bar: bool) -> Self {
        let style = ProgressStyle::with_template("  {bar:24} {pos} of {len} at rest · {msg} · {elapsed}");
        let bar =
            style.ok().filter(|_| bar && std::io::stderr().is_terminal()).map(|style| ProgressBar::no_length().with_style(style));
        Self { bar, slow, last: None }
    }
    /// A step that stays on the screen.
    pub fn say(&self, text: &str) {
        let line = || eprintln!("· {text}");
        self.bar.as_ref().map_or_else(line, |bar| bar.suspend(line));
    }
    /// Explains, when asked to.
    pub fn explain(&self, text: &str) {
        if self.slow {
            let lines = || eprintln!("    {}", text.replace('\n', "\n    "));
            self.bar.as_ref().map_or_else(lines, |bar| bar.suspend(lines));
            std::thread::sleep(Duration::from_secs(3));
        }
    }
    /// The state right now: so many of all are at rest, and what else there is to say.
    pub fn tick(&mut self, rest: usize, all: usize, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(all as u64);
            bar.set_message(text.to_owned());
            bar.set_position(rest as u64);
        } else if self.last.is_none_or(|last| last.elapsed() >= Duration::from_secs(5)) {
            self.last = Some(Instant::now());
            eprintln!("  {text} · at rest {rest} of {all}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
