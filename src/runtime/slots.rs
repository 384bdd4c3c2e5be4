//! Which slots this process takes, and making sure that nobody else lives in them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::UnitName;
use crate::kafka::{Cluster, Slot};
use crate::state::SlotLock;
use crate::time::SharedClock;

use super::error_of;
use super::options::SlotChoice;

/// Slots of one unit that one state directory may have, at most.
const MOST: u32 = 1_000;
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// A slot's number and the lock that proves that its former process on this directory is dead.
#[derive(Debug)]
pub(super) struct Taken {
    pub number: u32,
    pub lock: Option<SlotLock>,
}

/// The rule where nothing is configured: the pod's ordinal if the host is named like a member of a stateful set
/// (`orders-2`), else the lowest free slots.
pub fn detect_slots(host: &str) -> SlotChoice {
    let ordinal = host.rsplit_once('-').and_then(|(name, n)| (!name.is_empty() && n.len() <= 4).then(|| n.parse().ok()).flatten());
    ordinal.map_or(SlotChoice::Lowest, SlotChoice::Ordinal)
}

/// The slots of a unit's threads, where those are named; else counted from 0.
pub(super) fn numbers(choice: SlotChoice, threads: u32) -> impl Iterator<Item = u32> {
    let first = match choice {
        SlotChoice::From(first) => first,
        SlotChoice::Ordinal(ordinal) => ordinal * threads,
        SlotChoice::Lowest => 0,
    };
    (0..threads).map(move |t| first + t)
}

/// Takes one slot for each thread of a unit. Without a directory there is no lock, and `Lowest` counts from 0.
pub(super) fn choose(choice: SlotChoice, unit: &UnitName, threads: u32, dir: Option<&Path>) -> Result<Vec<Taken>> {
    numbers(choice, threads)
        .map(|number| match (dir, choice) {
            (None, _) => Ok(Taken { number, lock: None }),
            (Some(dir), SlotChoice::Lowest) => {
                let lock = SlotLock::lowest(dir, unit, MOST)?.ok_or_else(|| locked(unit, MOST))?;
                Ok(Taken { number: lock.number, lock: Some(lock) })
            }
            (Some(dir), _) => {
                let lock = SlotLock::take(dir, unit, number)?.ok_or_else(|| locked(unit, number))?;
                Ok(Taken { number: lock.number, lock: Some(lock) })
            }
        })
        .collect()
}

fn locked(unit: &UnitName, number: u32) -> Error {
    Error::new(codes::SLOT_TAKEN, Fault::SlotTaken, format!("taking slot {unit}-{number:03}"))
        .because("another process holds its lock in this state directory")
        .next("stop that process, or give this one another state directory and other slots")
}

/// Waits until the group no longer lists this slot; whoever holds its lock may join at once (after a crash the dead member
/// stays listed for a session). Still listed after one session means that somebody lives there.
pub(super) fn wait_until_free<C: Cluster>(
    cluster: &C,
    slot: &Slot,
    held: bool,
    session: Duration,
    clock: &SharedClock,
    stop: &AtomicBool,
) -> Result<()> {
    if held {
        return Ok(());
    }
    let admin = cluster.admin().map_err(error_of)?;
    let name = slot.name();
    let since = clock.now().mono;
    while !stop.load(Ordering::Acquire) {
        let members = admin.members(&slot.group).map_err(error_of)?;
        let Some(other) = members.iter().find(|m| m.client_id == name.as_str()) else { return Ok(()) };
        if clock.now().mono.since(since) > session {
            return Err(Error::new(codes::SLOT_TAKEN, Fault::SlotTaken, format!("joining {} as {name}", slot.group))
                .because(format!("a live member of that name connects from {}", other.host))
                .next("stop that process, or give this one another slot"));
        }
        tracing::info!(slot = %name, host = %other.host, "the slot is still listed; waiting for one session");
        std::thread::park_timeout(ASK_AGAIN);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, two pods of a stateful set would take the same slots and fence each other.
    #[test]
    fn slots_follow_the_pods_ordinal() {
        assert_eq!(detect_slots("orders-2"), SlotChoice::Ordinal(2));
        for host in ["orders", "orders-7d9f8-x2x4z", "-3", "orders-20261130"] {
            assert_eq!(detect_slots(host), SlotChoice::Lowest, "{host}");
        }
        let taken = choose(SlotChoice::Ordinal(2), &UnitName::new("u"), 3, None).expect("slots");
        assert_eq!(taken.iter().map(|t| t.number).collect::<Vec<_>>(), [6, 7, 8]);
    }
}
