//! `readback ops watch`: operations as they change.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::admin::evidence;
use crate::admin::views::{Operations, Seen};
use crate::error::{Fault, Result};
use crate::ids::OperationKey;

use super::output::{tone_of, toned};
use super::{Format, ops};

/// How long one look waits.
const LOOK: Duration = Duration::from_millis(500);

/// What is watched.
pub(super) struct Watch<'a> {
    pub operation: Option<&'a str>,
    pub tenant: Option<&'a str>,
    pub status: Option<&'a str>,
}

impl Watch<'_> {
    fn takes(&self, key: &OperationKey, seen: &Seen) -> bool {
        self.operation.is_none_or(|o| key.operation.as_str() == o)
            && self.tenant.is_none_or(|t| key.tenant.as_str() == t)
            && self.status.is_none_or(|w| word(seen) == w)
    }
}

/// Prints each change until the operation that is named has ended, or the time is up.
pub(super) fn run(operations: &mut Operations, what: &Watch<'_>, limit: Option<Duration>, format: Format) -> Result<ExitCode> {
    let begun = Instant::now();
    let mut told = std::collections::BTreeMap::new();
    if what.operation.is_some() {
        for (key, seen) in operations.seen.iter().filter(|(key, seen)| what.takes(key, seen)) {
            tell(key, seen, format);
            told.insert(key.clone(), seen.version());
        }
    }
    loop {
        let ended = |seen: &Seen| seen.status().is_some_and(|s| s.is_end());
        if told.keys().any(|key| operations.seen.get(key).is_some_and(ended)) && what.operation.is_some() {
            return Ok(ExitCode::SUCCESS);
        }
        if limit.is_some_and(|limit| begun.elapsed() >= limit) {
            let open = what.operation.is_some();
            return Ok(if open { ExitCode::from(Fault::Verdict.exit_code()) } else { ExitCode::SUCCESS });
        }
        for key in operations.follow(LOOK)? {
            let Some(seen) = operations.seen.get(&key).filter(|seen| what.takes(&key, seen)) else { continue };
            // Both halves write records of one change.
            if told.get(&key) != Some(&seen.version()) {
                tell(&key, seen, format);
                told.insert(key, seen.version());
            }
        }
    }
}

fn word(seen: &Seen) -> &'static str {
    seen.status().map_or("held", |s| s.word())
}

fn tell(key: &OperationKey, seen: &Seen, format: Format) {
    let (code, detail) = evidence::why(seen);
    let at = evidence::changed_at(seen);
    match format {
        Format::Table => println!(
            "{at}  {:<28} {:<12} {} {:>4}  {}{}",
            key.operation.as_str(),
            key.tenant.as_str(),
            toned(&format!("{:<20}", word(seen)), tone_of(word(seen))),
            seen.version(),
            code.map(|c| format!("{c} ")).unwrap_or_default(),
            detail.unwrap_or_default()
        ),
        Format::Json => println!("{}", ops::line(key, seen)),
    }
}
