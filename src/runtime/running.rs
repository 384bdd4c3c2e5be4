//! One task at work: its stores, where its inputs stand, and what the open transaction holds of it.

use crate::ids::{TaskId, Tp};
use crate::kafka::{Class, KResult, KafkaFault, Reading, Source, TxSink};
use crate::offset::{NextOffset, Offset};
use crate::record::InRecord;
use crate::state::TaskStores;
use crate::task::{Appetite, Close, Task, TaskError, TxCx};
use crate::time::{MonoTime, Now};

use super::Step;
use super::failpoint;
use super::held::Held;
use super::metrics::{Behind, Share};
use super::transaction::{NoTransaction, Transaction};

/// A source partition of a task.
#[derive(Debug)]
pub(super) struct Part {
    pub tp: Tp,
    pub reading: Reading,
    /// The position that the group knows.
    pub committed: NextOffset,
    /// The position after the last record handed to the task.
    pub next: NextOffset,
    /// Whether the source has read here since the last start or rewind; before that its own position may be the old one.
    read: bool,
    /// A record taken from the split queue and not handed to the task yet.
    head: Option<InRecord>,
    /// Since when the split queue has been empty without being known as drained.
    waiting: Option<MonoTime>,
    drained: bool,
    share: Share,
}

impl Part {
    pub(super) fn new(tp: Tp, reading: Reading, start: NextOffset) -> Self {
        let share = Share::default();
        Self { tp, reading, committed: start, next: start, read: false, head: None, waiting: None, drained: false, share }
    }

    /// Where reading goes on, past control records where the source stands there.
    pub(super) fn position<S: Source>(&self, source: &S) -> NextOffset {
        match &self.head {
            Some(head) => NextOffset(head.offset.0),
            None if self.read => source.position(&self.tp).map_or(self.next, |p| p.max(self.next)),
            None => self.next,
        }
    }

    /// Forgets what was read ahead: reading goes on here.
    pub(super) fn start_at(&mut self, next: NextOffset) {
        *self = Self::new(self.tp.clone(), self.reading, next);
    }

    /// Looks for the next record of a split partition.
    fn fill<S: Source>(&mut self, source: &mut S, now: MonoTime) -> KResult<()> {
        use crate::kafka::Input;
        while self.head.is_none() {
            match source.next_of(&self.tp) {
                Some(Input::Record(r)) if r.offset.0 < self.next.0 => continue,
                Some(Input::Record(r)) => {
                    (self.head, self.drained, self.waiting) = (Some(r), false, None);
                }
                Some(Input::Drained(_)) => self.drained = true,
                Some(Input::Fault(f)) if f.class != Class::Retry => return Err(f),
                Some(_) => continue,
                None => {
                    if !self.drained {
                        let (at, end) = (source.position(&self.tp), source.known_end(&self.tp));
                        self.drained = at.zip(end).is_some_and(|(at, end)| at >= end);
                    }
                    self.waiting = (!self.drained).then_some(self.waiting.unwrap_or(now));
                    break;
                }
            }
        }
        Ok(())
    }
}

/// One task at work.
pub(super) struct Running {
    pub id: TaskId,
    pub task: Box<dyn Task>,
    pub stores: TaskStores,
    pub parts: Vec<Part>,
    /// Whether the open transaction holds anything of it.
    pub touched: bool,
    /// Why it stands still, or did until its latest try.
    pub held: Option<Held>,
}

impl Running {
    /// Hands one record of a shared partition over. While the task stands still they are dropped: they come again.
    pub(super) fn process<S: TxSink>(&mut self, record: InRecord, tx: &mut Transaction<S>, now: Now) -> Step<()> {
        let still = self.stands_until().is_some();
        let Some(i) = self.parts.iter().position(|p| p.tp == record.tp) else { return Ok(()) };
        let part = &mut self.parts[i];
        if still || record.offset.0 < part.next.0 {
            return Ok(());
        }
        let offset = record.offset;
        // First of all: the record is taken from the source, so whatever fails from here on must bring it back.
        self.touched = true;
        let passed = record.offset.next().0 - part.next.0;
        part.share = Share { passed: part.share.passed + passed, records: part.share.records + 1 };
        (part.next, part.read) = (record.offset.next(), true);
        tx.ensure_open(now.mono)?;
        tx.count_read(record.size());
        let done = self.task.process(record, &mut TxCx::new(now, tx, &mut self.stores));
        done.map_err(|e| self.hold(e, Some((self.parts[i].tp.clone(), offset)), now))
    }

