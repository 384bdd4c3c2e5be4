//! A reader outside any group.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use crate::ids::Tp;
use crate::kafka::{Class, Isolation, KResult, KafkaFault, Reader};
use crate::offset::NextOffset;
use crate::record::InRecord;

use super::MemoryCluster;
use super::broker::Broker;
use super::faults::Call;
use super::log::Read;

/// Reads partitions in turn, one record each.
pub(super) struct MemoryReader {
    cluster: MemoryCluster,
    isolation: Isolation,
    at: BTreeMap<Tp, NextOffset>,
    last: Option<Tp>,
}

impl MemoryReader {
    pub(super) fn new(cluster: MemoryCluster, isolation: Isolation) -> Self {
        Self { cluster, isolation, at: BTreeMap::new(), last: None }
    }

    fn read(&mut self, broker: &Broker) -> KResult<Option<InRecord>> {
        if broker.faults.down {
            return Ok(None);
        }
        let mut turn: Vec<Tp> = self.at.keys().cloned().collect();
        if let Some(last) = &self.last {
            let after = turn.partition_point(|tp| tp <= last);
            turn.rotate_left(after);
        }
        for tp in turn {
            let Some(at) = self.at.get_mut(&tp) else { continue };
            match broker.existing("reading", &tp)?.read(&tp, *at, self.isolation) {
                Read::Record(record) => {
                    *at = record.offset.next();
                    self.last = Some(tp);
                    return Ok(Some(*record));
                }
                Read::UpTo(end) => *at = end,
                Read::OutOfRange => {
                    return Err(KafkaFault::new(Class::Gone, "reading", &tp, format!("offset {at} is out of range")));
                }
            }
        }
        Ok(None)
    }
}

impl Reader for MemoryReader {
    fn assign(&mut self, start: &[(Tp, NextOffset)]) -> KResult<()> {
        self.at = start.iter().cloned().collect();
        self.last = None;
        Ok(())
    }

    fn poll(&mut self, limit: Duration) -> KResult<Option<InRecord>> {
        let cluster = self.cluster.clone();
        let broker = cluster.broker();
        let found = self.read(&broker)?;
        if found.is_some() || !broker.limits.wait || limit.is_zero() {
            return Ok(found);
        }
        let (broker, _) = cluster.0.changed.wait_timeout(broker, limit).unwrap_or_else(PoisonError::into_inner);
        self.read(&broker)
    }

    fn position(&self, tp: &Tp) -> Option<NextOffset> {
        self.at.get(tp).copied()
    }

    fn ends(&mut self, tp: &Tp, isolation: Isolation) -> KResult<(NextOffset, NextOffset)> {
        let mut broker = self.cluster.broker();
        broker.faults.gate(Call::Ends, "reading ends", "")?;
        broker.existing("reading ends", tp).map(|log| (log.start(), log.end_for(isolation)))
    }
}
