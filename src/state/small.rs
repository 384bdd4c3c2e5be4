//! The engine for stores that fit memory: an ordered map, and a log with one frame per batch. The log is rewritten as a snapshot
//! when most of it is overwritten. A frame is `length:u32, checksum:u64, payload`; a torn last frame is cut off when opened.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::changes::Changes;
use super::table::{Mark, MemoryTable};
use super::{StoreResult, failed, value};

/// A log below this is never rewritten.
const REWRITE_FROM: u64 = 4 << 20;
/// Frame header: length and checksum.
const HEADER: usize = 12;
/// Entries in one frame of a snapshot.
const SNAPSHOT_FRAME: usize = 10_000;

/// One small store of one partition.
pub(super) struct SmallTable {
    /// What is committed.
    pub(super) entries: MemoryTable,
    log: Mutex<Log>,
}

struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
    after_rewrite: u64,
}

impl SmallTable {
    /// Reads the log at `path`, or begins one.
    pub(super) fn open(path: PathBuf) -> StoreResult<Self> {
        Self::read(&path).map_err(|e| failed(format!("opening the small store {}", path.display())).because(e))
    }

    fn read(path: &Path) -> std::io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut whole = Vec::new();
        file.read_to_end(&mut whole)?;
        let entries = MemoryTable::default();
        let mut good = 0;
        while let Some((changes, mark, length)) = decode_frame(&whole[good..]) {
            entries.apply(&changes, mark);
            good += length;
        }
        file.set_len(good as u64)?;
        let log = Log { path: path.to_owned(), file, bytes: good as u64, after_rewrite: good as u64 };
        Ok(Self { entries, log: Mutex::new(log) })
    }

    /// Appends one frame, then shows it.
    pub(super) fn apply(&self, changes: &Changes, mark: Option<Mark>) -> StoreResult<()> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = encode_frame(changes, mark);
        let written = log.file.write_all(&frame);
        log.bytes += frame.len() as u64;
        written.map_err(|e| log.failed("appending to").because(e))?;
        self.entries.apply(changes, mark);
        if log.bytes > REWRITE_FROM.max(2 * log.after_rewrite) {
            log.rewrite(&self.entries).map_err(|e| log.failed("rewriting").because(e))?;
        }
        Ok(())
    }

    /// Empties log and map.
    pub(super) fn wipe(&self) -> StoreResult<()> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.file.set_len(0).map_err(|e| log.failed("wiping").because(e))?;
        (log.bytes, log.after_rewrite) = (0, 0);
        self.entries.wipe();
        Ok(())
    }
}

impl Log {
    /// Writes all entries to a new file and puts it in the log's place; the position stands in its last frame.
    fn rewrite(&mut self, entries: &MemoryTable) -> std::io::Result<()> {
        let fresh = self.path.with_extension("new");
        let mut out = BufWriter::new(File::create(&fresh)?);
        let all = entries.entries();
        let mut chunk = Changes::default();
        for (key, value) in all.iter() {
            chunk.insert(key.clone(), Some(value.clone()));
            if chunk.len() == SNAPSHOT_FRAME {
                out.write_all(&encode_frame(&std::mem::take(&mut chunk), None))?;
            }
        }
        out.write_all(&encode_frame(&chunk, entries.position()))?;
        out.into_inner()?.sync_all()?;
        std::fs::rename(&fresh, &self.path)?;
        self.file = OpenOptions::new().read(true).append(true).open(&self.path)?;
        self.bytes = self.file.metadata()?.len();
        self.after_rewrite = self.bytes;
        Ok(())
    }
    fn failed(&self, doing: &str) -> crate::error::Error {
        failed(format!("{doing} the small store {}", self.path.display()))
    }
}

fn encode_frame(changes: &Changes, mark: Option<Mark>) -> Vec<u8> {
    let mut out = vec![0; HEADER];
    value::put(&mut out, mark.map(Mark::to_bytes).as_ref().map(|m| &m[..]));
    for (key, stored) in changes.iter() {
        value::put(&mut out, Some(key));
        value::put(&mut out, stored.as_ref().map(value::encode).as_deref());
    }
    let length = (out.len() - HEADER) as u32;
    let sum = checksum(&out[HEADER..]);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out[4..HEADER].copy_from_slice(&sum);
    out
}

/// The frame at the front and its whole length; `None` where none is complete and sound.
fn decode_frame(mut from: &[u8]) -> Option<(Changes, Option<Mark>, usize)> {
    let length = u32::from_be_bytes(value::take(&mut from, 4)?.try_into().ok()?) as usize;
    let sum = value::take(&mut from, 8)?;
    let mut payload = value::take(&mut from, length)?;
    if checksum(payload) != sum {
        return None;
    }
    let mark = value::get(&mut payload)?.and_then(Mark::from_bytes);
    let mut changes = Changes::default();
    while !payload.is_empty() {
        let key = Bytes::copy_from_slice(value::get(&mut payload)??);
        let stored = match value::get(&mut payload)? {
            Some(bytes) => Some(value::decode(bytes).ok()?),
            None => None,
        };
        changes.insert(key, stored);
    }
    Some((changes, mark, HEADER + length))
}

