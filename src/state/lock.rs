//! File locks: one process per state directory, one holder per slot. The system frees them when the process dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::ids::UnitName;

use super::{StoreResult, failed};

/// Takes the lock on `path`, creating the file and its directories; `None` where someone else has it.
pub(super) fn try_lock(path: &Path) -> StoreResult<Option<File>> {
    let doing = || failed(format!("locking {}", path.display()));
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| doing().because(e))?;
    }
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(|e| doing().because(e))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(doing().because(e)),
    }
}

/// The lock on one slot within a state directory; freed when dropped or when the process dies.
#[derive(Debug)]
pub struct SlotLock {
    /// The slot's number.
    pub number: u32,
    _file: File,
}

impl SlotLock {
    /// Takes this slot's lock, `<dir>/slots/<unit>-NNN.lock`; `None` where another process (or thread) holds it.
    ///
    /// # Errors
    /// `STORE_FAILED` where the directory can't be written.
    pub fn take(dir: &Path, unit: &UnitName, number: u32) -> StoreResult<Option<SlotLock>> {
        let path = dir.join("slots").join(format!("{unit}-{number:03}.lock"));
        Ok(try_lock(&path)?.map(|file| SlotLock { number, _file: file }))
    }
    /// Takes the lowest slot that is free in this directory, up to `limit`.
    ///
    /// # Errors
    /// As [`SlotLock::take`].
    pub fn lowest(dir: &Path, unit: &UnitName, limit: u32) -> StoreResult<Option<SlotLock>> {
        for n in 0..limit {
            if let Some(lock) = Self::take(dir, unit, n)? {
                return Ok(Some(lock));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, two members of one machine would take the same slot and fence each other in turn.
    #[test]
    fn a_slot_has_one_holder_and_is_free_again_after() {
        let dir = tempfile::tempdir().expect("a directory");
        let unit = UnitName::new("orders");
        let first = SlotLock::lowest(dir.path(), &unit, 2).expect("locks").expect("free");
        let second = SlotLock::lowest(dir.path(), &unit, 2).expect("locks").expect("free");
        assert_eq!((first.number, second.number), (0, 1));
        assert!(SlotLock::lowest(dir.path(), &unit, 2).expect("locks").is_none());
        assert!(SlotLock::take(dir.path(), &UnitName::new("orders.effects"), 0).expect("locks").is_some());
        drop(first);
        assert_eq!(SlotLock::lowest(dir.path(), &unit, 2).expect("locks").expect("free").number, 0);
    }
}