    /// Takes note of a try that has to be made again.
    fn hold(&mut self, error: TaskError, record: Option<(Tp, Offset)>, now: Now) -> TaskError {
        if let TaskError::Held(why) = &error {
            self.held = Some(Held::again(self.held.take(), record, why.clone(), now.mono));
        }
        error
    }

    /// Whether this is the record that it was held at, and work before it is open: that is to be committed first, since the next
    /// try may be taken back again. The record itself is taken from the source and must not count as done by that commit.
    pub(super) fn commits_before(&mut self, record: &InRecord) -> bool {
        let first = self.touched && self.held.as_ref().is_some_and(|h| h.is_at(&record.tp, record.offset));
        if first {
            self.parts.iter_mut().filter(|p| p.tp == record.tp).for_each(|p| p.read = false);
        }
        first
    }

    /// Whether a split partition has come to such a record.
    pub(super) fn wants_commit_first(&self) -> bool {
        self.touched && self.parts.iter().any(|p| self.is_held_at_head(p))
    }

    fn is_held_at_head(&self, part: &Part) -> bool {
        let at = |head: &InRecord| self.held.as_ref().is_some_and(|h| h.is_at(&part.tp, head.offset));
        part.head.as_ref().is_some_and(at)
    }

    /// When it is tried again, where it stands still.
    pub(super) fn stands_until(&self) -> Option<MonoTime> {
        self.held.as_ref().filter(|h| h.still).map(|h| h.until)
    }

    /// Hands over records of split partitions, the oldest timestamp first, up to `most`. A partition without a record is waited
    /// for until it is drained, or for `idle`; one for which the task is full is neither read nor waited for.
    pub(super) fn feed<Src: Source, S: TxSink>(
        &mut self,
        source: &mut Src,
        tx: &mut Transaction<S>,
        now: Now,
        most: usize,
        idle: std::time::Duration,
    ) -> Step<usize> {
        let mut fed = 0;
        while fed < most
            && let Some(i) = self.oldest(source, now.mono, idle)?
            && !(self.touched && self.is_held_at_head(&self.parts[i]))
        {
            let Some(record) = self.parts[i].head.take() else { break };
            self.process(record, tx, now)?;
            fed += 1;
        }
        Ok(fed)
    }

    fn oldest<Src: Source>(&mut self, source: &mut Src, now: MonoTime, idle: std::time::Duration) -> KResult<Option<usize>> {
        let mut best = None;
        for (i, part) in self.parts.iter_mut().enumerate().filter(|(_, p)| p.reading == Reading::Split) {
            if matches!(self.task.appetite(&part.tp), Appetite::Full | Appetite::Take(0)) {
                continue;
            }
            part.fill(source, now)?;
            match &part.head {
                Some(head) if best.is_none_or(|(at, _)| head.timestamp < at) => best = Some((head.timestamp, i)),
                Some(_) => {}
                None if part.waiting.is_some_and(|since| now.since(since) < idle) => return Ok(None),
                None => {}
            }
        }
        Ok(best.map(|(_, i)| i))
    }

    /// Lets time pass for the task, where it has something to do.
    pub(super) fn wake<S: TxSink>(&mut self, tx: &mut Transaction<S>, now: Now) -> Step<bool> {
        if self.stands_until().is_some() || !self.task.wants_wake(now) {
            return Ok(false);
        }
        self.touched = true;
        tx.ensure_open(now.mono)?;
        let done = self.task.wake(now, &mut TxCx::new(now, tx, &mut self.stores));
        done.map_err(|e| self.hold(e, None, now)).map(|()| true)
    }

