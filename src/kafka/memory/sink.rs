//! A transactional producer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{SlotName, Tp};
use crate::kafka::{Class, KResult, KafkaFault, SlotMark, TxSink};
use crate::offset::NextOffset;
use crate::record::OutRecord;

use super::faults::{Call, LostAnswer};
use super::{MemoryCluster, MemoryStamp};

/// What the client lets its owner do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Not initialised.
    New,
    /// No transaction.
    Ready,
    /// In a transaction; `touched` once the broker knows of it.
    Open { touched: bool },
    /// Only an abort helps.
    MustAbort,
    /// For good.
    Dead(Class),
}

/// A transactional producer of the in-process log.
#[derive(Debug)]
pub struct MemorySink {
    cluster: MemoryCluster,
    slot: SlotName,
    timeout: Duration,
    epoch: i32,
    phase: Phase,
    written: BTreeMap<Tp, NextOffset>,
}

impl MemorySink {
    pub(super) fn new(cluster: MemoryCluster, slot: SlotName, timeout: Duration) -> Self {
        Self { cluster, slot, timeout, epoch: -1, phase: Phase::New, written: BTreeMap::new() }
    }

    fn fault<T>(&self, class: Class, doing: &'static str, detail: impl std::fmt::Display) -> KResult<T> {
        Err(KafkaFault::new(class, doing, &self.slot, detail))
    }

    /// Whether the broker knows of the open transaction; fails outside one.
    fn open(&self, doing: &'static str) -> KResult<bool> {
        match self.phase {
            Phase::Open { touched } => Ok(touched),
            Phase::MustAbort => self.fault(Class::Abort, doing, "the transaction must be aborted"),
            Phase::Dead(class) => self.fault(class, doing, "this producer is at its end"),
            Phase::New | Phase::Ready => self.fault(Class::Config, doing, "no transaction is open"),
        }
    }

    /// Keeps what an error does to the client.
    fn taint<T>(&mut self, result: KResult<T>) -> KResult<T> {
        match result.as_ref().map_err(|f| f.class) {
            Err(Class::Abort | Class::Config) if matches!(self.phase, Phase::Open { .. }) => self.phase = Phase::MustAbort,
            Err(Class::OutcomeUnknown) => self.phase = Phase::Dead(Class::Rebuild),
            Err(class @ (Class::Fenced | Class::SlotTaken | Class::Rebuild)) => self.phase = Phase::Dead(class),
            Err(_) | Ok(_) => {}
        }
        result
    }

    fn gate(&mut self, call: Call, doing: &'static str) -> KResult<()> {
        let gate = self.cluster.broker().faults.gate(call, doing, self.slot.as_str());
        self.taint(gate)
    }

    fn end(&mut self, doing: &'static str, touched: bool, commit: bool) -> KResult<()> {
        let ended = if touched { self.cluster.broker().end_txn(doing, &self.slot, self.epoch, commit) } else { Ok(()) };
        self.taint(ended)?;
        self.phase = Phase::Ready;
        self.cluster.changed();
        Ok(())
    }
}

impl TxSink for MemorySink {
    type Stamp = MemoryStamp;

    fn init(&mut self) -> KResult<()> {
        if let Phase::Dead(class) = self.phase {
            return self.fault(class, "initialising", "this producer is at its end");
        }
        self.gate(Call::Init, "initialising")?;
        self.epoch = self.cluster.broker().init(&self.slot, self.timeout);
        self.phase = Phase::Ready;
        self.cluster.changed();
        Ok(())
    }

    fn begin(&mut self) -> KResult<()> {
        match self.phase {
            Phase::Ready => {
                self.phase = Phase::Open { touched: false };
                Ok(())
            }
            Phase::Dead(class) => self.fault(class, "beginning", "this producer is at its end"),
            Phase::MustAbort => self.fault(Class::Abort, "beginning", "the transaction must be aborted"),
            Phase::New | Phase::Open { .. } => self.fault(Class::Config, "beginning", "not initialised, or begun already"),
        }
    }

    fn send(&mut self, record: OutRecord<'_>) -> KResult<()> {
        self.open("producing")?;
        self.gate(Call::Send, "producing")?;
        let sent = self.cluster.broker().send(&self.slot, self.epoch, &record);
        let (tp, at) = self.taint(sent)?;
        self.phase = Phase::Open { touched: true };
        self.written.insert(tp, at);
        Ok(())
    }

    fn flush(&mut self, _limit: Duration) -> KResult<()> {
        self.gate(Call::Flush, "flushing")
    }

    fn offsets(&mut self, next: &[(Tp, NextOffset)], mark: &SlotMark, by: &MemoryStamp) -> KResult<()> {
        self.open("sending offsets")?;
        if next.is_empty() {
            return Ok(()); // The real client sends nothing then, and nothing is fenced.
        }
        self.gate(Call::Offsets, "sending offsets")?;
        self.phase = Phase::Open { touched: true };
        let sent = self.cluster.broker().offsets(&self.slot, self.epoch, next, mark, by);
        self.taint(sent)
    }

    fn commit(&mut self, _limit: Duration) -> KResult<()> {
        const DOING: &str = "committing";
        let touched = self.open(DOING)?;
        self.gate(Call::Commit, DOING)?;
        let lost = self.cluster.broker().faults.lost_answer(&self.slot);
        match lost {
            None => return self.end(DOING, touched, true),
            Some(LostAnswer::Applied) => self.end(DOING, touched, true)?,
            Some(LostAnswer::NotApplied) => {}
            Some(LostAnswer::Late) => self.cluster.broker().delay_end(&self.slot, self.epoch),
        }
        let unknown = self.fault(Class::OutcomeUnknown, DOING, "no answer");
        self.taint(unknown)
    }

    fn abort(&mut self, _limit: Duration) -> KResult<()> {
        const DOING: &str = "aborting";
        let touched = if self.phase == Phase::MustAbort { true } else { self.open(DOING)? };
        self.gate(Call::Abort, DOING)?;
        self.end(DOING, touched, false)
    }

    fn written(&self, tp: &Tp) -> Option<NextOffset> {
        self.written.get(tp).copied()
    }
}
