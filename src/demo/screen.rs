//! What the demo prints: progress on stderr, the table or one JSON object on stdout.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

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

/// Live progress: one line that is rewritten on a terminal, a line now and then elsewhere.
pub struct Progress {
    terminal: bool,
    slow: bool,
    last: std::time::Instant,
}

impl Progress {
    /// `slow` explains each stage as it happens.
    pub fn new(slow: bool) -> Self {
        Self { terminal: std::io::stderr().is_terminal(), slow, last: std::time::Instant::now() - Duration::from_secs(60) }
    }
    /// A step that stays on the screen.
    pub fn say(&self, text: &str) {
        let clear = if self.terminal { "\r\x1b[2K" } else { "" };
        eprintln!("{clear}· {text}");
    }
    /// Explains, when asked to.
    pub fn explain(&self, text: &str) {
        if self.slow {
            eprintln!("    {}", text.replace('\n', "\n    "));
            std::thread::sleep(Duration::from_secs(3));
        }
    }
    /// The state right now.
    pub fn tick(&mut self, text: &str) {
        let every = if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(5) };
        if self.last.elapsed() < every {
            return;
        }
        self.last = std::time::Instant::now();
        if self.terminal {
            eprint!("\r\x1b[2K  {text}");
        } else {
            eprintln!("  {text}");
        }
    }
}