    /// Lets the task take back what has not left yet, and write that down.
    pub(super) fn leave<S: TxSink>(&mut self, tx: &mut Transaction<S>, now: Now) -> Step<()> {
        self.task.leaving();
        self.wake(tx, now).map(drop)
    }

    /// The last chance to write before the commit.
    pub(super) fn before_commit<S: TxSink>(&mut self, tx: &mut Transaction<S>, now: Now) -> Step<()> {
        let done = self.task.before_commit(&mut TxCx::new(now, tx, &mut self.stores));
        done.map_err(|e| self.hold(e, None, now))
    }

    /// The positions that the transaction must carry for this task: all that moved, and the first one even if nothing did,
    /// since a transaction without a valid offset would not fence a former owner.
    pub(super) fn offsets<Src: Source>(&self, source: &Src) -> Vec<(Tp, NextOffset)> {
        let at = |p: &Part| (p.tp.clone(), p.position(source));
        let moved: Vec<_> =
            self.parts.iter().map(at).zip(&self.parts).filter(|(o, p)| o.1 != p.committed).map(|(o, _)| o).collect();
        if moved.is_empty() { self.parts.first().map(at).into_iter().collect() } else { moved }
    }

    /// The transaction is committed: stores first, then the task.
    pub(super) fn committed<S: TxSink>(&mut self, offsets: &[(Tp, NextOffset)], tx: &Transaction<S>, at: Now) -> Step<()> {
        self.touched = false;
        for part in &mut self.parts {
            if let Some((_, next)) = offsets.iter().find(|(tp, _)| *tp == part.tp) {
                part.committed = *next;
            }
        }
        if self.held.as_ref().is_some_and(|h| h.is_over(self)) {
            tracing::info!(task = %self.id, "what was held is done");
            self.held = None;
        }
        failpoint!("store.before-write");
        // A store whose log is a topic that we read stands where reading does; any other one where writing does.
        let read = |tp: &Tp| self.parts.iter().find(|p| p.tp == *tp).map(|p| p.committed);
        self.stores.committed(&|tp| read(tp).or_else(|| tx.written(tp)))?;
        failpoint!("committed.before");
        self.task.committed(at);
        failpoint!("committed.after");
        Ok(())
    }

    /// Drops what the transaction held: overlay, heads, progress. Reading goes on where the group stands.
    pub(super) fn drop_open(&mut self) {
        self.touched = false;
        self.stores.aborted();
        for part in &mut self.parts {
            (part.next, part.read, part.head, part.drained, part.waiting) = (part.committed, false, None, false, None);
        }
    }

    /// Lets the task read its stores, outside any transaction.
    pub(super) fn restored(&mut self, now: Now) -> Step<()> {
        self.task.restored(&mut TxCx::new(now, &mut NoTransaction, &mut self.stores))
    }

    /// Ends the task; the writer has applied everything when this returns.
    pub(super) fn close(mut self, how: Close) -> Step<()> {
        if self.touched {
            self.stores.aborted();
        }
        self.task.close(how);
        Ok(self.stores.drain()?)
    }

    /// Marks what a `Drained` event tells.
    pub(super) fn drained(&mut self, tp: &Tp) {
        if let Some(part) = self.parts.iter_mut().find(|p| p.tp == *tp) {
            part.drained = true;
        }
    }

    /// How far reading is behind the known end, by partition.
    pub(super) fn behind<'a, Src: Source>(&'a self, source: &'a Src) -> impl Iterator<Item = (&'a Tp, Behind)> {
        self.parts.iter().filter_map(|p| source.known_end(&p.tp).map(|end| (&p.tp, p.share.behind(end.0 - p.position(source).0))))
    }
}

/// What a client fault means for a commit that cannot be tried: used where a source refuses.
pub(super) fn client_failed(f: KafkaFault) -> TaskError {
    use crate::error::{Error, Fault, codes};
    TaskError::Failed(
        Error::new(codes::CLIENT_FAILED, Fault::Unreachable, format!("reading in {}", f.to)).because(f).next("start again"),
    )
}
