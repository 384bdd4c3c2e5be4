//! What is costly to ask for, and as good for all who look within a few seconds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Result;

/// A value that is made anew where it is asked for and too old. Nobody asks: nothing is made.
pub struct Fresh<T> {
    lasts: Duration,
    kept: Mutex<Option<(Instant, T)>>,
    /// Held by whoever makes it.
    making: Mutex<()>,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Clone + Send + 'static> Fresh<T> {
    /// One that is good for so long.
    pub fn new(lasts: Duration) -> Self {
        Self { lasts, kept: Mutex::default(), making: Mutex::default() }
    }

    fn good(&self) -> Option<T> {
        held(&self.kept).as_ref().filter(|(at, _)| at.elapsed() < self.lasts).map(|(_, value)| value.clone())
    }

    /// The value; waits where it must be made, as others do who ask meanwhile.
    ///
    /// # Errors
    /// As `make`; that is kept for nobody.
    pub fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let _making = held(&self.making);
        if let Some(value) = self.good() {
            return Ok(value);
        }
        let value = make()?;
        *held(&self.kept) = Some((Instant::now(), value.clone()));
        Ok(value)
    }

    /// The last value, without waiting; where it is too old, a thread makes another. What takes long is made less often: no more than a
    /// twentieth of the time is spent on it.
    pub fn last(self: &Arc<Self>, make: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.good().is_none() && self.making.try_lock().is_ok() {
            let me = self.clone();
            let made = std::thread::Builder::new().name("console-fresh".into()).spawn(move || {
                let Ok(_making) = me.making.try_lock() else { return };
                let begun = Instant::now();
                let value = make();
                let rest = (begun.elapsed() * 20).saturating_sub(me.lasts);
                *held(&me.kept) = Some((Instant::now() + rest, value));
            });
            if let Err(e) = made {
                tracing::error!(error = %e, "the console has no thread to look");
            }
        }
        held(&self.kept).as_ref().map(|(_, value)| value.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// If this broke, each look of each person would ask the brokers anew, or nobody would ever see a newer value.
    #[test]
    fn a_value_is_made_once_for_all_until_it_is_old() {
        let made = Arc::new(AtomicUsize::new(0));
        let fresh = Arc::new(Fresh::new(Duration::from_secs(600)));
        let make = || Ok(made.fetch_add(1, Ordering::AcqRel) + 1);
        assert_eq!((fresh.get(make).expect("made"), fresh.get(make).expect("kept")), (1, 1));
        assert_eq!(fresh.last(|| 7), Some(1), "nothing is made where it is good");
        let old = Arc::new(Fresh::new(Duration::ZERO));
        assert_eq!((old.get(make).expect("made"), old.get(make).expect("made anew")), (2, 3));
        let (go, gate) = std::sync::mpsc::channel();
        let slow = move || gate.recv().map_or(0, |()| 9);
        assert_eq!(old.last(slow), Some(3), "it does not wait");
        go.send(()).expect("somebody makes it");
        let later = std::iter::repeat_with(|| old.last(|| 9)).find(|value| *value != Some(3));
        assert_eq!(later, Some(Some(9)));
    }
}
