//! Where warm copies stand. Assignment by range is a pure function of the slots and the partition counts, so every process can tell
//! what it would be given if any one other process were gone: that is what it keeps copies of.

use std::collections::BTreeSet;

use crate::ids::{SlotName, UnitName};

/// The slots of a unit, in the order in which range counts them: by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Slots(BTreeSet<(SlotName, u32)>);

impl Slots {
    /// Those of these numbers.
    pub(super) fn of(unit: &UnitName, numbers: impl IntoIterator<Item = u32>) -> Self {
        Self(numbers.into_iter().map(|n| (SlotName::from(format!("{unit}-{n:03}")), n)).collect())
    }

    /// The number of a slot of this unit, by its name.
    pub(super) fn number(unit: &UnitName, client_id: &str) -> Option<u32> {
        client_id.strip_prefix(unit.as_str())?.strip_prefix('-')?.parse().ok()
    }

    /// Which of the partitions `0..count` range gives to these of the slots: each slot a block, the first ones one more where it
    /// does not come out even.
    fn given(&self, count: u32, ours: &BTreeSet<u32>) -> BTreeSet<u32> {
        let slots = u32::try_from(self.0.len()).unwrap_or(u32::MAX).max(1);
        let (each, more) = (count / slots, count % slots);
        let mut first = 0;
        let mut given = BTreeSet::new();
        for (place, (_, number)) in (0..).zip(&self.0) {
            let size = each + u32::from(place < more);
            if ours.contains(number) {
                given.extend(first..first + size);
            }
            first += size;
        }
        given
    }

    fn without(&self, process: u32, threads: u32) -> Self {
        Self(self.0.iter().filter(|(_, n)| n / threads != process).cloned().collect())
    }
}

/// The partitions of `0..count` that the process with the slots `ours` has not, and would be given if any one other process were gone.
/// A process has `threads` slots of the unit, `ordinal × threads` and on.
pub(super) fn copies(live: &Slots, ours: &BTreeSet<u32>, threads: u32, count: u32) -> BTreeSet<u32> {
    let threads = threads.max(1);
    let us: BTreeSet<u32> = ours.iter().map(|n| n / threads).collect();
    let others: BTreeSet<u32> = live.0.iter().map(|(_, n)| n / threads).filter(|p| !us.contains(p)).collect();
    let now = live.given(count, ours);
    let then = others.into_iter().flat_map(|gone| live.without(gone, threads).given(count, ours));
    then.filter(|p| !now.contains(p)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots_of(process: u32, threads: u32) -> BTreeSet<u32> {
        (process * threads..(process + 1) * threads).collect()
    }

    /// If this broke, the death of some process would leave a partition with a member that has to read its whole changelog first.
    #[test]
    fn whatever_process_dies_each_partition_goes_to_one_that_has_it_or_a_copy() {
        let unit = UnitName::new("orders");
        for (processes, threads, count) in
            (2..=6).flat_map(|m| (1..=3).flat_map(move |t| [1, 2, 5, 8, 12, 13, 30].map(move |n| (m, t, n))))
        {
            let live = Slots::of(&unit, 0..processes * threads);
            let has = |p: u32| {
                let ours = slots_of(p, threads);
                let owned = live.given(count, &ours);
                (owned, copies(&live, &ours, threads, count))
            };
            for dead in 0..processes {
                let after = live.without(dead, threads);
                for survivor in (0..processes).filter(|p| *p != dead) {
                    let (owned, copied) = has(survivor);
                    let then = after.given(count, &slots_of(survivor, threads));
                    let cold: Vec<_> = then.iter().filter(|p| !owned.contains(p) && !copied.contains(p)).collect();
                    assert!(cold.is_empty(), "{processes}×{threads}, {count}: {dead} died, {survivor} has to read {cold:?}");
                    assert!(owned.is_disjoint(&copied));
                }
            }
        }
    }

    /// If this broke, copies would cost several times the disk that the page says.
    #[test]
    fn a_partition_is_copied_by_its_neighbours_only() {
        let live = Slots::of(&UnitName::new("orders"), 0..8);
        let mut holders = vec![0; 24];
        for process in 0..8 {
            for p in copies(&live, &slots_of(process, 1), 1, 24) {
                holders[p as usize] += 1;
            }
        }
        assert!(holders.iter().all(|n| (1..=2).contains(n)), "{holders:?}");
    }

    /// If this broke, the effect unit's slots would count as the stream unit's, and a process alone would copy from nobody.
    #[test]
    fn only_the_units_own_slots_count() {
        let unit = UnitName::new("orders");
        assert_eq!(Slots::number(&unit, "orders-007"), Some(7));
        for other in ["orders.effects-007", "orders-", "orders-a", "orders-7-1", "other-007"] {
            assert_eq!(Slots::number(&unit, other), None, "{other}");
        }
        assert!(copies(&Slots::of(&unit, 0..2), &slots_of(0, 2), 2, 8).is_empty());
    }
}
