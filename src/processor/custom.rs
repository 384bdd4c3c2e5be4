//! The Processor API: user code with state and timers.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::task::TaskError;
use crate::time::{MonoTime, Now, WallTime};

use super::{Next, Process, ProcessorCx, Record, Timers};

/// User code between two streams. One instance a task, made by a supplier.
pub trait Processor<K, V> {
    /// The key it forwards.
    type KOut;
    /// The value it forwards.
    type VOut;

    /// When it is called without a record.
    fn punctuations(&self) -> Vec<Punctuate> {
        Vec::new()
    }
    /// Takes one record.
    fn process(&mut self, record: Record<K, V>, cx: &mut Forward<'_, '_, '_, Self::KOut, Self::VOut>) -> Result<(), TaskError>;
    /// Its timers by key, where it has some; their store must be connected with it.
    fn timers(&self) -> Option<Timers<K>> {
        None
    }
    /// The timer of a key is due; it was set for `at` and is gone now.
    fn on_timer(&mut self, _key: K, _at: WallTime, _cx: &mut Forward<'_, '_, '_, Self::KOut, Self::VOut>) -> Result<(), TaskError> {
        Ok(())
    }
    /// A timer of [`Self::punctuations`] is due at `at`.
    fn punctuate(
        &mut self,
        _kind: PunctuationKind,
        _at: WallTime,
        _cx: &mut Forward<'_, '_, '_, Self::KOut, Self::VOut>,
    ) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Which clock a timer follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PunctuationKind {
    /// The times of records: it stands still where none come.
    StreamTime,
    /// The clock on the wall.
    WallClock,
}

/// A timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Punctuate {
    /// Which clock it follows.
    pub kind: PunctuationKind,
    /// How often; zero means never.
    pub every: Duration,
}

/// The context of a [`Processor`]: everything a node may do, and `forward`.
pub struct Forward<'x, 'a, 't, K, V> {
    cx: &'x mut ProcessorCx<'a, 't>,
    next: &'x mut dyn Process<K, V>,
}

impl<'a, 't, K, V> Forward<'_, 'a, 't, K, V> {
    /// Passes a record on.
    pub fn forward(&mut self, record: Record<K, V>) -> Result<(), TaskError> {
        self.next.process(record, self.cx)
    }
    /// Stores, time, origin.
    pub fn cx(&mut self) -> &mut ProcessorCx<'a, 't> {
        self.cx
    }
}

/// A node that is called without a record: by time, after restore, before a commit.
pub trait Punctuator {
    /// Runs what is due; `stream` is the task's stream time.
    fn run_due(&mut self, _now: Now, _cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        Ok(())
    }
    /// Whether something is due.
    fn is_due(&self, _now: Now, _stream: Option<WallTime>) -> bool {
        false
    }
    /// When the next wall-clock timer is due.
    fn next_due(&self) -> Option<MonoTime> {
        None
    }
    /// The stores are as they were at the last commit: reads from them what it needs.
    fn restored(&mut self, _cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        Ok(())
    }
    /// Before any [`before_commit`](Self::before_commit), from the top of the graph down: passes on what is still held.
    fn flush(&mut self, _cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        Ok(())
    }
    /// Last chance to write into this transaction.
    fn before_commit(&mut self, _cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        Ok(())
    }
}

struct Timer {
    what: Punctuate,
    wall_due: Option<MonoTime>,
    stream_due: Option<WallTime>,
}

impl Timer {
    fn is_due(&self, now: Now, stream: Option<WallTime>) -> bool {
        match self.what.kind {
            PunctuationKind::WallClock => self.wall_due.is_none_or(|due| now.mono >= due),
            PunctuationKind::StreamTime => stream.is_some_and(|s| self.stream_due.is_none_or(|due| s >= due)),
        }
    }
    /// The next time after this one; missed rounds are not made up for.
    fn again(&mut self, now: Now, stream: Option<WallTime>) {
        match self.what.kind {
            PunctuationKind::WallClock => self.wall_due = Some(now.mono.plus(self.what.every)),
            PunctuationKind::StreamTime => self.stream_due = stream.map(|s| s.plus(self.what.every)),
        }
    }
}

/// Runs a [`Processor`] as a node.
pub(crate) struct Custom<P, K, V> {
    processor: P,
    next: Next<K, V>,
    timers: Vec<Timer>,
    due: Option<Due>,
}

