//! Between the client's words and ours: records, positions, error classes.

use bytes::Bytes;
use rdkafka::client::Client;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as E};
use rdkafka::message::{BorrowedMessage, Header as RdHeader, Headers as _, Message as _};
use rdkafka::{Offset as RdOffset, TopicPartitionList};

use super::context::Context;
use crate::ids::Tp;
use crate::kafka::{Class, KResult, KafkaFault};
use crate::offset::{NextOffset, Offset};
use crate::record::{Header, Headers, InRecord};
use crate::time::WallTime;

/// Copies key and value once, into one allocation, and headers; `tp` is the caller's, so that no topic name is allocated.
pub(super) fn in_record(tp: Tp, message: &BorrowedMessage<'_>) -> InRecord {
    let headers = message.headers().map(|found| {
        let copy = |h: RdHeader<'_, &[u8]>| Header { name: h.key.to_owned().into(), value: h.value.map(Bytes::copy_from_slice) };
        Headers(found.iter().map(copy).collect())
    });
    let (key, value) = joined(message.key(), message.payload());
    InRecord {
        tp,
        offset: Offset(message.offset()),
        // C031: a negative time is no time, and no reason to stop.
        timestamp: message.timestamp().to_millis().filter(|t| *t >= 0).map(WallTime),
        key,
        value,
        headers: headers.unwrap_or_default(),
    }
}

/// Both in one buffer: nearly every record has both, and they live equally long.
fn joined(key: Option<&[u8]>, value: Option<&[u8]>) -> (Option<Bytes>, Option<Bytes>) {
    let whole = Bytes::from([key.unwrap_or_default(), value.unwrap_or_default()].concat());
    let split = key.map_or(0, <[u8]>::len);
    (key.map(|_| whole.slice(..split)), value.map(|_| whole.slice(split..)))
}

/// A list with positions.
pub(super) fn positions<'a>(of: impl IntoIterator<Item = (&'a Tp, NextOffset)>) -> KResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (tp, next) in of {
        list.add_partition_offset(tp.topic.as_str(), tp.partition.0, RdOffset::Offset(next.0))
            .map_err(|e| KafkaFault::new(Class::Config, "naming a position", tp, e))?;
    }
    Ok(list)
}

/// What a group's leader gave a member, as the consumer protocol writes it: version, then topics with their partitions. `None` where it
/// is written otherwise.
pub(super) fn assignment(bytes: &[u8]) -> Option<Vec<Tp>> {
    let mut rest = bytes.get(2..)?;
    let mut take = |n: usize| {
        let (head, tail) = rest.split_at_checked(n)?;
        rest = tail;
        Some(head)
    };
    let mut tps = Vec::new();
    let number = |b: &[u8]| b.iter().fold(0_usize, |n, b| n << 8 | usize::from(*b));
    for _ in 0..number(take(4)?) {
        let length = number(take(2)?);
        let topic = std::str::from_utf8(take(length)?).ok()?.to_owned();
        for _ in 0..number(take(4)?) {
            tps.push(Tp::new(topic.as_str(), i32::try_from(number(take(4)?)).ok()?));
        }
    }
    Some(tps)
}

/// A list without positions.
pub(super) fn partitions<'a>(of: impl IntoIterator<Item = &'a Tp>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for tp in of {
        list.add_partition(tp.topic.as_str(), tp.partition.0);
    }
    list
}

/// The partitions of a list.
pub(super) fn tps(list: &TopicPartitionList) -> Vec<Tp> {
    list.elements().iter().map(|e| Tp::new(e.topic(), e.partition())).collect()
}

/// What permissions are called, by Kafka's numbers; those that nobody here needs have no name.
pub(super) fn operation(number: u32) -> Option<&'static str> {
    let names = ["Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "DescribeConfigs"];
    names.get(usize::try_from(number).ok()?.checked_sub(3)?).copied()
}

/// What a code asks for whoever reports it, where it says so by itself.
fn class_of_code(code: E) -> Option<Class> {
    match code {
        E::FencedInstanceId => Some(Class::SlotTaken),
        E::Fenced | E::ProducerFenced | E::InvalidProducerEpoch => Some(Class::Fenced),
        E::TopicAuthorizationFailed
        | E::GroupAuthorizationFailed
        | E::ClusterAuthorizationFailed
        | E::TransactionalIdAuthorizationFailed
        | E::InvalidTransactionTimeout
        // C028: a record that is too large stays so; trying again would go round for ever.
        | E::MessageSizeTooLarge
        | E::InvalidTopic
        | E::AutoOffsetReset
        | E::UnknownTopic
        | E::UnknownPartition
        | E::UnknownTopicOrPartition => Some(Class::Config),
        _ => None,
    }
}

