//! What all effect tasks of a process share: the burn registry, permits and breakers per target, and hearsay to publish.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ids::{DispatchToken, Partition};
use crate::intents::Control;
use crate::time::MonoTime;
use crate::trace::Tracer;

use super::metrics::Metrics;

const NEW: u8 = 0;
const HANDED: u8 = 1;
const BURNED: u8 = 2;

/// Hearsay kept while no task can publish it; beyond this the oldest is dropped, and the owner reads the target anyway.
const HEARSAY_KEPT: usize = 4_096;
/// Burned attempts that are remembered for whoever takes them over.
const BURNED_KEPT: usize = 65_536;

/// One attempt between journal and network: whoever moves it first wins.
#[derive(Debug, Default)]
pub struct Handover(AtomicU8);

impl Handover {
    /// The dispatcher's last act before the first byte. `false` = burned: nothing leaves.
    pub fn hand(&self) -> bool {
        self.0.compare_exchange(NEW, HANDED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    /// Whether it was burned.
    pub fn burned(&self) -> bool {
        self.0.load(Ordering::Acquire) == BURNED
    }
    /// The closer's proof that nothing left and nothing will. `false` = it was handed over.
    pub fn burn(&self) -> bool {
        self.0.compare_exchange(NEW, BURNED, Ordering::AcqRel, Ordering::Acquire).is_ok() || self.burned()
    }
}

/// A target's permits: concurrency, breaker, and "not before".
#[derive(Debug)]
struct Gate {
    running: usize,
    limit: usize,
    failures: u32,
    closed_until: MonoTime,
    drift: bool,
}

/// The right to make one call; given back when dropped.
pub struct Permit {
    shared: Arc<Shared>,
    target: String,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(g) = self.shared.lock(&self.shared.gates).get_mut(&self.target) {
            g.running = g.running.saturating_sub(1);
            self.shared.measure(|m| m.calls(&self.target, g.running, g.limit));
        }
    }
}

/// How a call went, for the breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// The target answered.
    Good,
    /// No answer, or one that proves nothing.
    Bad,
    /// The target asks to wait this long.
    Wait(Duration),
}

/// Shared by all effect tasks of a process.
#[derive(Default)]
pub struct Shared {
    handovers: Mutex<HashMap<DispatchToken, Arc<Handover>>>,
    burned: Mutex<VecDeque<DispatchToken>>,
    gates: Mutex<HashMap<String, Gate>>,
    hearsay: Mutex<VecDeque<(Partition, Control)>>,
    metrics: Option<Metrics>,
    tracer: Tracer,
}

