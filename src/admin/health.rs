//! Live and ready, each with a reason. *Ready* means: joined its groups and can reach what it needs; having nothing to do is
//! ready (C125). *Live* fails only where a restart helps: a stream thread that makes no turn (C124).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The answer of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// Fine.
    Ok,
    /// Not, and why.
    No(String),
}

/// What the process knows of itself; written by its threads, read by probes.
#[derive(Debug, Default)]
pub struct Health {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Parts that must be ready, with the reason why they are not yet.
    waiting: BTreeMap<String, String>,
    /// Last turn of each thread.
    turns: BTreeMap<String, Instant>,
}

/// A thread that makes no turn for so long is stuck.
const STUCK: Duration = Duration::from_secs(60);

impl Health {
    /// Says that `part` is not ready, and why.
    pub fn waiting(&self, part: &str, reason: impl Into<String>) {
        self.lock().waiting.insert(part.to_owned(), reason.into());
    }
    /// Says that `part` is ready.
    pub fn ready(&self, part: &str) {
        self.lock().waiting.remove(part);
    }
    /// Says that `thread` made a turn.
    pub fn turned(&self, thread: &str) {
        let now = Instant::now();
        let mut inner = self.lock();
        match inner.turns.get_mut(thread) {
            Some(at) => *at = now,
            None => {
                inner.turns.insert(thread.to_owned(), now);
            }
        }
    }
    /// Says that `thread` has ended in order.
    pub fn ended(&self, thread: &str) {
        self.lock().turns.remove(thread);
    }
    /// For `/health/live`.
    pub fn is_live(&self) -> Probe {
        let stuck: Vec<String> = self
            .lock()
            .turns
            .iter()
            .filter(|(_, at)| at.elapsed() > STUCK)
            .map(|(t, at)| format!("{t} for {:?}", at.elapsed()))
            .collect();
        if stuck.is_empty() { Probe::Ok } else { Probe::No(format!("no turn: {}", stuck.join(", "))) }
    }
    /// For `/health/ready`.
    pub fn is_ready(&self) -> Probe {
        let inner = self.lock();
        if inner.waiting.is_empty() {
            return Probe::Ok;
        }
        Probe::No(inner.waiting.iter().map(|(p, r)| format!("{p}: {r}")).collect::<Vec<_>>().join("; "))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
        h.turned("orders-000");
        assert_eq!((h.is_ready(), h.is_live()), (Probe::Ok, Probe::Ok));
    }
}
