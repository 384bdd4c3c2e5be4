//! The ledger's store: `s/<op>` status, `b/<op>` body, `o/<lane>/<sequence>/<op>` open operations, `c/<time>/<op>` closed ones,
//! `p/<scope>` what is paused, `w/<contract>/<key>` operations whose target tells by itself how they ended.

use bytes::Bytes;

use crate::error::{Error, Fault, codes};
use crate::ids::{ContractName, OperationKey, OrderingKey};
use crate::intents::Switch;
use crate::serdes::internal;
use crate::state::Stored;
use crate::task::{TaskError, TxCx};
use crate::time::WallTime;

use super::config::LEDGER;
use super::results;
use super::status::{LedgerBody, LedgerRecord, Phase};

const SEPARATOR: char = '\u{1f}';

/// An operation as the ledger's keys have it.
pub type Op = String;

/// A status before a step.
pub struct Was {
    /// What readers of results had seen.
    pub visible: results::Visible,
    /// Where it stood.
    pub phase: Phase,
    /// How many flags it had.
    pub flags: usize,
    /// As the ledger has it.
    bytes: Bytes,
}

/// An operation's key text.
pub fn op(key: &OperationKey) -> Op {
    key.joined()
}

fn key(kind: char, op: &str) -> Vec<u8> {
    format!("{kind}/{op}").into_bytes()
}

fn open_key(r: &LedgerRecord, op: &str) -> Vec<u8> {
    format!("o/{}{SEPARATOR}{}{SEPARATOR}{:020}{SEPARATOR}{op}", r.contract, r.ordering_key, r.sequence).into_bytes()
}

fn closed_key(at: WallTime, op: &str) -> Vec<u8> {
    format!("c/{:020}{SEPARATOR}{op}", at.0.max(0)).into_bytes()
}

/// The status of an operation.
pub fn load(cx: &mut TxCx<'_>, op: &str) -> Result<Option<LedgerRecord>, TaskError> {
    let Some(stored) = cx.get(LEDGER, &key('s', op))? else { return Ok(None) };
    Ok(Some(decode(&stored)?))
}

fn decode(stored: &Stored) -> Result<LedgerRecord, Error> {
    internal::decode(&stored.value).map_err(|mut e: Error| {
        e.code = codes::LEDGER_UNREADABLE;
        e.next("the ledger was written by another version, or damaged: do not reset it; restore the version that wrote it")
    })
}

/// The status of an operation, to go on with; and as it was, to tell what has changed.
pub fn load_to_change(cx: &mut TxCx<'_>, op: &str) -> Result<Option<(LedgerRecord, Was)>, TaskError> {
    let Some(stored) = cx.get(LEDGER, &key('s', op))? else { return Ok(None) };
    let r = decode(&stored)?;
    let was = Was { visible: results::visible(&r), phase: r.phase, flags: r.flags.len(), bytes: stored.value };
    Ok(Some((r, was)))
}

/// Writes the status of an operation, where it is another one than before.
pub fn save(cx: &mut TxCx<'_>, op: &str, r: &LedgerRecord, was: Option<&Was>) -> Result<(), TaskError> {
    let bytes = internal::encode(r)?;
    if was.is_some_and(|was| was.bytes == bytes) {
        return Ok(());
    }
    cx.put(LEDGER, &key('s', op), Some(Stored::bytes(bytes)))
}

/// The exact request of an operation.
pub fn body(cx: &mut TxCx<'_>, op: &str) -> Result<Option<LedgerBody>, TaskError> {
    let Some(stored) = cx.get(LEDGER, &key('b', op))? else { return Ok(None) };
    Ok(Some(internal::decode(&stored.value)?))
}

/// Writes the exact request, once.
pub fn save_body(cx: &mut TxCx<'_>, op: &str, body: &LedgerBody) -> Result<(), TaskError> {
    cx.put(LEDGER, &key('b', op), Some(Stored::bytes(internal::encode(body)?)))
}

/// Enters an operation among the open ones.
pub fn opened(cx: &mut TxCx<'_>, op: &str, r: &LedgerRecord) -> Result<(), TaskError> {
    cx.put(LEDGER, &open_key(r, op), Some(Stored::bytes("1")))
}