/// When the next timer by key is due.
#[derive(Clone, Copy)]
struct Due {
    kind: PunctuationKind,
    at: WallTime,
    mono: MonoTime,
}

impl<P, K, V> Custom<P, K, V> {
    /// Looks again when the next timer by key is due.
    fn look<KIn, VIn>(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError>
    where
        P: Processor<KIn, VIn, KOut = K, VOut = V>,
    {
        let Some(timers) = self.processor.timers() else { return Ok(()) };
        let now = cx.now();
        let due = |at: WallTime| Due { kind: timers.kind(), at, mono: now.mono.plus(at.since(now.wall)) };
        self.due = timers.next(cx)?.map(due);
        Ok(())
    }
    fn is_due(&self, now: Now, stream: Option<WallTime>) -> bool {
        self.due.is_some_and(|due| match due.kind {
            PunctuationKind::WallClock => now.wall >= due.at,
            PunctuationKind::StreamTime => stream >= Some(due.at),
        })
    }

    /// Puts `processor` above `next`.
    pub(crate) fn shared<KIn, VIn>(processor: P, next: Next<K, V>) -> Rc<RefCell<Self>>
    where
        P: Processor<KIn, VIn, KOut = K, VOut = V>,
    {
        let timer = |what: Punctuate| (!what.every.is_zero()).then_some(Timer { what, wall_due: None, stream_due: None });
        let timers = processor.punctuations().into_iter().filter_map(timer).collect();
        Rc::new(RefCell::new(Self { processor, next, timers, due: None }))
    }
}

/// A [`Custom`] node as its parent holds it.
pub(crate) struct CustomNode<P, K, V>(pub(crate) Rc<RefCell<Custom<P, K, V>>>);

impl<P, KIn, VIn> Process<KIn, VIn> for CustomNode<P, P::KOut, P::VOut>
where
    P: Processor<KIn, VIn>,
{
    fn process(&mut self, record: Record<KIn, VIn>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let node = &mut *self.0.borrow_mut();
        let timers = cx.timers();
        let done = node.processor.process(record, &mut Forward { cx, next: &mut *node.next });
        if cx.timers() != timers {
            node.look::<KIn, VIn>(cx)?;
        }
        cx.settle(done)
    }
}

/// A [`Custom`] node as the task's timers hold it; the input types are known only here.
pub(crate) struct CustomTimers<P, K, V, KIn, VIn>(
    pub(crate) Rc<RefCell<Custom<P, K, V>>>,
    pub(crate) std::marker::PhantomData<fn(KIn, VIn)>,
);

impl<P, KIn, VIn> Punctuator for CustomTimers<P, P::KOut, P::VOut, KIn, VIn>
where
    P: Processor<KIn, VIn>,
{
    fn run_due(&mut self, now: Now, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let node = &mut *self.0.borrow_mut();
        for timer in &mut node.timers {
            let stream = cx.stream_time();
            if !timer.is_due(now, stream) {
                continue;
            }
            let first = timer.wall_due.is_none() && timer.stream_due.is_none();
            timer.again(now, stream);
            if first {
                continue;
            }
            let at = match timer.what.kind {
                PunctuationKind::WallClock => now.wall,
                PunctuationKind::StreamTime => stream.unwrap_or(now.wall),
            };
            node.processor.punctuate(timer.what.kind, at, &mut Forward { cx, next: &mut *node.next })?;
        }
        let stream = cx.stream_time();
        if let Some(timers) = node.processor.timers().filter(|_| node.is_due(now, stream)) {
            let until = match timers.kind() {
                PunctuationKind::WallClock => now.wall,
                PunctuationKind::StreamTime => stream.unwrap_or(now.wall),
            };
            for (key, at) in timers.take_due(cx, until)? {
                node.processor.on_timer(key, at, &mut Forward { cx, next: &mut *node.next })?;
            }
        }
        node.look::<KIn, VIn>(cx)
    }
    fn restored(&mut self, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.0.borrow_mut().look::<KIn, VIn>(cx)
    }
    fn is_due(&self, now: Now, stream: Option<WallTime>) -> bool {
        let node = self.0.borrow();
        node.timers.iter().any(|t| t.is_due(now, stream)) || node.is_due(now, stream)
    }
    fn next_due(&self) -> Option<MonoTime> {
        let node = self.0.borrow();
        let by_key = node.due.filter(|d| d.kind == PunctuationKind::WallClock).map(|d| d.mono);
        node.timers.iter().filter_map(|t| t.wall_due).chain(by_key).min()
    }
}