/// The first eight bytes of the SHA-256.
fn checksum(bytes: &[u8]) -> [u8; 8] {
    let digest = Sha256::digest(bytes);
    std::array::from_fn(|i| digest[i])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::Partition;
    use crate::offset::NextOffset;
    use crate::state::cache::CacheBudget;
    use crate::state::table::Table;
    use crate::state::writer::Writer;
    use crate::state::{Stored, TaskStores};

    fn mark(n: i64) -> Option<Mark> {
        Some(Mark { position: NextOffset(n), seen: 0 })
    }
    fn one(key: &str, value: Option<&str>) -> Changes {
        Changes::from_iter([(Bytes::copy_from_slice(key.as_bytes()), value.map(|v| Stored::bytes(v.to_owned())))])
    }

    /// If this broke, a crash within an append would lose the store, or give half of a batch.
    #[test]
    fn a_torn_last_frame_is_cut_off_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let table = SmallTable::open(path.clone()).expect("opens");
        table.apply(&one("a", Some("1")), mark(1)).expect("writes");
        let sound = std::fs::metadata(&path).expect("is there").len();
        table.apply(&one("b", Some("2")), mark(2)).expect("writes");
        let whole = std::fs::read(&path).expect("is there");
        for cut in sound as usize..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("writes");
            let again = SmallTable::open(path.clone()).expect("opens");
            assert_eq!((again.entries.position(), again.entries.get(b"b")), (mark(1), None), "cut at {cut}");
            again.apply(&one("c", Some("3")), mark(3)).expect("writes on");
            let third = SmallTable::open(path.clone()).expect("opens");
            assert_eq!((third.entries.position(), third.entries.entries().len()), (mark(3), 2));
        }
    }

    /// If this broke, a task would go on over a store that no longer takes its writes, and later batches would hide the gap.
    #[test]
    fn a_failed_write_stops_the_task_until_the_store_is_opened_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let specs = crate::state::tests::specs(crate::state::EngineKind::Small);
        let store = crate::state::StoreId(0);
        let open = || {
            let table = Table::Small(Arc::new(SmallTable::open(path.clone()).expect("opens")));
            let writer = Writer::thread(None).expect("starts");
            let tables = vec![(specs[0].clone(), table.clone())];
            (TaskStores::over(Partition(0), tables, writer, &CacheBudget::new(0)).expect("opens"), table)
        };
        let (mut stores, table) = open();
        stores.put(store, "a".into(), Some(Stored::bytes("1"))).expect("writes");
        stores.committed(&|_| Some(NextOffset(1))).expect("hands over");
        stores.drain().expect("applies");
        let Table::Small(small) = &table else { unreachable!("made small") };
        small.log.lock().expect("nobody panicked").file = File::open(&path).expect("read-only");
        stores.put(store, "b".into(), Some(Stored::bytes("2"))).expect("writes");
        stores.committed(&|_| Some(NextOffset(2))).expect("hands over");
        let error = stores.drain().expect_err("the file is read-only");
        assert_eq!(error.code, crate::error::codes::STORE_FAILED);
        assert!(stores.ready_to_commit(), "the commit itself must meet the error");
        assert!(stores.committed(&|_| Some(NextOffset(3))).is_err());
        assert_eq!(stores.get(store, b"b").expect("reads"), Some(Stored::bytes("2")), "what is not written is still seen");
        drop((stores, table));
        let (mut stores, _) = open();
        assert_eq!(stores.changelogs()[0].1, Some(NextOffset(1)), "exact or low");
        assert_eq!(stores.get(store, b"b").expect("reads"), None);
    }

    /// If this broke, the log of a busy small store would grow for ever, or forget entries or the position when rewritten.
    #[test]
    fn the_log_is_rewritten_and_keeps_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let table = SmallTable::open(path.clone()).expect("opens");
        let big = "x".repeat(100_000);
        for n in 0..200 {
            table.apply(&one(&format!("k{}", n % 7), Some(&big)), mark(n)).expect("writes");
        }
        table.apply(&one("k0", None), mark(200)).expect("writes");
        assert!(std::fs::metadata(&path).expect("is there").len() < 2 * REWRITE_FROM);
        let again = SmallTable::open(path).expect("opens");
        assert_eq!((again.entries.position(), again.entries.entries().len()), (mark(200), 6));
    }
}