impl Shared {
    fn lock<'a, T>(&self, m: &'a Mutex<T>) -> MutexGuard<'a, T> {
        m.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One whose tasks record these metrics.
    pub fn measured(metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..Self::default() }
    }
    /// As it is, and with spans of calls that are sampled.
    #[must_use]
    pub fn traced(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }
    /// Makes spans, where somebody traces.
    pub(super) fn tracer(&self) -> &Tracer {
        &self.tracer
    }
    /// Records, where somebody measures.
    pub(super) fn measure(&self, what: impl FnOnce(&Metrics)) {
        if let Some(metrics) = &self.metrics {
            what(metrics);
        }
    }

    // ---- burn registry ----

    /// Enters an attempt when it is journalled.
    pub fn enter(&self, token: &DispatchToken) -> Arc<Handover> {
        let handover = Arc::new(Handover::default());
        self.lock(&self.handovers).insert(token.clone(), Arc::clone(&handover));
        handover
    }
    /// Burns an attempt if this process knows it and has not handed it over. "This process never sent it" is no proof
    /// without the burn.
    pub fn burn(&self, token: &DispatchToken) -> bool {
        let known = self.lock(&self.handovers).get(token).cloned();
        if !known.is_some_and(|h| h.burn()) {
            return false;
        }
        let mut burned = self.lock(&self.burned);
        burned.push_back(token.clone());
        if burned.len() > BURNED_KEPT
            && let Some(oldest) = burned.pop_front()
        {
            self.lock(&self.handovers).remove(&oldest);
        }
        true
    }
    /// Forgets an attempt whose outcome is committed.
    pub fn leave(&self, token: &DispatchToken) {
        self.lock(&self.handovers).remove(token);
    }

    // ---- permits ----

    /// Whether a call to this target may start now.
    pub fn available(&self, target: &str, limit: usize, now: MonoTime) -> bool {
        self.lock(&self.gates).get(target).is_none_or(|g| g.admits(limit, now))
    }
    /// Takes the right to one call.
    pub fn take(self: &Arc<Self>, target: &str, limit: usize, now: MonoTime) -> Option<Permit> {
        let mut gates = self.lock(&self.gates);
        let gate =
            gates.entry(target.to_owned()).or_insert(Gate { running: 0, limit, failures: 0, closed_until: now, drift: false });
        if !gate.admits(limit, now) {
            return None;
        }
        (gate.running, gate.limit) = (gate.running + 1, limit);
        self.measure(|m| {
            m.calls(target, gate.running, limit);
            m.breaker(target, gate.failures >= 8);
        });
        Some(Permit { shared: Arc::clone(self), target: target.to_owned() })
    }
    /// Tells the breaker how a call went. It defers work, it never fails it.
    pub fn report(&self, target: &str, health: Health, now: MonoTime) {
        let mut gates = self.lock(&self.gates);
        let Some(g) = gates.get_mut(target) else { return };
        match health {
            Health::Good => {
                if g.failures >= 8 {
                    self.measure(|m| m.breaker(target, false));
                }
                g.failures = 0;
            }
            Health::Bad => {
                g.failures = g.failures.saturating_add(1);
                if g.failures >= 8 {
                    let pause = Duration::from_millis(500) * (1 << (g.failures - 8).min(6));
                    g.closed_until = g.closed_until.max(now.plus(pause.min(Duration::from_secs(30))));
                    self.measure(|m| {
                        m.closed(target, "breaker");
                        m.breaker(target, true);
                    });
                }
            }
            Health::Wait(d) => {
                g.closed_until = g.closed_until.max(now.plus(d.min(Duration::from_secs(300))));
                self.measure(|m| m.closed(target, "asked_to_wait"));
            }
        }
    }
    /// Notes whether our clock and the target's disagree by more than is declared.
    pub fn drifts(&self, target: &str, drift: bool) {
        if let Some(g) = self.lock(&self.gates).get_mut(target) {
            if drift && !g.drift {
                tracing::warn!(
                    target_api = target,
                    "the target's clock and ours disagree by more than is declared: absence and keys are not believed"
                );
            }
            g.drift = drift;
        }
    }
    /// Whether they do.
    pub fn drift(&self, target: &str) -> bool {
        self.lock(&self.gates).get(target).is_some_and(|g| g.drift)
    }

    // ---- hearsay ----

    /// Leaves what a former owner saw for any task of this process to publish.
    pub fn hear(&self, partition: Partition, said: Control) {
        let mut hearsay = self.lock(&self.hearsay);
        if hearsay.len() >= HEARSAY_KEPT {
            hearsay.pop_front();
            tracing::warn!("hearsay dropped: no task of this process could publish it in time; its owner reads the target");
        }
        hearsay.push_back((partition, said));
    }
    /// Takes all of it.
    pub fn heard(&self) -> Vec<(Partition, Control)> {
        self.lock(&self.hearsay).drain(..).collect()
    }
    /// Whether there is some.
    pub fn has_heard(&self) -> bool {
        !self.lock(&self.hearsay).is_empty()
    }
}

impl Gate {
    fn admits(&self, limit: usize, now: MonoTime) -> bool {
        // After a breaker has been open, one call probes.
        let limit = if self.failures >= 8 { 1 } else { limit.max(1) };
        self.running < limit && now >= self.closed_until
    }
}
