//! Where a node's records go: factories of the nodes below, and the fan-out where there are several.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use crate::processor::{Next, Process, ProcessorCx, Record};
use crate::task::TaskError;
use crate::topology::Parts;

/// Makes one node below, with all that hangs on it.
pub(super) type Below<K, V> = Arc<dyn Fn(&mut Parts<'_>) -> Next<K, V> + Send + Sync>;

/// The nodes below a node; grows while the topology is built.
pub(super) struct Outlets<K, V>(Arc<Mutex<Vec<Below<K, V>>>>);

impl<K, V> Clone for Outlets<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + 'static, V: Clone + 'static> Outlets<K, V> {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }
    /// Hangs a node below.
    pub(super) fn add(&self, below: impl Fn(&mut Parts<'_>) -> Next<K, V> + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(below));
    }
    /// Hangs a function below that passes nothing on.
    pub(super) fn end<F>(&self, f: F)
    where
        F: Fn(Record<K, V>, &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        self.add(move |_| {
            let f = f.clone();
            Box::new(End(move |r, cx: &mut ProcessorCx<'_, '_>| f(r, cx), PhantomData))
        });
    }
    /// Makes what is below, for one task.
    pub(super) fn make(&self, parts: &mut Parts<'_>) -> Next<K, V> {
        let below = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut nodes: Vec<_> = below.iter().map(|make| make(parts)).collect();
        match nodes.pop() {
            None => Box::new(Nowhere),
            Some(last) if nodes.is_empty() => last,
            Some(last) => Box::new(Fanout { others: nodes, last }),
        }
    }
}

/// Nothing hangs below.
struct Nowhere;

impl<K, V> Process<K, V> for Nowhere {
    fn process(&mut self, _: Record<K, V>, _: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// The same record to several nodes; the last one takes it by value.
struct Fanout<K, V> {
    others: Vec<Next<K, V>>,
    last: Next<K, V>,
}

impl<K: Clone, V: Clone> Process<K, V> for Fanout<K, V> {
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        for node in &mut self.others {
            node.process(record.clone(), cx)?;
        }
        self.last.process(record, cx)
    }
}

/// A node that is one function of a record. What the function fails on by the record's fault is put aside here.
pub(super) struct Each<F, K2, V2> {
    pub(super) f: Arc<F>,
    pub(super) next: Next<K2, V2>,
}

impl<F, K, V, K2, V2> Process<K, V> for Each<F, K2, V2>
where
    F: Fn(Record<K, V>, &mut ProcessorCx<'_, '_>, &mut dyn Process<K2, V2>) -> Result<(), TaskError>,
{
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let done = (self.f)(record, cx, &mut *self.next);
        cx.settle(done)
    }
}

/// A node that is one function of a record, with nothing below.
pub(super) struct End<F, K, V>(pub(super) F, pub(super) PhantomData<fn(K, V)>);

impl<F, K, V> Process<K, V> for End<F, K, V>
where
    F: Fn(Record<K, V>, &mut ProcessorCx<'_, '_>) -> Result<(), TaskError>,
{
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        let done = (self.0)(record, cx);
        cx.settle(done)
    }
}
