//! Commands as people and tools write them to `<app>-commands`.

use std::time::Duration;

use crate::error::Result;
use crate::ids::{ApplicationId, CommandId, OperationId, Partition, StepName, Tenant, TopicName, partition_of};
use crate::intents::{Approval, Command, CommandKind, Resolution, Via, headers, topics};
use crate::record::{Headers, OutRecord};
use crate::serdes::internal::{Wire, encode};
use crate::time::WallTime;

/// Who orders something about which operation, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// Whose operation; `None` where the ID is unique.
    pub tenant: Option<Tenant>,
    /// Which operation, root or derived.
    pub operation_id: OperationId,
    /// The effect step; `None` where there is one only.
    pub step: Option<StepName>,
    /// The version that was seen.
    pub seen: Option<i64>,
    /// Who.
    pub by: String,
    /// The second person, where one is needed.
    pub second: Option<String>,
    /// By which way: whether the names are verified.
    pub via: Option<Via>,
    /// Why.
    pub reason: String,
    /// What was looked at.
    pub evidence: Option<String>,
    /// When.
    pub at: WallTime,
    /// How long it is held for an operation that is not known yet.
    pub hold: Duration,
}

impl Order {
    fn command(self, kind: CommandKind, resolution: Option<Resolution>, approval: Option<Approval>) -> Command {
        Command {
            command_id: CommandId::from(uuid::Uuid::new_v4().to_string()),
            kind,
            tenant: self.tenant.unwrap_or_else(|| Tenant::new("")),
            operation_id: self.operation_id,
            step: self.step,
            seen: self.seen,
            by: self.by,
            second: self.second,
            reason: self.reason,
            evidence: self.evidence,
            resolution,
            approval,
            issued_at: self.at,
            not_after: self.at.plus(self.hold),
            via: self.via,
        }
    }
}

/// Forbids further sends.
pub fn cancel(order: Order) -> Command {
    order.command(CommandKind::Cancel, None, None)
}

/// Says what happened.
pub fn resolve(order: Order, resolution: Resolution) -> Command {
    order.command(CommandKind::Resolve, Some(resolution), None)
}

/// Orders another send.
pub fn force(order: Order) -> Command {
    order.command(CommandKind::Force, None, None)
}

/// Approves the plan that was seen, before or after the hand-over.
pub fn approve(order: Order, approval: Approval) -> Command {
    order.command(CommandKind::ApproveLate, None, Some(approval))
}

/// Opens the lane behind a parked operation.
pub fn release_lane(order: Order) -> Command {
    order.command(CommandKind::ReleaseLane, None, None)
}

/// Takes an approval back.
pub fn revoke(order: Order, approval: Approval) -> Command {
    order.command(CommandKind::Revoke, None, Some(approval))
}

/// Asks for the current status.
pub fn query(order: Order) -> Command {
    order.command(CommandKind::Query, None, None)
}

/// A command as a record for the commands topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandRecord {
    /// The topic.
    pub topic: TopicName,
    /// The partition: by root ID, always explicit.
    pub partition: Partition,
    /// The key: the operation.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The headers.
    pub headers: Headers,
}

impl CommandRecord {
    /// Puts a command on the wire of an application whose commands topic has `partitions`.
    pub fn new(application: &ApplicationId, partitions: u32, command: &Command) -> Result<Self> {
        Ok(Self {
            topic: topics::commands(application),
            partition: partition_of(command.operation_id.root().as_str().as_bytes(), partitions),
            key: command.operation_id.as_str().as_bytes().to_vec(),
            value: encode(command)?,
            headers: Headers::new()
                .with(headers::SCHEMA, Command::SCHEMA)
                .with(headers::OPERATION, command.operation_id.to_string()),
        })
    }

    /// As a record to publish.
    pub fn as_record(&self) -> OutRecord<'_> {
        OutRecord {
            topic: &self.topic,
            partition: Some(self.partition),
            timestamp: None,
            key: Some(&self.key),
            value: Some(&self.value),
            headers: Some(&self.headers),
        }
    }
}
