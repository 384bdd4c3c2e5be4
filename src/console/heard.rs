//! What other processes wrote onto the audit topic that this one must know: sessions that were ended, orders that wait for a second
//! person, and those that were confirmed. Only where processes share a secret: else nothing of others means anything here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::ids::{ApplicationId, CommandId, Tp};
use crate::intents::topics;
use crate::kafka::{Cluster, Isolation, KResult, Reader};
use crate::offset::NextOffset;
use crate::record::InRecord;
use crate::time::{SharedClock, WallTime};

use super::second::{WAITS, Waiters, Waiting};
use super::session::Sessions;

/// A record of the audit topic, as far as it matters here.
#[derive(Deserialize)]
struct Heard {
    came: String,
    session: Option<String>,
    command: Option<String>,
    waiting: Option<Waiting>,
    seal: Option<String>,
}

/// What it is told to.
pub struct Ears {
    /// Sessions of this process.
    pub sessions: Arc<Sessions>,
    /// Orders that wait.
    pub waiters: Arc<Waiters>,
    /// The time.
    pub clock: SharedClock,
}

impl Ears {
    fn hear(&self, record: &InRecord) {
        let now = self.clock.now().wall;
        // Other programs may write there, too.
        let Some(heard) = record.value.as_deref().and_then(|v| serde_json::from_slice::<Heard>(v).ok()) else { return };
        match (heard.came.as_str(), heard.session, heard.command, heard.waiting) {
            ("signed_out", Some(session), ..) => {
                let at = record.timestamp.unwrap_or(now);
                self.sessions.once(&session, at.plus(self.sessions.lasts), now);
            }
            ("waits", _, _, Some(waiting)) if waiting.is_sealed(heard.seal.as_deref().unwrap_or_default(), &self.sessions) => {
                self.waiters.add(waiting, now);
            }
            ("ordered", _, Some(command), _) => self.waiters.confirmed(&CommandId::new(command)),
            _ => {}
        }
    }
}

/// A running listener; ends when dropped.
pub struct Listener {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// One that failed begins anew after this.
const AGAIN: Duration = Duration::from_secs(1);
/// Records that are stepped back over at once, to begin with.
const BACK: i64 = 1_024;
/// Longest wait for a record that must be there.
const LOOK: Duration = Duration::from_secs(10);

impl Listener {
    /// Starts reading; what is away is waited for.
    pub fn start<C: Cluster>(cluster: C, app: ApplicationId, ears: Ears) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let ended = stop.clone();
        let thread = std::thread::Builder::new().name("console-audit".into()).spawn(move || {
            let mut said = String::new();
            while !ended.load(Ordering::Acquire) {
                if let Err(fault) = follow(&cluster, &app, &ears, &ended) {
                    // Said once: before the first sign-in there is no such topic.
                    if said != fault.to_string() {
                        said = fault.to_string();
                        tracing::warn!(error = %fault, "sign-outs of other processes are not heard; it is tried again");
                    }
                    std::thread::park_timeout(AGAIN);
                }
            }
        });
        if let Err(e) = &thread {
            tracing::error!(error = %e, "the console has no thread to read the audit topic");
        }
        Self { stop, thread: thread.ok() }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Reads from as far back as a session or an order may still hold, until it fails or is stopped.
fn follow<C: Cluster>(cluster: &C, app: &ApplicationId, ears: &Ears, stop: &AtomicBool) -> KResult<()> {
    let mut reader = cluster.reader(Isolation::Committed)?;
    let tp = Tp::new(topics::audit(app), 0);
    let horizon = ears.clock.now().wall.minus(ears.sessions.lasts.max(WAITS));
    let start = since(reader.as_mut(), &tp, horizon)?;
    reader.assign(&[(tp, start)])?;
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        match reader.poll(Duration::from_millis(200))? {
            Some(record) => ears.hear(&record),
            // A reader that never waits would spin.
            None if begun.elapsed() < Duration::from_millis(5) => std::thread::park_timeout(Duration::from_millis(5)),
            None => {}
        }
    }
    Ok(())
}

/// A place before every record that is younger than `horizon`: stepped back to in ever longer steps.
fn since(reader: &mut dyn Reader, tp: &Tp, horizon: WallTime) -> KResult<NextOffset> {
    let (first, end) = reader.ends(tp, Isolation::Committed)?;
    let mut back = BACK;
    loop {
        let at = NextOffset(end.0.saturating_sub(back).max(first.0));
        if at == first {
            return Ok(at);
        }
        reader.assign(&[(tp.clone(), at)])?;
        let until = Instant::now() + LOOK;
        let mut found = None;
        while found.is_none() && Instant::now() < until {
            found = reader.poll(Duration::from_millis(100))?;
        }
        // Without an answer or a time nothing can be left out.
        match found.and_then(|record| record.timestamp) {
            Some(time) if time < horizon => return Ok(at),
            Some(_) => back = back.saturating_mul(4),
            None => return Ok(first),
        }
    }
}
