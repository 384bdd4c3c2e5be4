//! The record cache of a table (`statestore.cache.max.bytes`): changes of one key within a transaction are passed on as one, from what
//! was first to what is last. Nothing of a transaction is visible before its commit, so nobody sees a result later for it.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use crate::ids::TopicName;
use crate::processor::{Change, Next, Process, ProcessorCx, Record};
use crate::record::InRecord;
use crate::serdes::SerdeRef;
use crate::state::CacheShare;
use crate::task::TaskError;

use super::keeping::{self, Lasting};
use super::outlets::Outlets;
use super::table::Asked;

/// What an entry costs beside its bytes, about.
const ENTRY: usize = 256;

/// What a table passes on: through a cache where `cached` says so, and where no step below needs each change at once.
pub(super) fn outlets<K, V>(
    above: Outlets<K, Change<V>>,
    cached: bool,
    changelog: &TopicName,
    (key, value): (SerdeRef<K>, SerdeRef<V>),
    asked: &Asked,
) -> Outlets<K, Change<V>>
where
    K: Clone + 'static,
    V: Clone + 'static,
{
    if !cached {
        return above;
    }
    let out = Outlets::<K, Change<V>>::new();
    let (below, asked, target) = (out.clone(), asked.clone(), changelog.clone());
    above.add(move |parts| {
        let next = below.make(parts);
        if asked.is_at_once() {
            return next;
        }
        let serdes = Serdes { key: key.clone(), value: value.clone(), target: target.clone() };
        keeping::node(RecordCache::new(serdes, parts.environment.record_cache.share(), next), parts)
    });
    out
}

/// How keys are told apart and values weighed.
struct Serdes<K, V> {
    key: SerdeRef<K>,
    value: SerdeRef<V>,
    target: TopicName,
}

/// What is to be passed on of a key.
struct Entry<K, V> {
    record: Record<K, Change<V>>,
    /// The record that the latest change came of: what fails below is put aside as that one.
    origin: Option<InRecord>,
    /// Its place in the order of latest changes.
    turn: u64,
    bytes: usize,
}

/// The node.
struct RecordCache<K, V> {
    serdes: Serdes<K, V>,
    entries: HashMap<Bytes, Entry<K, V>>,
    /// Keys by their latest change. A window's last change thus comes before those that may close it.
    turns: BTreeMap<u64, Bytes>,
    turn: u64,
    bytes: usize,
    share: CacheShare,
    next: Next<K, Change<V>>,
}

impl<K, V> RecordCache<K, V> {
    fn new(serdes: Serdes<K, V>, share: CacheShare, next: Next<K, Change<V>>) -> Self {
        Self { serdes, entries: HashMap::new(), turns: BTreeMap::new(), turn: 0, bytes: 0, share, next }
    }

    fn take(&mut self, key: &Bytes) -> Option<Entry<K, V>> {
        let entry = self.entries.remove(key)?;
        self.turns.remove(&entry.turn);
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Folds a change into what the key has: what was before the first one stays what was.
    fn fold(&mut self, key: Bytes, bytes: usize, mut record: Record<K, Change<V>>, origin: Option<&InRecord>) {
        if let Some(before) = self.take(&key) {
            record.value.old = before.record.value.old;
        }
        // It came and went within the transaction.
        if record.value.old.is_none() && record.value.new.is_none() {
            return;
        }
        let bytes = bytes + origin.map_or(0, InRecord::size);
        self.turn += 1;
        self.bytes += bytes;
        self.turns.insert(self.turn, key.clone());
        self.entries.insert(key, Entry { record, origin: origin.cloned(), turn: self.turn, bytes });
    }

    /// Passes the oldest on until no more than `most` bytes are held.
    fn pass_on(&mut self, most: usize, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        while self.bytes > most
            && let Some((_, key)) = self.turns.pop_first()
            && let Some(Entry { record, origin, bytes, .. }) = self.entries.remove(&key)
        {
            self.bytes -= bytes;
            let next = &mut self.next;
            cx.on_behalf(origin.as_ref(), |cx| {
                let done = next.process(record, cx);
                cx.settle(done)
            })?;
        }
        Ok(())
    }
}

impl<K, V> Process<K, Change<V>> for RecordCache<K, V> {
    fn process(&mut self, record: Record<K, Change<V>>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let to = cx.target(&self.serdes.target);
        let key = self.serdes.key.encode(&record.key, to)?.unwrap_or_default();
        let value = record.value.new.as_ref().map(|v| self.serdes.value.encode(v, to)).transpose()?.flatten();
        let bytes = ENTRY + key.len() + value.map_or(0, |v| v.len());
        self.fold(key, bytes, record, cx.origin());
        self.pass_on(self.share.bytes(), cx)
    }
}

impl<K, V> Lasting for RecordCache<K, V> {
    fn restored(&mut self, _: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        Ok(())
    }
    fn flush(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.pass_on(0, cx)
    }
    fn before_commit(&mut self, _: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        Ok(())
    }
}
