//! Questions and orders to the in-process cluster.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use crate::ids::{GroupId, SlotName, TopicName, Tp};
use crate::kafka::{Admin, Class, KResult, KafkaFault, Member, NewTopic, TopicInfo};
use crate::offset::NextOffset;
use crate::time::WallTime;

use super::MemoryCluster;
use super::broker::{Broker, Topic};
use super::faults::Call;

/// The admin client of the in-process log.
pub(super) struct MemoryAdmin(pub MemoryCluster);

fn info(name: &TopicName, topic: &Topic) -> TopicInfo {
    TopicInfo { name: name.clone(), partitions: topic.logs.len() as u32, replication: 1 }
}

impl MemoryAdmin {
    fn broker(&self, doing: &'static str) -> KResult<MutexGuard<'_, Broker>> {
        let mut broker = self.0.broker();
        broker.faults.gate(Call::Admin, doing, "")?;
        Ok(broker)
    }
}

impl Admin for MemoryAdmin {
    fn topic(&self, name: &TopicName) -> KResult<Option<TopicInfo>> {
        Ok(self.broker("describing a topic")?.topics.get(name).map(|t| info(name, t)))
    }

    fn topics(&self) -> KResult<Vec<TopicInfo>> {
        Ok(self.broker("listing topics")?.topics.iter().map(|(name, t)| info(name, t)).collect())
    }

    fn topic_config(&self, name: &TopicName) -> KResult<BTreeMap<String, String>> {
        const DOING: &str = "describing a topic";
        let config = self.broker(DOING)?.topics.get(name).map(|t| t.config.clone());
        config.ok_or_else(|| KafkaFault::new(Class::Config, DOING, name, "unknown topic"))
    }

    fn broker_config(&self) -> KResult<BTreeMap<String, String>> {
        self.broker("describing a broker").map(|_| BTreeMap::from([("broker.id".to_owned(), "memory".to_owned())]))
    }

    fn create(&self, topics: &[NewTopic]) -> KResult<()> {
        let mut broker = self.broker("creating topics")?;
        topics.iter().for_each(|t| broker.create(&t.name, t.partitions, t.config.clone()));
        Ok(())
    }

    fn delete_records(&self, before: &[(Tp, NextOffset)]) -> KResult<()> {
        const DOING: &str = "deleting records";
        let mut broker = self.broker(DOING)?;
        for (tp, to) in before {
            broker.existing(DOING, tp)?;
            if broker.log_mut(tp).is_some_and(|log| !log.delete_before(*to)) {
                return Err(KafkaFault::new(Class::Config, DOING, tp, format!("offset {to} is out of range")));
            }
        }
        Ok(())
    }

    fn committed(&self, group: &GroupId, tps: &[Tp]) -> KResult<Vec<(Tp, NextOffset)>> {
        let broker = self.broker("reading committed offsets")?;
        let all = broker.groups.get(group).map(|g| g.positions()).unwrap_or_default();
        Ok(tps.iter().filter_map(|tp| Some((tp.clone(), *all.get(tp)?))).collect())
    }

    fn delete(&self, topics: &[TopicName]) -> KResult<()> {
        let mut broker = self.broker("deleting topics")?;
        topics.iter().for_each(|t| broker.delete(t));
        Ok(())
    }

    fn reposition(&self, group: &GroupId, to: &[(Tp, NextOffset)]) -> KResult<()> {
        const DOING: &str = "setting positions";
        let mut broker = self.broker(DOING)?;
        let group = broker.groups.entry(group.clone()).or_default();
        let member = group.slots().next().cloned();
        if let Some(slot) = member {
            return Err(KafkaFault::new(Class::Config, DOING, slot, "the group has members"));
        }
        group.put(to);
        Ok(())
    }

    fn forget(&self, group: &GroupId) -> KResult<()> {
        const DOING: &str = "forgetting a group";
        let mut broker = self.broker(DOING)?;
        if broker.groups.get(group).is_some_and(|g| g.slots().next().is_some()) {
            return Err(KafkaFault::new(Class::Config, DOING, group, "the group has members"));
        }
        broker.groups.remove(group);
        Ok(())
    }

    fn positions_at(&self, tps: &[Tp], time: WallTime) -> KResult<Vec<(Tp, Option<NextOffset>)>> {
        const DOING: &str = "looking for a time";
        let broker = self.broker(DOING)?;
        tps.iter().map(|tp| Ok((tp.clone(), broker.existing(DOING, tp)?.at(time)))).collect()
    }

    fn members(&self, group: &GroupId) -> KResult<Vec<Member>> {
        let broker = self.broker("describing a group")?;
        let Some(group) = broker.groups.get(group) else { return Ok(Vec::new()) };
        let member =
            |slot: &SlotName| Member { client_id: slot.to_string(), host: "memory".to_owned(), partitions: group.assignment(slot) };
        Ok(group.slots().map(member).collect())
    }

    fn brokers(&self) -> KResult<u32> {
        self.broker("counting brokers").map(|_| 1)
    }
}
