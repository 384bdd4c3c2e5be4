//! How far long work is, on stderr and only on a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::admin::views::Operations;
use crate::error::Result;

/// Work that is done sooner shows no bar.
const SOON: Duration = Duration::from_millis(400);

/// A bar; gone when it is dropped.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    what: &'static str,
    begun: Instant,
}

impl Progress {
    /// Of work that goes by this name.
    pub fn of(what: &'static str) -> Self {
        Self { bar: None, what, begun: Instant::now() }
    }

    /// So much is done of all.
    pub fn at(&mut self, done: u64, all: u64) {
        if self.bar.is_none() && self.begun.elapsed() >= SOON {
            // Where stderr is no terminal the library draws nothing.
            let style = ProgressStyle::with_template("{msg} {bar:32} {human_pos} of {human_len} · {eta} left");
            let bar = ProgressBar::new(all).with_message(self.what);
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
