//! A sub-topology × partition at work: decodes records at its sources and lets them fall through typed nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Fault, codes};
use crate::ids::TopicName;
use crate::processor::{Environment, ProcessorCx, Punctuator};
use crate::record::InRecord;
use crate::task::{Close, Task, TaskError, TxCx, Urgency};
use crate::time::{MonoTime, Now, WallTime};

use super::{Ingest, KeeperFactory, Layout, Parts, SourceFactory};

/// Runs the nodes of one sub-topology. After an abort all nodes are made anew, so what user code kept in memory can't survive the
/// transaction that it belonged to.
pub struct StreamTask {
    environment: Environment,
    layout: Arc<Layout>,
    factories: Arc<BTreeMap<Vec<TopicName>, SourceFactory>>,
    keepers: Arc<Vec<KeeperFactory>>,
    sources: BTreeMap<TopicName, usize>,
    ingests: Vec<Box<dyn Ingest>>,
    punctuators: Vec<Box<dyn Punctuator>>,
    /// Largest record time, of committed input and of this transaction.
    stream_time: (Option<WallTime>, Option<WallTime>),
    dirty: bool,
}

impl StreamTask {
    /// A task without nodes; [`Task::restored`] makes them.
    pub fn new(
        environment: Environment,
        layout: Arc<Layout>,
        factories: Arc<BTreeMap<Vec<TopicName>, SourceFactory>>,
        keepers: Arc<Vec<KeeperFactory>>,
    ) -> Self {
        Self {
            environment,
            layout,
            factories,
            keepers,
            sources: BTreeMap::new(),
            ingests: Vec::new(),
            punctuators: Vec::new(),
            stream_time: (None, None),
            dirty: false,
        }
    }

    fn make_nodes(&mut self) {
        let mut parts =
            Parts { environment: &self.environment, layout: &self.layout, shared: Default::default(), punctuators: Vec::new() };
        self.ingests.clear();
        self.sources.clear();
        for (topics, factory) in self.factories.iter() {
            self.ingests.push(factory(&mut parts));
            for topic in topics {
                self.sources.insert(topic.clone(), self.ingests.len() - 1);
            }
        }
        self.punctuators = parts.punctuators;
        self.punctuators.extend(self.keepers.iter().map(|make| make()));
    }
}

impl Task for StreamTask {
    fn restored(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.make_nodes();
        let mut cx = ProcessorCx::new(cx, &self.environment, None, self.stream_time.1);
        self.punctuators.iter_mut().try_for_each(|p| p.restored(&mut cx))
    }

    fn process(&mut self, record: InRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Some(&source) = self.sources.get(&record.tp.topic) else {
            let doing = format!("task {} got a record of {}, which is none of its sources", self.environment.task, record.tp);
            return Err(Error::new(codes::BUG, Fault::Bug, doing).into());
        };
        self.dirty = true;
        let mut cx = ProcessorCx::new(cx, &self.environment, Some(&record), self.stream_time.1);
        self.ingests[source].ingest(&record, &mut cx).map_err(held)?;
        self.stream_time.1 = cx.stream_time();
        for p in &mut self.punctuators {
            if p.is_due(cx.now(), self.stream_time.1) {
                p.run_due(cx.now(), &mut cx).map_err(held)?;
            }
        }
        Ok(())
    }

    fn wake(&mut self, now: Now, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let mut cx = ProcessorCx::new(cx, &self.environment, None, self.stream_time.1);
        for p in &mut self.punctuators {
            if p.is_due(now, self.stream_time.1) {
                self.dirty = true;
                p.run_due(now, &mut cx).map_err(held)?;
            }
        }
        Ok(())
    }

    fn wants_wake(&self, now: Now) -> bool {
        self.punctuators.iter().any(|p| p.is_due(now, self.stream_time.1))
    }

    fn urgency(&self) -> Urgency {
        if self.dirty { Urgency::WhenDrained } else { Urgency::None }
    }

    fn before_commit(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let mut inside = ProcessorCx::new(cx, &self.environment, None, self.stream_time.1);
        // Nodes are noted down after those below them, so the last ones stand at the top.
        self.punctuators.iter_mut().rev().try_for_each(|p| p.flush(&mut inside)).map_err(held)?;
        self.punctuators.iter_mut().try_for_each(|p| p.before_commit(&mut inside))?;
        cx.log_cached()
    }

    fn committed(&mut self, _at: Now) {
        self.dirty = false;
        self.stream_time.0 = self.stream_time.1;
    }

    fn aborted(&mut self) {
        self.dirty = false;
        self.stream_time.1 = self.stream_time.0;
    }

    fn next_due(&self) -> Option<MonoTime> {
        self.punctuators.iter().filter_map(|p| p.next_due()).min()
    }

    fn close(&mut self, _how: Close) {
        self.ingests.clear();
        self.punctuators.clear();
    }
}

/// A registry that is away or refuses us, or whatever else a node could not reach, is nothing that the record is to blame for.
fn held(error: TaskError) -> TaskError {
    match error {
        TaskError::Failed(e) if e.fault == Fault::Unreachable || e.code == codes::REGISTRY_REFUSED => TaskError::Held(Arc::new(e)),
        other => other,
    }
}

impl std::fmt::Debug for StreamTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamTask({})", self.environment.task)
    }
}