/// Moves an operation from the open to the closed ones.
pub fn closed(cx: &mut TxCx<'_>, op: &str, r: &LedgerRecord, forget_at: WallTime) -> Result<(), TaskError> {
    cx.put(LEDGER, &open_key(r, op), None)?;
    list(cx, op, forget_at)
}

/// Lists an operation among those to be deleted at a time.
pub fn list(cx: &mut TxCx<'_>, op: &str, forget_at: WallTime) -> Result<(), TaskError> {
    cx.put(LEDGER, &closed_key(forget_at, op), Some(Stored::bytes("1")))
}

/// Takes it off that list.
pub fn unlist(cx: &mut TxCx<'_>, op: &str, forget_at: WallTime) -> Result<(), TaskError> {
    cx.put(LEDGER, &closed_key(forget_at, op), None)
}

/// Deletes everything of an operation: status and body go together.
pub fn forget(cx: &mut TxCx<'_>, op: &str) -> Result<(), TaskError> {
    cx.put(LEDGER, &key('s', op), None)?;
    cx.put(LEDGER, &key('b', op), None)
}

fn name_key(contract: &ContractName, wire_key: &str) -> Vec<u8> {
    format!("w/{contract}{SEPARATOR}{wire_key}").into_bytes()
}

/// Lets an operation be found by its key on the wire.
pub fn name(cx: &mut TxCx<'_>, op: &str, r: &LedgerRecord) -> Result<(), TaskError> {
    cx.put(LEDGER, &name_key(&r.contract, r.wire_key.as_str()), Some(Stored::bytes(op.to_owned())))
}

/// The operation of a key on the wire.
pub fn named(cx: &mut TxCx<'_>, contract: &ContractName, wire_key: &str) -> Result<Option<Op>, TaskError> {
    let found = cx.get(LEDGER, &name_key(contract, wire_key))?;
    Ok(found.map(|s| String::from_utf8_lossy(&s.value).into_owned()))
}

/// It is found no more.
pub fn unname(cx: &mut TxCx<'_>, r: &LedgerRecord) -> Result<(), TaskError> {
    let key = name_key(&r.contract, r.wire_key.as_str());
    if cx.get(LEDGER, &key)?.is_none() {
        return Ok(());
    }
    cx.put(LEDGER, &key, None)
}

/// Keeps an order to pause; an order to go on deletes it.
pub fn switch(cx: &mut TxCx<'_>, s: &Switch) -> Result<(), TaskError> {
    let text = serde_json::to_vec(s).map_err(|e| Error::new(codes::BUG, Fault::Bug, "writing an order to pause").because(e))?;
    cx.put(LEDGER, &key('p', &s.scope.to_string()), s.paused.then(|| Stored::bytes(text)))
}

/// What is paused.
pub fn switches(cx: &mut TxCx<'_>) -> Result<Vec<Switch>, TaskError> {
    let mut found = Vec::new();
    for entry in cx.prefix(LEDGER, b"p/")? {
        let (_, stored) = entry?;
        let unreadable = |e| Error::new(codes::LEDGER_UNREADABLE, Fault::Data, "reading what is paused").because(e);
        found.push(serde_json::from_slice(&stored.value).map_err(unreadable)?);
    }
    Ok(found)
}

/// All open operations, lane by lane in order.
pub fn all_open(cx: &mut TxCx<'_>) -> Result<Vec<Op>, TaskError> {
    let mut found = Vec::new();
    for entry in cx.prefix(LEDGER, b"o/")? {
        let (k, _) = entry?;
        let text = String::from_utf8_lossy(&k);
        found.extend(text.splitn(4, SEPARATOR).nth(3).map(str::to_owned));
    }
    Ok(found)
}

/// The closed operation that is to be deleted next, with the time it was entered under.
pub fn next_closed(cx: &mut TxCx<'_>) -> Result<Option<(WallTime, Op)>, TaskError> {
    let Some(entry) = cx.prefix(LEDGER, b"c/")?.next() else { return Ok(None) };
    let (k, _) = entry?;
    let text = String::from_utf8_lossy(&k[2..]).into_owned();
    let parsed = text.split_once(SEPARATOR).and_then(|(at, op)| Some((WallTime(at.parse().ok()?), op.to_owned())));
    Ok(parsed)
}

/// A lane: target and ordering key.
pub fn lane(r: &LedgerRecord) -> (String, OrderingKey) {
    (r.contract.to_string(), r.ordering_key.clone())
}
