//! Where streams part and meet.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use crate::processor::{Next, Process, ProcessorCx, Record};
use crate::task::TaskError;
use crate::topology::{NodeId, Parts, Role};

use super::KStream;
use super::builder::stream_of;
use super::outlets::Outlets;

type Predicate<K, V> = Arc<dyn Fn(&Record<K, V>, &ProcessorCx<'_, '_>) -> Result<bool, TaskError> + Send + Sync>;
type Ways<K, V> = Arc<Mutex<Vec<(Option<Predicate<K, V>>, Outlets<K, V>)>>>;

/// A stream that parts: each record goes the first way whose predicate holds, or the default one, or nowhere.
pub struct Branched<K, V> {
    stream: KStream<K, V>,
    node: NodeId,
    ways: Ways<K, V>,
}

impl<K: Clone + 'static, V: Clone + 'static> KStream<K, V> {
    /// Parts the stream; the ways are added on what this returns.
    pub fn split(&self) -> Branched<K, V> {
        let node = self.build.borrow_mut().graph.add("KSTREAM-BRANCH", self.next_name.as_deref(), Role::Step, &[self.node]);
        let ways: Ways<K, V> = Arc::default();
        let below = ways.clone();
        self.out.add(move |parts| {
            let ways = below.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Box::new(Split { ways: ways.into_iter().map(|(p, out)| (p, out.make(parts))).collect() })
        });
        Branched { stream: self.clone().unnamed(), node, ways }
    }
}

impl<K: Clone + 'static, V: Clone + 'static> Branched<K, V> {
    /// The way for records that no earlier way took and for which `f` holds.
    pub fn branch(&self, f: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> KStream<K, V> {
        self.branch_by(move |r, _| Ok(f(&r.key, &r.value)))
    }
    /// The way for the rest.
    pub fn default_branch(&self) -> KStream<K, V> {
        self.way(None)
    }

    /// As [`Self::branch`], for predicates that look at the whole record and may fail on it.
    pub(crate) fn branch_by(
        &self,
        f: impl Fn(&Record<K, V>, &ProcessorCx<'_, '_>) -> Result<bool, TaskError> + Send + Sync + 'static,
    ) -> KStream<K, V> {
        self.way(Some(Arc::new(f)))
    }

    fn way(&self, predicate: Option<Predicate<K, V>>) -> KStream<K, V> {
        let out = Outlets::new();
        self.ways.lock().unwrap_or_else(PoisonError::into_inner).push((predicate, out.clone()));
        stream_of(&self.stream.build, self.node, out, self.stream.rekeyed)
    }
}

struct Split<K, V> {
    ways: Vec<(Option<Predicate<K, V>>, Next<K, V>)>,
}

impl<K, V> Process<K, V> for Split<K, V> {
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        for (predicate, next) in &mut self.ways {
            match predicate.as_ref().map_or(Ok(true), |p| p(&record, cx)) {
                Ok(true) => return next.process(record, cx),
                Ok(false) => {}
                Err(e) => return cx.settle(Err(e)),
            }
        }
        Ok(())
    }
}

/// A node that several parents hold; made once a task.
pub(super) struct SharedNode<K, V>(Rc<RefCell<Next<K, V>>>);

impl<K, V> Process<K, V> for SharedNode<K, V> {
    fn process(&mut self, record: Record<K, V>, cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        self.0.borrow_mut().process(record, cx)
    }
}

/// What hangs below `node`, the same for each parent of it.
pub(super) fn shared_once<K: Clone + 'static, V: Clone + 'static>(
    node: NodeId,
    below: &Outlets<K, V>,
    parts: &mut Parts<'_>,
) -> SharedNode<K, V> {
    let made = parts.shared.get(&node).and_then(|any| any.downcast_ref::<Rc<RefCell<Next<K, V>>>>()).cloned();
    SharedNode(made.unwrap_or_else(|| {
        let made = Rc::new(RefCell::new(below.make(parts)));
        parts.shared.insert(node, Box::new(made.clone()));
        made
    }))
}
