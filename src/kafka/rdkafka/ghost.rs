//! Fenced by one's own ghost. When the broker is away for longer than a session, the client forgets its member id; until its owner
//! has given the lost partitions back, it sends its instance id with no member id, which the group calls fenced, and the consumer
//! is dead for good. The slot is taken only where the group lists the instance under a member id that was never ours.

use rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::context::Context;
use super::{RdCluster, raw};
use crate::kafka::Slot;

/// The member ids that a consumer of this slot had, the latest last.
#[derive(Debug, Default)]
pub(super) struct Ours(Vec<String>);

/// Who holds the slot, as the group lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// A former membership of this very consumer, or nobody.
    Ghost,
    /// Another process.
    Other,
    /// The group can't be asked now.
    Unknown,
}

impl Ours {
    /// Takes down the present member id.
    pub fn note(&mut self, consumer: &BaseConsumer<Context>) {
        let id = raw::member_id(consumer.client());
        if !id.is_empty() && !self.0.contains(&id) {
            self.0.push(id);
            if self.0.len() > 8 {
                self.0.remove(0);
            }
        }
    }

    /// Asks the group who holds the slot.
    pub fn holder(&self, cluster: &RdCluster, slot: &Slot) -> Holder {
        let name = slot.name();
        let config = cluster.consumer(name.as_str(), slot.group.as_str(), crate::kafka::Isolation::Committed);
        let Ok(asking) = cluster.make_consumer("asking who holds", name.as_str(), &config, None) else {
            return Holder::Unknown;
        };
        let Ok(groups) = asking.fetch_group_list(Some(slot.group.as_str()), cluster.config().offsets) else {
            return Holder::Unknown;
        };
        let members = groups.groups().iter().flat_map(|g| g.members());
        let holding: Vec<String> = members.filter(|m| m.client_id() == name.as_str()).map(|m| m.id().to_owned()).collect();
        self.judge(&holding)
    }

    fn judge(&self, holding: &[String]) -> Holder {
        if holding.iter().all(|id| self.0.contains(id)) { Holder::Ghost } else { Holder::Other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, either a broker restart would end every member, or two processes would throw each other out for ever.
    #[test]
    fn only_a_foreign_member_id_takes_the_slot() {
        let ours = Ours(vec!["orders-000-a".into(), "orders-000-b".into()]);
        assert_eq!(ours.judge(&["orders-000-b".into()]), Holder::Ghost);
        assert_eq!(ours.judge(&[]), Holder::Ghost);
        assert_eq!(ours.judge(&["orders-000-c".into()]), Holder::Other);
    }
}
