//! Live and ready, each with a reason. *Ready* means: joined its groups and can reach what it needs; having nothing to do is
//! ready (C125). *Live* fails only where a restart helps: a stream thread that makes no turn (C124).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::ids::SlotName;
use crate::time::show_duration;

/// The answer of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// Fine.
    Ok,
    /// Not, and why.
    No(String),
}

/// Asks for the threads that have made no turn for so long, each with how long.
type Silent = Box<dyn Fn(Duration) -> Vec<(SlotName, Duration)> + Send + Sync>;

/// What the process knows of itself; written by its threads, read by probes.
#[derive(Default)]
pub struct Health {
    /// Parts that must be ready, with the reason why they are not yet.
    waiting: Mutex<BTreeMap<String, String>>,
    silent: OnceLock<Silent>,
}

/// A thread that makes no turn for so long is stuck.
const STUCK: Duration = Duration::from_secs(60);

impl Health {
    /// Says that `part` is not ready, and why.
    pub fn waiting(&self, part: &str, reason: impl Into<String>) {
        self.lock().insert(part.to_owned(), reason.into());
    }
    /// Says that `part` is ready.
    pub fn ready(&self, part: &str) {
        self.lock().remove(part);
    }
    /// Says whom to ask for threads that are stuck; the first answer stays.
    pub fn watch(&self, silent: impl Fn(Duration) -> Vec<(SlotName, Duration)> + Send + Sync + 'static) {
        let _ = self.silent.set(Box::new(silent));
    }
    /// For `/health/live`.
    pub fn is_live(&self) -> Probe {
        let stuck = self.silent.get().map(|ask| ask(STUCK)).unwrap_or_default();
        if stuck.is_empty() {
            return Probe::Ok;
        }
        let told: Vec<_> = stuck.iter().map(|(slot, time)| format!("{slot} for {}", show_duration(*time))).collect();
        Probe::No(format!("no turn: {}", told.join(", ")))
    }
    /// For `/health/ready`.
    pub fn is_ready(&self) -> Probe {
        let waiting = self.lock();
        if waiting.is_empty() {
            return Probe::Ok;
        }
        Probe::No(waiting.iter().map(|(p, r)| format!("{p}: {r}")).collect::<Vec<_>>().join("; "))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C125: a process with nothing to do would be called not ready and restarted.
    #[test]
    fn nothing_to_do_is_ready() {
        let h = Health::default();
        h.waiting("orders", "restoring");
        assert_eq!(h.is_ready(), Probe::No("orders: restoring".into()));
        h.ready("orders");
        assert_eq!((h.is_ready(), h.is_live()), (Probe::Ok, Probe::Ok));
    }

    /// C124: a process whose thread hangs would be called live for ever, and nobody would restart it.
    #[test]
    fn a_thread_that_hangs_is_not_live() {
        let h = Health::default();
        h.watch(|limit| vec![(SlotName::from("orders-001"), limit * 2)]);
        assert_eq!(h.is_live(), Probe::No("no turn: orders-001 for 2 min".into()));
    }
}
