//! Questions and orders to the in-process cluster.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use crate::ids::{GroupId, TopicName, Tp};
use crate::kafka::{Admin, Class, KResult, KafkaFault, Member, NewTopic, TopicInfo};
use crate::offset::NextOffset;

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

    fn members(&self, group: &GroupId) -> KResult<Vec<Member>> {
        let broker = self.broker("describing a group")?;
        let slots = broker.groups.get(group).into_iter().flat_map(|g| g.slots());
        Ok(slots.map(|s| Member { client_id: s.to_string(), host: "memory".to_owned() }).collect())
    }

    fn brokers(&self) -> KResult<u32> {
        self.broker("counting brokers").map(|_| 1)
    }
}
