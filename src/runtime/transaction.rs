//! The one owner of the transaction: nobody else calls begin, offsets, commit or abort on a sink.

use std::time::Duration;

use crate::error::Code;
use crate::ids::Tp;
use crate::kafka::{Class, KResult, KafkaFault, SlotMark, Source, TxSink};
use crate::offset::NextOffset;
use crate::record::OutRecord;
use crate::task::Emit;
use crate::time::MonoTime;

use super::failpoint;

/// How often a call that asks to be repeated is made with the same arguments; each may last up to its limit.
const TRIES: u32 = 4;
/// How long a full queue is served before the record is tried again, and how often.
const SERVE: Duration = Duration::from_millis(10);
const SERVINGS: u32 = 1_000;

/// What the open transaction holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// When it began.
    pub since: MonoTime,
    /// Records read into it.
    pub read: usize,
    /// Records written in it.
    pub written: usize,
    /// Bytes written in it.
    pub bytes: usize,
}

/// A slot's producer and the transaction that is open on it, if one is.
pub(super) struct Transaction<S: TxSink> {
    sink: Option<S>,
    mark: SlotMark,
    limit: Duration,
    open: Option<Open>,
    /// Dead letters of the open transaction, by their code.
    buried: Vec<Code>,
}

impl<S: TxSink> Transaction<S> {
    /// Without a producer yet: see [`replace`](Self::replace). Every single call lasts `limit` at most.
    pub(super) fn new(mark: SlotMark, limit: Duration) -> Self {
        Self { sink: None, mark, limit, open: None, buried: Vec::new() }
    }

    /// Drops the producer; whatever was open in it is nobody's any more and is taken back when its id is initialised again.
    pub(super) fn drop_sink(&mut self) {
        self.open = None;
        self.sink = None;
    }

    /// Puts in a producer that is not initialised yet.
    pub(super) fn replace(&mut self, sink: S) {
        self.drop_sink();
        self.sink = Some(sink);
    }

    /// Whether there is a producer.
    pub(super) fn has_sink(&self) -> bool {
        self.sink.is_some()
    }

    /// Fences whoever had the id before.
    pub(super) fn init(&mut self) -> KResult<()> {
        self.sink()?.init()
    }

    /// The open transaction.
    pub(super) fn open(&self) -> Option<&Open> {
        self.open.as_ref()
    }

    /// Opens a transaction where none is open.
    pub(super) fn ensure_open(&mut self, now: MonoTime) -> KResult<()> {
        if self.open.is_none() {
            failpoint!("begin.before");
            self.sink()?.begin()?;
            self.buried.clear();
            self.open = Some(Open { since: now, read: 0, written: 0, bytes: 0 });
            failpoint!("begin.after");
        }
        Ok(())
    }

    /// The dead letters of the transaction that was just committed.
    pub(super) fn take_buried(&mut self) -> Vec<Code> {
        std::mem::take(&mut self.buried)
    }

    /// Counts a record that was read into the open transaction.
    pub(super) fn count_read(&mut self, bytes: usize) {
        if let Some(open) = &mut self.open {
            open.read += 1;
            open.bytes += bytes;
        }
    }

    /// Ends the open transaction with these positions. On an error it is still open; `OutcomeUnknown` says that nobody knows.
    pub(super) fn commit<Src>(&mut self, next: &[(Tp, NextOffset)], source: &mut Src) -> KResult<()>
    where
        Src: Source<Stamp = S::Stamp>,
    {
        let (limit, mark) = (self.limit, self.mark.clone());
        failpoint!("flush.before");
        let sink = self.sink()?;
        sink.flush(limit).map_err(takes_back)?;
        failpoint!("flush.after");
        failpoint!("offsets.before");
        // Taken now, never kept: the generation moves with every rebalance.
        let stamp = source.stamp()?;
        again(|| sink.offsets(next, &mark, &stamp)).map_err(takes_back)?;
        failpoint!("offsets.after");
        failpoint!("commit.before");
        again(|| sink.commit(limit)).map_err(|f| if f.class == Class::Retry { of_class(f, Class::OutcomeUnknown) } else { f })?;
        failpoint!("commit.after");
        self.open = None;
        Ok(())
    }

    /// Takes the open transaction back; flushed first, by the sink. Any error means: make the producer anew.
    pub(super) fn abort(&mut self) -> KResult<()> {
        let limit = self.limit;
        if self.open.is_none() {
            return Ok(());
        }
        failpoint!("abort.before");
        self.sink()?.abort(limit)?;
        self.open = None;
        failpoint!("abort.after");
        Ok(())
    }

    /// The position after the last acknowledged record of this partition.
    pub(super) fn written(&self, tp: &Tp) -> Option<NextOffset> {
        self.sink.as_ref().and_then(|s| s.written(tp))
    }

    fn sink(&mut self) -> KResult<&mut S> {
        self.sink.as_mut().ok_or_else(|| KafkaFault::new(Class::Rebuild, "using the producer of", &self.mark.0, "there is none"))
    }
}

impl<S: TxSink> Emit for Transaction<S> {
    fn emit(&mut self, record: OutRecord<'_>) -> KResult<()> {
        failpoint!("send.before");
        let sink = self.sink.as_mut().filter(|_| self.open.is_some());
        let Some(sink) = sink else {
            return Err(KafkaFault::new(Class::Rebuild, "sending to", record.topic, "no transaction is open"));
        };
        let mut servings = 0;
        while let Err(fault) = sink.send(record) {
            servings += 1;
            if fault.class != Class::Retry || servings > SERVINGS {
                return Err(takes_back(fault));
            }
            if let Err(f) = sink.flush(SERVE)
                && f.class != Class::Retry
            {
                return Err(f);
            }
        }
        if let Some(open) = &mut self.open {
            open.written += 1;
            open.bytes += record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len) + 64;
        }
        failpoint!("send.after");
        Ok(())
    }
    fn buried(&mut self, code: Code) {
        self.buried.push(code);
    }
}

/// Refuses everything: for calls that stand outside any transaction.
pub(super) struct NoTransaction;

impl Emit for NoTransaction {
    fn emit(&mut self, record: OutRecord<'_>) -> KResult<()> {
        Err(KafkaFault::new(Class::Config, "sending to", record.topic, "outside any transaction"))
    }
}

/// Repeats a call that asks for it, with the same arguments.
fn again(mut call: impl FnMut() -> KResult<()>) -> KResult<()> {
    let mut tries = 1;
    loop {
        match call() {
            Err(f) if f.class == Class::Retry && tries < TRIES => tries += 1,
            done => return done,
        }
    }
}

/// Before the commit, what stays unfinished is taken back.
fn takes_back(f: KafkaFault) -> KafkaFault {
    if f.class == Class::Retry { of_class(f, Class::Abort) } else { f }
}

fn of_class(f: KafkaFault, class: Class) -> KafkaFault {
    KafkaFault { class, ..f }
}
