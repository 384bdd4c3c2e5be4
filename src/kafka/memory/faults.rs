//! What tests and the simulator may break, and when.

use std::collections::{BTreeSet, VecDeque};

use crate::ids::{SlotName, TopicName};
use crate::kafka::{Class, KResult, KafkaFault};

/// A kind of call that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Call {
    /// [`TxSink::init`](crate::kafka::TxSink::init).
    Init,
    /// [`TxSink::send`](crate::kafka::TxSink::send).
    Send,
    /// [`TxSink::flush`](crate::kafka::TxSink::flush).
    Flush,
    /// [`TxSink::offsets`](crate::kafka::TxSink::offsets).
    Offsets,
    /// [`TxSink::commit`](crate::kafka::TxSink::commit); fails before anything is applied.
    Commit,
    /// [`TxSink::abort`](crate::kafka::TxSink::abort); fails before anything is applied.
    Abort,
    /// [`Source::committed`](crate::kafka::Source::committed).
    Committed,
    /// [`Source::stamp`](crate::kafka::Source::stamp).
    Stamp,
    /// [`Source::ends`](crate::kafka::Source::ends) and [`Reader::ends`](crate::kafka::Reader::ends).
    Ends,
    /// [`Cluster::publish`](crate::kafka::Cluster::publish).
    Publish,
    /// Any call of [`Admin`](crate::kafka::Admin).
    Admin,
}

/// What becomes of one commit whose answer is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostAnswer {
    /// It was applied.
    Applied,
    /// It never arrived: the transaction stays open until it is fenced or times out.
    NotApplied,
    /// It is on its way and arrives by [`MemoryCluster::deliver_late`](super::MemoryCluster::deliver_late), unless fenced by then.
    Late,
}

/// Which markers a committed or aborted transaction still waits for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum HeldMarkers {
    /// None: markers are written at once.
    #[default]
    None,
    /// Markers of these topics.
    Topics(BTreeSet<TopicName>),
    /// Markers of all topics and of committed offsets.
    All,
}

/// A promise of Kafka that the cluster no longer keeps: a test sees whether its checkers notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Members get records whose transaction is not committed.
    DirtyReads,
    /// Offsets that go with a transaction are dropped.
    OffsetsDropped,
}

/// A call that will fail: of this slot, or of anyone.
#[derive(Clone, Debug)]
struct Planned {
    call: Call,
    who: Option<SlotName>,
    class: Class,
}

/// Everything that is planned to break.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    planned: VecDeque<Planned>,
    lost: VecDeque<(Option<SlotName>, LostAnswer)>,
    pub held: HeldMarkers,
    pub down: bool,
    pub lie: Option<Lie>,
}

impl Faults {
    pub fn plan(&mut self, call: Call, who: Option<SlotName>, class: Class) {
        self.planned.push_back(Planned { call, who, class });
    }

    pub fn lose(&mut self, who: Option<SlotName>, what: LostAnswer) {
        self.lost.push_back((who, what));
    }

    /// Fails the call if that is planned, or if no broker answers.
    pub fn gate(&mut self, call: Call, doing: &'static str, who: &str) -> KResult<()> {
        if let Some(at) = self.planned.iter().position(|p| p.call == call && p.who.as_ref().is_none_or(|w| w.as_str() == who))
            && let Some(hit) = self.planned.remove(at)
        {
            return Err(KafkaFault::new(hit.class, doing, who, "planned fault"));
        }
        if self.down {
            let class = if call == Call::Commit { Class::OutcomeUnknown } else { Class::Retry };
            return Err(KafkaFault::new(class, doing, who, "no broker answers"));
        }
        Ok(())
    }

    /// What is planned for the answer of this slot's commit.
    pub fn lost_answer(&mut self, who: &SlotName) -> Option<LostAnswer> {
        let at = self.lost.iter().position(|(w, _)| w.as_ref().is_none_or(|w| w == who))?;
        self.lost.remove(at).map(|(_, what)| what)
    }
}