/// The class of an error: fatal, abort, retry, in this order; no flag at all counts as fatal.
fn class(error: &KafkaError, fatal: Option<E>) -> Class {
    if let Some(code) = fatal {
        return class_of_code(code).unwrap_or(Class::Rebuild);
    }
    match error {
        KafkaError::Transaction(e) => class_of_transaction(e.code(), e.is_fatal(), e.txn_requires_abort(), e.is_retriable()),
        KafkaError::MessageProduction(E::QueueFull) => Class::Retry,
        KafkaError::MessageProduction(code) => class_of_code(*code).unwrap_or(Class::Abort),
        KafkaError::MessageConsumption(
            E::AutoOffsetReset | E::OffsetOutOfRange | E::UnknownTopic | E::UnknownPartition | E::UnknownTopicOrPartition,
        ) => Class::Gone,
        KafkaError::MessageConsumptionFatal(code) => class_of_code(*code).unwrap_or(Class::Rebuild),
        KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) | KafkaError::Nul(_) => Class::Config,
        // The client tells no code of these. All others pass, such as a topic of which a broker has not heard yet.
        KafkaError::AdminOp(E::TopicAuthorizationFailed | E::GroupAuthorizationFailed | E::ClusterAuthorizationFailed) => {
            Class::Config
        }
        other => other.rdkafka_error_code().and_then(class_of_code).unwrap_or(Class::Retry),
    }
}

/// The class of a transactional call's error, by its code and the client's three flags.
fn class_of_transaction(code: E, fatal: bool, abort: bool, retriable: bool) -> Class {
    match (class_of_code(code), fatal, abort, retriable) {
        (Some(known @ (Class::SlotTaken | Class::Fenced)), true, _, _) => known,
        (_, true, _, _) => Class::Rebuild,
        (Some(Class::Config), ..) => Class::Config,
        // Also for a refused stamp: while our own consumer is between two memberships (the broker was away for a session) the stamp
        // holds no member id, and the group calls that fenced. Whether the slot is taken, only the consumer can say.
        (_, _, true, _) => Class::Abort,
        (_, _, _, true) => Class::Retry,
        _ => Class::Rebuild,
    }
}

/// A fault from the client's error; a fatal state of the client goes before what the error itself says.
pub(super) fn fault(client: &Client<Context>, doing: &'static str, to: impl std::fmt::Display, error: &KafkaError) -> KafkaFault {
    let fault = match client.fatal_error() {
        Some((code, why)) => KafkaFault::new(class(error, Some(code)), doing, to, format!("{error}; fatal {code:?}: {why}")),
        None => KafkaFault::new(class(error, None), doing, to, error),
    };
    // A refused login stays a fault that passes: the secret may be under way to us, or to the broker.
    fault.refused(client.context().refusal())
}

/// A fault where there is no client to ask.
pub(super) fn clientless(doing: &'static str, to: impl std::fmt::Display, error: &KafkaError) -> KafkaFault {
    KafkaFault::new(class(error, None), doing, to, error)
}

/// The class of a record that the broker refused.
pub(super) fn class_of_report(code: E) -> Class {
    class_of_code(code).unwrap_or(Class::Abort)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, settings that this login may not read would look like a broker that is away, for ever.
    #[test]
    fn what_an_admin_may_not_ask_is_no_fault_that_passes() {
        for code in [E::TopicAuthorizationFailed, E::GroupAuthorizationFailed, E::ClusterAuthorizationFailed] {
            assert_eq!(class(&KafkaError::AdminOp(code), None), Class::Config, "{code:?}");
        }
        assert_eq!(class(&KafkaError::AdminOp(E::UnknownTopicOrPartition), None), Class::Retry, "a broker may not know it yet");
    }

    /// C028: if this broke, a record over the broker's limit would be sent again and again instead of being told apart.
    #[test]
    fn a_record_that_is_too_large_is_not_retried() {
        assert_eq!(class(&KafkaError::MessageProduction(E::MessageSizeTooLarge), None), Class::Config);
        assert_eq!(class_of_report(E::MessageSizeTooLarge), Class::Config);
        assert_eq!(class(&KafkaError::MessageProduction(E::QueueFull), None), Class::Retry);
    }

    /// If this broke, a restart of the broker would end every member: its first stamp afterwards is refused as fenced.
    #[test]
    fn a_refused_stamp_is_no_taken_slot() {
        assert_eq!(class_of_transaction(E::FencedInstanceId, false, true, false), Class::Abort);
        assert_eq!(class_of_transaction(E::ProducerFenced, true, false, false), Class::Fenced);
    }

    /// If this broke, a slot held by another member would be rejoined, and both would throw each other out in turn.
    #[test]
    fn a_fenced_instance_is_a_taken_slot() {
        assert_eq!(class(&KafkaError::MessageConsumptionFatal(E::FencedInstanceId), None), Class::SlotTaken);
        assert_eq!(class(&KafkaError::MessageConsumption(E::BrokerTransportFailure), Some(E::FencedInstanceId)), Class::SlotTaken);
        assert_eq!(class(&KafkaError::MessageConsumption(E::BrokerTransportFailure), None), Class::Retry);
        assert_eq!(class(&KafkaError::Flush(E::OperationTimedOut), Some(E::ProducerFenced)), Class::Fenced);
    }

    /// If this broke, the console would show partitions under a member that does not have them, or end on what a stranger wrote.
    #[test]
    fn an_assignment_is_read_or_left() {
        let bytes = b"\0\x03\0\0\0\x02\0\x02in\0\0\0\x02\0\0\0\0\0\0\0\x05\0\x01x\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff";
        let tps = assignment(bytes).expect("reads");
        assert_eq!(tps, [Tp::new("in", 0), Tp::new("in", 5), Tp::new("x", 1)]);
        for end in 0..bytes.len() - 4 {
            assert_eq!(assignment(&bytes[..end]), None, "{end}");
        }
        assert_eq!(assignment(&[0xff; 64]), None);
    }
}
