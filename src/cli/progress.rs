//! How far long work is, on stderr, only on a terminal, and only for people.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::admin::views::Operations;
use crate::error::Result;

use super::Format;

/// Whether a program reads what this command prints.
static FOR_A_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Says once how this command prints: where a program reads it, there are no bars, on a terminal neither.
pub(super) fn printing(format: Format) {
    FOR_A_PROGRAM.store(matches!(format, Format::Json), Ordering::Relaxed);
}

/// Work that is done sooner shows no bar.
const SOON: Duration = Duration::from_millis(400);

/// A bar; gone when it is dropped.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    what: String,
    begun: Instant,
}

impl Progress {
    /// Of work that goes by this name.
    pub fn of(what: &str) -> Self {
        Self { bar: None, what: what.to_owned(), begun: Instant::now() }
    }

    /// So much is done of all.
    pub fn at(&mut self, done: u64, all: u64) {
        if self.bar.is_none() && self.begun.elapsed() >= SOON && !FOR_A_PROGRAM.load(Ordering::Relaxed) {
            // Where stderr is no terminal the library draws nothing.
            let style = ProgressStyle::with_template("{msg} {bar:32} {human_pos} of {human_len} · {eta} left");
            let bar = ProgressBar::new(all).with_message(self.what.clone());
            self.bar = Some(style.map_or(bar.clone(), |style| bar.with_style(style)));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(all);
            bar.set_position(done);
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

/// Reads all that is known of operations.
pub(super) fn catch_up(operations: &mut Operations) -> Result<()> {
    let mut progress = Progress::of("reading operations");
    operations.catch_up_telling(&mut |done, all| progress.at(done, all))
}
