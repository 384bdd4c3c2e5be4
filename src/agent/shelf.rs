//! Where things lie in the `operations` store of one partition.
//!
//! `o/<op>␟<tenant>␟<step>` records · `h/<op>␟<id>` what is held for an unknown operation · `d/<time>/<key>` timers ·
//! `f/<record key>` inputs being fetched · `t/<tenant>` budgets · `g/<meaning>` operations that mean the same.

use crate::ids::{DERIVED, OperationId, StepName, Tenant};
use crate::intents::headers;
use crate::outbox::OperationRecord;
use crate::serdes::internal::{Wire, decode, encode};
use crate::state::{StoreId, Stored};
use crate::task::{TaskError, TxCx};
use crate::time::WallTime;

use super::purse::Purse;

/// The task's one store.
pub(super) const STORE: StoreId = StoreId(0);
/// Prefix of records.
pub(super) const RECORDS: &[u8] = b"o/";
/// Prefix of timers.
pub(super) const TIMERS: &[u8] = b"d/";
/// Prefix of claims.
pub(super) const CLAIMS: &[u8] = b"g/";
/// Prefix of what is held.
pub(super) const HELD: &[u8] = b"h/";
/// Prefix of inputs being fetched.
pub(super) const FETCHES: &[u8] = b"f/";
const UNIT: char = '\u{1f}';

/// A record's key.
pub(super) fn record_key(op: &OperationId, tenant: &Tenant, step: &StepName) -> Vec<u8> {
    format!("o/{op}{UNIT}{tenant}{UNIT}{step}").into_bytes()
}

/// Where a signal for an unknown operation is held.
pub(super) fn held_key(op: &OperationId, id: &str) -> Vec<u8> {
    format!("h/{op}{UNIT}{id}").into_bytes()
}

/// For whom something is held.
pub(super) fn held_of(key: &[u8]) -> Option<OperationId> {
    let (op, _) = std::str::from_utf8(key.get(HELD.len()..)?).ok()?.split_once(UNIT)?;
    Some(OperationId::new(op))
}

/// All that is held for an operation.
pub(super) fn held_prefix(op: &OperationId) -> Vec<u8> {
    format!("h/{op}{UNIT}").into_bytes()
}

/// A timer's key: times sort as text.
pub(super) fn timer_key(at: WallTime, target: &[u8]) -> Vec<u8> {
    let mut key = timer_bound(at);
    key.extend_from_slice(target);
    key
}

/// The bound before which timers are due at `at`, itself excluded.
pub(super) fn timer_bound(at: WallTime) -> Vec<u8> {
    format!("d/{:016x}/", (at.0 as u64) ^ (1 << 63)).into_bytes()
}

/// A timer's time and target.
pub(super) fn timer_of(key: &[u8]) -> Option<(WallTime, &[u8])> {
    let time = std::str::from_utf8(key.get(2..18)?).ok()?;
    let time = u64::from_str_radix(time, 16).ok()? ^ (1 << 63);
    Some((WallTime(time as i64), key.get(19..)?))
}

/// Where an input's fetch is noted.
pub(super) fn fetch_key(record: &[u8]) -> Vec<u8> {
    [FETCHES, record].concat()
}

/// Where the operations of one meaning are kept.
pub(super) fn claims_key(meaning: &str) -> Vec<u8> {
    [CLAIMS, meaning.as_bytes()].concat()
}

fn purse_key(tenant: &Tenant) -> Vec<u8> {
    format!("t/{tenant}").into_bytes()
}

/// Reads a record.
pub(super) fn load(cx: &mut TxCx<'_>, key: &[u8]) -> Result<Option<OperationRecord>, TaskError> {
    load_as(cx, key)
}

/// Reads a value.
pub(super) fn load_as<T: Wire>(cx: &mut TxCx<'_>, key: &[u8]) -> Result<Option<T>, TaskError> {
    Ok(cx.get(STORE, key)?.map(|s| decode(&s.value)).transpose()?)
}

/// All records under an operation ID, with their keys.
pub(super) fn records_of(cx: &mut TxCx<'_>, op: &OperationId) -> Result<Vec<(Vec<u8>, OperationRecord)>, TaskError> {
    let mut found = Vec::new();
    for entry in cx.prefix(STORE, format!("o/{op}{UNIT}").as_bytes())? {
        let (key, stored) = entry?;
        let record: OperationRecord = decode(&stored.value)?;
        if record.request.operation_id == *op {
            found.push((key.to_vec(), record));
        }
    }
    Ok(found)
}

/// At most `most` records from this key on, with their keys.
pub(super) fn records_from(cx: &mut TxCx<'_>, from: &[u8], most: usize) -> Result<Vec<(Vec<u8>, OperationRecord)>, TaskError> {
    // The prefix ends in `/`, whose next byte is `0`.
    let scan = cx.range(STORE, Some(from), Some(b"o0"))?;
    let mut found = Vec::new();
    for entry in scan.take(most) {
        let (key, stored) = entry?;
        found.push((key.to_vec(), decode(&stored.value)?));
    }
    Ok(found)
}

/// The replays of an operation.
pub(super) fn replays_of(cx: &mut TxCx<'_>, op: &OperationId) -> Result<Vec<OperationRecord>, TaskError> {
    let mut found = Vec::new();
    for entry in cx.prefix(STORE, format!("o/{op}{DERIVED}r").as_bytes())? {
        let record: OperationRecord = decode(&entry?.1.value)?;
        if record.request.operation_id.replay_number().is_some() {
            found.push(record);
        }
    }
    Ok(found)
}

/// A tenant's budgets.
pub(super) fn load_purse(cx: &mut TxCx<'_>, tenant: &Tenant) -> Result<Purse, TaskError> {
    Ok(load_as(cx, &purse_key(tenant))?.unwrap_or_default())
}

/// Writes a tenant's budgets.
pub(super) fn save_purse(cx: &mut TxCx<'_>, tenant: &Tenant, purse: &Purse) -> Result<(), TaskError> {
    write(cx, &purse_key(tenant), purse)
}

/// Writes a value under its schema's name, by which views tell records apart.
pub(super) fn write<T: Wire>(cx: &mut TxCx<'_>, key: &[u8], value: &T) -> Result<(), TaskError> {
    let mut stored = Stored::bytes(encode(value)?);
    stored.headers.push(headers::SCHEMA, T::SCHEMA);
    cx.put(STORE, key, Some(stored))
}

/// Deletes a value.
pub(super) fn delete(cx: &mut TxCx<'_>, key: &[u8]) -> Result<(), TaskError> {
    cx.put(STORE, key, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a deadline would fire late, or the timers behind it never.
    #[test]
    fn timers_sort_by_time() {
        let times = [WallTime(-5), WallTime(0), WallTime(9), WallTime(10), WallTime(1_800_000_000_000)];
        let keys: Vec<_> = times.iter().map(|t| timer_key(*t, b"o/x")).collect();
        assert!(keys.is_sorted());
        for (key, time) in keys.iter().zip(times) {
            assert_eq!(timer_of(key), Some((time, &b"o/x"[..])));
            assert!(*key >= timer_bound(time) && *key < timer_bound(WallTime(time.0 + 1)));
        }
    }
}
