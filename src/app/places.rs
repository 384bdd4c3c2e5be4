//! A process's place on its host: the slots that it takes, and the directory that it alone has.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::config::ProcessConfig;
use crate::dsl::Application;
use crate::error::{Error, Fault, Result, codes};
use crate::runtime::SlotChoice;
use crate::state::{StateConfig, StateManager};

use super::handover::Place;

/// Most processes of one application on one state directory.
const PLACES: u32 = 1_000;

/// Where a process keeps state whose first slot is this.
pub(super) fn directory(application: &Application, config: &ProcessConfig, first: u32) -> PathBuf {
    config.state.dir.join(format!("{}-{first:03}", application.id))
}

/// The place that these slots are, where they are named.
pub(super) fn named(application: &Application, config: &ProcessConfig, slots: SlotChoice) -> Option<Place> {
    let (stream, effects) = (config.threads.stream, config.threads.effects);
    let first = match slots {
        SlotChoice::From(first) => first,
        SlotChoice::Ordinal(ordinal) => ordinal * stream,
        SlotChoice::Lowest => return None,
    };
    Some(Place { application: application.id.clone(), first, stream, effects })
}

/// This process's state and slots: `<state.dir>/<name of its first slot>`, which it alone has. Where nothing names the slot, it is
/// the first place that no living process holds, so that two processes on one host share nothing and each finds its own again.
pub(super) fn place(application: &Application, config: &ProcessConfig, slots: SlotChoice) -> Result<(StateManager, SlotChoice)> {
    let open = |first: u32| {
        let dir = Some(directory(application, config, first));
        StateManager::open(StateConfig { dir, cache: config.state.cache.0, inline: false })
    };
    let threads = config.threads.stream;
    match slots {
        SlotChoice::From(first) => Ok((open(first)?, slots)),
        SlotChoice::Ordinal(ordinal) => Ok((open(ordinal * threads)?, slots)),
        SlotChoice::Lowest => {
            let mut taken = None;
            for ordinal in 0..PLACES {
                match open(ordinal * threads) {
                    Err(e) if e.code == codes::STATE_DIR_LOCKED => taken = Some(e),
                    other => return Ok((other?, SlotChoice::Ordinal(ordinal))),
                }
            }
            Err(taken
                .unwrap_or_else(|| Error::new(codes::STATE_DIR_LOCKED, Fault::SlotTaken, "looking for a free state directory")))
        }
    }
}

/// Tries again while the directory is locked, for `patience` at most.
pub(super) fn freed<T>(patience: Duration, mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let until = Instant::now() + patience;
    loop {
        match open() {
            Err(e) if e.code == codes::STATE_DIR_LOCKED && Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::StreamsBuilder;

    /// If this broke, a second process on one host would not start, or both would take one slot and fence each other in turn.
    #[test]
    fn each_process_on_a_host_has_a_place_of_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let application = StreamsBuilder::new("orders").build().expect("an application");
        let mut config = ProcessConfig::default();
        config.state.dir = dir.path().to_owned();
        config.threads.stream = 2;
        let lowest = || place(&application, &config, SlotChoice::Lowest).expect("a place");
        let ((first, a), (second, b)) = (lowest(), lowest());
        assert_eq!((a, b), (SlotChoice::Ordinal(0), SlotChoice::Ordinal(1)));
        assert!(first.dir().is_some_and(|d| d.ends_with("orders-000")));
        assert!(second.dir().is_some_and(|d| d.ends_with("orders-002")));
        let refused = place(&application, &config, SlotChoice::Ordinal(1)).err().expect("it is taken");
        assert_eq!(refused.code, codes::STATE_DIR_LOCKED);
        first.close().expect("closes");
        drop(first);
        assert_eq!(lowest().1, SlotChoice::Ordinal(0));
    }
}
